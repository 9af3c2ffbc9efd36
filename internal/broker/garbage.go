package broker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/faisca/fila/internal/tuning"
)

const (
	// garbageFloor is how much garbage may accumulate before a collection, in bytes.
	// Messages live for milliseconds, so the live heap is often a few MiB. By Go's rule, as
	// much garbage as live memory, the collector would run many times a second and use as
	// much CPU as storage does.
	garbageFloor         = 64 << 20
	garbageFloorLowSpace = 8 << 20
	garbagePercent       = 100 // Go's default, in percent of live memory
)

// collector adapts the percentage of Go's garbage collector after each of its cycles.
type collector struct {
	floor   uint64
	alive   []metrics.Sample // live memory, which the percentage refers to
	looked  []metrics.Sample // the part of it that the collector scans
	percent int
}

// keepGarbageFloor sets the floor for the rest of the process, unless the operator has set
// GOGC. A memory limit takes precedence over the floor.
func keepGarbageFloor(floor uint64) {
	if !tuning.Enabled || os.Getenv("GOGC") != "" {
		return
	}
	c := &collector{floor: floor, percent: garbagePercent, alive: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}, looked: []metrics.Sample{{Name: "/gc/scan/total:bytes"}}}
	c.adapt()
}

// adapt sets the percentage and arranges its own next call: it leaves an unreferenced
// object, whose finalizer runs after the next cycle.
func (c *collector) adapt() {
	if p := percentFor(sum(c.alive), sum(c.looked), c.floor); p != c.percent {
		debug.SetGCPercent(p)
		c.percent = p
	}
	type cycle struct{ _ *int } // with a pointer: tiny objects share an allocation
	runtime.SetFinalizer(new(cycle), func(*cycle) { c.adapt() })
}

func sum(samples []metrics.Sample) (n uint64) {
	metrics.Read(samples)
	for _, s := range samples {
		n += s.Value.Uint64()
	}
	return n
}

// percentFor returns the percentage at which floor bytes of garbage accumulate beside the
// live memory, or as much as is alive if that is more. Payloads are live but are not
// scanned, and a broker with many of them would keep as much garbage. So garbage is at most
// twice what the collector scans, or floor.
//
// Go applies the percentage to at least 4 MiB. The result is rounded down by at most a tenth, or by 10,
// as each change stops the world for a moment.
func percentFor(alive, looked, floor uint64) int {
	const least, coarse, fine = 4 << 20, 50, 10
	p := max(floor, min(alive, 2*looked)) * 100 / max(alive, least)
	if p < 10*coarse {
		return int(max(p-p%fine, 5))
	}
	return int(p - p%coarse) //nolint:gosec // at most 25 times the floor in MiB
}

// startGarbage is how much memory a start may take before it returns what it does not need, in bytes.
const startGarbage = 128 << 20

// returnGarbage returns the memory to the system that the recovery of a large store has used and
// does not need any more: a broker that then does little would keep it for long. It takes 0.2 s
// with a million budgets, of the 2 s of their start.
func returnGarbage() {
	if sum([]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}) > startGarbage {
		debug.FreeOSMemory()
	}
}
