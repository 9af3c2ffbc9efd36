package engine

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// After every event, no message waits that could be delivered: no slot and no token is free for
// the first message of a key while a worker waits for its queue. The one exception is room that
// is reserved for a message with several throttles until it has the others, which is bounded in
// number per throttle and in time. Tokens under a throttle by cost may also be saved for a message
// that no other throttle stops and that takes more of them.
const (
	placesKept = 1
	tokensKept = 0
	keptFor    = 100 * time.Second // simulated time without a delivery of such a message
)

// check compares the waiting messages with the free room. It also considers workers whose lease
// returned fewer messages than they asked for.
func (s *schedSim) check() {
	for _, t := range s.throttles {
		if t.idle > 0 {
			t.idle = 0
		} else {
			t.idleAt = s.now
		}
	}
	for _, w := range s.asked {
		for _, q := range w.queues {
			q.waiting++
		}
	}
	if s.anyCanGo() {
		s.judge()
	}
	for _, w := range s.asked {
		for _, q := range w.queues {
			q.waiting--
		}
	}
	for _, t := range s.throttles {
		if t.idle > 0 && s.now-t.idleAt > t.keptFor() {
			s.unfair(&s.broken, "throttle %s: a place is kept for %v, and no message with several throttles goes out", t.name, time.Duration(s.now-t.idleAt))
		}
	}
}

// keptFor is how long a place of the throttle may be kept, in nanoseconds: at a rate that has become very low, for as
// long as the tokens for the dearest message take.
func (t *schedThrottle) keptFor() int64 {
	if t.rate == 0 {
		return int64(keptFor)
	}
	return max(int64(keptFor), int64(min(4*t.burst/t.rate*1e9, math.MaxInt64/2)))
}

// heads calls each with the first message of every key that could deliver if its throttles had
// room, until each returns false. Its budgets cover it, and it does not gather.
func (s *schedSim) heads(each func(m *schedMessage) bool) {
	s.headsOf((*schedKey).full, each)
}

// perhapsHeads calls each also with those of keys that may gather.
func (s *schedSim) perhapsHeads(each func(m *schedMessage) bool) {
	s.headsOf(func(k *schedKey) bool { return k.gathers() <= 0 }, each)
}

// headsOf calls each with those of keys that gather no more.
func (s *schedSim) headsOf(full func(k *schedKey) bool, each func(m *schedMessage) bool) {
	for _, q := range s.queues {
		if q.waiting == 0 || q.paused {
			continue
		}
		for _, k := range q.keys {
			if len(k.ready) > 0 && !k.paused && full(k) && k.ready[0].covered() && !each(k.ready[0]) {
				return
			}
		}
	}
}

func (m *schedMessage) canGo() bool {
	return !slices.ContainsFunc(m.class.throttles, func(t *schedThrottle) bool { return !t.admits(m) })
}

func (s *schedSim) anyCanGo() bool {
	found := false
	s.heads(func(m *schedMessage) bool { found = m.canGo(); return !found })
	return found
}

// judge decides for each admitted message that was not delivered whether it waits for room that
// may be reserved: for a message that waits with several throttles of which one is full, or
// because its own room is reserved.
func (s *schedSim) judge() {
	kept := map[*schedThrottle]bool{}
	tokens := map[*schedThrottle]float64{} // kept, by cost: they may be kept before they are all there
	for again := true; again; {
		again = false
		s.perhapsHeads(func(m *schedMessage) bool {
			full := func(t *schedThrottle) bool { return !t.admits(m) || kept[t] }
			if ts := m.class.throttles; len(ts) > 1 && slices.ContainsFunc(ts, full) {
				for _, t := range ts {
					if n := t.room(s.now); !kept[t] && (t.byCost || n >= 1 && n <= placesKept) {
						kept[t], again = true, true
					}
					tokens[t] = max(tokens[t], t.required(m))
				}
			}
			return true
		})
	}
	saved := s.saved(tokens)
	s.heads(func(m *schedMessage) bool {
		if !m.canGo() {
			return true
		}
		tolerated := false
		for _, t := range m.class.throttles {
			if kept[t] && (!t.byCost || t.conc > 0 && t.slots()-t.held <= placesKept || !t.holds(tokens[t]+t.required(m), s.now)) {
				t.idle, tolerated = 1, true
			}
			tolerated = tolerated || saved[t]
		}
		if tolerated {
			return true
		}
		for _, t := range m.class.throttles {
			t.idle = max(t.idle, 1)
		}
		s.unfair(&s.broken, "key %s of %s has a message that could go, and %d workers wait", m.key.name, m.class, m.key.queue.waiting)
		return true
	})
}

