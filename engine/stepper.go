package engine

import (
	"errors"
	"time"

	"github.com/faisca/fila/engine/scripts"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// Stepper drives a core as Engine does, but step by step, without goroutines and with a time
// that the caller sets: it makes tests deterministic, here and in other packages. It takes a
// batch through the same states as the loop (outbox):
//
//	turn      Do runs a turn and cuts the batch if none is in flight
//	flight    the cut batch waits for its commit, until Lazy lets it happen
//	reads     jobs of committed batches wait to be run
//	late      results of jobs wait to become tasks of a turn
//	confirm   answers wait for Config.Confirm
//
// A store of a test, and Config.Confirm, may return ErrWouldBlock where those of an Engine would
// block: Do then goes on without it and asks again.
//
// It is not safe for concurrent use.
type Stepper struct {
	core  *core
	store Store
	start time.Time
	now   time.Time

	// Lazy, if set, is called before each commit, each job and each result. If it returns
	// true, that step happens later, after further turns, as it may in the loop. A test
	// explores the possible orders with it.
	Lazy func() bool

	flight *work  // cut and not committed yet; nil: none
	reads  []job  // of committed batches, not run yet
	late   []Call // results of jobs and other tasks of the engine, in order: its inbox
	listen func([]Event)

	unconfirmed []*Task // concluded, waiting for Config.Confirm
	handed      bool    // the batch of flight was handed to the store, which has not answered
	halted      error   // why Halt was called; nil: it was not
	largest     int     // see LargestTurn
}

// NewStepper returns a stepper with an engine that has recovered from the store, counted its
// messages and run its first turns at the given time.
func NewStepper(cfg Config, store Store, now time.Time) (*Stepper, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := &Stepper{core: newCore(cfg, store), store: store, start: now, now: now}
	if err := s.core.recover(); err != nil {
		return nil, err
	}
	if err := s.core.start(); err != nil {
		return nil, err
	}
	if reached := time.Unix(0, s.core.now); reached.After(now) { // see newClock
		s.core.time.setBehind(reached.Sub(now))
		s.now = reached
	}
	s.core.ops.census.take(func(p *censusPart) { s.post(p) })
	s.Do()
	return s, nil
}

// Now returns the stepper's time.
func (s *Stepper) Now() time.Time { return s.now }

// LargestTurn returns the units of work of the largest turn since it was called last.
func (s *Stepper) LargestTurn() int {
	n := s.largest
	s.largest = 0
	return n
}

// Elapsed is Engine.Elapsed.
func (s *Stepper) Elapsed() time.Duration { return s.now.Sub(s.start) }

// Prepare is Engine.Prepare.
func (s *Stepper) Prepare(req *Enqueue) error {
	return prepare(req, &s.core.cfg.Limits, s.core.out.snapshot, s.store, s.core.out.committed, func() int64 { return s.now.UnixNano() })
}

// PreparePublish is Engine.PreparePublish.
func (s *Stepper) PreparePublish(req *Publish) error {
	if err := req.begin(&s.core.cfg.Limits); err != nil {
		return err
	}
	return req.prepare(s.core.out.snapshot, s.store, s.core.out.committed, func() int64 { return s.now.UnixNano() })
}

// PrepareMove is Engine.PrepareMove.
func (s *Stepper) PrepareMove(req *BudgetMove) error {
	return prepareMove(req, s.store, s.core.out.snapshot, s.core.out.committed)
}

// PrepareGroup is Engine.PrepareGroup.
func (s *Stepper) PrepareGroup(req *OpenGroup) error {
	return req.prepare(&s.core.cfg.Limits, s.core.out.snapshot, func() int64 { return s.core.calendar() })
}

// PrepareCron is Engine.PrepareCron.
func (s *Stepper) PrepareCron(cr *Cron) error { return prepareCron(cr, &s.core.cfg.Limits) }

// CompileScript is Engine.CompileScript.
func (s *Stepper) CompileScript(by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return loadScript(&s.core.cfg, by, kind, source)
}

// ScriptSource is Engine.ScriptSource.
func (s *Stepper) ScriptSource(queue string, kind hook.Kind, version string) (string, error) {
	return scripts.Source(s.store, hookOf(queue, kind), version)
}

// Snapshot is Engine.Snapshot.
func (s *Stepper) Snapshot() *Snapshot { return s.core.out.snapshot }

// Load is Engine.Load.
func (s *Stepper) Load(ds []*Delivery) (read int, err error) { return load(ds, s.store) }

// LoadResult is Engine.LoadResult.
func (s *Stepper) LoadResult(r *Result) error { return loadResult(r, s.store) }

// Listen is Engine.Listen; the listener is called from Do.
func (s *Stepper) Listen(to func([]Event)) { s.listen = to }

// Want is Engine.Want, in force at once.
func (s *Stepper) Want(kinds EventKind) { s.core.out.events.wanted = kinds }

// HookTurned is Engine.HookTurned.
func (s *Stepper) HookTurned(h hook.Hook, state hook.BreakerState) { s.post(breakerChange{h, state}) }

// Submit is Engine.Submit by means of Do: the tasks that need not wait are done when it
// returns.
func (s *Stepper) Submit(tasks []*Task) { s.Do(tasks...) }

// Leave is Engine.Leave.
func (s *Stepper) Leave(c *Client) { s.post(leave{c}) }

// Advance moves the time forward by a duration. It runs a turn at the time of every timer on
// the way, and one at the end.
func (s *Stepper) Advance(d time.Duration) {
	end := s.now.Add(d)
	for {
		at := s.core.nextTimer()
		if at == 0 || time.Unix(0, at).After(end) {
			break
		}
		if t := time.Unix(0, at); t.After(s.now) {
			s.now = t
		} else if s.handed || s.halted != nil {
			break // what is due waits for the store
		}
		s.Do()
	}
	s.now = end
	s.Do()
}

// Do runs a turn with the tasks, commits it, runs its jobs, and continues as long as there is
// something to do at the current time, or until Lazy defers a step. A failed commit recovers
// in place as in the loop; writes are refused until Repair succeeds.
//
// After Halt it refuses the tasks, and waits for nothing but the batch that the store has.
func (s *Stepper) Do(tasks ...*Task) {
	if s.halted != nil {
		cease(tasks, false)
		s.release(tasks)
		if s.flight != nil {
			s.commit(s.flight)
		}
		return
	}
	s.turn(tasks)
	for {
		if s.flight == nil {
			s.flight = s.core.cut()
		}
		if s.flight == nil && len(s.reads)+len(s.late)+len(s.unconfirmed) == 0 && !s.core.hasUnfinished() || s.later() {
			return
		}
		if s.flight != nil {
			s.commit(s.flight)
		}
		unknown := s.confirm()
		if s.halted != nil {
			return
		}
		if s.turn(s.results()); s.handed || unknown {
			return
		}
	}
}

// turn runs a turn and releases its early replies.
func (s *Stepper) turn(tasks []*Task) {
	s.core.turn(s.now, tasks)
	s.largest = max(s.largest, s.core.tasks.budget.spent)
	if early := s.core.takeEarly(nil); s.core.cfg.Confirm == nil {
		s.release(early)
	} else {
		s.unconfirmed = append(s.unconfirmed, early...)
	}
}

// confirm answers what waits for a confirmation, as Engine.confirm does. It returns whether
// Config.Confirm would block.
func (s *Stepper) confirm() (unknown bool) {
	if s.halted != nil || len(s.unconfirmed) == 0 || s.later() {
		return false
	}
	tasks := s.unconfirmed
	err := s.core.cfg.Confirm()
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
		return true
	case err != nil:
		s.Halt(err)
	default:
		s.unconfirmed = nil
		s.release(tasks)
	}
	return false
}

