package engine

// Pause stops or resumes a queue: with in that it takes new messages, with out that
// it hands them out. A paused intake refuses enqueues with ErrPaused; messages that
// come back, or die, are taken all the same. Those who wait for a queue whose
// deliveries are paused go on waiting, and are served when it is resumed.
func (tx *Tx) Pause(name string, in, out, paused bool) error {
	c := tx.core
	q, err := c.queueToChange(name)
	if err != nil {
		return err
	}
	if in {
		q.set.PausedIn = paused
	}
	if out {
		q.set.PausedOut = paused
	}
	c.putQueue(q)
	c.notePaused(q)
	if !out {
		return nil
	}
	if paused {
		c.unreserveQueue(q)
	} else {
		c.offer(q)
	}
	return nil
}

// notePaused keeps the list of queues whose deliveries are paused.
func (c *core) notePaused(q *queue) {
	if q.set.PausedOut {
		c.queues.pausedOut[q] = struct{}{}
	} else {
		delete(c.queues.pausedOut, q)
	}
}
