package history

import (
	"cmp"
	"slices"
	"time"
)

const never = time.Duration(1) << 62

// turn is a message of an ordered queue.
type turn struct {
	*message
	first, last *hand         // deliveries from the queue itself, by their time; nil: none
	gone        time.Duration // when it may have left the queue, at the earliest
}

// serial verifies the deliveries of ordered queues. When a message is delivered, every older one of
// its key must have left the queue, and none of them is delivered from it afterwards.
func (c *check) serial() {
	lines := map[line][]turn{}
	for _, m := range c.messages {
		if !c.rules.Ordered[m.enqueue.Queue] || m.id == "" {
			continue
		}
		t := c.turn(m)
		if m.enqueue.Outcome != Done && len(m.hands) == 0 {
			continue // it may not have been stored
		}
		l := line{queue: m.enqueue.Queue, key: m.enqueue.Key}
		lines[l] = append(lines[l], t)
	}
	for l, all := range lines {
		slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.id, b.id) })
		c.serialOf(l, all)
	}
}

// turn collects what is known of a message, and counts its deliveries.
func (c *check) turn(m *message) turn {
	t := turn{message: m, gone: never}
	if e := m.enqueue; e.TTL > 0 {
		t.gone = c.began(m) + e.TTL
	}
	acked := map[uint64]bool{}
	for _, e := range m.ends {
		if e.Outcome != Refused && (e.Kind == Ack || e.Kind == Nack && e.Dead) {
			t.gone = min(t.gone, e.Call)
		}
		if e.Kind == Ack && e.Outcome == Done {
			acked[e.Fence] = true
		}
	}
	for i := range m.hands {
		h := &m.hands[i]
		if h.lease.Queue != m.enqueue.Queue {
			continue
		}
		c.verdict.Ordered++
		if !acked[h.Fence] {
			c.verdict.Failed++
		}
		if t.first == nil || h.granted() < t.first.granted() {
			t.first = h
		}
		if t.last == nil || h.granted() > t.last.granted() {
			t.last = h
		}
	}
	for _, cut := range c.Crashes { // it may have taken the message, unless that was delivered afterwards
		if c.forgets(&cut, m.enqueue.Return) && !slices.ContainsFunc(m.hands, func(h hand) bool { return h.lease.Call >= cut.Back }) {
			t.gone = min(t.gone, cut.At)
		}
	}
	return t
}

// serialOf verifies one key. all are in the order of their ids.
func (c *check) serialOf(l line, all []turn) {
	var stays, late *turn // of the older ones: the one that left last, and the one delivered last
	for i := range all {
		t := &all[i]
		if t.first != nil && stays != nil {
			if at := min(t.first.lease.Return, t.first.granted()+c.rules.Skew); stays.gone > at {
				c.breach(Serial, "%s of %s/%s was delivered at %v, and %s, which comes first, was in the queue", t.id, l.queue, l.key, t.first.granted(), stays.id)
			}
		}
		if t.first != nil && late != nil && c.after(late.last, t.first) && !c.lazyCut(t.first.granted(), late.last.lease.Return) {
			c.breach(Serial, "%s of %s/%s was delivered at %v, and the older %s after it, at %v", t.id, l.queue, l.key, t.first.granted(), late.id, late.last.granted())
		}
		if stays == nil || t.gone > stays.gone {
			stays = t
		}
		if t.last != nil && (late == nil || t.last.granted() > late.last.granted()) {
			late = t
		}
	}
}

// after reports whether a delivery was surely made after another one.
func (c *check) after(h, before *hand) bool {
	return h.granted() > before.granted()+c.rules.Skew || h.lease.Call >= before.lease.Return
}

// lazyCut reports whether a power cut between two times may have undone the end of a message that
// was answered.
func (c *check) lazyCut(from, to time.Duration) bool {
	return c.rules.Sync != SyncAlways && slices.ContainsFunc(c.Crashes, func(cut Crash) bool { return cut.Power && cut.Back >= from && cut.At <= to })
}
