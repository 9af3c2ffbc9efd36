package dispatch

import (
	"fmt"
	"testing"
)

// put adds a key with messages to a queue of a hall.
func (h *hall) put(q *hallQueue, seq uint64, heads ...Head) *hallKey {
	k := &hallKey{queue: q, weight: 1, heads: heads}
	k.Number(seq)
	q.keys = append(q.keys, k)
	h.settle(k)
	return k
}

// sound fails the test if a rule is broken.
func (h *hall) sound(t *testing.T) {
	t.Helper()
	if h.check(); len(h.faults) > 0 {
		t.Fatal(h.faults)
	}
}

// A throttle that the messages of one key name stops that key alone, and no class is made for it.
func TestAThrottleOfOneKeyHasNoClass(t *testing.T) {
	const keys = 5
	h := newHall(nil)
	q := h.queues[0]
	for i := range keys {
		name := fmt.Sprint("tenant:", i)
		h.o.SetThrottle(name, Limits{Rate: 1000, Burst: 1, Concurrency: 1})
		set := &Set{Names: []string{name}}
		h.put(q, uint64(i+1), Head{Cost: 1, Set: set}, Head{Cost: 1, Set: set}, Head{Cost: 1, Set: set})
	}
	for round := range 2 {
		for range keys {
			if !h.deliver(q, false) {
				t.Fatalf("round %d: a key that has room does not deliver", round)
			}
		}
		if h.deliver(q, false) {
			t.Fatal("a second message of a key is delivered, its throttle allows one")
		}
		h.sound(t)
		if n := len(q.q.scheduler.classes); n != 0 || q.q.Keys() != keys || q.q.Tally().Refused != uint64(keys*(round+1)) {
			t.Fatalf("%d classes for %d keys, refused %d times", n, q.q.Keys(), q.q.Tally().Refused)
		}
		h.now += 1e6 // a token
		h.o.Advance(h.now)
		h.o.Expire()
		h.serveReady()
		if h.deliver(q, false) {
			t.Fatal("there are tokens, but no slots")
		}
		for len(h.leases) > 0 {
			h.end()
		}
	}
	for _, k := range q.keys {
		if got := k.Tally(h.now); got.Admitted != 2 || got.Refused != 2 || got.Waited != 2e6 {
			t.Errorf("key %d: %+v", k.seq, got)
		}
	}
}

// When a second key names a throttle, both are in classes that wait for it, also one that the throttle has stopped.
func TestASecondKeyMakesAThrottleShared(t *testing.T) {
	h := newHall(nil)
	a, b := h.queues[0], h.queues[1]
	h.o.SetThrottle("t", Limits{Concurrency: 1})
	set := &Set{Names: []string{"t"}}
	h.put(a, 1, Head{Cost: 1, Set: set}, Head{Cost: 1, Set: set})
	if !h.deliver(a, false) || h.deliver(a, false) || !h.o.throttles["t"].gating {
		t.Fatal("the throttle does not stop its only key: the test shows nothing")
	}
	h.put(b, 1, Head{Cost: 1, Set: &Set{Names: []string{"t"}}})
	if len(a.q.scheduler.classes) != 1 || len(b.q.scheduler.classes) != 1 {
		t.Error("a key that shares a throttle is in no class that names it")
	}
	for _, q := range []*hallQueue{a, b} {
		if h.deliver(q, false) {
			t.Errorf("%v: a message is delivered while another has the only slot", q)
		}
	}
	if i, _ := h.o.Throttle("t"); i.Waiting != 2 || i.InUse != 1 {
		t.Errorf("%d keys wait, %d leases, want 2 and 1", i.Waiting, i.InUse)
	}
	h.sound(t)
	h.end()
	if !h.deliver(a, false) && !h.deliver(b, false) {
		t.Error("there is a slot, and nothing is delivered")
	}
	h.sound(t)
}

// A key that another message has taken the place of the first gives its throttles free: another may own them.
func TestAKeyThatGoesOnLeavesItsThrottles(t *testing.T) {
	h := newHall(nil)
	q := h.queues[0]
	h.o.SetThrottle("t", Limits{Concurrency: 1})
	first := h.put(q, 1, Head{Cost: 1, Set: &Set{Names: []string{"t"}}}, Head{Cost: 1})
	if !h.deliver(q, false) || first.hasSet {
		t.Fatal("the test shows nothing")
	}
	second := h.put(q, 2, Head{Cost: 1, Set: &Set{Names: []string{"t"}}})
	if x := h.o.throttles["t"]; x.shared || x.owner != &second.Key {
		t.Errorf("a throttle that one key names is shared: %v, its owner is right: %v", x.shared, x.owner == &second.Key)
	}
	if !h.deliver(q, false) || h.deliver(q, false) {
		t.Error("the key without a throttle goes, the other one waits")
	}
	h.sound(t)
}

