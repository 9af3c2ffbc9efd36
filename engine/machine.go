package engine

import (
	"errors"
	"time"

	"github.com/faisca/fila/storage"
)

// Machine is an engine that a driver runs: loop.Engine with goroutines and a clock, Stepper one step at a time.
// The driver has the inbox and the time, and carries works to the store:
//
//	Start                    once, before anything else
//	Turn, TakeEarly          again and again: applies tasks, and has early replies
//	Cut                      closes the open batch as a Work when no other one is on its way
//	Work.Commit, .Conclude   on any goroutine: writes the batch, and gives its tasks their results
//	Committed, CommitFailed  before the next Turn: one of them takes the Work back
//	Release                  makes results public, on any goroutine
//	Work.Jobs, .Events       after that, of a work that was committed
//	Repair                   every Config.RetryInterval while Impaired
//	Drain, or Halt           the end
//
// Its methods are called by one goroutine at a time, except for those of Preparer. What a method returns as
// Background is run by the driver on another goroutine.
type Machine struct {
	*Preparer

	core *core
}

// Background is work off the loop that belongs to no batch. It may take long, and reports its results by post,
// which appends a task of the engine to the inbox. Nil: there is none.
type Background func(post func(Call))

// NewMachine checks the configuration and returns an engine over a store that it must have for itself. wall reads
// the system clock in Unix nanoseconds, on any goroutine.
func NewMachine(cfg Config, store Store, wall func() int64) (*Machine, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	m := &Machine{core: newCore(cfg, store)}
	m.Preparer = &Preparer{cfg: &m.core.cfg, store: store, wall: wall, durable: m.core.out.durable}
	m.snapshot.Store(m.core.out.snapshot)
	return m, nil
}

// Start recovers the state from the store. If the store can be read and not written, as on a full disk, the engine
// starts read-only: reads and inspection are better than no service.
func (m *Machine) Start() (Background, error) {
	c := m.core
	if err := c.recover(); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		if !errors.Is(err, storage.ErrReopen) {
			c.ops.census.Close()
			return nil, err
		}
		m.fail(err)
	}
	m.checkFull()
	m.snapshot.Store(c.out.snapshot)
	return m.count(), nil
}

// Now returns the time of the last turn; before the first, the newest time in the store.
func (m *Machine) Now() time.Time { return unix(m.core.now) }

// Turn runs a turn at a time, by which the system clock is behind as told, with tasks in the order of their arrival.
// The slice belongs to the caller again. A changed snapshot is in force when it returns.
func (m *Machine) Turn(now time.Time, behind time.Duration, tasks []*Task) {
	c := m.core
	c.watchClock(behind)
	c.lookAtMemory()
	c.turn(now, tasks)
	if c.out.snapshot != m.snapshot.Load() {
		m.snapshot.Store(c.out.snapshot)
	}
}

// TakeEarly returns the tasks whose replies leave at the end of the turn, and leaves spare, an empty slice, in their
// place.
func (m *Machine) TakeEarly(spare []*Task) []*Task {
	early := m.core.out.early
	m.core.out.early = spare
	return early
}

// TakeReadOnly appends to early the concluded tasks that only read memory, of the open batch and of one whose commit
// has stalled, if that is not nil: they are answered without a commit.
func (m *Machine) TakeReadOnly(early []*Task, stalled *Work) []*Task {
	m.core.out.released, early = splitReadOnly(m.core.out.released, early)
	if stalled != nil {
		stalled.tasks, early = splitReadOnly(stalled.tasks, early)
	}
	return early
}

// splitReadOnly moves read-only tasks to early, and returns the others.
func splitReadOnly(tasks, early []*Task) (rest, all []*Task) {
	rest = tasks[:0]
	for _, t := range tasks {
		if t.ReadOnly {
			early = append(early, t)
		} else {
			rest = append(rest, t)
		}
	}
	clear(tasks[len(rest):])
	return rest, early
}

// Cut closes the open batch and opens the next one. It returns nil if there is nothing to commit, reply, send or
// start.
func (m *Machine) Cut() *Work { return m.core.cut() }

// Committed takes over a work whose commit has succeeded: its batch is in the store.
func (m *Machine) Committed(w *Work) {
	m.core.out.committed = w.no
	m.reuse(w)
}

// reuse empties and takes the batch of a work that has ended, with or without a commit.
func (m *Machine) reuse(w *Work) {
	if w.batch != nil && m.core.out.spare == nil {
		w.batch.Reset()
		m.core.out.spare, w.batch = w.batch, nil
	}
}

// CommitFailed handles a failed commit, or a failed sync of the store: it refuses the tasks of the open batch, which builds
// on what is not in the store, drops the memory and recovers from the store. Until Repair succeeds, writes are refused
// and reads continue. w is the work that the driver has to give back, committed or not, or nil.
func (m *Machine) CommitFailed(w *Work, cause error) Background {
	c := m.core
	m.fail(cause)
	if w != nil {
		if w.lost {
			c.loseBackups(w.jobs)
		}
		m.reuse(w)
	}
	c.loseBackups(c.out.jobs)
	refuse(c.out.released, cause)
	c.out.committed = c.out.batchNo
	c.out.batchNo++
	count, _ := m.recoverInPlace() // what fails is tried again by Repair
	return count
}

