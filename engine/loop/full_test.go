package loop_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/storetest"
)

// fullStore is a store on a disk with simulated space.
type fullStore struct {
	*storage.Memory
	space    atomic.Bool  // for all writes
	reserve  atomic.Bool  // for writes that free space
	relieved atomic.Int64 // requests to free the reserve
}

func (s *fullStore) Commit(b *storage.Batch, sync bool) error {
	if !s.space.Load() && !s.reserve.Load() {
		return storage.ErrReopen
	}
	return s.Memory.Commit(b, sync)
}

func (s *fullStore) Reopen() error {
	if !s.space.Load() && !s.reserve.Load() {
		return storage.ErrFull
	}
	return nil
}

func (s *fullStore) Full() error {
	if s.space.Load() {
		return nil
	}
	return storage.ErrFull
}

func (s *fullStore) Relieve() error {
	s.relieved.Add(1)
	return s.Full()
}

// enqueueTo enqueues a message.
func enqueueTo(t *testing.T, e *loop.Engine, queue string) error {
	t.Helper()
	req := &engine.Enqueue{Queue: queue, Payload: []byte("m")}
	if err := e.Prepare(req); err != nil {
		return err
	}
	return ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
}

// TestAFullStoreIsEmptied starts on a store that accepts only writes that free space, and
// then on one that accepts none.
func TestAFullStoreIsEmptied(t *testing.T) {
	store := &fullStore{Memory: storage.NewMemory()}
	store.space.Store(true)
	cfg := engine.DefaultConfig()
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := enqueueTo(t, e, "q"); err != nil {
				t.Fatal(err)
			}
		}
	})
	store.space.Store(false)
	store.reserve.Store(true)
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := enqueueTo(t, e, "q"); !errors.Is(err, engine.ErrMisconf) {
			t.Errorf("enqueue: %v", err)
		}
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("other", engine.QueueOptions{}) }); !errors.Is(err, engine.ErrMisconf) {
			t.Errorf("a new queue: %v", err)
		}
		var ds []*engine.Delivery
		lease := func(tx *engine.Tx) (err error) {
			ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 3, Block: -1})
			return err
		}
		if err := ask(e, lease); err != nil || len(ds) != 3 {
			t.Fatalf("leased %d, %v", len(ds), err)
		}
		n := 0
		if err := ask(e, func(tx *engine.Tx) (err error) { n, err = tx.Ack("q", []engine.Receipt{ds[0].Receipt}); return err }); err != nil || n != 1 {
			t.Errorf("acked %d, %v", n, err)
		}
		purge := &engine.Purge{Queue: "q"}
		if err := ask(e, func(tx *engine.Tx) (err error) { n, err = tx.Purge(purge); return err }); err != nil || n != 9 {
			t.Errorf("purged %d, %v", n, err)
		}
		if err := ask(e, func(tx *engine.Tx) error {
			if tx.Stats().Writable {
				t.Error("a full store is called writable")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		<-time.After(3 * cfg.RetryInterval)
		if n := store.relieved.Load(); n < 2 || n > 5 {
			t.Errorf("the store was asked for space %d times in 3 intervals", n)
		}
		store.space.Store(true)
		<-time.After(2 * cfg.RetryInterval)
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Errorf("with space: %v", err)
		}
	})
	store.space.Store(false)
	store.reserve.Store(false)
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error {
			if s := tx.Stats(); s.Writable || s.Queues != 2 {
				t.Errorf("%+v", s)
			}
			return nil
		}); err != nil {
			t.Errorf("stats: %v", err)
		}
		if err := ask(e, func(tx *engine.Tx) error { _, err := tx.Ack("q", nil); return err }); !errors.Is(err, engine.ErrMisconf) {
			t.Errorf("ack without any space: %v", err)
		}
		store.space.Store(true)
		<-time.After(2 * cfg.RetryInterval)
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Errorf("with space: %v", err)
		}
	})
}

// TestAFullStoreGetsNoCheckpointOfSignalsAndNoRefills works on a full store with what needs no
// space, and then has space again. What the engine writes by itself waits for that.
func TestAFullStoreGetsNoCheckpointOfSignalsAndNoRefills(t *testing.T) {
	store := &fullStore{Memory: storage.NewMemory()}
	store.space.Store(true)
	cfg := engine.DefaultConfig()
	refill, err := engine.NewRefill(100, "@hourly", "", 300)
	if err != nil {
		t.Fatal(err)
	}
	balance := func(e *loop.Engine) (n int64) {
		_ = ask(e, func(tx *engine.Tx) error { i, _ := tx.Budget("acme"); n = i.Balance; return nil })
		return n
	}
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error {
			return errors.Join(tx.CreateQueue("q", recording()), tx.SetBudget("acme", &engine.BudgetOptions{Refill: refill}))
		}); err != nil {
			t.Fatal(err)
		}
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Fatal(err)
		}
	})
	const before, after = "default/enqueued", "default/acked default/enqueued default/work_ms"
	if got := storetest.Signals(t, store.Memory); got != before {
		t.Fatalf("a stop wrote the signals %q, want %q", got, before)
	}
	store.space.Store(false)
	store.reserve.Store(true)
	ackOne := func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error {
			ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
			if err == nil && len(ds) == 1 {
				_, err = tx.Ack("q", []engine.Receipt{ds[0].Receipt})
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	bubble(t, cfg, store, func(e *loop.Engine) {
		was := balance(e)
		ackOne(e)
		<-time.After(2*cfg.SignalCheckpoint + 2*time.Hour)
		if got := storetest.Signals(t, store.Memory); got != before {
			t.Errorf("a full store got the signals %q", got)
		}
		if n := balance(e); n != was {
			t.Errorf("on a full store the balance went from %d to %d", was, n)
		}
		store.space.Store(true)
		<-time.After(2*cfg.RetryInterval + 2*cfg.SignalCheckpoint)
		if got := storetest.Signals(t, store.Memory); got != after {
			t.Errorf("with space the store has the signals %q, want %q", got, after)
		}
		if n := balance(e); n != 300 {
			t.Errorf("with space the balance is %d, want 300", n)
		}
	})
	store.space.Store(true)
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Fatal(err)
		}
	})
	store.space.Store(false)
	bubble(t, cfg, store, ackOne) // a stop of a full store ends although signals are unwritten
}

// The syncs of a store that refuses writes fail as well, more often than it is reopened. They must not
// put the next attempt off.
func TestAStoreThatIsSyncedLaterIsReopened(t *testing.T) {
	store := storage.NewMemory()
	cfg := engine.DefaultConfig()
	cfg.Sync = engine.SyncInterval
	bubble(t, cfg, store, func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		store.FailCommits(errors.New("no space"))
		if err := enqueueTo(t, e, "q"); !errors.Is(err, engine.ErrMisconf) {
			t.Fatalf("enqueue: %v", err)
		}
		<-time.After(10*cfg.SyncInterval + cfg.RetryInterval)
		store.FailCommits(nil)
		<-time.After(2 * cfg.RetryInterval)
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Errorf("enqueue after the disk has recovered: %v", err)
		}
		if err := ask(e, func(tx *engine.Tx) error {
			if n := tx.Stats().Recoveries; n > 10 {
				t.Errorf("memory was rebuilt %d times", n)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
