package broker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/faisca/fila/internal/tuning"
)

const (
	// garbageFloor is how much garbage may gather before it is collected, however
	// little is alive. A message lives for milliseconds, so that is often a few MiB:
	// by Go's own rule, as much garbage as is alive, the collector would run many
	// times a second, and take as much of the processor as storage does.
	garbageFloor         = 64 << 20
	garbageFloorLowSpace = 8 << 20
	garbagePercent       = 100 // Go's own: of what is alive, when that is more and much of it has to be looked at
)

// collector adapts the collector's percentage after each of its cycles.
type collector struct {
	floor   uint64
	alive   []metrics.Sample // what the percentage is of
	looked  []metrics.Sample // what the collector looks at of it
	percent int
}

// keepGarbageFloor sets the floor for the rest of the process, unless GOGC says
// what the operator wants. A limit of memory goes before it.
func keepGarbageFloor(floor uint64) {
	if !tuning.Enabled || os.Getenv("GOGC") != "" {
		return
	}
	c := &collector{floor: floor, percent: garbagePercent, alive: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}, looked: []metrics.Sample{{Name: "/gc/scan/total:bytes"}}}
	c.adapt()
}

// adapt is called after each cycle: the object that it leaves behind is garbage
// at once, and its finalizer runs when the next cycle has found it.
func (c *collector) adapt() {
	if p := percentFor(sum(c.alive), sum(c.looked), c.floor); p != c.percent {
		debug.SetGCPercent(p)
		c.percent = p
	}
	type cycle struct{ _ *int } // not tiny: those may share their fate with others
	runtime.SetFinalizer(new(cycle), func(*cycle) { c.adapt() })
}

func sum(samples []metrics.Sample) (n uint64) {
	metrics.Read(samples)
	for _, s := range samples {
		n += s.Value.Uint64()
	}
	return n
}

// percentFor returns the percentage with which floor bytes of garbage gather beside
// so many that are alive, stacks and globals included, or as many as are alive, if that
// is more: Go's own rule. But payloads are alive and cost the collector nothing, and a
// broker that holds much of them would hold as much garbage beside. So it is no more
// than twice what the collector has to look at.
//
// Go takes the percentage of 4 MiB where less is alive. It comes in steps: setting it
// stops the world for a moment.
func percentFor(alive, looked, floor uint64) int {
	const least, coarse, fine = 4 << 20, 50, 10
	p := max(floor, min(alive, 2*looked)) * 100 / max(alive, least)
	if p < coarse {
		return int(max(p-p%fine, 5))
	}
	return int(p - p%coarse) //nolint:gosec // at most 25 times the floor in MiB
}
