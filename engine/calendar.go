package engine

import "cmp"

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
func (cl *calendar) head() *fairKey {
	var first *fairKey
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
func (k *fairKey) dueBefore(o *fairKey) bool {
	return k.due < o.due || k.due == o.due && k.compare(o) < 0
}

// compare orders two keys by their positions. Keys that share a position, because the gap
// between two others was used up, are in the order of their creation, so the order is total and
// the same in every run.
func (k *fairKey) compare(o *fairKey) int {
	return cmp.Or(cmp.Compare(k.pos.major, o.pos.major), cmp.Compare(k.pos.minor, o.pos.minor), cmp.Compare(k.seq, o.seq))
}

// insert adds a key to the calendar. The key's due round and position must be set, and must not
// change while the key is in the calendar.
func (cl *class) insert(k *fairKey) {
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
func (cl *calendar) remove(k *fairKey) {
	if k.slot == inNear {
		cl.near[k.due&(nearRounds-1)].remove(k)
		return
	}
	cl.far.remove(int(k.slot))
}

// keyList is a doubly linked list of keys. The links are in the keys: a key is in one list at
// most. It is not a [list], which would be slower; see there.
type keyList struct{ first, last *fairKey }

func (l *keyList) pushBack(k *fairKey) {
	k.prev, k.next = l.last, nil
	if l.last != nil {
		l.last.next = k
	} else {
		l.first = k
	}
	l.last = k
}

func (l *keyList) pushFront(k *fairKey) {
	k.prev, k.next = nil, l.first
	if l.first != nil {
		l.first.prev = k
	} else {
		l.last = k
	}
	l.first = k
}

func (l *keyList) remove(k *fairKey) {
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
	key *fairKey
}

func (d keyDue) before(o keyDue) bool {
	return d.due < o.due || d.due == o.due && d.key.compare(o.key) < 0
}

// keyHeap is a heap with heapWidth children per node. It is half as deep as a binary heap, and
// the children of a node are adjacent in memory.
type keyHeap []keyDue

const heapWidth = 4

func (h *keyHeap) push(k *fairKey) {
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
	e.key.slot = int32(i) //nolint:gosec // memory is exhausted before 2^31 keys
}
