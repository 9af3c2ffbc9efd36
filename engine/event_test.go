package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// heard collects the events of a stepper, as "kind queue".
func (w *world) heard(kinds EventKind) *[]string {
	var all []string
	w.Listen(func(events []Event) {
		for _, ev := range events {
			all = append(all, ev.Kind.String()+" "+ev.Queue)
		}
	})
	w.Want(kinds)
	return &all
}

func wantHeard(t *testing.T, got *[]string, want ...string) {
	t.Helper()
	if !slices.Equal(*got, want) {
		t.Errorf("heard %q, want %q", *got, want)
	}
	*got = nil
}

const everyEvent = EventLost<<1 - 1

func TestEventsAreSentOnlyAfterADurableCommit(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	got := w.heard(everyEvent &^ EventReady) // a recovery repeats ready events
	store.FailCommits(errors.New("no space left on device"))
	for _, call := range []func(tx *Tx) error{
		func(tx *Tx) error { return tx.CreateQueue("r", QueueOptions{}) },
		func(tx *Tx) error { return tx.DeleteQueue("q", true) },
	} {
		if err := w.do(call); !errors.Is(err, ErrMisconf) {
			t.Fatal(err)
		}
	}
	wantHeard(t, got)
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	wantHeard(t, got)
	w.enqueue("q", "", "x")
	wantHeard(t, got, "enqueued q")
}

// Events of a batch are not sent before the committer has finished it.
func TestEventsWaitForTheirCommit(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	got := w.heard(EventCreated)
	late := true
	w.Lazy = func() bool { return late }
	task := &Task{Call: callFunc(func(tx *Tx) error { return tx.CreateQueue("r", QueueOptions{NoDLQ: true}) })}
	w.Do(task)
	if task.Done() {
		t.Fatal("done before its commit")
	}
	wantHeard(t, got)
	late = false
	w.Do()
	wantHeard(t, got, "created r")
}

func TestOnlySubscribedKindsOfEventsAreSent(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for _, kind := range EventKinds() {
		got := w.heard(kind)
		w.enqueue("q", "", "x")
		d := w.lease("q", 1)
		w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d[0].Receipt}); return err })
		for _, ev := range *got {
			if !strings.HasPrefix(ev, kind.String()+" ") {
				t.Errorf("%v is wanted, heard %q", kind, ev)
			}
		}
	}
}

// A purge takes what a ready event has announced: the next message is announced again.
func TestAReadyEventFollowsAPurge(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	got := w.heard(EventReady)
	w.enqueue("q", "a", "1")
	wantHeard(t, got, "ready q")
	w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	w.enqueue("q", "a", "2")
	wantHeard(t, got, "ready q")
}

// A consumer that got an empty reply is notified of the next message, also if it came in
// the same turn. A waiting consumer gets the message instead of the event.
func TestAReadyEventFollowsAnEmptyReply(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.queue("other", QueueOptions{})
	got := w.heard(EventReady)
	w.enqueue("q", "a", "1")
	wantHeard(t, got, "ready q")
	w.enqueue("q", "b", "2") // no empty reply since the last event
	wantHeard(t, got)
	// In one turn: the two messages, an empty reply, and one more message.
	req := &Enqueue{Queue: "q", Payload: []byte("3")}
	if err := w.Prepare(req); err != nil {
		t.Fatal(err)
	}
	var first, second []*Delivery
	w.must(func(tx *Tx) (err error) {
		first, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 2, Block: -1})
		if err == nil {
			second, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
		}
		if err == nil {
			_, err = tx.Enqueue(req)
		}
		return err
	})
	if len(first) != 2 || len(second) != 0 {
		t.Fatalf("leased %d and %d", len(first), len(second))
	}
	wantHeard(t, got, "ready q")
	w.lease("q", 1)
	waiter := &Task{Call: callFunc(func(tx *Tx) error {
		_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0})
		return err
	}), Client: NewClient(1, func() {})}
	w.Do(waiter)
	w.enqueue("q", "a", "4")
	wantHeard(t, got)
	if !waiter.Done() {
		t.Error("the waiter got nothing")
	}
}

func TestAnEmptyEventFollowsTheLastMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	got := w.heard(EventEmpty)
	w.enqueue("q", "", "1")
	w.enqueue("q", "", "2")
	ds := w.lease("q", 2)
	for i, want := range [][]string{nil, {"empty q"}} {
		w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[i].Receipt}); return err })
		wantHeard(t, got, want...)
	}
	w.enqueue("q", "", "3")
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) }) // a deleted queue is not empty
	wantHeard(t, got)
}
