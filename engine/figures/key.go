package figures

import (
	"time"
)

// Key is what is counted of a fairness key that has messages.
type Key struct {
	deliveries
	busiest bool   // in the list of the busiest of its queue
	slot    uint32 // its place in the table of followed keys; 0: it is not followed
}

// deliveries are those of a fairness key since the start of the broker.
type deliveries struct {
	Delivered uint64
	share     minuteSum // cost delivered in the last minute
}

// Tally is what throttles have done to a key.
type Tally struct {
	Admitted, Refused uint64 // deliveries that they admitted; times that one stopped its class
	Waited            int64  // for them, in nanoseconds
}

// Debt is what a key owes for messages that were delivered ahead of its turn, as package dispatch counts it.
type Debt struct {
	Cost, Round int64
	Weight      uint32
}

// stats are all statistics of a fairness key since the start of the broker.
type stats struct {
	deliveries
	Tally
	debt Debt
}

// with returns the statistics of a key to which throttles have done something.
func (k *Key) with(t Tally) stats { return stats{deliveries: k.deliveries, Tally: t} }

// add adds the totals of o; the share of the last minute and what is owed are not summed.
func (s *stats) add(o stats) {
	s.Delivered += o.Delivered
	s.Admitted += o.Admitted
	s.Refused += o.Refused
	s.Waited += o.Waited
}

// subtract is the inverse of add. A sum of counts that were taken at different times may fall
// short of one of them: it is 0 then.
func (s *stats) subtract(o stats) {
	s.Delivered -= min(o.Delivered, s.Delivered)
	s.Admitted -= min(o.Admitted, s.Admitted)
	s.Refused -= min(o.Refused, s.Refused)
	s.Waited = max(s.Waited-o.Waited, 0)
}

// Took counts a delivery of a cost, when the scheduler has chosen the message.
func (q *Queue) Took(k *Key, name string, now int64, cost uint32) {
	k.Delivered++
	k.share.add(now, uint64(cost))
	q.share.add(now, uint64(cost))
	q.busiest.note(k, name)
}

// Share returns the part of the cost that the queue has delivered in about the last minute that went to
// a key. Both sums cover the same sliding minute, so their quotient is a share.
func (q *Queue) Share(k *Key, now int64) float64 {
	if all := q.share.value(now); all > 0 {
		return k.share.value(now) / all
	}
	return 0
}

// Forgotten keeps the statistics of a key that has no messages any more, and what it owes.
func (q *Queue) Forgotten(k *Key, hash uint64, name string, t Tally, owes Debt) {
	s := k.with(t)
	s.debt = owes
	if k.busiest {
		q.busiest.forgotten(k, s)
	}
	if k.slot != 0 {
		q.all.follows.at(k.slot).leave(0)
	}
	q.keep(hash, name, s)
}

// Returned gives a key that has messages again its statistics, and returns what throttles have done to it and what it owes.
func (q *Queue) Returned(k *Key, hash uint64, name string) (Tally, Debt) {
	s := q.idle.take(hash, name)
	if k.deliveries = s.deliveries; k.Delivered > 0 {
		q.busiest.resumed(k, name)
	}
	if len(q.followed.list) > 0 {
		q.followed.enter(k, hash, name)
	}
	return s.Tally, s.debt
}

// Idle returns the totals of a key without messages, zero if they are not known by name.
func (q *Queue) Idle(hash uint64, name string) BusyKey {
	if at := q.idle.find(hash, name); at >= 0 {
		return q.idle.list[at].busy(name)
	}
	return BusyKey{Key: name}
}

// Keep keeps the statistics of a key that a purge has detached. No key with messages has its name now.
func (q *Queue) Keep(k *Key, hash uint64, name string, t Tally) {
	s := k.with(t)
	q.busiest.drop(func(b *busiestKey) bool { return b.name == name })
	s.add(q.idle.take(hash, name))
	q.keep(hash, name, s)
	if at := q.idle.find(hash, name); at >= 0 { // else it was trimmed, or has no statistics
		q.busiest.noteIdle(&q.idle.list[at])
	}
}

// Join adds the deliveries of a key that a purge has detached to those of the key that has the name
// now.
func (q *Queue) Join(k, detached *Key, name string) {
	k.Delivered += detached.Delivered
	if k.slot != 0 {
		q.all.follows.at(k.slot).took += detached.Delivered
	}
	q.busiest.note(k, name)
}

// minuteSum estimates a sum over the last minute without storing its parts: the sum of the
// current minute, plus the fraction of the previous one that a sliding minute still covers.
type minuteSum struct {
	minute    int64  // number of the current minute since 1970
	cur, prev uint64 // sums of this minute and of the one before
}

const minute = int64(time.Minute)

// roll moves to the minute of now.
func (s *minuteSum) roll(now int64) {
	switch m := now / minute; m {
	case s.minute:
	case s.minute + 1:
		s.minute, s.prev, s.cur = m, s.cur, 0
	default:
		s.minute, s.prev, s.cur = m, 0, 0
	}
}

// add adds n at the time now.
func (s *minuteSum) add(now int64, n uint64) {
	s.roll(now)
	s.cur += n
}

// value returns the estimate at the time now.
func (s *minuteSum) value(now int64) float64 {
	s.roll(now)
	return float64(s.cur) + float64(s.prev)*(1-float64(now%minute)/float64(minute))
}
