package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// keyStats count what became of a fairness key since the broker has started.
type keyStats struct {
	delivered       uint64
	share           minuteSum
	passed, refused uint64
	waited          int64 // nanoseconds
}

func (s *keyStats) deliver(now int64, cost uint32) {
	s.delivered++
	s.share.add(now, uint64(cost))
}

func (s *keyStats) add(o keyStats) {
	s.delivered += o.delivered
	s.passed += o.passed
	s.refused += o.refused
	s.waited += o.waited
}

// minuteSum is a sum over about the last minute: that of the minute that runs,
// plus the part of the one before that a sliding minute still covers.
type minuteSum struct {
	minute    int64
	cur, prev uint64
}

const minute = int64(time.Minute)

func (s *minuteSum) roll(now int64) {
	switch m := now / minute; m {
	case s.minute:
	case s.minute + 1:
		s.minute, s.prev, s.cur = m, s.cur, 0
	default:
		s.minute, s.prev, s.cur = m, 0, 0
	}
}

func (s *minuteSum) add(now int64, n uint64) {
	s.roll(now)
	s.cur += n
}

func (s *minuteSum) value(now int64) float64 {
	s.roll(now)
	return float64(s.cur) + float64(s.prev)*(1-float64(now%minute)/float64(minute))
}

// BusyKey is what became of one fairness key, or of several in a sum.
type BusyKey struct {
	Key                        string
	Delivered, Passed, Refused uint64
	Waited                     time.Duration // for throttles
}

func (s *keyStats) busy(key string) BusyKey {
	return BusyKey{Key: key, Delivered: s.delivered, Passed: s.passed, Refused: s.refused, Waited: time.Duration(s.waited)}
}

// BusiestKeys returns the n keys with the most deliveries since the broker has
// started, and the sum of all others.
func (tx *Tx) BusiestKeys(queue string, n int) (top []BusyKey, rest BusyKey, err error) {
	q, err := tx.core.queueNamed(queue)
	if err != nil {
		return nil, BusyKey{}, err
	}
	sum := q.past.rest
	keep := func(b BusyKey) {
		i, _ := slices.BinarySearchFunc(top, b, func(a, b BusyKey) int {
			return cmp.Or(cmp.Compare(b.Delivered, a.Delivered), strings.Compare(a.Key, b.Key))
		})
		if i >= n {
			sum.add(b.stats())
			return
		}
		top = slices.Insert(top, i, b)
		if len(top) > n {
			sum.add(top[n].stats())
			top = top[:n]
		}
	}
	for k := range q.roster.all() {
		keep(k.stats.busy(k.name))
	}
	for name, s := range q.past.all() {
		keep(s.busy(name))
	}
	for _, r := range tx.core.remains {
		if r.queue == q {
			r.addTo(&sum)
		}
	}
	return top, sum.busy(""), nil
}

func (b *BusyKey) stats() keyStats {
	return keyStats{delivered: b.Delivered, passed: b.Passed, refused: b.Refused, waited: int64(b.Waited)}
}
