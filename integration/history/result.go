package history

import (
	"cmp"
	"slices"
)

// indexAsks groups the asks by message.
func (c *check) indexAsks() {
	slices.SortStableFunc(c.Asks, func(a, b Ask) int { return cmp.Compare(a.Call, b.Call) })
	for i := range c.Asks {
		a := &c.Asks[i]
		if m := c.byID[a.ID]; m != nil {
			m.asks = append(m.asks, a)
		}
		if a.Outcome != Done {
			continue
		}
		c.verdict.Asked++
		ended := a.Status == IsDone || a.Status == IsDead
		switch a.Status {
		case IsDone:
			c.verdict.SaidDone++
		case IsDead:
			c.verdict.SaidDead++
		}
		if m := c.byID[a.ID]; ended && m != nil && slices.ContainsFunc(m.ends, func(e *End) bool { return e.Call >= a.Call }) {
			c.verdict.Waited++
		}
	}
}

// results verifies the answers to those that asked for the result of a message.
func (c *check) results(m *message) {
	for i, a := range m.asks {
		switch {
		case a.Outcome == Refused:
		case a.Outcome == Unknown:
			if !c.crashed(a.Span) {
				c.breach(Answered, "the request for the result of %s at %v had no answer until %v", m.id, a.Call, a.Return)
			}
		case a.Status == IsDone:
			c.resultDone(m, a)
		case a.Status == IsDead:
			c.resultDead(m, a)
		case a.Status == IsPending:
			c.resultPending(m, a)
		default:
			c.resultUnknown(m, a)
		}
		if a.Outcome == Done && i > 0 {
			c.resultBefore(m, m.asks[:i], a)
		}
	}
	if n := len(m.asks); n > 0 && m.asks[n-1].Outcome == Unknown {
		c.breach(Answered, "a client has asked for the result of %s and was never answered", m.id)
	}
}

// crashed reports whether a crash overlaps with a call.
func (c *check) crashed(s Span) bool {
	return slices.ContainsFunc(c.Crashes, func(cut Crash) bool { return cut.At <= s.Return && s.Call <= cut.Back })
}

// at reports whether the lease that a call ends was one of the queue in which the message was
// enqueued.
func (m *message) at(e *End) bool {
	return slices.ContainsFunc(m.hands, func(h hand) bool { return h.Fence == e.Fence && h.lease.Queue == m.enqueue.Queue })
}

// ackedBy returns an ack in the message's own queue that was honoured and answered before an ask; nil:
// there is none, or a power cut may have undone it.
func (c *check) ackedBy(m *message, a *Ask) *End {
	for _, e := range m.ends {
		if e.Kind == Ack && e.Outcome == Done && e.Return <= a.Call && m.at(e) && !c.forgotten(e.Return, a.Return) {
			return e
		}
	}
	return nil
}

// resultDone verifies the answer that a message is done: one of its acks, with this value, was sent,
// none with another one was honoured, and the message is not delivered again.
func (c *check) resultDone(m *message, a *Ask) {
	sent := false
	for _, e := range m.ends {
		if e.Kind != Ack || !m.at(e) {
			continue
		}
		same := e.Valued && e.Fence == a.By || !e.Valued && a.By == 0
		sent = sent || same && e.Outcome != Refused && e.Call <= a.Return
		if e.Outcome == Done && !same && !c.forgotten(e.Return, a.Return) && e.Return <= a.Call {
			c.breach(Result, "%s was acked as %d, and its result at %v was that of %d", m.id, e.Fence, a.Return, a.By)
		}
	}
	if !sent {
		c.breach(Result, "the result of %s at %v was done, with the value of %d, which no client had sent", m.id, a.Return, a.By)
	}
	for i := range m.hands {
		if h := &m.hands[i]; h.lease.Call > a.Return && !c.forgotten(a.Return, h.lease.Return) {
			c.breach(Again, "the result of %s was done at %v, and it was delivered again as %d, answered at %v", m.id, a.Return, h.Fence, h.lease.Return)
		}
	}
}

