package broker

import (
	"runtime/debug"
	"testing"
)

func TestGarbageFloorOnlyMattersWhileLittleIsAlive(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, looked uint64
		want         int
	}{
		{0, 0, 1600}, {1 * mib, 1 * mib, 1600}, {4 * mib, 1 * mib, 1600}, {10 * mib, 5 * mib, 640}, {40 * mib, 20 * mib, 160}, {64 * mib, 64 * mib, 100},
		{1000 * mib, 1000 * mib, 100}, {1000 * mib, 500 * mib, 100},
	} {
		if got := percentFor(c.live, c.looked, 0, 64*mib); got != c.want {
			t.Errorf("%d MiB alive, %d of them looked at: %d %%, want %d", c.live/mib, c.looked/mib, got, c.want)
		}
	}
}

// Payloads are live but not scanned: with them no more garbage accumulates than without them.
func TestPayloadsAllowNoMoreGarbage(t *testing.T) {
	const mib, floor = 1 << 20, 64 << 20
	for _, live := range []uint64{128 * mib, 256 * mib, 640 * mib, 4096 * mib} {
		p := percentFor(live, 10*mib, 0, floor)
		if garbage := live * uint64(p) / 100; p < 5 || p > 5 && garbage > floor {
			t.Errorf("%d MiB alive, 10 of them looked at: %d %%, which is %d MiB of garbage", live/mib, p, garbage/mib)
		}
	}
}

// What the engine has taken since the last cycle is alive: it may be there beside the garbage, and
// it allows no more of it.
func TestGarbageIsWhatTheEngineDoesNotHold(t *testing.T) {
	const mib, floor = 1 << 20, 64 << 20
	for _, alive := range []uint64{4 * mib, 100 * mib, 1000 * mib} {
		before := alive * uint64(percentFor(alive, alive, 0, floor)) / 100
		for _, grown := range []uint64{8 * mib, 300 * mib, 5000 * mib} {
			until := alive * uint64(percentFor(alive, alive, grown, floor)) / 100
			if until > before+grown || until < before+grown-alive/100 {
				t.Errorf("%d MiB alive, %d more held since: a cycle after %d MiB, want %d", alive/mib, grown/mib, until/mib, (before+grown)/mib)
			}
		}
	}
}

// An engine that starts holds what its recovery has made, which may have been found alive already;
// one that ends holds nothing.
func TestACollectorTakesWhatIsHeldFromTheStartOfAnEngine(t *testing.T) {
	const mib = 1 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	c := &collector{floor: 64 * mib, alive: 100 * mib, looked: 100 * mib}
	goal := func() int { return debug.SetGCPercent(100) } // what the collector has set
	for _, step := range []struct {
		held int64
		want int
	}{{500 * mib, 100}, {550 * mib, 150}, {520 * mib, 120}, {400 * mib, 100}, {0, 100}, {300 * mib, 100}, {400 * mib, 200}} {
		c.holds(step.held)
		if got := goal(); got != step.want {
			t.Errorf("%d MiB held: %d %%, want %d", step.held/mib, got, step.want)
		}
	}
}
