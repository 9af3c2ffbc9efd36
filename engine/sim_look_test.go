package engine

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Administrative commands in the simulation: messages are cancelled, rescheduled, purged
// and shown, one by one and page by page, and queues are paused.

// lookOracle is the oracle's record of administrative commands.
type lookOracle struct {
	ids      []ID     // of all acknowledged messages, in the order of their replies
	purging  []string // queue/key/ or queue/ of purges without a reply
	redrives int      // redrives sent
	purges   int      // purges sent
	walks    []*walk
}

// purged is the number of purges sent if all of them were answered; else one of them may come behind what is sent now.
func (l *lookOracle) purged() int { return l.purges - len(l.purging) }

// walk is a client's walk through a queue by FILA.BROWSE.
type walk struct {
	queue, cursor string
	started       int         // number of messages acknowledged at its start
	seen          map[ID]bool // messages shown so far
	busy          bool

	done bool          // of FILA.BROWSE ... DONE
	ends map[ID]string // that were known at its start, with their queues
}

func (s *sim) administer(cl *simClient) {
	switch n := s.rng.IntN(100); {
	case n < 20:
		s.cancel(cl)
	case n < 40:
		s.reschedule(cl)
	case n < 60:
		s.get(cl)
	case n < 85:
		s.walk(cl)
	case n < 90:
		s.purge(cl)
	case n < 95:
		s.pauseQueue(cl)
	default:
		s.submit(cl, func(tx *Tx) error { _, err := tx.StopRedrive("a.dlq"); return err }, s.noRefusal("stop"))
	}
}

// anyMessage returns a random acknowledged message, with a preference for new ones.
func (s *sim) anyMessage() *oracleMsg {
	ids := s.oracle.look.ids
	if len(ids) == 0 {
		return nil
	}
	n := len(ids)
	return s.oracle.byID[ids[n-1-s.rng.IntN(min(n, 1+s.rng.IntN(n)))]]
}

func (m *oracleMsg) queue() string { return m.tag[:1] }

// home returns a queue in which a message may be.
func (s *sim) home(m *oracleMsg) string {
	if s.rng.IntN(5) == 0 {
		return m.queue() + ".dlq"
	}
	return m.queue()
}

// atHome reports whether a message can only be in the queue it was enqueued to.
func (o *oracle) atHome(m *oracleMsg) bool {
	_, mortal := o.ends[m.id]
	return o.attempts == 0 && !mortal && !m.mayDie && !m.perhapsGone && !o.beingPurged(m.tag) && m.asking == 0 && o.stored[m.tag] == m
}

// mayBeRemoved records that the removal of a message was requested, by a client that need
// not hold its lease.
func (o *oracle) mayBeRemoved(m *oracleMsg) {
	m.asking++
	m.leaseUntil, m.sure, m.disturbed = time.Time{}, false, true
}

func (s *sim) cancel(cl *simClient) {
	m := s.anyMessage()
	if m == nil {
		return
	}
	req, ms := &Cancel{Queue: s.home(m)}, []*oracleMsg{m}
	for s.rng.IntN(3) == 0 {
		if o := s.anyMessage(); !slices.Contains(ms, o) {
			ms = append(ms, o)
		}
	}
	clear(s.money.held)
	sure := req.Queue == m.queue()
	for _, m := range ms {
		req.IDs = append(req.IDs, m.id)
		sure = sure && m.queue() == req.Queue && s.oracle.atHome(m)
		s.oracle.mayBeRemoved(m)
	}
	s.oracle.trace("client %d cancels %v in %s", cl.client.ID, req.IDs, req.Queue)
	n := 0
	s.submit(cl, func(tx *Tx) (err error) { n, err = tx.Cancel(req); return err }, func(err error) {
		s.oracle.trace("cancelled %d of %v: %v", n, req.IDs, err)
		for _, m := range ms {
			m.asking = max(m.asking-1, 0)
			switch {
			case err != nil:
				m.perhapsGone = true
			case n == len(ms):
				s.oracle.goneNow(m)
			case n > 0:
				m.perhapsGone = true
			case sure && len(ms) == 1 && s.oracle.atHome(m):
				s.oracle.fail("%s was not cancelled, though it is there", m.tag)
			}
		}
		s.noRefusal("cancel")(err)
	})
}

func (o *oracle) goneNow(m *oracleMsg) {
	if o.gone[m.tag] {
		o.fail("%s was removed twice", m.tag)
	}
	o.gone[m.tag] = true
	delete(o.stored, m.tag)
	o.unsynced = append(o.unsynced, unsynced{m: m, acked: true})
}

