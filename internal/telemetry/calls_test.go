package telemetry

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
	m := NewCalls(1)
	for range 99 {
		m.Called(1, 0, 10*time.Microsecond, "")
	}
	m.Called(2, 0, 3*time.Millisecond, "ERR")
	got := m.Totals(0)
	if got.Calls != 100 || got.Failed != 1 || got.Spent != 99*10*time.Microsecond+3*time.Millisecond {
		t.Errorf("%d calls, %d failed, %v", got.Calls, got.Failed, got.Spent)
	}
	if p50, p99, p100 := got.Percentile(0.5), got.Percentile(0.99), got.Percentile(1); p50 != 12 || p99 != 12 || p100 != 3072 {
		t.Errorf("p50 %d, p99 %d, p100 %d", p50, p99, p100)
	}
	m.Reset()
	if got := m.Totals(0); got.Calls != 0 || got.Percentile(0.5) != 0 {
		t.Errorf("after a reset: %d calls", got.Calls)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	m := NewCalls(1)
	m.Called(1, 0, time.Second, "")
	if n := testing.AllocsPerRun(100, func() { m.Called(1, 0, time.Millisecond, "") }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// What every command pays for being counted.
func BenchmarkCounting(b *testing.B) {
	m := NewCalls(1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Called(1, 0, 70*time.Microsecond, "")
		}
	})
}
