package engine

import (
	"fmt"
	"time"
)

// answerSeveral acks or releases several deliveries in one command. It is executed in
// slices, so the end of the engine may keep a part of them.
func (s *sim) answerSeveral(cl *simClient) {
	queue := s.inHand[s.rng.IntN(len(s.inHand))].Queue
	var ds, kept []*Delivery
	var receipts []Receipt
	for _, d := range s.inHand {
		if d.Queue == queue && len(ds) < 8 {
			ds, receipts = append(ds, d), append(receipts, d.Receipt)
		} else {
			kept = append(kept, d)
		}
	}
	s.inHand = kept
	n, turns := 0, 0
	if s.rng.IntN(3) == 0 {
		for _, d := range ds {
			s.oracle.mayEnd(d)
			s.money.mayEnd(d.Receipt.ID)
		}
		s.submit(cl, func(tx *Tx) (err error) {
			turns++
			n, err = tx.Release(queue, receipts)
			return err
		}, func(err error) {
			s.oracle.trace("released %d of %v in %d turns: %v", n, receipts, turns, err)
			for _, d := range ds {
				if n == len(ds) && turns == 1 { // else other clients may have leased the first ones before the last was released
					s.oracle.released(d, 1, err)
				}
			}
		})
		return
	}
	for _, d := range ds {
		s.oracle.maybeGone(d.Receipt.ID)
		s.money.mayUse(d.Receipt.ID, nil)
	}
	s.submit(cl, func(tx *Tx) (err error) { n, err = tx.Ack(queue, receipts); return err }, func(err error) {
		for _, d := range ds {
			switch {
			case err != nil || n == 0:
				s.oracle.acked(d, 0, err)
			case n == len(ds):
				s.oracle.acked(d, 1, err)
			default: // the reply does not say which
				m := s.oracle.byID[d.Receipt.ID]
				m.asking, m.perhapsGone = max(m.asking-1, 0), true
			}
		}
	})
}

// inTime is called when a message is acked: its lease must not have ended, even if the
// engine has not processed its timer. A requested extension may be in force before its
// reply.
func (o *oracle) inTime(d *Delivery, now time.Time) {
	if m := o.current(d); m != nil && !m.extending && !m.leaseUntil.IsZero() && !now.Before(m.leaseUntil) {
		o.fail("%s was acked at %v, and its lease has ended at %v", d.Receipt, now, m.leaseUntil)
	}
}

// describe returns what the engine waits for.
func (s *sim) describe() string {
	c := s.step.core
	waiting, _ := c.reads.Waiting()
	text := fmt.Sprintf("now %d, failed %v, %d reads, %d waiting, pause %d;", c.now, c.health.failed, c.reads.InFlight, waiting, c.reads.PausedTo)
	for _, q := range c.queues.byName {
		text += fmt.Sprintf(" %s: starved %d, keys %d, waiters %d, offered %v;", q.name, q.awaitingRead, q.order.Keys(), q.waiters.Len(), !q.order.Waits())
		for k := range q.roster.All() {
			text += fmt.Sprintf(" %s: window %d behind %v read %v total %d;", k.name, k.window.Len(), k.window.More(), k.window.Reading(), k.total)
		}
	}
	return text
}
