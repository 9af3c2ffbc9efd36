package engine

import "github.com/faisca/fila/storage"

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
// neither. It is in the family of deduplication ids, in a generation of its own that no period
// ends, and is looked up in the same way (dedup.go).
//
// A message carries its id in its record, in the record of its lease, from which recovery knows
// leased messages, and in memory. A dead message carries it too, but does not own it: it has
// freed it when it died, and a redrive takes it again. If another message has taken it
// meanwhile, the dead one stays where it is.

// owner returns the entry of a unique id in a queue, the zero value if it is free or "". lent is the message
// that has lent it; nil: it was free before. l is the look-up of the id; ErrWouldBlock means that it has
// to be repeated.
func (c *core) owner(q *queue, id string, l *idLook) (e storage.DedupEntry, lent *message, err error) {
	if id == "" {
		return e, nil, nil
	}
	if e, err = c.dedup.taken.Find(dedupKey{q.no, id}, l); err != nil {
		return storage.DedupEntry{}, nil, lookError(err, "UNIQUE")
	}
	if m := c.leasedIn(q, e.ID); m != nil && m.tied().untilLease {
		return storage.DedupEntry{}, m, nil
	}
	return e, nil, nil
}

// leasedIn returns the message of a queue with an id if it is leased or retrying, and nil otherwise.
func (c *core) leasedIn(q *queue, id ID) *message {
	if m := c.leases.byID[id]; m != nil && m.key.queue == q && !m.key.purged() {
		return m
	}
	return nil
}

// takeUnique makes a message that is stored in this batch the owner of a unique id, which is free. lent is
// the message that has lent it; nil: none has.
func (c *core) takeUnique(m *message, id string, lent *message) {
	if lent != nil {
		c.writeLease(lent)
	}
	q, t := m.key.queue, m.tied()
	t.unique = id
	m.tie(t)
	c.groupOf(q, storage.Dedup) // connections look its ids up from now on
	e := storage.DedupEntry{ID: m.id, At: c.now, Key: m.key.name}
	c.out.batch.Put(storage.Dedup, storage.AppendDedupKey(nil, q.no, storage.UniqueGeneration, id), e.Append(nil))
	c.dedup.taken.Add(dedupKey{q.no, id}, e, c.out.batchNo, c.now)
}

// freeLent frees the unique id that a message has lent, in the batch that records its lease or the end of it.
func (c *core) freeLent(m *message) {
	if m.ties != nil && m.ties.untilLease {
		c.freeUnique(m)
	}
}

// freeUnique frees the unique id of a message that is removed in this batch, or leased.
func (c *core) freeUnique(m *message) {
	q, t := m.key.queue, m.tied()
	id := t.unique
	if id == "" {
		return
	}
	t.unique = ""
	m.tie(t)
	c.out.batch.Delete(storage.Dedup, storage.AppendDedupKey(nil, q.no, storage.UniqueGeneration, id))
	c.dedup.taken.Add(dedupKey{q.no, id}, storage.DedupEntry{}, c.out.batchNo, c.now)
}

// redriveIDs looks up, off the loop, the unique ids of the messages that a redrive has read, each
// in the queue that is to take the message.
type redriveIDs struct {
	snapshot *Snapshot
	to       string // that takes all messages; "": the queue in which each died
	seen     uint64 // committed when the look-ups begin
	owners   map[ID]*idLook
}

// look looks up the unique id of a message, if it has one. r may be nil: the page is not for a
// redrive.
func (r *redriveIDs) look(store Store, id ID, rec *storage.Message) error {
	if r == nil || rec.Unique == "" {
		return nil
	}
	to := r.to
	if to == "" && rec.Dead != nil {
		to = rec.Dead.Queue
	}
	if r.owners == nil {
		r.owners = map[ID]*idLook{}
	}
	l := lookUpUnique(store, r.snapshot, to, rec.Unique, r.seen)
	r.owners[id] = l
	return l.Err
}

// lookUpUnique looks a unique id up in a queue that connections know. It is safe on any goroutine.
func lookUpUnique(store Store, s *Snapshot, queue, id string, seen uint64) *idLook {
	g, _ := s.dedup.Get(queue)
	return lookUp(store, g, []int64{storage.UniqueGeneration}, id, seen)
}
