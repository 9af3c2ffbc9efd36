package loop_test

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

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// The loop in a synctest bubble: real goroutines, simulated time.

func bubble(t *testing.T, cfg engine.Config, store engine.Store, run func(e *loop.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := loop.New(cfg, store)
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
func ask(e *loop.Engine, call func(tx *engine.Tx) error) error {
	woken := make(chan struct{}, 1)
	task := &engine.Task{Call: callFunc(call), Client: engine.NewClient(1, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})}
	e.Submit([]*engine.Task{task})
	for !task.Done() {
		<-woken
	}
	return task.Err()
}

func TestTheLoopServesABlockedLease(t *testing.T) {
	bubble(t, engine.DefaultConfig(), storage.NewMemory(), func(e *loop.Engine) {
		if err := ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) }); err != nil {
			t.Fatal(err)
		}
		got := make(chan int, 1)
		go func() {
			var ds []*engine.Delivery
			req := &engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Hour}
			_ = ask(e, func(tx *engine.Tx) (err error) { ds, err = tx.Lease(req); return err })
			got <- len(ds)
		}()
		time.Sleep(30 * time.Minute)
		req := &engine.Enqueue{Queue: "q", Payload: []byte("m")}
		if err := e.Prepare(req); err != nil {
			t.Fatal(err)
		}
		if err := ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err }); err != nil {
			t.Fatal(err)
		}
		if n := <-got; n != 1 {
			t.Errorf("got %d messages", n)
		}
	})
}

func TestALeaseThatWaitsEndsOnTime(t *testing.T) {
	bubble(t, engine.DefaultConfig(), storage.NewMemory(), func(e *loop.Engine) {
		_ = ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
		began := time.Now()
		req := &engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 90 * time.Second}
		err := ask(e, func(tx *engine.Tx) error { _, err := tx.Lease(req); return err })
		if d := time.Since(began); err != nil || d != 90*time.Second {
			t.Errorf("came back after %v with %v", d, err)
		}
	})
}

