package engine

// Cancel asks to remove messages.
type Cancel struct {
	Queue string
	IDs   []ID

	look *lookup
}

// Cancel removes messages of whatever status, all of them at once, and returns how
// many there were. The receipts of leased ones are lost. The messages are looked up
// beside the loop; the task waits for that.
func (tx *Tx) Cancel(req *Cancel) (int, error) {
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
		if f != nil && c.discard(&l.watch, f) {
			n++
		}
	}
	q.totals.cancelled += uint64(n)
	return n, nil
}

// ForeseeCancel looks up what Cancel needs, see Foreseer.
func (tx *Tx) ForeseeCancel(req *Cancel) error {
	return tx.foreseeLookup(req.Queue, &req.look, req.IDs, false)
}

// discard removes a message that was found in the store, whatever its status. It
// reports whether it was still there.
func (c *core) discard(w *watch, f *foundMessage) bool {
	var m *message
	if c.locate(w, f) == leased {
		m = c.leases[f.m.id]
		c.endLease(m)
	} else {
		m = c.extract(w, f)
	}
	if m == nil {
		return false
	}
	c.remove(m)
	c.sync = true
	return true
}
