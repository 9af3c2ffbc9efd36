package engine

// A lease whose messages are all in the store is told at the end of its turn, and
// does not wait for the commit of its batch, nor for those before it. Why nobody
// can see the difference:
//
//  1. It promises nothing that has to be written: its record comes when the lease
//     has lasted for the lag, if it does. A crash before that forgets the lease,
//     whether the batch of its turn was committed or not.
//  2. What it tells of is in the store: the message was put there by a batch that
//     is committed, and as durably as the sync mode promises. So no crash and no
//     failed commit can make a message unwritten that somebody works on.
//  3. Nothing else it tells of is still to be written: it is the first hand-out, so
//     there is no failure, number of attempts or earlier lease of the message in
//     an open batch. Other leases wait for the commit that ends the one before.
//  4. Its delivery number is of this start, whose own number was written before
//     the first lease. A start or a recovery after it gives greater ones.
//  5. A failed commit in between drops the memory, and the lease with it, as it
//     does with every lease that was told before and is younger than the lag.
//     The receipt is then worth nothing: see 4.
//
// Replies of one client stay in order: the connection sees to that.

// mayReplyEarly says that the lease of a message that was just handed out may be told
// before the commit.
func (c *core) mayReplyEarly(m *message) bool {
	return c.cfg.LeaseLag > 0 && m.batch <= c.out.committed && m.deliveries == 1 && !m.retried && m.failure == nil
}

// takeEarly returns what is to be told before the commit, and keeps spare in its
// place, which is empty.
func (c *core) takeEarly(spare []*Task) []*Task {
	told := c.out.early
	c.out.early = spare
	return told
}
