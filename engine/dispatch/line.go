package dispatch

import "github.com/faisca/fila/engine/internal/intrusive"

// This file decides which class delivers next when a throttle has room.
//
// # Room
//
// A throttle has room for a message if its bucket holds the tokens that the message takes and a
// concurrency slot is free, without what is reserved for a claim (claims.go). Room appears and
// is used like this:
//
//   1. Room appears: a token is due (arm), a lease ends, the setting changes, or a claim
//      ends. list lists the throttle (grant.go).
//   2. The serve step takes the listed throttles in order, before anything else can use the
//      room (serve.go of package engine).
//   3. grant takes the first entry of the throttle's line, opens the class in it whose turn it
//      is, and returns its queue, whose waiting consumers are served. The next call goes on for
//      as long as there is room.
//   4. Take admits the message (admit): it consumes tokens and a slot of each throttle,
//      atomically with the delivery. If another throttle of the class has no room, the class
//      waits there instead (block).
//   5. What is left waits for the next event. arm sets the timer for the next token.
//
// Only a claim reserves room. A queue that cannot use the room now is passed over: grant removes
// its entry from the line and leaves one of its classes open for the next consumer that asks.
// Room therefore never waits for a queue that has no waiting consumer, is paused, or is stopped
// by another throttle, and an idle queue costs nothing.
//
// # Order
//
// The order is start-time fair queueing on two levels (Goyal, Vin and Cheng, "Start-Time Fair
// Queuing", SIGCOMM 1996). Each flow has the start tag of its next message; the flow with the
// least tag goes next, and its tag then advances by the length of the message over the weight
// of the flow. The virtual time is the start tag of the message that went last. A flow that
// becomes active again starts at the virtual time at the earliest, so it cannot make up for the
// time in which it had nothing to deliver.
//
//	level     flows                 length            weight
//	throttle  queues                1 for a delivery, 1
//	                                by cost its cost
//	entry     classes of one queue  cost              that of the keys of the class
//
// Queues thus take turns at a throttle, one delivery each or as many tokens, however many keys
// they have, and the classes of a queue share its turns by weight and cost. While two flows wait for nothing but
// this throttle, what they get per unit of weight differs by at most the largest message of
// each.

// entry is what a queue has at a throttle: those of its classes that name the throttle, and its
// place in the throttle's line. It exists for as long as there is such a class, also an idle
// one.
//
//	in the line      at >= 0: the queue takes part in the room of the throttle
//	not in the line  no class waits, or one that the entry's turn has opened has not
//	                 delivered yet (eligible > 0)
type entry struct {
	throttle  *throttle
	scheduler *scheduler
	waiting   intrusive.Heap[*class] // classes in state waiting that this throttle stopped, by start tag
	eligible  int                    // open classes that a turn of this entry has opened and that have not delivered since
	classes   []*class               // that name the throttle, idle ones included, in no order
	several   int                    // of these, the ones that name other throttles as well
	keys      int64                  // keys of these classes

	vtime float64 // virtual time among the classes: the start tag of the last delivery
	turn  float64 // start tag of the queue's next turn at the throttle
	step  float64 // length of its last turn
	at    int     // index in throttle.line; -1: not in it
	order uint64  // of joining the line; decides between equal turns
}

func (e *entry) Before(o *entry) bool {
	return e.turn < o.turn || e.turn == o.turn && e.order < o.order
}
func (e *entry) Index() *int { return &e.at }

// slackTurns is the number of turns that a class with several throttles may be behind the
// virtual time of one of them without losing any. Such a class often misses its turn at one
// throttle because it waits for another; in plain start-time fair queueing it would lose all of
// these turns.
const slackTurns = 4

// slack is the number of turns that the queue may be behind the virtual time of the throttle:
// slackTurns if a class of the queue needs other throttles as well, else none.
func (e *entry) slack() float64 {
	if e.several > 0 {
		return slackTurns * e.step
	}
	return 0
}

