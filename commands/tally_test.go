package commands

import (
	"testing"
	"time"
)

func TestEveryDurationIsBelowTheEndOfItsBucketAndOfNoneBefore(t *testing.T) {
	for us := range int64(200_000) {
		i := bucketOf(time.Duration(us) * time.Microsecond)
		if end := bucketEnd(i); uint64(us) >= end {
			t.Fatalf("%d us is in bucket %d, which ends at %d", us, i, end)
		}
		if i > 0 && uint64(us) < bucketEnd(i-1) {
			t.Fatalf("%d us is in bucket %d but fits into the one before", us, i)
		}
		if end := bucketEnd(i); us > 3 && end > uint64(us)+uint64(us)/4+1 {
			t.Fatalf("%d us is shown as %d", us, end)
		}
	}
	if got := bucketOf(1<<62 - 1); got != bucketCount-1 {
		t.Errorf("the longest duration is in bucket %d", got)
	}
	if got := bucketOf(-1); got != 0 {
		t.Errorf("a negative duration is in bucket %d", got)
	}
}

func TestPercentilesAreReadOffTheHistogram(t *testing.T) {
	c := &command{}
	m := newTally(1)
	for range 99 {
		m.called(1, c, 10*time.Microsecond, "")
	}
	m.called(2, c, 3*time.Millisecond, "ERR")
	got := m.totals(c)
	if got.calls != 100 || got.failed != 1 || got.spent != 99*10*time.Microsecond+3*time.Millisecond {
		t.Errorf("%d calls, %d failed, %v", got.calls, got.failed, got.spent)
	}
	if p50, p99, p100 := got.percentile(0.5), got.percentile(0.99), got.percentile(1); p50 != 12 || p99 != 12 || p100 != 3072 {
		t.Errorf("p50 %d, p99 %d, p100 %d", p50, p99, p100)
	}
	m.reset()
	if got := m.totals(c); got.calls != 0 || got.percentile(0.5) != 0 {
		t.Errorf("after a reset: %d calls", got.calls)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	c := &command{}
	m := newTally(1)
	m.called(1, c, time.Second, "")
	if n := testing.AllocsPerRun(100, func() { m.called(1, c, time.Millisecond, "") }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// What every command pays for being counted.
func BenchmarkCounting(b *testing.B) {
	c := &command{}
	m := newTally(1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.called(1, c, 70*time.Microsecond, "")
		}
	})
}
