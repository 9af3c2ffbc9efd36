package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/config"
	"github.com/faisca/fila/engine/internal/mailbox"
	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/internal/yield"
	"github.com/faisca/fila/storage"
)

// Engine runs a core. Only this file and loop_commit.go have goroutines, locks and a clock.
//
//	connections ──Submit──► inbox ──► loop ──work──► committer ──► tasks done, clients woken
//	                          ▲      (turns)             │
//	                          └──── results of jobs ─────┘ off-loop jobs
//
// The loop owns the core: no other goroutine touches it. While the committer writes one
// batch, further turns fill the next one (group commit): the slower the disk, the larger the
// batches. When the committer is free, the loop cuts the open batch, after a short linger
// where other clients are about to submit (linger); a single client never waits for others.
//
// The path of a task:
//
//  1. Submit appends it to the inbox.
//  2. A turn applies it; its writes are in the open batch.
//  3. The loop cuts the batch and hands it to the committer.
//  4. The committer writes the batch.
//  5. The task is done and its client is woken. Only an early reply is done after step 2.
type Engine struct {
	cfg   Config
	store Store
	core  *core
	start time.Time     // origin of Elapsed; has a monotonic reading
	ready chan struct{} // closed when the engine takes tasks
	done  chan struct{} // closed when Run has returned

	mu       sync.Mutex
	room     sync.Cond // signalled when the inbox may have room
	inbox    []*Task   // bounded by Config.InboxTasks and Config.InboxBytes, together with the backlog
	bytes    int       // input of the tasks in the inbox and in the backlog
	backlog  int       // number of tasks that the core has taken and not applied yet
	stopping bool      // Stop was called: Submit refuses tasks
	halted   error     // why Halt was called; nil: it was not
	stopped  bool      // the loop has ended: nothing takes tasks out of the inbox

	// Results of the committer for the loop, guarded by mu:
	committed uint64         // number of the last committed batch
	failed    error          // of the last commit, until the loop has recovered
	busy      bool           // a batch is with the committer
	released  int            // number of tasks of the last commit
	spare     *storage.Batch // an empty batch for reuse

	// Owned by the loop:
	stalled     bool          // the commit under way has taken stallAfter, see health.go
	commitBegan time.Duration // reading of Elapsed when it was handed over
	flight      *work         // with the committer; mu guards its tasks
	held        int64         // bytes that Config.Held was last called with

	readOnly    atomic.Bool              // the store refuses writes and the loop knows, for the committer
	snapshot    atomic.Pointer[Snapshot] // what Prepare reads on connections
	durable     atomic.Uint64            // number of the last committed batch, for Prepare
	listen      func([]Event)            // set before Run
	events      *mailbox.Box[Event]      // of committed batches, for the listener
	unconfirmed *mailbox.Box[*Task]      // concluded, waiting for Config.Confirm; bounded by what connections have unanswered
	batches     histogram.Shared         // tasks of each commit, a second for each

	wake       chan struct{}  // capacity 1: the loop has something to do
	work       chan *work     // to the committer; at most one is under way
	searching  sync.Mutex     // held by the search that runs
	background sync.WaitGroup // committer, confirmer, dispatcher and off-loop jobs
}

// New returns an engine over a store that it must have for itself. It checks the
// configuration and starts nothing; Run does.
func New(cfg Config, store Store) (*Engine, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, store: store, core: newCore(cfg, store), start: time.Now(),
		events: mailbox.New[Event](eventsMax), unconfirmed: mailbox.New[*Task](0),
		ready: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1), work: make(chan *work, 1),
	}
	if !cfg.Start.IsZero() {
		e.start = cfg.Start
	}
	e.room.L = &e.mu
	e.snapshot.Store(e.core.out.snapshot)
	return e, nil
}

// Ready is closed when the engine has recovered. Tasks submitted before that wait in the
// inbox. It stays open if Run fails.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Elapsed returns the time since Config.Start, from the monotonic clock.
func (e *Engine) Elapsed() time.Duration { return time.Since(e.start) }

// Snapshot returns the hooks and the runtime configuration in force. Any goroutine may call it.
func (e *Engine) Snapshot() *Snapshot { return e.snapshot.Load() }

