package engine

// keyOf returns a queue's fairness key, made if it is new.
func (c *core) keyOf(q *queue, name string) *fairKey {
	return c.keyWithHash(q, name, hashName(name))
}

// keyWithHash is keyOf for those who know the hash.
func (c *core) keyWithHash(q *queue, name string, h nameHash) *fairKey {
	if k := q.keys.find(h, name); k != nil {
		return k
	}
	return c.newFairKey(q, name, h)
}

// settle must follow every change of a key's window, edge, counts, weight or
// pause. It keeps what depends on them: its place in the schedule, the wish for a
// read, and the key's existence.
func (c *core) settle(k *fairKey) {
	q := k.queue
	c.reschedule(k)
	if starved := len(k.window) == 0 && k.hasBacklog && !k.paused; starved != k.awaitingRead {
		k.awaitingRead = starved
		if starved {
			q.awaitingRead++
		} else {
			q.awaitingRead--
			k.lastReadEmpty = false
			c.offer(q)
		}
	}
	c.wantKey(k)
	if k.idle() {
		c.forgetKey(k)
	}
}

// offer has a queue looked at in serve if somebody waits for it.
func (c *core) offer(q *queue) {
	if q.waiters.first != nil && !q.offered {
		q.offered = true
		c.waits.offers = append(c.waits.offers, q)
	}
}
