package history

import (
	"strings"
	"time"
)

// half finds publishes that were executed in part. In the end every message that a queue has got
// was delivered, so one that was not delivered is not there.
func (c *check) half() {
	sent := c.attempts()
	for _, copies := range c.publishes {
		first := copies[0]
		if first.Outcome == Done {
			c.verdict.Published++
		}
		for _, e := range copies {
			if e.Outcome == Done {
				c.verdict.Copies++
			}
		}
		if s, named := sent[first.Dedup]; named && s.Return-s.Call+c.rules.Skew > c.rules.DedupWindow {
			continue // each queue may have forgotten the id at another moment
		}
		c.halfOf(copies)
	}
}

// attempts returns for each deduplication id of publishes the time from the first of them to the
// end of the last one.
func (c *check) attempts() map[string]Span {
	sent := map[string]Span{}
	for i := range c.Enqueues {
		e := &c.Enqueues[i]
		if e.Publish == "" || e.Dedup == "" {
			continue
		}
		s, known := sent[e.Dedup]
		if !known {
			s.Call = e.Call
		}
		s.Return = max(s.Return, e.Return)
		sent[e.Dedup] = s
	}
	return sent
}

// halfOf verifies one publish. If it has a deduplication id, all queues must have stored the message
// of the same attempt: of this one, or of an earlier one that was not answered.
func (c *check) halfOf(copies []*Enqueue) {
	var had, lacks *Enqueue
	var seen time.Duration
	for _, e := range copies {
		switch m := c.byTag[e.Tag]; {
		case e.Optional || e.Outcome == Refused:
		case m.storedBy(e):
			had, seen = e, m.hands[0].lease.Return
		default:
			lacks = e
		}
	}
	if had != nil && lacks != nil && !c.forgotten(seen, c.end()) {
		c.breach(Half, "%s, published at %v, was delivered from %s, and %s never had it", had.Publish, had.Call, had.Queue, lacks.Queue)
	}
}

// storedBy reports whether a message was stored by the publish of an enqueue.
func (m *message) storedBy(e *Enqueue) bool {
	return m != nil && len(m.hands) > 0 && strings.HasPrefix(m.hands[0].Tag, e.Publish+"@")
}
