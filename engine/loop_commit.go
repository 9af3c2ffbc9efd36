package engine

import (
	"time"

	"github.com/faisca/fila/internal/yield"
)

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
				e.wakeLoop()
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
		e.post(lost{w.jobs})
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
	e.wakeLoop() // the loop cuts the next batch while this one's clients are woken
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
	for _, r := range w.jobs {
		switch r := r.(type) { // scripts may take long, and so may other things: nobody else waits for them
		case *cronRound: // one at a time
			e.background.Go(func() { e.runJob(r) })
		case *verdict:
			if verdicts == nil {
				verdicts = map[string][]job{}
			}
			verdicts[r.msg.Queue] = append(verdicts[r.msg.Queue], r)
		case *read: // whole queues may wait for it
			windows = append(windows, r)
		case *lookup:
			if r.work >= lookupLong {
				e.background.Go(func() { e.runJob(r) })
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
	for _, all := range [][]job{windows, others} {
		if len(all) > 0 {
			e.background.Go(func() { e.runJob(all...) })
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
	e.background.Go(func() { s.take(func(p *censusPart) { e.post(p) }) })
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
	e.checkFull()
	if c.health.full == nil {
		e.cfg.Log.Info().Msg("the store takes writes again")
	}
}

// noteFull looks whether the store is full, and says so.
func (e *Engine) checkFull() {
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

// company decides whether an open batch waits for more tasks though the committer is free.
//
// Those whose tasks the last commit has released are about to send their next ones, but
// need the processor for it: a batch that is cut at once has the few of them that were
// first, and all others wait for two commits instead of one. So everybody who is ready
// goes first, as long as that brings something. It never waits for somebody who may come.
type linger struct {
	poll  *yield.Poll
	since time.Time // the committer is free, and there is a batch; zero: it is not so
	n     int       // tasks in the batch when others went first
	empty int       // how often that brought nothing
}

const (
	// lingerEmptyMax is how often in a row it may bring nothing: a client on another
	// processor may just have read its reply.
	lingerEmptyMax = 2
	// lingerMax is how long a batch waits at most, which is as long as a fast disk
	// takes for a commit.
	lingerMax = 300 * time.Microsecond
)

// wait lets others go first, and reports whether it did. n is how many tasks the batch
// has, released how many the last commit had: one alone has nobody to wait for.
func (c *linger) wait(now time.Time, n, released int) bool {
	if n == 0 || released < 2 {
		return false
	}
	if c.since.IsZero() {
		c.since, c.n, c.empty = now, n, -1
	}
	if c.empty++; n > c.n {
		c.n, c.empty = n, 0
	}
	if c.empty >= lingerEmptyMax || now.Sub(c.since) >= lingerMax {
		return false
	}
	c.poll.Wait()
	return true
}

// over is called when a batch is cut.
func (c *linger) over() { c.since = time.Time{} }
