package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

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

	stalled bool          // the commit under way has taken long, see stall.go
	handed  time.Duration // when it began; the loop's
	flight  *work         // what is committed; the loop's, and its tasks the lock's

	snapshot   atomic.Pointer[Snapshot]
	durable    atomic.Uint64 // all batches up to this one are in the store
	dispatcher eventDispatcher

	wake chan struct{} // capacity 1: there is something to look at
	work chan *work    // to the committer
	side sync.WaitGroup
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
	e.poke()
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
	e.poke()
}

// Stop ends the engine: no new tasks, those that wait end empty-handed, all
// others are answered after their commit. Run returns when that is done.
func (e *Engine) Stop() {
	e.mu.Lock()
	e.stopping = true
	e.room.Broadcast()
	e.mu.Unlock()
	e.poke()
}

func (e *Engine) poke() {
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
	e.noteFull()
	stop := context.AfterFunc(ctx, e.Stop)
	defer stop()
	e.side.Go(e.commit)
	e.side.Go(e.dispatcher.run)
	e.count()
	e.snapshot.Store(c.out.snapshot)
	close(e.ready)
	e.loop(&linger{poll: poll})
	c.ops.census.stop()
	close(e.work)
	e.side.Wait()
	e.refuseAll()
	return nil
}

// loop is the engine's one thread.
func (e *Engine) loop(company *linger) {
	c := e.core
	clock := newClock()
	alarm := &alarm{Timer: time.NewTimer(time.Hour)}
	defer alarm.Stop()
	var spare, told []*Task
	mendAt := time.Time{}
	for {
		tasks, state := e.collect(spare)
		now := clock.now()
		if state.failed != nil {
			e.failOver(state.failed)
			mendAt = now.Add(e.cfg.MendInterval)
		} else {
			c.out.committed = state.committed
		}
		if c.health.failed != nil && !now.Before(mendAt) {
			e.reopen()
			mendAt = now.Add(e.cfg.MendInterval)
		} else if c.health.full != nil && !now.Before(mendAt) {
			e.relieve()
			mendAt = now.Add(e.cfg.MendInterval)
		}
		began := e.Elapsed()
		c.turn(now, tasks)
		e.observe(ActivityTurn, began)
		if c.out.snapshot != e.snapshot.Load() { // before the replies that tell of it leave
			e.snapshot.Store(c.out.snapshot)
		}
		told = c.takeEarly(told[:0])
		if e.stalled {
			e.answerReadOnly(e.flight)
			told = append(told, c.takeEarly(nil)...)
		}
		e.release(told)
		clear(told)
		clear(tasks)
		spare = tasks[:0]
		if state.stopping {
			c.drain()
		}
		if !state.busy && !state.stopping && c.out.sync && e.cfg.Sync == SyncAlways && c.out.batch.Size() < e.cfg.BatchBytes && company.wait(now, len(c.out.released), state.released) {
			continue
		}
		if !state.busy {
			company.over()
			if w := c.cut(); w != nil {
				e.hand(w)
				state.busy = true
			} else if state.stopping && len(tasks) == 0 && !c.hasLeftOver() {
				if e.close() {
					return
				}
				continue
			}
		}
		e.pause(alarm, clock, state.busy, mendAt)
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
func (e *Engine) pause(alarm *alarm, clock *clock, busy bool, mendAt time.Time) {
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
		wait = min(wait, mendAt.Sub(now))
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

func (e *Engine) hand(w *work) {
	e.handed, e.flight = e.Elapsed(), w
	e.mu.Lock()
	e.busy = true
	e.mu.Unlock()
	e.work <- w
}

// commit is the committer: it writes batches in order and releases their tasks.
// After a failure it refuses what it gets until the loop has recovered.
func (e *Engine) commit() {
	defer e.dispatcher.end()
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
			if err := e.store.Sync(); err != nil {
				e.postFailure(err)
				e.poke()
			}
		}
	}
}

func (e *Engine) commitWork(w *work) {
	e.mu.Lock()
	err := e.failed
	e.mu.Unlock()
	if err == nil && w.batch != nil {
		began := e.Elapsed()
		err = e.store.Commit(w.batch, w.sync && e.cfg.Sync == SyncAlways)
		e.observe(ActivityCommit, began)
	}
	e.mu.Lock()
	tasks := w.tasks // of those that only look some may have been answered
	w.tasks = nil
	e.mu.Unlock()
	if err != nil {
		// What these tasks did is not on disk, and what later ones do may depend
		// on it: the loop starts anew from what is.
		refuse(tasks, err)
		e.post(lost{w.beside})
		e.postFailure(err)
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
	e.poke() // the loop cuts the next batch while this one's clients are woken
	e.release(tasks)
	if err == nil {
		e.dispatcher.take(w.events)
		e.read(w)
	}
}

// observe tells how long something took that began at a reading of the stopwatch.
func (e *Engine) observe(what Activity, began time.Duration) {
	if e.cfg.Observe != nil {
		e.cfg.Observe(what, e.Elapsed()-began)
	}
}

func (e *Engine) postFailure(err error) {
	e.mu.Lock()
	e.failed = err
	e.mu.Unlock()
}

// release makes results public and wakes those who wait for them.
func (e *Engine) release(tasks []*Task) {
	var last *Client
	now := e.Elapsed()
	for _, t := range tasks {
		cl := t.Client
		if undo := t.conclude(now); undo != nil {
			e.post(undo)
		}
		// Tasks of one client usually stand together: one wake for all of them.
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

// read does what a work wants read. The reads see its commit.
func (e *Engine) read(w *work) {
	var windows, others []job
	var verdicts map[string][]job // by queue
	for _, r := range w.beside {
		switch r := r.(type) { // scripts may take long, and so may other things: nobody else waits for them
		case *cronRound: // one at a time
			e.side.Go(func() { e.runJob(r) })
		case *verdict:
			if verdicts == nil {
				verdicts = map[string][]job{}
			}
			verdicts[r.msg.Queue] = append(verdicts[r.msg.Queue], r)
		case *read: // whole queues may wait for it
			windows = append(windows, r)
		case *lookup:
			if r.work >= lookupLong {
				e.side.Go(func() { e.runJob(r) })
			} else {
				others = append(others, r)
			}
		default:
			others = append(others, r)
		}
	}
	for _, all := range verdicts {
		e.side.Go(func() { e.runJob(all...) })
	}
	for _, all := range [][]job{windows, others} {
		if len(all) > 0 {
			e.side.Go(func() { e.runJob(all...) })
		}
	}
}

func (e *Engine) runJob(all ...job) {
	for _, r := range all {
		r.do(e.store)
		e.post(r)
	}
}

// count starts counting what the store holds.
func (e *Engine) count() {
	s := e.core.ops.census
	e.side.Go(func() { s.take(func(p *censusPart) { e.post(p) }) })
}

// failOver drops the memory after a failed commit and recovers from what is on
// disk. Until mend succeeds, writes are refused and everything else goes on.
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

// recoverInPlace rebuilds the memory; if the store cannot even be read, every
// task is refused until it can.
func (e *Engine) recoverInPlace() {
	c := e.core
	c.ops.census.stop()
	c.health.counters.recoveries++
	if err := c.recover(); err != nil {
		e.cfg.Log.Error().Err(err).Msg("recovery failed, it is tried again")
		c.health.failed = err
		return
	}
	e.count()
}

// mend tries to make the store writable again.
func (e *Engine) reopen() {
	c := e.core
	if p, ok := e.store.(prober); ok { // until it has a chance, reads and counts go on
		if err := p.Probe(); err != nil {
			c.health.failed = err
			return
		}
	}
	c.ops.census.stop()
	if err := e.store.Reopen(); err != nil {
		c.health.failed = err
		if c.ops.census != nil { // its counts are lost, and the store may be readable
			e.recoverInPlace()
		}
		return
	}
	// The failed batch may be on disk after all: memory must know.
	e.recoverInPlace()
	if err := c.start(); err != nil {
		c.health.failed = err
		return
	}
	c.health.failed = nil
	e.noteFull()
	if c.health.full == nil {
		e.cfg.Log.Info().Msg("the store takes writes again")
	}
}

// noteFull looks whether the store is full, and says so.
func (e *Engine) noteFull() {
	c := e.core
	if c.health.failed != nil {
		return
	}
	if c.refreshFull(); c.health.full != nil {
		e.cfg.Log.Error().Err(c.health.full).Msg("the store takes only what frees space until there is some: FILA.ACK, FILA.CANCEL, FILA.PURGE, FILA.QUEUE DELETE")
	}
}

// close marks the engine as stopped unless something has arrived meanwhile.
func (e *Engine) close() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.inbox) > 0 || e.failed != nil {
		return false
	}
	e.stopped = true
	return true
}

// refuseAll ends what is still in the inbox when the engine does not run.
func (e *Engine) refuseAll() {
	e.mu.Lock()
	e.stopping, e.stopped = true, true
	tasks := e.inbox
	e.inbox = nil
	e.room.Broadcast()
	e.mu.Unlock()
	for _, t := range tasks {
		t.err = ErrStopped
	}
	e.release(tasks)
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
