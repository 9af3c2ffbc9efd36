package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

// enqueueFor enqueues a message with a TTL.
func (w *world) enqueueFor(queue string, ttl time.Duration) ID {
	w.t.Helper()
	req := &Enqueue{Queue: queue, Payload: []byte("x"), TTL: ttl}
	if err := w.Prepare(req); err != nil {
		w.t.Fatal(err)
	}
	var id ID
	w.must(func(tx *Tx) (err error) { id, err = tx.Enqueue(req); return err })
	return id
}

func (w *world) nack(req *Nack) (r NackResult) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { r, err = tx.Nack(req); return err })
	return r
}

// hear collects events with their details of failures.
func (w *world) hear(kinds EventKind) *[]Event {
	var all []Event
	w.Listen(func(events []Event) { all = append(all, events...) })
	w.Want(kinds)
	return &all
}

// The reply of a nack says what has become of the message. Once the TTL has passed that is
// no retry, whatever the nack requests; both sides of the moment are tested.
func TestANackAfterTheTTLReportsADeadMessage(t *testing.T) {
	const ttl = time.Second
	for name, nack := range map[string]Nack{
		"plain": {Delay: -1}, "at once": {Delay: 0}, "later": {Delay: time.Hour},
	} {
		for _, late := range []bool{false, true} {
			for _, o := range []QueueOptions{{}, {NoDLQ: true}} {
				w := newWorld(t, nil)
				w.queue("q", o)
				id := w.enqueueFor("q", ttl)
				d := w.lease("q", 1)
				heard := w.hear(EventFailed | EventDead)
				w.Advance(ttl - 1)
				if late {
					w.Advance(1)
				}
				nack.Queue, nack.Receipt, nack.Error = "q", d[0].Receipt, "broken"
				r := w.nack(&nack)
				if !late {
					if r.Action != ActionRetry || r.Attempt != 2 || r.ReadyAt.IsZero() || r.DLQ != "" {
						t.Errorf("%s, before: answered %+v", name, r)
					}
					continue
				}
				dlq := "q.dlq"
				if o.NoDLQ {
					dlq = ""
				}
				if r.Action != ActionDead || r.Attempt != 1 || !r.ReadyAt.IsZero() || r.DLQ != dlq {
					t.Errorf("%s, after: answered %+v, want it dead in %q", name, r, dlq)
				}
				n := w.counts("q")
				if n.Ready+n.Delayed+n.Leased != 0 || n.TTLExpired != 1 || n.Nacked != 1 {
					t.Errorf("%s, after: the queue counts %+v", name, n)
				}
				if len(*heard) != 1 || (*heard)[0].Kind != EventDead || (*heard)[0].Reason != reasonTTL || (*heard)[0].Error != "broken" || (*heard)[0].DLQ != dlq {
					t.Errorf("%s, after: heard %+v", name, *heard)
				}
				if o.NoDLQ {
					continue
				}
				if d := w.lease("q.dlq", 1); len(d) != 1 || d[0].Receipt.ID != id {
					t.Errorf("%s, after: not in the dead-letter queue", name)
				}
			}
		}
	}
}

// The same for a lease that expires, and in a dead-letter queue, which no message leaves
// for another dead-letter queue.
func TestALeaseThatExpiresAfterTheTTLIsNotRetried(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.enqueueFor("q", time.Second)
	w.lease("q", 1)
	heard := w.hear(EventFailed | EventDead)
	w.Advance(time.Minute)
	if len(*heard) != 1 || (*heard)[0].Kind != EventDead || (*heard)[0].Reason != reasonTTL || (*heard)[0].Error != "the lease expired" {
		t.Errorf("heard %+v", *heard)
	}
	if n := w.counts("q"); n.Expired != 1 || n.TTLExpired != 1 || n.DeadLettered != 1 {
		t.Errorf("the queue counts %+v", n)
	}
}

// A message that fails in a dead-letter queue stays there until its TTL has passed.
func TestAnExpiredMessageThatFailsInADLQIsGone(t *testing.T) {
	for _, nack := range []Nack{{Delay: -1}, {Delay: -1, Dead: true}, {Delay: 0}} {
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		w.must(func(tx *Tx) error {
			return tx.AlterQueue("q.dlq", QueueOptions{Given: queueset.Given{queueset.TTL: 2_000}})
		})
		w.enqueue("q", "", "x")
		w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Dead: true, Delay: -1})
		d := w.lease("q.dlq", 1)
		heard := w.hear(EventFailed | EventDead)
		w.Advance(2 * time.Second)
		nack.Queue, nack.Receipt = "q.dlq", d[0].Receipt
		if r := w.nack(&nack); r.Action != ActionDead || r.DLQ != "" {
			t.Errorf("answered %+v", r)
		}
		if n := w.counts("q.dlq"); n.Dead+n.Leased+n.Ready != 0 || n.Dropped != 1 {
			t.Errorf("the dead-letter queue counts %+v", n)
		}
		if len(*heard) != 1 || (*heard)[0].Kind != EventDead {
			t.Errorf("heard %+v", *heard)
		}
	}
}

// A message can be rescheduled within its TTL, and not beyond it.
func TestAMessageIsNotRescheduledBeyondItsTTL(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		ok    bool
	}{{0, true}, {599 * time.Millisecond, true}, {600 * time.Millisecond, false}, {time.Hour, false}, {durationMax, false}} {
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		id := w.enqueueFor("q", time.Second)
		heard := w.hear(EventFailed | EventDead)
		w.Advance(400 * time.Millisecond)
		req := &Reschedule{Queue: "q", ID: id, Delay: c.delay}
		var at time.Time
		err := w.do(func(tx *Tx) (err error) { at, err = tx.Reschedule(req); return err })
		switch {
		case c.ok && (err != nil || !at.Equal(w.Now().Add(c.delay))):
			t.Errorf("by %v: %v, %v", c.delay, at, err)
		case !c.ok && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "600 ms")):
			t.Errorf("by %v: %v, want it refused with what is left", c.delay, err)
		case !c.ok && len(w.lease("q", 1)) != 1:
			t.Errorf("by %v: refused, and it is not ready any more", c.delay)
		}
		if len(*heard) != 0 {
			t.Errorf("by %v: heard %+v of a message that has not failed", c.delay, *heard)
		}
	}
}

// RESCHEDULE counts no failure, neither for a delayed nor for a ready message.
func TestRescheduleIsNoFailure(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "", "x")
	heard := w.hear(EventFailed)
	for _, delay := range []time.Duration{time.Second, 2 * time.Second, 0, 0} {
		req := &Reschedule{Queue: "q", ID: id, Delay: delay}
		w.must(func(tx *Tx) error { _, err := tx.Reschedule(req); return err })
	}
	if len(*heard) != 0 {
		t.Errorf("heard %+v", *heard)
	}
	w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Delay: 0})
	if len(*heard) != 1 {
		t.Errorf("heard %+v of a nack", *heard)
	}
}
