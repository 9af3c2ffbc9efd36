package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/storage"
)

// What must not hold up others, and what must not be forgotten while it waits.

// fill enqueues n messages of a key into "q" and returns their ids. ttl may be nil.
func (w *world) fill(key string, n int, ttl func(i int) time.Duration) (ids []ID) {
	w.t.Helper()
	for i := 0; i < n; {
		tasks := make([]*Task, min(n-i, 1000))
		for j := range tasks {
			req := &Enqueue{Queue: "q", Key: key, Payload: []byte("m")}
			if ttl != nil {
				req.TTL = ttl(i)
			}
			if err := w.Prepare(req); err != nil {
				w.t.Fatal(err)
			}
			tasks[j] = &Task{Call: callFunc(func(tx *Tx) error { id, err := tx.Enqueue(req); ids = append(ids, id); return err })}
			i++
		}
		w.Do(tasks...)
	}
	return ids
}

// A key stands in the lines for reads once, also while nobody may read ahead.
func TestAKeyStandsOnceInLineForReads(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no room for bodies":   func(c *Config) { c.Window, c.BodyBytes = 8, 0 },
		"no room for messages": func(c *Config) { c.Window, c.WindowTotal = 8, 8 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			w.queue("q", QueueOptions{})
			w.fill("other", 100, nil)
			w.must(func(tx *Tx) error { return tx.PauseKey("q", "other", true) })
			w.fill("k", 2000, nil)
			for range 200 {
				var receipts []Receipt
				for _, d := range w.lease("q", 10) {
					receipts = append(receipts, d.Receipt)
				}
				w.must(func(tx *Tx) error { _, err := tx.Ack("q", receipts); return err })
			}
			if n := len(w.core.hungry) + len(w.core.starving); n > 4 {
				t.Errorf("two keys stand %d times in line", n)
			}
		})
	}
}

// What a client has sent behind its wait goes before what it sends afterwards, also if
// that is there when the wait ends, or when the memory is built anew.
func TestWhatAWaitHeldBackGoesFirst(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"its time is over": func(w *world) { w.now = w.now.Add(time.Second) },
		"the store failed": func(w *world) { w.recoverInPlace() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			cl := NewClient(1, func() {})
			var order []string
			say := func(what string) *Task {
				return &Task{Client: cl, Call: callFunc(func(*Tx) error { order = append(order, what); return nil })}
			}
			w.Do(&Task{Client: cl, Call: callFunc(func(tx *Tx) error {
				_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Second})
				return err
			})}, say("first"), say("second"))
			end(w)
			w.Do(say("third"))
			w.Advance(time.Second)
			if got := fmt.Sprint(order); got != "[first second third]" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// blind is a store that cannot be read while it is broken.
type blind struct {
	*storage.Memory
	broken bool
}

var errBlind = errors.New("i/o error")

func (s *blind) Get(f storage.Family, key []byte) ([]byte, error) {
	if s.broken {
		return nil, errBlind
	}
	return s.Memory.Get(f, key)
}

func (s *blind) Reopen() error {
	if s.broken {
		return errBlind
	}
	return s.Memory.Reopen()
}

// A store that can neither be written nor read takes nobody's answer away.
func TestWhoWaitsIsAnsweredAfterAStoreThatCouldNotBeRead(t *testing.T) {
	store := &blind{Memory: storage.NewMemory()}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.queue("empty", QueueOptions{})
	w.enqueue("q", "k", "m")
	cl := NewClient(1, func() {})
	wait := &Task{Client: cl, Call: callFunc(func(tx *Tx) error {
		_, err := tx.Lease(&LeaseRequest{Queues: []string{"empty"}, Count: 1, Block: 0})
		return err
	})}
	behind := &Task{Client: cl, Call: callFunc(func(*Tx) error { return nil })}
	w.Do(wait, behind)
	store.broken = true
	store.FailCommits(errBlind)
	req := &Enqueue{Queue: "q", Payload: []byte("m")}
	if err := w.Prepare(req); err != nil {
		t.Fatal(err)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.Enqueue(req); return err }); !errors.Is(err, ErrMisconf) {
		t.Errorf("enqueue: %v", err)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.QueueInfo("q"); return err }); !errors.Is(err, ErrMisconf) {
		t.Errorf("a queue that cannot be read: %v", err)
	}
	store.broken = false
	store.FailCommits(nil)
	if err := w.Mend(); err != nil {
		t.Fatal(err)
	}
	w.Do()
	if !wait.Done() || !behind.Done() {
		t.Errorf("answered: the wait %v, what was behind it %v", wait.Done(), behind.Done())
	}
	if wait.Done() && !errors.Is(wait.Err(), ErrMisconf) {
		t.Errorf("the wait ended with %v", wait.Err())
	}
	if n := len(w.lease("q", 10)); n != 1 {
		t.Errorf("%d messages are there, want 1", n)
	}
}

// A slow hook holds up nobody who does not ask it: here somebody who wants to see a
// message, in the same batch.
func TestASlowVerdictHoldsUpNoReads(t *testing.T) {
	bubble(t, DefaultConfig(), storage.NewMemory(), func(e *Engine) {
		gate := make(chan struct{})
		_ = ask(e, func(tx *Tx) error {
			return errors.Join(tx.CreateQueue("slow", QueueOptions{}), tx.CreateQueue("q", QueueOptions{}), tx.LoadScript("slow", slowVerdict{simHook{HookFailure}, gate}))
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

// counted is a store that counts the iterators that are open: as long as there is one, a
// store cannot be closed.
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

// An engine that cannot start leaves nothing open.
func TestAStartThatFailsLeavesNoIteratorOpen(t *testing.T) {
	store := &counted{Memory: storage.NewMemory()}
	store.FailCommits(errors.New("no space left"))
	e, err := New(DefaultConfig(), store)
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
