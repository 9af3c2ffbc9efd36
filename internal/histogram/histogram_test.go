package histogram_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/testkit"
)

// bucketOf returns the bucket of a duration by its definition, with logarithms.
func bucketOf(d time.Duration) int {
	i := int(math.Ceil(4 * math.Log2(d.Seconds())))
	return min(max(i, histogram.First-1), histogram.Last)
}

// only returns the bucket that has the one duration of a histogram.
func only(t *testing.T, h *histogram.Histogram) int {
	t.Helper()
	if h.Count() != 1 {
		t.Fatalf("%d durations, want 1", h.Count())
	}
	for i := range h.Buckets() {
		return i
	}
	return histogram.First - 1
}

func observed(ds ...time.Duration) *histogram.Histogram {
	var h histogram.Histogram
	for _, d := range ds {
		h.Observe(d)
	}
	return &h
}

func TestADurationIsInTheBucketOfItsLogarithm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	for n := range 200_000 {
		d := time.Duration(rng.Int64() >> rng.IntN(62))
		if n < 100_000 {
			d = time.Duration(n)
		}
		bound := histogram.Bound(bucketOf(d)) * 1e9
		if math.Abs(float64(d)-bound) < 1e-9*bound {
			continue // too close for a float64; the next test has the bounds
		}
		if got := only(t, observed(d)); d > 0 && got != bucketOf(d) {
			t.Fatalf("%v is in bucket %d, want %d", d, got, bucketOf(d))
		}
	}
}

func TestABucketContainsItsUpperBoundAndNotItsLowerOne(t *testing.T) {
	for i := histogram.First - 1; i < histogram.Last; i++ {
		bound := time.Duration(histogram.Bound(i) * 1e9)
		rounding := time.Duration(1) // of a float64
		if i%4 == 0 && i >= 0 {
			rounding = 0
		}
		if got := only(t, observed(bound-rounding)); got != i {
			t.Errorf("%v is in bucket %d, want %d", bound-rounding, got, i)
		}
		if got := only(t, observed(bound+rounding+1)); got != i+1 {
			t.Errorf("%v is in bucket %d, want %d", bound+rounding+1, got, i+1)
		}
	}
	for _, d := range []time.Duration{-1, 0, math.MinInt64} {
		if got := only(t, observed(d)); got != histogram.First-1 || observed(d).Sum() != 0 {
			t.Errorf("%v is in bucket %d", d, got)
		}
	}
	if got := only(t, observed(math.MaxInt64)); got != histogram.Last {
		t.Errorf("the longest duration is in bucket %d", got)
	}
	if from, to := histogram.Bound(histogram.First-1), histogram.Bound(histogram.Last-1); from > 1e-6 || to < (45*24*time.Hour).Seconds() {
		t.Errorf("the buckets reach from %v s to %v s, want 1 µs to 45 days", from, to)
	}
}

func TestAQuantileIsAtMostAFifthTooHigh(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible on purpose
	for range 100 {
		var h histogram.Histogram
		d := time.Microsecond + time.Duration(rng.Int64N(int64(1000*time.Hour)))
		for range 100 {
			h.Observe(d)
		}
		h.Observe(1100 * time.Hour)
		for _, share := range []float64{0, 0.5, 0.99} {
			if got := h.Quantile(share); got < d-1 || float64(got) > 1.19*float64(d)+1 {
				t.Errorf("quantile %v of %v is %v", share, d, got)
			}
		}
		if got := h.Quantile(1); got < 1100*time.Hour {
			t.Errorf("the longest is %v", got)
		}
	}
	if got := new(histogram.Histogram).Quantile(0.5); got != 0 {
		t.Errorf("without durations the median is %v", got)
	}
}

func TestClassicBoundsCountWhatIsWithinThem(t *testing.T) {
	bounds := histogram.ClassicBounds()
	if len(bounds) != 13 || bounds[0] != math.Exp2(-14) || bounds[12] != 1024 {
		t.Fatalf("the bounds are %v", bounds)
	}
	var h histogram.Histogram
	for _, b := range bounds {
		h.Observe(time.Duration(b * 1e9))
		h.Observe(time.Duration(b*1e9) + 1)
	}
	for i, n := range h.Classic() {
		if want := uint64(2*i + 1); n != want {
			t.Errorf("%d are within %v s, want %d", n, bounds[i], want)
		}
	}
	if h.Count() != 26 {
		t.Errorf("%d of 26 are counted", h.Count())
	}
}

func TestPowersOfTwoCountWhatIsWithinThem(t *testing.T) {
	h := observed(0, time.Microsecond, time.Second, time.Second+1, math.MaxInt64)
	want := map[int]uint64{-20: 1, -19: 2, -1: 2, 0: 3, 1: 4, 22: 4}
	n := 0
	for exponent, seen := range h.Powers() {
		if w, ok := want[exponent]; ok && seen != w {
			t.Errorf("%d are within 2^%d s, want %d", seen, exponent, w)
		}
		n++
	}
	if n != 43 {
		t.Errorf("%d powers of two, want 43", n)
	}
}

func TestHistogramsAreAddedAndTakenAway(t *testing.T) {
	a, b := observed(time.Second, time.Hour), observed(time.Second, time.Nanosecond)
	sum := *a
	sum.Add(b)
	if sum.Count() != 4 || sum.Zero() != 1 || sum.Sum() != 2*time.Second+time.Hour+1 {
		t.Errorf("%d durations, %d short ones, %v", sum.Count(), sum.Zero(), sum.Sum())
	}
	if sum.Sub(b); sum != *a {
		t.Errorf("%v, want %v", sum, *a)
	}
}

func TestASharedHistogramCountsWhatAllGoroutinesObserve(t *testing.T) {
	var s histogram.Shared
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				s.Observe(time.Duration(i) * time.Millisecond)
			}
		})
	}
	all.Wait()
	var got, want histogram.Histogram
	s.AddTo(&got)
	for i := range 4000 {
		want.Observe(time.Duration(i%1000) * time.Millisecond)
	}
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestObservingAllocatesNothing(t *testing.T) {
	var h histogram.Histogram
	var s histogram.Shared
	if n := testkit.Allocations(100, func() { h.Observe(time.Second); s.Observe(time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What each delivery and each ack pays.
func BenchmarkObserve(b *testing.B) {
	ds := make([]time.Duration, 1024)
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // reproducible on purpose
	for i := range ds {
		ds[i] = time.Duration(rng.Int64N(int64(time.Minute)) >> rng.IntN(20))
	}
	var h histogram.Histogram
	for i := 0; b.Loop(); i++ {
		h.Observe(ds[i%len(ds)])
	}
}

// What each command pays.
func BenchmarkObserveShared(b *testing.B) {
	var s histogram.Shared
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Observe(70 * time.Microsecond)
		}
	})
}
