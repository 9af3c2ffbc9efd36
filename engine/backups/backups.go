// Package backups knows the backup of the store that is under way, and how the last one ended. A backup is a job: it
// runs after the commit of the batch that was open at the request, so it has everything that was acknowledged by then.
//
//	Begin ──▶ under way ──Take, off the loop──▶ taken ──End──▶ ended
//	              └──────────Lose──────────────────────────────┘
//
// What is known survives a recovery: a backup reads the store, not the memory.
package backups

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// Result describes a backup that has ended. Of one that has only begun, Name is set alone.
type Result struct {
	Name, Path string
	Took       time.Duration
}

// Status describes the running and the last backup.
type Status struct {
	Running bool
	Since   time.Time     // start of the running backup
	LastAt  time.Time     // end of the last successful backup; zero: none
	Took    time.Duration // of the last successful backup
	Failed  bool          // the last backup failed
}

// State is what is known of backups. The zero value knows of none.
type State struct {
	run  *Run // under way; nil: none
	last struct {
		at, took int64 // of the last successful one: Unix nanoseconds, 0: none; nanoseconds
		failed   bool  // the last one failed
	}
}

// Remember takes over when the last backup was made, before this start.
func (s *State) Remember(at time.Time) { s.last.at = at.UnixNano() }

// Running reports whether a backup is under way. There is one at a time.
func (s *State) Running() bool { return s.run != nil }

// Begin begins a backup at a time, in Unix nanoseconds. Without a name it has that of the time, in UTC. check refuses a
// name that cannot be that of a backup, take makes it and returns where it is.
func (s *State) Begin(name string, now int64, check func(name string) error, take func(name string) (string, error)) (*Run, error) {
	if name == "" {
		name = time.Unix(0, now).UTC().Format("20060102-150405.000")
	}
	if err := check(name); err != nil {
		return nil, err
	}
	s.run = &Run{since: now, take: take, result: Result{Name: name}}
	return s.run, nil
}

// End ends a backup that was taken or lost, at a time.
func (s *State) End(r *Run, now int64) {
	took := now - r.since
	r.done, r.result.Took = true, time.Duration(took)
	if s.run == r {
		s.run = nil
	}
	if s.last.failed = r.err != nil; r.err == nil {
		s.last.at, s.last.took = now, took
	}
}

// Status returns what is known.
func (s *State) Status() Status {
	all := Status{Running: s.run != nil, Took: time.Duration(s.last.took), Failed: s.last.failed}
	if s.run != nil {
		all.Since = time.Unix(0, s.run.since)
	}
	if s.last.at != 0 {
		all.LastAt = time.Unix(0, s.last.at)
	}
	return all
}

// Run is a backup.
type Run struct {
	since  int64
	take   func(name string) (string, error)
	result Result
	err    error
	done   bool
}

// Take makes the backup. It may run on any goroutine, while nothing else is done with it.
func (r *Run) Take() { r.result.Path, r.err = r.take(r.result.Name) }

// errLost is why a backup was not made.
var errLost = errors.New("the store could not commit the writes before the backup; try again when it takes writes")

// Lose says that the backup will not be made, because the batch before it was not committed. End follows.
func (r *Run) Lose() { r.err = errLost }

// Ended reports whether the backup has ended.
func (r *Run) Ended() bool { return r.done }

// Result returns what has become of the backup.
func (r *Run) Result() (Result, error) { return r.result, r.err }

// Restored makes a store that was a backup ready for use, at a time in Unix seconds. The broker it was taken from has
// gone on and given out delivery numbers that the restored one must not repeat. So the
// number of starts is raised to the time, which exceeds every count of starts
// and every earlier restore.
func Restored(store interface {
	storage.Reader
	Commit(b *storage.Batch, sync bool) error
}, seconds int64) error {
	epoch := uint64(0)
	b, err := store.Get(storage.State, storage.AppendStateKey(nil, storage.StateEpoch))
	if err == nil {
		epoch, err = storage.DecodeUint(b)
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("read the number of starts: %w", err)
	}
	var batch storage.Batch
	batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateEpoch), storage.EncodeUint(max(epoch+1, uint64(seconds))))
	if err := store.Commit(&batch, true); err != nil {
		return fmt.Errorf("write the number of starts: %w", err)
	}
	return nil
}
