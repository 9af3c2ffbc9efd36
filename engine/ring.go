package engine

// ring is the deficit round robin of a queue (Shreedhar and Varghese, 1995): a
// circle of the keys that can deliver now. A key that is visited gets credit of
// weight x quantum; as long as its credit covers the next message's cost, it
// delivers. A key that runs empty leaves and loses its credit.
type ring struct {
	current *fairKey
	granted bool // the current key has its credit of this visit
	size    int
}

// join adds a key at the end of the round.
func (r *ring) join(k *fairKey) {
	if k.inRing {
		return
	}
	k.inRing = true
	r.size++
	if r.current == nil {
		k.prev, k.next = k, k
		r.current, r.granted = k, false
		return
	}
	k.prev, k.next = r.current.prev, r.current
	k.prev.next, k.next.prev = k, k
}

// leave takes a key out. Its credit stays as it is: whoever calls knows whether
// the key has nothing left or only waits for the disk.
func (r *ring) leave(k *fairKey) {
	if !k.inRing {
		return
	}
	k.inRing = false
	r.size--
	if r.current == k {
		r.current, r.granted = k.next, false
	}
	k.prev.next, k.next.prev = k.next, k.prev
	k.prev, k.next = nil, nil
	if r.size == 0 {
		r.current = nil
	}
}

// pick returns the key whose first message is next and has paid for it, or nil
// when no key can deliver.
func (r *ring) pick(quantum uint32) *fairKey {
	for r.current != nil {
		k := r.current
		if !r.granted {
			k.deficit += int64(k.weight) * int64(quantum)
			r.granted = true
		}
		if cost := int64(k.window[0].cost); k.deficit >= cost {
			k.deficit -= cost
			return k
		}
		r.current, r.granted = k.next, false
	}
	return nil
}
