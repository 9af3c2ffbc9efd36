package yield

import (
	"runtime"
	"testing"
	"time"
)

func TestLongWorkBorrowsTheProcessorThatIsReserved(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(before)
	ReserveProcessor()
	defer func() { reserve.held = false }()
	want := func(n int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != n {
			t.Fatalf("%d processors, want %d", got, n)
		}
	}
	want(3)
	var a, b Breaks
	for range 2 {
		a.Take()
		want(3) // the work has just begun
		a.since = a.since.Add(-breakEvery)
		a.Take()
		want(4)
		b.Take()
		b.since = b.since.Add(-breakEvery)
		b.Take()
		a.End()
		lower()
		want(4) // b goes on
		b.End()
		b.End() // without work it does nothing
		want(4) // soon there may be more
		lower()
		want(3)
	}
}

func TestBreaksComeFromTimeToTime(t *testing.T) {
	var b Breaks
	defer b.End()
	b.Take()
	last := b.since
	b.Take()
	if !b.since.Equal(last) && b.since.Sub(last) < breakEvery {
		t.Errorf("a break after %v", b.since.Sub(last))
	}
	b.since = b.since.Add(-time.Hour)
	if b.Take(); time.Since(b.since) > time.Minute {
		t.Error("no break after an hour")
	}
}
