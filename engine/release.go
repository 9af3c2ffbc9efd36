package engine

import "github.com/faisca/fila/storage"

// Release gives leased messages back, ready at once, without counting a failure.
// It returns how many of the receipts still stood for a lease.
func (tx *Tx) Release(queue string, receipts []Receipt) (int, error) {
	return tx.eachHeld(queue, receipts, func(c *core, m *message) {
		m.key.queue.totals.released++
		c.giveBack(m)
	})
}

// Undeliver gives back deliveries that never reached their client: the message
// is as if they had not been, but for their numbers, which are not used again.
// Of many it returns ErrWouldBlock: those that are left follow in later turns.
func (tx *Tx) Undeliver(ds []*Delivery) error {
	c := tx.core
	if c.health.failed != nil {
		return nil //nolint:nilerr // the leases are gone with the memory that knew them
	}
	for _, d := range ds {
		q := c.queues.byName[d.Queue]
		if q == nil {
			continue
		}
		m := c.leaseOf(q, d.Receipt)
		if m == nil {
			continue // also where an earlier turn has given it back
		}
		if !tx.more() {
			return tx.yield()
		}
		m.deliveries--
		q.totals.delivered--
		m.key.stats.delivered--
		c.refund(m)
		c.giveBack(m)
	}
	return nil
}

// giveBack ends a lease and makes its message ready in its place.
func (c *core) giveBack(m *message) {
	c.endLease(m)
	c.writeAttempt(m, 0)
	c.makeReady(m)
}

// writeAttempt keeps what the message's own record, written once, cannot say:
// how often it was handed out and failed, and when it is due again (0: now).
func (c *core) writeAttempt(m *message, readyAt int64) {
	rec := storage.Attempt{Attempt: m.attempt, Deliveries: m.deliveries, ReadyAt: readyAt, Fence: m.fence}
	if f := m.failure; f != nil {
		rec.Error, rec.FirstFailedAt, rec.LastFailedAt = f.text, f.first, f.last
	}
	m.retried = true
	m.key.queue.recordAttempt(m)
	c.out.batch.Put(storage.Attempts, c.messageKey(m), rec.Append(nil))
	m.key.touch(m.place)
}