// A timer of a throttle that is due, and that a busy step has not come to, is not lost when another key begins to wait.
func TestATimerThatIsDueStays(t *testing.T) {
	h := newHall(nil)
	h.o.SetThrottle("a", Limits{Rate: 1, Burst: 1, ByCost: true})
	first, second := h.queues[0], h.queues[1]
	set := &Set{Names: []string{"a"}}
	for seq := range uint64(2) {
		h.put(first, seq+1, Head{Cost: 2, Set: set})
	}
	if !h.deliver(first, false) || h.deliver(first, false) {
		t.Fatal("the bucket pays for one message")
	}
	first.waiting = 1
	first.q.Demand(true)
	h.serveReady()
	h.now += 10e9
	h.o.Advance(h.now)
	h.units = 0
	h.o.Expire()
	h.put(second, 3, Head{Cost: 2, Set: set})
	if h.deliver(second, false) {
		t.Fatal("the tokens are saved for the first queue")
	}
	h.units = manyUnits
	h.o.Expire()
	h.serveReady()
	if first.waiting != 0 {
		t.Error("the consumer of the first queue still waits")
	}
	h.sound(t)
}

// Tokens are saved for the class that comes next at a throttle by cost, but not while another of its throttles stops it:
// it waits there, and the class behind it takes the tokens.
func TestTokensAreNotSavedForAClassThatWaitsElsewhere(t *testing.T) {
	h := newHall(nil)
	dear, cheap, other := h.queues[0], h.queues[1], h.queues[2]
	h.o.SetThrottle("tokens", Limits{Rate: 1, Burst: 10, ByCost: true})
	h.o.SetThrottle("slot", Limits{Concurrency: 1})
	both, tokens, slot := &Set{Names: []string{"tokens", "slot"}}, &Set{Names: []string{"tokens"}}, &Set{Names: []string{"slot"}}
	h.put(other, 1, Head{Cost: 10, Set: tokens}, Head{Cost: 1, Set: slot})
	if !h.deliver(other, false) {
		t.Fatal("a full bucket does not pay for a message")
	}
	h.put(dear, 2, Head{Cost: 8, Set: both})
	k := h.put(cheap, 3, Head{Cost: 9, Set: tokens}) // a queue that is new at a throttle comes one turn behind the others
	k.heads[0].Cost = 4
	h.settle(k)
	for _, q := range h.queues[:2] {
		q.waiting = 1
		q.q.Demand(true)
		q.q.Offer()
	}
	h.serveReady()
	if h.now += 5e9; dear.waiting+cheap.waiting != 2 {
		t.Fatal("an empty bucket pays for a message")
	}
	h.o.Advance(h.now)
	h.o.Expire()
	h.serveReady()
	if cheap.waiting != 1 {
		t.Fatal("no tokens are saved for the dear message: the test shows nothing")
	}
	if !h.deliver(other, false) {
		t.Fatal("the slot is free, and nothing takes it")
	}
	h.o.Expire()
	h.serveReady()
	if cheap.waiting != 0 || dear.waiting != 1 {
		t.Errorf("%d consumers wait for the cheap message, %d for the dear one, want 0 and 1", cheap.waiting, dear.waiting)
	}
	h.sound(t)
}

// A poll of a queue without a waiting consumer asks each class that a throttle by cost stops at most a few times: they do not
// open and stop each other until the step has no budget left.
func TestAPollOfStoppedClassesTakesFewUnits(t *testing.T) {
	h := newHall(nil)
	q := h.queues[0]
	for _, name := range []string{"tokens", "more", "else"} {
		h.o.SetThrottle(name, Limits{Rate: 1, Burst: 10, ByCost: true})
	}
	h.put(h.queues[1], 1, Head{Cost: 10, Set: &Set{Names: []string{"tokens"}}})
	h.put(h.queues[2], 2, Head{Cost: 1, Set: &Set{Names: []string{"more", "else"}}}) // so that they are throttles of classes
	for i, names := range [][]string{{"tokens"}, {"tokens", "more"}, {"tokens", "else"}} {
		h.put(q, uint64(i+3), Head{Cost: 5, Set: &Set{Names: names}})
	}
	if !h.deliver(h.queues[1], false) {
		t.Fatal("a full bucket does not pay for a message")
	}
	for range 3 {
		h.o.SetThrottle("tokens", Limits{Rate: 1, Burst: 10, ByCost: true}) // it looks again
		before := h.units
		if h.deliver(q, false) {
			t.Fatal("an empty bucket pays for a message")
		}
		if spent := before - h.units; spent > 40 {
			t.Fatalf("a poll takes %d units", spent)
		}
	}
	h.sound(t)
}
