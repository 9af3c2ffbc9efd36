package engine

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// slowEnqueue is an on_enqueue hook that takes a minute.
type slowEnqueue struct{ simHook }

func (slowEnqueue) OnEnqueue(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.EnqueueDecision, error) {
	time.Sleep(time.Minute)
	return hook.EnqueueDecision{}, nil
}

// A round runs up to 64 hooks; other off-loop reads do not wait for them.
func TestReadsDoNotWaitForTheHooksOfTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storage.NewMemory()
		w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
		w.queue("q", QueueOptions{})
		w.cron(minutely(CatchUpAll))
		e, err := New(DefaultConfig(), store)
		if err != nil {
			t.Fatal(err)
		}
		tick := w.core.cron.Take(w.core.cron.Get("m"))
		w.core.cron.Release(tick)
		round := &cronRound{
			jobs:     []*cronJob{{Tick: tick}},
			snapshot: (&Snapshot{}).withHook("q", hook.OnEnqueue, slowEnqueue{}), limits: DefaultConfig().Limits,
		}
		first, second := &page{}, &page{}
		e.startJobs(&work{jobs: []job{first, round, second}})
		synctest.Wait()
		e.mu.Lock()
		if len(e.inbox) != 2 || e.inbox[0].Call != first || e.inbox[1].Call != second {
			t.Errorf("%d results before the hook has answered, want those of the two reads", len(e.inbox))
		}
		e.mu.Unlock()
		e.background.Wait()
		if n := len(e.inbox); n != 3 || e.inbox[2].Call != round || round.jobs[0].err != nil {
			t.Errorf("%d results at the end", n)
		}
	})
}

// A slow hook delays no client that does not need it: here a read of a message in the same
// batch.
func TestASlowHookDelaysNoReads(t *testing.T) {
	bubble(t, DefaultConfig(), storage.NewMemory(), func(e *Engine) {
		gate := make(chan struct{})
		_ = ask(e, func(tx *Tx) error {
			return errors.Join(tx.CreateQueue("slow", QueueOptions{}), tx.CreateQueue("q", QueueOptions{}), tx.LoadScript("slow", slowVerdict{simHook{hook.OnFailure}, gate}, ""))
		})
		ids := map[string]ID{}
		for _, queue := range []string{"slow", "q"} {
			req := &Enqueue{Queue: queue, Payload: []byte("m")}
			if err := e.Prepare(req); err != nil {
				t.Fatal(err)
			}
			_ = ask(e, func(tx *Tx) (err error) { ids[queue], err = tx.Enqueue(req); return err })
		}
		var ds []*Delivery
		_ = ask(e, func(tx *Tx) (err error) {
			ds, err = tx.Lease(&LeaseRequest{Queues: []string{"slow"}, Count: 1, Block: -1})
			return err
		})
		nack := &Nack{Queue: "slow", Receipt: ds[0].Receipt, Delay: -1}
		get := &Get{Queue: "q", ID: ids["q"]}
		asks := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Nack(nack); return err })}
		looks := &Task{Client: NewClient(2, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Get(get); return err })}
		e.Submit([]*Task{asks, looks})
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
	for name, n := range map[string]int{"one": 1, "very many": lookupLong} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Window = 2
			store := &gated{Memory: storage.NewMemory()}
			bubble(t, cfg, store, func(e *Engine) {
				store.gate = make(chan struct{}) // inside the bubble
				_ = ask(e, func(tx *Tx) error {
					return errors.Join(tx.CreateQueue("slow", QueueOptions{NoDLQ: true}), tx.CreateQueue("q", QueueOptions{NoDLQ: true}))
				})
				ids := map[string]ID{}
				for i := range 11 {
					req := &Enqueue{Queue: "q", Payload: []byte("m")}
					if i == 0 {
						req.Queue = "slow"
					}
					if err := e.Prepare(req); err != nil {
						t.Fatal(err)
					}
					_ = ask(e, func(tx *Tx) (err error) { ids[req.Queue], err = tx.Enqueue(req); return err })
				}
				clients := uint64(0)
				task := func(call func(tx *Tx) error) *Task {
					clients++
					return &Task{Client: NewClient(clients, func() {}), Call: callFunc(call)}
				}
				cancel := &Cancel{Queue: "slow", IDs: slices.Repeat([]ID{ids["slow"]}, n)}
				get := &Get{Queue: "q", ID: ids["q"]}
				slow := task(func(tx *Tx) error { _, err := tx.Cancel(cancel); return err })
				looks := task(func(tx *Tx) error { _, err := tx.Get(get); return err })
				tasks, got := []*Task{slow, looks}, 0
				for range 5 {
					tasks = append(tasks, task(func(tx *Tx) error {
						ds, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 2, Block: 0})
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

// slowVerdict is an on_failure hook that the test holds as long as it needs.
type slowVerdict struct {
	simHook
	gate chan struct{}
}

func (h slowVerdict) OnFailure(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.FailureDecision, error) {
	<-h.gate
	return hook.FailureDecision{Action: hook.FailureRetry, Delay: new(time.Hour)}, nil
}