func (s *sim) reschedule(cl *simClient) {
	m := s.anyMessage()
	if m == nil {
		return
	}
	req := &Reschedule{Queue: s.home(m), ID: m.id}
	if s.rng.IntN(3) > 0 {
		req.Delay = time.Duration(s.rng.IntN(300)) * time.Millisecond
	}
	m.notBefore = time.Time{} // it may be ready at once, without a reply
	m.moving++
	s.oracle.handed[m.id] = true
	s.oracle.trace("client %d reschedules %s in %s by %v", cl.client.ID, m.tag, req.Queue, req.Delay)
	var at time.Time
	s.submit(cl, func(tx *Tx) (err error) {
		if at, err = tx.Reschedule(req); err == nil {
			delete(s.gatherers, req.Queue+path.Dir(m.tag)[1:]) // of its key, which becomes ready anew
		}
		return err
	}, func(err error) {
		s.oracle.trace("rescheduled %s to %v: %v", m.tag, at, err)
		m.moving = max(m.moving-1, 0)
		switch {
		case err == nil:
			if s.oracle.gone[m.tag] {
				s.oracle.fail("%s was rescheduled after it had gone", m.tag)
			}
			if m.moving == 0 {
				m.notBefore = at
			}
			s.oracle.unsynced = append(s.oracle.unsynced, unsynced{m: m})
		case errors.Is(err, ErrNoMessage):
			if req.Queue == m.queue() && s.oracle.atHome(m) {
				s.oracle.fail("%s was not found to be rescheduled", m.tag)
			}
		case !errors.Is(err, ErrInvalid):
			s.noRefusal("reschedule")(err)
		}
	})
}

func (s *sim) get(cl *simClient) {
	m := s.anyMessage()
	if m == nil {
		return
	}
	req := &Get{Queue: s.home(m), ID: m.id}
	m.disturbed = m.disturbed || m.asking > 0
	known := s.oracle.done.in[m.id] == req.Queue
	var v *View
	var at time.Time
	order := 0
	s.submit(cl, func(tx *Tx) (err error) {
		at, order = tx.Now(), s.decisions
		v, err = tx.Get(req)
		return err
	}, func(err error) {
		switch {
		case err != nil:
			s.noRefusal("get")(err)
		case v != nil:
			s.shown(v, at, order)
		case known && s.oracle.done.in[m.id] == req.Queue:
			s.oracle.fail("%s was acked in %s, and its end is not known", m.tag, req.Queue)
		case req.Queue == m.queue() && s.oracle.atHome(m):
			s.oracle.fail("%s was not found", m.tag)
		}
	})
}

// shown checks a view of a message against the engine's decisions so far. A lease that was
// decided later may have been answered earlier, as its reply waits for no commit.
func (s *sim) shown(v *View, at time.Time, order int) {
	o := &s.oracle
	if err := v.Open(); err != nil {
		o.fail("open: %v", err)
		return
	}
	o.trace("shown %s of %s as %s", v.Payload(), v.Queue, v.Status)
	m := o.byID[v.ID]
	if m == nil || m.tag == "" {
		return // not acknowledged yet
	}
	if v.Status == StatusDone {
		o.shownDone(v, m)
		return
	}
	if o.done.shown[v.ID] {
		o.fail("%s was shown as %s after it was shown as done", m.tag, v.Status)
	}
	if o.carries(v.ID, tagOf(v.Queue, v.Payload()), order) {
		return
	}
	if tagOf(v.Queue, v.Payload()) != m.tag {
		o.fail("%s was shown as %s", m.tag, v.Payload())
	}
	if o.gone[m.tag] {
		o.fail("%s was shown after it had gone", m.tag)
	}
	if s.failing {
		return // deferred lease records may be lost, and ends of leases
	}
	o.shownProgress(v, m.sure && m.leasedIn <= order && m.asking == 0 && at.Before(m.leaseUntil))
	if m.sure && m.leasedIn <= order && m.asking == 0 && at.Before(m.leaseUntil) && v.Status != StatusLeased {
		o.fail("%s was shown as %s, and a client holds it until %v", m.tag, v.Status, m.leaseUntil)
	}
	if end, mortal := o.ends[v.ID]; mortal && !at.Before(end) {
		m.notBefore = time.Time{} // dead-lettered while it was delayed
	}
	if at.Before(m.notBefore) && v.Status != StatusDelayed {
		o.fail("%s was shown as %s, and waits until %v", m.tag, v.Status, m.notBefore)
	}
}

