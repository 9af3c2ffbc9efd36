package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/storage"
)

// operations is what runs for long beside the commands: the count after a start, redrives,
// a backup.
type operations struct {
	census    *census    // counts what the store held at start; nil: done
	uncounted []*Task    // wait for the end of the census
	redrives  []*redrive // under way
	backups   backups

	unchecked
}

func (o *operations) reset() { o.census, o.uncounted, o.redrives = nil, nil, nil }

func (o *operations) next(*core) int64 {
	at := int64(never)
	for _, j := range o.redrives {
		if j.page == nil {
			at = min(at, j.nextAt)
		}
		if j.task != nil {
			at = min(at, j.began+redriveReplyAfter)
		}
	}
	return at
}

// expire lets redrives go on.
func (o *operations) expire(c *core) {
	for _, j := range slices.Clone(o.redrives) {
		if j.page == nil && j.nextAt <= c.now {
			c.advance(j)
		}
		if t := j.task; t != nil && t.wait != nil && j.began+redriveReplyAfter <= c.now {
			c.run(t)
		}
	}
}

// census counts the messages that the store held at start. It runs beside the
// loop, which meanwhile counts differences: a total is exact when both are added.
type census struct {
	epoch    uint64
	stopped  atomic.Bool
	messages storage.Iterator
	due      storage.Iterator
}

// newCensus fixes what is counted: the store as it is now, before the first turn.
func newCensus(epoch uint64, store Store) *census {
	return &census{epoch: epoch, messages: store.Scan(storage.Messages, nil, nil), due: store.Scan(storage.Scheduled, nil, nil)}
}

// stop makes a running census end soon.
func (s *census) stop() {
	if s != nil {
		s.stopped.Store(true)
	}
}

// close lets go of the store: of a census that is not taken, or was.
func (s *census) close() {
	s.messages.Close()
	s.due.Close()
}

// censusPart is a task with a piece of the result.
type censusPart struct {
	census *census
	keys   []keyCount
	last   bool
	err    error
}

type keyName struct {
	queue uint32
	key   string
}

type keyCount struct {
	keyName
	n, delayed int64 // messages, and those of them that are delayed
}

// take counts and hands the result on in parts. It closes what the census holds. A
// key is counted as a whole: its messages, and those of them that are delayed.
func (s *census) take(emit func(*censusPart)) {
	defer s.close()
	const keysMax = 1024
	part := &censusPart{census: s}
	delayed, err := s.delayed()
	if err != nil {
		emit(&censusPart{census: s, err: err})
		return
	}
	var prefix []byte
	for ok := s.messages.Seek(nil); ok && !s.stopped.Load(); ok = s.messages.Next() {
		k := s.messages.Key()
		if n := len(part.keys); n > 0 && len(k) == len(prefix)+17 && string(k[:len(prefix)]) == string(prefix) {
			part.keys[n-1].n++
			continue
		}
		mk, err := storage.ParseMessageKey(k)
		if err != nil {
			emit(&censusPart{census: s, err: err})
			return
		}
		if len(part.keys) == keysMax {
			emit(part)
			part = &censusPart{census: s}
		}
		prefix = storage.AppendKeyPrefix(prefix[:0], mk.Queue, mk.Key)
		part.keys = append(part.keys, keyCount{keyName: keyName{mk.Queue, mk.Key}, n: 1, delayed: delayed[keyName{mk.Queue, mk.Key}]})
	}
	part.err = s.messages.Err()
	part.last = true
	emit(part)
}

// delayed counts the delayed messages of each key that has some.
func (s *census) delayed() (map[keyName]int64, error) {
	counts := map[keyName]int64{}
	for ok := s.due.Seek(nil); ok && !s.stopped.Load(); ok = s.due.Next() {
		_, mk, err := storage.ParseScheduledKey(s.due.Key())
		if err != nil {
			return nil, err
		}
		counts[keyName{mk.Queue, mk.Key}]++
	}
	return counts, s.due.Err()
}

// Apply adds what was counted.
func (p *censusPart) Apply(tx *Tx) error {
	c := tx.core
	if p.census != c.ops.census || p.census.stopped.Load() {
		return nil
	}
	if p.err != nil {
		c.cfg.Log.Error().Err(p.err).Msg("counting the messages failed, counts stay estimates until the next start")
		c.endCensus()
		return nil //nolint:nilerr // logged, and nobody waits for this task
	}
	c.spend(len(p.keys))
	for _, n := range p.keys {
		q := c.queues.byNumber[n.queue]
		if q == nil {
			continue
		}
		q.total += n.n
		q.delayed += n.delayed
		if k := q.keys.get(n.key); k != nil && !k.counted {
			k.total += n.n
			k.delayed += n.delayed
			k.counted = true
			c.settle(k)
		}
	}
	if !p.last {
		return nil
	}
	for _, q := range c.queues.byName {
		q.counted = true
	}
	c.endCensus()
	return nil
}

// AwaitCounts waits until the counts are exact: right after a start or a recovery
// they are not, for as long as it takes to read all keys of the store.
func (tx *Tx) AwaitCounts() error {
	c := tx.core
	if c.ops.census == nil {
		return nil
	}
	c.ops.uncounted = append(c.ops.uncounted, tx.task)
	tx.park(nil, 0, false)
	return ErrWouldBlock
}