func TestAFullDiskRefusesWritesUntilItHasSpace(t *testing.T) {
	store := storage.NewMemory()
	bubble(t, engine.DefaultConfig(), store, func(e *loop.Engine) {
		_ = ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
		enqueue := func() error {
			req := &engine.Enqueue{Queue: "q", Payload: []byte("m")}
			if err := e.Prepare(req); err != nil {
				return err
			}
			return ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		store.FailCommits(errors.New("no space left on device"))
		for range 3 {
			if err := enqueue(); !errors.Is(err, engine.ErrMisconf) {
				t.Errorf("with a full disk: %v", err)
			}
			time.Sleep(2 * time.Second)
		}
		var s engine.Stats
		if err := ask(e, func(tx *engine.Tx) error { s = tx.Stats(); return nil }); err != nil || s.Writable || s.Ready != 1 {
			t.Errorf("reads should go on: %v, %+v", err, s)
		}
		store.FailCommits(nil)
		time.Sleep(2 * time.Second)
		if err := enqueue(); err != nil {
			t.Errorf("with space again: %v", err)
		}
		_ = ask(e, func(tx *engine.Tx) error { s = tx.Stats(); return nil })
		if s.Ready != 2 || !s.Writable {
			t.Errorf("got %+v", s)
		}
	})
}

func TestStopAnswersEveryClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := loop.New(engine.DefaultConfig(), storage.NewMemory())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(context.Background()) }()
		<-e.Ready()
		_ = ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
		answers := make(chan error, 1)
		go func() {
			req := &engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0}
			answers <- ask(e, func(tx *engine.Tx) error { _, err := tx.Lease(req); return err })
		}()
		synctest.Wait()
		e.Stop()
		if err := <-answers; err != nil {
			t.Errorf("the one who waited: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := ask(e, func(*engine.Tx) error { return nil }); !errors.Is(err, engine.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestAFullInboxBlocksItsSenders(t *testing.T) {
	cfg := engine.DefaultConfig()
	cfg.InboxTasks = 4
	gate := &gatedStore{Memory: storage.NewMemory(), open: make(chan struct{}, 1)}
	gate.open <- struct{}{}
	bubble(t, cfg, gate, func(e *loop.Engine) {
		const n = 100
		results := make(chan error, n)
		for range n {
			go func() { results <- ask(e, func(tx *engine.Tx) error { _, err := tx.Queues(); return err }) }()
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
		e, err := loop.New(engine.DefaultConfig(), storage.NewMemory())
		if err != nil {
			t.Fatal(err)
		}
		var sent, lost uint64
		hold := make(chan struct{})
		e.Listen(func(events []engine.Event) {
			<-hold
			for _, ev := range events {
				if ev.Kind == engine.EventLost {
					lost += ev.Count
				} else {
					sent++
				}
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		<-e.Ready()
		e.Want(engine.EventCreated)
		const turns = loop.EventsMax/1000 + 10
		for i := range turns {
			done := &engine.Task{Call: callFunc(func(tx *engine.Tx) error {
				for n := range 1000 {
					if err := tx.CreateQueue(fmt.Sprintf("q-%d-%d", i, n), engine.QueueOptions{NoDLQ: true}); err != nil {
						return err
					}
				}
				return nil
			})}
			e.Submit([]*engine.Task{done})
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
		if sent+lost != turns*1000 || lost == 0 || sent < loop.EventsMax {
			t.Errorf("%d were sent, %d lost, of %d", sent, lost, turns*1000)
		}
	})
}

// What a client has submitted is in the store once it has settled; its loss ends the wait.
func TestAClientSettlesWhenItsTasksAreInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gatedStore{Memory: storage.NewMemory(), open: make(chan struct{}, 1)}
		gate.open <- struct{}{}
		cfg := engine.DefaultConfig()
		cfg.Scripts = scripts{}
		e, err := loop.New(cfg, gate)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(context.Background()) }()
		<-e.Ready()
		_ = ask(e, func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
		cl := engine.NewClient(7, func() {})
		<-gate.open // no commit ends
		e.Submit([]*engine.Task{{Client: cl, Call: callFunc(func(tx *engine.Tx) error { return tx.LoadScript("q", textHook{hook.OnEnqueue, "one"}, "") })}})
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
		lease := &engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0}
		e.Submit([]*engine.Task{{Client: cl, Call: callFunc(func(tx *engine.Tx) error { _, err := tx.Lease(lease); return err })}})
		gone := make(chan struct{})
		go func() { settles <- e.Settle(cl, gone) }()
		synctest.Wait()
		close(gone)
		if err := <-settles; !errors.Is(err, engine.ErrClientGone) {
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
	cfg := engine.DefaultConfig()
	cfg.Log = zerolog.New(&log)
	synctest.Test(t, func(t *testing.T) {
		var b storage.Batch
		b.Put(storage.State, storage.AppendStateKey(nil, storage.StateNow), storage.EncodeUint(uint64(time.Now().Add(time.Hour).UnixNano())))
		if err := store.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
	})
	bubble(t, cfg, store, func(e *loop.Engine) {
		var s engine.Stats
		if err := ask(e, func(tx *engine.Tx) error { s = tx.Stats(); return nil }); err != nil || s.ClockBehind != time.Hour {
			t.Errorf("the clock is behind by %v, %v", s.ClockBehind, err)
		}
	})
	if got := log.String(); strings.Count(got, `"behind_ms":3600000`) != 1 {
		t.Errorf("the log is %q", got)
	}
}

// counted is a store that counts open iterators: a store with an open iterator cannot be
// closed.
type counted struct {
	*storage.Memory
	open int
}

type countedIterator struct {
	storage.Iterator
	of *counted
}

func (s *counted) Scan(f storage.Family, from, to []byte) storage.Iterator {
	s.open++
	return &countedIterator{s.Memory.Scan(f, from, to), s}
}

func (i *countedIterator) Close() {
	i.of.open--
	i.Iterator.Close()
}

// An engine that cannot start closes all iterators.
func TestAStartThatFailsLeavesNoIteratorOpen(t *testing.T) {
	store := &counted{Memory: storage.NewMemory()}
	store.FailCommits(errors.New("no space left"))
	e, err := loop.New(engine.DefaultConfig(), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil {
		t.Error("it started")
	}
	if store.open != 0 {
		t.Errorf("%d iterators are open", store.open)
	}
}
