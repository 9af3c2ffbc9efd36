package loop

import (
	"errors"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/storage"
)

// Stop begins the shutdown and does not block. New tasks are refused with ErrStopped, waits
// for messages end without a message, and all other submitted tasks are answered after their
// commit. Run then returns.
func (e *Engine) Stop() {
	e.mu.Lock()
	e.stopping = true
	e.room.Broadcast()
	e.mu.Unlock()
	e.wakeLoop()
}

// isStopping reports whether new tasks are refused.
func (e *Engine) isStopping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopping
}

// close marks the engine as stopped and returns true, unless a task or a failure has arrived
// meanwhile.
func (e *Engine) close() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.inbox) > 0 || e.failed != nil {
		return false
	}
	e.stopped = true
	return true
}

// refuseAll refuses the tasks that are still in the inbox when the engine has stopped or could
// not start, and all that are submitted later.
func (e *Engine) refuseAll() {
	e.mu.Lock()
	e.stopping, e.stopped = true, true
	tasks := e.inbox
	e.inbox = nil
	e.room.Broadcast()
	e.mu.Unlock()
	e.refuseNew(tasks)
}

// refuseNew answers tasks that the engine does not take any more.
func (e *Engine) refuseNew(tasks []*engine.Task) {
	why := engine.ErrStopped
	if e.haltedBy() != nil {
		why = engine.ErrTakeover
	}
	engine.Refuse(tasks, why, e.Elapsed())
}

// Halt ends the engine at once because another node leads, or may lead; see "Ceasing" in
// engine/core.go. Unlike Stop it hands nothing more to the store, and it answers everything without
// waiting for anything but the commit that is under way. Run then returns the cause. It does not
// block, and may be called by any goroutine, several times.
func (e *Engine) Halt(cause error) {
	e.mu.Lock()
	if e.halted == nil {
		e.halted = cause
	}
	e.stopping = true
	e.room.Broadcast()
	e.mu.Unlock()
	e.wakeLoop()
}

// haltIfDeposed halts the engine if a store has said that another node leads.
func (e *Engine) haltIfDeposed(err error) {
	if errors.Is(err, storage.ErrDeposed) {
		e.Halt(err)
	}
}

// haltedBy returns the cause that Halt was called with first, nil if it was not called.
func (e *Engine) haltedBy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.halted
}

// cease answers the tasks that the loop has when the engine is halted.
func (e *Engine) cease(tasks []*engine.Task) {
	e.release(e.machine.Halt(tasks))
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
}
