package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/yield"
	"github.com/faisca/fila/storage"
)

// Engine runs a core: it is the only file with goroutines, locks and a clock.
//
//	connections ──Submit──► inbox ──► loop ──work──► committer ──► done, wake
//	                          ▲         one turn         │
//	                          └── reads, counts, mended ─┘ readers
//
// The loop adds turns to the open batch while the committer writes the one
// before; when the committer is free it gets the batch, as soon as those have gone
// first who are ready to add to it (loop_company.go). So a batch is as large as the
// disk is slow, and a lone task does not wait for company.
//
// The order of events of one task: 1. it is in the inbox; 2. a turn applies it,
// its writes are in the open batch; 3. the loop cuts the batch; 4. the committer
// writes it; 5. only then is the task done and its client woken. A lease of what
// is in the store already is done after 2, see told.go.
type Engine struct {
	cfg   Config
	store Store
	core  *core
	start time.Time // has a monotonic part
	ready chan struct{}
	done  chan struct{}

	mu       sync.Mutex
	room     sync.Cond // the inbox has room again
	inbox    []*Task
	bytes    int // that its tasks have announced, and those of the core's backlog
	backlog  int // tasks that the core has taken and not come to
	stopping bool
	stopped  bool
	// What the committer tells the loop:
	committed uint64
	failed    error // of the last commit; the loop recovers
	busy      bool  // a batch is with the committer
	released  int   // tasks of the last commit
	spare     *storage.Batch

	stalled     bool          // the commit under way has taken long, see stall.go
	commitBegan time.Duration // when it began; the loop's
	flight      *work         // what is committed; the loop's, and its tasks the lock's

	snapshot   atomic.Pointer[Snapshot]
	durable    atomic.Uint64 // all batches up to this one are in the store
	dispatcher eventDispatcher

	wake       chan struct{} // capacity 1: there is something to look at
	work       chan *work    // to the committer
	background sync.WaitGroup
}

// New makes an engine over a store, which it must have for itself. Run starts it.
func New(cfg Config, store Store) (*Engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, store: store, core: newCore(cfg, store), start: time.Now(),
		ready: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1), work: make(chan *work, 1),
	}
	e.room.L = &e.mu
	e.dispatcher.news.L = &e.dispatcher.mu
	e.snapshot.Store(e.core.out.snapshot)
	return e, nil
}

// Ready is closed when the engine has recovered and takes tasks.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Elapsed is the engine's stopwatch: it runs since New and never jumps.
func (e *Engine) Elapsed() time.Duration { return time.Since(e.start) }

// Snapshot returns the hooks and the configuration in force.
func (e *Engine) Snapshot() *Snapshot { return e.snapshot.Load() }

// Submit hands tasks to the loop; tasks of one client are applied in the order
// of its calls. It waits while the inbox is full. The slice is the caller's
// again when it returns. After Stop the tasks end with ErrStopped.
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
		for _, t := range tasks {
			t.err = ErrStopped
		}
		e.release(tasks)
		return
	}
	e.inbox = append(e.inbox, tasks...)
	e.bytes += bytes
	e.mu.Unlock()
	e.wakeLoop()
}

// Leave says that a client has gone: its wait for messages ends, and what it had
// sent behind that is not executed. What has begun is finished.
func (e *Engine) Leave(c *Client) { e.post(leave{c}) }

// tell puts a task of the engine's own into the inbox. It never waits: what
// the engine has to know must not depend on the room that clients leave.
func (e *Engine) post(call Call) {
	e.mu.Lock()
	if !e.stopped {
		e.inbox = append(e.inbox, &Task{Call: call})
	}
	e.mu.Unlock()
	e.wakeLoop()
}

// Stop ends the engine: no new tasks, those that wait end empty-handed, all
// others are answered after their commit. Run returns when that is done.
func (e *Engine) Stop() {
	e.mu.Lock()
	e.stopping = true
	e.room.Broadcast()
	e.mu.Unlock()
	e.wakeLoop()
}

func (e *Engine) wakeLoop() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Run recovers and then runs the loop until Stop or until ctx ends. It must be
// called once. The store stays open.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	c := e.core
	poll, err := yield.NewPoll()
	if err != nil {
		e.refuseAll()
		return err
	}
	defer poll.Close()
	if err := c.recover(); err != nil {
		e.refuseAll()
		return err
	}
	if err := c.start(); err != nil {
		if !errors.Is(err, storage.ErrReopen) {
			c.ops.census.close()
			e.refuseAll()
			return err
		}
		// The store could be opened for reading only: on a full disk that is better than
		// not at all, and mend goes on from here.
		e.cfg.Log.Error().Err(err).Msg("the store cannot write, writes are refused until it can")
		c.health.failed = err
	}
	e.checkFull()
	stop := context.AfterFunc(ctx, e.Stop)
	defer stop()
	e.background.Go(e.commit)
	e.background.Go(e.dispatcher.run)
	e.count()
	e.snapshot.Store(c.out.snapshot)
	close(e.ready)
	e.loop(&linger{poll: poll})
	c.ops.census.stop()
	close(e.work)
	e.background.Wait()
	e.refuseAll()
	return nil
}

