package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// message is what clients know about one message.
type message struct {
	id       string
	enqueue  *Enqueue
	answers  []*Enqueue // Enqueues answered with this id: more than one if it has a dedup name
	hands    []hand     // in order of delivery number
	ends     []*End     // in order of call time
	asks     []*Ask     // in order of call time
	tampered bool       // its history contradicts itself; reported once
}

// hand is a delivery and the lease call that returned it.
type hand struct {
	*Delivery
	lease *Lease
}

// granted returns when the lease began by the broker's clock.
func (h *hand) granted() time.Duration { return h.Until - h.lease.Visibility }

// check is the state of one call of Check.
type check struct {
	*History
	rules    Rules
	verdict  Verdict
	byTag    map[string]*message
	byID     map[string]*message
	messages []*message // in order of their enqueues
	enqueued map[string]*Enqueue
	// publishes are the copies of each publish.
	publishes map[string][]*Enqueue
}

// Check verifies a history against the contract.
func Check(h *History, r Rules) *Verdict {
	c := &check{
		History: h, rules: r, byTag: map[string]*message{}, byID: map[string]*message{}, enqueued: map[string]*Enqueue{},
		publishes: map[string][]*Enqueue{},
	}
	c.index()
	c.lost()
	if h.Left != 0 {
		c.breach(Stuck, "the broker holds %d messages that clients cannot lease", h.Left)
	}
	for _, m := range c.messages {
		c.again(m)
		c.held(m)
		c.fenced(m)
		c.early(m)
		c.lives(m)
		c.torn(m)
		c.results(m)
	}
	c.order()
	c.serial()
	c.half()
	c.dedup()
	return &c.verdict
}

func (c *check) breach(r Rule, format string, args ...any) {
	c.verdict.breach(r, fmt.Sprintf(format, args...))
}

// index groups the calls by message.
func (c *check) index() {
	slices.SortStableFunc(c.Enqueues, func(a, b Enqueue) int { return cmp.Compare(a.Call, b.Call) })
	for i := range c.Enqueues {
		e := &c.Enqueues[i]
		c.enqueued[e.Tag] = e
		if e.Publish != "" {
			c.publishes[e.Publish] = append(c.publishes[e.Publish], e)
		}
		if e.Outcome == Done && e.ID == "" {
			e.Outcome = Refused
			c.breach(Half, "%s was published and answered without %s", e.Tag, e.Queue)
		}
		if first := c.byID[e.ID]; first.sameName(e) && e.Outcome == Done {
			first.answers = append(first.answers, e)
			c.byTag[e.Tag] = first
			c.verdict.Deduplicated++
			continue
		}
		m := &message{enqueue: e}
		c.byTag[e.Tag] = m
		c.messages = append(c.messages, m)
		switch e.Outcome {
		case Done:
			c.verdict.Enqueued++
			m.id, m.answers = e.ID, []*Enqueue{e}
			if o := c.byID[e.ID]; o != nil {
				c.breach(Corrupt, "%s and %s have the same id %s", o.enqueue.Tag, e.Tag, e.ID)
			}
			c.byID[e.ID] = m
		case Unknown:
			c.verdict.Unanswered++
		case Refused:
		}
	}
	for i := range c.Leases {
		for j := range c.Leases[i].Got {
			c.indexHand(hand{&c.Leases[i].Got[j], &c.Leases[i]})
		}
	}
	slices.SortStableFunc(c.Ends, func(a, b End) int { return cmp.Compare(a.Call, b.Call) })
	for i := range c.Ends {
		e := &c.Ends[i]
		if m := c.byID[e.ID]; m != nil {
			m.ends = append(m.ends, e)
		}
		if e.Outcome == Done {
			c.verdict.Ended++
			if e.Kind == Ack {
				c.verdict.Acked++
			}
		}
	}
	c.indexAsks()
	for _, m := range c.messages {
		slices.SortStableFunc(m.hands, func(a, b hand) int { return cmp.Compare(a.Fence, b.Fence) })
		for i := 1; i < len(m.hands); i++ {
			if m.hands[i].Fence == m.hands[i-1].Fence {
				c.breach(Receipts, "%s:%d was delivered at %v and at %v", m.id, m.hands[i].Fence, m.hands[i-1].lease.Return, m.hands[i].lease.Return)
			}
		}
	}
}