// walk continues a walk through a queue, or starts one.
func (s *sim) walk(cl *simClient) {
	o := &s.oracle.look
	var w *walk
	if len(o.walks) > 0 && s.rng.IntN(4) > 0 {
		w = o.walks[s.rng.IntN(len(o.walks))]
	}
	if w == nil && s.rng.IntN(3) == 0 {
		w = &walk{queue: []string{"a", "b"}[s.rng.IntN(2)], done: true, started: len(o.ids), seen: map[ID]bool{}, ends: maps.Clone(s.oracle.done.in)}
		o.walks = append(o.walks, w)
	}
	if w == nil {
		w = &walk{queue: []string{"a", "b", "a.dlq"}[s.rng.IntN(3)], started: len(o.ids), seen: map[ID]bool{}}
		o.walks = append(o.walks, w)
	}
	if w.busy {
		return
	}
	w.busy = true
	s.page(cl, w, 1+s.rng.IntN(8))
}

func (s *sim) page(cl *simClient, w *walk, count int) {
	req := &Browse{Queue: w.queue, Cursor: w.cursor, Count: count}
	var list []*View
	var next string
	var at time.Time
	order := 0
	s.submit(cl, func(tx *Tx) (err error) {
		at, order = tx.Now(), s.decisions
		if w.done {
			next, list, err = tx.BrowseDone(req)
		} else {
			next, list, err = tx.Browse(req)
		}
		return err
	}, func(err error) {
		w.busy = false
		if err != nil {
			s.noRefusal("browse")(err)
			return
		}
		for _, v := range list {
			if w.seen[v.ID] {
				s.oracle.fail("%s was shown twice in one walk", v.ID)
			}
			w.seen[v.ID] = true
			s.shown(v, at, order)
		}
		if w.cursor = next; next == "" {
			s.oracle.walked(w)
		}
	})
}

// walked checks a complete walk: it must have shown every message that existed throughout.
func (o *oracle) walked(w *walk) {
	o.look.walks = slices.DeleteFunc(o.look.walks, func(other *walk) bool { return other == w })
	if w.done {
		o.walkedDone(w)
		return
	}
	for _, id := range o.look.ids[:w.started] {
		if m := o.byID[id]; m.queue() == w.queue && o.atHome(m) && !w.seen[id] {
			o.fail("%s was there all the time, and was not shown", m.tag)
		}
	}
}

func (s *sim) purge(cl *simClient) {
	req := &Purge{Queue: s.queue()}
	prefix := req.Queue + "/"
	if s.rng.IntN(3) > 0 {
		req.Key = fmt.Sprintf("k%d", s.rng.IntN(s.w.keys))
		prefix += req.Key + "/"
	}
	clear(s.money.held)
	s.oracle.look.purges++
	s.oracle.look.purging = append(s.oracle.look.purging, prefix)
	s.oracle.purge(prefix)
	s.oracle.trace("client %d purges %s", cl.client.ID, prefix)
	whole := s.oracle.attempts == 0 && s.oracle.look.redrives == 0
	n := 0
	s.submit(cl, func(tx *Tx) (err error) { n, err = tx.Purge(req); return err }, func(err error) {
		s.oracle.trace("purged %d of %s: %v", n, prefix, err)
		if i := slices.Index(s.oracle.look.purging, prefix); i >= 0 { // else a crash has cleared it
			s.oracle.look.purging = slices.Delete(s.oracle.look.purging, i, i+1)
		}
		s.oracle.purge(prefix)
		s.noRefusal("purge")(err)
		if err == nil && whole && n < 0 {
			s.oracle.fail("purged %d", n)
		}
	})
}

// purge records that all messages of a queue or key may be removed.
func (o *oracle) purge(prefix string) {
	if strings.Count(prefix, "/") == 1 { // a whole queue, with its deduplication ids and its records of ends
		o.namesLost()
		maps.DeleteFunc(o.done.in, func(_ ID, queue string) bool { return queue+"/" == prefix })
	}
	for _, m := range o.byID {
		if strings.HasPrefix(m.tag, prefix) {
			m.perhapsGone, m.leaseUntil, m.sure, m.purged = true, time.Time{}, false, true
		}
	}
}

func (s *sim) pauseQueue(cl *simClient) {
	q, n := s.queue(), s.rng.IntN(6)
	s.submit(cl, func(tx *Tx) error { return tx.Pause(q, n != 0, n != 1, n < 2) }, s.noRefusal("pause"))
}