// loop is the engine's one thread.
func (e *Engine) loop(batchLinger *linger) {
	c := e.core
	clock := newClock()
	alarm := &alarm{Timer: time.NewTimer(time.Hour)}
	defer alarm.Stop()
	var spare, early []*Task
	repairAt := time.Time{}
	for {
		tasks, state := e.collect(spare)
		now := clock.now()
		if state.failed != nil {
			e.failOver(state.failed)
			repairAt = now.Add(e.cfg.MendInterval)
		} else {
			c.out.committed = state.committed
		}
		if c.health.failed != nil && !now.Before(repairAt) {
			e.reopen()
			repairAt = now.Add(e.cfg.MendInterval)
		} else if c.health.full != nil && !now.Before(repairAt) {
			e.relieve()
			repairAt = now.Add(e.cfg.MendInterval)
		}
		began := e.Elapsed()
		c.turn(now, tasks)
		e.observe(ActivityTurn, began)
		if c.out.snapshot != e.snapshot.Load() { // before the replies that tell of it leave
			e.snapshot.Store(c.out.snapshot)
		}
		early = c.takeEarly(early[:0])
		if e.stalled {
			e.answerReadOnly(e.flight)
			early = append(early, c.takeEarly(nil)...)
		}
		e.release(early)
		clear(early)
		clear(tasks)
		spare = tasks[:0]
		if state.stopping {
			c.drain()
		}
		if !state.busy && !state.stopping && c.out.sync && e.cfg.Sync == SyncAlways && c.out.batch.Size() < e.cfg.BatchBytes && batchLinger.wait(now, len(c.out.released), state.released) {
			continue
		}
		if !state.busy {
			batchLinger.over()
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
		e.sleep(alarm, clock, state.busy, repairAt)
	}
}

// state is what the committer has told since the last turn.
type state struct {
	committed uint64
	failed    error
	busy      bool
	released  int
	stopping  bool
}

// collect takes the inbox, unless the open batch is full already.
func (e *Engine) collect(spare []*Task) ([]*Task, state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := state{committed: e.committed, failed: e.failed, busy: e.busy, released: e.released, stopping: e.stopping}
	if s.busy {
		s.failed = nil // not before the committer has let go of what it holds
	}
	e.stalled = e.stalling(s.busy) <= 0
	if s.busy && e.core.out.batch.Size() >= e.cfg.BatchBytes {
		if e.stalled {
			e.room.Broadcast() // for commands that only look
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

// alarm wakes the loop. It is set anew only to ring earlier: one that rings too
// early costs a turn in which nothing is due, but each change of a timer may wake
// a thread.
type alarm struct {
	*time.Timer
	at time.Duration // on the engine's stopwatch; 0: it has rung
}

// pause waits for something to do.
func (e *Engine) sleep(alarm *alarm, clock *clock, busy bool, repairAt time.Time) {
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
		return
	}
	if by := e.Elapsed() + wait; alarm.at == 0 || by < alarm.at {
		alarm.at = by
		alarm.Reset(wait)
	}
	select {
	case <-e.wake:
	case <-alarm.C:
		alarm.at = 0
	}
}

func (e *Engine) startCommit(w *work) {
	e.commitBegan, e.flight = e.Elapsed(), w
	e.mu.Lock()
	e.busy = true
	e.mu.Unlock()
	e.work <- w
}

// wallNanos is the time for hooks: of their statistics and their breaker.
func wallNanos() int64 { return time.Now().UnixNano() }

// clock is the engine's time: the system's at start, then monotonic. It follows
// the system's clock forward (a suspended machine, a late NTP step) but never
// goes back, and so neither shortens nor undoes a lease.
type clock struct {
	start  time.Time // has a monotonic part
	offset time.Duration
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) now() time.Time {
	const step = time.Second
	t := time.Now()
	elapsed := t.Sub(c.start)
	at := c.start.Add(elapsed + c.offset)
	if ahead := t.Round(0).Sub(at.Round(0)); ahead > step {
		c.offset += ahead
		at = at.Add(ahead)
	}
	return at
}

var _ Store = (*storage.Memory)(nil)

// eventDispatcher hands events to the listener on a goroutine of its own, so that many
// who listen hold up neither the committer nor the loop.
type eventDispatcher struct {
	listen func([]Event) // set before run

	mu    sync.Mutex
	news  sync.Cond // something was taken, or ended
	queue []Event
	lost  uint64
	ended bool
}

// Listen sets who is told of events: to is called on one goroutine, with events
// in the order in which they became durable. It must be called before Run.
func (e *Engine) Listen(to func([]Event)) { e.dispatcher.listen = to }

// Want says which kinds of events the listener is told of, in place of those it
// has named before. It holds for everything that is submitted after it.
func (e *Engine) Want(kinds EventKind) { e.post(listenFor{kinds}) }

// HookTurned says that the breaker of a hook has opened or closed. It never
// waits.
func (e *Engine) HookTurned(h hook.Hook, s hook.BreakerState) { e.post(breakerChange{h, s}) }

// take adds the events of a batch that is committed. It never waits: what is too
// much is counted and not told.
func (t *eventDispatcher) take(events []Event) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	room := eventsMax - len(t.queue)
	t.lost += uint64(max(len(events)-room, 0))
	t.queue = append(t.queue, events[:min(len(events), room)]...)
	t.mu.Unlock()
	t.news.Signal()
}

// run tells of events until end.
func (t *eventDispatcher) run() {
	var spare []Event
	for {
		t.mu.Lock()
		for len(t.queue) == 0 && !t.ended {
			t.news.Wait()
		}
		events, lost := t.queue, t.lost
		t.queue, t.lost = spare[:0], 0
		t.mu.Unlock()
		if len(events) == 0 {
			return
		}
		if lost > 0 {
			events = append(events, Event{Kind: EventLost, Time: events[len(events)-1].Time, Count: lost})
		}
		if t.listen != nil {
			t.listen(events)
		}
		clear(events)
		if spare = events; cap(spare) > 1024 {
			spare = nil
		}
	}
}

// end makes run return when it has told what it has.
func (t *eventDispatcher) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.news.Signal()
}
