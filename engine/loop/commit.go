package loop

import (
	"errors"
	"time"

	"github.com/faisca/fila/engine"
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
	if e.cfg.Sync == engine.SyncInterval {
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
				e.mu.Lock()
				e.failed = err
				e.mu.Unlock()
				e.wakeLoop()
			}
		}
	}
}

// commitWork writes a work and answers its tasks.
// The loop learns the result before the clients are woken, so that it cuts the next batch
// meanwhile. Events and jobs follow the replies, except those that wait for a confirmation: an
// event of a work without a batch promises nothing, and what a job finds is confirmed later.
func (e *Engine) commitWork(w *engine.Work) {
	e.mu.Lock()
	err, ceased := e.failed, e.halted != nil
	e.mu.Unlock()
	if ceased {
		err = engine.ErrTakeover
	}
	if err == nil && w.Writes() {
		began := e.Elapsed()
		err = w.Commit(e.store)
		e.observe(engine.ActivityCommit, began)
	}
	e.mu.Lock()
	tasks := w.Take() // without read-only tasks that the loop has answered
	e.mu.Unlock()
	if err == nil && w.Writes() {
		e.batches.Observe(time.Duration(len(tasks)) * time.Second)
	}
	tasks, unconfirmed := w.Conclude(tasks, err)
	e.haltIfDeposed(err)
	e.mu.Lock()
	e.busy, e.released, e.returned = false, len(tasks), w
	if e.halted == nil {
		e.failed = err
	}
	e.mu.Unlock()
	e.wakeLoop()
	e.unconfirmed.Put(unconfirmed)
	e.release(tasks)
	if err == nil {
		e.events.Put(w.Events())
		e.startJobs(w.Jobs())
	}
}

// observe reports the duration of an activity that began at a reading of Elapsed.
func (e *Engine) observe(what engine.Activity, began time.Duration) {
	if e.cfg.Observe != nil {
		e.cfg.Observe(what, e.Elapsed()-began)
	}
}

// release makes the results of concluded tasks public and wakes their clients. Both the loop
// and the committer call it, never for the same task.
func (e *Engine) release(tasks []*engine.Task) { engine.Release(tasks, e.Elapsed()) }

// startJobs starts jobs, each group on a goroutine of its own. Searches run one at a time, and not at all once the engine
// stops.
func (e *Engine) startJobs(jobs []engine.Jobs) {
	for _, j := range jobs {
		e.background.Go(func() {
			if j.Search {
				e.searching <- struct{}{}
				defer func() { <-e.searching }()
				if e.isStopping() {
					return
				}
			}
			j.Run(e.store, e.post)
		})
	}
}

// confirm is the confirmer's goroutine: it holds answers back until Config.Confirm has returned. One
// question serves all that wait when it is asked, beside the commits. An answer that is not
// confirmed ends the engine.
func (e *Engine) confirm() {
	var spare []*engine.Task
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
			engine.Cease(tasks)
			e.Halt(err)
		}
		e.release(tasks)
		clear(tasks)
		spare = tasks
	}
}

// eventsMax bounds the events that the listener has not taken yet; further events are
// dropped and counted. Events need no more memory than that: a consumer that must not miss
// a message uses a queue.
const eventsMax = 1 << 16

// dispatch sends events to the listener on a goroutine of its own, so that a slow listener delays
// neither the committer nor the loop. Events that the listener does not take in time are dropped
// and reported as EventLost.
func (e *Engine) dispatchEvents() {
	var spare []engine.Event
	for {
		events, lost := e.events.Wait(spare[:0])
		if len(events) == 0 {
			return
		}
		if lost > 0 {
			events = append(events, engine.Event{Kind: engine.EventLost, Time: events[len(events)-1].Time, Count: lost})
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
