package engine

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

type classState uint8

const (
	classIdle classState = iota
	classOpen
	classWaiting
)

// class is the keys of a queue whose next messages name the same throttles.
type class struct {
	scheduler *scheduler
	sig       string // in scheduler.classes; "": the plain class
	slots     []slot // its throttles, by their numbers
	state     classState
	retired   bool // dropped from scheduler.classes

	calendar
	keys   int
	weight int64 // of its keys
	visits visits

	// A round of the class is one of the queue less offset. stopped is the queue's
	// round at which the clock stands while the class is not open.
	offset, stopped int64

	entry *entry  // waiting: where; open: which one's turn opened it, nil once it has delivered
	tag   float64 // waiting: its place in entry
	at    int     // in scheduler.open or entry.waiting
	claim uint64  // its number while it has a claim, see admission.go; 0: none

	// What its keys take part in: how often a throttle stopped it and for how long,
	// and since when it waits.
	refused uint64
	waited  int64
	since   int64
}

// turn is a visit of a key: the round of its class, its position, and the position of the
// key that joined last between its visit and the next.
type visit struct {
	round      int64
	at, joined position
}

// turns are the two turns of a class that began last. Beginning one copies none: in a
// delivery that would be what takes longest.
type visits struct {
	of    [2]visit
	newer int // index
}

func newVisits() visits { return visits{of: [2]visit{{round: -1}, {round: -1}}} }

func (v *visits) last() *visit   { return &v.of[v.newer&1] }
func (v *visits) before() *visit { return &v.of[v.newer&1^1] }

func (v *visits) begin(k *fairKey) {
	v.newer ^= 1
	n := v.last()
	n.round = k.due
	n.at.major, n.at.minor = k.pos.major, k.pos.minor
	n.joined.major, n.joined.minor = 0, 0
}

// position is where a key stands in the circle of a class. Positions are in order of
// major, then of minor: a key that joins behind all others gets a new major, one between
// two a part of the gap that their minors leave.
type position struct{ major, minor uint64 }

func (p position) before(o position) bool {
	return p.major < o.major || p.major == o.major && p.minor < o.minor
}

// between returns a position behind p and before o; p itself if the gap is used up.
// The gap behind it stays large, since the keys that join next come there. The salt
// makes it differ from those of keys in the gap that are not due in this round.
func (p position) between(o position, salt uint64) position {
	const parts, golden = 64, 0x9e3779b97f4a7c15
	end := uint64(math.MaxUint64)
	if o.major == p.major {
		end = o.minor
	}
	step := (end - p.minor) / parts
	more, _ := bits.Mul64(step, salt*golden)
	p.minor += step/2 + more/2
	return p
}

// ahead returns a position before p, for a key that is next in its place.
func (p position) ahead(salt uint64) position {
	from := position{major: p.major}
	if p.minor == 0 {
		from = position{major: p.major - 1, minor: math.MaxUint64 / 2}
	}
	return from.between(p, salt)
}

// present is the round of the class.
func (cl *class) present() int64 {
	if cl.state == classOpen {
		return cl.scheduler.round - cl.offset
	}
	return cl.stopped - cl.offset
}

// before orders classes in the heap that their state says.
func (cl *class) before(o *class) bool {
	a, b := cl.head(), o.head()
	if cl.state == classWaiting {
		return cmp.Or(cmp.Compare(cl.tag, o.tag), a.compare(b)) < 0
	}
	return cmp.Or(cmp.Compare(a.due+cl.offset, b.due+o.offset), a.compare(b)) < 0
}

func (cl *class) index() *int { return &cl.at }

func (cl *class) addWeight(w int64) {
	cl.weight += w
	cl.scheduler.weight += w
}

// fix restores the order of the open classes after the head of this one has changed.
func (cl *class) fix() {
	if cl.state == classOpen && cl.scheduler.open.len() > 1 {
		cl.scheduler.open.fix(cl)
	}
}

// classOf returns the class of a message of a queue, made if it is new.
func (c *core) classOf(q *queue, m *message) *class {
	s, l := q.scheduler, m.throttles
	if l == nil {
		return &s.plain
	}
	if cl := l.class; cl != nil && l.version == c.throttles.version && !cl.retired && cl.scheduler == s {
		return cl
	}
	ts := c.throttlesOf(m)
	if len(ts) == 0 {
		l.class = &s.plain
		return l.class
	}
	ts = slices.Clone(ts)
	slices.SortFunc(ts, func(a, b *throttle) int { return int(a.seq) - int(b.seq) }) //nolint:gosec // counted up from 1
	sig := make([]byte, 0, 8*len(ts))
	for _, t := range ts {
		sig = binary.BigEndian.AppendUint64(sig, t.seq)
	}
	cl := s.classes[string(sig)]
	if cl == nil {
		cl = &class{scheduler: s, sig: string(sig), at: -1, stopped: s.round, visits: newVisits()}
		for _, t := range ts {
			cl.slots = append(cl.slots, slot{throttle: t, entry: t.entryOf(s, len(ts) > 1), tag: -1})
		}
		s.classes[cl.sig] = cl
	}
	l.class = cl
	return cl
}

// reclassify has all keys looked at again after a throttle has come or gone.
func (c *core) reclassifyAll() {
	c.throttles.stale, c.throttles.staleFrom = c.throttles.stale[:0], 0
	for _, name := range (&Tx{core: c}).Queues() {
		c.throttles.stale = append(c.throttles.stale, c.queues.byName[name])
	}
}

