// Package loop runs an engine: it has the goroutines, the inbox and the clock that a turn must not have.
//
//	connections ──Submit──► inbox ──► loop ──work──► committer ──► tasks done, clients woken
//	                          ▲      (turns)             │
//	                          └──── results of jobs ─────┘ off-loop jobs
//
// The loop owns the [engine.Machine]: no other goroutine touches it. While the committer writes one
// batch, further turns fill the next one (group commit): the slower the disk, the larger the
// batches. When the committer is free, the loop cuts the open batch, after a short linger
// where other clients are about to submit (Machine.Linger); a single client never waits for others.
//
// The path of a task:
//
//  1. Submit appends it to the inbox.
//  2. A turn applies it; its writes are in the open batch.
//  3. The loop cuts the batch and hands it to the committer.
//  4. The committer writes the batch.
//  5. The task is done and its client is woken. Only an early reply is done after step 2.
package loop

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/internal/mailbox"
	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/internal/yield"
)

// Engine is an engine that runs. What connections do without the loop is in its Preparer.
type Engine struct {
	*engine.Preparer

	cfg     engine.Config
	store   engine.Store
	machine *engine.Machine
	start   time.Time     // origin of Elapsed; has a monotonic reading
	ready   chan struct{} // closed when the engine takes tasks
	done    chan struct{} // closed when Run has returned

	mu       sync.Mutex
	room     sync.Cond      // signalled when the inbox may have room
	inbox    []*engine.Task // bounded by Config.InboxTasks and Config.InboxBytes, together with the backlog
	bytes    int            // input of the tasks in the inbox and in the backlog
	backlog  int            // number of tasks that the machine has taken and not applied yet
	stopping bool           // Stop was called: Submit refuses tasks
	halted   error          // why Halt was called; nil: it was not
	stopped  bool           // the loop has ended: nothing takes tasks out of the inbox

	// Results of the committer for the loop, guarded by mu:
	returned *engine.Work // the last work, until the loop has taken it back
	failed   error        // of the last commit, until the loop has
	busy     bool         // a batch is with the committer
	released int          // number of tasks of the last commit

	stalled bool // the commit under way has taken stallAfter, see stall.go; written by the loop, guarded by mu

	// Owned by the loop:
	commitBegan time.Duration // reading of Elapsed when it was handed over
	inFlight    *engine.Work  // with the committer; mu guards its tasks
	held        int64         // bytes that Config.Held was last called with

	readOnly    atomic.Bool                // the store refuses writes and the loop knows, for the committer
	listen      func([]engine.Event)       // set before Run
	events      *mailbox.Box[engine.Event] // of committed batches, for the listener
	unconfirmed *mailbox.Box[*engine.Task] // concluded, waiting for Config.Confirm; bounded by what connections have unanswered
	batches     histogram.Shared           // tasks of each commit, a second for each

	wake       chan struct{}     // capacity 1: the loop has something to do
	work       chan *engine.Work // to the committer; at most one is under way
	searching  chan struct{}     // capacity 1: has what the search that runs has put in
	background sync.WaitGroup    // committer, confirmer, dispatcher and off-loop jobs
}

// New returns an engine over a store that it must have for itself. It checks the
// configuration and starts nothing; Run does.
func New(cfg engine.Config, store engine.Store) (*Engine, error) {
	machine, err := engine.NewMachine(cfg, store, wallNanos)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		Preparer: machine.Preparer,
		cfg:      cfg, store: store, machine: machine, start: time.Now(),
		events: mailbox.New[engine.Event](eventsMax), unconfirmed: mailbox.New[*engine.Task](0),
		ready: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1), work: make(chan *engine.Work, 1),
		searching: make(chan struct{}, 1),
	}
	if !cfg.Start.IsZero() {
		e.start = cfg.Start
	}
	e.room.L = &e.mu
	return e, nil
}

// Ready is closed when the engine has recovered. Tasks submitted before that wait in the
// inbox. It stays open if Run fails.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Elapsed returns the time since Config.Start, from the monotonic clock.
func (e *Engine) Elapsed() time.Duration { return time.Since(e.start) }

// Figures are what waits for the loop, and what its goroutines have counted since the start.
type Figures struct {
	InboxTasks, InboxBytes int
	EventsLost             uint64
	BatchTasks             histogram.Histogram // tasks of each commit: n of them count as n seconds
}

// Figures returns figures that no turn is needed for. Any goroutine may call it.
func (e *Engine) Figures() (f Figures) {
	e.mu.Lock()
	f.InboxTasks, f.InboxBytes = len(e.inbox)+e.backlog, e.bytes
	e.mu.Unlock()
	f.EventsLost = e.events.Dropped()
	e.batches.AddTo(&f.BatchTasks)
	return f
}

