package engine

import "github.com/faisca/fila/storage"

// Release gives leased messages back, ready at once, without counting a failure.
// It returns how many of the receipts still stood for a lease.
func (tx *Tx) Release(queue string, receipts []Receipt) (int, error) {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, r := range receipts {
		if m := c.held(q, r); m != nil {
			c.giveBack(m)
			n++
		}
	}
	q.totals.released += uint64(n)
	if n > 0 {
		c.sync = true
	}
	return n, nil
}

// Undeliver gives back deliveries that never reached their client: the message
// is as if they had not been, but for their numbers, which are not used again.
func (tx *Tx) Undeliver(ds []*Delivery) {
	c := tx.core
	if c.failed != nil {
		return // the leases are gone with the memory that knew them
	}
	for _, d := range ds {
		q := c.queues[d.Queue]
		if q == nil {
			continue
		}
		if m := c.held(q, d.Receipt); m != nil {
			m.deliveries--
			q.totals.delivered--
			m.key.stats.delivered--
			c.refund(m)
			c.giveBack(m)
		}
	}
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
	m.key.queue.noteAttempt(m)
	c.batch.Put(storage.Attempts, c.messageKey(m), rec.Append(nil))
	m.key.touch(m.place)
}
