package main

import "testing"

func TestGarbageFloorOnlyMattersWhileLittleIsAlive(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 1600}, {1 * mib, 1600}, {4 * mib, 1600}, {10 * mib, 600}, {40 * mib, 150}, {64 * mib, 100}, {1000 * mib, 100},
	} {
		if got := percentFor(c.live, 64*mib); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d", c.live/mib, got, c.want)
		}
	}
}
