package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/storage"
)

// Topics in the simulation. Queue a is always bound to topic t, and b by a condition that clients
// replace, end and set again. The copies of a message have one payload, "*/key/number"; the tag of
// each begins with its queue, as those of other messages do.
//
// The oracle checks that an answer names the queues that were bound in the turn, that answered
// bindings survive crashes, and that no crash leaves a half publish: of the copies of one whose
// answer is outstanding, the store has all or none.

// topicOracle judges topics.
type topicOracle struct {
	open map[string]*simPublish // without an answer, by payload
	// The binding of b: "" without one, or its pattern. It is that of the change that was applied last
	// of those that were answered, or that of one without an answer.
	bound   string
	applied int            // order of that change
	pending map[int]string // changes without an answer
	changes int            // that were sent
}

// simPublish is a publish without an answer.
type simPublish struct {
	queues []string // that the turn chose
	purges int      // answered before it
}

// tagOf returns the tag of a message by its payload and the queue that it is in.
func tagOf(queue string, payload []byte) string {
	if len(payload) > 0 && payload[0] == '*' {
		return queue[:1] + string(payload[1:])
	}
	return string(payload)
}

// setUpTopics binds both queues.
func (s *sim) setUpTopics() (err error) {
	s.oracle.topics = topicOracle{open: map[string]*simPublish{}, bound: "x", pending: map[int]string{}}
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
		_, first := tx.Bind("t", Binding{Queue: "a"})
		_, second := tx.Bind("t", Binding{Queue: "b", Conditions: []Condition{{Header: "to", Pattern: "x"}}})
		err = errors.Join(first, second)
		return nil
	})})
	return err
}

// boundTo returns the pattern with which b is bound, "" without a binding.
func boundTo(c *core) string {
	b, found := c.topics.Binding("t", "b")
	if !found {
		return ""
	}
	return b.Conditions[0].Pattern
}

// actTopic publishes a message, or changes the binding of b.
func (s *sim) actTopic(cl *simClient) {
	if s.rng.IntN(4) > 0 {
		s.publish(cl)
		return
	}
	o := &s.oracle.topics
	pattern := []string{"", "x", "[xy]"}[s.rng.IntN(3)]
	o.changes++
	no, order := o.changes, 0
	o.pending[no] = pattern
	s.submit(cl, func(tx *Tx) (err error) {
		order = s.decisions
		if pattern == "" {
			_, err = tx.Unbind("t", "b")
		} else {
			_, err = tx.Bind("t", Binding{Queue: "b", Conditions: []Condition{{Header: "to", Pattern: pattern}}})
		}
		return err
	}, func(err error) {
		if err != nil && !refusal(err) {
			s.oracle.fail("bind: %v", err)
		}
		if _, sent := o.pending[no]; err != nil || s.replaced || !sent {
			return // it may have happened, or a crash has come between
		}
		delete(o.pending, no)
		if order > o.applied {
			o.bound, o.applied = pattern, order
		}
	})
}

// simPublished is a publish as its client knows it.
type simPublished struct {
	req     *Publish
	payload string
	paid    simCharge
	list    []Published
	fresh   map[string]bool // queues that have stored it; the others knew its deduplication id or unique id
	asks    map[string]*uniqueAsk
	at      time.Time // of the turn
	known   *simPublish
}

// newPublish makes a message up, with any of the options of an enqueue.
func (s *sim) newPublish() *simPublished {
	key, to := fmt.Sprintf("k%d", s.rng.IntN(s.w.keys)), []string{"x", "y", "z"}[s.rng.IntN(3)]
	req := &Publish{Topic: "t", BestEffort: s.rng.IntN(4) == 0, Message: Enqueue{Key: key, Headers: []Header{{Name: []byte("to"), Value: []byte(to)}}}}
	m := &req.Message
	if s.rng.IntN(4) == 0 {
		m.Delay = time.Duration(1+s.rng.IntN(400)) * time.Millisecond
	}
	if s.rng.IntN(4) == 0 {
		m.TTL = m.Delay + time.Duration(1+s.rng.IntN(600))*time.Millisecond
	}
	if s.rng.IntN(3) == 0 {
		m.Dedup = fmt.Sprintf("d%d", s.rng.IntN(4)) // as those of enqueues
	}
	s.giveUnique(m)
	if s.rng.IntN(8) == 0 {
		m.Priority = new(uint8(s.rng.IntN(10)))
	}
	if s.rng.IntN(4) == 0 {
		m.Throttles = []string{fmt.Sprintf("t%d", s.rng.IntN(3))}
	}
	m.Cost = uint32(s.rng.IntN(4))
	p := &simPublished{req: req, paid: s.payFor(m), known: &simPublish{purges: s.oracle.look.purged()}}
	s.oracle.tags++
	p.payload = fmt.Sprintf("*/%s/%d", key, s.oracle.tags)
	m.Payload = []byte(p.payload)
	p.asks = map[string]*uniqueAsk{"a": s.oracle.asksUnique("a", m.Unique), "b": s.oracle.asksUnique("b", m.Unique)}
	return p
}

