package engine

import (
	"math"
	"slices"
	"time"
)

// The records of a schedSim: which messages are ready, which throttles have leases in use, and
// how many tokens buckets hold, derived from the engine's answers alone. An event is recorded
// in the turn in which the engine applies it.

// tokenLate is how much later than recorded a token may appear. The engine's clock has whole
// nanoseconds, and both sides round.
const tokenLate = 1000

// inBucket is the number of tokens at a time after the last change.
func (t *schedThrottle) inBucket(at int64) float64 {
	return min(t.burst, t.tokens+float64(max(at-t.at, 0))*t.rate/1e9)
}

// rounding is the part of a token by which sums of tokens may be off.
const rounding = 1e-6

// room is the number of messages that the throttle certainly admits.
func (t *schedThrottle) room(now int64) int {
	n := math.MaxInt32
	if t.isHeld() {
		return 0
	}
	if t.rate > 0 {
		n = int(math.Floor(t.inBucket(now-tokenLate) + rounding/1000))
	}
	if t.conc > 0 {
		n = min(n, t.slots()-t.held)
	}
	return max(n, 0)
}

// need is how many tokens a message takes.
func (t *schedThrottle) need(m *schedMessage) int {
	if t.byCost {
		return int(m.cost)
	}
	return 1
}

// required is how many tokens the bucket must hold for a message. A full bucket admits any.
func (t *schedThrottle) required(m *schedMessage) float64 { return min(float64(t.need(m)), t.burst) }

// admits reports whether the throttle certainly admits a message.
func (t *schedThrottle) admits(m *schedMessage) bool {
	s := t.sim
	return !t.isHeld() && (t.conc == 0 || t.held < t.slots()) && t.holds(t.required(m), s.now)
}

// holds reports whether the bucket certainly holds so many tokens.
func (t *schedThrottle) holds(tokens float64, now int64) bool {
	return t.rate == 0 || t.inBucket(now-tokenLate)+rounding/1000 >= tokens
}

// heldAt is the next time at which the bucket certainly holds so many tokens.
func (t *schedThrottle) heldAt(tokens float64) int64 {
	return max(t.at+int64(math.Ceil((tokens-t.tokens)*1e9/t.rate))+tokenLate, t.sim.now+1)
}

// nextToken is the next time at which a message is certainly admitted that is not admitted now.
// If a message waits for it, the engine must have a timer for it, which the simulation
// verifies.
func (s *schedSim) nextToken() int64 {
	at := int64(math.MaxInt64)
	byCost := false
	for _, t := range s.throttles {
		if t.isHeld() {
			at = min(at, t.heldUntil)
		}
		byCost = byCost || t.byCost
		if t.rate > 0 && !t.byCost && !t.holds(1, s.now) {
			at = min(at, t.heldAt(1))
		}
	}
	if byCost {
		s.heads(func(m *schedMessage) bool {
			for _, t := range m.class.throttles {
				if tokens := t.required(m); t.rate > 0 && t.byCost && !t.holds(tokens, s.now) {
					at = min(at, t.heldAt(tokens))
				}
			}
			return true
		})
	}
	return at
}

// account adds the use and the loss since the last event.
func (s *schedSim) account(at int64) {
	d := float64(at-s.now) / 1e9
	for _, t := range s.throttles {
		switch {
		case t.rate == 0:
			t.used += d * float64(min(t.held, t.slots()))
			t.lost += d * float64(t.idle)
		case t.idle > 0: // tokens beyond the capacity of the bucket are lost
			t.lost += max(t.inBucket(s.now)+d*t.rate-t.burst, 0)
		}
		if t.idle > 0 {
			t.idleMost = max(t.idleMost, at-t.idleAt)
		}
	}
}

// use is the fraction of a throttle's capacity that was used, of what messages could have used.
func (t *schedThrottle) use() float64 {
	used := t.used
	if t.rate > 0 {
		used = float64(t.passed)
	}
	if used+t.lost == 0 {
		return 1
	}
	return used / (used + t.lost)
}

// amount is the capacity that was available: slots x seconds, or tokens.
func (t *schedThrottle) amount() float64 {
	if t.rate > 0 {
		return float64(t.passed) + t.lost
	}
	return t.used + t.lost
}

func (s *schedSim) timeFor(m *schedMessage, at int64) {
	m.at = at
	s.timed.Push(&schedEvent{at: at, order: m.seq, m: m, state: m.state})
}

// promote records the changes that time alone makes: delayed messages become ready, and leases
// expire.
func (s *schedSim) promote() {
	for {
		e, ok := s.timed.First()
		if !ok || e.at > s.now {
			return
		}
		s.timed.Remove(e)
		m := e.m
		if m.state != e.state || m.at != e.at {
			continue
		}
		if m.state == schedLeased {
			s.failedWork(m)
			s.unhold(m)
		}
		s.ready(m)
	}
}

