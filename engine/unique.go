package engine

import (
	"github.com/faisca/fila/engine/ids"
	"github.com/faisca/fila/storage"
)

// Uniqueness until done. An enqueue may name a unique id. While a message with this id is in the
// queue, in whatever status, a second enqueue with it stores nothing and returns the id of the
// first message, the owner. The states of a unique id in a queue:
//
//	free ──place, move (redrive)───────────────────────────────────▶ taken, +entry
//	taken ──remove: ack, dead letter, cancel, TTL, purge of a key──▶ free, -entry
//	taken ──detachAll: purge or deletion of the queue──────────────▶ free, -range of entries
//	taken ──lease, of a message with UNTIL LEASE───────────────────▶ lent
//	lent  ──writeLease; release or retry before that───────────────▶ free, -entry
//	lent  ──Undeliver before that; a crash─────────────────────────▶ taken
//
// To an enqueue or a redrive, an id that is lent is free: what takes it writes the lease record first, in the
// same batch. So the entry goes with the lease record, or with the attempts record that has Freed set, and
// a lease without a record that a crash forgets leaves the message ready and its id taken. A message that
// has been leased does not own its id again before a redrive.
//
// The entry is in the batch that stores or removes the message, so a crash finds both or
// neither. It is looked up as a deduplication id is (dedup.go).
//
// A message carries its id in its record, in the record of its lease, from which recovery knows
// leased messages, and in memory. A dead message carries it too, but does not own it: it has
// freed it when it died, and a redrive takes it again. If another message has taken it
// meanwhile, the dead one stays where it is.

// owner returns the entry of a unique id in a queue, the zero value if it is free or "". lent is the message
// that has lent it; nil: it was free before. l is the look-up of the id; ErrWouldBlock means that it has
// to be repeated.
func (t *idTable) owner(c *core, q *queue, id string, l *ids.Lookup) (e storage.DedupEntry, lent *message, err error) {
	if id == "" {
		return e, nil, nil
	}
	if e, err = t.Owner(q.no, id, l); err != nil {
		return storage.DedupEntry{}, nil, lookError(err, "UNIQUE")
	}
	if m := c.leases.in(q, e.ID); m != nil && m.tied().untilLease {
		return storage.DedupEntry{}, m, nil
	}
	return e, nil, nil
}

// in returns the message of a queue with an id if it is leased or retrying, and nil otherwise.
func (t *leaseTable) in(q *queue, id ID) *message {
	if m := t.byID[id]; m != nil && m.key.queue == q && !m.key.purged() {
		return m
	}
	return nil
}

// take makes a message that is stored in this batch the owner of a unique id, which is free. lent is
// the message that has lent it; nil: none has.
func (t *idTable) take(c *core, m *message, id string, lent *message) {
	if lent != nil {
		c.writeLease(lent)
	}
	of := m.tied()
	of.unique = id
	m.tie(of)
	t.Take(m.key.queue.idScope(), id, m.id, m.key.name, c.out.writes(c.now))
	t.show(c)
}

// freeLent frees the unique id that a message has lent, in the batch that records its lease or the end of it.
func (t *idTable) freeLent(c *core, m *message) {
	if m.ties != nil && m.ties.untilLease {
		t.free(c, m)
	}
}

// free frees the unique id of a message that is removed in this batch, or leased.
func (t *idTable) free(c *core, m *message) {
	if m.ties == nil || m.ties.unique == "" {
		return
	}
	of := m.tied()
	id := of.unique
	of.unique = ""
	m.tie(of)
	t.Free(m.key.queue.no, id, c.out.writes(c.now))
}
