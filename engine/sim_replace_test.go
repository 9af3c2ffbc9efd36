package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// Replacements in the simulation. Clients enqueue with REPLACE under three unique ids of each queue, r0 to
// r2, of which r0 and r1 are free from the lease of their message on. Some requests have a delay, a longest
// delay, a time to live (r0), or a deduplication id, with which some are sent again.
//
// The contents of a message are the requests that it was enqueued and replaced with, in the order of the
// engine's decisions. The oracle checks that a delivery carries the newest content that a client knows of,
// or a later one, that the answer is the id of the owner, that no request which is sent again within the
// window stores anything, and that no delivery comes before the due time of its content or after the end
// of its time to live. The rules of all other messages hold as well.

const simReplaceIDs = 3

// replaceOracle is the oracle's record of replacements.
type replaceOracle struct {
	contents map[ID][]*simContent
	known    map[string]sentBefore // by queue and deduplication id
}

// simContent is what a request has given a message.
type simContent struct {
	tag   string
	order int  // of the engine's decision
	known bool // a client was answered, or has had it in a delivery
}

// sentBefore is a request with a deduplication id that was answered.
type sentBefore struct {
	since  time.Duration // real time of the turn
	purges int           // sent until then
}

func newReplaceOracle() replaceOracle {
	return replaceOracle{contents: map[ID][]*simContent{}, known: map[string]sentBefore{}}
}

// debounced returns the request of a client that may take the place of another message.
func (s *sim) debounced() *Enqueue {
	n := s.rng.IntN(simReplaceIDs)
	req := &Enqueue{Queue: s.queue(), Key: fmt.Sprintf("k%d", n%s.w.keys), Meta: Meta{Unique: fmt.Sprintf("r%d", n), UntilLease: n < 2}, Replace: s.rng.IntN(6) > 0}
	if s.rng.IntN(16) == 0 {
		req.Key = "k" + fmt.Sprint((n+1)%s.w.keys) // perhaps not that of the owner
	}
	if s.rng.IntN(3) == 0 {
		req.Delay = time.Duration(1+s.rng.IntN(400)) * time.Millisecond
	}
	if req.Replace && s.rng.IntN(3) == 0 {
		req.MaxDelay = time.Duration(1+s.rng.IntN(300)) * time.Millisecond
	}
	if n == 0 && s.rng.IntN(2) == 0 {
		req.TTL = req.Delay + time.Duration(1+s.rng.IntN(600))*time.Millisecond
	}
	if req.Replace && s.rng.IntN(3) == 0 {
		req.Dedup = fmt.Sprintf("e%d", s.rng.IntN(6))
	}
	if s.rng.IntN(5) == 0 {
		req.Throttles = []string{fmt.Sprintf("t%d", s.rng.IntN(3))}
	}
	req.Cost = uint32(s.rng.IntN(4))
	return req
}

