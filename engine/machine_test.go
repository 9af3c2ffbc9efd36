package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// After a recovery that fails memory is incomplete, so nothing may be written, also when the store could be reopened.
func TestAStoreThatIsReopenedAndCannotBeReadTakesNoWrites(t *testing.T) {
	store := &reopened{blind{Memory: storage.NewMemory()}}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "k", "m")
	store.FailCommits(errBlind)
	enqueue := func() error { return w.do(func(tx *Tx) error { return tx.CreateQueue("other", QueueOptions{}) }) }
	if err := enqueue(); !errors.Is(err, ErrMisconf) {
		t.Fatalf("without a disk: %v", err)
	}
	store.FailCommits(nil)
	store.broken = true
	if err := w.Repair(); !errors.Is(err, errBlind) {
		t.Errorf("a repair that cannot read the store ends with %v", err)
	}
	if err := enqueue(); !errors.Is(err, ErrMisconf) {
		t.Errorf("with a store that cannot be read: %v", err)
	}
	store.broken = false
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	if err := enqueue(); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	if n := len(w.lease("q", 10)); n != 1 {
		t.Errorf("%d messages are there, want 1", n)
	}
}

// A commit fails, and so does all that the recovery reads: memory is empty then. A window read that was under way is of
// the memory of before, and changes nothing.
func TestAReadThatARecoveryHasOvertakenIsDropped(t *testing.T) {
	store := &reopened{blind{Memory: storage.NewMemory()}}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.Window = 4 })
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.Batch: 50, queueset.BatchWait: 3_600_000}})
	w.fill("k", 20, nil)
	c := w.machine.core
	k := c.queues.byName["q"].keys.get("k")
	if !k.window.More() {
		t.Fatal("no message of the key is on disk only")
	}
	c.issueRead(k)
	last := len(c.out.jobs) - 1
	late := c.out.jobs[last].(*read)
	c.out.jobs = c.out.jobs[:last]
	late.do(store)

	store.broken = true
	store.FailCommits(storage.ErrReopen)
	if err := w.do(func(tx *Tx) error { return tx.Pause("q", true, false, true) }); !errors.Is(err, ErrMisconf) {
		t.Fatalf("without a disk: %v", err)
	}
	w.Advance(2 * time.Hour) // the batch of the key is due
	w.Do(&Task{Call: late})
	if late.err != nil || c.heads.messages != 0 || c.heads.keys != 0 {
		t.Errorf("read: %v; %d messages and %d keys are in memory, which a failed recovery has emptied", late.err, c.heads.messages, c.heads.keys)
	}
	store.broken = false
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.lease("q", 4)); n != 4 {
		t.Errorf("%d messages are there after the repair, want 4", n)
	}
}

// reopened is blind, and can be reopened while it cannot be read.
type reopened struct{ blind }

func (s *reopened) Reopen() error { return s.Memory.Reopen() }

// A sync that fails after the commit of a work takes nothing back that the commit has begun: its backup runs.
func TestASyncThatFailsLosesNoBackupOfACommittedWork(t *testing.T) {
	var taken takenBackups
	w := newWorld(t, func(c *Config) { c.Backups = &taken })
	var err error
	backup := &Backup{Wait: true}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Backup(backup); return err })}
	w.core.turn(w.Now(), []*Task{task})
	work := w.machine.Cut()
	if err = work.Commit(w.store); err != nil {
		t.Fatal(err)
	}
	w.release(work.Take())
	w.inBackground(w.machine.CommitFailed(work, errBlind))
	w.reads = append(w.reads, work.jobs...)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	if taken != 1 || !task.Done() || task.Err() != nil {
		t.Errorf("%d were taken; the task is done: %v, %v", taken, task.Done(), task.Err())
	}
}

// takenBackups counts backups.
type takenBackups int

func (*takenBackups) Check(string) error { return nil }

func (n *takenBackups) Take(name string) (string, error) {
	*n++
	return name, nil
}

// A refusal may tell of what is not in the store: the queue that another command of a lost batch has created. Its client
// would take that as settled.
func TestRefusalsOfALostBatchAreMisconf(t *testing.T) {
	w := newWorld(t, nil)
	create := func(name string) *Task {
		return &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) error { return tx.CreateQueue(name, QueueOptions{NoDLQ: true}) })}
	}
	cut := []*Task{create("cut"), create("cut")}
	w.core.turn(w.Now(), cut)
	work := w.machine.Cut()
	open := []*Task{create("open"), create("open"), create("cut")}
	w.core.turn(w.Now(), open)
	tasks, _ := work.Conclude(work.Take(), errBlind)
	w.release(tasks)
	w.inBackground(w.machine.CommitFailed(work, errBlind))
	w.Do()
	for i, task := range append(cut, open...) {
		if !task.Done() || !errors.Is(task.Err(), ErrMisconf) || !errors.Is(task.Err(), errBlind) {
			t.Errorf("task %d is done: %v, with %v", i, task.Done(), task.Err())
		}
	}
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error {
		names, err := tx.Queues()
		if len(names) != 0 {
			t.Errorf("the store has the queues %q", names)
		}
		return err
	})
}
