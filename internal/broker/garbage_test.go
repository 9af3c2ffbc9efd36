package broker

import "testing"

func TestGarbageFloorOnlyMattersWhileLittleIsAlive(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, looked uint64
		want         int
	}{
		{0, 0, 1600}, {1 * mib, 1 * mib, 1600}, {4 * mib, 1 * mib, 1600}, {10 * mib, 5 * mib, 600}, {40 * mib, 20 * mib, 160}, {64 * mib, 64 * mib, 100},
		{1000 * mib, 1000 * mib, 100}, {1000 * mib, 500 * mib, 100},
	} {
		if got := percentFor(c.live, c.looked, 64*mib); got != c.want {
			t.Errorf("%d MiB alive, %d of them looked at: %d %%, want %d", c.live/mib, c.looked/mib, got, c.want)
		}
	}
}

// Payloads are live but not scanned: with them no more garbage accumulates than without
// them, up to a step.
func TestPayloadsAllowNoMoreGarbage(t *testing.T) {
	const mib, floor = 1 << 20, 64 << 20
	for _, live := range []uint64{128 * mib, 256 * mib, 640 * mib, 4096 * mib} {
		p := percentFor(live, 10*mib, floor)
		if garbage := live * uint64(p) / 100; p < 5 || p > 5 && garbage > floor {
			t.Errorf("%d MiB alive, 10 of them looked at: %d %%, which is %d MiB of garbage", live/mib, p, garbage/mib)
		}
	}
}
