package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/storage"
)

// leaseFor leases n messages with decreasing durations.
func (w *world) leaseFor(queue string, n int) (receipts []Receipt) {
	w.t.Helper()
	for i := range n {
		req := &LeaseRequest{Queues: []string{queue}, Count: 1, Block: -1, Visibility: time.Hour + time.Duration(n-i)*time.Millisecond}
		w.must(func(tx *Tx) error {
			ds, err := tx.Lease(req)
			for _, d := range ds {
				receipts = append(receipts, d.Receipt)
			}
			return err
		})
	}
	if len(receipts) != n {
		w.t.Fatalf("%d leases, want %d", len(receipts), n)
	}
	return receipts
}

func TestAnExplanationFindsItsHoldersAmongVeryManyLeasesInSlices(t *testing.T) {
	const n = 4 * leasesPerUnit * turnUnits
	w := newWorld(t, func(c *Config) { c.Window = n })
	w.throttle("t", ThrottleOptions{Concurrency: new(uint64(20))})
	w.queue("q", QueueOptions{})
	w.queue("other", QueueOptions{})
	w.fillKeys("q", 21, "t")
	receipts := w.leaseFor("q", 20)
	w.fillKeys("other", n)
	if got := len(w.lease("other", n)); got != n {
		t.Fatalf("%d leases, want %d", got, n)
	}
	last := receipts[19]
	var x Explanation
	req := &ExplainKey{Queue: "q", Key: "k20"}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { x, err = tx.ExplainKey(req); return err })}
	turns := w.untilDone(task, func(turn int) []*Task {
		if turn != 1 {
			return nil
		}
		return []*Task{{Call: callFunc(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{last}); return err })}}
	})
	if task.Err() != nil || turns < 5 {
		t.Fatalf("%d turns: %v", turns, task.Err())
	}
	if x.State != KeyConcurrency || x.HolderCount != 20 || len(x.Holders) < search.HoldersMax-1 {
		t.Fatalf("it is %s, and %d of %d holders are named", x.State, len(x.Holders), x.HolderCount)
	}
	want := 18 // the lease that would have ended first has been acked meanwhile
	for i, h := range x.Holders {
		if h.ID != receipts[want-i].ID || h.Key != fmt.Sprintf("k%d", want-i) {
			t.Errorf("holder %d is of key %s, want k%d", i, h.Key, want-i)
		}
	}
}

func TestTheHoldersAreThoseWhoseLeasesEndFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.throttle("t", ThrottleOptions{Concurrency: new(uint64(100))})
	w.queue("q", QueueOptions{})
	w.fillKeys("q", 101, "t")
	receipts := w.leaseFor("q", 100)
	var x Explanation
	w.must(func(tx *Tx) (err error) { x, err = tx.ExplainKey(&ExplainKey{Queue: "q", Key: "k100"}); return err })
	if x.HolderCount != 100 || len(x.Holders) != search.HoldersMax {
		t.Fatalf("%d of %d holders are named", len(x.Holders), x.HolderCount)
	}
	for i, h := range x.Holders {
		if h.ID != receipts[99-i].ID {
			t.Errorf("holder %d is of key %s", i, h.Key)
		}
	}
}

func TestAMessageBehindVeryManyLeasedOnesIsExplainedInSlices(t *testing.T) {
	const n = 4 * leasesPerUnit * turnUnits
	w := newWorld(t, func(c *Config) { c.Window = 2 * n })
	w.queue("q", QueueOptions{})
	ids := w.fill("k", n+3, nil)
	w.lease("q", n)
	var x Explanation
	req := &Explain{Queue: "q", ID: ids[n+2]}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { x, err = tx.Explain(req); return err })}
	turns := w.untilDone(task, nil)
	if task.Err() != nil || turns < 5 {
		t.Fatalf("%d turns: %v", turns, task.Err())
	}
	if x.Message == nil || x.Message.Position != 2 {
		t.Errorf("it is explained as %+v", x.Message)
	}
}

// heldOf returns how many leases count towards a throttle, which it sets to find out.
func (w *world) heldOf(name string) (n int64) {
	w.t.Helper()
	w.throttle(name, ThrottleOptions{Concurrency: new(uint64(100))})
	w.must(func(tx *Tx) error { i, _ := tx.Throttle(name); n = i.InUse; return nil })
	w.must(func(tx *Tx) error { _, err := tx.DeleteThrottle(name); return err })
	return n
}

func TestLeasesThatNameAThrottleKeyCountFromItsFirstSettingOn(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), func(c *Config) { c.LeaseWriteDelay = 0 })
	w.queue("q", QueueOptions{})
	w.fillKeys("q", 10, "a", "b")
	w.fill("plain", 1, nil)
	w.lease("q", 11)
	if n := w.heldOf("a"); n != 10 {
		t.Errorf("%d of 10 leases count", n)
	}
	w.sound()
	w.must(func(tx *Tx) error {
		all, heap := tx.core.leases.byID, tx.core.leases.ends
		tx.core.leases.byID, tx.core.leases.ends = nil, intrusive.Heap[*message]{} // a scan of all leases would fail
		err := tx.SetThrottle("b", ThrottleOptions{Concurrency: new(uint64(100))})
		tx.core.leases.byID, tx.core.leases.ends = all, heap
		return err
	})
	w.sound()
	w = openWorld(t, store, w.now, func(c *Config) { c.LeaseWriteDelay = 0 })
	w.sound()
	var some []Receipt
	for _, m := range w.core.leases.byID {
		if m.throttles != nil && len(some) < 4 {
			some = append(some, Receipt{ID: m.id, Bare: true})
		}
	}
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", some); return err })
	if n := w.heldOf("a"); n != 6 {
		t.Errorf("%d of 6 leases count", n)
	}
	w.Advance(24 * time.Hour)
	if len(w.core.leases.byID) > 0 || w.core.order.Inside().Unset() > 0 {
		t.Errorf("%d leases are left, %d keys are counted", len(w.core.leases.byID), w.core.order.Inside().Unset())
	}
}
