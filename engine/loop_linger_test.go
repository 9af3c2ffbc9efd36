//go:build !plain

package engine

import (
	"runtime"
	"strconv"
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

// A loop that has work for many turns lets others run after each, also on one processor: the commit under way
// must be able to end, and clients to be answered.
func TestTurnsWithoutAPauseLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const keys = 20_000
	e, err := New(DefaultConfig(), storage.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	e.core.detached.max = 16 // keys that a turn reclaims
	done := make(chan error, 1)
	go func() { done <- e.Run(t.Context()) }()
	<-e.Ready()
	must := func(call func(tx *Tx) error) {
		t.Helper()
		if err := ask(e, call); err != nil {
			t.Fatal(err)
		}
	}
	must(func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })
	for i := range keys {
		req := &Enqueue{Queue: "q", Key: strconv.Itoa(i), Payload: []byte("m")}
		if err := e.Prepare(req); err != nil {
			t.Fatal(err)
		}
		must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	var ran atomic.Uint64
	var turns uint64
	var over atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !over.Load() {
			ran.Add(1)
			runtime.Gosched()
		}
	})
	must(func(tx *Tx) error {
		_, err := tx.Purge(&Purge{Queue: "q"})
		ran.Store(0)
		turns = tx.Stats().Turns
		return err
	})
	for left := true; left; {
		must(func(tx *Tx) error {
			if left = len(tx.core.detached.queues) > 0; !left {
				turns = tx.Stats().Turns - turns
			}
			return nil
		})
	}
	over.Store(true)
	other.Wait()
	e.Stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if turns < keys/16 || ran.Load() < turns/2 {
		t.Errorf("%d turns, in which another goroutine ran %d times", turns, ran.Load())
	}
}
