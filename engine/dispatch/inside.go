package dispatch

import (
	"iter"
	"maps"
	"slices"

	"github.com/faisca/fila/engine/internal/adaptive"
)

// Inside shows tests of the engine what an order knows, and lets them break its rules, to see whether the
// records and the invariants find it. Nothing but tests may use it: internal/tidy verifies that.
type Inside struct{ o *Order }

// Inside returns what tests see of an order.
func (o *Order) Inside() Inside { return Inside{o} }

// InsideThrottle is a throttle as tests see it.
type InsideThrottle struct {
	t *throttle

	Limits            Limits
	InUse             int64
	Keys, Waiting     int64 // that name it, and wait for it
	Queues, Opened    int   // that have classes which name it; classes that it has opened and that have not delivered
	Admitted, Refused uint64
	Waited            int64
	Adaptive          *adaptive.Limit // nil: it is not adaptive
}

// Throttle returns the throttle of a key, ok is false if the key has no setting.
func (p Inside) Throttle(key string) (x InsideThrottle, ok bool) {
	t := p.o.throttles[key]
	if t == nil || !p.o.follow(t) {
		return x, false
	}
	x = InsideThrottle{
		t: t, Limits: t.set.Limits, InUse: int64(t.inUse), Keys: t.keys, Waiting: t.waitsNow(), Queues: len(t.entries),
		Admitted: t.admitted, Refused: t.refused, Waited: t.waitedSum(p.o.now), Adaptive: t.adaptive,
	}
	for _, e := range t.entries {
		x.Opened += e.eligible
	}
	return x, true
}

// AllThrottles iterates over all throttles.
func (p Inside) AllThrottles() iter.Seq2[string, InsideThrottle] {
	return func(yield func(string, InsideThrottle) bool) {
		for _, name := range slices.Sorted(maps.Keys(p.o.throttles)) {
			if x, ok := p.Throttle(name); ok && !yield(name, x) {
				return
			}
		}
	}
}

// Unset is the number of throttle keys without a setting that leases name.
func (p Inside) Unset() int { return len(p.o.unset) }

// IdleClasses is the number of classes without keys that are retained.
func (p Inside) IdleClasses() int { return p.o.idle }

// The bounds of idle classes.
const (
	IdleClassesMax   = idleClassesMax
	IdleClassesTotal = idleClassesTotal
)

// Classes is the number of classes of a queue, beside the plain one.
func (p Inside) Classes(q *Queue) int { return len(q.scheduler.classes) }

// Detached reports whether what has been looked up of a set belongs to a queue that was purged.
func (p Inside) Detached(l *Set) bool { return l.class != nil && l.class.scheduler.detached }

// Class tells classes of keys apart.
func (p Inside) Class(k *Key) any { return k.class }

// HeapWidth is the number of children of a node of the calendar's heap.
const HeapWidth = heapWidth

// Standing is the place of a key in the calendar of its class.
type Standing struct {
	due        int64
	slot       int32
	prev, next *Key
}

// Standing returns the place of a key.
func (p Inside) Standing(k *Key) Standing { return Standing{k.due, k.slot, k.prev, k.next} }

// Visit returns whether a key is in the middle of its visit, and its credit.
func (p Inside) Visit(k *Key) (visited bool, credit int64) { return k.visited, k.credit }

// Faults: each breaks one rule.

// HideRoom has no throttle be found with new room.
func (p Inside) HideRoom() {
	for _, t := range p.o.throttles {
		t.listed = true
	}
}

// HideCredits has no budget be found with new credits, until back is called.
func (p Inside) HideCredits() (back func()) {
	var hidden []*line
	for _, l := range p.o.lines {
		if !l.listed {
			l.listed = true
			hidden = append(hidden, l)
		}
	}
	return func() {
		for _, l := range hidden {
			l.listed = false
		}
	}
}

// ForgetOffers forgets the queues that are left to be looked at.
func (p Inside) ForgetOffers() {
	for _, q := range p.o.offers {
		q.offered = false
	}
	p.o.offers = nil
}

// Favour makes it the turn of a queue at all throttles.
func (p Inside) Favour(q *Queue) {
	for _, t := range p.o.throttles {
		if e := t.entries[q]; e != nil {
			e.turn = 0
			if e.at >= 0 {
				t.line.Fix(e)
			}
		}
	}
}

