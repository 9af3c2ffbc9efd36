package engine

import (
	"fmt"
	"testing"
	"time"
)

// Throttles by cost: a message takes its cost in tokens.

// costSim has two queues that share a throttle by cost. The first one has a key with dear
// messages, which take nearly all that the bucket holds, and one with cheap ones; the second
// queue has cheap ones only.
func costSim(seed uint64) (s *schedSim, dear, cheap, other *schedKey) {
	s = newSchedSim(seed, nil)
	t := s.throttleByCost(20, 60, 0)
	q, o := s.queue(), s.queue()
	dear = q.endless(4, 1, 50, t)
	cheap = q.endless(4, 1, 1, t)
	other = o.endless(4, 1, 1, t)
	s.crew(30, q)
	s.crew(30, o)
	return s, dear, cheap, other
}

// TestDearMessagesGetTheirShareOfTokens has keys with dear messages beside endless cheap ones:
// queues share the tokens equally, and the keys of a queue by weight, whatever a message takes.
func TestDearMessagesGetTheirShareOfTokens(t *testing.T) {
	s, dear, cheap, other := costSim(1)
	s.run(1000*time.Second, nil)
	sum := dear.cost + cheap.cost + other.cost
	t.Logf("of %d tokens the dear key took %d, the cheap one %d, the other queue %d", sum, dear.cost, cheap.cost, other.cost)
	for _, f := range s.faults {
		t.Error(f)
	}
	if sum < 20*1000 || sum > 20*1000+60 {
		t.Errorf("%d tokens in 1000 seconds, want 20 a second and a burst of 60", sum)
	}
	for k, part := range map[*schedKey]float64{dear: 0.25, cheap: 0.25, other: 0.5} {
		if got := float64(k.cost) / float64(sum); got < 0.95*part || got > 1.05*part {
			t.Errorf("key %s of %s got %.3f of the tokens, want %.2f", k.name, k.queue.name, got, part)
		}
	}
}

// TestAMessageAboveTheBurstGoesOutWhenTheBucketIsFull has messages that take up to five times
// what the bucket holds. The records of the simulation check that each finds the bucket full; in
// the long run the rate is exact.
func TestAMessageAboveTheBurstGoesOutWhenTheBucketIsFull(t *testing.T) {
	s := newSchedSim(2, nil)
	a := s.throttleByCost(10, 20, 0)
	q := s.queue()
	huge, small := q.endless(4, 1, 100, a), q.endless(4, 1, 3, a)
	huge.costs = func() uint32 { return 1 + s.rng.Uint32N(100) }
	s.crew(20, q)
	s.run(2000*time.Second, nil)
	for _, f := range s.faults {
		t.Error(f)
	}
	// The last one may have left the bucket in debt.
	if sum := huge.cost + small.cost; sum < 10*2000 || sum > 10*2000+20+100 || huge.got < 100 {
		t.Errorf("%d tokens in 2000 seconds, and %d large messages; want 10 tokens a second", sum, huge.got)
	}
}

// TestTokensAreNotSavedForAQueueThatCannotUseThem has a dear message that is next, and that its
// queue cannot take. Cheap messages of another queue then get all tokens.
func TestTokensAreNotSavedForAQueueThatCannotUseThem(t *testing.T) {
	for name, stop := range map[string]func(s *schedSim, q *schedQueue, places *schedThrottle) *schedKey{
		"its consumer has left": func(s *schedSim, q *schedQueue, _ *schedThrottle) *schedKey {
			k := q.endless(4, 1, 50, s.throttles[0])
			w := s.crew(1, q)[0]
			s.after(time.Second, func() { w.leave(true) })
			return k
		},
		"it is paused": func(s *schedSim, q *schedQueue, _ *schedThrottle) *schedKey {
			k := q.endless(4, 1, 50, s.throttles[0])
			s.crew(1, q)
			s.after(time.Second, func() { q.pause(true) })
			return k
		},
		"another throttle is full": func(s *schedSim, q *schedQueue, places *schedThrottle) *schedKey {
			blocker := q.endless(1, 1, 1, places)
			blocker.slow = 1e6
			s.crew(2, q)
			return q.endless(4, 1, 50, s.throttles[0], places)
		},
		"its workers poll": func(s *schedSim, q *schedQueue, _ *schedThrottle) *schedKey {
			k := q.endless(4, 1, 50, s.throttles[0])
			w := s.crew(1, q)[0]
			w.block, w.every = -1, 700*time.Millisecond
			return k
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSchedSim(3, nil)
			s.throttleByCost(20, 60, 0)
			q, other := s.queue(), s.queue()
			dear := stop(s, q, s.throttle(0, 0, 1))
			cheap := other.endless(4, 1, 1, s.throttles[0])
			s.crew(30, other)
			s.run(300*time.Second, nil)
			for _, f := range s.faults {
				t.Error(f)
			}
			if want := int64(20*300 - 60 - dear.cost); cheap.cost < want {
				t.Errorf("the cheap key got %d tokens and the dear one %d, want at least %d of 6000", cheap.cost, dear.cost, want)
			}
			if err := s.step.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFaultsOfThrottlesByCostAreFound plants one after each event.
func TestFaultsOfThrottlesByCostAreFound(t *testing.T) {
	broken := func(s *schedSim) bool { return len(s.faults) > 0 || s.broken > 0 }
	for rule, x := range map[string]struct {
		plant func(c *core)
		found func(s *schedSim, dear *schedKey) bool
	}{
		"a debt is paid": {func(c *core) {
			c.order.Inside().SetTokens("A", func(tokens float64) float64 { return max(tokens, 0) })
		}, func(s *schedSim, _ *schedKey) bool { return broken(s) }},
		"tokens are saved for the class that is next": {func(c *core) { c.order.Inside().PassDear("A") }, func(_ *schedSim, dear *schedKey) bool { return dear.got < 10 }},
		"a message takes its cost": {func(c *core) {
			c.order.Inside().SetTokens("A", func(tokens float64) float64 { return min(tokens+0.5, 60) })
		}, func(s *schedSim, _ *schedKey) bool { return broken(s) }},
		"the throttle looks again when demand changes": {func(c *core) {
			for q := range c.orders() {
				c.order.Inside().ForgetSaving(q)
			}
		}, func(s *schedSim, _ *schedKey) bool { return broken(s) || s.step.Check() != nil }},
	} {
		t.Run(rule, func(t *testing.T) {
			for _, planted := range []bool{false, true} {
				s := newSchedSim(1, nil)
				s.relaxed = true
				a := s.throttleByCost(20, 60, 0)
				q, o := s.queue(), s.queue()
				dear := q.endless(4, 1, 70, a)
				o.endless(4, 1, 1, a)
				s.crew(1, q)
				var toggle func()
				toggle = func() {
					q.pause(!q.paused)
					s.after(map[bool]time.Duration{true: 300 * time.Millisecond, false: 5 * time.Second}[q.paused], toggle)
				}
				s.after(time.Second, toggle)
				s.crew(30, o)
				s.run(500*time.Second, func() bool {
					if planted {
						x.plant(s.step.core)
					}
					return broken(s)
				})
				if found := x.found(s, dear); found != planted {
					t.Errorf("planted %v, found %v: %s", planted, found, fmt.Sprint(s.faults, s.reds, dear.got))
				}
			}
		})
	}
}
