package engine

import (
	"testing"
	"time"
)

// FILA.THROTTLE counts the keys that wait for a throttle: those that could deliver if it
// had capacity. A paused key and a key of a paused queue could not, also after a restart.
func TestAThrottleCountsTheKeysThatWaitForIt(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.LeaseWriteDelay = 0 })
	w.throttle("t", ThrottleOptions{Concurrency: new(uint64(1))})
	for _, name := range []string{"a", "b"} {
		w.queue(name, QueueOptions{NoDLQ: true})
		w.fillKeys(name, 3, "t")
	}
	w.lease("a", 1)
	waiting := func(what string, want int64) {
		t.Helper()
		again := openWorld(t, w.store, w.now, nil)
		for _, w := range []*world{w, again} {
			var i ThrottleInfo
			w.must(func(tx *Tx) error { i, _ = tx.Throttle("t"); return nil })
			if i.Waiting != want || i.InUse != 1 {
				t.Errorf("%s: %d keys wait and %d leases are held, want %d and 1; after a restart %v", what, i.Waiting, i.InUse, want, w == again)
			}
			w.sound()
		}
	}
	change := func(call func(tx *Tx) error) { t.Helper(); w.must(call) }
	waiting("one key has delivered", 5)
	change(func(tx *Tx) error { return tx.PauseKey("a", "k1", true) })
	waiting("a key is paused", 4)
	change(func(tx *Tx) error { return tx.Pause("b", false, true, true) })
	waiting("a queue is paused, too", 1)
	change(func(tx *Tx) error { return tx.PauseKey("b", "k2", true) })
	waiting("a key of that queue is paused", 1)
	change(func(tx *Tx) error { return tx.Pause("b", false, true, false) })
	waiting("the queue is resumed", 3)
	change(func(tx *Tx) error { return tx.Pause("b", true, true, true) })
	change(func(tx *Tx) error { return tx.Pause("b", true, false, false) })
	waiting("it is paused, and resumed only for what comes in", 1)
	change(func(tx *Tx) error { return tx.DeleteQueue("b", true) })
	waiting("it is deleted", 1)
	change(func(tx *Tx) error { return tx.PauseKey("a", "k1", false) })
	waiting("the key is resumed", 2)
}

// Under a throttle by cost, keys wait before any consumer has asked for one of their messages; and of two keys of which
// the bucket has tokens for one, the other does not deliver.
func TestAThrottleByCostSaysWhatWaitsBeforeAConsumerAsks(t *testing.T) {
	w := newWorld(t, nil)
	rate, burst := 0.5, uint64(5)
	w.throttle("t", ThrottleOptions{Rate: &rate, Burst: &burst, ByCost: true})
	w.queue("z", QueueOptions{NoDLQ: true})
	put := func(key string, cost uint32) {
		req := &Enqueue{Queue: "z", Key: key, Payload: []byte("m"), Meta: Meta{Cost: cost, Throttles: []string{"t"}}}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	put("first", 4)
	w.lease("z", 1)
	put("k1", 3)
	put("k2", 3)
	var i ThrottleInfo
	look := func() { w.must(func(tx *Tx) error { i, _ = tx.Throttle("t"); return nil }) }
	if look(); i.Waiting != 2 || !i.NextAt.Round(time.Millisecond).Equal(w.now.Add(4*time.Second)) {
		t.Errorf("%d keys wait, and the next token is due at %v, want 2 and %v", i.Waiting, i.NextAt, w.now.Add(4*time.Second))
	}
	w.Advance(4 * time.Second)
	if look(); i.Waiting != 0 || !i.NextAt.IsZero() {
		t.Errorf("the tokens are there, and %d keys wait until %v", i.Waiting, i.NextAt)
	}
	if k := w.key("z", "k1"); k.State != KeyBusy {
		t.Errorf("k1 is %s: %s", k.State, k.Reason)
	}
	if k := w.key("z", "k2"); k.State != KeyThrottled || !k.BlockedBy[0].Saved || !k.ReadyAt.Round(time.Millisecond).Equal(w.now.Add(6*time.Second)) {
		t.Errorf("k2 is %s until %v: %s", k.State, k.ReadyAt, k.Reason)
	}
	w.lease("z", 1)
	if k := w.key("z", "k2"); k.State != KeyThrottled || k.BlockedBy[0].Saved {
		t.Errorf("k1 is leased, and k2 is %s: %s", k.State, k.Reason)
	}
}