// fail notes that the store takes no writes.
func (m *Machine) fail(cause error) {
	m.core.cfg.Log.Error().Err(cause).Msg("the store cannot write, writes are refused until it can")
	m.core.health.failed = cause
}

// recoverInPlace rebuilds the memory from the store and begins a new census. If the store
// cannot be read either, all tasks are refused until Repair succeeds.
func (m *Machine) recoverInPlace() (Background, error) {
	c := m.core
	c.ops.census.Stop()
	c.health.counters.recoveries++
	if err := c.recover(); err != nil {
		c.cfg.Log.Error().Err(err).Msg("recovery failed, it is tried again")
		c.health.failed = err
		return nil, err
	}
	return m.count(), nil
}

// count returns the census of the recovered store.
func (m *Machine) count() Background {
	of := m.core.ops.census
	return func(post func(Call)) { takeCensus(of, post) }
}

// Impaired reports whether the store refuses some or all writes, see health.
func (m *Machine) Impaired() bool { return m.core.health.failed != nil || m.core.health.full != nil }

// ReadOnly reports whether the store refuses all writes.
func (m *Machine) ReadOnly() bool { return m.core.health.failed != nil }

// Repair tries to make an impaired store take all writes again. It returns why the store still takes none, or nil.
// Background may be something to do in either case.
func (m *Machine) Repair() (Background, error) {
	switch {
	case m.ReadOnly():
		return m.reopen()
	case m.Impaired():
		return m.relieve(), nil
	default:
		return nil, nil
	}
}

// reopen tries to make a read-only store writable again. A store that can probe the disk is
// reopened only when that may succeed, so that the census and reads are not interrupted by
// each attempt.
func (m *Machine) reopen() (count Background, err error) {
	c := m.core
	if p, ok := c.store.(prober); ok {
		if err := p.Probe(); err != nil {
			c.health.failed = err
			return nil, err
		}
	}
	c.ops.census.Stop()
	if err := c.store.Reopen(); err != nil {
		c.health.failed = err
		if c.ops.census != nil { // it was stopped, and the store may still be readable
			count, _ = m.recoverInPlace()
		}
		return count, err
	}
	// The failed batch may be on disk after all, so memory is rebuilt again.
	if count, err = m.recoverInPlace(); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		c.health.failed = err
		return count, err
	}
	c.health.failed = nil
	m.checkFull()
	if c.health.full == nil {
		c.cfg.Log.Info().Msg("the store takes writes again")
	}
	return count, nil
}

// checkFull reads from the store whether it is full, and logs it.
func (m *Machine) checkFull() {
	c := m.core
	if c.health.failed != nil {
		return
	}
	if c.refreshFull(); c.health.full != nil {
		c.cfg.Log.Error().Err(c.health.full).Msg("the store takes only what frees space until there is some: FILA.ACK, FILA.CANCEL, FILA.PURGE, FILA.QUEUE DELETE")
	}
}

// relieve makes a full store free space, one call at a time.
func (m *Machine) relieve() Background {
	s, ok := m.core.store.(reliever)
	if !ok || m.core.health.reclaiming {
		return nil
	}
	m.core.health.reclaiming = true
	return func(post func(Call)) { post(relieved{s.Relieve()}) }
}

// Next returns when a turn is due without any new task, in Unix nanoseconds: the time of the last turn if that has left
// work, 0 if there is no timer. While a work is on its way and the open batch is full, timers have no place for their
// writes, and it returns 0.
func (m *Machine) Next(onItsWay bool) int64 {
	if onItsWay && m.core.mustCut() {
		return 0
	}
	return m.core.nextTimer()
}

// Unfinished reports whether the last turn has left work to the next one.
func (m *Machine) Unfinished() bool { return m.core.hasUnfinished() }

// Backlog returns the number of tasks that turns have taken and not applied yet, and the bytes of input that they
// retain.
func (m *Machine) Backlog() (tasks, bytes int) {
	return len(m.core.tasks.backlog), m.core.tasks.bytes
}

// Full reports whether the open batch has Config.BatchBytes: a turn should get no more tasks before the next Cut.
func (m *Machine) Full() bool { return m.core.out.batch.Size() >= m.core.cfg.BatchBytes }

// Linger returns how many answers the open batch has, and whether it may wait for more tasks before it is cut. A sync
// takes as long for a large batch as for a small one. Where none follows, many small batches cost more than one, and a
// large one keeps its clients waiting for nothing.
func (m *Machine) Linger() (answers int, may bool) {
	most := 4 << 10
	if m.core.cfg.Sync == SyncAlways {
		most = m.core.cfg.BatchBytes
	}
	return len(m.core.out.released), m.core.out.sync && m.core.out.batch.Size() < most
}

// Held returns what keys and messages take in memory at least, in bytes.
func (m *Machine) Held() int64 { return m.core.held() }

// Drain ends what waits, and writes what is written at a stop. It may be called after each turn of a stop; the engine
// is done when nothing is Unfinished and Cut returns nil.
func (m *Machine) Drain() { m.core.drain() }

// Halt ends all tasks that the engine has, and new ones, because another node leads or may lead, and returns them; see
// "Ceasing" in core.go. Work that was cut has its own: see Work.Conclude. No turn may follow.
func (m *Machine) Halt(tasks []*Task) []*Task { return m.core.halt(tasks) }

// Close ends the census.
func (m *Machine) Close() { m.core.ops.census.Stop() }
