package loop_test

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// A slow hook delays no client that does not need it: here a read of a message in the same
// batch.
func TestASlowHookDelaysNoReads(t *testing.T) {
	bubble(t, engine.DefaultConfig(), storage.NewMemory(), func(e *loop.Engine) {
		gate := make(chan struct{})
		_ = ask(e, func(tx *engine.Tx) error {
			return errors.Join(tx.CreateQueue("slow", engine.QueueOptions{}), tx.CreateQueue("q", engine.QueueOptions{}), tx.LoadScript("slow", slow(gate), ""))
		})
		ids := map[string]engine.ID{}
		for _, queue := range []string{"slow", "q"} {
			req := &engine.Enqueue{Queue: queue, Payload: []byte("m")}
			if err := e.Prepare(req); err != nil {
				t.Fatal(err)
			}
			_ = ask(e, func(tx *engine.Tx) (err error) { ids[queue], err = tx.Enqueue(req); return err })
		}
		var ds []*engine.Delivery
		_ = ask(e, func(tx *engine.Tx) (err error) {
			ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{"slow"}, Count: 1, Block: -1})
			return err
		})
		nack := &engine.Nack{Queue: "slow", Receipt: ds[0].Receipt, Delay: -1}
		get := &engine.Get{Queue: "q", ID: ids["q"]}
		asks := &engine.Task{Client: engine.NewClient(1, func() {}), Call: callFunc(func(tx *engine.Tx) error { _, err := tx.Nack(nack); return err })}
		looks := &engine.Task{Client: engine.NewClient(2, func() {}), Call: callFunc(func(tx *engine.Tx) error { _, err := tx.Get(get); return err })}
		e.Submit([]*engine.Task{asks, looks})
		synctest.Wait()
		if asks.Done() || !looks.Done() {
			t.Errorf("the verdict is there: %v; the message was read: %v", asks.Done(), looks.Done())
		}
		close(gate)
		synctest.Wait()
		if !asks.Done() {
			t.Error("no verdict")
		}
	})
}

// gated is a store whose Get of a message of the first queue waits until a gate is opened.
// Windows are read by Scan, not by Get.
type gated struct {
	*storage.Memory
	gate chan struct{}
}

func (s *gated) Get(f storage.Family, key []byte) ([]byte, error) {
	if f == storage.Messages && bytes.HasPrefix(key, storage.AppendQueuePrefix(nil, 1)) {
		<-s.gate
	}
	return s.Memory.Get(f, key)
}

// A look-up of one or of many messages does not delay window reads; a look-up of many
// delays no other look-up.
func TestLookupsDelayNoWindowReads(t *testing.T) {
	for name, n := range map[string]int{"one": 1, "very many": 200} {
		t.Run(name, func(t *testing.T) {
			cfg := engine.DefaultConfig()
			cfg.Window = 2
			store := &gated{Memory: storage.NewMemory()}
			bubble(t, cfg, store, func(e *loop.Engine) {
				store.gate = make(chan struct{}) // inside the bubble
				_ = ask(e, func(tx *engine.Tx) error {
					return errors.Join(tx.CreateQueue("slow", engine.QueueOptions{NoDLQ: true}), tx.CreateQueue("q", engine.QueueOptions{NoDLQ: true}))
				})
				ids := map[string]engine.ID{}
				for i := range 11 {
					req := &engine.Enqueue{Queue: "q", Payload: []byte("m")}
					if i == 0 {
						req.Queue = "slow"
					}
					if err := e.Prepare(req); err != nil {
						t.Fatal(err)
					}
					_ = ask(e, func(tx *engine.Tx) (err error) { ids[req.Queue], err = tx.Enqueue(req); return err })
				}
				clients := uint64(0)
				task := func(call func(tx *engine.Tx) error) *engine.Task {
					clients++
					return &engine.Task{Client: engine.NewClient(clients, func() {}), Call: callFunc(call)}
				}
				cancel := &engine.Cancel{Queue: "slow", IDs: slices.Repeat([]engine.ID{ids["slow"]}, n)}
				get := &engine.Get{Queue: "q", ID: ids["q"]}
				slow := task(func(tx *engine.Tx) error { _, err := tx.Cancel(cancel); return err })
				looks := task(func(tx *engine.Tx) error { _, err := tx.Get(get); return err })
				tasks, got := []*engine.Task{slow, looks}, 0
				for range 5 {
					tasks = append(tasks, task(func(tx *engine.Tx) error {
						ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 2, Block: 0})
						got += len(ds)
						return err
					}))
				}
				e.Submit(tasks)
				synctest.Wait()
				if slow.Done() || got != 10 || n > 1 && !looks.Done() {
					t.Errorf("the lookup is done: %v; meanwhile %d of 10 messages were delivered, and another one was looked up: %v", slow.Done(), got, looks.Done())
				}
				close(store.gate)
				synctest.Wait()
				if !slow.Done() || !looks.Done() {
					t.Errorf("done: %v and %v", slow.Done(), looks.Done())
				}
			})
		})
	}
}

// scanned is a store whose scans of messages wait until a gate is opened, and are counted.
type scanned struct {
	*storage.Memory
	gate       chan struct{} // nil: they do not wait
	began, now atomic.Int64  // scans that have begun, and those that wait
}

func (s *scanned) Scan(f storage.Family, from, to []byte) storage.Iterator {
	if f == storage.Messages && s.gate != nil {
		s.began.Add(1)
		s.now.Add(1)
		<-s.gate
		s.now.Add(-1)
	}
	return s.Memory.Scan(f, from, to)
}

// Searches would take the processors from the loop and from connections if they ran all at the same time. When the engine
// stops, what asks for those that have not begun is refused.
func TestSearchesRunOneAtATimeUntilTheEngineStops(t *testing.T) {
	store := &scanned{Memory: storage.NewMemory()}
	bubble(t, engine.DefaultConfig(), store, func(e *loop.Engine) {
		_ = ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{NoDLQ: true}) })
		if err := enqueueTo(t, e, "q"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		store.gate = make(chan struct{}) // inside the bubble
		var tasks []*engine.Task
		for n := range 4 {
			req := &engine.Browse{Queue: "q", Count: 10, Filter: &engine.Filter{Payload: []byte("m")}}
			tasks = append(tasks, &engine.Task{
				Client: engine.NewClient(uint64(n+2), func() {}),
				Call:   callFunc(func(tx *engine.Tx) error { _, _, err := tx.Browse(req); return err }),
			})
		}
		answered := func() (n int) {
			for _, t := range tasks {
				if t.Done() && t.Err() == nil {
					n++
				}
			}
			return n
		}
		e.Submit(tasks)
		for n := range 2 {
			synctest.Wait()
			if store.now.Load() != 1 || store.began.Load() != int64(n+1) || answered() != n {
				t.Errorf("%d searches run, %d have begun, and %d of %d are answered", store.now.Load(), store.began.Load(), answered(), n)
			}
			store.gate <- struct{}{}
		}
		synctest.Wait()
		e.Stop()
		synctest.Wait()
		close(store.gate)
		synctest.Wait()
		if store.began.Load() != 3 || answered() != 2 {
			t.Errorf("%d searches have begun before the stop and after it, and %d are answered", store.began.Load(), answered())
		}
		for _, task := range tasks {
			if !task.Done() || task.Err() != nil && !errors.Is(task.Err(), engine.ErrStopped) {
				t.Errorf("done: %v, with %v", task.Done(), task.Err())
			}
		}
	})
}