// length is the length of a turn in which a message of that need is delivered.
func (t *throttle) length(need int64) float64 {
	if t.set.ByCost {
		return float64(need)
	}
	return 1
}

// join adds the entry to the line of its throttle unless it is there. Its turn is at the
// virtual time less the slack at the earliest.
func (o *Order) join(e *entry) {
	if e.at >= 0 {
		return
	}
	o.number++
	e.turn, e.order = max(e.turn, e.throttle.vtime-e.slack()), o.number
	e.throttle.line.Push(e)
}

// entryOf returns the entry of a queue at the throttle, for one more class, which is that of a
// message. several says that the class names other throttles as well. A new entry comes one turn
// after the virtual time, as if the queue had just delivered the message, or takes over the turn
// that the queue had before a purge.
func (t *throttle) entryOf(s *scheduler, several bool, cost uint32) *entry {
	q := s.queue
	e := t.entries[q]
	if e != nil && e.scheduler != s {
		e.saveTurn()
		e = nil
	}
	if e == nil {
		step := t.length(int64(cost))
		e = &entry{throttle: t, scheduler: s, at: -1, turn: t.vtime + step, step: step}
		if turn, ok := q.turns[t]; ok {
			e.turn = min(turn, e.turn) // a turn may have had another length
			delete(q.turns, t)
		}
		if t.entries == nil {
			t.entries = map[*Queue]*entry{}
		}
		t.entries[q] = e
	}
	if several {
		e.several++
	}
	return e
}

// name adds a class with a flow that names the throttle.
func (e *entry) name(cl *class, s *flow) {
	s.place = len(e.classes)
	e.classes = append(e.classes, cl)
}

// release removes one class from the entry, given by its flow, and the entry from the throttle with its last
// class.
func (e *entry) release(s *flow, several bool) {
	if several {
		e.several--
	}
	last := len(e.classes) - 1
	moved := e.classes[last]
	e.classes[s.place], moved.flowAt(e.throttle).place = moved, s.place
	e.classes[last] = nil
	if e.classes = e.classes[:last]; last > 0 {
		return
	}
	if e.throttle.entries[e.scheduler.queue] == e {
		delete(e.throttle.entries, e.scheduler.queue)
		if e.scheduler.detached {
			e.saveTurn()
		}
	}
	if e.at >= 0 {
		e.throttle.line.Remove(e)
	}
}

// saveTurn saves the turn of a queue that has been purged: a purge neither improves nor worsens
// the queue's place at the throttle.
func (e *entry) saveTurn() {
	q := e.scheduler.queue
	if q.turns == nil {
		q.turns = map[*throttle]float64{}
	}
	q.turns[e.throttle] = e.turn
}

// full returns the flow at a throttle that has no room for the class, or nil if all of them
// have. It does not count room that is reserved for other classes, or saved for them. Of
// throttles by cost that lack tokens it returns the one for which the class waits longest.
func (o *Order) full(cl *class) *flow {
	var longest *flow
	for i := range cl.flows {
		s := &cl.flows[i]
		switch {
		case cl.admits(s, o.now) && (!s.throttle.set.ByCost || !o.saved(cl, s)):
		case !s.throttle.set.ByCost || len(cl.flows) == 1:
			return s
		case longest == nil || o.roomAt(cl, s) > o.roomAt(cl, longest):
			longest = s
		}
	}
	return longest
}

// yieldsTo returns the flow at a throttle whose room belongs to the turn of another class, or
// nil if the class may deliver. The throttles concerned are those that are listed or under the
// cursor of grant:
//
//   - A class needs several throttles that get room in the same step. The throttle that comes
//     first must not give away the room of the others.
//   - The step has run out of budget and has left some throttles to the next one.
//   - There is room for many messages at once. A queue with many waiting consumers must not take
//     the turns of the other queues.
func (o *Order) yieldsTo(cl *class) *flow {
	for i := range cl.flows {
		s := &cl.flows[i]
		if t := s.throttle; t.listed || t == o.grants.throttle && cl.claim == 0 {
			if first := s.turnAt(o); first != nil && s.isAfter(first, cl, 1) {
				return s
			}
		}
	}
	return nil
}

