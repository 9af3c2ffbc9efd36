package engine

import (
	"errors"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// Stepper drives a Machine as loop.Engine does, but step by step, without goroutines and with a time
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
	*Preparer

	machine *Machine
	core    *core // of machine
	store   Store
	start   time.Time
	now     time.Time

	// Lazy, if set, is called before each commit, each job and each result. If it returns
	// true, that step happens later, after further turns, as it may in the loop. A test
	// explores the possible orders with it.
	Lazy func() bool

	flight *Work  // cut and not committed yet; nil: none
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
	s := &Stepper{store: store, start: now, now: now}
	var err error
	if s.machine, err = NewMachine(cfg, store, s.wall); err != nil {
		return nil, err
	}
	s.Preparer, s.core = s.machine.Preparer, s.machine.core
	count, err := s.machine.Start()
	if err != nil {
		return nil, err
	}
	if reached := s.machine.Now(); reached.After(now) { // see package loop, clock
		s.core.time.SetBehind(reached.Sub(now))
		s.now = reached
	}
	count(s.post)
	s.Do()
	return s, nil
}

// wall is the time of the system clock.
func (s *Stepper) wall() int64 { return s.core.time.Calendar(s.now.UnixNano()) }

// Now returns the stepper's time.
func (s *Stepper) Now() time.Time { return s.now }

// LargestTurn returns the units of work of the largest turn since it was called last.
func (s *Stepper) LargestTurn() int {
	n := s.largest
	s.largest = 0
	return n
}

// Elapsed returns the time since the stepper was made.
func (s *Stepper) Elapsed() time.Duration { return s.now.Sub(s.start) }

// Listen is loop.Engine.Listen; the listener is called from Do.
func (s *Stepper) Listen(to func([]Event)) { s.listen = to }

// Want is loop.Engine.Want, in force at once.
func (s *Stepper) Want(kinds EventKind) { s.core.out.events.Want(kinds) }

// BreakerChanged is loop.Engine.BreakerChanged.
func (s *Stepper) BreakerChanged(h hook.Hook, state hook.BreakerState) {
	s.post(BreakerChanged{h, state})
}

// Submit is loop.Engine.Submit by means of Do: the tasks that need not wait are done when it
// returns.
func (s *Stepper) Submit(tasks []*Task) { s.Do(tasks...) }

// Leave is loop.Engine.Leave.
func (s *Stepper) Leave(c *Client) { s.post(Leave{c}) }

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
		Cease(tasks)
		s.release(tasks)
		if s.flight != nil {
			s.commit(s.flight)
		}
		return
	}
	s.turn(tasks)
	for {
		if s.flight == nil {
			s.flight = s.machine.Cut()
		}
		if s.flight == nil && len(s.reads)+len(s.late)+len(s.unconfirmed) == 0 && !s.machine.Unfinished() || s.later() {
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
	s.machine.Turn(s.now, s.core.time.Behind(), tasks)
	s.largest = max(s.largest, s.core.tasks.budget.Spent)
	if early := s.machine.TakeEarly(nil); s.core.cfg.Confirm == nil {
		s.release(early)
	} else {
		s.unconfirmed = append(s.unconfirmed, early...)
	}
}

// confirm answers what waits for a confirmation, as loop.Engine does. It returns whether
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

// Halt is loop.Engine.Halt.
func (s *Stepper) Halt(cause error) {
	if s.halted != nil {
		return
	}
	s.halted = cause
	s.release(s.machine.Halt(nil))
	if w := s.flight; w != nil && !s.handed {
		tasks, _ := w.Conclude(w.Take(), ErrTakeover)
		s.release(tasks)
		s.flight = nil
	}
	s.reads, s.late = nil, nil
	s.endUnconfirmed()
}

// endUnconfirmed refuses what waits for a confirmation that will not come.
func (s *Stepper) endUnconfirmed() {
	Cease(s.unconfirmed)
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

// commit commits the work in flight and releases it, as loop.Engine does.
func (s *Stepper) commit(w *Work) {
	err := w.Commit(s.store)
	if s.handed = err == ErrWouldBlock; s.handed { //nolint:errorlint // a signal, never wrapped
		return
	}
	s.flight = nil
	tasks, unconfirmed := w.Conclude(w.Take(), err)
	if s.unconfirmed = append(s.unconfirmed, unconfirmed...); err == nil {
		s.machine.Committed(w)
	}
	s.release(tasks)
	switch {
	case errors.Is(err, storage.ErrDeposed):
		s.Halt(err)
		return
	case err != nil:
		s.inBackground(s.machine.CommitFailed(w, err))
		return
	case s.halted != nil:
		s.endUnconfirmed()
		return
	}
	if s.listen != nil && len(w.events) > 0 {
		s.listen(w.events)
	}
	s.reads = append(s.reads, w.jobs...)
}

// inBackground makes a job of what is done in the background, so that Lazy can defer it.
func (s *Stepper) inBackground(do Background) {
	if do != nil {
		s.reads = append(s.reads, &backgroundJob{do, s})
	}
}

// backgroundJob is the job that runs a Background.
type backgroundJob struct {
	run  Background
	step *Stepper
}

func (b *backgroundJob) do(Store) { b.run(b.step.post) }

// Apply does nothing: the results are posted as tasks of their own.
func (b *backgroundJob) Apply(*Tx) error { return nil }

// Repair tries to make the store take all writes again, as loop.Engine does every Config.RetryInterval. It returns
// why the store is still read-only.
func (s *Stepper) Repair() error {
	do, err := s.machine.Repair()
	s.inBackground(do)
	if err != nil {
		return err
	}
	s.Do()
	return nil
}

// release makes results public and wakes clients.
func (s *Stepper) release(tasks []*Task) { Release(tasks, s.Elapsed()) }

// post queues a task of the engine for a later turn.
func (s *Stepper) post(call Call) { s.late = append(s.late, call) }
