package telemetry

import (
	"testing"
	"time"
)

func TestTheSlowLogKeepsTheNewest(t *testing.T) {
	var l SlowLog
	l.Threshold.Store(1000)
	l.Max.Store(3)
	if l.IsSlow(999*time.Microsecond) || !l.IsSlow(time.Millisecond) {
		t.Error("a command is slow from the threshold on")
	}
	for range 10 {
		l.Add(&SlowCommand{Took: time.Second})
	}
	if newest := l.Newest(-1); len(newest) != 3 || newest[0].ID != 9 || newest[2].ID != 7 {
		t.Errorf("got %v", newest)
	}
	if newest := l.Newest(2); len(newest) != 2 || newest[1].ID != 8 {
		t.Errorf("got %v", newest)
	}
	l.Reset()
	l.Add(&SlowCommand{})
	if newest := l.Newest(-1); len(newest) != 1 || newest[0].ID != 10 {
		t.Errorf("a number is used twice: %v", newest)
	}
	l.Threshold.Store(-1)
	if l.IsSlow(time.Hour) {
		t.Error("a negative threshold keeps nothing")
	}
}
