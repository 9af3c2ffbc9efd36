package engine

import (
	"fmt"
	"slices"

	"github.com/faisca/fila/engine/backups"
	"github.com/faisca/fila/engine/census"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/storage"
)

// operations is the component of long-running operations: the census after a start,
// redrives, and backups.
type operations struct {
	census    *census.Census // under way; nil: done, all counts are exact
	uncounted []*Task        // parked until the end of the census
	redrives  []*redrive     // under way
	backups   backups.State

	unchecked
}

// reset forgets what a recovery interrupts. A backup continues: it reads the store, not the
// memory.
func (o *operations) reset() { o.census, o.uncounted, o.redrives = nil, nil, nil }

// next returns when a redrive may continue or its client has to be answered.
func (o *operations) next(*core) int64 {
	at := int64(never)
	for _, j := range o.redrives {
		if j.page == nil {
			at = min(at, j.NextAt)
		}
		at = min(at, j.replyAt())
	}
	return at
}

// expire continues redrives whose rate allows it, and answers clients of those that take
// long.
func (o *operations) expire(c *core) {
	for _, j := range slices.Clone(o.redrives) {
		if j.page == nil && j.NextAt <= c.now {
			c.advance(j)
		}
		if j.replyAt() <= c.now {
			j.task.resume(c)
		}
	}
}

// openCensus begins the census of the store as it is now, before the first turn after a recovery.
func (c *core) openCensus() {
	c.ops.census = census.Open(c.store.Scan(storage.Messages, nil, nil), c.store.Scan(storage.Scheduled, nil, nil))
}

// takeCensus counts, off the loop, and posts each part.
func takeCensus(of *census.Census, post func(Call)) {
	of.Take(func(p *census.Part) { post(counted{of, p}) })
}

// counted is a part of the census (package census), applied as a task.
type counted struct {
	of   *census.Census
	part *census.Part
}

// Apply adds the counts of a part to those in memory, which makes them exact. What needs exact counts waits, see
// AwaitCounts. After an error counts stay estimates until the next start. A part of an earlier recovery's
// census is ignored.
func (n counted) Apply(tx *Tx) error {
	c, p := tx.core, n.part
	if n.of != c.ops.census || n.of.Stopped() {
		return nil
	}
	if p.Err != nil {
		c.cfg.Log.Error().Err(p.Err).Msg("counting the messages failed, counts stay estimates until the next start")
		c.endCensus()
		return nil //nolint:nilerr // logged; no client waits for this task
	}
	c.spend(len(p.Keys))
	for _, n := range p.Keys {
		q := c.queues.byNumber[n.Queue]
		if q == nil {
			continue
		}
		q.figures.Change(figures.Messages{Total: n.Messages, Delayed: n.Delayed})
		if k := q.keys.get(n.Name); k != nil && !k.counted {
			k.total += n.Messages
			k.delayed += n.Delayed
			k.counted = true
			q.figures.Found(&k.stats, n.Messages)
			c.settle(k)
		}
	}
	if !p.Last {
		return nil
	}
	for _, q := range c.queues.byName {
		q.figures.SetCounted()
	}
	c.endCensus()
	return nil
}

// AwaitCounts parks the task until all counts are exact (ErrWouldBlock). That takes as long
// as reading all message keys of the store, after a start or a recovery; afterwards it
// returns nil at once.
func (tx *Tx) AwaitCounts() error {
	c := tx.core
	if c.ops.census == nil {
		return nil
	}
	c.ops.uncounted = append(c.ops.uncounted, tx.task)
	return tx.await()
}

// endCensus resumes the tasks that wait for exact counts, a portion in each turn.
func (c *core) endCensus() {
	c.ops.census = nil
	tasks := c.ops.uncounted
	c.ops.uncounted = nil
	c.cron.Counted()
	c.tasks.yielded = append(c.tasks.yielded, tasks...)
}

// Backup is a request for a copy of the store. The copy contains everything that was
// acknowledged before the request, and each batch as a whole or not at all.
type Backup struct {
	Name string // "": the time in UTC
	Wait bool   // answer when the backup is durable, not when it has begun

	run *backupRun // that the task waits for
}

// BackupResult is backups.Result.
type BackupResult = backups.Result

// BackupStatus is backups.Status.
type BackupStatus = backups.Status

// backupRun is a backup under way, an off-loop job.
type backupRun struct {
	*backups.Run

	tasks []*Task // that wait for the end
}