// debounce enqueues a message that may take the place of another one.
func (s *sim) debounce(cl *simClient) {
	o := &s.oracle
	req := s.debounced()
	ask := o.asksUnique(req.Queue, req.Unique)
	tag := o.newTag(req.Queue, req.Key)
	dedup := req.Queue + "/" + req.Dedup
	sent, isRepeated := o.replace.known[dedup]
	ttl, maxDelay := req.TTL, req.MaxDelay
	req.Payload = []byte(tag)
	if err := s.step.Prepare(req); err != nil {
		o.fail("prepare: %v", err)
	}
	o.unknown[tag] = true
	var id ID
	var due, at, ends time.Time
	var content *simContent
	stored, known := false, false
	s.submit(cl, func(tx *Tx) (err error) {
		before := tx.core.ids.last
		back := s.breakReplacement(tx.core, req)
		id, err = tx.Enqueue(req)
		back(id)
		if err != nil {
			return err
		}
		stored, known = req.record == nil, tx.core.ids.last == before
		if at = tx.Now(); !stored {
			return nil
		}
		if isRepeated && req.Dedup != "" && !o.lossy && sent.purges == o.look.purges && (at.Sub(time.Unix(0, 0))+o.setBack-sent.since) < o.window {
			o.fail("%s is stored although an earlier request with the deduplication id %s was answered", tag, dedup)
		}
		if due = (time.Time{}); req.Delay > 0 {
			due = at.Add(req.Delay)
			o.handed[id] = true // it gets its position when it is due
			first := at
			if known { // else the id may be ahead of the time
				first = id.Time()
			}
			if latest := first.Add(maxDelay); maxDelay > 0 && latest.Before(due) {
				due = latest
			}
		}
		if ends = (time.Time{}); ttl > 0 {
			ends = at.Add(ttl)
		}
		content = o.takesPlace(tag, id, s.decisions)
		o.unique.names[tag] = ask.name
		if ttl > 0 {
			o.byID[id].mayDie = true
			o.handed[id] = true // it may die before its first delivery, and come back by a redrive
		}
		return nil
	}, func(err error) {
		switch {
		case err == nil && !stored:
			o.answeredReplacement(tag, id, req, ask)
		case err == nil:
			if !known {
				o.enqueuedUnique(ask, tag)
			}
			o.signals.resolved(tag, signalEnqueued, !known, o.now)
			o.replaced(content, id, due, ends)
		case errors.Is(err, ErrTakeover), errors.Is(err, ErrInvalid):
			if errors.Is(err, ErrInvalid) && !s.refusesOption(req, err) && s.w.keys == 1 {
				o.fail("replace: %v", err)
			}
			delete(o.unknown, tag)
			o.signals.resolved(tag, signalEnqueued, false, o.now)
		case !notNow(err):
			o.fail("replace: %v", err)
		}
		if err == nil && req.Dedup != "" && !s.replaced {
			if _, before := o.replace.known[dedup]; stored || !before {
				o.replace.known[dedup] = sentBefore{at.Sub(time.Unix(0, 0)) + o.setBack, o.look.purges}
			}
		}
	})
}

// takesPlace records that the engine has given a message another content, answered or not: a client that
// has had the answer to an earlier one may find either.
func (o *oracle) takesPlace(tag string, id ID, order int) *simContent {
	content := &simContent{tag: tag, order: order}
	o.replace.contents[id] = append(o.replace.contents[id], content)
	delete(o.ends, id)
	m := o.byID[id]
	if m == nil {
		m = &oracleMsg{id: id}
		o.byID[id] = m
	}
	m.notBefore = time.Time{}
	if m.tag != "" {
		delete(o.stored, m.tag)
		o.unknown[m.tag] = true
	}
	return content
}

// replaced records that a client was answered that a message has a content.
func (o *oracle) replaced(content *simContent, id ID, due, ends time.Time) {
	o.trace("%s is the content of %s", content.tag, id)
	content.known = true
	all, m := o.replace.contents[id], o.byID[id]
	if all[len(all)-1] != content {
		return // another one has followed
	}
	if !ends.IsZero() {
		o.ends[id] = ends
	}
	if m.tag = content.tag; !o.gone[m.tag] {
		o.stored[m.tag] = m
	}
	if m.notBefore = due; m.moving > 0 || o.handed[id] && m.receipt.ID == id {
		m.notBefore = time.Time{}
	}
	delete(o.unknown, content.tag)
	o.look.ids = append(o.look.ids, id)
	o.unsynced = append(o.unsynced, unsynced{m: m, enqueued: true})
}

// answeredReplacement checks a request that was answered with the id of an earlier message.
func (o *oracle) answeredReplacement(tag string, id ID, req *Enqueue, ask *uniqueAsk) {
	o.trace("%s is answered with %s", tag, id)
	delete(o.unknown, tag)
	o.signals.resolved(tag, signalEnqueued, false, o.now)
	m := o.byID[id]
	if m == nil || m.tag == "" || req.Dedup != "" {
		return
	}
	o.ownsUnique(tag, m, ask)
}