// resultDead verifies the answer that a message is dead.
func (c *check) resultDead(m *message, a *Ask) {
	e := m.enqueue
	reason := e.TTL > 0 && a.Return+c.rules.Skew >= c.began(m)+e.TTL ||
		slices.ContainsFunc(m.ends, func(e *End) bool { return e.Kind == Nack && e.Outcome != Refused && e.Call <= a.Return })
	if !reason {
		c.breach(Result, "the result of %s at %v was dead, without a reason", m.id, a.Return)
	}
	if by := c.ackedBy(m, a); by != nil {
		c.breach(Result, "%s was acked as %d at %v, and its result at %v was dead", m.id, by.Fence, by.Return, a.Return)
	}
	for i := range m.hands {
		if h := &m.hands[i]; h.lease.Queue == e.Queue && h.lease.Call > a.Return && !c.forgotten(a.Return, h.lease.Return) {
			c.breach(Result, "the result of %s was dead at %v, and it was delivered from %s at %v", m.id, a.Return, e.Queue, h.lease.Return)
		}
	}
}

// resultPending verifies the answer that a message has not ended. One that was ended while the client
// waited must have been answered.
func (c *check) resultPending(m *message, a *Ask) {
	if by := c.ackedBy(m, a); by != nil {
		c.breach(Result, "%s was acked as %d at %v, and its result at %v was pending", m.id, by.Fence, by.Return, a.Return)
		return
	}
	for i := range m.hands {
		if h := &m.hands[i]; h.lease.Queue != m.enqueue.Queue && h.lease.Return <= a.Call && !c.forgotten(h.lease.Return, a.Return) {
			c.breach(Result, "%s was dead at %v, and its result at %v was pending", m.id, h.lease.Return, a.Return)
			return
		}
	}
	if a.Block == 0 || a.Return-a.Call < a.Block || c.crashed(a.Span) {
		return // it did not wait, or a broker that stops has ended the wait
	}
	for _, e := range m.ends {
		if e.Kind == Ack && e.Outcome == Done && m.at(e) && e.Return+c.rules.Skew <= a.Call+a.Block && !c.forgotten(e.Return, a.Return) {
			c.breach(Answered, "%s was acked as %d at %v, and a client that waited from %v until %v was told that it is pending", m.id, e.Fence, e.Return, a.Call, a.Return)
			return
		}
	}
}

// resultUnknown verifies the answer that a message is not known.
func (c *check) resultUnknown(m *message, a *Ask) {
	stored := m.enqueue.Return
	if m.enqueue.Outcome == Unknown {
		stored = m.enqueue.Call // its call ends after the cut that has lost it
	}
	if c.forgotten(stored, a.Return) {
		return
	}
	for _, e := range m.ends { // without a value, or of a dead message
		if e.Kind == Ack && e.Outcome != Refused && e.Call <= a.Return && (!e.Valued || !m.at(e)) {
			return
		}
	}
	c.breach(Result, "the result of %s at %v was not known", m.id, a.Return)
}

// resultBefore compares an answer with those that were answered before it was asked for.
func (c *check) resultBefore(m *message, before []*Ask, a *Ask) {
	for _, b := range before {
		if b.Outcome != Done || b.Return > a.Call || c.forgotten(b.Return, a.Return) {
			continue
		}
		wrong := false
		switch b.Status {
		case IsDone:
			wrong = b.By > 0 && (a.Status != IsDone || a.By != b.By) || a.Status == IsPending || a.Status == IsDead
		case IsDead:
			wrong = a.Status == IsPending || a.Status == IsDone
		case "":
			wrong = a.Status != ""
		}
		if wrong {
			c.breach(Result, "the result of %s was %q by %d at %v, and %q by %d at %v", m.id, b.Status, b.By, b.Return, a.Status, a.By, a.Return)
			return
		}
	}
}