// isAfter reports whether the turn of the class is at least so many turns after that of an entry that is first in the
// line of the throttle.
func (s *flow) isAfter(first *entry, cl *class, turns float64) bool {
	t, e := s.throttle, s.entry
	if first != e {
		return first.turn+turns*t.length(first.need()) <= max(e.turn, t.vtime-e.slack())
	}
	other, waits := e.waiting.First()
	return waits && other != cl && other.tag+turns*cl.share() <= cl.tagAt(s)
}

// share is by how much the delivery of its next message advances the start tags of the class.
func (cl *class) share() float64 { return float64(cl.head().placedCost) / float64(cl.weight) }

// admit consumes tokens and a concurrency slot of each throttle of the class for a message,
// advances the start tags, and ends the claim of the class. The caller delivers the message.
// Where a throttle has no other class, there is no order to keep, and the tags stay as they
// are.
func (o *Order) admit(cl *class, k *Key) {
	o.endClaim(cl)
	cl.fresh = false
	cl.useTurns(k.placedCost, false)
	o.consumeRoom(cl, k)
	o.resolve(cl)
}

// admitAhead is admit for a message that is delivered ahead of the turn of the class. It uses neither the claim of the
// class nor the turn that has opened it.
func (o *Order) admitAhead(cl *class, k *Key) {
	cl.useTurns(k.placedCost, true)
	o.consumeRoom(cl, k)
}

// useTurns advances the start tags of a class, and the turns of its queue, by a delivery. Virtual times advance with
// it unless it is ahead of the turn: the classes that wait come first then, until they have had as much.
func (cl *class) useTurns(cost uint32, ahead bool) {
	for i := range cl.flows {
		s := &cl.flows[i]
		t, e := s.throttle, s.entry
		if len(t.entries) == 1 && len(e.classes) == 1 {
			continue // no other class shares the throttle
		}
		share, behind := float64(cost)/float64(cl.weight), 0.0
		if len(cl.flows) > 1 {
			behind = slackTurns
		}
		start := max(s.tag, e.vtime-behind*share)
		turn := max(e.turn, t.vtime-e.slack())
		if !ahead {
			e.vtime = max(e.vtime, start)
			t.vtime = max(t.vtime, turn)
		}
		s.tag = start + share
		e.step = t.length(int64(cost))
		e.turn = turn + e.step
		if e.at >= 0 {
			t.line.Fix(e)
		}
	}
}

// consumeRoom takes what a message of the class needs of its throttles, and has those look again that keep something.
func (o *Order) consumeRoom(cl *class, k *Key) {
	o.consume(k)
	for i := range cl.flows {
		t := cl.flows[i].throttle
		if len(t.claims) > 0 {
			o.arm(t) // a class with a claim waits for the next token here, while in the line of another throttle
		}
		if t.set.ByCost || len(t.savers) > 0 {
			o.usedRoom(t)
		}
	}
}

// block stops an open class: it waits in the line of a throttle that has no room for it. The
// class gets a claim if other classes have passed it over (claims.go). If it has one that fits, that is served next: the
// room is saved or reserved for others, which come after it. Its turn goes to another class of the queue, unless it comes
// before all of them in the line: else polls of a queue without demand would open and stop it in turns.
func (o *Order) block(cl *class, full *flow) {
	s := cl.scheduler
	s.open.remove(cl)
	turn := cl.endTurn()
	cl.state, cl.stopped = classWaiting, s.round
	o.waitAt(cl, full)
	if cl.claimFits(o.now) { // while it was open, its throttles were listed for its claim in vain; one of them is enough
		o.list(cl.flows[0].throttle)
	}
	if turn != nil {
		if first, waits := turn.waiting.First(); waits && first != cl {
			o.join(turn)
			o.list(turn.throttle)
		}
	}
	s.closed()
}

