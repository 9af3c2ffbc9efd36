package engine

import (
	"errors"
	"fmt"
	"time"
)

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
type lost struct{ beside []job }

// Apply ends what somebody waits for. Reads are asked for anew by the recovery.
func (l lost) Apply(tx *Tx) error {
	tx.core.loseBackups(l.beside)
	return nil
}

var errBackupLost = errors.New("the store could not write what came before the backup")

// loseBackups ends the backups that will not be made, as the batch before them was
// not committed.
func (c *core) loseBackups(beside []job) {
	for _, b := range beside {
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
