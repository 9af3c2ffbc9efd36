package broker

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/proc"
)

// The bounds of memory, as parts of a limit. Go's own limit only makes its collector work harder, and a container
// that takes more is killed: so a broker refuses what is new before there is nothing left to collect.
const (
	ofContainer = 0.9 // of the limit of a container is for the process
	fullAt      = 0.85
	roomAt      = 0.8
	leastForGo  = 0.25 // of the limit of a container, whatever RocksDB takes: else the collector would never rest

	lookSeldom = 10 * time.Second       // without a limit
	lookOften  = time.Second            // with one that is far
	lookAlways = 100 * time.Millisecond // with one that is near

	collectAfter = 2 * time.Second // between two collections that are asked for

	// Go's limit is set again when it has changed by this: each time stops the world.
	limitStep = 4 << 20
)

// memory watches what the process may use, and tells the engine.
type memory struct {
	configured int64                  // Go's limit, by a setting or GOMEMLIMIT; 0: none
	container  func() (uint64, error) // the limit of the control group
	measure    func() memoryUse

	grown chan struct{} // the engine holds more; capacity 1
	set   int64         // Go's limit as it was set last
	now   atomic.Pointer[engine.Memory]
}

// memoryUse is what the process takes, in bytes.
type memoryUse struct {
	live  int64 // what Go's collector has found alive, and what the runtime needs besides
	taken int64 // what Go has of the system
	anon  int64 // what the process has of the system, without pages of files; 0: unknown
}

// watchMemory begins to watch, until ctx ends. The first look is over when it returns. configured is
// server.memory_bytes.
func watchMemory(ctx context.Context, configured int64) *memory {
	if configured > 0 {
		debug.SetMemoryLimit(configured)
	}
	m := &memory{container: memlimit.FromCgroup, measure: measureMemory, grown: make(chan struct{}, 1)}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		m.configured, m.set = limit, limit
	}
	m.look()
	go m.run(ctx)
	return m
}

// measureMemory asks the runtime and the system.
func measureMemory() memoryUse {
	total, released := int64(sum("/memory/classes/total:bytes")), int64(sum("/memory/classes/heap/released:bytes"))
	objects, free := int64(sum("/memory/classes/heap/objects:bytes")), int64(sum("/memory/classes/heap/free:bytes"))
	use := memoryUse{live: int64(sum("/gc/heap/live:bytes")) + total - released - objects - free, taken: total - released}
	if p, err := proc.UseOf(os.Getpid()); err == nil {
		use.anon = p.Anon
	}
	return use
}

// run looks until ctx ends. While there is no room it has garbage collected at intervals: with nothing new,
// Go might not find for minutes that messages are gone.
func (m *memory) run(ctx context.Context) {
	collected := time.Now()
	for {
		wait := lookOften
		switch now := m.now.Load(); {
		case now.Limit == 0:
			wait = lookSeldom
		case now.Used > now.Limit/2:
			wait = lookAlways
		}
		select {
		case <-ctx.Done():
			return
		case <-m.grown:
		case <-time.After(wait):
		}
		if m.now.Load().Full && time.Since(collected) > collectAfter {
			runtime.GC()
			collected = time.Now()
		}
		m.look()
	}
}

// grew has the next look at once: the engine may hold much more within the time between two. Without a limit
// there is no hurry.
func (m *memory) grew() {
	if m.now.Load().Limit == 0 {
		return
	}
	select {
	case m.grown <- struct{}{}:
	default:
	}
}

// look measures, and sets Go's limit by what a container leaves it.
func (m *memory) look() {
	use, limit := m.measure(), m.configured
	group, err := m.container()
	if err == nil && group > 0 && group < math.MaxInt64 {
		others := max(use.anon-use.taken, 0) // RocksDB
		left := max(int64(ofContainer*float64(group))-others, int64(leastForGo*float64(group)))
		if limit == 0 || left < limit {
			limit = left
		}
	} else if err != nil && !errors.Is(err, memlimit.ErrNoLimit) && !errors.Is(err, memlimit.ErrNoCgroup) {
		limit = m.set // it cannot be read at the moment
	}
	if change := limit - m.set; change >= limitStep || change <= -limitStep {
		if m.set = limit; limit == 0 {
			limit = math.MaxInt64
		}
		debug.SetMemoryLimit(limit)
	}
	now := engine.Memory{Used: use.live, Limit: m.set}
	was := m.now.Load()
	bound := fullAt
	if was != nil && was.Full {
		bound = roomAt
	}
	now.Full = m.set > 0 && float64(use.live) >= bound*float64(m.set)
	m.now.Store(&now)
}

// state implements engine.Config.Memory.
func (m *memory) state() engine.Memory { return *m.now.Load() }
