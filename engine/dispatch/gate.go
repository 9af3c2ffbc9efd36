package dispatch

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/faisca/fila/engine/internal/firstfit"
)

// A key whose next message is not covered by one of its budgets leaves the ring: it is in its
// class, but not in the calendar. It keeps its place in the circle, its credit, and the distance
// to its last visit. The states of a key of a class with budgets:
//
//	in the ring  in the calendar of its class
//	held         in draw.held of a budget: its next message was not covered when it came up
//	loose        in the ring, as the first key of a draw that is covered again
//
//	in the ring → held   holdKey: Next has come to it, and a budget does not cover it
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
// by a delivery only (Take), after all budgets and throttles of the message were checked.

// lacking returns the index of the first of the budgets of a key that its next message has to
// wait for, -1 if there is none: the budget does not cover it, or a key that is covered again
// comes before.
func (o *Order) lacking(k *Key) int {
	for i, d := range k.class.draws {
		if b := d.line.budget; b == nil || !b.Covers(k.set.Charge) {
			return i
		}
		if l := d.line; (l.listed || l == o.grants.line) && d.loose != k && o.comesBefore(d, k) {
			return i
		}
	}
	return -1
}

// comesBefore reports whether a key that waits in the line of a budget comes before a key of the
// ring that names it: room that has appeared is given away in the order of the line.
func (o *Order) comesBefore(d *draw, k *Key) bool {
	first := d.line.firstCovered()
	switch first {
	case nil:
		return false
	case d:
		other, _ := d.held.First(d.line.budget.Cover())
		return other.dueBefore(k)
	default:
		return first.class.scheduler.queue.HasDemand() && first.tag <= max(d.tag, d.line.vtime)
	}
}

// firstCovered returns the first draw in the line of a budget with a key that is covered, or nil.
func (l *line) firstCovered() *draw {
	if l.budget == nil {
		return nil
	}
	d, _ := l.waiting.First(l.budget.Cover())
	return d
}

// Precedes orders the keys of a class in the calendar and in draw.held.
func (k *Key) Precedes(o *Key) bool { return k.dueBefore(o) }

// holdKey takes a key out of the ring until one of its budgets, given by its index, covers its next
// message.
func (o *Order) holdKey(k *Key, i int) {
	cl := k.class
	d := cl.draws[i]
	charge := k.set.Charge
	o.unloose(k)
	cl.held++
	cl.heldWeight += int64(k.placedWeight)
	o.leaveRing(k)
	k.held = uint8(i + 1)
	d.leaveLine()
	if d.held.Len() == 0 {
		d.enter(charge)
	}
	d.held.Insert(k, charge)
	d.standInLine()
	o.wait(d.line, 1)
	if b := d.line.budget; b != nil && !b.Covers(charge) {
		b.RanDry()
	}
}

// unhold ends the wait of a key for a budget or for its own throttle.
func (o *Order) unhold(k *Key) {
	if k.held == gated {
		o.ungate(k)
		return
	}
	cl := k.class
	d := cl.draws[k.held-1]
	d.leaveLine()
	d.held.Remove(k)
	d.standInLine()
	k.held = 0
	cl.held--
	cl.heldWeight -= int64(k.placedWeight)
	o.wait(d.line, -1)
}

// returnToRing puts a held key back into the calendar of its class. Rounds that have passed it
// meanwhile give no credit.
func (o *Order) returnToRing(k *Key) {
	o.unhold(k)
	cl := k.class
	first := o.openRing(cl)
	if late := cl.present() - k.due; late > 0 {
		k.base, k.due = k.base+late, k.due+late
	}
	cl.insert(k)
	o.joinRing(k, first)
}

// holdsFor reports whether a held key waits for a message with the charge and cost of this one.
func (o *Order) holdsFor(k *Key, h *Head) bool {
	if h.Cost != k.placedCost || h.Weight != k.placedWeight {
		return false
	}
	if k.held == gated {
		return k.gatedBy() != nil
	}
	charge, ok := k.class.draws[k.held-1].held.Need(k)
	return ok && charge == h.Set.Charge
}

// release returns the first covered key of a draw to the ring, as its loose key.
func (o *Order) release(d *draw) {
	k, _ := d.held.First(d.line.budget.Cover())
	d.loose = k
	o.returnToRing(k)
}

// unloose ends the state loose of a key, if it is: its draws stand in line again.
func (o *Order) unloose(k *Key) {
	for _, d := range k.class.draws {
		if d.loose == k {
			d.loose = nil
			d.standInLine()
			o.listLine(d.line)
		}
	}
}