// LoopFigures are what waits for the loop, and what its goroutines have counted since the start.
type LoopFigures struct {
	InboxTasks, InboxBytes int
	EventsLost             uint64
	BatchTasks             histogram.Histogram // tasks of each commit: n of them count as n seconds
}

// LoopFigures returns figures that no turn is needed for. Any goroutine may call it.
func (e *Engine) LoopFigures() (l LoopFigures) {
	e.mu.Lock()
	l.InboxTasks, l.InboxBytes = len(e.inbox)+e.backlog, e.bytes
	e.mu.Unlock()
	l.EventsLost = e.events.Dropped()
	e.batches.AddTo(&l.BatchTasks)
	return l
}

// Submit appends tasks to the inbox. Tasks of one client are applied in the order of its
// calls. It blocks while the inbox is full (Config.InboxTasks, Config.InboxBytes), except for
// read-only tasks while a commit stalls; tasks larger than the bounds are accepted when the
// inbox is empty. The slice belongs to the caller again when Submit returns. After Stop the
// tasks end with ErrStopped.
func (e *Engine) Submit(tasks []*Task) {
	bytes := 0
	for _, t := range tasks {
		bytes += t.Bytes
	}
	e.mu.Lock()
	for !e.stopping && len(e.inbox)+e.backlog > 0 && (!e.stalled || !allReadOnly(tasks)) && (len(e.inbox)+e.backlog+len(tasks) > e.cfg.InboxTasks || e.bytes+bytes > e.cfg.InboxBytes) {
		e.room.Wait()
	}
	if e.stopping {
		e.mu.Unlock()
		e.refuseNew(tasks)
		return
	}
	e.inbox = append(e.inbox, tasks...)
	e.bytes += bytes
	e.mu.Unlock()
	e.wakeLoop()
}

// Settle waits until the results of all tasks that a client has submitted are public: the store
// has what they have written. It returns ErrClientGone if gone is closed before.
func (e *Engine) Settle(cl *Client, gone <-chan struct{}) error {
	public := make(chan struct{})
	e.Submit([]*Task{{Client: cl, Call: settled{}, published: func() { close(public) }}})
	select {
	case <-public:
		return nil
	case <-gone:
		return ErrClientGone
	}
}

// Leave reports that a client has disconnected. Its wait for messages ends, and its tasks
// queued behind that wait are not executed, as in Redis. A command that has begun is
// finished. It does not block.
func (e *Engine) Leave(c *Client) { e.post(leave{c}) }

// post appends a task of the engine to the inbox. It never blocks: results of off-loop jobs
// must not depend on the room that clients leave in the inbox. Their number is bounded by
// the jobs that turns start.
func (e *Engine) post(call Call) {
	e.mu.Lock()
	if !e.stopped {
		e.inbox = append(e.inbox, &Task{Call: call})
	}
	e.mu.Unlock()
	e.wakeLoop()
}

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

// wakeLoop makes the loop run another turn. Calls before that turn coalesce.
func (e *Engine) wakeLoop() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run recovers the state from the store and runs the loop until Stop is called or ctx ends.
// It returns nil after a shutdown, the cause after Halt, or why the engine could not start. It must be called
// once; it does not close the store. On a store that only reads, the engine starts, refuses
// writes, and tries to reopen the store every Config.RetryInterval.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	c := e.core
	batchLinger, err := yield.NewLinger(tuning.Enabled)
	if err != nil {
		e.refuseAll()
		return err
	}
	defer batchLinger.Close()
	if err := c.recover(); err != nil {
		e.refuseAll()
		return err
	}
	if err := c.start(); err != nil {
		if !errors.Is(err, storage.ErrReopen) {
			if c.ops.census.close(); errors.Is(err, storage.ErrDeposed) {
				e.Halt(err)
			}
			e.refuseAll()
			return err
		}
		// The store could be opened read-only, as on a full disk. Reads and inspection are
		// better than no service; reopen tries to restore writes.
		e.cfg.Log.Error().Err(err).Msg("the store cannot write, writes are refused until it can")
		c.health.failed = err
	}
	e.checkFull()
	stop := context.AfterFunc(ctx, e.Stop)
	defer stop()
	e.background.Go(e.commit)
	e.background.Go(e.dispatch)
	if e.cfg.Confirm != nil {
		e.background.Go(e.confirm)
	}
	e.startCensus()
	e.snapshot.Store(c.out.snapshot)
	close(e.ready)
	e.loop(batchLinger)
	c.ops.census.stop()
	close(e.work)
	e.background.Wait()
	e.refuseAll()
	return e.haltedBy()
}

