package engine

// This file decides which class delivers next when a throttle has room.
//
// # Room
//
// A throttle has room for a message if its bucket holds the tokens that the message takes and a
// concurrency slot is free, without what is reserved for a claim (claims.go). Room appears and
// is used like this:
//
//   1. Room appears: a token is due (arm), a lease ends, the setting changes, or a claim
//      ends. notify lists the throttle.
//   2. wakeAll takes the listed throttles in order, before anything else in the step can use
//      the room.
//   3. wake takes the first entry of the throttle's line, opens the class in it whose turn it
//      is, and has the waiting consumers of its queue served in the same step. It repeats this
//      for as long as there is room.
//   4. pick admits the message (admit): it consumes tokens and a slot of each throttle,
//      atomically with the delivery. If another throttle of the class has no room, the class
//      waits there instead (block).
//   5. What is left waits for the next event. arm sets the timer for the next token.
//
// Only a claim reserves room. A queue that cannot use the room now is passed over: wake removes
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
//	throttle  queues                1 for a delivery  1
//	entry     classes of one queue  cost              that of the keys of the class
//
// Queues thus take turns at a throttle, one delivery each, however many keys they have, and the
// classes of a queue share its turns by weight and cost. While two flows wait for nothing but
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
	waiting   timers[*class] // classes in state waiting that this throttle stopped, by start tag
	eligible  int            // open classes that a turn of this entry has opened and that have not delivered since
	classes   int            // classes that name the throttle, idle ones included
	several   int            // of these, the ones that name other throttles as well
	keys      int64          // keys of these classes

	vtime float64 // virtual time among the classes: the start tag of the last delivery
	turn  float64 // start tag of the queue's next turn at the throttle
	at    int     // index in throttle.line; -1: not in it
	order uint64  // of joining the line; decides between equal turns
}

func (e *entry) before(o *entry) bool {
	return e.turn < o.turn || e.turn == o.turn && e.order < o.order
}
func (e *entry) index() *int { return &e.at }

// flow is a class at one of its throttles: a flow of start-time fair queueing.
type flow struct {
	throttle *throttle
	entry    *entry
	need     int64   // tokens that a delivery takes of the throttle; the same for all keys of the class
	tag      float64 // start tag of the next message of the class in entry; below 0: never set
	reserved bool    // a slot and the needed tokens of the throttle are reserved for the claim of the class
}

// countKeys adds n, which may be negative, to the number of keys that name the throttle.
func (s *flow) countKeys(n int64) {
	s.throttle.keys += n
	s.entry.keys += n
}

// slackTurns is the number of turns that a class with several throttles may be behind the
// virtual time of one of them without losing any. Such a class often misses its turn at one
// throttle because it waits for another; in plain start-time fair queueing it would lose all of
// these turns.
const slackTurns = 4

// slack is the number of turns that the queue may be behind the virtual time of the throttle:
// slackTurns if a class of the queue needs other throttles as well, else none.
func (e *entry) slack() float64 {
	if e.several > 0 {
		return slackTurns
	}
	return 0
}

// join adds the entry to the line of its throttle unless it is there. Its turn is at the
// virtual time less the slack at the earliest.
func (c *core) join(e *entry) {
	if e.at >= 0 {
		return
	}
	c.throttles.order++
	e.turn, e.order = max(e.turn, e.throttle.vtime-e.slack()), c.throttles.order
	e.throttle.line.push(e)
}

// entryOf returns the entry of a queue at the throttle, for one more class. several says that
// the class names other throttles as well. A new entry comes one turn after the virtual time,
// as if the queue had just delivered, or takes over the turn that the queue had before a purge.
func (t *throttle) entryOf(s *scheduler, several bool) *entry {
	q := s.queue
	e := t.entries[q]
	if e != nil && e.scheduler != s {
		e.saveTurn()
		e = nil
	}
	if e == nil {
		e = &entry{throttle: t, scheduler: s, at: -1, turn: t.vtime + 1}
		if turn, ok := q.turns[t]; ok {
			e.turn = turn
			delete(q.turns, t)
		}
		t.entries[q] = e
	}
	e.classes++
	if several {
		e.several++
	}
	return e
}

