package engine

import (
	"errors"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// commit is the committer's goroutine: it writes batches in order and releases their tasks.
// After a failed commit it refuses every work until the loop has recovered. With
// SyncInterval it also syncs the store periodically; a failed sync counts as a failed commit, except
// of a store that the loop is about to reopen: each failure would put the next attempt off.
func (e *Engine) commit() {
	defer e.events.End()
	defer e.unconfirmed.End()
	var tick <-chan time.Time
	if e.cfg.Sync == SyncInterval {
		t := time.NewTicker(e.cfg.SyncInterval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case w, ok := <-e.work:
			if !ok {
				return
			}
			e.commitWork(w)
		case <-tick:
			err := e.store.Sync()
			if known := e.readOnly.Load() && errors.Is(err, storage.ErrReopen); err != nil && !known {
				e.postFailure(err)
				e.wakeLoop()
			}
		}
	}
}

// commitWork takes a work through the states of outbox: committed and released, or refused.
// The loop learns the result before the clients are woken, so that it cuts the next batch
// meanwhile. Events and jobs follow the replies, except those that wait for a confirmation: an
// event of a work without a batch promises nothing, and what a job finds is confirmed later.
func (e *Engine) commitWork(w *work) {
	e.mu.Lock()
	err, ceased := e.failed, e.halted != nil
	e.mu.Unlock()
	if err == nil && w.batch != nil && !ceased {
		began := e.Elapsed()
		err = e.store.Commit(w.batch, w.sync && e.cfg.Sync == SyncAlways)
		e.observe(ActivityCommit, began)
	}
	e.mu.Lock()
	if err == nil && w.batch != nil {
		e.batches.Observe(time.Duration(len(w.tasks)) * time.Second)
	}
	tasks := w.tasks // without read-only tasks that answerReadOnly has released
	w.tasks = nil
	e.mu.Unlock()
	var unconfirmed []*Task
	switch {
	case ceased:
		cease(tasks, false)
	case errors.Is(err, storage.ErrDeposed):
		cease(tasks, true)
		e.Halt(err)
	case err != nil:
		// The writes of these tasks are not on disk, and later turns may depend on them:
		// the loop drops its memory and recovers from the store.
		refuse(tasks, err)
		e.post(lost{w.jobs})
		e.postFailure(err)
	case e.cfg.Confirm != nil:
		tasks, unconfirmed = splitUnconfirmed(tasks, w.batch != nil)
	}
	e.mu.Lock()
	e.busy, e.released = false, len(tasks)
	if err == nil {
		e.committed = w.no
		e.durable.Store(w.no)
	}
	if w.batch != nil {
		w.batch.Reset()
		e.spare = w.batch
	}
	e.mu.Unlock()
	e.wakeLoop()
	e.unconfirmed.Put(unconfirmed)
	e.release(tasks)
	if err == nil && !ceased {
		e.events.Put(w.events)
		e.startJobs(w)
	}
}

// observe reports the duration of an activity that began at a reading of Elapsed.
func (e *Engine) observe(what Activity, began time.Duration) {
	if e.cfg.Observe != nil {
		e.cfg.Observe(what, e.Elapsed()-began)
	}
}

// reportHeld calls Config.Held if what is held differs by step bytes from what it was told last.
func (e *Engine) reportHeld(bytes, step int64) {
	if e.cfg.Held != nil && max(bytes-e.held, e.held-bytes) >= step {
		e.held = bytes
		e.cfg.Held(bytes)
	}
}

// postFailure makes the loop recover, see failOver.
func (e *Engine) postFailure(err error) {
	e.mu.Lock()
	e.failed = err
	e.mu.Unlock()
}

// release makes the results of concluded tasks public and wakes their clients. Both the loop
// and the committer call it, never for the same task.
func (e *Engine) release(tasks []*Task) {
	var last *Client
	now := e.Elapsed()
	for _, t := range tasks {
		cl := t.Client
		t.publish(now)
		// Tasks of one client are usually adjacent: one wake-up serves all of them.
		if last != nil && last != cl {
			last.wake()
		}
		last = cl
		if cl == nil {
			last = nil
		}
	}
	if last != nil {
		last.wake()
	}
}

// startJobs starts the jobs of a committed work on goroutines of their own, grouped so that a
// slow job delays only jobs of its kind:
//
//	ticks of recurring messages  one goroutine a round; there is one round at a time
//	hook decisions               one goroutine for each queue, since scripts may be slow
//	window reads                 one goroutine, since whole queues may wait for them
//	long lookups                 one goroutine each
//	searches                     one goroutine each, of which one runs at a time
//	others                       one goroutine
func (e *Engine) startJobs(w *work) {
	var windows []job
	var others []job
	var verdicts map[string][]job // by queue
	for _, r := range w.jobs {
		switch r := r.(type) {
		case *cronRound:
			e.background.Go(func() { e.runJob(r) })
		case *verdict:
			if verdicts == nil {
				verdicts = map[string][]job{}
			}
			verdicts[r.msg.Queue] = append(verdicts[r.msg.Queue], r)
		case *read, *dueRead:
			windows = append(windows, r)
		case *lookup:
			if r.work >= lookupLong {
				e.background.Go(func() { e.runJob(r) })
			} else {
				others = append(others, r)
			}
		case *resultLook:
			if r.work() >= lookupLong {
				e.background.Go(func() { e.runJob(r) })
			} else {
				others = append(others, r)
			}
		case searching:
			if r.searches() {
				e.background.Go(func() { e.search(r) })
			} else {
				others = append(others, r)
			}
		default:
			others = append(others, r)
		}
	}
	for _, all := range verdicts {
		e.background.Go(func() { e.runJob(all...) })
	}
	if len(windows) > 0 {
		e.background.Go(func() { e.readWindows(windows) })
	}
	if len(others) > 0 {
		e.background.Go(func() { e.runJob(others...) })
	}
}

// readWindows is runJob for reads, which share iterators as long as none fails.
func (e *Engine) readWindows(all []job) {
	it := openKeys(e.store)
	for _, j := range all {
		if r, ok := j.(*read); !ok {
			j.do(e.store)
		} else if r.err = r.readKey(e.store, it); r.err != nil {
			it.close()
			it = openKeys(e.store)
		}
		e.post(j)
	}
	it.close()
}

// search runs a job that may read much for a small result. One runs at a time: several would
// take the processors from the loop and from the connections. Those that wait when the engine
// stops do not run, as their tasks have been refused.
func (e *Engine) search(p searching) {
	e.searching.Lock()
	defer e.searching.Unlock()
	e.mu.Lock()
	stopping := e.stopping
	e.mu.Unlock()
	if !stopping {
		e.runJob(p)
	}
}

// runJob runs jobs one after another and posts each result to the inbox.
func (e *Engine) runJob(all ...job) {
	for _, r := range all {
		r.do(e.store)
		e.post(r)
	}
}

// startCensus starts the census of the recovered store (operations.go) on a goroutine of its own.
func (e *Engine) startCensus() {
	s := e.core.ops.census
	e.background.Go(func() { s.take(func(p *censusPart) { e.post(p) }) })
}

// failOver handles a failed commit: it refuses the tasks of the open batch, drops the memory
// and recovers from the store. Until reopen succeeds, writes are refused and reads continue.
func (e *Engine) failOver(cause error) {
	c := e.core
	e.cfg.Log.Error().Err(cause).Msg("the store cannot write, writes are refused until it can")
	c.refuse(cause)
	c.out.committed = c.out.batchNo
	c.out.batchNo++
	e.mu.Lock()
	e.failed, e.committed = nil, c.out.committed
	e.mu.Unlock()
	e.recoverInPlace()
}

// recoverInPlace rebuilds the memory from the store and starts a new census. If the store
// cannot be read either, all tasks are refused until reopen succeeds.
func (e *Engine) recoverInPlace() {
	c := e.core
	c.ops.census.stop()
	c.health.counters.recoveries++
	if err := c.recover(); err != nil {
		e.cfg.Log.Error().Err(err).Msg("recovery failed, it is tried again")
		c.health.failed = err
		return
	}
	e.startCensus()
}

// reopen tries to make a read-only store writable again. A store that can probe the disk is
// reopened only when that may succeed, so that the census and reads are not interrupted by
// each attempt.
func (e *Engine) reopen() {
	c := e.core
	if p, ok := e.store.(prober); ok {
		if err := p.Probe(); err != nil {
			c.health.failed = err
			return
		}
	}
	c.ops.census.stop()
	if err := e.store.Reopen(); err != nil {
		c.health.failed = err
		if c.ops.census != nil { // it was stopped, and the store may still be readable
			e.recoverInPlace()
		}
		return
	}
	// The failed batch may be on disk after all, so memory is rebuilt again.
	e.recoverInPlace()
	if err := c.start(); err != nil {
		if c.health.failed = err; errors.Is(err, storage.ErrDeposed) {
			e.Halt(err)
		}
		return
	}
	c.health.failed = nil
	e.checkFull()
	if c.health.full == nil {
		e.cfg.Log.Info().Msg("the store takes writes again")
	}
}

// checkFull reads from the store whether it is full, and logs it.
func (e *Engine) checkFull() {
	c := e.core
	if c.health.failed != nil {
		return
	}
	if c.refreshFull(); c.health.full != nil {
		e.cfg.Log.Error().Err(c.health.full).Msg("the store takes only what frees space until there is some: FILA.ACK, FILA.CANCEL, FILA.PURGE, FILA.QUEUE DELETE")
	}
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
func (e *Engine) refuseNew(tasks []*Task) {
	e.mu.Lock()
	why := ErrStopped
	if e.halted != nil {
		why = ErrTakeover
	}
	e.mu.Unlock()
	for _, t := range tasks {
		t.err = why
	}
	e.release(tasks)
}

// Halt ends the engine at once because another node leads, or may lead; see "Ceasing" in
// core.go. Unlike Stop it hands nothing more to the store, and it answers everything without
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

// haltedBy returns the cause that Halt was called with first, nil if it was not called.
func (e *Engine) haltedBy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.halted
}

// cease answers the tasks that the loop has when the engine is halted.
func (e *Engine) cease(tasks []*Task) {
	e.release(e.core.halt(tasks))
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
}

// confirm is the confirmer's goroutine: it holds answers back until Config.Confirm has returned. One
// question serves all that wait when it is asked, beside the commits. An answer that is not
// confirmed ends the engine.
func (e *Engine) confirm() {
	var spare []*Task
	for {
		tasks, _ := e.unconfirmed.Wait(spare[:0])
		if len(tasks) == 0 {
			return
		}
		err := e.haltedBy()
		if err == nil {
			err = e.cfg.Confirm()
		}
		if err != nil {
			cease(tasks, false)
			e.Halt(err)
		}
		e.release(tasks)
		clear(tasks)
		spare = tasks
	}
}

// answerEarly releases early replies, at once or when they are confirmed.
func (e *Engine) answerEarly(tasks []*Task) {
	if e.cfg.Confirm == nil {
		e.release(tasks)
	} else {
		e.unconfirmed.Put(tasks)
	}
}

// Listen sets the listener, which is called on one goroutine with events in the order in
// which they became durable. The slice is valid during the call. It must be called before Run.
func (e *Engine) Listen(to func([]Event)) { e.listen = to }

// Want sets the kinds of events that the listener receives, in place of earlier ones. It
// applies to everything that is submitted after it. It does not block.
func (e *Engine) Want(kinds EventKind) { e.post(listenFor{kinds}) }

// HookTurned reports that the breaker of a hook has a new state. It does not block.
func (e *Engine) HookTurned(h hook.Hook, s hook.BreakerState) { e.post(breakerChange{h, s}) }

// dispatch sends events to the listener on a goroutine of its own, so that a slow listener delays
// neither the committer nor the loop. Events that the listener does not take in time are dropped
// and reported as EventLost.
func (e *Engine) dispatch() {
	var spare []Event
	for {
		events, lost := e.events.Wait(spare[:0])
		if len(events) == 0 {
			return
		}
		if lost > 0 {
			events = append(events, Event{Kind: EventLost, Time: events[len(events)-1].Time, Count: lost})
		}
		if e.listen != nil {
			e.listen(events)
		}
		clear(events)
		if spare = events; cap(spare) > 1024 {
			spare = nil
		}
	}
}