// loop runs turns until the engine has stopped. One iteration:
//
//  1. collect takes the tasks and the committer's results. After Halt, that is all.
//  2. After a failed commit, failOver recovers. While the store is read-only or full,
//     reopen or relieve tries to restore it every Config.RetryInterval.
//  3. The turn. A changed snapshot is published before the replies that depend on it leave.
//  4. Early replies leave.
//  5. If the committer is free, the open batch is cut and handed over, possibly after a
//     linger.
//  6. sleep waits for the next task, timer or result.
func (e *Engine) loop(batchLinger *yield.Linger) {
	c := e.core
	clock := newClock(c.now)
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	defer e.reportHeld(0, 1)
	var spare, early []*Task
	repairAt := time.Time{}
	for {
		tasks, state := e.collect(spare)
		if state.halted {
			e.cease(tasks)
			return
		}
		now := clock.now()
		if state.failed != nil {
			e.failOver(state.failed)
			repairAt = now.Add(e.cfg.RetryInterval)
		} else {
			c.out.committed = state.committed
		}
		if c.health.failed != nil && !now.Before(repairAt) {
			e.reopen()
			repairAt = now.Add(e.cfg.RetryInterval)
		} else if c.health.full != nil && !now.Before(repairAt) {
			e.relieve()
			repairAt = now.Add(e.cfg.RetryInterval)
		}
		e.readOnly.Store(c.health.failed != nil)
		began := e.Elapsed()
		e.watchClock(clock.behind)
		c.lookAtMemory()
		c.turn(now, tasks)
		e.observe(ActivityTurn, began)
		e.reportHeld(c.held(), config.HeldStep)
		if c.out.snapshot != e.snapshot.Load() {
			e.snapshot.Store(c.out.snapshot)
		}
		early = c.takeEarly(early[:0])
		if e.stalled {
			e.answerReadOnly(e.flight)
			early = append(early, c.takeEarly(nil)...)
		}
		e.answerEarly(early)
		clear(early)
		clear(tasks)
		spare = tasks[:0]
		if state.stopping {
			c.drain()
		}
		if !state.busy && !state.stopping && c.out.sync && c.out.batch.Size() < e.lingerBytes() && batchLinger.Wait(now, len(c.out.released), state.released) {
			continue
		}
		if !state.busy {
			batchLinger.Over()
			if w := c.cut(); w != nil {
				e.startCommit(w)
				state.busy = true
			} else if state.stopping && len(tasks) == 0 && !c.hasUnfinished() {
				if e.close() {
					return
				}
				continue
			}
		}
		if !e.sleep(alarm, clock, state.busy, repairAt) {
			batchLinger.Yield(now) // else the commit under way and all clients wait until there is nothing left to do
		}
	}
}

// lingerBytes is the size of the open batch from which on it does not linger. A sync takes as long for a
// large batch as for a small one. Where none follows, many small batches cost more than one, and a
// large one keeps its clients waiting for nothing.
func (e *Engine) lingerBytes() int {
	if e.cfg.Sync == SyncAlways {
		return e.cfg.BatchBytes
	}
	return 4 << 10
}

// state is what the loop reads under the lock at the beginning of an iteration; see Engine
// for its fields.
type state struct {
	committed uint64
	failed    error
	busy      bool
	released  int
	stopping  bool
	halted    bool
}