// publish publishes a message.
func (s *sim) publish(cl *simClient) {
	o := &s.oracle
	p := s.newPublish()
	message := p.req.Message // the request frees it
	to := string(message.Headers[0].Value)
	if err := s.step.PreparePublish(p.req); err != nil {
		o.fail("prepare publish: %v", err)
	}
	for _, queue := range []string{"a", "b"} {
		tag := tagOf(queue, []byte(p.payload))
		o.signals.asked(tag, signalEnqueued)
		o.unknown[tag] = true
	}
	s.late = func() { s.published(p, &message) }
	s.submit(cl, func(tx *Tx) (err error) {
		before := tx.core.ids.last
		if p.list, err = s.doPublish(tx, p.req); err != nil {
			return err
		}
		want := []string{"a"}
		if pattern := boundTo(tx.core); pattern == to || pattern == "[xy]" && to != "z" {
			want = append(want, "b")
		}
		var queues []string
		for _, x := range p.list {
			queues = append(queues, x.Queue)
		}
		if !slices.Equal(queues, want) && (!p.req.BestEffort || len(queues) >= len(want)) {
			o.fail("%s went to %q, bound are %q", p.payload, queues, want)
		}
		s.applied(tx, p, &message, before)
		return nil
	}, func(err error) {
		ordered := o.order.on && (message.Delay > 0 || message.Priority != nil) // a is
		switch {
		case err == nil:
			s.published(p, &message)
		case errors.Is(err, ErrTakeover), ordered && errors.Is(err, ErrInvalid):
			delete(o.unknown, tagOf("a", []byte(p.payload)))
			delete(o.unknown, tagOf("b", []byte(p.payload)))
		case !notNow(err):
			o.fail("publish: %v", err)
		}
	})
}

// applied records what a publish has stored in its turn. before is the last id that was given out
// before it.
func (s *sim) applied(tx *Tx, p *simPublished, m *Enqueue, before int64) {
	o := &s.oracle
	p.at, p.fresh, p.known.queues = tx.Now(), map[string]bool{}, nil
	for _, x := range p.list {
		if x.ID.Nanos() <= before {
			continue
		}
		p.fresh[x.Queue] = true
		p.known.queues = append(p.known.queues, x.Queue)
		s.money.paid[x.ID] = p.paid
		if m.Delay > 0 {
			o.handed[x.ID] = true // it gets its position when it is due
		}
		if m.TTL > 0 {
			o.ends[x.ID] = p.at.Add(m.TTL)
		}
		if m.Dedup != "" {
			o.named(tagOf(x.Queue, []byte(p.payload)), x.Queue, m.Dedup, p.at)
		}
		if ask := p.asks[x.Queue]; ask != nil {
			tag := tagOf(x.Queue, []byte(p.payload))
			o.unique.names[tag], o.unique.until[tag] = ask.name, m.UntilLease
		}
	}
	if len(p.fresh) > 0 {
		o.topics.open[p.payload] = p.known
	}
}

// published tells the oracle the answer to a publish.
func (s *sim) published(p *simPublished, m *Enqueue) {
	o := &s.oracle
	o.trace("published %s: %v", p.payload, p.list)
	delete(o.topics.open, p.payload)
	for _, queue := range []string{"a", "b"} {
		tag := tagOf(queue, []byte(p.payload))
		i := slices.IndexFunc(p.list, func(x Published) bool { return x.Queue == queue })
		switch {
		case i < 0:
			delete(o.unknown, tag)
			o.signals.resolved(tag, signalEnqueued, false, o.now)
		case !p.fresh[queue]:
			o.answeredEarlier(tag, p.list[i].ID, &Enqueue{Queue: queue, Dedup: m.Dedup}, p.asks[queue], p.at)
		default:
			var due time.Time
			if m.Delay > 0 {
				due = p.at.Add(m.Delay)
			}
			o.enqueued(tag, p.list[i].ID, due)
			o.enqueuedUnique(p.asks[queue], tag)
			stored := o.byID[p.list[i].ID]
			stored.perhapsGone = stored.perhapsGone || s.replaced && p.known.purges != o.look.purges
		}
	}
}

// doPublish is Tx.Publish, or breaks it in two writes.
func (s *sim) doPublish(tx *Tx, req *Publish) ([]Published, error) {
	if s.mutant != publishInParts || len(req.requests) < 2 || tx.refreshPublish(req) != nil {
		return tx.Publish(req)
	}
	first, second := *req, *req
	first.requests, second.requests = req.requests[:1], req.requests[1:]
	list, err := tx.Publish(&first)
	if err != nil {
		return nil, err
	}
	s.oracle.topics.open[string(req.Message.Payload)] = &simPublish{queues: []string{"a", "b"}, purges: s.oracle.look.purged()}
	if w := s.step.core.cut(); w != nil {
		s.step.commit(w)
	}
	rest, err := tx.Publish(&second)
	return append(list, rest...), err
}

// delivered ends the check of a publish: a copy that was delivered may be gone at the next crash.
func (o *topicOracle) delivered(tag string) { delete(o.open, "*"+tag[1:]) }

// crashedTopics checks what a crash has left.
func (s *sim) crashedTopics(powerLoss bool) {
	o := &s.oracle.topics
	now := boundTo(s.step.core)
	if now != o.bound && !slices.Contains(slices.Collect(maps.Values(o.pending)), now) && !powerLoss {
		s.oracle.fail("after a crash b is bound by %q, it may be %q or %v", now, o.bound, o.pending)
	}
	o.bound, o.applied = now, s.decisions
	clear(o.pending)
	found := map[string]int{}
	it := storage.ScanMessages(s.step.store, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		var m storage.Message
		if err := m.Decode(it.Value()); err == nil && bytes.HasPrefix(m.Payload, []byte("*")) {
			found[string(m.Payload)]++
		}
	}
	if err := it.Err(); err != nil {
		s.oracle.fail("a message cannot be read: %v", err)
	}
	for payload, p := range o.open {
		if n := found[payload]; n != 0 && n != len(p.queues) && p.purges == s.oracle.look.purges {
			s.oracle.fail("a half publish: of %s the store has %d of %s", payload, n, strings.Join(p.queues, " and "))
		}
	}
	clear(o.open)
}
