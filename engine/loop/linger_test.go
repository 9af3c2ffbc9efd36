//go:build !plain

package loop_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
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
	for name, mode := range map[string]engine.SyncMode{"synced": engine.SyncAlways, "synced later": engine.SyncNever} {
		t.Run(name, func(t *testing.T) { testSharedCommits(t, mode) })
	}
}

func testSharedCommits(t *testing.T, mode engine.SyncMode) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const clients, rounds = 32, 50
	cfg := engine.DefaultConfig()
	cfg.LeaseWriteDelay, cfg.Sync = time.Hour, mode
	store := &slowStore{Memory: storage.NewMemory()}
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		before := store.commits.Load()
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range rounds {
					req := &engine.Enqueue{Queue: "q", Payload: []byte("m")}
					if err := e.Prepare(req); err != nil {
						t.Error(err)
					}
					if err := ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err }); err != nil {
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

// Clients that are ready at the same time share a commit also when they find the loop idle and the last commit was for one
// client, which tells of no others.
func TestClientsThatFindTheLoopIdleShareACommit(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const clients, rounds = 8, 50
	cfg := engine.DefaultConfig()
	cfg.LeaseWriteDelay = time.Hour
	store := &slowStore{Memory: storage.NewMemory()}
	bubble(t, cfg, store, func(e *loop.Engine) {
		enqueue := func() {
			req := &engine.Enqueue{Queue: "q", Payload: []byte("m")}
			if err := errors.Join(e.Prepare(req), ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })); err != nil {
				t.Error(err)
			}
		}
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		before := store.commits.Load()
		for range rounds {
			enqueue()
			start := make(chan struct{})
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					<-start
					enqueue()
				})
			}
			synctest.Wait()
			close(start)
			all.Wait()
		}
		if n := store.commits.Load() - before; n > rounds*5/2 {
			t.Errorf("%d commits for %d rounds of two", n, rounds)
		}
	})
}

// A loop that has work for many turns lets others run after each, also on one processor: the commit under way
// must be able to end, and clients to be answered.
func TestTurnsWithoutAPauseLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const most = 1000
	e, err := loop.New(engine.DefaultConfig(), storage.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(t.Context()) }()
	<-e.Ready()
	var ran atomic.Uint64
	var over atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !over.Load() {
			ran.Add(1)
			runtime.Gosched()
		}
	})
	at, before := 0, uint64(0)
	var turns, meanwhile uint64
	if err := ask(e, func(tx *engine.Tx) error {
		if at == 0 {
			before = tx.Stats().Turns
			ran.Store(0)
		}
		err := tx.Each(&at, most, 1<<12, func(int) {}) // more than a turn has for one task
		turns, meanwhile = tx.Stats().Turns-before, ran.Load()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	over.Store(true)
	other.Wait()
	e.Stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if turns < most-1 || meanwhile < turns/2 {
		t.Errorf("%d turns, in which another goroutine ran %d times", turns, meanwhile)
	}
}
