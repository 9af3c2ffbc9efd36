package dispatch

// grants gives away the room of throttles and the credits of budgets as they appear. Whatever makes room lists
// its throttle or budget; the serve step asks for the queue whose turn is next (grant), has its consumers served,
// and asks again. grant is a cursor: a call sees what has become of the class that the last one has opened, and
// calls nothing back.
//
//	idle ──listed──▶ a budget or throttle under the cursor ──grant──▶ a class is open ──grant──▶ ... ──▶ idle
//
// The cursor may stand anywhere at the end of a step. A purge, a deleted throttle or a key that has left its class
// in between does no harm, as the state of the class says what has happened. A recovery begins with an idle one.
type grants struct {
	lines     []*line     // listed: may cover keys that wait
	throttles []*throttle // listed: may have room for what waits
	line      *line       // under the cursor; nil: none
	throttle  *throttle   // under the cursor; nil: none
	opened    opened      // at the throttle
	// claimed is true if the claims at the throttle have been looked at since a class was opened.
	claimed bool
	turn    *Queue // whose turn has come while a lease of another queue was being served; nil: none
}

// opened is the class that the cursor has opened last.
type opened struct {
	class *class // nil: none
	entry *entry // it was its turn there; nil: its claim was first
	claim uint64 // of the class when it was opened
}

// pending reports whether room or credits may be left to give away.
func (g *grants) pending() bool {
	return len(g.throttles)+len(g.lines) > 0 || g.throttle != nil || g.line != nil || g.turn != nil
}

// list lists a throttle that may have room, unless nothing waits for it.
func (o *Order) list(t *throttle) {
	if !t.listed && (t.gating || t.line.Len() > 0 || len(t.claims) > 0) {
		t.listed = true
		o.grants.throttles = append(o.grants.throttles, t)
	}
}

// listLine lists a budget that may cover keys that wait for it, unless none waits.
func (o *Order) listLine(l *line) {
	if !l.listed && l.waiting.Len() > 0 {
		l.listed = true
		o.grants.lines = append(o.grants.lines, l)
	}
}

// grant opens the class whose turn is next and returns its queue, which has demand; nil: there is none, or the step
// has no budget left. Budgets come first, then throttles in the order in which they were listed. While a throttle is
// under the cursor, its room is that of its line: see yieldsTo and saved.
func (o *Order) grant() *Queue {
	g := &o.grants
	for o.host.Room() {
		var q *Queue
		switch {
		case g.line != nil:
			q = o.grantCredits(g.line)
		case g.throttle != nil:
			q = o.grantRoom(g.throttle)
		case len(g.lines) > 0:
			g.line, g.lines = g.lines[0], g.lines[1:]
			g.line.listed = false
		case len(g.throttles) > 0:
			t := g.throttles[0]
			g.throttles, t.listed = g.throttles[1:], false
			if t.owner != nil {
				q = o.openGate(t)
				break
			}
			g.throttle = t
			o.beginGrants(t)
		default:
			g.lines, g.throttles = nil, nil
			return nil
		}
		if q != nil {
			return q
		}
	}
	return nil
}

// grantCredits returns the next key that waits for a budget and is covered to the ring, and returns its queue if that
// has demand. nil: the queue of that key has none, or the budget covers no key that waits and is done.
func (o *Order) grantCredits(l *line) *Queue {
	d := l.firstCovered()
	if d == nil {
		o.grants.line = nil
		if l.budget != nil && l.waiting.Len() > 0 {
			l.budget.RanDry()
		}
		return nil
	}
	o.host.Spend(1)
	o.release(d)
	if q := d.class.scheduler.queue; q.HasDemand() {
		return q
	}
	return nil
}

// beginGrants prepares a throttle for giving its room away.
func (o *Order) beginGrants(t *throttle) {
	o.grants.opened, o.grants.claimed = opened{}, false
	if e, ok := t.line.First(); ok && e.waiting.Len() > 0 && !e.scheduler.detached {
		cl, _ := e.waiting.First() // room may be reserved for the claims of others, so it may need one too
		o.mayClaim(cl)
	}
	if t.reservedFor != nil && t.reservedUntil(o.now) <= o.now {
		o.unreserveAll(t.reservedFor)
	}
}

// grantRoom opens the classes of a throttle, in their order, up to the first one whose queue has demand, which it
// returns. nil: the throttle has nothing left to give and is done, or the step has no budget left.
func (o *Order) grantRoom(t *throttle) *Queue {
	for o.closeGrant(t); o.host.Room() && o.openNext(t); o.closeGrant(t) {
		if q := o.grants.opened.class.scheduler.queue; q.HasDemand() {
			return q
		}
	}
	o.arm(t)
	if o.host.Room() {
		o.host.Spend(1)
		o.grants.throttle = nil
	}
	return nil
}

// openNext opens the class that comes next at a throttle, and reports whether there is one for which it has room: the
// class of its first claim, else the first in its line. A queue that cannot use the room leaves the line: a class of
// it stays open for the next consumer that asks.
func (o *Order) openNext(t *throttle) bool {
	g := &o.grants
	if !g.claimed {
		if cl := o.advanceClaim(t); cl != nil {
			g.opened = opened{class: cl, claim: cl.claim}
			o.open(cl)
			return true
		}
		g.claimed = true
	}
	for o.host.Room() {
		e, ok := t.line.First()
		if !ok {
			return false
		}
		if cl, waits := e.waiting.First(); waits && o.holdUncovered(cl) {
			continue
		}
		cl, _ := e.waiting.First()
		room := t.admits(o.now, e.need())
		switch {
		case !room && !t.set.ByCost:
			return false
		case e.passed():
			e.passOver(o)
		case room:
			o.open(cl)
			g.opened = opened{class: cl, entry: e}
			return true
		case !o.standAside(cl):
			return false // the tokens are saved for the class
		}
	}
	return false
}

// closeGrant sees what has become of the class that was opened last: a claim that has delivered nothing ends, and an
// entry whose turn is not used yet leaves the line until it is (resolve).
func (o *Order) closeGrant(t *throttle) {
	g := &o.grants
	was := g.opened
	if was.class == nil {
		return
	}
	g.opened, g.claimed = opened{}, false
	switch {
	case was.entry == nil && was.class.claim == was.claim:
		o.endClaim(was.class)
		g.claimed = true
	case was.entry != nil && was.class.entry == was.entry && was.entry.at >= 0 && was.class.state == classOpen:
		t.line.Remove(was.entry)
	}
}