// Backup starts a backup and, with Wait, parks the task until its end (ErrWouldBlock).
// Errors: ErrBackupRunning, ErrInvalid for a bad name or a store in memory, ErrMisconf
// while the store takes no writes, and, with Wait, the error of the backup itself.
func (tx *Tx) Backup(req *Backup) (BackupResult, error) {
	c := tx.core
	if run := req.run; run != nil {
		if !run.Ended() { // a recovery has resumed the task
			return BackupResult{}, tx.awaitBackup(run)
		}
		return run.Result()
	}
	switch {
	case c.cfg.Backups == nil:
		return BackupResult{}, fmt.Errorf("%w: storage.engine is memory, which has nothing on disk to back up", ErrInvalid)
	case c.ops.backups.Running():
		return BackupResult{}, ErrBackupRunning
	}
	if err := c.writableForNew(); err != nil {
		return BackupResult{}, err
	}
	began, err := c.ops.backups.Begin(req.Name, c.now, c.cfg.Backups.Check, c.cfg.Backups.Take)
	if err != nil {
		return BackupResult{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	run := &backupRun{Run: began}
	c.out.jobs = append(c.out.jobs, run)
	if !req.Wait {
		return run.Result()
	}
	req.run = run
	return BackupResult{}, tx.awaitBackup(run)
}

// awaitBackup parks the task until a backup has ended.
func (tx *Tx) awaitBackup(run *backupRun) error {
	run.tasks = append(run.tasks, tx.task)
	return tx.await()
}

func (r *backupRun) do(Store) { r.Take() }

// Apply ends the backup.
func (r *backupRun) Apply(tx *Tx) error {
	r.end(tx.core)
	return nil
}

// end records and logs the outcome of a backup and resumes the tasks that wait for it.
func (r *backupRun) end(c *core) {
	c.ops.backups.End(r.Run, c.now)
	if done, err := r.Result(); err == nil {
		c.health.counters.backedUp++
		c.cfg.Log.Info().Str("name", done.Name).Str("path", done.Path).Dur("took_ms", done.Took).Msg("backup is on disk")
	} else {
		c.health.counters.failedToBackUp++
		c.cfg.Log.Error().Err(err).Str("name", done.Name).Msg("backup failed")
	}
	tasks := r.tasks
	r.tasks = nil
	for _, t := range tasks {
		t.resume(c)
	}
}

// loseBackups ends the backups among jobs that will not run, because the batch before them
// was not committed. Reads are repeated by the recovery.
func (c *core) loseBackups(jobs []job) {
	for _, b := range jobs {
		if run, ok := b.(*backupRun); ok {
			run.Lose()
			run.end(c)
		}
	}
}

// Backups returns the state of backups.
func (tx *Tx) Backups() BackupStatus { return tx.core.ops.backups.Status() }

// Restored is backups.Restored.
func Restored(store Store, seconds int64) error { return backups.Restored(store, seconds) }

// drain is the last step before the engine stops. Tasks that wait for messages end without
// any; tasks that wait for something else are refused with ErrStopped. Redrives end.
// Deferred lease records are written, and the bound of ids is lowered to the last id, so
// that the next start continues without a gap.
//
// Off-loop jobs that have not started are dropped, except for backups: the tasks that wait for
// their results are refused. Else each task queued behind a refused one would start a read of
// its own, all at the same time, and each may read a message of the largest size.
func (c *core) drain() {
	for _, t := range c.waitingTasks() {
		if t.wait.kind.inProgress() {
			c.finish(t, ErrStopped) // not done, or in part
		} else {
			c.finish(t, nil)
		}
	}
	for len(c.ops.redrives) > 0 {
		c.endRedrive(c.ops.redrives[0])
	}
	c.serve() // tasks queued behind them were submitted, so they are done
	c.groups.endOver(c)
	c.out.jobs = slices.DeleteFunc(c.out.jobs, func(j job) bool { _, backup := j.(*backupRun); return !backup })
	if c.health.failed != nil {
		return
	}
	for i := range c.leases.deferred {
		if c.leases.deferred[i].unwritten() {
			c.writeLease(c.leases.deferred[i].m)
		}
	}
	c.leases.deferred = nil
	c.signals.Drain(c.now)
	if c.ids.until > c.ids.last+1 {
		c.ids.until = c.ids.last + 1
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateIDs), storage.EncodeUint(uint64(c.ids.until)))
		c.out.sync = true
	}
}
