package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/faisca/fila/storage"
)

// Work is a cut batch with what follows its commit. It belongs to the caller of Machine.Cut, until
// Machine.Committed or Machine.CommitFailed takes it back.
type Work struct {
	no      uint64
	batch   *storage.Batch // nil: there is nothing to write
	sync    bool           // the commit must be durable
	confirm bool           // some answers wait for Config.Confirm
	durable *atomic.Uint64 // Preparer.durable
	tasks   []*Task        // done after the commit
	jobs    []job          // started after the commit: they read its writes
	events  []Event        // sent after the commit
	lost    bool           // the commit has failed: the jobs will not run
}

// Writes reports whether the work has a batch to commit.
func (w *Work) Writes() bool { return w.batch != nil }

// Commit writes the batch, if there is one, as durably as Config.Sync asks. It may be repeated after ErrWouldBlock.
func (w *Work) Commit(store Store) error {
	if w.batch == nil {
		return nil
	}
	return store.Commit(w.batch, w.sync)
}

// Take takes the tasks out of the work, so that Machine.TakeReadOnly finds none of them any more: a driver must not
// call the two at the same time.
func (w *Work) Take() []*Task {
	tasks := w.tasks
	w.tasks = nil
	return tasks
}

// Conclude gives the tasks of the work their results and returns those that can be published, and those that wait for
// Config.Confirm. err says what has become of the work:
//
//	nil           it is committed
//	ErrTakeover   it was not handed to the store, and never will be: the engine is halted
//	ErrDeposed    it was, and another node leads: it may have happened or not
//	any other     it is not in the store
func (w *Work) Conclude(tasks []*Task, err error) (public, unconfirmed []*Task) {
	switch {
	case errors.Is(err, ErrTakeover):
		Cease(tasks)
	case errors.Is(err, storage.ErrDeposed):
		cease(tasks, true)
	case err != nil:
		// Their writes are not on disk, and later turns may depend on them: see Machine.CommitFailed.
		refuse(tasks, err)
		w.lost = true
	default:
		w.durable.Store(w.no)
		if w.confirm {
			return splitUnconfirmed(tasks, w.batch != nil)
		}
	}
	return tasks, nil
}

// refuse gives ErrMisconf to tasks whose batch is not in the store. A refusal is replaced as well: it may tell of what
// another task of the batch has written.
func refuse(tasks []*Task, cause error) {
	for _, t := range tasks {
		t.err = fmt.Errorf("%w: %w", ErrMisconf, cause)
	}
}

// Events returns the events of a work that was committed.
func (w *Work) Events() []Event { return w.events }

// job is off-loop work, such as a read of the store or a hook. It runs on another goroutine
// after the commit of the batch in whose turns it was created. Then it is posted to the inbox
// as a task, whose Apply takes the result over in a later turn.
type job interface {
	Call
	// do performs the work. It must not touch the state of the engine.
	do(store Store)
}
