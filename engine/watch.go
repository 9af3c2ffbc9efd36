package engine

// A watch lets what is read beside the loop be used in a later turn, however much
// has happened in between. While a queue is watched, every change of one of its
// messages other than its enqueue is noted as a fact. What was found in the store
// and the facts since it was asked for together say what is (core.locate): no
// change makes a reading worthless, so no traffic keeps it from getting on.
type watch struct {
	queue *queue
	no    uint32 // of the queue then: a purge gives it another
	epoch uint64
	seq   uint64 // of the newest change when the reading was asked for
}

// fact is what is now known of a message that has changed while somebody watched.
type fact struct {
	gone uint64 // number of the change that took it out of the queue the last time; 0: none did

	// tried says that the message's record of attempts is known, as it follows.
	tried               bool
	attempt, deliveries uint32
	fence               uint64
	failure             *failure

	// timed says that it is known whether the message is delayed.
	timed   bool
	delayed bool
	readyAt int64
}

// factsMax bounds the facts of a queue, but for those of one reading. When there are
// more, they are dropped, and what else is being read then is read again.
const factsMax = 100_000

// watch begins to note what changes in a queue. unwatch must follow, unless the
// memory is dropped before.
func (c *core) watch(q *queue) watch {
	q.watchers++
	if len(q.facts) > factsMax {
		q.facts, q.factsLost = nil, q.changes
	}
	return watch{queue: q, no: q.no, epoch: c.epoch, seq: q.changes}
}

func (c *core) unwatch(w *watch) {
	if w.epoch != c.epoch {
		return // the queue that it knew is gone with its memory
	}
	if w.queue.watchers--; w.queue.watchers == 0 {
		w.queue.facts = nil
	}
}

// holds says that what was read under the watch can be used: its queue is still
// the one it was, and no fact was dropped.
func (c *core) holds(w *watch) bool {
	return w.epoch == c.epoch && c.byNumber[w.no] == w.queue && w.seq >= w.queue.factsLost
}

// note returns the fact of a message that changes, or nil if nobody watches.
func (q *queue) note(id ID) *fact {
	if q.watchers == 0 {
		return nil
	}
	q.changes++
	f := q.facts[id]
	if f == nil {
		if q.facts == nil {
			q.facts = map[ID]*fact{}
		}
		f = &fact{}
		q.facts[id] = f
	}
	return f
}

// noteGone notes that a message has left the queue.
func (q *queue) noteGone(id ID) {
	if f := q.note(id); f != nil {
		*f = fact{gone: q.changes}
	}
}

// noteAttempt notes what the message's record of attempts says now.
func (q *queue) noteAttempt(m *message) {
	f := q.note(m.id)
	if f == nil {
		return
	}
	f.tried, f.attempt, f.deliveries, f.fence, f.failure = true, m.attempt, m.deliveries, m.fence, nil
	if m.failure != nil {
		f.failure = new(*m.failure) // the message goes on changing its own
	}
}

// noteTime notes that a message waits for a time, or with 0 that it does not.
func (q *queue) noteTime(id ID, at int64) {
	if f := q.note(id); f != nil {
		f.timed, f.delayed, f.readyAt = true, at > 0, at
	}
}

// locate brings a message that was found in the store up to date and says what is
// with it now. If it is leased, what is known of it is in core.leases; the caller
// has to know that the watch holds.
func (c *core) locate(w *watch, f *foundMessage) status {
	q := w.queue
	if fact := q.facts[f.m.id]; fact != nil {
		if fact.gone > w.seq {
			return gone // if it has come back since, it came after the reading
		}
		fact.apply(f)
	}
	k := q.keys.get(f.key)
	if k == nil {
		return gone
	}
	f.m.key = k
	switch m := c.leases[f.m.id]; {
	case m != nil && m.key == k:
		return leased
	case f.delayed:
		return delayed
	default:
		return ready
	}
}

// apply brings a message as the store had it up to date.
func (f *fact) apply(found *foundMessage) {
	m := found.m
	if f.tried {
		m.retried, m.attempt, m.deliveries, m.fence, m.failure = true, f.attempt, f.deliveries, f.fence, f.failure
	}
	if f.timed {
		found.delayed, found.readyAt = f.delayed, f.readyAt
	}
}
