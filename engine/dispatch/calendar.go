package dispatch

import (
	"cmp"
	"math"
	"math/bits"
)

// calendar holds the keys of a class, ordered by the round in which they are due and within a
// round by their positions. Keys that are due in the present round or the next are in lists,
// where insertion and removal take O(1); with costs that fit into a round these are all keys.
// Other keys are in a heap. So is a key that would have to go into the middle of a list: the
// lists accept keys at their ends only, where nearly all keys are added.
type calendar struct {
	// near has one list per round, selected by the lowest bits of the round's number. All keys
	// of a list are due in the same round.
	near [nearRounds]keyList
	far  keyHeap // all other keys
}

// nearRounds is the number of rounds that have a list, a power of two.
const nearRounds = 2

// inNear is the slot of a key that is in a list. In the heap, the slot is the key's index.
const inNear = -1

// head returns the key that is due first, or nil if there are no keys. It takes O(1).
func (cl *calendar) head() *Key {
	var first *Key
	for i := range cl.near {
		if k := cl.near[i].first; k != nil && (first == nil || k.dueBefore(first)) {
			first = k
		}
	}
	if len(cl.far) > 0 && (first == nil || cl.far[0].key.dueBefore(first)) {
		first = cl.far[0].key
	}
	return first
}

// dueBefore reports whether the key is due before another key of its class.
func (k *Key) dueBefore(o *Key) bool {
	return k.due < o.due || k.due == o.due && k.compare(o) < 0
}

// compare orders two keys by their positions. Keys that share a position, because the gap
// between two others was used up, are in the order of their creation, so the order is total and
// the same in every run.
func (k *Key) compare(o *Key) int {
	return cmp.Or(cmp.Compare(k.pos.major, o.pos.major), cmp.Compare(k.pos.minor, o.pos.minor), cmp.Compare(k.seq, o.seq))
}

// insert adds a key to the calendar. The key's due round and position must be set, and must not
// change while the key is in the calendar.
func (cl *class) insert(k *Key) {
	if k.due < cl.present()+nearRounds {
		l := &cl.near[k.due&(nearRounds-1)]
		switch {
		case l.first == nil || l.first.due == k.due && l.last.compare(k) < 0:
			k.slot = inNear
			l.pushBack(k)
			return
		case l.first.due == k.due && k.compare(l.first) < 0:
			k.slot = inNear
			l.pushFront(k)
			return
		}
	}
	cl.far.push(k)
}

// remove takes a key out of the calendar, which must contain it.
func (cl *calendar) remove(k *Key) {
	if k.slot == inNear {
		cl.near[k.due&(nearRounds-1)].remove(k)
		return
	}
	cl.far.remove(int(k.slot))
}

// keyList is a doubly linked list of keys. The links are in the keys: a key is in one list at
// most. It is not a [list], which would be slower; see there.
type keyList struct{ first, last *Key }

func (l *keyList) pushBack(k *Key) {
	k.prev, k.next = l.last, nil
	if l.last != nil {
		l.last.next = k
	} else {
		l.first = k
	}
	l.last = k
}

func (l *keyList) pushFront(k *Key) {
	k.prev, k.next = nil, l.first
	if l.first != nil {
		l.first.prev = k
	} else {
		l.last = k
	}
	l.first = k
}

func (l *keyList) remove(k *Key) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		l.last = k.prev
	}
	k.prev, k.next = nil, nil
}

// keyDue is an entry of a keyHeap. It has its own copy of the due round: with very many keys,
// reading it from the key would be a cache miss for each comparison.
type keyDue struct {
	due int64
	key *Key
}

func (d keyDue) before(o keyDue) bool {
	return d.due < o.due || d.due == o.due && d.key.compare(o.key) < 0
}

// keyHeap is a heap with heapWidth children per node. It is half as deep as a binary heap, and
// the children of a node are adjacent in memory.
type keyHeap []keyDue

const heapWidth = 4

func (h *keyHeap) push(k *Key) {
	*h = append(*h, keyDue{k.due, k})
	h.up(len(*h) - 1)
}

func (h *keyHeap) remove(i int) {
	l := *h
	n := len(l) - 1
	last := l[n]
	l[n] = keyDue{}
	*h = l[:n]
	if i == n {
		return
	}
	l[i] = last
	h.down(i)
	h.up(int(last.key.slot))
}

func (h *keyHeap) up(i int) {
	l := *h
	e := l[i]
	for i > 0 {
		parent := (i - 1) / heapWidth
		if !e.before(l[parent]) {
			break
		}
		h.set(i, l[parent])
		i = parent
	}
	h.set(i, e)
}

func (h *keyHeap) down(i int) {
	l := *h
	e := l[i]
	for {
		first := heapWidth*i + 1
		if first >= len(l) {
			break
		}
		least := first
		for c := first + 1; c < min(first+heapWidth, len(l)); c++ {
			if l[c].before(l[least]) {
				least = c
			}
		}
		if !l[least].before(e) {
			break
		}
		h.set(i, l[least])
		i = least
	}
	h.set(i, e)
}

