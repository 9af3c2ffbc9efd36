package engine

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/faisca/fila/internal/firstfit"
)

// A key whose next message is not covered by one of its budgets leaves the ring: it is in its
// class, but not in the calendar. It keeps its place in the circle, its credit, and the distance
// to its last visit. The states of a key of a class with budgets:
//
//	in the ring  in the calendar of its class
//	held         in draw.held of a budget: its next message was not covered when it came up
//	loose        in the ring, as the first key of a draw that is covered again
//
//	in the ring → held   holdKey: pick has come to it, and a budget does not cover it
//	held → loose         release: its budget covers it, and it is its turn
//	loose → in the ring  unloose: it has delivered, or its class has another next message of it
//	held → in the ring   returnToRing: it has another next message
//
// Which key is released is decided on two levels, both with firstfit.Tree: of the draws in the
// line of a budget the first by start tag that has a covered key, and of the keys of that draw the
// first by deficit round robin that is covered. So a cheaper key passes one that is not covered,
// at the cost of a search, and weights hold among the others. A draw has at most one loose key. It
// returns to the line when that has delivered or is held again, so a queue that does not consume,
// or is stopped by a throttle, has one key of each class woken and not all. Credits are reserved
// by a delivery only (reserveCharge), after all budgets and throttles of the message were checked.

// lacking returns the index of the first of the budgets of a key that its next message has to
// wait for, -1 if there is none: the budget does not cover it, or a key that is covered again
// comes before.
func (c *core) lacking(k *dispatchKey) int {
	for i, d := range k.class.draws {
		a, charge := d.line.account, k.set.charge
		if a == nil {
			return i
		}
		if !c.covers(a, charge) {
			return i
		}
		if l := d.line; (l.listed || l == c.grants.line) && d.loose != k && c.comesBefore(d, k) {
			return i
		}
	}
	return -1
}

// comesBefore reports whether a key that waits in the line of a budget comes before a key of the
// ring that names it: room that has appeared is given away in the order of the line.
func (c *core) comesBefore(d *draw, k *dispatchKey) bool {
	first := c.firstCovered(d.line)
	switch first {
	case nil:
		return false
	case d:
		o, _ := d.held.First(c.cover(d.line.account))
		return o.dueBefore(k)
	default:
		return first.class.scheduler.queue.hasDemand() && first.tag <= max(d.tag, d.line.vtime)
	}
}

// firstCovered returns the first draw in the line of a budget with a key that is covered, or nil.
func (c *core) firstCovered(l *budgetLine) *draw {
	if l.account == nil {
		return nil
	}
	d, _ := l.waiting.First(c.cover(l.account))
	return d
}

// Precedes orders the keys of a class in the calendar and in draw.held.
func (k *dispatchKey) Precedes(o *dispatchKey) bool { return k.dueBefore(o) }

// holdKey takes a key out of the ring until one of its budgets, given by its index, covers its next
// message.
func (c *core) holdKey(k *dispatchKey, i int) {
	cl := k.class
	d := cl.draws[i]
	charge := k.set.charge
	c.unloose(k)
	cl.held++
	cl.heldWeight += int64(k.placedWeight)
	c.leaveRing(k)
	k.held = uint8(i + 1)
	d.leaveLine()
	if d.held.Len() == 0 {
		d.enter(charge)
	}
	d.held.Insert(k, charge)
	d.standInLine()
	d.line.keys++
	c.accounts.held++
	c.armRefill(d.line)
	if a := d.line.account; a != nil && !c.covers(a, charge) {
		c.ranDry(a)
	}
}

// unhold takes a key out of draw.held.
func (c *core) unhold(k *dispatchKey) {
	cl := k.class
	d := cl.draws[k.held-1]
	d.leaveLine()
	d.held.Remove(k)
	d.standInLine()
	k.held = 0
	cl.held--
	cl.heldWeight -= int64(k.placedWeight)
	d.line.keys--
	c.accounts.held--
	c.armRefill(d.line)
}

// returnToRing puts a held key back into the calendar of its class. Rounds that have passed it
// meanwhile give no credit.
func (c *core) returnToRing(k *dispatchKey) {
	c.unhold(k)
	cl := k.class
	first := c.openRing(cl)
	if late := cl.present() - k.due; late > 0 {
		k.base, k.due = k.base+late, k.due+late
	}
	cl.insert(k)
	c.joinRing(k, first)
}