// Postpone moves the first keys of the classes of a queue that have several keys by a number of rounds.
func (p Inside) Postpone(q *Queue, rounds int64) {
	for cl := range q.scheduler.all() {
		if cl.keys < 2 {
			continue
		}
		k := cl.head()
		if k.visited || k.due >= cl.present()+50 {
			continue
		}
		cl.remove(k)
		k.due = max(k.due+rounds, k.base)
		cl.insert(k)
		if cl.state == classWaiting {
			cl.entry.waiting.Fix(cl)
		} else {
			q.scheduler.open.fix(cl)
		}
	}
}

// UseUpTurns has the classes of a queue with several throttles come later, as if they had delivered.
func (p Inside) UseUpTurns(q *Queue) {
	for cl := range q.scheduler.all() {
		if len(cl.flows) > 1 {
			for i := range cl.flows {
				cl.flows[i].tag = cl.flows[i].entry.vtime + 1
			}
		}
	}
}

// TakeCredit takes the credit of a key.
func (p Inside) TakeCredit(k *Key) { k.credit = min(k.credit, 0) }

// Forgive has a key that went ahead of its turn pay nothing for it.
func (p Inside) Forgive(k *Key) {
	if cl := k.class; cl != nil && k.held == 0 && k.credit < 0 {
		cl.remove(k)
		k.credit, k.base = 0, cl.present()-1
		k.schedule(k.placedCost, k.placedWeight)
		p.o.fix(cl)
	}
}

// Misprice has the next message of a key cost 1.
func (p Inside) Misprice(k *Key) { k.placedCost = 1 }

// Unname has the set of a waiting key name no throttles.
func (p Inside) Unname(k *Key) {
	if k.class != nil && k.class.state == classWaiting {
		k.set.set = nil
	}
}

// Set replaces the limits of a throttle, and nothing else.
func (p Inside) Set(key string, l Limits) {
	t := p.o.throttles[key]
	t.set = &terms{Limits: l, pattern: t.set.pattern}
}

// SetAdaptive replaces what an adaptive throttle allows now.
func (p Inside) SetAdaptive(x InsideThrottle, l *adaptive.Limit) { x.t.adaptive = l }

// SetTokens changes the bucket of a throttle.
func (p Inside) SetTokens(key string, to func(tokens float64) float64) {
	t := p.o.throttles[key]
	t.tokens = to(t.tokens)
}

// PassDear takes classes that need more than one token out of the line of a throttle.
func (p Inside) PassDear(key string) {
	t := p.o.throttles[key]
	for e, ok := t.line.First(); ok && e.need() > 1; e, ok = t.line.First() {
		t.line.Remove(e)
	}
}

// ForgetSaving has a queue forget the throttles that save tokens for it.
func (p Inside) ForgetSaving(q *Queue) { q.scheduler.saving = nil }

// Limits returns what a throttle key allows now, whether its throttle is in memory or not; nil: nothing limits it.
func (p Inside) Limits(key string) *Limits {
	if t := p.o.throttles[key]; t != nil && p.o.follow(t) && t.set != &unlimited {
		return &t.set.Limits
	}
	if pattern := p.o.patternOf(key); pattern != nil {
		return &pattern.set.Limits
	}
	return nil
}

// ShareBuckets has the instances of each pattern have the fewest tokens that one of them has.
func (p Inside) ShareBuckets() {
	least := map[*pattern]float64{}
	for _, t := range p.o.throttles {
		if of := t.set.pattern; of != nil {
			n, ok := least[of]
			if level := t.level(p.o.now); !ok || level < n {
				least[of] = level
			}
		}
	}
	for _, t := range p.o.throttles {
		if n, ok := least[t.set.pattern]; ok {
			t.tokens, t.at = n, p.o.now
		}
	}
}

// ForgetInstances forgets all instances that nothing names.
func (p Inside) ForgetInstances() {
	for _, name := range slices.Sorted(maps.Keys(p.o.throttles)) {
		if t := p.o.throttles[name]; t.unneeded() {
			p.o.drop(t)
		}
	}
}

// Setting returns the setting or pattern of a name, nil if there is none.
func (p Inside) Setting(name string) *Limits {
	if prefix, ok := patternPrefix(name); ok {
		if of := p.o.patterns.byPrefix[prefix]; of != nil {
			return &of.set.Limits
		}
		return nil
	}
	if t := p.o.throttles[name]; t != nil && t.set.pattern == nil && t.set != &unlimited {
		return &t.set.Limits
	}
	return nil
}

// Version is another one when all throttle sets have become stale.
func (p Inside) Version() uint64 { return p.o.version }