// set stores an entry and records its index in the key.
func (h *keyHeap) set(i int, e keyDue) {
	(*h)[i] = e
	e.key.slot = int32(i)
}

// classDue is an entry of a classHeap: a class with its own copies of the round, in rounds of the
// queue, and the position of its head.
type classDue struct {
	due   int64
	pos   position
	class *class
}

func (d *classDue) before(o *classDue) bool {
	switch {
	case d.due != o.due:
		return d.due < o.due
	case d.pos != o.pos:
		return d.pos.before(o.pos)
	}
	return d.class.head().compare(o.class.head()) < 0
}

// classHeap holds the open classes of a queue, by their heads. It is a keyHeap one level up: with
// a class for each of 1,000 budgets, to read the order of two classes from their heads would cost
// 5 % of a cycle.
type classHeap []classDue

// next returns the class whose head is due first, or nil.
func (h *classHeap) next() *class {
	if len(*h) == 0 {
		return nil
	}
	return (*h)[0].class
}

func (cl *class) classDue() classDue {
	k := cl.head()
	return classDue{k.due + cl.offset, k.pos, cl}
}

func (h *classHeap) push(cl *class) {
	*h = append(*h, cl.classDue())
	h.up(len(*h) - 1)
}

func (h *classHeap) remove(cl *class) {
	l, i := *h, cl.at
	n := len(l) - 1
	last := l[n]
	l[n] = classDue{}
	*h = l[:n]
	if cl.at = -1; i == n {
		return
	}
	l[i] = last
	h.down(i)
	h.up(last.class.at)
}

// fix restores the order after the head of a class has changed.
func (h *classHeap) fix(cl *class) {
	(*h)[cl.at] = cl.classDue()
	h.down(cl.at)
	h.up(cl.at)
}

func (h *classHeap) up(i int) {
	l := *h
	e := l[i]
	for i > 0 {
		parent := (i - 1) / heapWidth
		if !e.before(&l[parent]) {
			break
		}
		h.set(i, &l[parent])
		i = parent
	}
	h.set(i, &e)
}

func (h *classHeap) down(i int) {
	l := *h
	e := l[i]
	for {
		first := heapWidth*i + 1
		if first >= len(l) {
			break
		}
		least := first
		for c := first + 1; c < min(first+heapWidth, len(l)); c++ {
			if l[c].before(&l[least]) {
				least = c
			}
		}
		if !l[least].before(&e) {
			break
		}
		h.set(i, &l[least])
		i = least
	}
	h.set(i, &e)
}

// set stores an entry and records its index in the class.
func (h *classHeap) set(i int, e *classDue) {
	(*h)[i] = *e
	e.class.at = i
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

// takePosition gives a key a position in a class that it joins, directly before the key that is
// next. The key joins with its credit and the rounds since its last visit in another class.
//
//	every key has had its visit of this round    behind all others
//	no key has had its visit of this round       behind all others, as if it had
//	                                             been visited in the last round
//	some have                                    behind the last visited key and those
//	                                             that joined since, before the next key
//	some have, and the next key has come from    before the next key
//	another class before the last visited key
//	the joining key is in the middle of a visit  before the key that is next
func (k *Key) takePosition(cl *class) {
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
	case !last.at.before(h.pos): // the next key has come before one whose visit is not over
		k.pos = h.pos.ahead(k.seq)
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
func (k *Key) schedule(cost, weight uint32) {
	cl := k.class
	k.placedCost, k.placedWeight = cost, weight
	if k.visited && k.credit >= int64(cost) {
		k.due = k.base
		cl.insert(k)
		return
	}
	k.visited = false
	grant := int64(weight) * cl.scheduler.quantum
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
func (k *Key) accrue() {
	if k.visited {
		return
	}
	passed := k.roundsPassed()
	k.credit += passed * int64(k.placedWeight) * k.class.scheduler.quantum
	k.base += passed
}

// roundsPassed is the number of rounds since the key's last visit that have come to its
// position without visiting it, because its credit would not have sufficed.
func (k *Key) roundsPassed() int64 {
	round := k.class.present()
	if last := k.class.visits.last(); last.round < round || last.at.before(k.pos) {
		round-- // the present round has not come to the key's position
	}
	return max(min(round-k.base, k.due-k.base-1), 0)
}

// visit begins the visit of a key, with the grants of all rounds since its last one, or
// continues it. It advances the queue's round, which never decreases.
func (k *Key) visit() {
	cl := k.class
	s := cl.scheduler
	if !k.visited {
		k.credit += (k.due - k.base) * int64(k.placedWeight) * s.quantum
		k.base, k.visited = k.due, true
		cl.visits.begin(k)
	}
	s.round = max(s.round, k.due+cl.offset)
}

// Deficit is the credit of the key, in units of cost, including the grants that accrue would
// add. It is what FILA.KEY reports.
func (k *Key) Deficit() int64 {
	credit := k.credit
	if k.class != nil && !k.visited {
		credit += k.roundsPassed() * int64(k.placedWeight) * k.class.scheduler.quantum
	}
	return credit
}
