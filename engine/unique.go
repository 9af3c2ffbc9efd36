package engine

import (
	"fmt"

	"github.com/faisca/fila/storage"
)

// Uniqueness until done. An enqueue may name a unique id. While a message with this id is in the
// queue, in whatever status, a second enqueue with it stores nothing and returns the id of the
// first message, the owner. The states of a unique id in a queue:
//
//	free ──place, move (redrive)───────────────────────────────────▶ taken, +entry
//	taken ──remove: ack, dead letter, cancel, TTL, purge of a key──▶ free, -entry
//	taken ──detachAll: purge or deletion of the queue──────────────▶ free, -range of entries
//
// The entry is in the batch that stores or removes the message, so a crash finds both or
// neither. It is in the family of deduplication ids, in a generation of its own that no period
// ends, and is looked up in the same three steps (dedup.go).
//
// A message carries its id in its record, in the record of its lease, from which recovery knows
// leased messages, and in memory. A dead message carries it too, but does not own it: it has
// freed it when it died, and a redrive takes it again. If another message has taken it
// meanwhile, the dead one stays where it is.

// uniqueGenerations is what a look-up of a unique id searches.
func uniqueGenerations() []int64 { return []int64{storage.UniqueGeneration} }

// uniqueOwner is what a recent batch has made of a unique id.
type uniqueOwner struct {
	id    ID     // of the message that has taken it; zero: it is free
	batch uint64 // so that the values of different batches differ
}

// owner returns the message that has taken a unique id in a queue, the zero ID if it is free. l is
// the look-up of the id; ErrWouldBlock means that it has to be repeated.
func (c *core) owner(q *queue, id string, l *dedupView) (ID, error) {
	if now, ok := c.dedup.taken.Get(dedupKey{q.no, id}); ok {
		return now.id, nil
	}
	switch {
	case l == nil || !l.done || l.seen < c.dedup.taken.Dropped:
		return ID{}, ErrWouldBlock
	case l.err != nil:
		return ID{}, fmt.Errorf("look UNIQUE up: %w", l.err)
	case l.queue != q.no: // the queue had no ids, or was purged or deleted since
		return ID{}, nil
	}
	return l.found.ID, nil
}

// knowIDs has connections look up the ids of a queue that may have unique ids only.
func (c *core) knowIDs(q *queue) {
	if q.dedup == nil {
		c.newGenerations(q, storage.Dedup)
	}
}

// takeUnique makes a message that is stored in this batch the owner of a unique id, which is free.
func (c *core) takeUnique(m *message, id string) {
	q := m.key.queue
	m.tie(id, m.tied().body)
	c.knowIDs(q)
	e := storage.DedupEntry{ID: m.id, At: c.now, Key: m.key.name}
	c.out.batch.Put(storage.Dedup, storage.AppendDedupKey(nil, q.no, storage.UniqueGeneration, id), e.Append(nil))
	c.dedup.taken.Add(dedupKey{q.no, id}, uniqueOwner{m.id, c.out.batchNo}, c.out.batchNo, c.now)
}

// freeUnique frees the unique id of a message that is removed in this batch.
func (c *core) freeUnique(m *message) {
	q, id := m.key.queue, m.tied().unique
	if id == "" {
		return
	}
	m.tie("", m.tied().body)
	c.out.batch.Delete(storage.Dedup, storage.AppendDedupKey(nil, q.no, storage.UniqueGeneration, id))
	c.dedup.taken.Add(dedupKey{q.no, id}, uniqueOwner{batch: c.out.batchNo}, c.out.batchNo, c.now)
}

// redriveIDs looks up, off the loop, the unique ids of the messages that a redrive has read, each
// in the queue that is to take the message.
type redriveIDs struct {
	snapshot *Snapshot
	to       string // that takes all messages; "": the queue in which each died
	seen     uint64 // committed when the look-ups begin
	owners   map[ID]*dedupView
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
		r.owners = map[ID]*dedupView{}
	}
	l := lookUpOwner(store, r.snapshot, to, rec.Unique, r.seen)
	r.owners[id] = l
	return l.err
}

// lookUpOwner looks a unique id up in a queue that connections know. It is safe on any goroutine.
func lookUpOwner(store Store, s *Snapshot, queue, id string, seen uint64) *dedupView {
	ids, ok := s.dedup.get(queue)
	if !ok {
		return &dedupView{seen: seen, done: true} // the queue had no ids
	}
	return new(lookUp(store, ids.no, uniqueGenerations(), id, seen))
}

// redriveOwner returns the message that has taken, in the target of a redrive, the unique id of a
// message of the page. ErrWouldBlock means that the page has to be read again; there is no other
// error, since the page would have it.
func (c *core) redriveOwner(p *page, to *queue, id ID, unique string) (ID, error) {
	if unique == "" {
		return ID{}, nil
	}
	return c.owner(to, unique, p.ids.owners[id])
}