// Halt is Engine.Halt.
func (s *Stepper) Halt(cause error) {
	if s.halted != nil {
		return
	}
	s.halted = cause
	s.release(s.core.halt(nil))
	if w := s.flight; w != nil && !s.handed {
		cease(w.tasks, false)
		s.release(w.tasks)
		s.flight = nil
	}
	s.reads, s.late = nil, nil
	s.endUnconfirmed()
}

// endUnconfirmed refuses what waits for a confirmation that will not come.
func (s *Stepper) endUnconfirmed() {
	cease(s.unconfirmed, false)
	s.release(s.unconfirmed)
	s.unconfirmed = nil
}

// later reports whether Lazy defers the next step.
func (s *Stepper) later() bool { return s.Lazy != nil && s.Lazy() }

// results runs the jobs that Lazy does not defer and returns results as tasks, in order, up to
// the first that Lazy defers.
func (s *Stepper) results() []*Task {
	reads := s.reads
	s.reads = nil
	for _, r := range reads {
		if s.later() {
			s.reads = append(s.reads, r)
			continue
		}
		r.do(s.store)
		s.post(r)
	}
	var results []*Task
	for len(s.late) > 0 && !s.later() {
		results = append(results, &Task{Call: s.late[0]})
		s.late = s.late[1:]
	}
	return results
}

