package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// The loop in a synctest bubble: real goroutines, simulated time.

func bubble(t *testing.T, cfg Config, store Store, run func(e *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := New(cfg, store)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(context.Background()) }()
		<-e.Ready()
		run(e)
		e.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// ask submits a call and waits for its completion.
func ask(e *Engine, call func(tx *Tx) error) error {
	woken := make(chan struct{}, 1)
	task := &Task{Call: callFunc(call), Client: NewClient(1, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})}
	e.Submit([]*Task{task})
	for !task.Done() {
		<-woken
	}
	return task.Err()
}

func TestTheLoopServesABlockedLease(t *testing.T) {
	bubble(t, DefaultConfig(), storage.NewMemory(), func(e *Engine) {
		if err := ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		got := make(chan int, 1)
		go func() {
			var ds []*Delivery
			req := &LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Hour}
			_ = ask(e, func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })
			got <- len(ds)
		}()
		time.Sleep(30 * time.Minute)
		req := &Enqueue{Queue: "q", Payload: []byte("m")}
		if err := e.Prepare(req); err != nil {
			t.Fatal(err)
		}
		if err := ask(e, func(tx *Tx) error { _, err := tx.Enqueue(req); return err }); err != nil {
			t.Fatal(err)
		}
		if n := <-got; n != 1 {
			t.Errorf("got %d messages", n)
		}
	})
}

func TestALeaseThatWaitsEndsOnTime(t *testing.T) {
	bubble(t, DefaultConfig(), storage.NewMemory(), func(e *Engine) {
		_ = ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })
		began := time.Now()
		req := &LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 90 * time.Second}
		err := ask(e, func(tx *Tx) error { _, err := tx.Lease(req); return err })
		if d := time.Since(began); err != nil || d != 90*time.Second {
			t.Errorf("came back after %v with %v", d, err)
		}
	})
}

func TestAFullDiskRefusesWritesUntilItHasSpace(t *testing.T) {
	store := storage.NewMemory()
	bubble(t, DefaultConfig(), store, func(e *Engine) {
		_ = ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })
		enqueue := func() error {
			req := &Enqueue{Queue: "q", Payload: []byte("m")}
			if err := e.Prepare(req); err != nil {
				return err
			}
			return ask(e, func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
		}
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		store.FailCommits(errors.New("no space left on device"))
		for range 3 {
			if err := enqueue(); !errors.Is(err, ErrMisconf) {
				t.Errorf("with a full disk: %v", err)
			}
			time.Sleep(2 * time.Second)
		}
		var s Stats
		if err := ask(e, func(tx *Tx) error { s = tx.Stats(); return nil }); err != nil || s.Writable || s.Ready != 1 {
			t.Errorf("reads should go on: %v, %+v", err, s)
		}
		store.FailCommits(nil)
		time.Sleep(2 * time.Second)
		if err := enqueue(); err != nil {
			t.Errorf("with space again: %v", err)
		}
		_ = ask(e, func(tx *Tx) error { s = tx.Stats(); return nil })
		if s.Ready != 2 || !s.Writable {
			t.Errorf("got %+v", s)
		}
	})
}

func TestStopAnswersEveryClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(DefaultConfig(), storage.NewMemory())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(context.Background()) }()
		<-e.Ready()
		_ = ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })
		answers := make(chan error, 1)
		go func() {
			req := &LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0}
			answers <- ask(e, func(tx *Tx) error { _, err := tx.Lease(req); return err })
		}()
		synctest.Wait()
		e.Stop()
		if err := <-answers; err != nil {
			t.Errorf("the one who waited: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := ask(e, func(*Tx) error { return nil }); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestAFullInboxBlocksItsSenders(t *testing.T) {
	cfg := DefaultConfig()
	cfg.InboxTasks = 4
	gate := &gatedStore{Memory: storage.NewMemory(), open: make(chan struct{}, 1)}
	gate.open <- struct{}{}
	bubble(t, cfg, gate, func(e *Engine) {
		const n = 100
		results := make(chan error, n)
		for range n {
			go func() { results <- ask(e, func(tx *Tx) error { _, err := tx.Queues(); return err }) }()
		}
		for range n {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// gatedStore lets one commit through at a time.
type gatedStore struct {
	*storage.Memory
	open chan struct{}
}

func (s *gatedStore) Commit(b *storage.Batch, sync bool) error {
	<-s.open
	defer func() { s.open <- struct{}{} }()
	return s.Memory.Commit(b, sync)
}

// TestASlowSubscriberLosesEventsAndDelaysNoClient emits many more events than are kept.
func TestASlowSubscriberLosesEventsAndDelaysNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(DefaultConfig(), storage.NewMemory())
		if err != nil {
			t.Fatal(err)
		}
		var sent, lost uint64
		hold := make(chan struct{})
		e.Listen(func(events []Event) {
			<-hold
			for _, ev := range events {
				if ev.Kind == EventLost {
					lost += ev.Count
				} else {
					sent++
				}
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		<-e.Ready()
		e.Want(EventCreated)
		const turns = eventsMax/1000 + 10
		for i := range turns {
			done := &Task{Call: callFunc(func(tx *Tx) error {
				for n := range 1000 {
					if err := tx.CreateQueue(fmt.Sprintf("q-%d-%d", i, n), QueueOptions{NoDLQ: true}); err != nil {
						return err
					}
				}
				return nil
			})}
			e.Submit([]*Task{done})
			synctest.Wait()
			if !done.Done() || done.Err() != nil {
				t.Fatalf("held up: %v", done.Err())
			}
		}
		close(hold)
		e.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if sent+lost != turns*1000 || lost == 0 || sent < eventsMax {
			t.Errorf("%d were sent, %d lost, of %d", sent, lost, turns*1000)
		}
	})
}

// What a client has submitted is in the store once it has settled; its loss ends the wait.
func TestAClientSettlesWhenItsTasksAreInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gatedStore{Memory: storage.NewMemory(), open: make(chan struct{}, 1)}
		gate.open <- struct{}{}
		cfg := DefaultConfig()
		withScripts(&cfg)
		e, err := New(cfg, gate)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(context.Background()) }()
		<-e.Ready()
		_ = ask(e, func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })
		cl := NewClient(7, func() {})
		<-gate.open // no commit ends
		e.Submit([]*Task{{Client: cl, Call: callFunc(func(tx *Tx) error { return tx.LoadScript("q", textHook{simHook{hook.OnEnqueue}, "one"}, "") })}})
		settles := make(chan error)
		go func() { settles <- e.Settle(cl, nil) }()
		synctest.Wait()
		if source, err := e.ScriptSource("q", hook.OnEnqueue, "v-one"); source != "" || err != nil {
			t.Errorf("before the commit there is %q, %v", source, err)
		}
		select {
		case err := <-settles:
			t.Fatalf("it settles before the commit: %v", err)
		default:
		}
		gate.open <- struct{}{}
		if err := <-settles; err != nil {
			t.Error(err)
		}
		if source, err := e.ScriptSource("q", hook.OnEnqueue, "v-one"); source != "one" || err != nil {
			t.Errorf("then there is %q, %v", source, err)
		}
		lease := &LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0}
		e.Submit([]*Task{{Client: cl, Call: callFunc(func(tx *Tx) error { _, err := tx.Lease(lease); return err })}})
		gone := make(chan struct{})
		go func() { settles <- e.Settle(cl, gone) }()
		synctest.Wait()
		close(gone)
		if err := <-settles; !errors.Is(err, ErrClientGone) {
			t.Errorf("a client that is lost settles with %v", err)
		}
		e.Leave(cl)
		e.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheLogTellsThatTheClockWasSetBack(t *testing.T) {
	var log bytes.Buffer
	store := storage.NewMemory()
	cfg := DefaultConfig()
	cfg.Log = zerolog.New(&log)
	synctest.Test(t, func(t *testing.T) {
		var b storage.Batch
		b.Put(storage.State, storage.AppendStateKey(nil, storage.StateNow), storage.EncodeUint(uint64(time.Now().Add(time.Hour).UnixNano())))
		if err := store.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
	})
	bubble(t, cfg, store, func(e *Engine) {
		var s Stats
		if err := ask(e, func(tx *Tx) error { s = tx.Stats(); return nil }); err != nil || s.ClockBehind != time.Hour {
			t.Errorf("the clock is behind by %v, %v", s.ClockBehind, err)
		}
	})
	if got := log.String(); strings.Count(got, `"behind_ms":3600000`) != 1 {
		t.Errorf("the log is %q", got)
	}
}
