package dispatch

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A class is in one of three states, whose transitions are drawn in doc.go. The state
// says in which heap the class is, and how that heap is ordered:
//
//	state    heap              order
//	idle     none
//	open     scheduler.open    round of the head key, in rounds of the queue
//	waiting  entry.waiting     start tag at the throttle that stopped the class
//
// In every state but idle the class has at least one key in its calendar. Keys that wait for a
// budget are in the class and not in its calendar (gate.go).

// classState is the state of a class.
type classState uint8

const (
	classIdle classState = iota
	classOpen
	classWaiting
)

// class is the set of keys of a queue whose next messages name the same throttles and the same budgets. Keys move between classes as their first messages
// change. The plain class has no throttles and no budgets, is never waiting, and exists as long as
// its scheduler.
type class struct {
	scheduler *scheduler
	sig       string  // signature: its key in scheduler.classes; "": the plain class
	flows     []flow  // one for each of its throttles, in the order of their numbers
	draws     []*draw // one for each of its budgets, in the order of their lines
	state     classState
	fresh     bool // it has delivered nothing yet
	retired   bool // dropped from scheduler.classes: throttle sets must not use it again
	listed    bool // in scheduler.idle
	used      bool // since it was listed there

	calendar
	keys   int   // in its calendar
	weight int64 // sum of the weights of these keys
	visits visits

	held       int   // keys that wait for budgets
	heldWeight int64 // sum of their weights
	gated      int   // keys that their own throttles have stopped

	// The clock of the class: its present round is the queue's round less offset. While the
	// class is not open, the clock is stopped at the queue's round stopped. See present.
	offset, stopped int64

	entry *entry  // waiting: where it waits; open: the entry whose turn opened it, nil once that turn is used
	tag   float64 // waiting: start tag, its place in entry.waiting
	at    int     // index in scheduler.open or entry.waiting
	claim uint64  // number of its claim, see claims.go; 0: none

	// Statistics that its keys share: for how many nanoseconds throttles have stopped the class,
	// and since when one does.
	waited int64
	since  int64
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
func (v *visits) begin(k *Key) {
	v.newer ^= 1
	n := v.last()
	n.round = k.due
	n.at.major, n.at.minor = k.pos.major, k.pos.minor
	n.joined.major, n.joined.minor = 0, 0
}

// present is the present round of the class. It does not advance while the class is not open.
func (cl *class) present() int64 {
	if cl.state == classOpen {
		return cl.scheduler.round - cl.offset
	}
	return cl.stopped - cl.offset
}

// before orders two classes that wait in an entry.
func (cl *class) Before(o *class) bool {
	return cmp.Or(cmp.Compare(cl.tag, o.tag), cl.head().compare(o.head())) < 0
}

// index is where entry.waiting stores the index of the class.
func (cl *class) Index() *int { return &cl.at }

// flow is a class at one of its throttles: a flow of start-time fair queueing.
type flow struct {
	throttle *throttle
	entry    *entry
	place    int     // index in entry.classes
	tag      float64 // start tag of the next message of the class in entry; below 0: never set
	reserved bool    // a slot and the needed tokens of the throttle are reserved for the claim of the class
}

// countKeys adds n, which may be negative, to the number of keys that name a throttle.
func (o *Order) countKeys(s *flow, n int64) {
	s.entry.keys += n
	if s.throttle.keys += n; s.throttle.keys == 0 {
		o.lookAtUse(s.throttle)
	} else {
		o.named(s.throttle)
	}
}

// need is how many tokens the next delivery of the class takes at one of its throttles: one, or by
// cost that of the class's next message.
func (cl *class) need(s *flow) int64 {
	if s.throttle.set.ByCost {
		return int64(cl.head().placedCost)
	}
	return 1
}

// wanted is how many tokens the bucket must hold for the class: what it requires, beside what is
// reserved for others.
func (cl *class) wanted(s *flow) int64 {
	tokens := s.throttle.required(cl.need(s))
	if !s.reserved {
		tokens += s.throttle.reserved
	}
	return tokens
}

// holds reports whether the bucket holds the tokens that the class wants.
func (cl *class) holds(s *flow, now int64) bool { return s.throttle.holds(now, cl.wanted(s)) }

// hasSlot reports whether the throttle has a slot for the class.
func (s *flow) hasSlot() bool {
	if s.reserved {
		return s.throttle.slotsBeside(0)
	}
	return s.throttle.slotsBeside(s.throttle.reservedSlots())
}

// admits reports whether the throttle admits a message of the class now. What is reserved for
// the class itself counts as room.
func (cl *class) admits(s *flow, now int64) bool { return s.hasSlot() && cl.holds(s, now) }

// flowAt returns the flow of the class at one of its throttles.
func (cl *class) flowAt(t *throttle) *flow {
	i := 0
	for cl.flows[i].throttle != t {
		i++
	}
	return &cl.flows[i]
}

// enter updates the start tags of a class that had no keys. A new class comes one delivery
// after the virtual time, as if it had just delivered. A class that was idle does not make up
// for that time.
func (cl *class) enter(cost uint32) {
	for i := range cl.flows {
		s := &cl.flows[i]
		if s.tag < 0 {
			s.tag = s.entry.vtime + float64(cost)/float64(cl.weight)
			cl.fresh = true
		}
		s.tag = max(s.tag, s.entry.vtime)
	}
}

// grow updates the start tags of a class that has not delivered yet, when another key joins it:
// it comes one delivery after the virtual time at its present weight. By the weight of its first
// key alone, it would come later the more keys there are.
func (o *Order) grow(cl *class) {
	for i := range cl.flows {
		s := &cl.flows[i]
		s.tag = min(s.tag, s.entry.vtime+cl.share())
	}
	if cl.state == classWaiting {
		cl.tag = cl.tagAt(cl.flowAt(cl.entry.throttle))
		cl.entry.waiting.Fix(cl)
	}
}

// addWeight changes the weight of the class and of its scheduler.
func (cl *class) addWeight(w int64) {
	cl.weight += w
	cl.scheduler.weight += w
}

// fix restores the order of the heap of open classes. It must follow every change of the head
// of an open class. A waiting class is ordered by its tag first, which its keys do not change,
// but its next message may take another amount of tokens: throttles by cost look again.
func (o *Order) fix(cl *class) {
	switch cl.state {
	case classOpen:
		cl.scheduler.open.fix(cl)
	case classWaiting:
		for i := range cl.flows {
			if t := cl.flows[i].throttle; t.set.ByCost {
				o.list(t)
			}
		}
	case classIdle:
	}
}

// classOf returns the class of a key whose next message has a throttle set and a cost, and creates it if necessary. The
// set remembers the result until a throttle is set or deleted, or becomes shared, so
// neighbouring messages with the same throttles cost one lookup. before is another key, which has owned one of
// the throttles: the caller must move it (again), and ask again.
//
// The signature of a class is the numbers of its throttles in ascending order, and those of the
// lines of its budgets: the order in which a message names its throttle keys makes no difference,
// and neither do throttle keys without a setting, and own throttles. In a free queue nothing is charged.
func (o *Order) classOf(q *Queue, k *Key, l *Set, cost uint32) (cl *class, before *Key) {
	s := q.scheduler
	ts := o.limits(l)
	owns, before := o.own(k, ts)
	if before != nil {
		return nil, before
	}
	if cl := l.class; cl != nil && l.owned == owns && !cl.retired && cl.scheduler == s {
		return cl, nil
	}
	if l.owned = owns; owns {
		ts = nil
	}
	budgets := l.Budgets
	if q.free {
		budgets = nil
	}
	if len(ts)+len(budgets) == 0 {
		l.class = &s.plain
		return l.class, nil
	}
	flows := make([]flow, len(ts))
	for i, t := range ts {
		flows[i] = flow{throttle: t, tag: -1}
	}
	slices.SortFunc(flows, func(a, b flow) int { return cmp.Compare(a.throttle.seq, b.throttle.seq) })
	sig := make([]byte, 0, 8*(len(flows)+len(budgets)))
	for i := range flows {
		sig = binary.BigEndian.AppendUint64(sig, flows[i].throttle.seq)
	}
	draws := o.drawsOn(budgets)
	for _, d := range draws {
		sig = d.line.appendSignature(sig)
	}
	cl = s.classes[string(sig)]
	if cl == nil {
		cl = &class{scheduler: s, sig: string(sig), flows: flows, at: -1, stopped: s.round, visits: newVisits()}
		for i := range flows {
			e := flows[i].throttle.entryOf(s, len(flows) > 1, cost)
			flows[i].entry = e
			e.name(cl, &flows[i])
		}
		for _, d := range draws {
			d.class = cl
			d.line.draws++
		}
		cl.draws = draws
		s.classes[cl.sig] = cl
	}
	l.class = cl
	return cl, nil
}

// idleClass makes a class idle whose last key has left, and ends its claim. The scheduler
// retains up to idleClassesMax idle classes with their tags, since a throttled tenant typically
// becomes active again soon.
func (o *Order) idleClass(cl *class) {
	s := cl.scheduler
	o.endClaim(cl)
	switch cl.state {
	case classOpen:
		s.open.remove(cl)
		o.resolve(cl)
	case classWaiting:
		cl.waited = cl.waitedBy(o.now)
		cl.entry.waiting.Remove(cl)
		if t := cl.entry.throttle; t.set.ByCost {
			o.list(t) // tokens may have been saved for the class
		}
		cl.entry = nil
	case classIdle:
	}
	cl.state, cl.stopped = classIdle, s.round
	s.closed()
	o.retain(cl)
}

// retain lists a class without keys as one of those that its scheduler may drop.
func (o *Order) retain(cl *class) {
	s := cl.scheduler
	if cl == &s.plain || cl.held+cl.gated > 0 {
		return
	}
	if cl.used = cl.listed; !cl.listed {
		o.listIdle(cl)
	}
	for len(s.idle) > idleClassesMax && o.idle > idleClassesTotal {
		old := s.idle[0]
		s.idle = s.idle[1:]
		old.listed = false
		o.idle--
		switch {
		case old.state != classIdle || old.held+old.gated > 0 || old.retired:
		case old.used:
			old.used = false
			o.listIdle(old)
		default:
			o.retire(old)
		}
	}
}

// listIdle adds a class to those that its scheduler may drop.
func (o *Order) listIdle(cl *class) {
	cl.listed = true
	o.idle++
	cl.scheduler.idle = append(cl.scheduler.idle, cl)
}

// retire drops an idle class from its scheduler and releases its entries and lines. A throttle
// set that still refers to the class looks for another one.
func (o *Order) retire(cl *class) {
	cl.retired = true
	if cl.listed { // of a purged queue
		cl.listed = false
		o.idle--
	}
	delete(cl.scheduler.classes, cl.sig)
	for _, d := range cl.draws {
		o.leaveBudget(d)
	}
	for i := range cl.flows {
		cl.flows[i].entry.release(&cl.flows[i], len(cl.flows) > 1)
	}
}

// waitedBy returns for how many nanoseconds the class has waited until now, in total.
func (cl *class) waitedBy(now int64) int64 {
	if cl.state == classWaiting {
		return cl.waited + now - cl.since
	}
	return cl.waited
}

// waitingKeys adds up how long keys wait for throttles.
type waitingKeys struct {
	waiting   int64 // keys that wait now
	countedAt int64 // the time up to which waited includes waiting
	waited    int64 // sum over keys of the nanoseconds that they have waited
}

// countWaiting changes the number of waiting keys. It first adds to waited what has passed with
// the present number.
func (w *waitingKeys) countWaiting(now, change int64) {
	w.waited += w.waiting * (now - w.countedAt)
	w.waiting, w.countedAt = w.waiting+change, now
}

// countWaiting counts keys of a waiting class at its throttle and for its queue.
func (cl *class) countWaiting(now, change int64) {
	cl.entry.throttle.countWaiting(now, change)
	cl.entry.throttle.countOfPattern(now, change)
	cl.scheduler.queue.throttled.countWaiting(now, change)
}
