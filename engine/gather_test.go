package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

// batches are the settings of a queue whose keys gather n messages, for at most 10 seconds.
func batches(n uint64) QueueOptions {
	return QueueOptions{Given: queueset.Given{queueset.Batch: n, queueset.BatchWait: 10_000, queueset.Backoff: 0, queueset.Visibility: 2_000}}
}

func TestAKeyGathersUntilItHasABatch(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", batches(3))
	w.putKey("q", "a", 1, 2)
	w.putKey("q", "b", 1, 2)
	if got := w.batch(9, "q"); got != "" {
		t.Fatalf("%s is delivered, and no key has a batch", got)
	}
	i := w.key("q", "a")
	if i.State != KeyGathering || i.Reason != "it has 2 of 3 messages of a batch, and waits for more until "+i.ReadyAt.UTC().Format(time.RFC3339Nano) || !i.ReadyAt.Equal(w.Now().Add(10*time.Second)) {
		t.Errorf("%v until %v: %s", i.State, i.ReadyAt, i.Reason)
	}
	w.putKey("q", "b", 3, 4)
	if got := w.batch(3, "q"); got != "b1 b2 b3" {
		t.Errorf("b has a batch, and %q is delivered", got)
	}
	if i := w.key("q", "b"); i.State != KeyGathering {
		t.Errorf("b has one message left and is %v", i.State)
	}
	w.Advance(10 * time.Second)
	if got := w.batch(9, "q") + " " + w.batch(9, "q"); got != "a1 a2 b4" && got != "b4 a1 a2" {
		t.Errorf("both have waited, and %q is delivered", got)
	}
}

// Each lease has the key judged anew, from the enqueue of its first message.
func TestALeaseHasAKeyGatherAnew(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", batches(3))
	w.putKey("q", "a", 1, 1)
	w.Advance(4 * time.Second)
	w.putKey("q", "a", 2, 4)
	if got := w.take(w.lease("q", 9)); got != "a1 a2" {
		t.Fatalf("a lease without SAMEKEY has %q", got)
	}
	if i := w.key("q", "a"); !i.ReadyAt.Equal(w.Now().Add(10 * time.Second)) {
		t.Errorf("the others were enqueued now, and gather until %v, it is %v", i.ReadyAt, w.Now())
	}
	w.Advance(10*time.Second - 1)
	if got := w.batch(9, "q"); got != "" {
		t.Errorf("too early: %q", got)
	}
	w.Advance(1)
	if got := w.batch(9, "q"); got != "a3 a4" {
		t.Errorf("in time: %q", got)
	}
}

// A consumer that waits is served when the time of a key has come.
func TestAConsumerWaitsForABatch(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", batches(3))
	var ds []*Delivery
	req := &LeaseRequest{Queues: []string{"q"}, Count: 9, SameKey: true, Block: 0}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })}
	w.Do(task)
	w.putKey("q", "a", 1, 2)
	w.Advance(9 * time.Second)
	if task.Done() {
		t.Fatal("it has not waited")
	}
	w.Advance(time.Second)
	if got := w.take(ds); !task.Done() || got != "a1 a2" {
		t.Errorf("done %v with %q", task.Done(), got)
	}
}

func TestDelayedMessagesAreNotGathered(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.DueWindow = 2 })
	w.queue("q", batches(2))
	for i := range 4 {
		w.send(Enqueue{Queue: "q", Key: "a", Delay: 5 * time.Second, Payload: fmt.Appendf(nil, "d%d", i)})
	}
	w.putKey("q", "a", 1, 1)
	if got := w.batch(9, "q"); got != "" {
		t.Errorf("delayed messages count: %q", got)
	}
	w.Advance(5 * time.Second)
	if got := w.batch(9, "q"); len(strings.Fields(got)) != 5 {
		t.Errorf("all are ready, and the batch is %q", got)
	}
}