// collect takes the tasks of the inbox and leaves spare, an empty slice, in its place. While
// the open batch is full and the committer is busy it takes none, so that the inbox fills
// and Submit blocks: this is the engine's backpressure. If that commit has stalled, it takes
// read-only tasks.
func (e *Engine) collect(spare []*Task) ([]*Task, state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := state{committed: e.committed, failed: e.failed, busy: e.busy, released: e.released, stopping: e.stopping, halted: e.halted != nil}
	if s.busy {
		s.failed = nil // recover only once the committer has no batch: the spare one belongs to it
	}
	e.stalled = e.stalling(s.busy) <= 0
	if s.busy && e.core.out.batch.Size() >= e.cfg.BatchBytes {
		if e.stalled {
			e.room.Broadcast() // Submit accepts read-only tasks now
			return e.takeReadOnly(spare), s
		}
		return spare, s
	}
	if e.core.out.spare == nil {
		e.core.out.spare, e.spare = e.spare, nil
	}
	tasks := e.inbox
	e.inbox, e.bytes, e.backlog = spare, e.core.tasks.bytes, len(e.core.tasks.backlog)
	e.room.Broadcast()
	return tasks, s
}

// sleep returns when there may be something to do: a wake-up, a timer of the core, a commit
// that stalls, or the next attempt to restore the store. While a commit is under way and the
// open batch is full, timers do not wake the loop: their writes would have no place. It reports whether it has
// waited at all.
//
// The alarm is set anew each time, also to a later one: to wake for a timer that has gone, such as that
// of a lease that was acked, costs a thousand times as much.
func (e *Engine) sleep(alarm *time.Timer, clock *clock, busy bool, repairAt time.Time) (slept bool) {
	at := e.core.nextTimer()
	now := clock.now()
	wait := time.Hour
	if stall := e.stalling(busy); stall > 0 {
		wait = min(wait, stall)
	}
	if full := busy && e.core.mustCut(); at > 0 && !full {
		wait = min(wait, time.Unix(0, at).Sub(now))
	}
	if e.core.health.failed != nil || e.core.health.full != nil {
		wait = min(wait, repairAt.Sub(now))
	}
	if wait <= 0 {
		return false
	}
	alarm.Reset(wait)
	select {
	case <-e.wake:
	case <-alarm.C:
	}
	return true
}

// startCommit hands a work to the committer. It does not block, since there is only one work
// at a time.
func (e *Engine) startCommit(w *work) {
	e.commitBegan, e.flight = e.Elapsed(), w
	e.mu.Lock()
	e.busy = true
	e.mu.Unlock()
	e.work <- w
}

// wallNanos is the time that hooks use for statistics and breakers, in Unix nanoseconds. It
// is read on connections, outside of turns.
func wallNanos() int64 { return time.Now().UnixNano() }

// clock is the time of turns: the system clock at the start, or the newest time in the store
// (time.go) if that is later, advanced by the monotonic clock.
// It follows the system clock forward by steps of more than a second (a suspended machine, a
// late NTP step), but never backward, so no lease that has expired becomes valid again.
type clock struct {
	start  time.Time     // has a monotonic reading
	offset time.Duration // sum of the steps of the system clock that were followed
	behind time.Duration // by how much the system clock was behind at the last reading; below 0: it was ahead
}

// newClock returns a clock that begins at the system clock's time or at least, in Unix
// nanoseconds, whichever is greater.
func newClock(least int64) *clock {
	now := time.Now()
	return &clock{start: now, offset: max(time.Duration(least-now.UnixNano()), 0)}
}

// now returns the current time for a turn.
func (c *clock) now() time.Time {
	const step = time.Second
	t := time.Now()
	elapsed := t.Sub(c.start)
	at := c.start.Add(elapsed + c.offset)
	c.behind = at.Round(0).Sub(t.Round(0))
	if ahead := -c.behind; ahead > step {
		c.offset += ahead
		at = at.Add(ahead)
		c.behind = 0
	}
	return at
}

var _ Store = (*storage.Memory)(nil)

// watchClock logs when the system clock falls behind the time of the engine, or catches up.
func (e *Engine) watchClock(behind time.Duration) {
	c := e.core
	before := time.Duration(c.time.behind)
	c.time.setBehind(behind)
	now := time.Duration(c.time.behind)
	switch {
	case now == 0 && before != 0:
		c.cfg.Log.Info().Msg("the system clock has caught up with the broker")
	case now > before+behindMin || now < before-behindMin:
		c.cfg.Log.Warn().Dur("behind_ms", now).Time("reached", unix(c.now)).
			Msg("the system clock was set back; leases, delays and times to live keep their duration, recurring messages and refills wait for the clock")
	}
}
