package engine

import "math"

// Which class goes next when a throttle has room.
//
// Nothing is reserved, but for claims. A class that a consumer asks for and a throttle stops waits in
// that throttle's line, under the entry of its queue. When the throttle has room, wake
// opens the class whose turn it is and lets the queue's consumers take it in the same
// step; a queue that cannot use the room now is passed over and leaves the line, with
// one class open for the next consumer that asks. So room never waits for a queue
// without a consumer, with busy consumers, paused, or stopped by another throttle, and
// an idle queue costs nothing.
//
// The order is start-time fair queueing (Goyal, Vin and Cheng, 1996) on two levels.
// Queues take turns at a throttle, one delivery each, however many keys they have. The
// classes of one queue share its turns by the weight of their keys and the cost of what
// they deliver. What two of them got per weight then differs by at most the largest cost
// of each, while both wait for nothing but this throttle.

// entry is what a queue has at a throttle.
type entry struct {
	throttle  *throttle
	scheduler *scheduler
	waiting   timers[*class] // by tag
	eligible  int            // classes that were opened here and have not delivered since
	classes   int            // that name the throttle, also idle ones
	several   int            // of those, the ones that name others, too
	keys      int64          // in these classes

	vtime float64 // start tag of the class that went last
	turn  float64 // start tag of the queue's next turn
	at    int     // in throttle.line, -1: not in it
	order uint64
}

func (e *entry) before(o *entry) bool {
	return e.turn < o.turn || e.turn == o.turn && e.order < o.order
}
func (e *entry) index() *int { return &e.at }

// slot is a throttle of a class.
type slot struct {
	throttle *throttle
	entry    *entry
	tag      float64 // start tag of the next message of the class
	reserved bool    // a place or token is kept for the class
}

// countKeys notes that so many keys more name the throttle.
func (s *slot) countKeys(n int64) {
	s.throttle.keys += n
	s.entry.keys += n
}

// slack is by how many turns a class that needs several throttles may be behind at one
// of them without forgetting any.
const slackTurns = 4

// lag is by how many turns the queue may be behind at the throttle.
func (e *entry) slack() float64 {
	if e.several > 0 {
		return slackTurns
	}
	return 0
}

// join puts the entry into the line.
func (c *core) join(e *entry) {
	if e.at >= 0 {
		return
	}
	c.throttles.order++
	e.turn, e.order = max(e.turn, e.throttle.vtime-e.slack()), c.throttles.order
	e.throttle.line.push(e)
}

// entryOf returns the entry of a queue at the throttle, for one class more.
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

// release takes a class away from the entry.
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

// saveTurn keeps the turn of a queue that was emptied: a purge makes it no better and no
// worse.
func (e *entry) saveTurn() {
	q := e.scheduler.queue
	if q.turns == nil {
		q.turns = map[*throttle]float64{}
	}
	q.turns[e.throttle] = e.turn
}

// enter gives a class that had no keys its place among those that use its throttles: one
// that is new comes a turn behind them, as if it had just delivered.
func (cl *class) enter(cost uint32) {
	for i := range cl.slots {
		s := &cl.slots[i]
		if s.tag < 0 {
			s.tag = s.entry.vtime + float64(cost)/float64(cl.weight)
		}
		s.tag = max(s.tag, s.entry.vtime)
	}
}

// full returns the slot of a throttle of the class that has no room for it, or nil.
func (cl *class) full(now int64) *slot {
	for i := range cl.slots {
		if s := &cl.slots[i]; s.room(now) < 1 {
			return s
		}
	}
	return nil
}