// release removes one class from the entry, and the entry from the throttle with its last
// class.
func (e *entry) release(several bool) {
	if several {
		e.several--
	}
	if e.classes--; e.classes > 0 {
		return
	}
	if e.throttle.entries[e.scheduler.queue] == e {
		delete(e.throttle.entries, e.scheduler.queue)
		if e.scheduler.detached {
			e.saveTurn()
		}
	}
	if e.at >= 0 {
		e.throttle.line.remove(e)
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

// enter updates the start tags of a class that had no keys. A new class comes one delivery
// after the virtual time, as if it had just delivered. A class that was idle does not make up
// for that time.
func (cl *class) enter(cost uint32) {
	for i := range cl.flows {
		s := &cl.flows[i]
		if s.tag < 0 {
			s.tag = s.entry.vtime + float64(cost)/float64(cl.weight)
		}
		s.tag = max(s.tag, s.entry.vtime)
	}
}

// full returns the flow at a throttle that has no room for the class, or nil if all of them
// have. It does not count room that is reserved for other classes.
func (cl *class) full(now int64) *flow {
	for i := range cl.flows {
		if s := &cl.flows[i]; !s.admits(now) {
			return s
		}
	}
	return nil
}

// yieldsTo returns the flow at a throttle whose room belongs to the turn of another class, or
// nil if the class may deliver. The throttles concerned are those that wakeAll has not finished
// with:
//
//   - A class needs several throttles that get room in the same step. The throttle that wakeAll
//     takes first must not give away the room of the others.
//   - wakeAll has run out of budget and has deferred some throttles to the next step.
//   - wake gives away the room for many messages at once. A queue with many waiting consumers
//     must not take the turns of the other queues.
func (c *core) yieldsTo(cl *class) *flow {
	if len(cl.flows) < 2 && !c.throttles.deferred && c.throttles.waking == nil {
		return nil
	}
	for i := range cl.flows {
		s := &cl.flows[i]
		t, e := s.throttle, s.entry
		if !t.notified && (t != c.throttles.waking || cl.claim != 0) {
			continue
		}
		first, ok := t.line.next()
		if !ok || first.waiting.len() == 0 || first.scheduler.detached || !first.scheduler.queue.hasDemand() {
			continue
		}
		if first != e && first.turn+1 <= max(e.turn, t.vtime-e.slack()) {
			return s
		}
		if o, _ := first.waiting.next(); first == e && o.tag+cl.share() <= max(s.tag, e.vtime-slackTurns*cl.share()) {
			return s
		}
	}
	return nil
}

// share is by how much the delivery of its next message advances the start tags of the class.
func (cl *class) share() float64 { return float64(cl.head().placedCost) / float64(cl.weight) }

// admits reports whether the throttle admits a message of the class now. What is reserved for
// the class itself counts as room.
func (s *flow) admits(now int64) bool {
	if s.reserved {
		return s.throttle.admitsReserved(now, s.need)
	}
	return s.throttle.admits(now, s.need)
}

// flowAt returns the flow of the class at one of its throttles.
func (cl *class) flowAt(t *throttle) *flow {
	i := 0
	for cl.flows[i].throttle != t {
		i++
	}
	return &cl.flows[i]
}

// admit consumes tokens and a concurrency slot of each throttle of the class for a message,
// advances the start tags, and ends the claim of the class. The caller delivers the message.
// Where a throttle has no other class, there is no order to keep, and the tags stay as they
// are.
func (c *core) admit(cl *class, m *message) {
	c.endClaim(cl)
	for i := range cl.flows {
		s := &cl.flows[i]
		t, e := s.throttle, s.entry
		if len(t.entries) == 1 && e.classes == 1 {
			continue // no other class shares the throttle
		}
		share, behind := float64(m.cost)/float64(cl.weight), 0.0
		if len(cl.flows) > 1 {
			behind = slackTurns
		}
		start := max(s.tag, e.vtime-behind*share)
		e.vtime = max(e.vtime, start)
		s.tag = start + share
		turn := max(e.turn, t.vtime-e.slack())
		t.vtime = max(t.vtime, turn)
		e.turn = turn + 1
		if e.at >= 0 {
			t.line.fix(e)
		}
	}
	c.consume(m)
	for i := range cl.flows {
		if t := cl.flows[i].throttle; len(t.claims) > 0 {
			c.arm(t) // a class with a claim waits for the next token here, while in the line of another throttle
		}
	}
	c.resolve(cl)
}

// block stops an open class: it waits in the line of a throttle that has no room for it. The
// class gets a claim if other classes have passed it over (claims.go).
func (c *core) block(cl *class, full *flow) {
	s := cl.scheduler
	s.open.remove(cl)
	c.resolve(cl)
	t, e := full.throttle, full.entry
	t.refused++
	cl.head().stats.refused++
	s.queue.throttled.refused++
	cl.state, cl.stopped, cl.since = classWaiting, s.round, c.now
	cl.entry, cl.tag = e, max(full.tag, e.vtime-slackTurns*cl.share())
	cl.countWaiting(c.now, int64(cl.keys))
	e.waiting.push(cl)
	c.join(e)
	if !s.hasOpen() {
		s.announced = false
	}
	c.mayClaim(cl)
	c.arm(t)
}

// hasDemand reports whether the queue could deliver if its throttles had room: a consumer waits
// for it, and its deliveries are not paused.
func (q *queue) hasDemand() bool { return q.waiters.first != nil && !q.set.PausedOut }

// open opens a waiting class for one turn of its entry.
func (c *core) open(cl *class) {
	s, e := cl.scheduler, cl.entry
	cl.countWaiting(c.now, -int64(cl.keys))
	cl.waited = cl.waitedBy(c.now)
	e.waiting.remove(cl)
	cl.offset += s.round - cl.stopped
	cl.state = classOpen
	s.open.push(cl)
	e.eligible++
	c.announceReady(s.queue)
}

// resolve records that a class has used the turn that opened it, or will not use it. The entry
// returns to the line if other classes of the queue wait there.
func (c *core) resolve(cl *class) {
	e := cl.entry
	if e == nil {
		return
	}
	cl.entry = nil
	e.eligible--
	if e.waiting.len() > 0 {
		c.join(e)
		c.notify(e.throttle)
	}
}

// dropClass detaches a class of a purged queue from its throttles. It does not wake them:
// throttles pass over the entries of detached schedulers.
func (c *core) dropClass(cl *class) {
	c.endClaim(cl)
	for i := range cl.flows {
		cl.flows[i].countKeys(-int64(cl.keys))
	}
	if e := cl.entry; cl.state == classWaiting {
		cl.countWaiting(c.now, -int64(cl.keys))
		e.waiting.remove(cl)
	} else if e != nil {
		e.eligible--
	}
	cl.entry, cl.state, cl.keys, cl.calendar = nil, classIdle, 0, calendar{}
	cl.retire()
}

// notify lists a throttle that may have room for wakeAll, unless nothing waits for it.
func (c *core) notify(t *throttle) {
	if !t.notified && (t.line.len() > 0 || len(t.claims) > 0) {
		t.notified = true
		c.throttles.notified = append(c.throttles.notified, t)
	}
}

// wakeAll gives the room of the listed throttles to the classes that wait for it. It runs
// before anything else that could use the room. Throttles for which the step has no budget left
// are deferred to the next step; until then, yieldsTo protects their room.
func (c *core) wakeAll() {
	if c.throttles.waking != nil || c.health.failed != nil {
		return
	}
	c.throttles.deferred = false
	for len(c.throttles.notified) > 0 && c.room() {
		c.throttles.waking, c.throttles.notified = c.throttles.notified[0], c.throttles.notified[1:]
		c.throttles.waking.notified = false
		c.wake(c.throttles.waking)
		c.spend(1)
	}
	c.throttles.waking = nil
	if c.throttles.deferred = len(c.throttles.notified) > 0; !c.throttles.deferred {
		c.throttles.notified = nil
	}
}

// wake opens the classes whose turn it is at a throttle, for as long as the throttle has room
// and a consumer takes what is delivered. Claims go first.
func (c *core) wake(t *throttle) {
	if e, ok := t.line.next(); ok && e.waiting.len() > 0 && !e.scheduler.detached {
		cl, _ := e.waiting.next() // room may be reserved for the claims of others, so it may need one too
		c.mayClaim(cl)
	}
	if t.reservedFor != nil && t.reservedUntil(c.now) <= c.now {
		c.unreserveAll(t.reservedFor)
	}
	for c.room() && c.advanceClaim(t) {
	}
	for c.room() {
		e, ok := t.line.next()
		if !ok {
			break
		}
		q := e.scheduler.queue
		need, demand := e.need(), q.hasDemand()
		if !t.admits(c.now, need) && (demand || need == 1) {
			break // a queue without demand must not hold up those that need less
		}
		if e.scheduler.detached || e.waiting.len() == 0 || !demand && e.eligible > 0 {
			t.line.remove(e)
			continue
		}
		cl, _ := e.waiting.next()
		c.open(cl)
		if demand {
			c.serveQueue(q)
		}
		if cl.entry == e && e.at >= 0 && cl.state == classOpen {
			t.line.remove(e) // its turn is not used yet; resolve returns it
		}
		for c.room() && c.advanceClaim(t) {
		}
	}
	if !c.room() {
		c.notify(t) // continued in the next step
	}
	c.arm(t)
}
