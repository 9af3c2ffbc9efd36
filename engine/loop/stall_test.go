package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// frozenStore is a store whose commits hang while it is frozen.
type frozenStore struct {
	*storage.Memory
	thaw chan struct{} // nil: not frozen
}

func (s *frozenStore) Commit(b *storage.Batch, sync bool) error {
	if s.thaw != nil {
		<-s.thaw
	}
	return s.Memory.Commit(b, sync)
}

// TestReadOnlyCallsAreAnsweredWhileACommitHangs freezes the store while clients write: a
// little, and so much that the open batch and the inbox are full.
func TestReadOnlyCallsAreAnsweredWhileACommitHangs(t *testing.T) {
	for name, writers := range map[string]int{"a little is written": 1, "more than there is room for": 200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := engine.DefaultConfig()
				cfg.BatchBytes, cfg.InboxTasks = 4096, 20
				store := &frozenStore{Memory: storage.NewMemory()}
				e, err := loop.New(cfg, store)
				if err != nil {
					t.Fatal(err)
				}
				run := make(chan error, 1)
				go func() { run <- e.Run(context.Background()) }()
				<-e.Ready()
				if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
					t.Fatal(err)
				}
				store.thaw = make(chan struct{})
				written := make(chan error, writers)
				for range writers {
					go func() { written <- enqueueTo(t, e, "q") }()
				}
				looked := make(chan error)
				go func() { looked <- look(e, 1) }() // in the batch of the first write, or after it
				synctest.Wait()
				<-time.After(2 * loop.StallAfter)
				go func() { looked <- look(e, 2) }() // while all writes wait
				for range 2 {
					select {
					case err := <-looked:
						if err != nil {
							t.Error(err)
						}
					case <-time.After(time.Minute):
						t.Fatal("no task is answered")
					}
				}
				if n := len(written); n > 0 {
					t.Errorf("%d writes were answered before their commit", n)
				}
				close(store.thaw)
				for range writers {
					if err := <-written; err != nil {
						t.Error(err)
					}
				}
				e.Stop()
				if err := <-run; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// look requests the statistics of a queue.
func look(e *loop.Engine, client uint64) error {
	done := make(chan struct{}, 1)
	task := &engine.Task{
		ReadOnly: true,
		Call:     callFunc(func(tx *engine.Tx) error { _, err := tx.QueueStats("q"); return err }),
		Client: engine.NewClient(client, func() {
			select {
			case done <- struct{}{}:
			default:
			}
		}),
	}
	e.Submit([]*engine.Task{task})
	for !task.Done() {
		<-done
	}
	return task.Err()
}