// carries checks that a message which has been delivered or shown has no older content than a client knew of
// before the decision to do so. It reports whether the message may have several.
func (o *oracle) carries(id ID, tag string, order int) bool {
	var newest, has *simContent
	for _, content := range o.replace.contents[id] {
		if content.known && content.order < order {
			newest = content
		}
		if content.tag == tag {
			has = content
		}
	}
	if has == nil {
		return false
	}
	if newest != nil && has.order < newest.order {
		o.fail("%s is the content of %s, which was %s since decision %d, before decision %d", tag, id, newest.tag, newest.order, order)
	}
	has.known = true
	return true
}

// lostReplacements records that a power loss may have lost replacements that were not synced.
func (o *oracle) lostReplacements() {
	for id, all := range o.replace.contents {
		if len(all) > 1 {
			delete(o.ends, id) // an earlier content may be back
		}
		for _, content := range all {
			if content.known = false; len(all) > 1 && !o.gone[content.tag] {
				delete(o.stored, content.tag)
				o.unknown[content.tag] = true
			}
		}
	}
	clear(o.replace.known)
}

// ownerInMemory returns the message of a queue that has a unique id and waits, if it is in memory.
func ownerInMemory(c *core, queue, id string) *foundMessage {
	q := c.queues.byName[queue]
	for k := range q.roster.All() {
		for _, m := range k.window.All() {
			if m.tied().unique == id {
				return &foundMessage{m: m, key: k.name}
			}
		}
	}
	for _, d := range c.delayed.index.All() {
		if m := d.Message; m != nil && m.key.queue == q && m.tied().unique == id {
			return &foundMessage{m: m, key: m.key.name, readyAt: d.At, delayed: true}
		}
	}
	return nil
}

// breakReplacement plants a fault in a replacement. back is called behind it.
func (s *sim) breakReplacement(c *core, req *Enqueue) (back func(ID)) {
	back = func(ID) {}
	if s.mutant == oldRequestReplaces {
		req.dedup = ""
	}
	f := ownerInMemory(c, req.Queue, req.Unique)
	if f == nil || !req.Replace || c.dedup.Inside().Stale(req.looks.unique) {
		return back
	}
	old := f.m
	switch s.mutant {
	case replacementKeepsTTL:
		if left := time.Duration(old.expires - c.now); old.expires == 0 {
			req.TTL = 0
		} else if left > req.Delay {
			req.TTL = left
		}
	case replacementKeepsBody:
		if old.body != nil {
			req.record = old.body
		}
	case replacementMoves:
		if old.attempt == 1 && old.failure == nil && req.dedup == "" && !old.key.queue.set.PausedIn && req.Key == f.key {
			m := c.takeOut(f, old.status)
			c.settle(m.key)
			c.remove(m)
		}
	case replacementNotCommitted:
		return func(id ID) {
			if m := ownerInMemory(c, req.Queue, req.Unique); m != nil && m.m.id == id {
				m.m.batch = 0
			}
		}
	default:
	}
	return back
}

// freeEarly is the mutant that frees unique ids with a lease that has no record.
func (s *sim) freeEarly(c *core, ds []*Delivery) {
	if s.mutant != untilLeaseFreedEarly {
		return
	}
	for _, d := range ds {
		if m := c.leases.byID[d.Receipt.ID]; m != nil {
			c.dedup.freeLent(c, m)
		}
	}
}

// ownsUniqueID reports whether the unique id of a message in the store has to be taken by it.
func ownsUniqueID(store Store, mk storage.MessageKey, m *storage.Message) bool {
	if m.Unique == "" || m.Dead != nil {
		return false
	}
	if !m.UntilLease {
		return true
	}
	var a storage.Attempt
	if b, err := store.Get(storage.Attempts, mk.Append(nil)); err == nil && a.Decode(b) == nil && a.Freed {
		return false
	}
	prefix := mk.Append(nil)
	it := store.Scan(storage.Leases, prefix, storage.After(prefix))
	defer it.Close()
	return !it.Seek(prefix)
}

// debouncing is one in how many commands of clients is an enqueue with REPLACE.
func (s *sim) debouncing() int {
	switch s.mutant {
	case untilLeaseFreedEarly, replacementKeepsTTL, replacementKeepsBody, replacementMoves, replacementNotCommitted, oldRequestReplaces:
		return 3
	default:
		return 12
	}
}