// commit commits the work in flight and releases it, as Engine.commitWork does. After a failure
// it refuses the work and the open batch and recovers, as Engine.failOver does.
func (s *Stepper) commit(w *work) {
	c := s.core
	var err error
	if w.batch != nil {
		err = s.store.Commit(w.batch, w.sync && c.cfg.Sync == SyncAlways)
	}
	if s.handed = err == ErrWouldBlock; s.handed { //nolint:errorlint // a signal, never wrapped
		return
	}
	if s.flight = nil; errors.Is(err, storage.ErrDeposed) {
		cease(w.tasks, true)
		s.release(w.tasks)
		s.Halt(err)
		return
	}
	if err != nil {
		c.out.released = append(w.tasks, c.out.released...)
		c.refuse(err)
		c.loseBackups(w.jobs)
		c.out.committed = c.out.batchNo
		c.out.batchNo++
		c.health.counters.recoveries++
		s.recoverInPlace()
		return
	}
	c.out.committed = w.no
	tasks := w.tasks
	if c.cfg.Confirm != nil {
		var unconfirmed []*Task
		tasks, unconfirmed = splitUnconfirmed(tasks, w.batch != nil)
		s.unconfirmed = append(s.unconfirmed, unconfirmed...)
	}
	s.release(tasks)
	if s.halted != nil {
		s.endUnconfirmed()
		return
	}
	if s.listen != nil && len(w.events) > 0 {
		s.listen(w.events)
	}
	s.reads = append(s.reads, w.jobs...)
}

// recoverInPlace rebuilds the memory from the store, as Engine.recoverInPlace does. The
// census is a job, so that Lazy can defer it.
func (s *Stepper) recoverInPlace() {
	s.core.ops.census.stop()
	if err := s.core.recover(); err != nil {
		s.core.health.failed = err
		return
	}
	s.reads = append(s.reads, &counting{s.core.ops.census, s})
}

// counting is the job that takes a census.
type counting struct {
	census *census
	step   *Stepper
}

func (n *counting) do(Store) { n.census.take(func(p *censusPart) { n.step.post(p) }) }

// Apply does nothing: the census posts its parts as tasks of their own.
func (n *counting) Apply(*Tx) error { return nil }

// Repair reopens the store and recovers, as Engine does every Config.RetryInterval. It returns
// why the store is still read-only.
func (s *Stepper) Repair() error {
	if err := s.store.Reopen(); err != nil {
		return err
	}
	s.recoverInPlace()
	if err := s.core.start(); err != nil {
		return err
	}
	s.core.health.failed = nil
	s.core.refreshFull()
	s.Do()
	return nil
}

// release makes results public and wakes clients, as Engine.release does.
func (s *Stepper) release(tasks []*Task) {
	for _, t := range tasks {
		t.publish(s.Elapsed())
		if t.Client != nil {
			t.Client.wake()
		}
	}
}

// post queues a task of the engine for a later turn.
func (s *Stepper) post(call Call) { s.late = append(s.late, call) }
