package broker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/faisca/fila/internal/tuning"
)

const (
	// garbageFloor is how much garbage may accumulate before a collection, in bytes.
	// Messages live for milliseconds, so the live heap is often a few MiB. By Go's rule, as
	// much garbage as live memory, the collector would run many times a second and use as
	// much CPU as storage does.
	garbageFloor         = 64 << 20
	garbageFloorLowSpace = 8 << 20
)

// collector adapts the percentage of Go's garbage collector after each of its cycles, and while the
// engine's memory grows.
type collector struct {
	floor uint64

	mu            sync.Mutex
	alive, looked uint64 // live memory, which the percentage refers to; the part of it that is scanned
	before        int64  // what the engine held at the end of the last cycle, at least
	held          int64  // what it holds now
}

// keepGarbageFloor sets the floor for the rest of the process, unless the operator has set
// GOGC: then it returns nil. A memory limit takes precedence over the floor.
func keepGarbageFloor(floor uint64) *collector {
	if !tuning.Enabled || os.Getenv("GOGC") != "" {
		return nil
	}
	c := &collector{floor: floor}
	c.cycled()
	return c
}

// cycled adapts the percentage to what a cycle has found, and arranges its own next call: it leaves
// an unreferenced object, whose finalizer runs after the next cycle.
func (c *collector) cycled() {
	alive := sum("/gc/heap/live:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes")
	looked := sum("/gc/scan/total:bytes")
	c.mu.Lock()
	c.alive, c.looked, c.before = alive, looked, c.held
	c.set()
	c.mu.Unlock()
	type cycle struct{ _ *int } // with a pointer: tiny objects share an allocation
	runtime.SetFinalizer(new(cycle), func(*cycle) { c.cycled() })
}

// holds adapts the percentage to what the engine holds, see engine.Config.Held. What is held when an
// engine starts was made by its recovery, and cycles may have found it since.
func (c *collector) holds(bytes int64) {
	c.mu.Lock()
	if c.held == 0 {
		c.before = bytes
	}
	c.held = bytes
	c.set()
	c.mu.Unlock()
}

// set sets the percentage. It costs about as much as an allocation: nothing is stopped for it.
func (c *collector) set() {
	debug.SetGCPercent(percentFor(c.alive, c.looked, uint64(max(c.held-c.before, 0)), c.floor))
}

func sum(names ...string) (n uint64) {
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
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
// Since the last cycle, memory has grown by grown bytes that are no garbage. A collection for
// their sake would find nothing and scan all that is alive, again and again while it grows: with
// ever new fairness keys, that was most of what an enqueue costs.
//
// Go applies the percentage to at least 4 MiB.
func percentFor(alive, looked, grown, floor uint64) int {
	const least = 4 << 20
	garbage := max(floor, min(alive, 2*looked))
	return int(max((grown+garbage)*100/max(alive, least), 5))
}

// startGarbage is how much memory a start may take before it returns what it does not need, in bytes.
const startGarbage = 128 << 20

// returnGarbage returns the memory to the system that the recovery of a large store has used and
// does not need any more: a broker that then does little would keep it for long. It takes 0.2 s
// with a million budgets, of the 2 s of their start.
func returnGarbage() {
	if sum("/memory/classes/heap/objects:bytes") > startGarbage {
		debug.FreeOSMemory()
	}
}
