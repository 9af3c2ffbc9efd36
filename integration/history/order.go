package history

import (
	"cmp"
	"slices"
	"time"
)

// line is a scope of ordering: one priority of one fairness key between two crashes, since a crash
// may lose the fact that a message was delivered.
type line struct {
	queue, key string
	priority   int
	era        int
}

// first is the first known delivery of a message.
type first struct {
	id           string // ids are in the order of enqueue
	call, answer time.Duration
}

// order finds messages whose first delivery came after that of a younger message of the same key.
// The broker marks first deliveries itself: a message may have been delivered before in a reply
// that was lost.
func (c *check) order() {
	lines := map[line][]first{}
	for _, m := range c.messages {
		if len(m.hands) == 0 || m.enqueue.Delay > 0 || c.rules.Unordered[m.enqueue.Queue] {
			continue
		}
		h := &m.hands[0]
		era := c.era(h.lease.Return)
		if h.Deliveries != 1 || h.lease.Queue != m.enqueue.Queue || c.era(h.lease.Call) != era {
			continue
		}
		if c.rules.Nodes && era%2 == 1 { // crashes do not overlap: this is within one
			continue
		}
		l := line{m.enqueue.Queue, m.enqueue.Key, m.enqueue.Priority, era}
		lines[l] = append(lines[l], first{m.id, h.lease.Call, h.lease.Return})
	}
	for l, all := range lines {
		c.orderOf(l, all)
	}
	c.orderInside()
}

// era returns the number of crashes that were over before a time.
func (c *check) era(t time.Duration) int {
	began, _ := slices.BinarySearchFunc(c.Crashes, t, func(cut Crash, t time.Duration) int { return cmp.Compare(cut.At, t) })
	ended, _ := slices.BinarySearchFunc(c.Crashes, t, func(cut Crash, t time.Duration) int { return cmp.Compare(cut.Back, t) })
	return began + ended
}

func (c *check) orderOf(l line, all []first) {
	byCall := slices.Clone(all)
	slices.SortFunc(byCall, func(a, b first) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(all, func(a, b first) int { return cmp.Compare(a.answer, b.answer) })
	var newest first // of those answered before the current call
	for _, f := range byCall {
		for len(all) > 0 && all[0].answer < f.call {
			if all[0].id > newest.id {
				newest = all[0]
			}
			all = all[1:]
		}
		if f.id < newest.id {
			c.breach(Order, "%s of %s/%s was answered at %v, before the older %s, leased by the call at %v", newest.id, l.queue, l.key, newest.answer, f.id, f.call)
		}
	}
}

// orderInside checks the order within each reply.
func (c *check) orderInside() {
	for i := range c.Leases {
		newest := map[line]string{}
		for _, d := range c.Leases[i].Got {
			m := c.byTag[d.Tag]
			if m == nil || d.Deliveries != 1 || m.enqueue.Delay > 0 || c.Leases[i].Queue != m.enqueue.Queue {
				continue
			}
			l := line{m.enqueue.Queue, m.enqueue.Key, m.enqueue.Priority, 0}
			if d.ID < newest[l] {
				c.breach(Order, "%s of %s/%s is behind the younger %s in one reply", d.ID, l.queue, l.key, newest[l])
			}
			newest[l] = max(newest[l], d.ID)
		}
	}
}