func (s *schedSim) ready(m *schedMessage) {
	k := m.key
	m.state, m.since = schedReady, s.now
	k.gather.gets(m)
	i, _ := slices.BinarySearchFunc(k.ready, m, (*schedMessage).before)
	k.ready = slices.Insert(k.ready, i, m)
}

// unready removes a message from the ready ones of its key, for a lease or not.
func (s *schedSim) unready(m *schedMessage, leased bool) {
	k := m.key
	if i := slices.Index(k.ready, m); i >= 0 {
		k.ready = slices.Delete(k.ready, i, i+1)
	}
	k.gather.loses(k, leased)
	if len(k.ready) == 0 || !k.full() {
		k.dropSpans()
	}
}

func (k *schedKey) dropSpans() {
	if k.class == nil {
		return
	}
	for pair := range k.class.spans {
		if pair[0] == k || pair[1] == k {
			delete(k.class.spans, pair)
		}
	}
}

func (s *schedSim) unhold(m *schedMessage) {
	for _, t := range m.class.throttles {
		t.held--
	}
	for _, b := range m.budgets {
		b.reserved -= m.charge
	}
}

func (s *schedSim) enqueued(m *schedMessage, delay time.Duration) {
	s.seq++
	m.seq, m.sent = s.seq, s.now
	m.class.costMax = max(m.class.costMax, float64(m.cost))
	s.messages[m.id] = m
	if delay > 0 {
		m.state = schedDelayed
		s.timeFor(m, s.now+int64(delay))
		return
	}
	s.ready(m)
}

// over records the end of a lease by a receipt, which work tells to the throttles of the message.
// was reports whether the engine accepted the receipt.
func (s *schedSim) over(m *schedMessage, r Receipt, was bool, work func(m *schedMessage)) {
	s.promote()
	if is := m.state == schedLeased && m.receipt == r; is != was {
		s.fault("the engine takes a receipt %v, by the books %v", was, is)
	} else if is {
		work(m)
		s.unhold(m)
	}
}

func (s *schedSim) gone(m *schedMessage) {
	m.state = schedGone
	delete(s.messages, m.id)
}

func (s *schedSim) comesBack(m *schedMessage, delay time.Duration) {
	if delay > 0 {
		m.state = schedDelayed
		s.timeFor(m, s.now+int64(delay))
		return
	}
	s.ready(m)
}

// cancel removes a message.
func (s *schedSim) cancel(m *schedMessage) {
	req := &Cancel{Queue: m.key.queue.name, IDs: []ID{m.id}}
	s.call(func(tx *Tx) error {
		n, err := tx.Cancel(req)
		if err == nil && n == 1 {
			s.removed(m)
		}
		return err
	})
	m.key.refill()
}

// purge removes all messages of a queue.
func (q *schedQueue) purge() {
	s := q.sim
	s.call(func(tx *Tx) error {
		_, err := tx.Purge(&Purge{Queue: q.name})
		for _, m := range s.messages {
			if m.key.queue == q {
				s.removed(m)
			}
		}
		return err
	})
	for _, k := range q.keys {
		k.refill()
	}
}

// removed records the end of a message of any status.
func (s *schedSim) removed(m *schedMessage) {
	s.promote()
	switch m.state {
	case schedReady:
		s.unready(m, false)
	case schedLeased:
		s.unhold(m)
	case schedDelayed, schedGone:
	}
	s.gone(m)
}

// reschedule changes the due time of a ready or delayed message.
func (s *schedSim) reschedule(m *schedMessage, delay time.Duration) {
	req := &Reschedule{Queue: m.key.queue.name, ID: m.id, Delay: delay}
	s.call(func(tx *Tx) error {
		_, err := tx.Reschedule(req)
		switch {
		case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
			return err
		case err != nil:
			return nil //nolint:nilerr // delivered in the meantime
		}
		s.promote()
		if m.state == schedReady {
			s.unready(m, false)
		}
		m.state = schedGone // until its new due time
		s.comesBack(m, delay)
		return nil
	})
}

