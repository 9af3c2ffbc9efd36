package engine

import (
	"time"

	"github.com/faisca/fila/internal/hook"
)

// Stepper drives an engine by hand, without goroutines and clock: for tests,
// here and in other packages. It is what the loop is, one step at a time.
type Stepper struct {
	core  *core
	store Store
	start time.Time
	now   time.Time

	// Lazy, if set, is asked before each commit, each read and each result of a
	// read whether it should come later, after further turns, as it may in the loop.
	Lazy func() bool

	flight *work  // cut, not committed yet
	reads  []job  // their batch is committed
	late   []Call // results of reads that are done
	listen func([]Event)
}

// NewStepper recovers an engine from the store at a time.
func NewStepper(cfg Config, store Store, now time.Time) (*Stepper, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Stepper{core: newCore(cfg, store), store: store, start: now, now: now}
	if err := s.core.recover(); err != nil {
		return nil, err
	}
	if err := s.core.start(); err != nil {
		return nil, err
	}
	s.core.ops.census.take(func(p *censusPart) { s.post(p) })
	s.Do()
	return s, nil
}

// Now returns the stepper's time.
func (s *Stepper) Now() time.Time { return s.now }

// Elapsed is Engine.Elapsed.
func (s *Stepper) Elapsed() time.Duration { return s.now.Sub(s.start) }

// Prepare is Engine.Prepare.
func (s *Stepper) Prepare(req *Enqueue) error {
	seen := s.core.out.committed
	if err := prepare(req, &s.core.cfg.Limits, s.core.out.snapshot, func() int64 { return s.now.UnixNano() }); err != nil {
		return err
	}
	prepareDedup(req, s.store, s.core.out.snapshot, seen)
	return nil
}

// PrepareCron is Engine.PrepareCron.
func (s *Stepper) PrepareCron(cr *Cron) error { return prepareCron(cr, &s.core.cfg.Limits) }

// CompileScript is Engine.CompileScript.
func (s *Stepper) CompileScript(kind hook.Kind, source string) (hook.Hook, error) {
	return compileScript(&s.core.cfg, hook.Loader.Load, kind, source)
}

// Snapshot is Engine.Snapshot.
func (s *Stepper) Snapshot() *Snapshot { return s.core.out.snapshot }

// Load is Engine.Load.
func (s *Stepper) Load(d *Delivery) error { return load(d, s.store) }

// Listen is Engine.Listen; the listener is called from Do.
func (s *Stepper) Listen(to func([]Event)) { s.listen = to }

// Want is Engine.Want, in force at once.
func (s *Stepper) Want(kinds EventKind) { s.core.out.events.wanted = kinds }

// HookTurned is Engine.HookTurned.
func (s *Stepper) HookTurned(h hook.Hook, state hook.BreakerState) { s.post(breakerChange{h, state}) }

// Submit is Do for those who expect an Engine: the tasks that need not wait are
// done when it returns.
func (s *Stepper) Submit(tasks []*Task) { s.Do(tasks...) }

// Leave is Engine.Leave.
func (s *Stepper) Leave(c *Client) { s.post(leave{c}) }

// Advance moves the time on, stopping at every timer on the way.
func (s *Stepper) Advance(d time.Duration) {
	end := s.now.Add(d)
	for {
		at := s.core.nextTimer()
		if at == 0 || time.Unix(0, at).After(end) {
			break
		}
		if t := time.Unix(0, at); t.After(s.now) {
			s.now = t
		}
		s.Do()
	}
	s.now = end
	s.Do()
}

// Do runs a turn with the tasks and commits it, and goes on as long as there is
// something to do without the time moving on. A failed commit fails over as the
// loop does; Repair repairs it.
func (s *Stepper) Do(tasks ...*Task) {
	s.turn(tasks)
	for {
		if s.flight == nil {
			s.flight = s.core.cut()
		}
		if s.flight == nil && len(s.reads) == 0 && len(s.late) == 0 && !s.core.hasUnfinished() || s.later() {
			return
		}
		if w := s.flight; w != nil {
			s.flight = nil
			s.commit(w)
		}
		s.turn(s.results())
	}
}

func (s *Stepper) turn(tasks []*Task) {
	s.core.turn(s.now, tasks)
	s.release(s.core.takeEarly(nil))
}

func (s *Stepper) later() bool { return s.Lazy != nil && s.Lazy() }

// results does the reads whose time has come and returns the results whose time
// has come.
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
	for len(s.late) > 0 && !s.later() { // the inbox keeps the order
		results = append(results, &Task{Call: s.late[0]})
		s.late = s.late[1:]
	}
	return results
}

// commit is what the committer does with a work, and its reads at once.
func (s *Stepper) commit(w *work) {
	c := s.core
	var err error
	if w.batch != nil {
		err = s.store.Commit(w.batch, w.sync && c.cfg.Sync == SyncAlways)
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
	s.release(w.tasks)
	if s.listen != nil && len(w.events) > 0 {
		s.listen(w.events)
	}
	s.reads = append(s.reads, w.jobs...)
}

func (s *Stepper) recoverInPlace() {
	s.core.ops.census.stop()
	if err := s.core.recover(); err != nil {
		s.core.health.failed = err
		return
	}
	s.reads = append(s.reads, &counting{s.core.ops.census, s})
}

// counting is a census whose time has not come yet.
type counting struct {
	census *census
	step   *Stepper
}

func (n *counting) do(Store) { n.census.take(func(p *censusPart) { n.step.post(p) }) }

// Apply does nothing: the parts of the census are calls of their own.
func (n *counting) Apply(*Tx) error { return nil }

// Repair makes the store writable again, if it can be.
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

func (s *Stepper) release(tasks []*Task) {
	for _, t := range tasks {
		if undo := t.conclude(s.Elapsed()); undo != nil {
			s.post(undo)
		}
		if t.Client != nil {
			t.Client.wake()
		}
	}
}

// tell gives the core a task of the engine's own, in a turn that follows.
func (s *Stepper) post(call Call) { s.late = append(s.late, call) }
