package engine

import "github.com/faisca/fila/storage"

// Ack removes messages whose leases the receipts stand for and returns how many
// there were. A receipt whose lease is over is not counted and changes nothing.
func (tx *Tx) Ack(queue string, receipts []Receipt) (int, error) {
	return tx.eachHeld(queue, receipts, func(c *core, m *message) {
		m.key.queue.totals.acked++
		c.endLease(m)
		c.emitMessage(EventAcked, m)
		c.remove(m)
	})
}

// remove takes the records of a message off the disk. It must be in no structure
// of the memory any more.
func (c *core) remove(m *message) {
	k := m.key
	c.out.batch.SingleDelete(storage.Messages, c.messageKey(m))
	if m.retried {
		c.out.batch.Delete(storage.Attempts, c.out.key)
	}
	if m.expires != 0 {
		c.unindex(&c.ttl.index, m.expires, m.storageKey())
	}
	c.dropBody(m)
	m.status = gone
	k.queue.recordGone(m.id)
	k.touch(m.place)
	k.total--
	k.queue.total--
	c.noteShrunk(k.queue)
	c.settle(k)
}