func (c *check) indexHand(h hand) {
	c.verdict.Deliveries++
	m := c.byTag[h.Tag]
	if m == nil {
		c.breach(Corrupt, "%q was delivered as %s, but no client has enqueued it", h.Tag, h.ID)
		return
	}
	if m.enqueue.Outcome == Refused {
		c.breach(Corrupt, "%s was delivered as %s although its enqueue was refused", h.Tag, h.ID)
	}
	if first := c.byID[h.ID]; m.id == "" && first.sameName(m.enqueue) {
		m = first // the reply of its own enqueue was lost, but another enqueue of the name was answered
		c.byTag[h.Tag] = m
	}
	if m.id == "" {
		m.id = h.ID
		c.byID[h.ID] = m
	}
	if m.id != h.ID {
		if !m.tampered {
			m.tampered = true
			c.breach(Corrupt, "%s was enqueued once and has the ids %s and %s", h.Tag, m.id, h.ID)
		}
		return
	}
	if len(m.hands) > 0 && m.hands[0].Tag != h.Tag {
		c.breach(Corrupt, "%s was delivered with the payloads of %s and of %s", m.id, m.hands[0].Tag, h.Tag)
	}
	if h.Key != m.enqueue.Key {
		c.breach(Corrupt, "%s was enqueued with key %q and delivered with %q", h.Tag, m.enqueue.Key, h.Key)
	}
	m.hands = append(m.hands, h)
}

// sameName reports whether the message may be the one that an enqueue with a dedup name was taken
// for.
func (m *message) sameName(e *Enqueue) bool {
	return m != nil && e.Dedup != "" && e.Dedup == m.enqueue.Dedup && e.Queue == m.enqueue.Queue
}

// forgets reports whether a power cut may have lost a write answered at the given time.
func (c *check) forgets(cut *Crash, answered time.Duration) bool {
	if !cut.Power || answered > cut.Back {
		return false
	}
	switch c.rules.Sync {
	case SyncInterval:
		return answered > cut.At-c.rules.Interval-c.rules.Late
	case SyncNever:
		return true
	case SyncAlways:
	}
	return false
}

// forgotten reports whether a write answered at one time may be lost at a later time.
func (c *check) forgotten(answered, later time.Duration) bool {
	return slices.ContainsFunc(c.Crashes, func(cut Crash) bool { return cut.At <= later && c.forgets(&cut, answered) })
}

// lost finds acknowledged messages that were neither acked nor delivered again.
func (c *check) lost() {
	end := c.end()
	for _, m := range c.messages {
		if m.enqueue.Outcome != Done || slices.ContainsFunc(m.ends, func(e *End) bool { return e.Kind == Ack && e.Outcome != Refused }) {
			continue
		}
		// A message that was delivered but not acked must be delivered again until it is acked.
		if !c.forgotten(m.enqueue.Return, end) {
			c.breach(Lost, "%s, acknowledged at %v as %s, was delivered %d times and never acked", m.enqueue.Tag, m.enqueue.Return, m.id, len(m.hands))
			continue
		}
		c.verdict.Excused++
		if len(m.hands) == 0 {
			c.holes(m)
		}
	}
}

// end returns the time of the last event.
func (c *check) end() time.Duration {
	var end time.Duration
	for i := range c.Leases {
		end = max(end, c.Leases[i].Return)
	}
	for _, cut := range c.Crashes {
		end = max(end, cut.Back)
	}
	return end
}

// holes finds a message that was enqueued after one that a power cut took, and that survived the
// cut: the log would have lost its middle and kept its end.
func (c *check) holes(gone *message) {
	i := slices.IndexFunc(c.Crashes, func(cut Crash) bool { return cut.Power && cut.Back > gone.enqueue.Return })
	if i < 0 {
		return
	}
	cut := c.Crashes[i]
	from, _ := slices.BinarySearchFunc(c.messages, gone.enqueue.Return, func(m *message, t time.Duration) int { return cmp.Compare(m.enqueue.Call, t) })
	for _, m := range c.messages[from:] {
		if m.enqueue.Call >= cut.At {
			return
		}
		if m.enqueue.Call <= gone.enqueue.Return {
			continue
		}
		if slices.ContainsFunc(m.hands, func(h hand) bool { return h.lease.Call >= cut.Back }) {
			c.breach(Hole, "the power cut at %v took %s, answered at %v, and left %s, sent at %v", cut.At, gone.enqueue.Tag, gone.enqueue.Return, m.enqueue.Tag, m.enqueue.Call)
			return
		}
	}
}

// again finds deliveries after an honoured ack. Only deliveries with a greater number were granted
// after it.
func (c *check) again(m *message) {
	for _, e := range m.ends {
		if e.Kind != Ack || e.Outcome != Done {
			continue
		}
		for i := range m.hands {
			if h := &m.hands[i]; h.Fence > e.Fence && !c.forgotten(e.Return, h.lease.Return) {
				c.breach(Again, "%s was acked with number %d, answered at %v, and was delivered again with number %d, answered at %v", m.id, e.Fence, e.Return, h.Fence, h.lease.Return)
				return
			}
		}
	}
}

// held finds leases that began during another lease of the same message.
func (c *check) held(m *message) {
	for i := 1; i < len(m.hands); i++ {
		first, second := &m.hands[i-1], &m.hands[i]
		until := c.until(m, first, second)
		if second.granted()+c.rules.Skew >= until || c.givenUp(m, first, second) || c.leaseForgotten(first, second) {
			continue
		}
		c.breach(TwoHeld, "%s is leased as %d until %v and was leased again as %d at %v", m.id, first.Fence, until, second.Fence, second.granted())
	}
}