// delivered records a delivery and checks it against the records.
func (s *schedSim) delivered(w *schedWorker, d *Delivery) {
	s.promote()
	m := s.messages[d.Receipt.ID]
	if m == nil || m.state != schedReady {
		s.fault("message %s is delivered and is not ready", d.Receipt.ID)
		return
	}
	k, c := m.key, m.class
	for _, o := range k.ready[:slices.Index(k.ready, m)] {
		if o.since < s.now {
			s.fault("key %s of %s: a message goes out before the first one", k.name, k.queue.name)
		}
	}
	if k.queue.paused || k.paused {
		s.fault("key %s of %s is paused, and a message goes out", k.name, k.queue.name)
	}
	if !w.same {
		k.mayGo()
	}
	m.tries++
	if !w.parked {
		for _, q := range w.queues {
			q.waiting++
		}
	}
	s.credit(m)
	if !w.parked {
		for _, q := range w.queues {
			q.waiting--
		}
	}
	s.unready(m, true)
	m.took = m.took[:0]
	for _, t := range c.throttles {
		t.take(m)
	}
	m.reserve()
	s.spans(m)
	s.moment++
	m.began = s.moment
	m.state, m.receipt = schedLeased, d.Receipt
	s.timeFor(m, d.LeaseUntil.UnixNano())
	w.got = append(w.got, m)
	k.got++
	k.cost += int64(m.cost)
	c.got++
	c.cost += int64(m.cost)
	k.queue.got++
	s.deliveries++
	if s.onDeliver != nil {
		s.onDeliver(m)
	}
}

// batch is called before the deliveries of a lease of one key. What the messages behind the first cost is how far the
// key has gone ahead.
func (s *schedSim) batch(w *schedWorker, ds []*Delivery) {
	s.promote()
	if len(ds) > 0 && s.messages[ds[0].Receipt.ID] != nil {
		s.messages[ds[0].Receipt.ID].key.mayGo()
	}
	ahead := 0.0
	for i, d := range ds {
		m := s.messages[d.Receipt.ID]
		if d.Queue != ds[0].Queue || d.Key != ds[0].Key || len(ds) > w.count {
			s.fault("a lease of %d messages of one key has message %d of %d of key %s of %s, the first is of key %s", w.count, i+1, len(ds), d.Key, d.Queue, ds[0].Key)
		}
		if m != nil && i > 0 {
			ahead += float64(m.cost)
		}
	}
	if ahead > 0 {
		if c := s.messages[ds[0].Receipt.ID].key.class; c != nil {
			c.ahead = max(c.ahead, ahead)
		}
	}
}

// batchEnds is called after them: what follows may have been delivered with them, unless something has kept it back.
func (s *schedSim) batchEnds(w *schedWorker, ds []*Delivery) {
	if len(ds) == 0 || len(ds) == w.count {
		return
	}
	k := s.messages[ds[0].Receipt.ID].key
	if len(k.ready) == 0 || k.paused || k.queue.paused {
		return
	}
	if m := k.ready[0]; k.class != nil && len(m.budgets) == 0 && m.canGo() && !slices.ContainsFunc(m.class.throttles, func(t *schedThrottle) bool { return t.shared }) {
		s.cut++
	}
}

// take records the use of a slot and a token, which must be available. A token may be reserved
// for a message with several throttles while the bucket refills, so a throttle with such
// messages may be one token ahead of the record.
func (t *schedThrottle) take(m *schedMessage) {
	s := t.sim
	if t.isHeld() {
		s.fault("throttle %s is held for another %v, and a message goes out", t.name, time.Duration(t.heldUntil-s.now))
	}
	if t.conc > 0 && t.held >= t.slots() {
		s.fault("throttle %s allows %d leases, and one more goes out", t.name, t.slots())
	}
	t.held++
	t.passed += t.need(m)
	if t.rate > 0 {
		least := t.required(m)
		if t.shared {
			least -= tokensKept
		}
		t.tokens, t.at = t.inBucket(s.now), s.now
		if t.tokens < least-rounding {
			s.fault("throttle %s has %.6f tokens, and a message goes out", t.name, t.tokens)
		}
		t.tokens -= float64(t.need(m))
	}
	m.took = append(m.took, t.life)
	if len(m.class.throttles) > 1 {
		t.idleAt = s.now
	}
}

// credit adds to each class that could use a throttle of a message its fair part of that
// throttle: equal parts for the queues with a message to deliver and a waiting worker, and
// parts by weight and cost for the classes of one queue. A key that perhaps gathers takes part
// from those of others and gets none, so what is expected is the least.
func (s *schedSim) credit(m *schedMessage) {
	if len(m.class.throttles) == 0 {
		return
	}
	for _, q := range s.queues {
		q.weigh()
	}
	for _, t := range m.class.throttles {
		queues := 0
		for _, q := range s.queues {
			if q.mostAt(t) > 0 {
				queues++
			}
		}
		for _, q := range s.queues {
			sum := q.mostAt(t)
			if sum == 0 {
				continue
			}
			for _, c := range q.classes {
				if i := slices.Index(c.throttles, t); i >= 0 {
					c.expect[i] += float64(t.need(m)) * c.sure.at(t) / sum / float64(queues)
				}
			}
		}
	}
}

