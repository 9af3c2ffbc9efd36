package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

func orderedQueue() QueueOptions {
	return QueueOptions{Given: queueset.Given{queueset.Ordered: 1, queueset.Backoff: 1000, queueset.BackoffJitter: 0, queueset.MaxAttempts: 0}}
}

func (w *world) nackFor(d *Delivery, delay time.Duration) {
	w.t.Helper()
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: d.Queue, Receipt: d.Receipt, Error: "no luck", Delay: delay})
		return err
	})
}

func (w *world) ackAll(ds []*Delivery) {
	w.t.Helper()
	for _, d := range ds {
		w.must(func(tx *Tx) error { _, err := tx.Ack(d.Queue, []Receipt{d.Receipt}); return err })
	}
}

// TestARestartKeepsAKeyWaiting: recovery reads all lease records, and only the head of the index of
// due times. So the messages that wait for their next attempt are found however many there are.
func TestARestartKeepsAKeyWaiting(t *testing.T) {
	store := storage.NewMemory()
	few := func(c *Config) { c.DueWindow = 2 }
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), few)
	w.queue("q", orderedQueue())
	for i := range 10 {
		for n := range 3 {
			w.enqueue("q", fmt.Sprint("k", i), fmt.Sprint(n))
		}
	}
	for _, d := range w.lease("q", 100) {
		w.nackFor(d, time.Minute)
	}
	before := w.key("q", "k3")
	w = openWorld(t, store, w.Now().Add(time.Second), few)
	if ds := w.lease("q", 100); len(ds) != 0 {
		t.Fatalf("after a restart, %q went out", payloads(ds))
	}
	after := w.key("q", "k3")
	if after.State != KeyOrdered || after.WaitsFor != before.WaitsFor || !after.ReadyAt.Equal(before.ReadyAt) || after.Delayed != 1 || after.Leased != 0 {
		t.Errorf("after the restart %+v, before %+v", after, before)
	}
	if n := w.counts("q"); n.Delayed != 10 || n.Leased != 0 {
		t.Errorf("%d delayed, %d leased", n.Delayed, n.Leased)
	}
	w.Advance(time.Minute)
	for n := range 3 {
		ds := w.lease("q", 100)
		if want := strings.TrimSpace(strings.Repeat(fmt.Sprint(n, " "), 10)); payloads(ds) != want {
			t.Errorf("got %q, want %q", payloads(ds), want)
		}
		w.ackAll(ds)
	}
}

