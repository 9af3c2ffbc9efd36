// Package group counts the members of groups: messages that a producer has named as parts of one work, of any queues. It
// has the messages of groups as well, what is known of groups that have come to their end, and the sweeps that remove
// the members of cancelled ones. Queues are numbers to it, and it knows no clients.
//
// # States
//
// A member ends once, by a call of End: done, dead or cancelled. One that has died and is in a dead-letter queue is
// buried: its group counts it as dead, and Move makes it pending again when it is redriven. A group:
//
//	open ──Seal──▶ sealed ──nothing pending──▶ over ──Finish──▶ done
//	  │ └──Cancel────┤Cancel
//	  └──────────────┴──▶ cancelled ──nothing pending──▶ over ──Finish──▶ cancelled, and known as such
//
// A group that is over is in the list of Over until the engine has enqueued its message and calls Finish, in the write of
// the end of its last member. If the message cannot be read, Retry lists it again later. With WhenDone, dead members keep a sealed group from being over. Members of a cancelled
// group that are not leased are removed by the engine in slices; until that is done they are pending.
//
// # Counts
//
// The members are counted for each pair of a group and a queue, in a record of their own, so that what a purged queue had
// of groups is known without its messages: Detach hands the pairs of the queue over, and Reclaim ends their members, some
// pairs at a time. A record that names a queue which does not exist is such a pair after a crash. What has ended there is
// kept in the pair of the queue 0. That pair also has the members that are in no queue yet: the messages of inner groups,
// which are enqueued when those come to their end (Enter). So that a group whose members pass through ever new queues does
// not grow with their number, the pairs without members, pending or buried, are folded into that pair from time to time.
//
// A record follows once for each batch, however often a count has changed (Records). A group is known by its number,
// which is never given again: a message in a dead-letter queue may name a group that has long come to its end.
//
// # Invariants
//
// Check verifies, under the numbers of the package comment of the engine:
//
//  41. Groups are found under their names and numbers. The counts of a group are the sums over its pairs, each of
//     which is found, and listed under its queue or among those of queues that are gone. What has changed since the
//     last cut is listed, and no other. A group that is over is listed.
//  42. A group counts at least its members that the engine has in memory, in their queues. The bytes of messages of
//     groups in memory are counted, and each sweep is in line once.
//
// # Glossary
//
//	group                 messages of any queues that are done together: then its own message is enqueued
//	member                a message that belongs to a group
//	seal                  have a group take no more members
//	buried                of a member: dead, and in a dead-letter queue
//	over                  of a group: nothing keeps it from its end
package group