// waitAt puts a class that is in no heap into the line of a throttle.
func (o *Order) waitAt(cl *class, full *flow) {
	t, e := full.throttle, full.entry
	t.countRefused()
	cl.head().tally.Refused++
	cl.scheduler.queue.throttled.refused++
	cl.since, cl.entry, cl.tag = o.now, e, cl.tagAt(full)
	cl.countWaiting(o.now, int64(cl.keys))
	e.waiting.Push(cl)
	o.join(e)
	o.mayClaim(cl)
	o.arm(t)
}

// tagAt is the start tag of the class at a throttle where it waits.
func (cl *class) tagAt(s *flow) float64 { return max(s.tag, s.entry.vtime-slackTurns*cl.share()) }

// leaveLine takes a waiting class out of the line that it is in.
func (o *Order) leaveLine(cl *class) {
	cl.countWaiting(o.now, -int64(cl.keys))
	cl.waited = cl.waitedBy(o.now)
	cl.entry.waiting.Remove(cl)
}

// turnOf returns the entry that is first in the line and whose queue can use room now, or nil.
func (t *throttle) turnOf() *entry {
	if e, ok := t.line.First(); ok && !e.passed() {
		return e
	}
	return nil
}

// turnAt is turnOf for a class at a throttle that still has to give its room away. Other queues that cannot use it are
// passed over first: one at the front would hide those behind it for as long as classes that need this throttle and
// another one take its room in the turns of the other one.
func (s *flow) turnAt(o *Order) *entry {
	for s.throttle.listed {
		e, ok := s.throttle.line.First()
		if !ok || e == s.entry || !e.passed() {
			break
		}
		e.passOver(o)
	}
	return s.throttle.turnOf()
}

// passed reports whether the queue of an entry cannot use room now.
func (e *entry) passed() bool {
	return e.waiting.Len() == 0 || e.scheduler.detached || !e.scheduler.queue.HasDemand()
}

// passOver takes an entry out of the line whose queue cannot use room now. A class of it stays open for the next consumer
// that asks.
func (e *entry) passOver(o *Order) {
	if cl, waits := e.waiting.First(); waits && e.eligible == 0 && !e.scheduler.detached {
		o.open(cl)
	}
	e.throttle.line.Remove(e)
}

// open opens a waiting class for one turn of its entry.
func (o *Order) open(cl *class) {
	s, e := cl.scheduler, cl.entry
	o.leaveLine(cl)
	cl.offset += s.round - cl.stopped
	cl.state = classOpen
	s.open.push(cl)
	e.eligible++
	o.host.Announce(s.queue)
}

// resolve records that a class has used the turn that opened it, or will not use it. The entry
// returns to the line if other classes of the queue wait there.
func (o *Order) resolve(cl *class) {
	if e := cl.endTurn(); e != nil && e.waiting.Len() > 0 {
		o.join(e)
		o.list(e.throttle)
	}
}

// endTurn forgets the turn that has opened the class, and returns its entry; nil: there was none.
func (cl *class) endTurn() *entry {
	e := cl.entry
	if cl.entry = nil; e != nil {
		e.eligible--
	}
	return e
}

// dropClass detaches a class of a purged queue from its throttles. It does not list them:
// throttles pass over the entries of detached schedulers.
func (o *Order) dropClass(cl *class) {
	o.endClaim(cl)
	for i := range cl.flows {
		o.countKeys(&cl.flows[i], -int64(cl.keys))
	}
	if e := cl.entry; cl.state == classWaiting {
		o.leaveLine(cl)
	} else if e != nil {
		e.eligible--
	}
	cl.entry, cl.state, cl.keys, cl.held, cl.calendar = nil, classIdle, 0, 0, calendar{}
	o.retire(cl)
}