// TestARetryingMessageHoldsNoSlots: other keys use the throttle meanwhile.
func TestARetryingMessageHoldsNoSlots(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", orderedQueue())
	w.must(func(tx *Tx) error { return tx.SetThrottle("api", ThrottleOptions{Concurrency: new(uint64(1))}) })
	for _, key := range []string{"a", "b"} {
		req := &Enqueue{Queue: "q", Key: key, Payload: []byte(key), Meta: Meta{Throttles: []string{"api"}}}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	first := w.lease("q", 2)
	if len(first) != 1 {
		t.Fatalf("%d went out under a limit of 1", len(first))
	}
	w.nackFor(first[0], time.Minute)
	second := w.lease("q", 2)
	if payloads(second) != "b" {
		t.Errorf("%q went out", payloads(second))
	}
	w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	w.Advance(2 * time.Minute)
	if n := w.inUse("api"); n != 0 || len(w.core.leases.byID) != 0 {
		t.Errorf("after the purge %d slots are in use, %d leases", n, len(w.core.leases.byID))
	}
}

type priorityHook struct {
	simHook
	rejected *[]string
}

func (h priorityHook) Rejected(_ time.Time, why string) { *h.rejected = append(*h.rejected, why) }

func (h priorityHook) OnEnqueue(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.EnqueueDecision, error) {
	return hook.EnqueueDecision{Priority: new(uint8(9)), Delay: new(time.Second), Cost: 3}, nil
}

// TestAnOrderedQueueIgnoresPriorityAndDelayOfAHook: the hook counts both as errors.
func TestAnOrderedQueueIgnoresPriorityAndDelayOfAHook(t *testing.T) {
	w := newWorld(t, nil)
	var rejected []string
	h := priorityHook{simHook{hook.OnEnqueue}, &rejected}
	for _, name := range []string{"q", "plain"} {
		o := orderedQueue()
		if name == "plain" {
			o = QueueOptions{}
		}
		w.queue(name, o)
		w.must(func(tx *Tx) error { return tx.LoadScript(name, h, "") })
		w.enqueue(name, "k", "1")
	}
	ds := w.lease("q", 1)
	if len(ds) != 1 || ds[0].Priority() != 4 || len(rejected) != 2 || !strings.Contains(strings.Join(rejected, " "), "'priority' is 9, the queue is ordered") {
		t.Errorf("%d went out, and the hook was told %q", len(ds), rejected)
	}
	if plain := w.lease("plain", 1); len(plain) != 0 {
		t.Error("the other queue has ignored the delay")
	}
	w.Advance(time.Second)
	if plain := w.lease("plain", 1); len(plain) != 1 || plain[0].Priority() != 9 {
		t.Error("the other queue has ignored the priority")
	}
}

// TestARefusedChangeOfOrderChangesNothing: also while the messages are counted after a start.
func TestARefusedChangeOfOrderChangesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", orderedQueue())
	w.enqueue("q", "k", "1")
	off := QueueOptions{Given: queueset.Given{queueset.Ordered: 0, queueset.Visibility: 5}}
	if err := w.do(func(tx *Tx) error { return tx.AlterQueue("q", off) }); !errors.Is(err, ErrInvalid) {
		t.Errorf("altered: %v", err)
	}
	q := w.core.queues.byName["q"]
	if !q.ordered() || q.set.Values[queueset.Visibility] == 5 {
		t.Errorf("after a refusal %v", q.set.Values)
	}
	w.ackAll(w.lease("q", 1))
	w.must(func(tx *Tx) error { return tx.AlterQueue("q", off) })
	if q.ordered() {
		t.Error("an empty queue was not altered")
	}
}

// A redriven message takes its place again: it goes out before a later one whose delivery has failed or
// was given up, since that is ready then, and in its own place.
func TestARedrivenMessageIsAheadOfALaterOneThatGoesOutAgain(t *testing.T) {
	for name, end := range map[string]func(w *world, d *Delivery){
		"released": func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
		},
		"nacked":       func(w *world, d *Delivery) { w.nackFor(d, 0) },
		"nacked later": func(w *world, d *Delivery) { w.nackFor(d, time.Second); w.Advance(time.Second) },
		"expired":      func(w *world, _ *Delivery) { w.Advance(time.Minute) },
	} {
		w := newWorld(t, nil)
		w.queue("q", orderedQueue())
		w.enqueue("q", "k", "first")
		w.enqueue("q", "k", "second")
		d := w.lease("q", 1)[0]
		w.must(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Dead: true})
			return err
		})
		out := w.lease("q", 1)
		if payloads(out) != "second" {
			t.Fatalf("%s: %q is out", name, payloads(out))
		}
		redrive := &Redrive{DLQ: "q.dlq"}
		w.must(func(tx *Tx) error { _, err := tx.Redrive(redrive); return err })
		if ds := w.lease("q", 1); len(ds) != 0 {
			t.Errorf("%s: %q overtakes the one that is out", name, payloads(ds))
		}
		end(w, out[0])
		next := w.lease("q", 1)
		if payloads(next) != "first" {
			t.Errorf("%s: %q is next", name, payloads(next))
		}
		w.ackAll(next)
		if ds := w.lease("q", 1); payloads(ds) != "second" {
			t.Errorf("%s: %q is the last", name, payloads(ds))
		}
	}
}
