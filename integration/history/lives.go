package history

import "time"

// lives finds messages that outlived their TTL or died early.
func (c *check) lives(m *message) {
	e := m.enqueue
	for i := range m.hands {
		h := &m.hands[i]
		switch {
		case h.lease.Queue == e.Queue:
			// The time of an enqueue without a reply is unknown.
			if end := e.Return + e.TTL; e.TTL > 0 && e.Outcome == Done && h.granted() > end+c.rules.Skew {
				c.breach(Lives, "%s was to live until %v at most and was leased at %v", m.id, end, h.granted())
			}
		case m.nacked():
		case e.TTL == 0:
			c.breach(Lives, "%s was delivered from %s at %v without a reason for its death", m.id, h.lease.Queue, h.granted())
		case h.granted() < c.began(m)+e.TTL-c.rules.Skew:
			c.breach(Lives, "%s was to live until %v at least and was delivered from %s at %v", m.id, c.began(m)+e.TTL, h.lease.Queue, h.granted())
		}
	}
}

// began returns when a message was enqueued at the earliest: m.enqueue, whose answer has its id, may have
// repeated an enqueue that was executed and not answered. A payload tells which one it was.
func (c *check) began(m *message) time.Duration {
	if len(m.hands) > 0 {
		return c.enqueued[m.hands[0].Tag].Call
	}
	began := m.enqueue.Call
	for i := range c.Enqueues {
		if e := &c.Enqueues[i]; m.sameName(e) {
			began = min(began, e.Call)
		}
	}
	return began
}

// nacked reports whether a client may have nacked the message as dead.
func (m *message) nacked() bool {
	for _, e := range m.ends {
		if e.Kind == Nack && e.Outcome != Refused {
			return true
		}
	}
	return false
}

// name identifies deduplicated messages.
type name struct{ queue, dedup string }

// answered bounds when a message with a dedup name was enqueued. The payload identifies its own
// enqueue; further enqueues of the name were answered with its id.
type answered struct {
	*message
	from, until time.Duration
}

// dedup finds two messages with one name within the window, and enqueues that were taken for
// another message after the window.
func (c *check) dedup() {
	byName := map[name][]answered{}
	for _, m := range c.messages {
		if m.enqueue.Dedup == "" || len(m.hands) == 0 {
			continue // its enqueue is unknown; reported as lost
		}
		a := answered{m, c.enqueued[m.hands[0].Tag].Call, 1 << 62}
		for _, e := range m.answers {
			a.until = min(a.until, e.Return)
		}
		for _, e := range m.answers {
			if e.Call > a.until+c.rules.DedupWindow+c.rules.Skew {
				c.breach(Dedup, "%s, sent at %v, was taken for %s, which was enqueued before %v", e.Tag, e.Call, m.id, a.until)
			}
		}
		n := name{m.enqueue.Queue, m.enqueue.Dedup}
		byName[n] = append(byName[n], a)
	}
	for n, all := range byName {
		for i := range all {
			for j := range all[:i] {
				a, b := &all[j], &all[i]
				if a.from > b.from {
					a, b = b, a
				}
				if max(a.until, b.until)-a.from+c.rules.Skew < c.rules.DedupWindow && !c.forgotten(a.until, b.until) {
					c.breach(Dedup, "%s, enqueued before %v, and %s, enqueued after %v, are both %s of %s", a.id, a.until, b.id, b.from, n.dedup, n.queue)
				}
			}
		}
	}
}

// torn finds unanswered transactions that were executed in part: only the ack, or only the enqueue.
func (c *check) torn(m *message) {
	for _, e := range m.ends {
		if e.With == "" || e.Outcome != Unknown || c.endedBesides(m, e) {
			continue
		}
		follower := c.byTag[e.With]
		came := follower != nil && len(follower.hands) > 0
		again := len(m.hands) > 0 && m.hands[len(m.hands)-1].Fence > e.Fence
		switch {
		case came && again:
			first, last := follower.hands[0].lease.Return, m.hands[len(m.hands)-1].lease.Return
			if c.inTime(m, e) && !c.forgotten(first, last) {
				c.breach(Torn, "%s, enqueued with the ack of %s:%d, was delivered, and %s was delivered again", e.With, m.id, e.Fence, m.id)
			}
		case !came && !again && !c.forgotten(e.Call, c.end()) && !c.forgotten(m.hands[0].lease.Return, c.end()):
			c.breach(Torn, "%s, to be enqueued with the ack of %s:%d, was never delivered, nor was %s again", e.With, m.id, e.Fence, m.id)
		}
	}
}

// endedBesides reports whether another call may have ended the lease of a transaction.
func (c *check) endedBesides(m *message, exec *End) bool {
	for _, e := range m.ends {
		if e != exec && e.Kind != Extend && e.Fence == exec.Fence {
			return true
		}
	}
	return len(m.hands) == 0
}

// inTime reports whether an unanswered transaction, if executed at all, was executed during its
// lease: the broker ended before the lease did.
func (c *check) inTime(m *message, exec *End) bool {
	for i := range m.hands {
		if h := &m.hands[i]; h.Fence == exec.Fence {
			for _, cut := range c.Crashes {
				if cut.Back > exec.Call {
					return cut.Back+c.rules.Skew < h.Until
				}
			}
		}
	}
	return false
}