// yields returns the slot of a throttle that has got room which is another class's turn,
// or nil. It matters where a class needs several throttles that get room at the same time:
// the one that is looked at first must not give away the room of the others. For the others
// it matters while wakeAll has left throttles to the next step, and while wake gives away room
// for many at once: one queue with many consumers must not take the turns of the others.
func (c *core) yieldsTo(cl *class) *slot {
	if len(cl.slots) < 2 && !c.throttles.deferred && c.throttles.waking == nil {
		return nil
	}
	for i := range cl.slots {
		s := &cl.slots[i]
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

// share is by how much a delivery of the next message moves the tags of the class on.
func (cl *class) share() float64 { return float64(cl.head().placedCost) / float64(cl.weight) }

// room is how many messages of the class the throttle admits now.
func (s *slot) room(now int64) int64 {
	if s.reserved {
		return s.throttle.roomWithReserved(now, 0)
	}
	return s.throttle.room(now)
}

// admit takes a token and a place of each throttle of a class for a message that is
// delivered now, and moves the tags on by it.
func (c *core) admit(cl *class, m *message) {
	c.endClaim(cl)
	for i := range cl.slots {
		s := &cl.slots[i]
		t, e := s.throttle, s.entry
		if len(t.entries) == 1 && e.classes == 1 {
			continue // nothing to share it with
		}
		share, behind := float64(m.cost)/float64(cl.weight), 0.0
		if len(cl.slots) > 1 {
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
	for i := range cl.slots {
		if t := cl.slots[i].throttle; len(t.claims) > 0 {
			c.arm(t) // a claim waits for the next token, in the line of another throttle
		}
	}
	c.resolve(cl)
}

// block moves an open class into the line of a throttle that has no room for it.
func (c *core) block(cl *class, full *slot) {
	s := cl.scheduler
	s.open.remove(cl)
	c.resolve(cl)
	t, e := full.throttle, full.entry
	t.refused++
	cl.head().stats.refused++
	cl.state, cl.stopped, cl.since = classWaiting, s.round, c.now
	t.countWaiting(c.now, int64(cl.keys))
	cl.entry, cl.tag = e, max(full.tag, e.vtime-slackTurns*cl.share())
	e.waiting.push(cl)
	c.join(e)
	if !s.hasOpen() {
		s.announced = false
	}
	c.mayClaim(cl)
	c.arm(t)
}

// takes says that a consumer waits for the queue and may have what it asks for.
func (q *queue) hasDemand() bool { return q.waiters.first != nil && !q.set.PausedOut }

// open lets a waiting class deliver again, if it is its turn in its queue.
func (c *core) open(cl *class) {
	s, e := cl.scheduler, cl.entry
	e.throttle.countWaiting(c.now, -int64(cl.keys))
	cl.waited = cl.waitedBy(c.now)
	e.waiting.remove(cl)
	cl.offset += s.round - cl.stopped
	cl.state = classOpen
	s.open.push(cl)
	e.eligible++
	c.announceReady(s.queue)
}

// resolve notes that a class has used the turn that opened it, or will not use it. The
// entry may have another one.
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

// dropClass takes a class of an emptied queue out of the throttles that it names. Nothing
// waits for that: they pass over what is left of the queue.
func (c *core) dropClass(cl *class) {
	c.endClaim(cl)
	for i := range cl.slots {
		cl.slots[i].countKeys(-int64(cl.keys))
	}
	if e := cl.entry; cl.state == classWaiting {
		e.throttle.countWaiting(c.now, -int64(cl.keys))
		e.waiting.remove(cl)
	} else if e != nil {
		e.eligible--
	}
	cl.entry, cl.state, cl.keys, cl.calendar = nil, classIdle, 0, calendar{}
	cl.retire()
}

// notify has wake look at a throttle that may have room for what waits for it.
func (c *core) notify(t *throttle) {
	if !t.notified && (t.line.len() > 0 || len(t.claims) > 0) {
		t.notified = true
		c.throttles.notified = append(c.throttles.notified, t)
	}
}

// wakeAll serves what waits for throttles that have got room. It goes before anything
// else that could take the room. What the step has no budget for is left to the next one,
// and pick gives none of that room to another class meanwhile.
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

// wake lets classes of the line go on for as long as the throttle has room and there
// is a consumer for them.
func (c *core) wake(t *throttle) {
	if e, ok := t.line.next(); ok && e.waiting.len() > 0 && !e.scheduler.detached {
		cl, _ := e.waiting.next() // claims of others may keep the room from it
		c.mayClaim(cl)
	}
	if t.reservedFor != nil && t.reservedUntil(c.now) <= c.now {
		c.unreserveAll(t.reservedFor)
	}
	for c.room() && c.advanceClaim(t) {
	}
	for c.room() && t.room(c.now) >= 1 {
		e, ok := t.line.next()
		if !ok {
			break
		}
		q := e.scheduler.queue
		demand := q.hasDemand()
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
			t.line.remove(e) // resolve puts it back
		}
		for c.room() && c.advanceClaim(t) {
		}
	}
	if !c.room() {
		c.notify(t) // it goes on in the next step
	}
	c.arm(t)
}

// arm sets the timer for the next token that something waits for, and for the time at
// which room that is kept is given back.
func (c *core) arm(t *throttle) {
	at := int64(math.MaxInt64)
	waits := t.line.len() > 0 || len(t.claims) > 0
	placed := t.set.Concurrency == 0 || t.inUse+t.reservedRoom() < int64(t.set.Concurrency) //nolint:gosec // bounded when it is set
	if waits && placed && t.set.Rate > 0 && t.room(c.now) < 1 {
		at = t.nextToken(c.now)
	}
	if t.reservedFor != nil {
		at = min(at, t.reservedUntil(c.now))
	}
	if at == math.MaxInt64 {
		c.disarm(t)
		return
	}
	t.wakeAt = max(at, c.now+1)
	if t.timer < 0 {
		c.throttles.timers.push(t)
	} else {
		c.throttles.timers.fix(t)
	}
}

func (c *core) disarm(t *throttle) {
	if t.timer >= 0 {
		c.throttles.timers.remove(t)
	}
}

// nextToken is when the bucket will have a token.
func (t *throttle) nextToken(now int64) int64 {
	missing := max(float64(1+t.reservedRoom())-tokenSlack-t.level(now), 0)
	wait := math.Ceil(missing * 1e9 / t.set.Rate)
	return now + int64(min(max(wait, 1), float64(durationMax)))
}
