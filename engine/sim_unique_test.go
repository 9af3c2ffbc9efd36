package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/faisca/fila/storage"
)

// Unique ids in the simulation. A part of the enqueues and publishes name one of three ids. The oracle checks
// that an answer with an earlier message names one that has the id and had not ended when the
// client asked, that no second message is stored while the first is certainly there, that after
// a crash the store has an entry for each message with an id and no other, and that all ids are
// free when the queues are empty.

const simUniqueIDs = 3

// uniqueOracle is the oracle's record of unique ids.
type uniqueOracle struct {
	names map[string]string // queue and unique id of messages, by tag
	ended map[string]int    // tags of messages that are done, as a client was answered, and when
	until map[string]bool   // tags of messages whose ids are free from their lease on
	lent  map[ID]bool       // messages that the engine has leased
	freed map[ID]lentID     // messages of until that a client has got, since the last crash
	asked int               // requests with a unique id
}

func newUniqueOracle() uniqueOracle {
	return uniqueOracle{names: map[string]string{}, ended: map[string]int{}, until: map[string]bool{}, lent: map[ID]bool{}, freed: map[ID]lentID{}}
}

// lentID is when a client has got a message: what had been asked and redriven by then.
type lentID struct{ asked, redrives int }

// leaves reports whether the id of a message is free from its lease on.
func (o *uniqueOracle) leaves(tag string) bool {
	return o.until[tag] || strings.HasSuffix(o.names[tag], "/r0") || strings.HasSuffix(o.names[tag], "/r1")
}

// uniqueAsk is a request with a unique id.
type uniqueAsk struct {
	name  string
	order int
	there []*oracleMsg // messages that certainly had the id when the client asked
}

// makeUnique gives a part of the requests a unique id. It returns nil for the others.
func (s *sim) makeUnique(req *Enqueue) *uniqueAsk {
	s.giveUnique(req)
	return s.oracle.asksUnique(req.Queue, req.Unique)
}

// giveUnique gives a part of the requests a unique id.
func (s *sim) giveUnique(req *Enqueue) {
	if s.rng.IntN(4) == 0 || s.mutant == uniqueFreedApart {
		req.Unique = fmt.Sprintf("u%d", s.rng.IntN(simUniqueIDs))
		req.UntilLease = s.rng.IntN(3) == 0
	}
}

// asksUnique records that a client asks for a message with a unique id. It returns nil if there is
// no id.
func (o *oracle) asksUnique(queue, id string) *uniqueAsk {
	if id == "" {
		return nil
	}
	o.unique.asked++
	ask := &uniqueAsk{name: queue + "/" + id, order: o.unique.asked}
	for _, m := range o.stored {
		if o.unique.names[m.tag] == ask.name && o.surelyThere(m) {
			ask.there = append(ask.there, m)
		}
	}
	return ask
}

// surelyThere reports whether nothing can have ended a message or moved it to another queue.
func (o *oracle) surelyThere(m *oracleMsg) bool {
	return o.atHome(m) && !o.taken(m) && (!o.unique.leaves(m.tag) || !o.unique.lent[m.id])
}

// enqueuedUnique checks an enqueue that was answered with a new message.
func (o *oracle) enqueuedUnique(ask *uniqueAsk, tag string) {
	if ask == nil {
		return
	}
	for _, m := range ask.there {
		if o.surelyThere(m) {
			o.fail("%s was stored although %s, which is there, is %s", tag, m.tag, ask.name)
		}
	}
}

// answeredEarlier checks an enqueue that was answered with the id of an earlier message.
func (o *oracle) answeredEarlier(tag string, id ID, req *Enqueue, ask *uniqueAsk, at time.Time) {
	m := o.byID[id]
	if ask == nil || m != nil && o.unique.names[m.tag] != ask.name && req.Dedup != "" {
		o.repeated(tag, id, req.Queue, req.Dedup, at)
		return
	}
	o.trace("%s is answered with %s, which is %s", tag, id, ask.name)
	delete(o.unknown, tag)
	delete(o.follows, tag)
	o.signals.resolved(tag, signalEnqueued, false, o.now)
	if m == nil || m.tag == "" {
		return // the enqueue of that message was not answered
	}
	if req.Dedup == "" {
		o.ownsUnique(tag, m, ask)
		return
	}
	if o.unique.names[m.tag] != ask.name {
		o.fail("%s was answered with %s, which is %q and not %s", tag, m.tag, o.unique.names[m.tag], ask.name)
	}
	switch order, ended := o.unique.ended[m.tag]; {
	case !ended || order >= ask.order:
	default: // the id is free, and that of deduplication is not
		o.repeated(tag, id, req.Queue, req.Dedup, at)
	}
}

// ownsUnique checks that a message which has answered a request may have had its unique id.
func (o *oracle) ownsUnique(tag string, m *oracleMsg, ask *uniqueAsk) {
	if o.unique.names[m.tag] != ask.name {
		o.fail("%s was answered with %s, which is %q and not %s", tag, m.tag, o.unique.names[m.tag], ask.name)
	}
	if order, ended := o.unique.ended[m.tag]; ended && order < ask.order {
		o.fail("%s was answered with %s, which had ended: %s was not freed", tag, m.tag, ask.name)
	}
	if l, leased := o.unique.freed[m.id]; leased && l.asked < ask.order && l.redrives == o.look.redrives && !o.mayHaveDied(m.id) {
		o.fail("%s was answered with %s, which had been leased: %s was not freed", tag, m.tag, ask.name)
	}
}

