package engine

import "cmp"

// calendar holds the keys of a class by the round in which they are due, and in a
// round by their places. Keys that are due in the present round or the next, which with
// costs that fit into a round are all of them, are in lists; the others are in a heap.
type calendar struct {
	// near has a list for a round, by the last bits of its number. All keys of a list are
	// due in the same round.
	near [nearRounds]keyList
	far  keyHeap
}

const nearRounds = 2

// inNear is the slot of a key that is in a list, not in the heap.
const inNear = -1

// head returns the key that is due first, or nil.
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

func (k *fairKey) dueBefore(o *fairKey) bool {
	return k.due < o.due || k.due == o.due && k.compare(o) < 0
}

// compare compares the positions of two keys. Keys that share one, since the gap between
// two was used up, are in the order in which they came into being.
func (k *fairKey) compare(o *fairKey) int {
	return cmp.Or(cmp.Compare(k.pos.major, o.pos.major), cmp.Compare(k.pos.minor, o.pos.minor), cmp.Compare(k.seq, o.seq))
}

// insert puts a key in its place.
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

func (cl *calendar) remove(k *fairKey) {
	if k.slot == inNear {
		cl.near[k.due&(nearRounds-1)].remove(k)
		return
	}
	cl.far.remove(int(k.slot))
}

// keyList is a list of keys.
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

// keyDue is an entry of a keyHeap. The round stands beside the key: with very many keys
// each of them is in no cache.
type keyDue struct {
	due int64
	key *fairKey
}

func (d keyDue) before(o keyDue) bool {
	return d.due < o.due || d.due == o.due && d.key.compare(o.key) < 0
}

// keyHeap is a heap with four children a node: half as deep as one with two.
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

func (h *keyHeap) set(i int, e keyDue) {
	(*h)[i] = e
	e.key.slot = int32(i) //nolint:gosec // memory ends before
}

// soon appends keys that are due next, n at most, as far as they are in lists.
func (cl *class) upcoming(keys []*fairKey, n int) []*fairKey {
	for round := cl.present(); round < cl.present()+nearRounds; round++ {
		for k := cl.near[round&(nearRounds-1)].first; k != nil && len(keys) < n; k = k.next {
			keys = append(keys, k)
		}
	}
	return keys
}
