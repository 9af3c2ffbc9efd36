package engine

// A watch lets what is read beside the loop be used in a later turn, however much
// has happened in between. While a queue is watched, every change of one of its
// messages other than its enqueue is noted as a fact. What was found in the store
// and the facts since it was asked for together say what is (core.locate): no
// change makes a reading worthless, so no traffic keeps it from getting on.
type changeLog struct {
	queue *queue
	no    uint32 // of the queue then: a purge gives it another
	epoch uint64
	seq   uint64 // of the newest change when the reading was asked for
}

// fact is what is now known of a message that has changed while somebody watched.
type delta struct {
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

// deltasMax bounds the facts of a queue, but for those of one reading. When there are
// more, they are dropped, and what else is being read then is read again.
const deltasMax = 100_000

// watch begins to note what changes in a queue. closeLog must follow, unless the
// memory is dropped before.
func (c *core) openLog(q *queue) changeLog {
	q.logReaders++
	if len(q.deltas) > deltasMax {
		q.deltas, q.deltasLost = nil, q.changes
	}
	return changeLog{queue: q, no: q.no, epoch: c.epoch, seq: q.changes}
}

func (c *core) closeLog(w *changeLog) {
	if w.epoch != c.epoch {
		return // the queue that it knew is gone with its memory
	}
	if w.queue.logReaders--; w.queue.logReaders == 0 {
		w.queue.deltas = nil
	}
}

// holds says that what was read under the watch can be used: its queue is still
// the one it was, and no fact was dropped.
func (c *core) valid(w *changeLog) bool {
	return w.epoch == c.epoch && c.queues.byNumber[w.no] == w.queue && w.seq >= w.queue.deltasLost
}

// note returns the fact of a message that changes, or nil if nobody watches.
func (q *queue) recordDelta(id ID) *delta {
	if q.logReaders == 0 {
		return nil
	}
	q.changes++
	f := q.deltas[id]
	if f == nil {
		if q.deltas == nil {
			q.deltas = map[ID]*delta{}
		}
		f = &delta{}
		q.deltas[id] = f
	}
	return f
}

// recordGone notes that a message has left the queue.
func (q *queue) recordGone(id ID) {
	if f := q.recordDelta(id); f != nil {
		*f = delta{gone: q.changes}
	}
}

// recordAttempt notes what the message's record of attempts says now.
func (q *queue) recordAttempt(m *message) {
	f := q.recordDelta(m.id)
	if f == nil {
		return
	}
	f.tried, f.attempt, f.deliveries, f.fence, f.failure = true, m.attempt, m.deliveries, m.fence, nil
	if m.failure != nil {
		f.failure = new(*m.failure) // the message goes on changing its own
	}
}

// recordTime notes that a message waits for a time, or with 0 that it does not.
func (q *queue) recordTime(id ID, at int64) {
	if f := q.recordDelta(id); f != nil {
		f.timed, f.delayed, f.readyAt = true, at > 0, at
	}
}

// locate brings a message that was found in the store up to date and says what is
// with it now. If it is leased, what is known of it is in core.leases; the caller
// has to know that the watch holds.
func (c *core) locate(w *changeLog, f *foundMessage) status {
	q := w.queue
	if fact := q.deltas[f.m.id]; fact != nil {
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
	switch m := c.leases.byID[f.m.id]; {
	case m != nil && m.key == k:
		return leased
	case f.delayed:
		return delayed
	default:
		return ready
	}
}

// apply brings a message as the store had it up to date.
func (f *delta) apply(found *foundMessage) {
	m := found.m
	if f.tried {
		m.retried, m.attempt, m.deliveries, m.fence, m.failure = true, f.attempt, f.deliveries, f.fence, f.failure
	}
	if f.timed {
		found.delayed, found.readyAt = f.delayed, f.readyAt
	}
}