// endCensus lets those go on who wait for it.
func (c *core) endCensus() {
	c.ops.census = nil
	tasks := c.ops.uncounted
	c.ops.uncounted = nil
	c.resumeUncounted()
	c.tasks.yielded = append(c.tasks.yielded, tasks...) // there may be very many
}

// Backups makes copies of the store, and says which names they may have.
type Backups interface {
	// Check says what is wrong with the name of a new backup.
	Check(name string) error
	// Take makes a copy of the store as it is now and returns where it is, when it
	// is on disk. It runs beside the loop, one at a time.
	Take(name string) (path string, err error)
}

// Backup asks for a copy of the store: everything that was acknowledged before it
// was asked for is in it, and of each batch all or nothing.
type Backup struct {
	Name string // "": it is named after the time
	Wait bool   // until it is on disk; else until it has begun

	run *backupRun
}

// BackupResult says what became of a backup that was waited for.
type BackupResult struct {
	Name, Path string
	Took       time.Duration
}

// BackupStatus is how it stands with the backups.
type BackupStatus struct {
	Running bool
	Since   time.Time // when the running one began
	LastAt  time.Time // when the newest that succeeded was done; zero: none has
	Took    time.Duration
	Failed  bool // the newest has not succeeded
}

// backups is what the core knows of them. It outlives a recovery in place.
type backups struct {
	run    *backupRun // nil: none is under way
	lastAt int64
	took   time.Duration
	err    error // of the newest
}

// backupRun is a backup under way. It is made after the commit of the batch that was
// open when it was asked for: what was acknowledged by then is in the store.
type backupRun struct {
	name  string
	since int64
	take  func(name string) (string, error)
	tasks []*Task // wait for it

	path string
	took time.Duration
	done bool
	err  error
}

// Backup begins a backup and, if that is wanted, waits for its end.
func (tx *Tx) Backup(req *Backup) (BackupResult, error) {
	c := tx.core
	if run := req.run; run != nil {
		if !run.done { // a recovery has asked to ask again
			return BackupResult{}, tx.awaitBackup(run)
		}
		return BackupResult{Name: run.name, Path: run.path, Took: run.took}, run.err
	}
	switch {
	case c.cfg.Backups == nil:
		return BackupResult{}, fmt.Errorf("%w: storage.engine is memory, which has nothing on disk to back up", ErrInvalid)
	case c.ops.backups.run != nil:
		return BackupResult{}, ErrBackupRunning
	}
	if err := c.writableForNew(); err != nil {
		return BackupResult{}, err
	}
	name := req.Name
	if name == "" {
		name = tx.Now().UTC().Format("20060102-150405.000")
	}
	if err := c.cfg.Backups.Check(name); err != nil {
		return BackupResult{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	run := &backupRun{name: name, since: c.now, take: c.cfg.Backups.Take}
	c.ops.backups.run = run
	c.out.jobs = append(c.out.jobs, run)
	if !req.Wait {
		return BackupResult{Name: name}, nil
	}
	req.run = run
	return BackupResult{}, tx.awaitBackup(run)
}

func (tx *Tx) awaitBackup(run *backupRun) error {
	run.tasks = append(run.tasks, tx.task)
	tx.park(nil, 0, false)
	return ErrWouldBlock
}

// do makes the backup.
func (r *backupRun) do(Store) { r.path, r.err = r.take(r.name) }

// Apply tells those who wait what became of the backup.
func (r *backupRun) Apply(tx *Tx) error {
	c := tx.core
	c.endBackup(r)
	return nil
}

func (c *core) endBackup(r *backupRun) {
	r.done, r.took = true, time.Duration(c.now-r.since)
	if c.ops.backups.run == r {
		c.ops.backups.run = nil
	}
	if c.ops.backups.err = r.err; r.err == nil {
		c.ops.backups.lastAt, c.ops.backups.took = c.now, r.took
		c.cfg.Log.Info().Str("name", r.name).Str("path", r.path).Dur("took_ms", r.took).Msg("backup is on disk")
	} else {
		c.cfg.Log.Error().Err(r.err).Str("name", r.name).Msg("backup failed")
	}
	tasks := r.tasks
	r.tasks = nil
	for _, t := range tasks {
		if t.wait != nil { // else its client has gone
			c.run(t)
		}
	}
}

// lost is what was to be done after a commit that failed, as a call.
type lost struct{ jobs []job }

// Apply ends what somebody waits for. Reads are asked for anew by the recovery.
func (l lost) Apply(tx *Tx) error {
	tx.core.loseBackups(l.jobs)
	return nil
}

var errBackupLost = errors.New("the store could not write what came before the backup")

// loseBackups ends the backups that will not be made, as the batch before them was
// not committed.
func (c *core) loseBackups(jobs []job) {
	for _, b := range jobs {
		if run, ok := b.(*backupRun); ok {
			run.err = errBackupLost
			c.endBackup(run)
		}
	}
}

// Backups says how it stands with the backups.
func (tx *Tx) Backups() BackupStatus {
	b := &tx.core.ops.backups
	s := BackupStatus{Running: b.run != nil, Took: b.took, Failed: b.err != nil}
	if b.run != nil {
		s.Since = time.Unix(0, b.run.since)
	}
	if b.lastAt != 0 {
		s.LastAt = time.Unix(0, b.lastAt)
	}
	return s
}