import (
	"cmp"
	"iter"
	"slices"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// End is how a member has ended.
type End uint8

// The ends of members.
const (
	Done      End = iota // it was acked
	Dead                 // it has died, or its time to live has passed
	Cancelled            // it was removed
)

// Counts are numbers of members.
type Counts struct{ Pending, Done, Dead, Cancelled int64 }

// Members is how many there are, and were.
func (n *Counts) Members() int64 { return n.Pending + n.Done + n.Dead + n.Cancelled }

// Group is a group that has not come to its end.
type Group struct {
	storage.Group
	Counts

	number uint64
	seq    uint64 // its number in the roster
	pairs  []*pair
	room   int // pairs that it may have before those without members are folded
	timer  int // index in Table.timers; -1: it does not expire
	saved  record
	listed bool // in Table.over
}

// record is the state of a record of storage.State.
type record struct {
	dirty  bool // it is in Table.dirty
	stored bool // it was written
	gone   bool
}

// pair is the members that a queue has, or has had, of a group.
type pair struct {
	intrusive.Links[pair]
	storage.GroupCount

	group *Group
	queue uint32
	list  *pairs // that it is in; nil: none
	saved record
}

type pairs = intrusive.List[pair, *pair]

type pairKey struct {
	group uint64
	queue uint32
}

// dirty is a record that has changed since the last cut: that of a group, or of a pair.
type dirty struct {
	group *Group
	pair  *pair
}

// Table is all groups that have not come to their end. The zero value is not ready: Reset comes first.
type Table struct {
	byName   map[string]*Group
	byNumber map[uint64]*Group
	roster   intrusive.Roster[Group]
	pairs    map[pairKey]*pair
	byQueue  map[uint32]*pairs
	lost     []*pairs // of queues that are gone
	changed  []dirty
	over     []*Group
	timers   intrusive.Heap[*Group]
	made     uint64
	most     int // pairs of a group before those without members are folded; 0: pairsMost

	messages messages
	sweeps   sweeps
	ended    ended
	failed   []*Group // that are finished again
	retryAt  int64    // when they are
}

// pairsMost is how many pairs a group may have before those without members are folded.
const pairsMost = 64

// Reset forgets all groups. Recover, Restore, RestoreCount and Restored follow.
func (t *Table) Reset() {
	*t = Table{
		byName: map[string]*Group{}, byNumber: map[uint64]*Group{},
		pairs: map[pairKey]*pair{}, byQueue: map[uint32]*pairs{}, most: t.most,
		messages: messages{held: map[uint64]held{}}, sweeps: sweeps{byQueue: map[uint32]*Sweep{}},
	}
}

// Number is the number of the group.
func (g *Group) Number() uint64 { return g.number }

// IsCancelled reports whether the group is cancelled.
func (g *Group) IsCancelled() bool { return g.CancelledAt != 0 }

// Open reports whether the group takes members.
func (g *Group) Open() bool { return g.SealedAt == 0 && g.CancelledAt == 0 }

// Before is that of intrusive.Ordered.
func (g *Group) Before(o *Group) bool { return g.ExpireAt < o.ExpireAt }

// Index is that of intrusive.Ordered.
func (g *Group) Index() *int { return &g.timer }

// isOver reports whether nothing keeps the group from its end.
func (g *Group) isOver() bool {
	return g.Pending == 0 && (g.IsCancelled() || g.SealedAt != 0 && (!g.WhenDone || g.Dead == 0))
}

// Len returns the number of groups.
func (t *Table) Len() int { return len(t.byName) }

// Get returns the group of a name, or nil.
func (t *Table) Get(name string) *Group { return t.byName[name] }

// Numbered returns the group of a number, or nil.
func (t *Table) Numbered(number uint64) *Group { return t.byNumber[number] }

// Cancels reports whether members of the group with a number are cancelled rather than delivered.
func (t *Table) Cancels(number uint64) bool {
	g := t.byNumber[number]
	return g != nil && g.IsCancelled()
}

// Walk visits up to count groups after a cursor, 0 being the beginning, in the order in which they were opened, and returns
// the next cursor, 0 at the end. A group that exists throughout a listing is visited exactly once.
func (t *Table) Walk(cursor uint64, count int, visit func(*Group)) (next uint64) {
	return t.roster.Walk(cursor, count, visit)
}

// begin adds a group with a number above base, below which are those of before the last reset. Its message is a pending
// member of the group outer; 0: of none.
func (t *Table) begin(head storage.Group, base uint64) *Group {
	t.made++
	g := t.add(head, base+t.made)
	t.touchGroup(g)
	if outer := t.byNumber[head.Outer]; outer != nil {
		t.Join(outer, 0)
	}
	return g
}

func (t *Table) add(head storage.Group, number uint64) *Group {
	g := &Group{Group: head, number: number, timer: -1}
	t.byName[g.Name], t.byNumber[number] = g, g
	g.seq = t.roster.Add(g)
	if g.ExpireAt != 0 && !g.IsCancelled() {
		t.timers.Push(g)
	}
	return g
}

// Restore adds the group of a record.
func (t *Table) Restore(number uint64, head storage.Group) {
	t.add(head, number).saved.stored = true
}

// RestoreCount adds the record of a pair. exists says whether its queue does. One of a group that does not exist, which
// only damage leaves, is left alone.
func (t *Table) RestoreCount(number uint64, queue uint32, n storage.GroupCount, exists bool) {
	g := t.byNumber[number]
	if g == nil {
		return
	}
	p := t.addPair(g, queue)
	p.GroupCount, p.saved.stored = n, true
	g.Pending += n.Pending
	g.Done += n.Done
	g.Dead += n.Dead + n.Buried
	g.Cancelled += n.Cancelled
	if !exists && queue != 0 {
		p.list.Remove(p)
		if len(t.lost) == 0 {
			t.lost = append(t.lost, &pairs{})
		}
		p.list = t.lost[0]
		p.list.PushBack(p)
	}
}

// Restored follows the last of Restore and RestoreCount: groups whose last member ended before are over, and the members of
// cancelled ones are swept.
func (t *Table) Restored() {
	for g := range t.roster.All() {
		t.settle(g)
		if g.IsCancelled() {
			t.sweep(g)
		}
	}
	for queue, l := range t.byQueue { // those that were emptied
		if l.Head() == nil {
			delete(t.byQueue, queue)
		}
	}
}

// pair returns the pair of a group and a queue, which is added if there is none.
func (t *Table) pair(g *Group, queue uint32) *pair {
	if p := t.pairs[pairKey{g.number, queue}]; p != nil {
		return p
	}
	if queue != 0 {
		t.foldIdle(g)
	}
	return t.addPair(g, queue)
}

func (t *Table) addPair(g *Group, queue uint32) *pair {
	p := &pair{group: g, queue: queue}
	t.pairs[pairKey{g.number, queue}] = p
	g.pairs = append(g.pairs, p)
	if queue == 0 {
		return p
	}
	p.list = t.byQueue[queue]
	if p.list == nil {
		p.list = &pairs{}
		t.byQueue[queue] = p.list
	}
	p.list.PushBack(p)
	return p
}

// foldIdle folds the pairs of a group that have no members if it has many pairs. It looks again when there are twice as
// many as it has left, so a new pair costs O(1) in the mean.
func (t *Table) foldIdle(g *Group) {
	if len(g.pairs) < max(g.room, cmp.Or(t.most, pairsMost)) {
		return
	}
	rest := t.pair(g, 0)
	g.pairs = slices.DeleteFunc(g.pairs, func(p *pair) bool {
		idle := p != rest && p.Pending == 0 && p.Buried == 0
		if idle {
			t.fold(p, rest)
		}
		return idle
	})
	g.room = 2 * len(g.pairs)
}

// fold drops a pair without members, and counts what has ended there in the pair of the queue 0. The caller takes it from
// the pairs of its group.
func (t *Table) fold(p, rest *pair) {
	rest.Done += p.Done
	rest.Dead += p.Dead
	rest.Cancelled += p.Cancelled
	t.touch(rest)
	t.drop(p)
}

// Seal has a group take no more members.
func (t *Table) Seal(g *Group, now int64) {
	g.SealedAt = now
	t.touchGroup(g)
	t.settle(g)
}

// Cancel cancels a group, for a reason that may be empty, and its message, which may be a member of another group. The
// messages of inner groups that are members of it and have not been enqueued are cancelled at once. Members that are not
// leased are swept.
func (t *Table) Cancel(g *Group, now int64, reason string) {
	g.CancelledAt, g.Error = now, reason
	if g.timer >= 0 {
		t.timers.Remove(g)
	}
	t.touchGroup(g)
	if p := t.pairs[pairKey{g.number, 0}]; p != nil && p.Pending > 0 {
		g.Pending -= p.Pending
		t.count(p, Cancelled, p.Pending)
		p.Pending = 0
	}
	t.settle(g)
	if g.Outer != 0 {
		t.End(g.Outer, 0, false, Cancelled)
	}
	t.sweep(g)
}

// Join adds a pending member in a queue.
func (t *Table) Join(g *Group, queue uint32) {
	p := t.pair(g, queue)
	p.Pending++
	g.Pending++
	t.touch(p)
}

// Enter has a member that was in no queue come into one. It returns false if the group is cancelled, and the member with it.
func (t *Table) Enter(number uint64, queue uint32) bool {
	g := t.byNumber[number]
	if g == nil || g.IsCancelled() {
		return false
	}
	from, to := t.pair(g, 0), t.pair(g, queue)
	from.Pending--
	to.Pending++
	t.touch(from)
	t.touch(to)
	return true
}

// End ends a member of a queue; of the queue 0, one that was in no queue. died says that it is buried there. The number
// may be that of a group that has come to its end.
func (t *Table) End(number uint64, queue uint32, died bool, how End) {
	g := t.byNumber[number]
	if g == nil || queue == 0 && g.IsCancelled() {
		return
	}
	p := t.pair(g, queue)
	if died {
		p.Buried--
		g.Dead--
		if how = Dead; g.WhenDone && !g.IsCancelled() {
			how = Cancelled
		}
	} else {
		p.Pending--
		g.Pending--
	}
	t.count(p, how, 1)
	t.settle(g)
}

// count counts members of a pair that have ended.
func (t *Table) count(p *pair, how End, n int64) {
	g := p.group
	switch how {
	case Done:
		p.Done += n
		g.Done += n
	case Dead:
		p.Dead += n
		g.Dead += n
	case Cancelled:
		p.Cancelled += n
		g.Cancelled += n
	}
	t.touch(p)
}

// Move has a member come from one queue into another. died and dies say whether it was and is buried. It returns whether
// the message still is a member: one that is redriven is not if its group has come to its end, or is cancelled.
func (t *Table) Move(number uint64, from, to uint32, died, dies bool) bool {
	g := t.byNumber[number]
	switch {
	case g == nil:
		return false
	case g.IsCancelled() && !dies:
		t.End(number, from, died, Cancelled)
		return false
	}
	p := t.pair(g, from)
	if died {
		p.Buried--
		g.Dead--
	} else {
		p.Pending--
		g.Pending--
	}
	t.touch(p)
	p = t.pair(g, to)
	if dies {
		p.Buried++
		g.Dead++
	} else {
		p.Pending++
		g.Pending++
	}
	t.touch(p)
	t.settle(g)
	return true
}

// Detach notes that a queue is gone with all of its messages. Reclaim ends the members that were there.
func (t *Table) Detach(queue uint32) {
	if l := t.byQueue[queue]; l != nil {
		t.lost = append(t.lost, l)
		delete(t.byQueue, queue)
	}
}

// Reclaim ends the members of up to most pairs of queues that are gone, and returns how many pairs there were.
func (t *Table) Reclaim(most int) (n int) {
	for ; n < most && len(t.lost) > 0; n++ {
		p := t.lost[0].Head()
		if p == nil {
			t.lost[0] = nil
			t.lost = t.lost[1:]
			continue
		}
		g := p.group
		rest := t.pair(g, 0)
		g.Pending -= p.Pending
		t.count(rest, Cancelled, p.Pending)
		g.Dead -= p.Buried
		if g.WhenDone && !g.IsCancelled() {
			t.count(rest, Cancelled, p.Buried)
		} else {
			t.count(rest, Dead, p.Buried)
		}
		t.fold(p, rest)
		g.pairs = slices.DeleteFunc(g.pairs, func(o *pair) bool { return o == p })
		t.settle(g)
	}
	return n
}

// Lost reports whether there is something to reclaim.
func (t *Table) Lost() bool { return len(t.lost) > 0 }

// drop removes a pair from all but those of its group.
func (t *Table) drop(p *pair) {
	delete(t.pairs, pairKey{p.group.number, p.queue})
	if p.list != nil {
		if p.list.Remove(p); p.list.Head() == nil && t.byQueue[p.queue] == p.list {
			delete(t.byQueue, p.queue)
		}
		p.list = nil
	}
	p.saved.gone = true
	t.touch(p)
}

// settle lists a group that is over.
func (t *Table) settle(g *Group) {
	if !g.listed && g.isOver() {
		g.listed = true
		t.over = append(t.over, g)
	}
}

// AnyOver reports whether Over may return a group. The compiler inlines it.
func (t *Table) AnyOver() bool { return len(t.over) > 0 }

// Over returns a group that is over and takes it from the list, nil if there is none. Finish follows, Cancel, or Retry.
func (t *Table) Over() *Group {
	for len(t.over) > 0 {
		g := t.over[0]
		t.over[0] = nil
		if t.over = t.over[1:]; len(t.over) == 0 {
			t.over = nil
		}
		if g.listed = false; g.isOver() && t.byNumber[g.number] == g {
			return g
		}
	}
	return nil
}

// forget forgets a group that is over.
func (t *Table) forget(g *Group) {
	delete(t.byName, g.Name)
	delete(t.byNumber, g.number)
	t.roster.Remove(g.seq)
	if g.timer >= 0 {
		t.timers.Remove(g)
	}
	for _, p := range g.pairs {
		t.drop(p)
	}
	g.pairs = nil
	g.saved.gone = true
	t.touchGroup(g)
}

// touchGroup has the record of a group written with the open batch.
func (t *Table) touchGroup(g *Group) {
	if !g.saved.dirty {
		g.saved.dirty = true
		t.changed = append(t.changed, dirty{group: g})
	}
}

// touch has the record of a pair written with the open batch.
func (t *Table) touch(p *pair) {
	if !p.saved.dirty {
		p.saved.dirty = true
		t.changed = append(t.changed, dirty{pair: p})
	}
}

// Records puts the records of storage.State into a batch that have changed since the last call, and deletes those of what
// is gone.
func (t *Table) Records(b *storage.Batch) {
	if len(t.changed) == 0 {
		return
	}
	var key, value []byte
	for _, d := range t.changed {
		var saved *record
		if g := d.group; g != nil {
			saved, key, value = &g.saved, storage.AppendGroupKey(key[:0], g.number), g.Append(value[:0])
		} else {
			p := d.pair
			saved, key, value = &p.saved, storage.AppendGroupCountKey(key[:0], p.group.number, p.queue), p.Append(value[:0])
		}
		saved.dirty = false
		switch {
		case !saved.gone:
			saved.stored = true
			b.Put(storage.State, key, value)
		case saved.stored:
			b.Delete(storage.State, key)
		}
	}
	clear(t.changed)
	t.changed = t.changed[:0]
}

// Report takes the number of an invariant and a description of what breaks it.
type Report func(no int, format string, args ...any)

// Member is a member of a group in memory. Those of the group 0 are of none.
type Member struct {
	Group  uint64
	Queue  uint32
	Buried bool
}

// CheckMembers verifies the invariant 42 against the members that the engine has in memory.
func (t *Table) CheckMembers(members iter.Seq[Member], bad Report) {
	has := map[Member]int64{}
	for m := range members {
		has[m]++
	}
	for key, p := range t.pairs {
		if p.list == nil || p.list != t.byQueue[key.queue] {
			continue
		}
		pending, buried := Member{key.group, key.queue, false}, Member{key.group, key.queue, true}
		if p.Pending < has[pending] || p.Buried < has[buried] {
			bad(42, "group %d has %d pending and %d buried members in queue %d, in memory are %d and %d", key.group, p.Pending, p.Buried, key.queue, has[pending], has[buried])
		}
		delete(has, pending)
		delete(has, buried)
	}
	for m := range has {
		if !m.Buried && t.byNumber[m.Group] != nil {
			bad(42, "group %d has members in queue %d and does not count them", m.Group, m.Queue)
		}
	}
	if n := len(t.sweeps.byQueue); n != len(t.sweeps.line) {
		bad(42, "%d sweeps are found, %d are in line", n, len(t.sweeps.line))
	}
	size := 0
	for _, m := range t.messages.held {
		size += len(m.record)
	}
	if size != t.messages.bytes {
		bad(42, "messages of groups have %d bytes, %d are counted", size, t.messages.bytes)
	}
}

// Check verifies the invariant 41.
func (t *Table) Check(bad Report) {
	n, of, changed := 0, 0, 0
	for g := range t.roster.All() {
		n++
		if t.byName[g.Name] != g || t.byNumber[g.number] != g || g.saved.gone {
			bad(41, "group %q is listed and not found", g.Name)
		}
		if g.saved.dirty {
			changed++
		}
		if g.isOver() && !g.listed {
			bad(41, "group %q is over and not listed as such", g.Name)
		}
		if (g.timer >= 0) != (g.ExpireAt != 0 && !g.IsCancelled()) {
			bad(41, "group %q expires at %d, it has a timer: %v", g.Name, g.ExpireAt, g.timer >= 0)
		}
		sum, dirty := t.checkPairs(g, bad)
		of += len(g.pairs)
		changed += dirty
		if sum != g.Counts {
			bad(41, "group %q has the counts %+v, its pairs %+v", g.Name, g.Counts, sum)
		}
	}
	if n != len(t.byName) || n != len(t.byNumber) || of != len(t.pairs) {
		bad(41, "%d groups are listed, %d and %d found; they have %d pairs, %d are found", n, len(t.byName), len(t.byNumber), of, len(t.pairs))
	}
	for _, d := range t.changed {
		if d.group != nil && d.group.saved.gone || d.pair != nil && d.pair.saved.gone {
			changed++
		}
	}
	if changed != len(t.changed) {
		bad(41, "%d records have changed, %d are to be written", changed, len(t.changed))
	}
}

// checkPairs verifies the pairs of a group, and returns their sums and how many have changed.
func (t *Table) checkPairs(g *Group, bad Report) (sum Counts, changed int) {
	for _, p := range g.pairs {
		if p.saved.dirty {
			changed++
		}
		if t.pairs[pairKey{g.number, p.queue}] != p || p.group != g || p.saved.gone || (p.list == nil) != (p.queue == 0) {
			bad(41, "group %q has a pair of queue %d which is not found", g.Name, p.queue)
		}
		if min(p.Pending, p.Buried, p.Done, p.Dead, p.Cancelled) < 0 {
			bad(41, "group %q counts in queue %d %+v", g.Name, p.queue, p.GroupCount)
		}
		sum.Pending += p.Pending
		sum.Done += p.Done
		sum.Dead += p.Dead + p.Buried
		sum.Cancelled += p.Cancelled
	}
	return sum, changed
}
