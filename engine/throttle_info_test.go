//go:build !race

package engine

import "testing"

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
