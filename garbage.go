package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// garbageFloor is how much garbage may gather before it is collected, however
	// little is alive. A message lives for milliseconds, so that is often a few MiB:
	// by Go's own rule, as much garbage as is alive, the collector would run many
	// times a second, and take as much of the processor as storage does.
	garbageFloor         = 64 << 20
	garbageFloorLowSpace = 8 << 20
	garbagePercent       = 100 // Go's own: of what is alive, when that is more
)

// collector adapts the collector's percentage after each of its cycles.
type collector struct {
	floor   uint64
	scanned []metrics.Sample // what the percentage is of
	percent int
}

// keepGarbageFloor sets the floor for the rest of the process, unless GOGC says
// what the operator wants. A limit of memory goes before it.
func keepGarbageFloor(floor uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	c := &collector{floor: floor, percent: garbagePercent, scanned: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	c.adapt()
}

// adapt is called after each cycle: the object that it leaves behind is garbage
// at once, and its finalizer runs when the next cycle has found it.
func (c *collector) adapt() {
	metrics.Read(c.scanned)
	alive := uint64(0)
	for _, s := range c.scanned {
		alive += s.Value.Uint64()
	}
	if p := percentFor(alive, c.floor); p != c.percent {
		debug.SetGCPercent(p)
		c.percent = p
	}
	type cycle struct{ _ *int } // not tiny: those may share their fate with others
	runtime.SetFinalizer(new(cycle), func(*cycle) { c.adapt() })
}

// percentFor returns the percentage with which floor bytes of garbage gather beside
// so many that are alive, stacks and globals included, but not less than Go's own.
// Go takes it of 4 MiB where less is alive. It comes in steps: setting it stops the
// world for a moment.
func percentFor(alive, floor uint64) int {
	const least, step = 4 << 20, 50
	p := floor * 100 / max(alive, least)
	return max(garbagePercent, int(p-p%step)) //nolint:gosec // at most 25 times the floor in MiB
}
