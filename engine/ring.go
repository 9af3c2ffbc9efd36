package engine

// ring is the deficit round robin of a queue (Shreedhar and Varghese, 1995): a
// circle of the keys that can deliver now. A key that is visited gets credit of
// weight x quantum; as long as its credit covers the next message's cost, it
// delivers. A key that runs empty leaves and loses its credit.
type ring struct {
	current *fairKey
	granted bool // the current key has its credit of this visit
	size    int
	told    bool // an event has said that there is something, and nobody has found nothing since
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
// the key has nothing left or comes back.
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
		r.current, r.told = nil, false
	}
}

// advance goes on to the next key.
func (r *ring) advance() { r.current, r.granted = r.current.next, false }

// grant gives a key its credit for a visit. What it had left is kept, but never
// more than a turn in vain can leave: a key that comes and goes saves nothing up.
func (k *fairKey) grant(quantum uint32) {
	g, cost := int64(k.weight)*int64(quantum), int64(k.window[0].cost)
	k.deficit = min(k.deficit+g, g+cost-1)
}

// skipRounds grants at once the credit of rounds in which nobody could deliver,
// because every message costs more than its key gets in a round. Without it, such
// messages would be waited for by going round and round.
func (r *ring) skipRounds(quantum uint32) {
	least := int64(-1)
	for k, i := r.current, 0; i < r.size; k, i = k.next, i+1 {
		g := int64(k.weight) * int64(quantum)
		if len(k.window) == 0 {
			if k.vain {
				continue
			}
			return // it may be the one that can deliver
		}
		if n := (int64(k.window[0].cost) - k.deficit + g - 1) / g; least < 0 || n < least {
			least = n
		}
	}
	if least <= 1 {
		return
	}
	for k, i := r.current, 0; i < r.size; k, i = k.next, i+1 {
		if len(k.window) > 0 {
			k.deficit += (least - 1) * int64(k.weight) * int64(quantum)
		}
	}
}

// costMin is the least that a delivery can cost.
const costMin = 1

// pass goes on from a key whose credit does not suffice, the last of so many in a row,
// and returns of how many it is then.
func (r *ring) pass(vain int, quantum uint32) int {
	r.advance()
	if vain++; vain < r.size {
		return vain
	}
	r.skipRounds(quantum)
	return 0
}

// pick returns the key of a queue whose first message is next, has paid for it,
// and is let pass by its throttles; or nil when no key can deliver.
func (c *core) pick(q *queue) *fairKey {
	r := &q.ring
	for vain := 0; r.current != nil; {
		k := r.current
		if r.granted && k.deficit < costMin { // its next message need not be looked at, nor be there
			vain = r.pass(vain, c.cfg.Quantum)
			continue
		}
		if len(k.window) == 0 {
			// Its messages are on their way from the disk. To go on without it would
			// give its share to others, and the read was asked for a round ago. But what
			// is behind its edge may be going away as fast as it is read: one read is
			// waited for in a row.
			if !k.vain || q.starved >= r.size {
				return nil
			}
			vain = r.pass(vain, c.cfg.Quantum)
			continue
		}
		m := k.window[0]
		if c.outlived(m) {
			c.endLate(m)
			continue
		}
		cost := int64(m.cost)
		if r.granted && k.deficit < cost {
			vain = r.pass(vain, c.cfg.Quantum)
			continue
		}
		if m.limits != nil {
			if t := c.blocking(m); t != nil {
				c.block(k, t, r.granted || k.midTurn)
				continue
			}
		}
		if !r.granted {
			r.granted = true
			if k.midTurn {
				k.midTurn = false
			} else {
				k.grant(c.cfg.Quantum)
			}
		}
		if k.deficit < cost {
			continue // to the head of the loop, which goes on to the next
		}
		k.deficit -= cost
		if m.limits != nil {
			c.pass(m)
		}
		c.resolve(k)
		return k
	}
	return nil
}