// until returns when a lease expires at the earliest, as the next one knows it: an extend that was sent
// before the next lease was answered may shorten it, even if its own reply came later.
func (c *check) until(m *message, h, next *hand) time.Duration {
	until := h.Until
	for _, e := range m.ends {
		switch {
		case e.Kind != Extend || e.Fence != h.Fence || e.Outcome != Done:
		case e.Return <= next.lease.Call:
			until = e.Until
		case e.Call <= next.lease.Return:
			until = min(until, e.Until)
		}
	}
	return until
}

// givenUp reports whether the holder may have ended a lease before the next one was answered: it
// sent a command to do so, whatever the reply.
func (c *check) givenUp(m *message, h, next *hand) bool {
	return slices.ContainsFunc(m.ends, func(e *End) bool {
		return e.Fence == h.Fence && e.Call <= next.lease.Return && (e.Kind != Extend || e.Outcome == Unknown)
	})
}

// leaseForgotten reports whether a crash between two leases may have lost the first. Its record is
// written once it is older than the lag, at the latest with the next write that was requested after
// that.
func (c *check) leaseForgotten(first, second *hand) bool {
	due := first.granted() + c.rules.LeaseLag + c.rules.Skew
	return slices.ContainsFunc(c.Crashes, func(cut Crash) bool {
		if cut.Kept || cut.Back < first.granted() || cut.At > second.lease.Return {
			return false
		}
		return cut.Power && c.rules.Sync != SyncAlways || !c.writtenBetween(due, cut.At)
	})
}

// writtenBetween reports whether a message was enqueued and acknowledged between two times.
func (c *check) writtenBetween(from, to time.Duration) bool {
	i, _ := slices.BinarySearchFunc(c.Enqueues, from, func(e Enqueue, t time.Duration) int { return cmp.Compare(e.Call, t) })
	for ; i < len(c.Enqueues) && c.Enqueues[i].Call < to; i++ {
		if e := &c.Enqueues[i]; e.Outcome == Done && e.Return < to {
			return true
		}
	}
	return false
}

// fenced finds receipts that were honoured after the end of their leases.
func (c *check) fenced(m *message) {
	for i, e := range m.ends {
		if e.Outcome != Done {
			continue
		}
		for j := range m.hands {
			h := &m.hands[j]
			switch {
			case h.Fence > e.Fence && h.lease.Return <= e.Call && !c.forgotten(h.lease.Return, e.Call):
				c.breach(Fenced, "%s %s:%d at %v was honoured although number %d was answered at %v", e.Kind, m.id, e.Fence, e.Call, h.Fence, h.lease.Return)
			case h.Fence == e.Fence && e.Call > c.untilLatest(m, h)+c.rules.Skew:
				c.breach(Fenced, "%s %s:%d at %v was honoured although its lease ended at %v", e.Kind, m.id, e.Fence, e.Call, c.untilLatest(m, h))
			}
		}
		for _, before := range m.ends[:i] {
			if before.Outcome == Done && before.Kind != Extend && before.Fence == e.Fence && before.Return <= e.Call && !c.forgotten(before.Return, e.Call) {
				c.breach(Fenced, "%s %s:%d at %v was honoured although its %s was answered at %v", e.Kind, m.id, e.Fence, e.Call, before.Kind, before.Return)
			}
		}
	}
}

// untilLatest returns the latest possible end of a lease: an unanswered extend may have been
// executed.
func (c *check) untilLatest(m *message, h *hand) time.Duration {
	until := h.Until
	for _, e := range m.ends {
		if e.Kind != Extend || e.Fence != h.Fence {
			continue
		}
		switch e.Outcome {
		case Unknown:
			return 1 << 62
		case Done:
			until = max(until, e.Until)
		case Refused:
		}
	}
	return until
}

// moved reports whether a message had a delivery number in a queue other than the later delivery's:
// it was dead-lettered in between.
func (m *message) moved(fence uint64, later *hand) bool {
	return slices.ContainsFunc(m.hands, func(h hand) bool { return h.Fence == fence && h.lease.Queue != later.lease.Queue })
}

// early finds deliveries before the requested or answered time.
func (c *check) early(m *message) {
	for i := range m.hands {
		h := &m.hands[i]
		at := h.granted() + c.rules.Skew
		if due := m.enqueue.Call + m.enqueue.Delay; m.enqueue.Delay > 0 && at < due {
			c.breach(Early, "%s was due at %v and delivered at %v", m.id, due, h.granted())
		}
		for _, e := range m.ends {
			if e.Kind == Nack && e.Outcome == Done && h.Fence > e.Fence && at < e.ReadyAt && !m.moved(e.Fence, h) && !c.forgotten(e.Return, h.lease.Return) {
				c.breach(Early, "%s was nacked until %v and delivered at %v", m.id, e.ReadyAt, h.granted())
			}
		}
	}
}