// reclass moves keys to the classes that their next messages belong to now, so many a
// turn. A key that a consumer comes to first is moved then, see pick.
func (c *core) reclassifySlice() {
	for len(c.throttles.stale) > 0 && c.detached.reclaimed < c.detached.max {
		c.throttles.staleFrom = c.throttles.stale[0].roster.walk(c.throttles.staleFrom, c.detached.max-c.detached.reclaimed, func(k *fairKey) {
			c.detached.reclaimed++
			if k.class != nil && len(k.window) > 0 && c.classOf(k.queue, k.window[0]) != k.class {
				c.settle(k)
			}
		})
		if c.throttles.staleFrom == 0 {
			c.throttles.stale = c.throttles.stale[1:]
		}
	}
}

// idleClass takes a class without keys out of where it stands.
func (c *core) idleClass(cl *class) {
	s := cl.scheduler
	c.endClaim(cl)
	switch cl.state {
	case classOpen:
		s.open.remove(cl)
		c.resolve(cl)
	case classWaiting:
		cl.waited = cl.waitedBy(c.now)
		cl.entry.waiting.remove(cl)
		cl.entry = nil
	case classIdle:
	}
	cl.state, cl.stopped = classIdle, s.round
	if !s.hasOpen() {
		s.announced = false
	}
	if cl == &s.plain {
		return
	}
	s.idle = append(s.idle, cl)
	for len(s.idle) > idleClassesMax {
		old := s.idle[0]
		s.idle = s.idle[1:]
		if old.state == classIdle && !old.retired {
			old.retire()
		}
	}
}

// retire forgets a class that has no keys.
func (cl *class) retire() {
	cl.retired = true
	delete(cl.scheduler.classes, cl.sig)
	for i := range cl.slots {
		cl.slots[i].entry.release(len(cl.slots) > 1)
	}
}

// sharedBy returns what a key has been refused and has waited, with its part of
// what happened to its class since it joined.
func (cl *class) sharedBy(k *fairKey, now int64) (refused uint64, waited int64) {
	return k.stats.refused + cl.refused - k.refusedBase, k.stats.waited + cl.waitedBy(now) - k.waitedBase
}

func (cl *class) waitedBy(now int64) int64 {
	if cl.state == classWaiting {
		return cl.waited + now - cl.since
	}
	return cl.waited
}

// takePosition gives a key its position in a class that it joins: before the key that is
// next. It comes there with the credit and the rounds waited that it had in another.
func (k *fairKey) takePosition(cl *class) {
	h, present := cl.head(), cl.present()
	k.base = present - k.base
	last := cl.visits.last()
	if h != nil && h.visited {
		last = cl.visits.before() // the key that is next is in the middle of its turn
	}
	switch s := cl.scheduler; {
	case h == nil || h.due > present: // all have had their turn of this round
		s.last++
		k.pos = position{major: s.last}
	case last.round < present: // none has: behind all others is before the first
		s.last++
		k.pos = position{major: s.last}
		k.base = min(k.base, present-1)
	default:
		k.pos = last.at
		if k.pos.before(last.joined) && last.joined.before(h.pos) {
			k.pos = last.joined
		}
		k.pos = k.pos.between(h.pos, k.seq)
		last.joined = k.pos
	}
	if k.visited { // it goes on with its turn
		k.base = present
		if h != nil && h.due == present && h.pos.before(k.pos) {
			k.pos = h.pos.ahead(k.seq)
		}
	}
}

// schedule puts the key into the calendar of its class, for a next message of some cost.
// A key in the middle of its turn whose credit suffices stays at the head. The turn of
// any other is over: it is due in the round in which its credit suffices.
func (k *fairKey) schedule(cost uint32) {
	cl := k.class
	k.placedCost, k.placedWeight = cost, k.weight
	if k.visited && k.credit >= int64(cost) {
		k.due = k.base
		cl.insert(k)
		return
	}
	k.visited = false
	grant := int64(k.weight) * cl.scheduler.quantum
	rounds := int64(1)
	if missing := int64(cost) - k.credit - grant; missing > 0 {
		rounds += (missing + grant - 1) / grant
	}
	k.due = max(k.base+rounds, cl.present())
	cl.insert(k)
}

// accrue grants the key the rounds that have passed it while its credit did not suffice.
// It goes before every change of cost or weight, so that the change acts on what is
// to come only.
func (k *fairKey) accrue() {
	if k.visited {
		return
	}
	passed := k.roundsPassed()
	k.credit += passed * int64(k.placedWeight) * k.class.scheduler.quantum
	k.base += passed
}

// passed is how many rounds have come to the key's position, since its last visit, without
// one: its credit would not have sufficed.
func (k *fairKey) roundsPassed() int64 {
	round := k.class.present()
	if last := k.class.visits.last(); last.round < round || last.at.before(k.pos) {
		round-- // this one has not come to it
	}
	return max(min(round-k.base, k.due-k.base-1), 0)
}

// visit begins the key's turn, or goes on with it.
func (k *fairKey) visit() {
	cl := k.class
	s := cl.scheduler
	if !k.visited {
		k.credit += (k.due - k.base) * int64(k.placedWeight) * s.quantum
		k.base, k.visited = k.due, true
		cl.visits.begin(k)
	}
	s.round = max(s.round, k.due+cl.offset)
}

// deficit is the key's credit, in cost, with what it has been granted in passing.
func (k *fairKey) deficit() int64 {
	credit := k.credit
	if k.class != nil && !k.visited {
		credit += k.roundsPassed() * int64(k.placedWeight) * k.class.scheduler.quantum
	}
	return credit
}
