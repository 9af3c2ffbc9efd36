package engine

import (
	"fmt"
)

// This file is about a store whose disk is full but for what it has kept in reserve.
//
// Such a store takes writes, and to free space takes some: an ack, a purge, the deletion
// of a queue are records, too. So what frees space is done, and what that needs (leases,
// releases, failures); commands that store something new are refused. Once a second the
// store is asked whether there is space again; until then it gives back what was freed.

// reliever is a store that can be full.
type reliever interface {
	// Full says why only what frees space may be committed, or nil.
	Full() error
	// Relieve makes the store take everything again if there is space, and frees some
	// if it can. It may take long; until it returns, commits wait.
	Relieve() error
}

// prober is a store that can tell whether Reopen has a chance.
type prober interface {
	Probe() error
}

// writableForNew is writable for commands that store something new.
func (c *core) writableForNew() error {
	if err := c.writable(); err != nil {
		return err
	}
	if c.health.full != nil {
		return fmt.Errorf("%w more: %w; until there is space only what frees some is done, as FILA.ACK, FILA.CANCEL, FILA.PURGE and FILA.QUEUE DELETE",
			ErrMisconf, c.health.full)
	}
	return nil
}

// refreshFull takes over from the store whether it is full.
func (c *core) refreshFull() {
	c.health.full = nil
	if s, ok := c.store.(reliever); ok {
		c.health.full = s.Full()
	}
}

// relieve asks the store for space, beside the loop.
func (e *Engine) relieve() {
	c := e.core
	s, ok := c.store.(reliever)
	if !ok || c.health.reclaiming {
		return
	}
	c.health.reclaiming = true
	e.side.Go(func() {
		err := s.Relieve()
		e.post(relieved{err})
	})
}

// relieved says what has become of a store that was full.
type relieved struct{ err error }

// Apply implements Call.
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