// charge has a class that delivers use its turns at its budgets, and has its key stand in line no more; ahead says that
// it was not the turn of the class. The caller reserves the charge.
func (o *Order) charge(cl *class, k *Key, ahead bool) {
	for _, d := range cl.draws {
		o.drained(d.line)
		if d.line.draws > 1 {
			d.deliver(k.set.Charge, ahead)
		}
	}
	o.unloose(k)
}

// Freed says that a budget covers more than before: keys that wait for it are looked at.
func (o *Order) Freed(budget string) {
	if l := o.lines[budget]; l != nil {
		o.listLine(l)
	}
}

// Drained says that a budget covers less than before: what throttles keep for classes that name it
// is looked at. Take does that for the budgets that it charges.
func (o *Order) Drained(budget string) { o.drained(o.lines[budget]) }

// Changed says that a budget was made or deleted: keys that name it get the other one of [Host].
func (o *Order) Changed(budget string) {
	l := o.lines[budget]
	if l == nil {
		return
	}
	if l.keys > 0 && l.budget != nil {
		l.budget.Await(false)
	}
	if l.budget = o.host.Budget(budget); l.keys > 0 && l.budget != nil {
		l.budget.Await(true)
	}
	o.listLine(l)
	o.drained(l)
}

// Waiting returns how many keys wait for a budget.
func (o *Order) Waiting(budget string) int64 {
	if l := o.lines[budget]; l != nil {
		return l.keys
	}
	return 0
}

// Held returns how many keys wait for budgets.
func (o *Order) Held() int64 { return o.held }

// draw is a class at one of the budgets of its messages: a flow of start-time fair queueing, as
// at a throttle (line.go), with the charge of a message as its length.
type draw struct {
	class *class
	line  *line
	held  firstfit.Tree[*Key] // keys that wait for the budget, with the charges of their next messages
	loose *Key                // the key that was returned to the ring because it is covered, until it delivers or waits again; nil: none
	tag   float64             // start tag of its next delivery; below 0: never set
	order uint64              // of joining the line; decides between equal tags
	lined bool                // it is in line.waiting: it has keys that wait, and none is loose
}

// Precedes orders the draws in a line.
func (d *draw) Precedes(o *draw) bool { return d.tag < o.tag || d.tag == o.tag && d.order < o.order }

// line is what waits for the budget of a name, whether there is such a budget or not. It
// exists while a class names the budget.
type line struct {
	name   string
	seq    uint64 // its number: the order of creation
	budget Budget // nil: there is none of that name
	draws  int    // classes that name it
	keys   int64  // keys that wait for it

	waiting firstfit.Tree[*draw] // with the least charges of their keys
	vtime   float64              // virtual time: the start tag of the last delivery
	order   uint64               // last number given to a draw
	listed  bool                 // it is in grants.lines
	watched []*throttle          // keep room, or tokens, for classes that name it
}

// wait adds n, which may be negative, to the keys that wait for a budget.
func (o *Order) wait(l *line, n int64) {
	o.held += n
	before := l.keys
	if l.keys += n; l.budget != nil && (before == 0) != (l.keys == 0) {
		l.budget.Await(l.keys > 0)
	}
}

// appendSignature appends what distinguishes classes that name the budget.
func (l *line) appendSignature(dst []byte) []byte {
	const budget = 1 << 62
	return binary.BigEndian.AppendUint64(dst, l.seq|budget)
}

// drawsOn returns draws on the budgets, in the order of their lines, which it creates if need be.
func (o *Order) drawsOn(budgets []string) []*draw {
	if len(budgets) == 0 {
		return nil
	}
	draws := make([]*draw, len(budgets))
	for i, name := range budgets {
		l := o.lines[name]
		if l == nil {
			o.lineNo++
			l = &line{name: name, seq: o.lineNo, budget: o.host.Budget(name)}
			o.lines[name] = l
		}
		draws[i] = &draw{line: l, tag: -1}
	}
	slices.SortFunc(draws, func(a, b *draw) int { return cmp.Compare(a.line.seq, b.line.seq) })
	return draws
}

// leaveBudget takes a class that is dropped out of the line of a budget, and drops the line with
// its last class.
func (o *Order) leaveBudget(d *draw) {
	d.leaveLine()
	l := d.line
	o.wait(l, -int64(d.held.Len()))
	d.held, d.loose = firstfit.Tree[*Key]{}, nil
	if l.draws--; l.draws == 0 {
		delete(o.lines, l.name)
	}
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

// deliver advances the start tag of a draw by a delivery, and unless that is ahead of its turn the virtual time.
func (d *draw) deliver(charge int64, ahead bool) {
	d.leaveLine()
	start := max(d.tag, d.line.vtime)
	if !ahead {
		d.line.vtime = start
	}
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
