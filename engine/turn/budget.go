// Package turn bounds the work of a turn, so that no command and no number of timers delays other
// clients by more than a few turns. It is counted in units and never in time, since a turn
// reads no clock: a unit is about a microsecond, the work for one message or one fairness
// key. Work that exceeds the budget continues in the next turn, which follows at once; the
// loop commits, replies and takes new tasks in between.
package turn

const (
	// Units is the budget of a turn: about two milliseconds of work.
	Units = 2048
	// SliceWeight is about a thousand small records, which the store writes in one or two
	// milliseconds, without the sync.
	SliceWeight = 256 << 10
	// RecordWeight is the number of bytes that cost the store about as much as one record.
	RecordWeight = 200
)

// Batch is the size of the open batch.
type Batch struct{ Bytes, Records int }

// weight estimates the duration of its commit, in bytes.
func (b Batch) weight() int { return b.Bytes + RecordWeight*b.Records }

// Budget is the work that a turn may do and has done. A turn divides it into steps, so that no step starves another:
//
//	timers   a quarter, and a minimum for each component
//	slices   a quarter, for tasks that have done a part of their work in an earlier turn
//	tasks    a half, for unblocked tasks, then the backlog, then new tasks, in order
//	reclaim  a bounded number of keys, leases and messages of purged queues, counted apart
//	serve    what the tasks have left, at least an eighth
//
// Three rules make this fair and keep the order:
//
//  1. A call that handles many messages asks for Room before each of them. When there is none,
//     the task is parked, keeps its progress and is applied again
//     in the next turn. Later tasks of its client are queued behind it.
//  2. When a client has used its Share of a turn, its next tasks are applied in the next
//     turn, after those of other clients.
//  3. Slices, timers included, add at most SliceWeight to one batch. Every reply waits for
//     the commit of its batch, and the duration of a commit follows the weight of the batch:
//     its bytes plus RecordWeight for each record.
//
// The calls of a transaction are in one batch. They spend units, but are never parked (Allowance).
type Budget struct {
	Turn  int // units of a turn
	Left  int // units left in the current step; negative if a unit of work was larger
	Spent int // units used in this turn, by all steps

	fullAt int  // the step ends when the open batch reaches this size, or a slice this weight
	sliced int  // weight that slices have added to the open batch
	slice  bool // a slice is under way
	from   int  // weight of the open batch when it began
}

// Reset forgets the slices of the open batch.
func (b *Budget) Reset() { b.sliced, b.slice = 0, false }

// Cut notes that the open batch is an empty one.
func (b *Budget) Cut() { b.sliced = 0 }

// Part returns 1/of of a turn's budget, at least one unit.
func (b *Budget) Part(of int) int { return max(b.Turn/of, 1) }

// Share is how many units a client may use in one turn before others go first.
func (b *Budget) Share() int { return b.Part(4) }

// Slice begins a step of some units, whose work continues from turn to turn. The step ends after the units,
// or when all slices together have added SliceWeight to the open batch.
func (b *Budget) Slice(units int, open Batch) {
	b.endSlice(open)
	b.slice, b.from = true, open.weight()
	b.Left, b.fullAt = units, b.from+max(SliceWeight-b.sliced, 0)
}

// Tasks begins the step in which tasks are applied. It ends when the open batch has most bytes.
func (b *Budget) Tasks(most int, open Batch) {
	b.endSlice(open)
	b.Left, b.fullAt = b.Part(2), most
}

// endSlice ends the current slice, if there is one, and adds its weight to that of the slices
// of the open batch. Until the next step begins, only the batch size is bounded.
func (b *Budget) endSlice(open Batch) {
	if b.slice {
		b.sliced += open.weight() - b.from
		b.slice = false
	}
}

// Room reports whether the step may do more work: it has units left, and the open batch is
// not full for it.
func (b *Budget) Room(open Batch) bool {
	if b.Left <= 0 {
		return false
	}
	if b.slice {
		return open.weight() < b.fullAt
	}
	return open.Bytes < b.fullAt
}

// Full reports whether the step ends at the size of the open batch, whatever units it has left.
func (b *Budget) Full(open Batch) bool { return open.Bytes >= b.fullAt }

// Sliced reports whether slices have added as much to the open batch as they may.
func (b *Budget) Sliced() bool { return b.sliced >= SliceWeight }

// Spend takes units of work from the step and from the turn.
func (b *Budget) Spend(units int) {
	b.Left -= units
	b.Spent += units
}

// AtLeast guarantees units to a step that follows others on the same budget.
func (b *Budget) AtLeast(units int) { b.Left = max(b.Left, units) }

// Allowance bounds what a transaction does, since none of it is done in slices. What its
// arguments name and what it leases is bounded when it is queued. A call that looks at more than
// that (at all keys or queues, for instance) asks first, by Afford. All such calls
// of a transaction have as many units as a turn, and one for each command: a call beyond that is
// refused and changes nothing.
type Allowance struct {
	left  int  // units before the present call
	from  int  // Budget.Spent when it began
	looks bool // it has asked, so all of its units count
}

// Allow returns the allowance of a transaction of some calls.
func (b *Budget) Allow(calls int) Allowance { return Allowance{left: b.Turn + calls} }

// Begin begins the work of a call.
func (a *Allowance) Begin(b *Budget) { a.from, a.looks = b.Spent, false }

// End counts it.
func (a *Allowance) End(b *Budget) {
	if a.looks {
		a.left -= b.Spent - a.from
	}
}

// Afford reports whether the call may do work of some units in one piece.
func (a *Allowance) Afford(units int, b *Budget) bool {
	a.looks = true
	return a.left-(b.Spent-a.from) >= units
}
