package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// waits leases one message and checks how long it was ready before.
func (w *world) waits(after string, queue string, want time.Duration) *Delivery {
	w.t.Helper()
	ds := w.lease(queue, 1)
	if len(ds) != 1 {
		w.t.Fatalf("after %s: %d messages of %s are ready", after, len(ds), queue)
	}
	if ds[0].Waited != want {
		w.t.Errorf("after %s: it was ready for %v, want %v", after, ds[0].Waited, want)
	}
	if began := ds[0].LeaseUntil.Add(-ds[0].Visibility); !began.Equal(w.Now()) {
		w.t.Errorf("after %s: the lease began at %v, it is %v", after, began, w.Now())
	}
	return ds[0]
}

func TestADeliverySaysHowLongItsMessageWasReady(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "", "x")
	w.Advance(time.Second)
	d := w.waits("an enqueue", "q", time.Second)

	w.Advance(time.Second)
	w.nack(&Nack{Queue: "q", Receipt: d.Receipt, Delay: 5 * time.Second})
	w.Advance(7 * time.Second)
	d = w.waits("a retry", "q", 2*time.Second)

	w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
	w.Advance(3 * time.Second)
	d = w.waits("a release", "q", 3*time.Second)

	w.Advance(d.Visibility + 4*time.Second)
	d = w.waits("an expiry", "q", 4*time.Second)

	w.nack(&Nack{Queue: "q", Receipt: d.Receipt, Dead: true})
	w.Advance(5 * time.Second)
	again := openWorld(t, store.Clone(), w.Now(), nil)
	again.waits("a death and a restart", "q.dlq", 5*time.Second)

	redrive := &Redrive{DLQ: "q.dlq"}
	w.must(func(tx *Tx) error { _, err := tx.Redrive(redrive); return err })
	w.Advance(6 * time.Second)
	w.waits("a redrive", "q", 6*time.Second)
}

func TestADelayIsNoWait(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	req := &Enqueue{Queue: "q", Delay: time.Minute}
	if err := w.Prepare(req); err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	w.Advance(time.Minute + time.Second)
	if d := w.waits("a delay", "q", time.Second); d.Priority() != 4 {
		t.Errorf("priority %d", d.Priority())
	}
}

// What the records of a message on disk say is enough but for a release and a redrive.
func TestAMessageFromDiskKnowsSinceWhenItIsReady(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "", "x")
	w.Advance(time.Minute)
	openWorld(t, store.Clone(), w.Now(), nil).waits("an enqueue", "q", time.Minute)
	w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Delay: 0})
	w.Advance(time.Second)
	openWorld(t, store.Clone(), w.Now(), nil).waits("a nack", "q", time.Second)
}

func TestAckAndReleaseSayWhichReceiptsHeld(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for range 3 {
		w.enqueue("q", "", "x")
	}
	ds := w.lease("q", 3)
	stale := Receipt{ID: ds[0].Receipt.ID, Fence: ds[0].Receipt.Fence + 1}
	list := []Receipt{stale, ds[0].Receipt, {ID: ds[1].Receipt.ID, Bare: true}, ds[0].Receipt}
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", list); return err })
	if list[0].Held || !list[1].Held || !list[2].Held || list[3].Held {
		t.Errorf("held: %v", list)
	}
	if list[2].Fence != ds[1].Receipt.Fence {
		t.Errorf("a bare receipt is of delivery %d, want %d", list[2].Fence, ds[1].Receipt.Fence)
	}
}

func TestAnEventOfAFailureNamesItsDelivery(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "", "x")
	heard := w.hear(EventFailed | EventDead)
	first := w.lease("q", 1)[0]
	w.Advance(first.Visibility)
	second := w.lease("q", 1)[0]
	w.nack(&Nack{Queue: "q", Receipt: second.Receipt, Dead: true})
	if got := *heard; len(got) != 2 || got[0].Fence != first.Receipt.Fence || got[0].Error != LeaseExpired || got[1].Fence != second.Receipt.Fence {
		t.Errorf("heard %v", got)
	}
}
