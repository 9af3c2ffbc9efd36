//go:build !race

package engine

import (
	"testing"
	"time"
)

// needs lets the first message of a key take that many tokens of its throttle.
func (w *world) needs(k *fairKey, need int64) {
	c, m := w.core, k.window[0]
	names := m.throttles.names
	m.throttles = newThrottleSet(names, nil, 0)
	c.throttlesOf(m)
	m.throttles.needs = []int64{need}
	c.settle(k)
}

// TestADeliveryTakesTheTokensThatItNeeds has two messages of one throttle, which take 20 and 5
// tokens: they are of different classes, go out when the bucket holds as many, and give them
// back when they do not reach their client.
func TestADeliveryTakesTheTokensThatItNeeds(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	w.throttle("t", ThrottleOptions{Rate: new(10.0), Burst: new(uint64(25))})
	w.fillKeys("q", 2, "t")
	q := w.core.queues.byName["q"]
	dear, cheap := q.keys.get("k0"), q.keys.get("k1")
	w.needs(dear, 20)
	w.needs(cheap, 5)
	if dear.class == cheap.class || dear.class.flows[0].need != 20 || cheap.class.flows[0].need != 5 {
		t.Fatalf("the classes are %q and %q", dear.class.sig, cheap.class.sig)
	}
	tokens := func(want float64) {
		t.Helper()
		if got := w.core.throttles.byName["t"].level(w.core.now); got != want {
			t.Errorf("the bucket holds %v tokens, want %v", got, want)
		}
	}
	ds := w.lease("q", 2)
	if len(ds) != 2 {
		t.Fatalf("%d messages are leased, want 2", len(ds))
	}
	tokens(0)
	w.must(func(tx *Tx) error { return tx.Undeliver(ds) })
	tokens(25)
	w.lease("q", 2)
	tokens(0)

	w.fillKeys("q", 2, "t")
	w.needs(dear, 20)
	w.needs(cheap, 20)
	got := w.lease("q", 2)
	var i KeyInfo
	w.must(func(tx *Tx) (err error) { i, err = tx.Key("q", "k0"); return err })
	if in := i.ReadyAt.Sub(w.Now()); len(got) != 0 || i.State != KeyThrottled || in < 2*time.Second || in > 2*time.Second+time.Microsecond {
		t.Errorf("%d messages go out of an empty bucket; the key is %s, ready in %v, want two seconds", len(got), i.State, in)
	}
	w.Advance(1900 * time.Millisecond)
	if ds := w.lease("q", 2); len(ds) != 0 {
		t.Errorf("%d messages go out with 19 of 20 tokens", len(ds))
	}
	w.Advance(200 * time.Millisecond)
	if ds := w.lease("q", 2); len(ds) != 1 {
		t.Errorf("%d messages go out with 21 tokens, want 1 of 20", len(ds))
	}
	w.sound()
}