// saved returns the throttles by cost whose tokens may be saved for a message: one that no other
// throttle stops for longer. It cannot use those that are kept.
func (s *schedSim) saved(kept map[*schedThrottle]float64) map[*schedThrottle]bool {
	saved := map[*schedThrottle]bool{}
	s.perhapsHeads(func(m *schedMessage) bool {
		for _, t := range m.class.throttles {
			tokens := t.required(m) + kept[t]
			if !t.byCost || t.isHeld() || t.holds(tokens, s.now) {
				continue
			}
			at := t.heldAt(tokens) // also where those that are kept leave less room than it needs: it comes next when they are used
			longer := func(o *schedThrottle) bool {
				return o.isHeld() && o.heldUntil > at || o.conc > 0 && o.held >= o.slots() || !o.byCost && !o.admits(m) && o.heldAt(o.required(m)) > at
			}
			if !slices.ContainsFunc(m.class.throttles, longer) {
				saved[t] = true
			}
		}
		return true
	})
	return saved
}

// TestTheCheckDetectsFalsifiedRecords falsifies the records of a correct run.
func TestTheCheckDetectsFalsifiedRecords(t *testing.T) {
	for name, x := range map[string]struct {
		plant func(s *schedSim)
		want  string
	}{
		"nothing":            {func(*schedSim) {}, ""},
		"a place that waits": {func(s *schedSim) { s.throttles[0].held-- }, "could go"},
		"a token that waits": {func(s *schedSim) { s.throttles[1].rate++ }, "could go"},
		"a message that waits": {func(s *schedSim) {
			k := s.queues[0].key(1)
			s.ready(&schedMessage{key: k, class: k.class, cost: 1})
		}, "could go"},
		"a worker that waits":          {func(s *schedSim) { s.queues[2].waiting++; s.queues[2].key(1).put(1, 4, 0) }, "could go"},
		"a place too many":             {func(s *schedSim) { s.throttles[0].held++ }, "one more goes out"},
		"a token too many":             {func(s *schedSim) { s.throttles[1].tokens-- }, "tokens, and a message goes out"},
		"a message out of order":       {func(s *schedSim) { s.queues[0].keys[0].reverse() }, "before the first one"},
		"a delivery of a paused queue": {func(s *schedSim) { s.queues[0].paused = true }, "is paused"},
		"a key that gets too much": {func(s *schedSim) {
			s.onDeliver = func(m *schedMessage) {
				if m.key == s.queues[0].keys[0] {
					s.spans(m)
				}
			}
		}, "moved apart"},
		"a place that is kept for ever": {func(s *schedSim) {
			k := s.queues[0].key(1, s.throttles[0], s.throttle(0, 0, 1))
			s.throttles[0].held--
			s.throttles[2].held++
			s.ready(&schedMessage{key: k, class: k.class, cost: 1})
		}, "is kept for"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSchedSim(1, nil)
			places, rate := s.throttle(0, 0, 2), s.throttle(3, 1, 0)
			q, other := s.queue(), s.queue()
			s.queue()
			q.endless(4, 1, 1, places)
			q.endless(4, 1, 1, places)
			q.endless(4, 1, 1, rate)
			s.crew(30, q)
			other.endless(4, 1, 1)
			s.crew(1, other)
			s.run(10*time.Second, nil)
			x.plant(s)
			s.run(500*time.Second, nil)
			if x.want == "" && len(s.faults) == 0 {
				return
			}
			if len(s.faults) == 0 || !strings.Contains(s.faults[0], x.want) || x.want == "" {
				t.Errorf("found %q, want %q", s.faults, x.want)
			}
		})
	}
}

// reverse falsifies the order in which a key delivers.
func (k *schedKey) reverse() {
	for i, m := range k.ready {
		m.seq = uint64(1000 - i)
		m.since = 0
	}
	slices.Reverse(k.ready)
}
