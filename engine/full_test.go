package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
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
func enqueueTo(t *testing.T, e *Engine, queue string) error {
	t.Helper()
	req := &Enqueue{Queue: queue, Payload: []byte("m")}
	if err := e.Prepare(req); err != nil {
		return err
	}
	return ask(e, func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
}

// TestAFullStoreIsEmptied starts on a store that accepts only writes that free space, and
// then on one that accepts none.
func TestAFullStoreIsEmptied(t *testing.T) {
	store := &fullStore{Memory: storage.NewMemory()}
	store.space.Store(true)
	cfg := DefaultConfig()
	bubble(t, cfg, store, func(e *Engine) {
		if err := ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) }); err != nil {
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
	bubble(t, cfg, store, func(e *Engine) {
		if err := enqueueTo(t, e, "q"); !errors.Is(err, ErrMisconf) {
			t.Errorf("enqueue: %v", err)
		}
		if err := ask(e, func(tx *Tx) error { return tx.CreateQueue("other", QueueOptions{}) }); !errors.Is(err, ErrMisconf) {
			t.Errorf("a new queue: %v", err)
		}
		var ds []*Delivery
		lease := func(tx *Tx) (err error) {
			ds, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 3, Block: -1})
			return err
		}
		if err := ask(e, lease); err != nil || len(ds) != 3 {
			t.Fatalf("leased %d, %v", len(ds), err)
		}
		n := 0
		if err := ask(e, func(tx *Tx) (err error) { n, err = tx.Ack("q", []Receipt{ds[0].Receipt}); return err }); err != nil || n != 1 {
			t.Errorf("acked %d, %v", n, err)
		}
		purge := &Purge{Queue: "q"}
		if err := ask(e, func(tx *Tx) (err error) { n, err = tx.Purge(purge); return err }); err != nil || n != 9 {
			t.Errorf("purged %d, %v", n, err)
		}
		if err := ask(e, func(tx *Tx) error {
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
	bubble(t, cfg, store, func(e *Engine) {
		if err := ask(e, func(tx *Tx) error {
			if s := tx.Stats(); s.Writable || s.Queues != 2 {
				t.Errorf("%+v", s)
			}
			return nil
		}); err != nil {
			t.Errorf("stats: %v", err)
		}
		if err := ask(e, func(tx *Tx) error { _, err := tx.Ack("q", nil); return err }); !errors.Is(err, ErrMisconf) {
			t.Errorf("ack without any space: %v", err)
		}
		store.space.Store(true)
		<-time.After(2 * cfg.RetryInterval)
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Errorf("with space: %v", err)
		}
	})
}
