package engine

// leaseTable is the leases that last.
type leaseTable struct {
	byID     map[ID]*message
	ends     timers[*message]
	deferred []deferredLease // records that are not written yet, oldest first
}

func (t *leaseTable) reset() { *t = leaseTable{byID: map[ID]*message{}} }

func (t *leaseTable) next(*core) int64 {
	at := int64(never)
	if m, ok := t.ends.next(); ok {
		at = m.until
	}
	if len(t.deferred) > 0 {
		at = min(at, t.deferred[0].due)
	}
	return at
}

// expire ends the leases whose time is over, and writes the records of those that have
// lasted long enough.
func (t *leaseTable) expire(c *core) {
	least := c.tasks.budget.part(32)
	for c.room() {
		m, ok := t.ends.next()
		if !ok || m.until > c.now {
			break
		}
		c.spend(1)
		c.expireLease(m)
	}
	c.atLeast(least)
	c.writeDeferredLeases()
}
