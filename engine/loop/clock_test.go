package loop

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAClockBeginsAtTheTimeThatWasReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newClock(start.Add(time.Minute).Round(0))
		if got := c.now().Sub(start); got != time.Minute {
			t.Errorf("it begins %v ahead", got)
		}
		time.Sleep(time.Second)
		if got := c.now().Sub(start); got != time.Minute+time.Second {
			t.Errorf("after a second it is %v ahead", got)
		}
		if got := newClock(start.Add(-time.Minute)).now(); got.Before(start) {
			t.Errorf("it begins at %v, before the system's clock", got)
		}
	})
}