// gotUnique records that a client has got a message from the queue that it was enqueued to.
func (o *oracle) gotUnique(m *oracleMsg, queue string) {
	if queue != m.queue() {
		return
	}
	if _, before := o.unique.freed[m.id]; !before && o.unique.leaves(m.tag) {
		o.unique.freed[m.id] = lentID{o.unique.asked, o.look.redrives}
	}
}

// doneUnique records that a client was answered that a message is done.
func (o *oracle) doneUnique(tag string) { o.unique.ended[tag] = o.unique.asked }

// crashedUnique checks what a crash has left: each message with a unique id has its entry, and
// each entry its message. The other faults have oracles of their own.
func (s *sim) crashedUnique() {
	if s.mutant != noMutant && s.mutant != untilLeaseFreedEarly {
		return
	}
	owners := uniqueEntries(s.step.store)
	it := s.step.store.Scan(storage.Messages, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		mk, err := storage.ParseMessageKey(it.Key())
		var m storage.Message
		if err = errors.Join(err, m.Decode(it.Value())); err != nil {
			s.oracle.fail("a message cannot be read: %v", err)
			return
		}
		if !ownsUniqueID(s.step.store, mk, &m) {
			continue
		}
		name := fmt.Sprint(mk.Queue, "/", m.Unique)
		if owner, found := owners[name]; owner != mk.ID {
			s.oracle.fail("message %s is %s, which belongs to %s: %v", mk.ID, name, owner, found)
		}
		delete(owners, name)
	}
	for name, id := range owners {
		s.oracle.fail("%s belongs to %s, which is not there", name, id)
	}
}

// uniqueEntries returns the unique ids in a store, by the number of the queue.
func uniqueEntries(store Store) map[string]ID {
	owners := map[string]ID{}
	it := store.Scan(storage.Dedup, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		no, gen, id, err := storage.ParseDedupKey(it.Key())
		var e storage.DedupEntry
		if err == nil && gen == storage.UniqueGeneration && e.Decode(it.Value()) == nil {
			owners[fmt.Sprint(no, "/", id)] = e.ID
		}
	}
	return owners
}

// endUnique checks that all ids are free. Nothing is in the queues.
func (s *sim) endUnique(cl *simClient) {
	if s.mutant != noMutant && s.mutant != uniqueFreedApart {
		return
	}
	for _, queue := range []string{"a", "b"} {
		for i := range simUniqueIDs + simReplaceIDs {
			req := &Enqueue{Queue: queue, Meta: Meta{Unique: fmt.Sprintf("u%d", i)}, Payload: []byte(queue)}
			if i >= simUniqueIDs {
				req.Unique = fmt.Sprintf("r%d", i-simUniqueIDs)
			}
			if err := s.step.Prepare(req); err != nil {
				s.oracle.fail("prepare: %v", err)
			}
			stored := false
			s.submit(cl, func(tx *Tx) error {
				before := tx.core.ids.last
				_, err := tx.Enqueue(req)
				stored = tx.core.ids.last != before
				return err
			}, func(err error) {
				if err == nil && !stored {
					s.oracle.fail("%s of %s is not free, and the queue is empty", req.Unique, queue)
				} else if err != nil && !errors.Is(err, ErrCredit) {
					s.oracle.fail("enqueue of %s: %v", req.Unique, err)
				}
			})
		}
	}
	s.step.Do()
	s.settleReplies()
}

// simEnqueue is a call that needs a preflight.
type simEnqueue struct {
	req   *Enqueue
	apply func(tx *Tx) error
}

func (c *simEnqueue) Preflight(tx *Tx) error { return tx.PreflightEnqueue(c.req) }
func (c *simEnqueue) Apply(tx *Tx) error     { return c.apply(tx) }

// commitApart is the mutant that frees unique ids in a write of their own.
func (s *crashStore) commitApart(b *storage.Batch, sync bool) error {
	var first, second storage.Batch
	_ = b.Each(func(r storage.Record) error {
		out := &first
		if r.Op == storage.OpDelete && r.Family == storage.Dedup && binary.BigEndian.Uint64(r.Key[4:]) == storage.UniqueGeneration {
			out = &second
		}
		switch r.Op {
		case storage.OpPut:
			out.Put(r.Family, r.Key, r.Value)
		case storage.OpDelete:
			out.Delete(r.Family, r.Key)
		case storage.OpSingleDelete:
			out.SingleDelete(r.Family, r.Key)
		case storage.OpDeleteRange:
			out.DeleteRange(r.Family, r.Key, r.Value)
		}
		return nil
	})
	if second.Len() == 0 {
		return s.Memory.Commit(b, sync)
	}
	if err := s.Memory.Commit(&first, sync); err != nil {
		return err
	}
	if s.rng.Float64() < s.chance {
		panic(errCrash)
	}
	return s.Memory.Commit(&second, sync)
}