// holdsFor reports whether a held key waits for a message with the charge and cost of this one.
func (c *core) holdsFor(k *dispatchKey, h *head) bool {
	charge, ok := k.class.draws[k.held-1].held.Need(k)
	return ok && charge == h.set.charge && h.cost == k.placedCost && h.weight == k.placedWeight
}

// release returns the first covered key of a draw to the ring, as its loose key.
func (c *core) release(d *draw) {
	k, _ := d.held.First(c.cover(d.line.account))
	d.loose = k
	c.returnToRing(k)
}

// unloose ends the state loose of a key, if it is: its draws stand in line again.
func (c *core) unloose(k *dispatchKey) {
	for _, d := range k.class.draws {
		if d.loose == k {
			d.loose = nil
			d.standInLine()
			c.listLine(d.line)
		}
	}
}

// ranDry emits, once until credits have come in, that a key waits for a budget. Credits that do
// not suffice for all keys that wait emit it again, so a subscriber that adds credits is told when
// they were too few. The state is in memory only: a start begins without it.
func (c *core) ranDry(a *account) {
	if !a.dry {
		a.dry = true
		c.emitBudget(EventBudgetEmpty, a)
	}
}

// emitBudget emits an event of a budget.
func (c *core) emitBudget(kind EventKind, a *account) {
	c.emit(Event{Kind: kind, Budget: a.name, Balance: a.sums.Balance(), Available: a.sums.Available()})
}

// draw is a class at one of the budgets of its messages: a flow of start-time fair queueing, as
// at a throttle (admission.go), with the charge of a message as its length.
type draw struct {
	class *class
	line  *budgetLine
	held  firstfit.Tree[*dispatchKey] // keys that wait for the budget, with the charges of their next messages
	loose *dispatchKey                // the key that was returned to the ring because it is covered, until it delivers or waits again; nil: none
	tag   float64                     // start tag of its next delivery; below 0: never set
	order uint64                      // of joining the line; decides between equal tags
	lined bool                        // it is in line.waiting: it has keys that wait, and none is loose
}

// Precedes orders the draws in a line.
func (d *draw) Precedes(o *draw) bool { return d.tag < o.tag || d.tag == o.tag && d.order < o.order }

// budgetLine is what waits for the budget of a name, whether there is such a budget or not. It
// exists while a class names the budget.
type budgetLine struct {
	name    string
	seq     uint64   // its number: the order of creation
	account *account // nil: there is no budget of that name
	draws   int      // classes that name it
	keys    int64    // keys that wait for it

	waiting firstfit.Tree[*draw] // with the least charges of their keys
	vtime   float64              // virtual time: the start tag of the last delivery
	order   uint64               // last number given to a draw
	listed  bool                 // it is in grants.lines
	watched []*throttle          // keep room, or tokens, for classes that name it
	wakeAt  int64                // of its timer: the next refill, by the system clock, see core.calendar
	timer   int                  // index in accountTable.timers; -1: no timer
}

func (l *budgetLine) Before(o *budgetLine) bool { return l.wakeAt < o.wakeAt }
func (l *budgetLine) Index() *int               { return &l.timer }

// appendSignature appends what distinguishes classes that name the budget.
func (l *budgetLine) appendSignature(dst []byte) []byte {
	const budget = 1 << 62
	return binary.BigEndian.AppendUint64(dst, l.seq|budget)
}

// freed records that an account has got more available, and has the keys looked at that wait for it.
func (c *core) freed(a *account) {
	a.freedIn = c.out.batchNo
	if a.line != nil {
		c.listLine(a.line)
	}
}

// drawsOn returns draws on the budgets, in the order of their lines, which it creates if need be.
func (c *core) drawsOn(budgets []string) []*draw {
	if len(budgets) == 0 {
		return nil
	}
	s := &c.accounts
	draws := make([]*draw, len(budgets))
	for i, name := range budgets {
		l := s.lines[name]
		if l == nil {
			s.lineNo++
			l = &budgetLine{name: name, seq: s.lineNo, account: s.byName.Get(name), timer: -1}
			if s.lines[name] = l; l.account != nil {
				l.account.line = l
			}
		}
		draws[i] = &draw{line: l, tag: -1}
	}
	slices.SortFunc(draws, func(a, b *draw) int { return cmp.Compare(a.line.seq, b.line.seq) })
	return draws
}

