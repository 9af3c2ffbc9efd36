package engine

import "time"

// keyStats count what became of a fairness key since the broker has started.
type keyStats struct {
	delivered         uint64
	share             minuteSum
	admitted, refused uint64
	waited            int64 // nanoseconds
}

func (s *keyStats) deliver(now int64, cost uint32) {
	s.delivered++
	s.share.add(now, uint64(cost))
}

func (s *keyStats) add(o keyStats) {
	s.delivered += o.delivered
	s.admitted += o.admitted
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
	Key                          string
	Delivered, Admitted, Refused uint64
	Waited                       time.Duration // for throttles
}

func (s *keyStats) busy(key string) BusyKey {
	return BusyKey{Key: key, Delivered: s.delivered, Admitted: s.admitted, Refused: s.refused, Waited: time.Duration(s.waited)}
}

func (b *BusyKey) stats() keyStats {
	return keyStats{delivered: b.Delivered, admitted: b.Admitted, refused: b.Refused, waited: int64(b.Waited)}
}
