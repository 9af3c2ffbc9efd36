package history

import "testing"

// kept adds a crash of which no lease was forgotten.
func (t *calls) kept(ms int) *calls {
	t.crash(ms, false)
	t.Crashes[len(t.Crashes)-1].Kept = true
	return t
}

// A node that hands over has written every lease, so the next leader must not give the message out again.
func TestALeaseIsNotForgottenWhenItIsKept(t *testing.T) {
	twice := func(c *calls) *calls {
		return c.lease(150, "a", 2).end(160, Ack, "a", 2)
	}
	begun := func() *calls { return new(calls).enqueue(0, "a").lease(10, "a", 1) }
	if v := Check(&twice(begun().crash(20, false)).History, rules()); !v.OK() {
		t.Errorf("a crash may forget a lease that was not written: %v", v.Breaches)
	}
	if v := Check(&twice(begun().kept(20)).History, rules()); v.Counts[TwoHeld] != 1 {
		t.Errorf("a lease that is kept is given out again: %v", v.Breaches)
	}
}

// While a node of a cluster is away, others deliver again what was in a reply that it has lost.
func TestNothingIsInOrderWhileANodeIsAway(t *testing.T) {
	disordered := func(from int) *calls {
		return new(calls).enqueue(0, "a").enqueue(2, "b").
			lease(from, "b", 1).lease(from+10, "a", 1).end(from+20, Ack, "b", 1).end(from+30, Ack, "a", 1).crash(100, false)
	}
	several := rules()
	several.Nodes = true
	if v := Check(&disordered(110).History, several); !v.OK() {
		t.Errorf("within a crash: %v", v.Breaches)
	}
	for _, x := range []struct {
		from  int
		rules Rules
	}{{10, several}, {300, several}, {110, rules()}} {
		if v := Check(&disordered(x.from).History, x.rules); v.Counts[Order] != 1 {
			t.Errorf("from %d ms on, several nodes: %v: %v", x.from, x.rules.Nodes, v.Breaches)
		}
	}
}

// A reply that a partition holds back comes after what other clients were told meanwhile.
func TestAnExtendTakesEffectBeforeItsReplyArrives(t *testing.T) {
	extended := func(ms, until, answered int) *calls {
		c := new(calls).enqueue(0, "a").lease(10, "a", 1).end(ms, Extend, "a", 1, func(e *End) {
			e.Until, e.Return = at(until).Call, at(answered).Return
		})
		return c.lease(500, "a", 2).end(510, Ack, "a", 2)
	}
	if v := Check(&extended(100, 450, 800).History, rules()); !v.OK() {
		t.Errorf("a shorter lease was over: %v", v.Breaches)
	}
	for _, c := range []*calls{extended(100, 600, 800), extended(100, 600, 110), extended(700, 450, 800), extended(100, 2000, 800)} {
		if v := Check(&c.History, rules()); v.Counts[TwoHeld] != 1 {
			t.Errorf("a lease was not over: %v", v.Breaches)
		}
	}
}
