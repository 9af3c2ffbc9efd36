package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// A queue that was created to be named as a DLQ becomes one. A queue that is in use, or
// that was given a dead-letter queue by name, does not change.
func TestAnUnusedQueueCanBecomeADLQ(t *testing.T) {
	store := storage.NewMemory()
	now := time.Unix(1_700_000_000, 0)
	w := openWorld(t, store, now, nil)
	for _, name := range []string{"dead", "busy", "idle", "other"} {
		w.queue(name, QueueOptions{})
	}
	w.queue("chosen", QueueOptions{DLQ: new("other")})
	w.enqueue("busy", "k", "p")
	w.enqueue("idle", "k", "p")
	if d := w.lease("idle", 1); len(d) != 1 {
		t.Fatal("nothing to lease")
	} else {
		w.must(func(tx *Tx) error { _, err := tx.Ack("idle", []Receipt{d[0].Receipt}); return err })
	}
	for _, name := range []string{"busy", "idle", "chosen"} {
		if err := w.do(func(tx *Tx) error { return tx.CreateQueue("x", QueueOptions{DLQ: &name}) }); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s as a dead-letter queue: %v", name, err)
		}
	}
	w.queue("a", QueueOptions{Given: queueset.Given{queueset.MaxAttempts: 1}, DLQ: new("dead")})
	w = openWorld(t, store, now, nil)
	if q := w.core.queues.byName["dead"]; !q.isDLQ() || q.set.DLQ != "" || q.set.Values[queueset.MaxAttempts] != 0 {
		t.Errorf("after being named: %+v", q.set)
	}
	if q := w.core.queues.byName["other"]; !q.isDLQ() || q.set.DLQ != "" {
		t.Errorf("after being named: %+v", q.set)
	}
}

func TestANameOfFullLengthHasADeadLetterQueue(t *testing.T) {
	store := storage.NewMemory()
	now := time.Unix(1_700_000_000, 0)
	w := openWorld(t, store, now, nil)
	long := strings.Repeat("x", 255)
	w.queue(long, QueueOptions{})
	w.enqueue(long, "k", "p")
	d := w.lease(long, 1)
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: long, Receipt: d[0].Receipt, Dead: true})
		return err
	})
	w = openWorld(t, store, now, nil)
	if n := len(w.lease(long+DLQSuffix, 1)); n != 1 {
		t.Errorf("%d dead messages", n)
	}
	w.queue("short", QueueOptions{DLQ: new(long + DLQSuffix)})
	if _, err := w.applyQueues(QueueSet{Queues: []QueueSpec{spec(long), spec("third", dlq(long+DLQSuffix))}}); err != nil {
		t.Error(err)
	}
}

// Any number of waiting replies share one list of the queues' names, and the list is always
// current.
func TestTheNamesOfTheQueuesAreSharedAndFresh(t *testing.T) {
	w := newWorld(t, nil)
	names := func() (list []string) {
		w.must(func(tx *Tx) (err error) { list, err = tx.Queues(); return err })
		return list
	}
	w.queue("b", QueueOptions{NoDLQ: true})
	first, second := names(), names()
	if &first[0] != &second[0] {
		t.Error("each has a list of its own")
	}
	w.queue("a", QueueOptions{NoDLQ: true})
	if got := names(); !slices.Equal(got, []string{"a", "b"}) || !slices.Equal(first, []string{"b"}) {
		t.Errorf("%v, and those who asked before see %v", got, first)
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("b", false) })
	if got := names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after the end of one: %v", got)
	}
	w = openWorld(t, w.store, w.now, nil)
	if got := names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after a restart: %v", got)
	}
}
