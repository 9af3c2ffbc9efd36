// Package histogram counts durations in buckets whose bounds grow by a factor of 2^(1/4): those
// of a native Prometheus histogram of schema 2, in seconds. A figure that is read off a bucket
// is therefore at most 19 % too high. The buckets reach from a microsecond to 48 days; what is
// shorter or longer is in the first or last one.
//
// A Histogram belongs to one goroutine. A Shared is observed by many at a time, and its counts
// are read into a Histogram. Both have the same buckets, so that counts of different places
// can be added up.
//
// A bucket contains its upper bound but not its lower one.
package histogram

import (
	"iter"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Schema is that of native histograms: each power of two is divided into 2^Schema buckets.
	Schema = 2
	// First is the index of the first bucket. Bucket i has the durations up to 2^(i/4) s and
	// above 2^((i-1)/4) s.
	First = -79
	// Last is the index of the last bucket, which has all longer durations, too.
	Last = 89
	// perPower is the number of buckets between a power of two and the next.
	perPower = 1 << Schema
	// zeroExponent is that of the shortest duration, in seconds, that has a bucket of its own:
	// shorter ones are in the zero bucket.
	zeroExponent = (First - 1) / perPower
	// counters are the zero bucket and those from First to Last.
	counters = 1 + Last - First + 1
)

// Histogram counts durations, 1.4 KB. The zero value has none.
type Histogram struct {
	counts [counters]uint64
	sum    uint64 // nanoseconds
}

// slot returns the index of a duration's counter.
//
// The bounds have the same binary digits in every power of two of nanoseconds: four of them,
// which are 10^9 · 2^(j/4) for j from 1 to 4. So a duration is shifted until its first digit is
// the highest of 64, and compared with these four, which takes no table and no branch to guess.
func slot(d time.Duration) int {
	const (
		bound1, bound2, bound3, bound4 = 0x8dc3b8960164a7d9, 0xa8965f74bf065071, 0xc87c3e7d03cdbec3, 0xee6b280000000000
		bits1                          = 31 // binary digits of 10^9 · 2^(1/4), the bound of bucket 1 in nanoseconds
	)
	ns := uint64(max(d, 0))
	n := bits.Len64(ns)
	ns <<= 64 - n
	_, above1 := bits.Sub64(bound1, ns, 0) // 1 if ns is above the bound
	_, above2 := bits.Sub64(bound2, ns, 0)
	_, above3 := bits.Sub64(bound3, ns, 0)
	_, above4 := bits.Sub64(bound4, ns, 0)
	i := 1 + perPower*(n-bits1) + int(above1+above2+above3+above4)
	return min(max(i-First+1, 0), counters-1)
}

// Observe counts a duration. A negative one counts as 0. It takes about 3 ns and allocates
// nothing.
func (h *Histogram) Observe(d time.Duration) {
	h.counts[slot(d)]++
	h.sum += uint64(max(d, 0))
}

// Add adds the counts of another histogram.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range &o.counts {
		h.counts[i] += n
	}
	h.sum += o.sum
}

// Sub takes away the counts of a histogram that were added before.
func (h *Histogram) Sub(o *Histogram) {
	for i, n := range &o.counts {
		h.counts[i] -= n
	}
	h.sum -= o.sum
}

// Grow raises each count to what all has and parts has not. It takes none back: a count that
// would be lower stays.
func (h *Histogram) Grow(all, parts *Histogram) {
	for i, n := range &all.counts {
		h.counts[i] = max(h.counts[i], n-min(parts.counts[i], n))
	}
	h.sum = max(h.sum, all.sum-min(parts.sum, all.sum))
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 {
	all := uint64(0)
	for _, n := range &h.counts {
		all += n
	}
	return all
}

// Sum returns the sum of all durations, up to 292 years.
func (h *Histogram) Sum() time.Duration {
	return time.Duration(min(h.sum, math.MaxInt64))
}

// Seconds returns the sum of all durations in seconds.
func (h *Histogram) Seconds() float64 { return float64(h.sum) / 1e9 }

// Quantile returns a duration that a share of all, 0 to 1, does not exceed: the upper bound of
// the bucket in which the share is reached. Without durations it returns 0.
func (h *Histogram) Quantile(share float64) time.Duration {
	rank, seen := share*float64(h.Count()), uint64(0)
	for i, n := range &h.counts {
		if seen += n; n > 0 && float64(seen) >= rank {
			return time.Duration(Bound(i+First-1) * 1e9)
		}
	}
	return 0
}

// Bound returns the upper bound of a bucket in seconds, First-1 being the zero bucket.
func Bound(bucket int) float64 { return math.Exp2(float64(bucket) / perPower) }

// ZeroBound returns the upper bound of the zero bucket in seconds, some 954 ns.
func ZeroBound() float64 { return Bound(First - 1) }

// Zero returns the number of durations up to ZeroBound.
func (h *Histogram) Zero() uint64 { return h.counts[0] }

// Buckets iterates over the buckets that are not empty, without the zero bucket, in order.
func (h *Histogram) Buckets() iter.Seq2[int, uint64] {
	return func(yield func(bucket int, n uint64) bool) {
		for i, n := range h.counts[1:] {
			if n > 0 && !yield(First+i, n) {
				return
			}
		}
	}
}

// Powers iterates over the powers of two from 2^-20 to 2^22 in seconds: the exponent, and how
// many durations are not longer. What is longer than the last of them is not counted.
func (h *Histogram) Powers() iter.Seq2[int, uint64] {
	return func(yield func(exponent int, n uint64) bool) {
		seen := uint64(0)
		for i, n := range &h.counts {
			seen += n
			if i%perPower == 0 && !yield(zeroExponent+i/perPower, seen) {
				return
			}
		}
	}
}

// The bounds of a histogram for scrapers that know no native ones: powers of four, from 2^-14 s
// (61 µs) to 2^10 s (17 minutes).
const (
	classicFirst, classicLast = -14, 10
	// ClassicCount is the number of these bounds.
	ClassicCount = (classicLast-classicFirst)/2 + 1
)

// ClassicBounds returns the bounds in seconds.
func ClassicBounds() (bounds [ClassicCount]float64) {
	for i := range bounds {
		bounds[i] = math.Exp2(float64(classicFirst + 2*i))
	}
	return bounds
}

// Classic returns how many durations are within each of the ClassicBounds. Each number includes
// those before it, as Prometheus expects; Count is the last one, that of +Inf.
func (h *Histogram) Classic() (n [ClassicCount]uint64) {
	for exponent, seen := range h.Powers() {
		if i := exponent - classicFirst; i >= 0 && i%2 == 0 && i/2 < ClassicCount {
			n[i/2] = seen
		}
	}
	return n
}

// Shared is a Histogram that many goroutines observe at a time. It must not be copied.
type Shared struct {
	counts [counters]atomic.Uint64
	sum    atomic.Uint64
}

// Observe is Histogram.Observe.
func (s *Shared) Observe(d time.Duration) {
	s.counts[slot(d)].Add(1)
	s.sum.Add(uint64(max(d, 0)))
}

// AddTo adds the counts to a histogram. A duration that is observed meanwhile may be in them or
// not, and in the sum without being counted.
func (s *Shared) AddTo(h *Histogram) {
	for i := range s.counts {
		h.counts[i] += s.counts[i].Load()
	}
	h.sum += s.sum.Load()
}
