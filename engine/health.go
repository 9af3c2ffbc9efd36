package engine

import (
	"fmt"
)

// health is the engine's view of the store, and the counters of the loop. The states:
//
//	healthy    all commands are executed
//	full       the disk is full but for the reserve: commands that store something new are
//	           refused; those that free space, and leases, continue
//	read-only  a commit failed: all writes are refused with ErrMisconf, reads continue
//
// While the process may use no more memory, commands that store something new are refused as well.
//
//	healthy → full         recovery or the store finds that the disk is full (refreshFull)
//	full → healthy         relieve succeeds; it is tried every Config.RetryInterval
//	any → read-only        a commit fails: the memory is dropped and recovered (Machine.CommitFailed)
//	read-only → healthy    reopen succeeds; it is tried every Config.RetryInterval
//
// A commit that neither fails nor returns is stalled; package loop knows what then.
type health struct {
	failed     error // why the store is read-only; nil: it takes writes
	full       error // why the store takes only what frees space; nil: it takes all writes
	memory     Memory
	reclaiming bool  // Relieve is under way
	bootTime   int64 // time of the first turn in Unix nanoseconds
	counters   counters

	untimed
	unchecked
}

// counters count since the start of the process, for FILA.STATS.
type counters struct {
	turns, tasks, recoveries uint64
	ticked, missed           uint64 // ticks of recurring messages that enqueued a message, that did not
	backedUp, failedToBackUp uint64
}

// reset keeps the store's state: recovery does not repair it.
func (h *health) reset() { h.bootTime = 0 }

// writable returns ErrMisconf while the store is read-only. Every command that would change
// something calls it before its first change.
func (c *core) writable() error {
	if c.health.failed != nil {
		return fmt.Errorf("%w: %w; the store is read-only, writes resume when the disk recovers", ErrMisconf, c.health.failed)
	}
	return nil
}

// A store on a full disk still takes writes, into space that it has reserved, because to free
// space takes writes, too: an ack, a purge and the deletion of a queue are records. So
// commands that free space are executed, and those that they depend on (leases, releases,
// nacks); commands that store something new are refused.

// reliever is a store that can be full.
type reliever interface {
	// Full returns why only commits that free space are accepted, or nil.
	Full() error
	// Relieve frees space where it can, and makes the store accept all commits again if there
	// is enough. It may take long; until it returns, commits wait.
	Relieve() error
}

// prober is a store that can test whether Reopen may succeed.
type prober interface {
	// Probe returns why Reopen would fail, or nil if it may succeed. It changes nothing.
	Probe() error
}

// lookAtMemory takes over what the process may use.
func (c *core) lookAtMemory() {
	if c.cfg.Memory == nil {
		return
	}
	was, now := c.health.memory.Full, c.cfg.Memory()
	// Where little of it is stored, connections take it, for a moment and within bounds of their own.
	now.Full = now.Full && c.held() >= now.Limit/4
	c.health.memory = now
	switch {
	case now.Full && !was:
		c.cfg.Log.Error().Int64("used", now.Used).Int64("limit", now.Limit).Int("keys", c.heads.keys).Int("messages", c.heads.messages).
			Int64("body_bytes", c.heads.bodyBytes).Int64("held_bytes", c.held()).
			Msg("no memory for more: what stores something new is refused with OOM until messages are acked, cancelled or purged, or the limit is raised")
	case was && !now.Full:
		c.cfg.Log.Info().Int64("used", now.Used).Int64("limit", now.Limit).Msg("there is memory again, everything is taken")
	}
}

// writableForNew is writable for commands that store something new: it also refuses them
// while the store is full, and while there is no memory for more.
func (c *core) writableForNew() error {
	if err := c.storeTakesNew(); err != nil {
		return err
	}
	if m := &c.health.memory; m.Full {
		return fmt.Errorf("%w: %d of %d MiB are used; FILA.ACK, FILA.CANCEL and FILA.PURGE free some, FILA.STATS shows what takes it", ErrMemory, m.Used>>20, m.Limit>>20)
	}
	return nil
}

// storeTakesNew returns why the store takes nothing new, or nil.
func (c *core) storeTakesNew() error {
	if err := c.writable(); err != nil {
		return err
	}
	if c.health.full != nil {
		return fmt.Errorf("%w more: %w; until there is space only what frees some is done, as FILA.ACK, FILA.CANCEL, FILA.PURGE and FILA.QUEUE DELETE",
			ErrMisconf, c.health.full)
	}
	return nil
}

// Writable reports whether the store takes new messages.
func (tx *Tx) Writable() bool { return tx.core.storeTakesNew() == nil }

// refreshFull reads from the store whether it is full.
func (c *core) refreshFull() {
	c.health.full = nil
	if s, ok := c.store.(reliever); ok {
		c.health.full = s.Full()
	}
}

// relieved is the result of Relieve.
type relieved struct{ err error }

// Apply takes over whether the store is still full.
func (r relieved) Apply(tx *Tx) error {
	c := tx.core
	c.health.reclaiming = false
	before := c.health.full
	c.refreshFull()
	if before != nil && c.health.full == nil && c.health.failed == nil && r.err == nil {
		c.cfg.Log.Info().Msg("the disk has space again, the store takes all writes")
	}
	return nil
}
