package engine

import "sync/atomic"

// Preparer is what connections use of an engine on their own goroutines, beside the turns: they validate and
// encode requests, call hooks, look ids up, and read messages and results. It costs the loop nothing. All methods are
// safe for concurrent use.
type Preparer struct {
	cfg   *Config
	store Store
	wall  func() int64 // the system clock in Unix nanoseconds: hooks use it for statistics and breakers

	snapshot atomic.Pointer[Snapshot]
	durable  *atomic.Uint64 // all batches up to this number are in the store
}

// Snapshot returns the hooks and the runtime configuration in force.
func (p *Preparer) Snapshot() *Snapshot { return p.snapshot.Load() }
