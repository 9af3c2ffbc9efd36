package engine

// When a queue is emptied, its leases stay where they are, and are worth nothing from
// then on (held). How many there are is counted, and sweep goes through all leases, a
// portion a turn, until it has found as many: nothing else has to know which leases
// belong to which queue. Leases move in their heap meanwhile, so some are found only when
// it comes around again.

// looksPerUnit is how many leases are looked at for a unit of work.
const looksPerUnit = 4

// sweepLeases drops leases of emptied queues.
func (c *core) sweepLeases() {
	for n := 1; c.orphans > 0 && c.swept < c.sweepMax; n++ {
		if c.orphanAt >= c.leaseEnd.len() {
			c.orphanAt = 0
		}
		if m := c.leaseEnd.h[c.orphanAt]; m.key.emptied() {
			c.dropLease(m) // another one takes its place
			c.swept++
			continue
		}
		c.orphanAt++
		if n%looksPerUnit == 0 {
			c.swept++
		}
	}
}

// dropLease forgets the lease of a message that is gone with what its queue held. Its
// records went by range.
func (c *core) dropLease(m *message) {
	delete(c.leases, m.id)
	c.leaseEnd.remove(m)
	c.orphans--
	m.key.leased--
	if m.limits != nil {
		c.endUse(m)
	}
	m.lease, m.status = lease{}, gone
}