// leaveBudget takes a class that is dropped out of the line of a budget, and drops the line with
// its last class.
func (c *core) leaveBudget(d *draw) {
	d.leaveLine()
	l := d.line
	l.keys -= int64(d.held.Len())
	c.accounts.held -= int64(d.held.Len())
	d.held, d.loose = firstfit.Tree[*dispatchKey]{}, nil
	if l.draws--; l.draws == 0 {
		delete(c.accounts.lines, l.name)
		if l.account != nil {
			l.account.line = nil
		}
	}
	c.armRefill(l)
}

// enter updates the start tag of a draw whose first key begins to wait: one that is new comes one
// delivery after the virtual time, and none makes up for the time in which it did not wait.
func (d *draw) enter(charge int64) {
	if d.tag < 0 {
		d.tag = d.line.vtime + d.share(charge)
	}
	d.tag = max(d.tag, d.line.vtime)
	d.line.order++
	d.order = d.line.order
}

// deliver advances the start tag of a draw by a delivery.
func (d *draw) deliver(charge int64) {
	d.leaveLine()
	start := max(d.tag, d.line.vtime)
	d.line.vtime = start
	d.tag = start + d.share(charge)
	d.standInLine()
}

// share is by how much a delivery of that charge advances the start tag.
func (d *draw) share(charge int64) float64 {
	return float64(charge) / float64(max(d.class.weight+d.class.heldWeight, 1))
}

// leaveLine takes a draw out of its line before its tag or its least charge changes.
func (d *draw) leaveLine() {
	if d.lined {
		d.line.waiting.Remove(d)
		d.lined = false
	}
}

// standInLine puts a draw into its line if it has keys that wait and none is loose.
func (d *draw) standInLine() {
	if charge, waits := d.held.Least(); waits && d.loose == nil && !d.lined {
		d.line.waiting.Insert(d, charge)
		d.lined = true
	}
}

// armRefill sets the timer of a line for the next refill, if keys wait for it.
func (c *core) armRefill(l *budgetLine) {
	a := l.account
	if l.keys == 0 || a == nil || a.sums.NextAt == 0 {
		if l.timer >= 0 {
			c.accounts.timers.Remove(l)
		}
		return
	}
	c.catchUp(a)
	at := a.sums.NextAt
	if now := c.calendar(); at <= now { // the store is full
		at = now + int64(c.cfg.RetryInterval)
	}
	switch {
	case l.timer < 0:
		l.wakeAt = at
		c.accounts.timers.Push(l)
	case l.wakeAt != at:
		l.wakeAt = at
		c.accounts.timers.Fix(l)
	}
}

// expireRefills refills the budgets that keys wait for and whose tick has come.
func (c *core) expireRefills() {
	for c.room() {
		l, ok := c.accounts.timers.First()
		if !ok || l.wakeAt > c.calendar() {
			return
		}
		c.spend(1)
		c.catchUp(l.account)
		c.armRefill(l)
	}
}

// lacks iterates over the budgets that do not cover a message, by name.
func (c *core) lacks(m *message) iter.Seq2[string, *account] {
	return func(yield func(string, *account) bool) {
		if m.key.queue.isDLQ() {
			return
		}
		for i, a := range c.accountsOf(m.throttles) {
			if (a == nil || !a.sums.Covers(m.throttles.charge)) && !yield(m.throttles.budgets[i], a) {
				return
			}
		}
	}
}

// covered reports whether its budgets cover a message.
func (c *core) covered(m *message) bool {
	for range c.lacks(m) {
		return false
	}
	return true
}

// refillFor adds to the budgets of a message what the ticks up to now have brought.
func (c *core) refillFor(m *message) {
	for _, a := range c.accountsOf(m.throttles) {
		if a != nil {
			c.catchUp(a)
		}
	}
}

// lack describes the first budget that does not cover a message now, nil if all do.
func (c *core) lack(m *message) (first *Lack) {
	c.refillFor(m)
	for name, a := range c.lacks(m) {
		l := &Lack{Budget: name, Charge: m.throttles.charge, missing: a == nil}
		if a != nil {
			s := a.sums // a copy, which is refilled
			l.Available = s.Available()
			if s.Fill() > 0 && s.Covers(l.Charge) && s.NextAt != 0 {
				l.ReadyAt = unix(s.NextAt)
			}
			if most := s.Refill.Max; most > 0 && most+s.Debt < l.Charge {
				l.never = most
			}
		}
		switch {
		case first == nil:
			first = l
		case l.ReadyAt.IsZero() || !first.ReadyAt.IsZero() && l.ReadyAt.After(first.ReadyAt):
			first.ReadyAt = l.ReadyAt
		}
	}
	return first
}