// weigh sums the weights of the keys of each class that could deliver if throttles had room, in
// messages rather than cost. It uses the cost of the next message of each key: an expensive
// message stays next for long, so over time each key counts with the costs of its messages.
func (q *schedQueue) weigh() {
	for _, c := range q.classes {
		c.sure, c.most = schedWeight{}, schedWeight{}
	}
	if q.paused || q.waiting == 0 {
		return
	}
	for _, k := range q.keys {
		if len(k.ready) == 0 || k.paused || !k.ready[0].covered() {
			continue
		}
		c := k.ready[0].class
		if k.full() {
			c.sure.add(k)
		}
		if k.gathers() <= 0 {
			c.most.add(k)
		}
	}
}

// schedWeight is the weight of keys at a throttle, in messages and in tokens by cost.
type schedWeight struct{ messages, tokens float64 }

func (w *schedWeight) add(k *schedKey) {
	w.messages += float64(k.weight) / float64(k.ready[0].cost)
	w.tokens += float64(k.weight)
}

// at is the weight at a throttle.
func (w *schedWeight) at(t *schedThrottle) float64 {
	if t.byCost {
		return w.tokens
	}
	return w.messages
}

// mostAt is the weight of the queue's classes that name a throttle, with the keys that perhaps gather.
func (q *schedQueue) mostAt(t *schedThrottle) float64 {
	sum := 0.0
	for _, c := range q.classes {
		if slices.Contains(c.throttles, t) {
			sum += c.most.at(t)
		}
	}
	return sum
}

// share is the fraction that a class got of its fair part, at the throttle that gave it the
// least.
func (c *schedClass) share() (part, expected float64) {
	expected = math.Inf(1)
	for i, e := range c.expect {
		if c.throttles[i].byCost { // as many messages as it may deliver with these tokens
			e *= float64(max(c.got, 1)) / float64(max(c.cost, 1))
		}
		expected = min(expected, e)
	}
	return float64(c.got) / expected, expected
}

// spans tracks, for each pair of keys of a class that both have messages, the difference of
// what they got per unit of weight. The range of that difference is bounded as in deficit round
// robin (Shreedhar and Varghese): in any interval in which both have messages, by quantum +
// Max/w + Max/w', where Max is the largest cost, and what the messages of a batch cost behind the first.
func (s *schedSim) spans(m *schedMessage) {
	k, c := m.key, m.class
	if k.class == nil {
		return
	}
	for _, o := range c.keys {
		if o == k || o.class == nil {
			continue
		}
		a, b, sign := k, o, 1.0
		if o.no < k.no {
			a, b, sign = o, k, -1
		}
		if len(o.ready) == 0 || len(k.ready) == 0 || o.paused || !o.full() || !k.full() {
			delete(c.spans, [2]*schedKey{a, b})
			continue
		}
		p := c.spans[[2]*schedKey{a, b}]
		if p == nil {
			p = &span{slack: s.slack + max(a.slack, b.slack)}
			c.spans[[2]*schedKey{a, b}] = p
		}
		p.now += sign * float64(m.cost) / float64(k.weight)
		p.least, p.most = min(p.least, p.now), max(p.most, p.now)
		most := c.costMax + c.ahead
		bound := s.quantum + most/float64(a.weight) + most/float64(b.weight) + p.slack
		s.widest = max(s.widest, (p.most-p.least)/bound)
		if p.most-p.least > bound+1e-9 {
			s.unfair(&s.apart, "by weight, keys %s (weight %d) and %s (weight %d) of %s have moved apart by %.2f, more than %.2f",
				a.name, a.weight, b.name, b.weight, c, p.most-p.least, bound)
		}
	}
}

// setWeight changes the weight of a key. A visit in progress keeps the credit of the old
// weight.
func (k *schedKey) setWeight(weight uint32) {
	s := k.queue.sim
	s.call(func(tx *Tx) error {
		k.dropSpans()
		k.heaviest = max(k.heaviest, k.weight)
		k.slack = s.quantum * max(float64(k.heaviest)/float64(weight), 1)
		k.weight = weight
		return tx.SetKey(k.queue.name, k.name, KeyOptions{Weight: &weight})
	})
}

// pause pauses or resumes a key. The rest of an interrupted visit may be added to the next one.
func (k *schedKey) pause(paused bool) {
	s := k.queue.sim
	s.call(func(tx *Tx) error {
		k.dropSpans()
		k.slack = max(k.slack, s.quantum)
		k.paused = paused
		return tx.PauseKey(k.queue.name, k.name, paused)
	})
}
