//go:build !plain

package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// slowStore delays its commits and counts them.
type slowStore struct {
	*storage.Memory
	commits atomic.Int64
}

func (s *slowStore) Commit(b *storage.Batch, sync bool) error {
	s.commits.Add(1)
	<-time.After(time.Millisecond)
	return s.Memory.Commit(b, sync)
}

// Clients that were answered together and continue at once also share the next commit,
// instead of waiting for one that the first of them has started.
func TestClientsThatAreReadyShareACommit(t *testing.T) {
	for name, mode := range map[string]SyncMode{"synced": SyncAlways, "synced later": SyncNever} {
		t.Run(name, func(t *testing.T) { testSharedCommits(t, mode) })
	}
}

func testSharedCommits(t *testing.T, mode SyncMode) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const clients, rounds = 32, 50
	cfg := DefaultConfig()
	cfg.LeaseWriteDelay, cfg.Sync = time.Hour, mode
	store := &slowStore{Memory: storage.NewMemory()}
	bubble(t, cfg, store, func(e *Engine) {
		if err := ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		before := store.commits.Load()
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range rounds {
					req := &Enqueue{Queue: "q", Payload: []byte("m")}
					if err := e.Prepare(req); err != nil {
						t.Error(err)
					}
					if err := ask(e, func(tx *Tx) error { _, err := tx.Enqueue(req); return err }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := store.commits.Load() - before; n > rounds*5/4 {
			t.Errorf("%d commits for %d rounds", n, rounds)
		}
	})
}