// Submit appends tasks to the inbox. Tasks of one client are applied in the order of its
// calls. It blocks while the inbox is full (Config.InboxTasks, Config.InboxBytes), except for
// read-only tasks while a commit stalls; tasks larger than the bounds are accepted when the
// inbox is empty. The slice belongs to the caller again when Submit returns. After Stop the
// tasks end with ErrStopped.
func (e *Engine) Submit(tasks []*engine.Task) {
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
// has what they have written, unless they are refused. It returns ErrClientGone if gone is closed before.
func (e *Engine) Settle(cl *engine.Client, gone <-chan struct{}) error {
	public := make(chan struct{})
	e.Submit([]*engine.Task{engine.NewSettling(cl, func() { close(public) })})
	select {
	case <-public:
		return nil
	case <-gone:
		return engine.ErrClientGone
	}
}

// Leave reports that a client has disconnected. Its wait for messages ends, and its tasks
// queued behind that wait are not executed, as in Redis. A command that has begun is
// finished. It does not block.
func (e *Engine) Leave(c *engine.Client) { e.post(engine.Leave{Client: c}) }

// Listen sets the listener, which is called on one goroutine with events in the order in
// which they became durable. The slice is valid during the call. It must be called before Run.
func (e *Engine) Listen(to func([]engine.Event)) { e.listen = to }

// Want sets the kinds of events that the listener receives, in place of earlier ones. It
// applies to everything that is submitted after it. It does not block.
func (e *Engine) Want(kinds engine.EventKind) { e.post(engine.Want{Kinds: kinds}) }

// BreakerChanged reports that the circuit breaker of a hook has a new state. It does not block.
func (e *Engine) BreakerChanged(h hook.Hook, s hook.BreakerState) {
	e.post(engine.BreakerChanged{Hook: h, State: s})
}

// post appends a task of the engine to the inbox. It never blocks: results of off-loop jobs
// must not depend on the room that clients leave in the inbox. Their number is bounded by
// the jobs that turns start.
func (e *Engine) post(call engine.Call) {
	e.mu.Lock()
	if !e.stopped {
		e.inbox = append(e.inbox, &engine.Task{Call: call})
	}
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
	batchLinger, err := yield.NewLinger(tuning.Enabled)
	if err != nil {
		e.refuseAll()
		return err
	}
	defer batchLinger.Close()
	census, err := e.machine.Start()
	if err != nil {
		e.haltIfDeposed(err)
		e.refuseAll()
		return err
	}
	stop := context.AfterFunc(ctx, e.Stop)
	defer stop()
	e.background.Go(e.commit)
	e.background.Go(e.dispatchEvents)
	if e.cfg.Confirm != nil {
		e.background.Go(e.confirm)
	}
	e.inBackground(census)
	close(e.ready)
	e.loop(batchLinger)
	e.machine.Close()
	close(e.work)
	e.background.Wait()
	e.refuseAll()
	return e.haltedBy()
}

// inBackground runs what a machine wants done off the loop.
func (e *Engine) inBackground(do engine.Background) {
	if do != nil {
		e.background.Go(func() { do(e.post) })
	}
}

// loop runs turns until the engine has stopped. One iteration:
//
//  1. collect takes the tasks and the committer's results. After Halt, that is all.
//  2. After a failed commit, the machine fails over. While the store is read-only or full, it is asked to
//     repair that every Config.RetryInterval.
//  3. The turn.
//  4. Early replies leave.
//  5. If the committer is free, the open batch is cut and handed over, possibly after a
//     linger.
//  6. sleep waits for the next task, timer or result.
func (e *Engine) loop(batchLinger *yield.Linger) {
	m := e.machine
	clock := newClock(m.Now())
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	defer e.reportHeld(0, 1)
	var spare, early []*engine.Task
	repairAt := time.Time{}
	for {
		tasks, state := e.collect(spare)
		if state.halted {
			e.cease(tasks)
			return
		}
		now := clock.now()
		if e.afterCommit(state, !now.Before(repairAt)) {
			repairAt = now.Add(e.cfg.RetryInterval)
		}
		e.readOnly.Store(m.ReadOnly())
		began := e.Elapsed()
		m.Turn(now, clock.behind, tasks)
		e.observe(engine.ActivityTurn, began)
		e.reportHeld(m.Held(), heldStep)
		early = m.TakeEarly(early[:0])
		if e.stalled {
			early = e.takeAnswered(early)
		}
		e.answerEarly(early)
		clear(early)
		clear(tasks)
		spare = tasks[:0]
		if state.stopping {
			m.Drain()
		}
		if !state.busy && !state.stopping {
			if answers, may := m.Linger(); may && batchLinger.Wait(now, answers, state.released) {
				continue
			}
		}
		if !state.busy {
			batchLinger.Over()
			if w := m.Cut(); w != nil {
				e.startCommit(w)
				state.busy = true
			} else if state.stopping && len(tasks) == 0 && !m.Unfinished() {
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

// afterCommit takes over how the last commit has ended, and repairs the store if it is impaired and that is due. It reports
// whether the next repair is due an interval later.
func (e *Engine) afterCommit(s state, due bool) (tried bool) {
	m := e.machine
	if s.failed != nil {
		e.inBackground(m.CommitFailed(s.returned, s.failed))
		return true
	}
	if s.returned != nil {
		m.Committed(s.returned)
	}
	if !due || !m.Impaired() {
		return false
	}
	do, err := m.Repair()
	e.inBackground(do)
	e.haltIfDeposed(err)
	return true
}

// state is what the loop reads under the lock at the beginning of an iteration; see Engine
// for its fields.
type state struct {
	returned *engine.Work
	failed   error
	busy     bool
	released int
	stopping bool
	halted   bool
}

// collect takes the tasks of the inbox and leaves spare, an empty slice, in its place. While
// the open batch is full and the committer is busy it takes none, so that the inbox fills
// and Submit blocks: this is the engine's backpressure. If that commit has stalled, it takes
// read-only tasks.
func (e *Engine) collect(spare []*engine.Task) ([]*engine.Task, state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := state{busy: e.busy, released: e.released, stopping: e.stopping, halted: e.halted != nil}
	if !s.busy { // else a failure waits: recover only once the committer has no batch
		s.returned, s.failed, e.returned, e.failed = e.returned, e.failed, nil, nil
	}
	e.stalled = e.stalling(s.busy) <= 0
	if s.busy && e.machine.Full() {
		if e.stalled {
			e.room.Broadcast() // Submit accepts read-only tasks now
			return e.takeReadOnly(spare), s
		}
		return spare, s
	}
	tasks := e.inbox
	e.inbox = spare
	e.backlog, e.bytes = e.machine.Backlog()
	e.room.Broadcast()
	return tasks, s
}

// sleep returns when there may be something to do: a wake-up, a timer of the machine, a commit
// that stalls, or the next attempt to repair the store. It reports whether it has
// waited at all.
//
// The alarm is set anew each time, also to a later one: to wake for a timer that has gone, such as that
// of a lease that was acked, costs a thousand times as much.
//
// Go runs a goroutine next that another has woken, before those that are ready already. So the loop
// lets these go first after a wake-up: what they submit shares a turn and a commit with what woke it.
func (e *Engine) sleep(alarm *time.Timer, clock *clock, busy bool, repairAt time.Time) (slept bool) {
	at := e.machine.Next(busy)
	now := clock.now()
	wait := time.Hour
	if stall := e.stalling(busy); stall > 0 {
		wait = min(wait, stall)
	}
	if at > 0 {
		wait = min(wait, time.Unix(0, at).Sub(now))
	}
	if e.machine.Impaired() {
		wait = min(wait, repairAt.Sub(now))
	}
	if wait <= 0 {
		return false
	}
	alarm.Reset(wait)
	select {
	case <-e.wake:
		runtime.Gosched()
	case <-alarm.C:
	}
	return true
}

// startCommit hands a work to the committer. It does not block, since there is only one work
// at a time.
func (e *Engine) startCommit(w *engine.Work) {
	e.commitBegan, e.inFlight = e.Elapsed(), w
	e.mu.Lock()
	e.busy = true
	e.mu.Unlock()
	e.work <- w
}

// heldStep is how many bytes what is held has changed by, at least, when Config.Held is called.
const heldStep = 8 << 20

// reportHeld calls Config.Held if what is held differs by step bytes from what it was told last.
func (e *Engine) reportHeld(bytes, step int64) {
	if e.cfg.Held != nil && max(bytes-e.held, e.held-bytes) >= step {
		e.held = bytes
		e.cfg.Held(bytes)
	}
}

// answerEarly releases early replies, at once or when they are confirmed.
func (e *Engine) answerEarly(tasks []*engine.Task) {
	if e.cfg.Confirm == nil {
		e.release(tasks)
	} else {
		e.unconfirmed.Put(tasks)
	}
}
