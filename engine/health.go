package engine

import "fmt"

// health says whether the store takes writes, and counts what the loop has done.
type health struct {
	failed error // why the store cannot be written, or nil
	full   error // why only what frees space may be written, or nil: see full.go
	// reclaiming says that the store is being asked for space.
	reclaiming bool
	bootTime   int64 // of the first turn
	counters   counters

	untimed
	unchecked
}

// counters count since start, for FILA.STATS.
type counters struct {
	turns, tasks, recoveries uint64
}

func (h *health) reset() { h.bootTime = 0 }

// writable refuses what would change something while the store takes no writes.
func (c *core) writable() error {
	if c.health.failed != nil {
		return fmt.Errorf("%w: %w; the broker goes on by itself when it can", ErrMisconf, c.health.failed)
	}
	return nil
}
