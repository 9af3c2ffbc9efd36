package engine

// Cancel asks to remove messages.
type Cancel struct {
	Queue string
	IDs   []ID

	look *lookup
	at   int // in what was looked up
}

// cancelPart is how many messages are looked up at once.
const cancelPart = 4096

// Cancel removes messages of whatever status and returns how many there were. The
// receipts of leased ones are lost. The messages are looked up beside the loop, so many
// at a time; the task waits for that. Each message is removed atomically, very many of
// them in several writes.
func (tx *Tx) Cancel(req *Cancel) (int, error) {
	c := tx.core
	if tx.atomic {
		return tx.cancelAll(req)
	}
	p, err := tx.progress()
	if err != nil {
		return 0, err
	}
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		if p.at > 0 { // the queue was deleted meanwhile, and with it the other messages
			return p.n, nil
		}
		return 0, err
	}
	for p.at < len(req.IDs) {
		l := req.look
		if l == nil || l.epoch != c.epoch || l.done && !c.valid(&l.changeLog) {
			tx.endLook(req)
			part := req.IDs[p.at:min(p.at+cancelPart, len(req.IDs))]
			c.spend(len(part) / 8)
			tx.keepLook(req, c.lookUp(q, part, false, resume(tx.task)))
			return 0, tx.parkAt(p)
		}
		if !l.done {
			return 0, tx.parkAt(p)
		}
		if l.err != nil {
			return 0, lookupError(l.err, "cancel")
		}
		for ; req.at < len(l.found); req.at++ {
			if !tx.more() {
				return 0, tx.yieldAt(p)
			}
			if f := l.found[req.at]; f != nil && c.discard(&l.changeLog, f) {
				p.n++
				q.totals.cancelled++
			}
			p.at++
		}
		tx.endLook(req)
	}
	return p.n, nil
}

// keepLook keeps what is known of messages that are looked up until they are done with,
// which may be some turns after they were found.
func (tx *Tx) keepLook(req *Cancel, l *lookup) {
	l.keepsLog = true
	req.look, req.at = l, 0
	tx.task.logs = append(tx.task.logs, &l.changeLog)
}

// endLook ends that.
func (tx *Tx) endLook(req *Cancel) {
	if req.look == nil {
		return
	}
	req.look = nil
	for _, w := range tx.task.logs {
		tx.core.closeLog(w)
	}
	tx.task.logs = nil
}

// cancelAll is Cancel as a part of a transaction, for which all of it was looked up.
func (tx *Tx) cancelAll(req *Cancel) (int, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return 0, err
	}
	l, err := tx.lookedUp(q, &req.look, req.IDs, false)
	if err != nil {
		return 0, lookupError(err, "cancel")
	}
	n := 0
	for _, f := range l.found {
		if f != nil && tx.more() && c.discard(&l.changeLog, f) {
			n++
		}
	}
	q.totals.cancelled += uint64(n)
	return n, nil
}

// PreflightCancel looks up what Cancel needs, see Preflighter.
func (tx *Tx) PreflightCancel(req *Cancel) error {
	return tx.preflightLookup(req.Queue, &req.look, req.IDs, false)
}

// discard removes a message that was found in the store, whatever its status. It
// reports whether it was still there.
func (c *core) discard(w *changeLog, f *foundMessage) bool {
	var m *message
	if c.locate(w, f) == leased {
		m = c.leases.byID[f.m.id]
		c.endLease(m)
	} else {
		m = c.extract(w, f)
	}
	if m == nil {
		return false
	}
	c.remove(m)
	c.out.sync = true
	return true
}
