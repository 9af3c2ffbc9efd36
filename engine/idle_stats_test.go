//go:build !race

package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestCountsOfForgottenKeysAreKeptByNameOrInTheSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible on purpose
	for _, names := range []int{5, 1500, 30_000} {
		var p idleStats
		q := &queue{}
		all := make([]uint64, names) // deliveries of each
		for range 200_000 {
			i := rng.IntN(names)
			name := fmt.Sprint("tenant-", i)
			k := &fairKey{name: name, hash: hashName(name)}
			before := p.of(name).delivered
			k.stats = p.take(k.hash, name).keyDeliveries
			if k.stats.delivered != before || p.of(name) != (keyStats{}) {
				t.Fatalf("%q had %d, comes back with %d, and %d stay", name, before, k.stats.delivered, p.of(name).delivered)
			}
			n := uint64(rng.IntN(3))
			k.stats.delivered += n
			all[i] += n
			p.keep(k.hash, k.name, k.statistics(0))
			trimmed := p.n == idleStatsMax // the key may have been among the least busy
			if got := p.of(name).delivered; got != k.stats.delivered && !trimmed {
				t.Fatalf("%q is forgotten with %d deliveries, %d are kept", name, k.stats.delivered, got)
			}
		}
		if err := p.check(q); err != nil {
			t.Fatal(err)
		}
		sum, most := p.rest.delivered, uint64(0)
		for name, s := range p.all() {
			sum += s.delivered
			most = max(most, s.delivered)
			if names < idleStatsMax && s.delivered != all[number(t, name)] {
				t.Errorf("%q has %d deliveries, %d are kept", name, all[number(t, name)], s.delivered)
			}
		}
		want := uint64(0)
		for _, n := range all {
			want += n
		}
		if sum != want {
			t.Errorf("%d names: %d deliveries, %d are kept", names, want, sum)
		}
	}
}

func number(t *testing.T, name string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(name, "tenant-%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheBusiestForgottenKeysKeepTheirNames(t *testing.T) {
	var p idleStats
	keep := func(i int, delivered uint64) {
		name := fmt.Sprint("tenant-", i)
		p.keep(hashName(name), name, keyStats{keyDeliveries: keyDeliveries{delivered: delivered}})
	}
	for i := range 2*idleStatsMax - 1 {
		keep(i, uint64(1+i%4/3))
	}
	if p.n != 2*idleStatsMax-1 || p.rest != (keyStats{}) {
		t.Fatalf("%d keys are kept, and a sum of %v", p.n, p.rest)
	}
	keep(2*idleStatsMax, 1) // one above the bound
	if p.n != idleStatsMax || p.rest.delivered != idleStatsMax {
		t.Fatalf("%d keys are kept, and a sum of %d deliveries", p.n, p.rest.delivered)
	}
	ones, twos := 0, 0
	for i := range 2*idleStatsMax - 1 {
		name := fmt.Sprint("tenant-", i)
		kept := p.of(name).delivered
		switch {
		case i%4 == 3:
			if twos++; kept != 2 {
				t.Errorf("%q had two deliveries, %d are kept", name, kept)
			}
		case kept == 1:
			ones++
		case ones > 0:
			t.Errorf("%q was forgotten after a key that is as busy, and its name is lost", name)
		}
	}
	if ones+twos+1 != idleStatsMax { // 1 for the last one
		t.Errorf("%d keys with one delivery and %d with two have kept their names", ones+1, twos)
	}
}
