package engine

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// A class is in one of three states, whose transitions are drawn in scheduler.go. The state
// says in which heap the class is, and how that heap is ordered:
//
//	state    heap              order
//	idle     none
//	open     scheduler.open    round of the head key, in rounds of the queue
//	waiting  entry.waiting     start tag at the throttle that stopped the class
//
// In every state but idle the class has at least one key.

// classState is the state of a class.
type classState uint8

const (
	classIdle classState = iota
	classOpen
	classWaiting
)

// class is the set of keys of a queue whose next messages name the same throttles and take as
// many tokens of each. Keys move between classes as their first messages change. The plain class has no throttles, is never
// waiting, and exists as long as its scheduler.
type class struct {
	scheduler *scheduler
	sig       string // signature: its key in scheduler.classes; "": the plain class
	flows     []flow // one for each of its throttles, in the order of their numbers
	state     classState
	retired   bool // dropped from scheduler.classes: throttle sets must not use it again

	calendar
	keys   int
	weight int64 // sum of the weights of its keys
	visits visits

	// The clock of the class: its present round is the queue's round less offset. While the
	// class is not open, the clock is stopped at the queue's round stopped. See present.
	offset, stopped int64

	entry *entry  // waiting: where it waits; open: the entry whose turn opened it, nil once that turn is used
	tag   float64 // waiting: start tag, its place in entry.waiting
	at    int     // index in scheduler.open or entry.waiting
	claim uint64  // number of its claim, see claims.go; 0: none

	// Statistics that its keys share: how often a throttle stopped the class, for how many
	// nanoseconds in total, and since when it has been waiting.
	refused uint64
	waited  int64
	since   int64
}

// visit records one visit of a key: the round of the class, the key's position, and the
// position of the key that joined last between this visit and the next.
type visit struct {
	round      int64
	at, joined position
}

// visits are the last two visits in a class. They take turns in two places, so that a new visit
// copies nothing: a copy would be the most expensive part of a delivery.
type visits struct {
	of    [2]visit
	newer int // index of the last visit
}

// newVisits returns visits that precede every round.
func newVisits() visits { return visits{of: [2]visit{{round: -1}, {round: -1}}} }

func (v *visits) last() *visit   { return &v.of[v.newer&1] }
func (v *visits) before() *visit { return &v.of[v.newer&1^1] }

// begin records that the visit of a key begins.
func (v *visits) begin(k *fairKey) {
	v.newer ^= 1
	n := v.last()
	n.round = k.due
	n.at.major, n.at.minor = k.pos.major, k.pos.minor
	n.joined.major, n.joined.minor = 0, 0
}

// position is the place of a key in the circle of its class. Positions are ordered by major,
// then by minor. A key that joins behind all others gets a new major. A key that joins between
// two others gets a minor from the gap between theirs.
type position struct{ major, minor uint64 }

func (p position) before(o position) bool {
	return p.major < o.major || p.major == o.major && p.minor < o.minor
}

// between returns a position behind p and before o, or p itself if no gap is left between them.
// It takes a small part of the gap, from its beginning: the keys that join next get positions
// behind the new one, so the larger part of the gap stays available. The salt makes the result
// differ from the positions of other keys in the gap, which are not due in this round and thus
// unknown here.
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

// ahead returns a position directly before p, for a key that is visited before the key at p.
func (p position) ahead(salt uint64) position {
	from := position{major: p.major}
	if p.minor == 0 {
		from = position{major: p.major - 1, minor: math.MaxUint64 / 2}
	}
	return from.between(p, salt)
}

// present is the present round of the class. It does not advance while the class is not open.
func (cl *class) present() int64 {
	if cl.state == classOpen {
		return cl.scheduler.round - cl.offset
	}
	return cl.stopped - cl.offset
}

// before orders two classes that are in the same heap. The state, which they have in common,
// says in which one.
func (cl *class) before(o *class) bool {
	a, b := cl.head(), o.head()
	if cl.state == classWaiting {
		return cmp.Or(cmp.Compare(cl.tag, o.tag), a.compare(b)) < 0
	}
	return cmp.Or(cmp.Compare(a.due+cl.offset, b.due+o.offset), a.compare(b)) < 0
}

// index is where a heap stores the index of the class.
func (cl *class) index() *int { return &cl.at }

// addWeight changes the weight of the class and of its scheduler.
func (cl *class) addWeight(w int64) {
	cl.weight += w
	cl.scheduler.weight += w
}

// fix restores the order of the heap of open classes. It must follow every change of the head
// of an open class. A waiting class is ordered by its tag first, which its keys do not change.
func (cl *class) fix() {
	if cl.state == classOpen && cl.scheduler.open.len() > 1 {
		cl.scheduler.open.fix(cl)
	}
}

// classOf returns the class that the message belongs to, and creates it if necessary. The
// throttle set of the message remembers the result until a throttle is set or deleted, so
// neighbouring messages with the same throttles cost one lookup.
//
// The signature of a class is the numbers of its throttles in ascending order, each with its
// need where that is not 1: the order in which a message names its throttle keys makes no
// difference, and neither do throttle keys without a setting.
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
	flows := make([]flow, len(ts))
	for i, t := range ts {
		flows[i] = flow{throttle: t, need: l.need(i), tag: -1}
	}
	slices.SortFunc(flows, func(a, b flow) int { return cmp.Compare(a.throttle.seq, b.throttle.seq) })
	sig := make([]byte, 0, 8*len(flows))
	for i := range flows {
		sig = flows[i].appendSignature(sig)
	}
	cl := s.classes[string(sig)]
	if cl == nil {
		cl = &class{scheduler: s, sig: string(sig), flows: flows, at: -1, stopped: s.round, visits: newVisits()}
		for i := range flows {
			flows[i].entry = flows[i].throttle.entryOf(s, len(flows) > 1)
		}
		s.classes[cl.sig] = cl
	}
	l.class = cl
	return cl
}