func TestWhatHasFailedOrWasRedrivenCountsAsWaited(t *testing.T) {
	w := newWorld(t, nil)
	o := batches(3)
	o.Given[queueset.MaxAttempts] = 3
	w.queue("q", o)
	w.putKey("q", "a", 1, 3)
	ds := w.lease("q", 1)
	w.take(w.lease("q", 9))
	if i := w.key("q", "a"); i.State != KeyGathering {
		t.Fatalf("%v", i.State)
	}
	w.nackFor(ds[0], 0) // ready at once, with two others
	if ds = w.lease("q", 1); payloads(ds) != "a1" {
		t.Fatalf("after a nack: %q", payloads(ds))
	}
	w.Advance(2 * time.Second) // the lease expires
	if ds = w.lease("q", 1); payloads(ds) != "a1" {
		t.Fatalf("after the end of its lease: %q", payloads(ds))
	}
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: "q", Receipt: ds[0].Receipt, Dead: true})
		return err
	})
	w.batch(9, "q")
	w.Advance(20 * time.Second)
	w.batch(9, "q")
	redrive := &Redrive{DLQ: "q.dlq"}
	w.must(func(tx *Tx) error { _, err := tx.Redrive(redrive); return err })
	if got := w.batch(9, "q"); !strings.HasPrefix(got, "a1") {
		t.Errorf("after a redrive: %q", got)
	}
}

func TestADeadLetterQueueDoesNotGather(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", batches(3))
	var i QueueInfo
	w.must(func(tx *Tx) (err error) { i, err = tx.QueueInfo("q.dlq"); return err })
	if i.Values[queueset.Batch] != 0 || i.Values[queueset.BatchWait] != 0 {
		t.Errorf("it has inherited %d and %d", i.Values[queueset.Batch], i.Values[queueset.BatchWait])
	}
}

// After a restart the messages are on disk only, and not counted at first.
func TestKeysGatherAfterARestart(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Window = 2 })
	w.queue("q", batches(5))
	w.putKey("q", "a", 1, 5)
	w.putKey("q", "b", 1, 4)
	w.Advance(4 * time.Second)
	w.restart()
	if got := w.batch(9, "q"); got != "a1 a2 a3 a4 a5" {
		t.Errorf("a has a batch on disk, and %q is delivered", got)
	}
	if i := w.key("q", "b"); i.State != KeyGathering {
		t.Errorf("b has 4 of 5 messages and is %v", i.State)
	}
	w.Advance(6*time.Second + time.Microsecond) // ids run ahead of the time
	if got := w.batch(9, "q"); got != "b1 b2 b3 b4" {
		t.Errorf("b has waited since the enqueue of its first message, and %q is delivered", got)
	}
}

func TestAnotherBatchHoldsForKeysThatGather(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", batches(3))
	alter := func(n, wait uint64) {
		t.Helper()
		w.must(func(tx *Tx) error {
			return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.Batch: n, queueset.BatchWait: wait}})
		})
		w.Advance(0)
	}
	w.putKey("q", "a", 1, 2)
	alter(2, 10_000)
	if got := w.batch(9, "q"); got != "a1 a2" {
		t.Errorf("a has a batch now, and %q is delivered", got)
	}
	w.putKey("q", "a", 3, 3)
	w.Advance(5 * time.Second)
	alter(2, 4_000)
	if got := w.batch(9, "q"); got != "a3" {
		t.Errorf("a has waited now, and %q is delivered", got)
	}
	w.putKey("q", "a", 4, 4)
	alter(0, 4_000)
	w.putKey("q", "b", 1, 1)
	if got := w.take(w.lease("q", 9)); got != "a4 b1" {
		t.Errorf("nothing gathers any more, and %q is delivered", got)
	}
	w.putKey("q", "a", 5, 5)
	w.Advance(time.Second)
	alter(2, 10_000)
	if i := w.key("q", "a"); i.State != KeyGathering || i.ReadyAt.Sub(w.Now()).Round(time.Microsecond) != 9*time.Second {
		t.Errorf("a gathers from its enqueue on, and is %v until %v, it is %v", i.State, i.ReadyAt, w.Now())
	}
	w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	w.Advance(time.Minute)
}
