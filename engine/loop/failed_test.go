package loop_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// takenBackups are the names of backups that were taken.
type takenBackups []string

func (*takenBackups) Check(string) error { return nil }

func (b *takenBackups) Take(name string) (string, error) {
	*b = append(*b, name)
	return name, nil
}

// What follows a commit does not follow one that fails: the batch sends no events, and the backup that was to have its
// writes is refused.
func TestAFailedCommitSendsNoEventsAndTakesNoBackup(t *testing.T) {
	store := storage.NewMemory()
	cfg := engine.DefaultConfig()
	var taken takenBackups
	cfg.Backups = &taken
	synctest.Test(t, func(t *testing.T) {
		e, err := loop.New(cfg, store)
		if err != nil {
			t.Fatal(err)
		}
		var created []string
		e.Listen(func(events []engine.Event) {
			for _, ev := range events {
				created = append(created, ev.Queue)
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		<-e.Ready()
		e.Want(engine.EventCreated)
		clients := uint64(0)
		task := func(call func(tx *engine.Tx) error) *engine.Task {
			clients++
			return &engine.Task{Client: engine.NewClient(clients, func() {}), Call: callFunc(call)}
		}
		both := func(queue string) (create, backup *engine.Task) {
			req := &engine.Backup{Name: queue, Wait: true}
			create = task(func(tx *engine.Tx) error { return tx.CreateQueue(queue, engine.QueueOptions{NoDLQ: true}) })
			backup = task(func(tx *engine.Tx) error { _, err := tx.Backup(req); return err })
			e.Submit([]*engine.Task{create, backup})
			synctest.Wait()
			return create, backup
		}
		store.FailCommits(errors.New("no disk"))
		create, backup := both("lost")
		if !create.Done() || !errors.Is(create.Err(), engine.ErrMisconf) || !backup.Done() || backup.Err() == nil {
			t.Errorf("without a disk a queue is created: %v, %v; a backup is taken: %v, %v", create.Done(), create.Err(), backup.Done(), backup.Err())
		}
		store.FailCommits(nil)
		<-time.After(2 * cfg.RetryInterval)
		create, backup = both("kept")
		if !create.Done() || create.Err() != nil || !backup.Done() || backup.Err() != nil {
			t.Errorf("with a disk a queue is created: %v, %v; a backup is taken: %v, %v", create.Done(), create.Err(), backup.Done(), backup.Err())
		}
		e.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"kept"}; !slices.Equal(created, want) || !slices.Equal(taken, want) {
			t.Errorf("the queues %q were announced, the backups %q taken; want %q", created, taken, want)
		}
	})
}