// appendSignature appends what distinguishes classes at the throttle. No two flows have the
// same: numbers of throttles are counted up from 1 and never have the first bit, which says that
// a need follows.
func (s *flow) appendSignature(dst []byte) []byte {
	const withNeed = 1 << 63
	if s.need == 1 {
		return binary.BigEndian.AppendUint64(dst, s.throttle.seq)
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.throttle.seq|withNeed), uint64(s.need)) //nolint:gosec // not negative
}

// reclassifyAll starts to move keys to other classes after a throttle has been set for the
// first time or deleted. reclassifySlice does the work.
func (c *core) reclassifyAll() {
	c.throttles.stale, c.throttles.staleFrom = c.throttles.stale[:0], 0
	for _, name := range (&Tx{core: c}).Queues() {
		c.throttles.stale = append(c.throttles.stale, c.queues.byName[name])
	}
}

// reclassifySlice moves keys to the classes that their next messages belong to now, a bounded
// number in each turn. It need not be complete before the next delivery: pick moves a key that
// comes up first.
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

// idleClass makes a class idle whose last key has left, and ends its claim. The scheduler
// retains up to idleClassesMax idle classes with their tags, since a throttled tenant typically
// becomes active again soon.
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

// retire drops an idle class from its scheduler and releases its entries. A throttle set that
// still refers to the class looks for another one.
func (cl *class) retire() {
	cl.retired = true
	delete(cl.scheduler.classes, cl.sig)
	for i := range cl.flows {
		cl.flows[i].entry.release(len(cl.flows) > 1)
	}
}

// sharedBy returns how often a key has been refused and for how many nanoseconds it has waited:
// its own figures, and those of its class since the key joined it.
func (cl *class) sharedBy(k *fairKey, now int64) (refused uint64, waited int64) {
	return k.stats.refused + cl.refused - k.refusedBase, k.stats.waited + cl.waitedBy(now) - k.waitedBase
}

// waitedBy returns for how many nanoseconds the class has waited until now, in total.
func (cl *class) waitedBy(now int64) int64 {
	if cl.state == classWaiting {
		return cl.waited + now - cl.since
	}
	return cl.waited
}

// takePosition gives a key a position in a class that it joins, directly before the key that is
// next. The key joins with its credit and the rounds since its last visit in another class.
//
//	every key has had its visit of this round    behind all others
//	no key has had its visit of this round       behind all others, as if it had
//	                                             been visited in the last round
//	some have                                    behind the last visited key and those
//	                                             that joined since, before the next key
//	the joining key is in the middle of a visit  before the key that is next
func (k *fairKey) takePosition(cl *class) {
	h, present := cl.head(), cl.present()
	k.base = present - k.base
	last := cl.visits.last()
	if h != nil && h.visited {
		last = cl.visits.before() // the next key's own visit is the last one, and is not over
	}
	switch s := cl.scheduler; {
	case h == nil || h.due > present: // every key has had its visit of this round
		s.last++
		k.pos = position{major: s.last}
	case last.round < present: // no key has: the last position is the one before the first
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
	if k.visited { // its visit continues in this class
		k.base = present
		if h != nil && h.due == present && h.pos.before(k.pos) {
			k.pos = h.pos.ahead(k.seq)
		}
	}
}

// schedule inserts a key into the calendar of its class, given the cost of its next message. A
// key in the middle of a visit whose credit covers the cost remains first. The visit of any
// other key is over, and the key is due in the round in which its credit will cover the cost:
//
//	rounds = 1 + ceil((cost - credit - grant) / grant), at least 1, where grant = weight x quantum
//
// It requires 1 <= weight and 1 <= quantum, which keep grant positive.
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

// accrue adds the grants of the rounds that have passed the key while its credit did not
// suffice. It must precede every change of the key's cost or weight, so that the change affects
// future rounds only.
func (k *fairKey) accrue() {
	if k.visited {
		return
	}
	passed := k.roundsPassed()
	k.credit += passed * int64(k.placedWeight) * k.class.scheduler.quantum
	k.base += passed
}

// roundsPassed is the number of rounds since the key's last visit that have come to its
// position without visiting it, because its credit would not have sufficed.
func (k *fairKey) roundsPassed() int64 {
	round := k.class.present()
	if last := k.class.visits.last(); last.round < round || last.at.before(k.pos) {
		round-- // the present round has not come to the key's position
	}
	return max(min(round-k.base, k.due-k.base-1), 0)
}

// visit begins the visit of a key, with the grants of all rounds since its last one, or
// continues it. It advances the queue's round, which never decreases.
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

// deficit is the credit of the key, in units of cost, including the grants that accrue would
// add. It is what FILA.KEY reports.
func (k *fairKey) deficit() int64 {
	credit := k.credit
	if k.class != nil && !k.visited {
		credit += k.roundsPassed() * int64(k.placedWeight) * k.class.scheduler.quantum
	}
	return credit
}
