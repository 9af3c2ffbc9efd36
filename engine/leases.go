package engine

// When a queue is emptied, its leases stay where they are, and are worth nothing from
// then on (held). How many there are is counted, and sweep goes through all leases, a
// portion a turn, until it has found as many: nothing else has to know which leases
// belong to which queue. Leases move in their heap meanwhile, so some are found only when
// it comes around again.

// looksPerUnit is how many leases are looked at for a unit of work.
const looksPerUnit = 4

// reclaimLeases drops leases of emptied queues.
func (c *core) reclaimLeases() {
	for n := 1; c.detached.leases > 0 && c.detached.reclaimed < c.detached.max; n++ {
		if c.detached.leaseAt >= c.leases.ends.len() {
			c.detached.leaseAt = 0
		}
		if m := c.leases.ends.h[c.detached.leaseAt]; m.key.purged() {
			c.dropLease(m) // another one takes its place
			c.detached.reclaimed++
			continue
		}
		c.detached.leaseAt++
		if n%looksPerUnit == 0 {
			c.detached.reclaimed++
		}
	}
}

// dropLease forgets the lease of a message that is gone with what its queue held. Its
// records went by range.
func (c *core) dropLease(m *message) {
	delete(c.leases.byID, m.id)
	c.leases.ends.remove(m)
	c.detached.leases--
	m.key.leased--
	if m.limits != nil {
		c.endUse(m)
	}
	m.lease, m.status = lease{}, gone
}
