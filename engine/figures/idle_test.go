package figures

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// keys are the keys of a queue that have messages.
type keys struct {
	*Queue
	seed maphash.Seed
	live map[string]*Key
}

func newKeys() *keys {
	q := new(Queue)
	new(All).Enter(q, "")
	return &keys{Queue: q, seed: maphash.MakeSeed(), live: map[string]*Key{}}
}

// come returns the key with a name, which has messages from now on.
func (w *keys) come(name string) *Key {
	if w.live[name] == nil {
		w.live[name] = new(Key)
		w.Returned(w.live[name], maphash.String(w.seed, name), name)
	}
	return w.live[name]
}

// deliver delivers messages of a key.
func (w *keys) deliver(name string, n int) {
	for range n {
		w.Took(w.come(name), name, 0, 1)
		w.Delivered(0)
	}
}

// forget ends the messages of a key.
func (w *keys) forget(name string) {
	w.Forgotten(w.live[name], maphash.String(w.seed, name), name, Tally{}, Debt{})
	delete(w.live, name)
}

// known returns the deliveries that are known of a name.
func (w *keys) known(name string) uint64 {
	if k := w.live[name]; k != nil {
		return k.Delivered
	}
	return w.Idle(maphash.String(w.seed, name), name).Delivered
}

func (w *keys) check(t *testing.T) {
	t.Helper()
	if idle, busiest := w.Check(maps.All(w.live), func(name string) *Key { return w.live[name] }); idle != nil || busiest != nil {
		t.Fatal(idle, busiest)
	}
}

func TestCountsOfForgottenKeysAreKeptByNameOrInTheSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible on purpose
	for _, names := range []int{5, 1500, 30_000} {
		w := newKeys()
		all, delivered := make([]uint64, names), uint64(0)
		for range 100_000 {
			i := rng.IntN(names)
			name := fmt.Sprint("tenant-", i)
			before := w.known(name)
			if k := w.come(name); k.Delivered != before || w.Idle(maphash.String(w.seed, name), name) != (BusyKey{Key: name}) {
				t.Fatalf("%q had %d, comes back with %d, and %d stay", name, before, k.Delivered, w.Idle(maphash.String(w.seed, name), name).Delivered)
			}
			n := rng.IntN(3)
			w.deliver(name, n)
			all[i], delivered = all[i]+uint64(n), delivered+uint64(n) //nolint:gosec // few
			w.forget(name)
			trimmed := w.idle.n == IdleMax                                 // the key may have been among the least busy
			if got := w.known(name); got != before+uint64(n) && !trimmed { //nolint:gosec // few
				t.Fatalf("%q is forgotten with %d deliveries, %d are kept", name, before+uint64(n), got) //nolint:gosec // few
			}
		}
		w.check(t)
		for i, n := range all {
			if got := w.known(fmt.Sprint("tenant-", i)); got > n || names < IdleMax && got != n {
				t.Errorf("tenant %d has %d deliveries, %d are kept", i, n, got)
			}
		}
		top, rest := w.Busiest(Tally{}, nil)
		for _, k := range top {
			rest.Delivered += k.Delivered
		}
		if rest.Delivered != delivered {
			t.Errorf("%d names: %d deliveries, the busiest and the rest have %d", names, delivered, rest.Delivered)
		}
	}
}

func TestTheBusiestForgottenKeysKeepTheirNames(t *testing.T) {
	w := newKeys()
	name := func(i int) string { return fmt.Sprint("tenant-", i) }
	end := func(i, deliveries int) {
		w.deliver(name(i), deliveries)
		w.forget(name(i))
	}
	known := func() (n int) {
		for i := range 2*IdleMax + 1 {
			if w.known(name(i)) > 0 {
				n++
			}
		}
		return n
	}
	for i := range 2*IdleMax - 1 {
		end(i, 1+i%4/3)
	}
	if n := known(); n != 2*IdleMax-1 || w.idle.n != n {
		t.Fatalf("%d keys are kept, %d are known", w.idle.n, n)
	}
	end(2*IdleMax, 1) // one above the bound
	if n := known(); n != IdleMax || w.idle.n != n {
		t.Fatalf("%d keys are kept, %d are known", w.idle.n, n)
	}
	ones := 0
	for i := range 2*IdleMax - 1 {
		switch kept := w.known(name(i)); {
		case i%4 == 3:
			if kept != 2 {
				t.Errorf("%q had two deliveries, %d are kept", name(i), kept)
			}
		case kept == 1:
			ones++
		case ones > 0:
			t.Errorf("%q was forgotten after a key that is as busy, and its name is lost", name(i))
		}
	}
	w.check(t)
}

// Keys come and go, and a purge detaches those that have messages. The list has the ten busiest of those
// that are known, after each step.
func TestTheBusiestKeysAreListed(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // reproducible on purpose
		w := newKeys()
		all := map[string]uint64{}
		for range 400 {
			name := fmt.Sprint("k", rng.IntN(1+rng.IntN(40)))
			switch n := rng.IntN(20); {
			case n == 0:
				w.purge(t, rng, all)
			case n < 14:
				w.deliver(name, 1)
				all[name]++
			case w.live[name] != nil:
				w.forget(name)
			}
			w.check(t)
		}
		want := slices.Sorted(maps.Values(all))
		slices.Reverse(want)
		top, rest := w.Busiest(Tally{Admitted: 100}, func(string) Tally { return Tally{Admitted: 1} })
		for i, k := range top {
			if k.Delivered != all[k.Key] || k.Delivered != want[i] {
				t.Errorf("seed %d: place %d has %+v, it has %d deliveries, and %d belong there", seed, i, k, all[k.Key], want[i])
			}
			rest.Delivered += k.Delivered
			rest.Admitted += k.Admitted
		}
		if rest.Delivered != w.events[Delivered] || rest.Admitted != 100 || len(top) != min(len(all), BusiestMax) {
			t.Errorf("seed %d: %d keys, with the rest %+v; %d deliveries", seed, len(top), rest, w.events[Delivered])
		}
	}
}

// purge detaches all keys that have messages. Some of their names have messages again before they are
// reclaimed, and some have had.
func (w *keys) purge(t *testing.T, rng *rand.Rand, all map[string]uint64) {
	t.Helper()
	detached := w.live
	w.live = map[string]*Key{}
	w.Detach(nil)
	w.check(t)
	for _, name := range slices.Sorted(maps.Keys(detached)) {
		if n := rng.IntN(6); n < 3 {
			w.come(name)
			w.deliver(name, n)
			all[name] += uint64(n) //nolint:gosec // few
			if n > 0 {
				w.forget(name)
			}
		}
		if now := w.live[name]; now != nil {
			w.Join(now, detached[name], name)
		} else {
			w.Keep(detached[name], maphash.String(w.seed, name), name, Tally{})
		}
	}
}
