package clock

import (
	"math"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

func TestTheTimeIsWrittenNowAndThen(t *testing.T) {
	var k Keeper
	var b storage.Batch
	k.Recover(1_000)
	k.PutAlong(1_000+int64(step)-1, false, &b)
	if b.Len() != 0 || k.Kept() != 1_000 {
		t.Errorf("%d records before the step is over", b.Len())
	}
	if k.PutAlong(1_000+int64(step), false, &b); b.Len() != 1 || k.Kept() != 1_000+int64(step) {
		t.Errorf("%d records after it, of %d", b.Len(), k.Kept())
	}
	k.PutAlong(k.Kept(), true, &b)
	if k.PutAlong(k.Kept()+1, true, &b); b.Len() != 2 {
		t.Errorf("%d records where each batch has the time, want one for each other time", b.Len())
	}
	if at := k.Own(k.Kept() + int64(time.Second)); at != k.Kept()+int64(own) {
		t.Errorf("on its own after %v", time.Duration(at-k.Kept()))
	}
	if at := k.Own(k.Kept() + int64(640*time.Hour)); at != k.Kept()+int64(10*time.Hour) {
		t.Errorf("for a timer in 640 hours after %v", time.Duration(at-k.Kept()))
	}
}

func TestTheCalendarFollowsTheSystemClock(t *testing.T) {
	var k Keeper
	for i, c := range []struct {
		behind, want time.Duration
		turned       Turned
	}{
		{behindMin, 0, AsBefore}, {time.Hour, time.Hour, SetBack}, {time.Hour + behindMin, time.Hour + behindMin, AsBefore},
		{2 * time.Hour, 2 * time.Hour, SetBack}, {time.Hour, time.Hour, SetBack}, {-time.Hour, 0, CaughtUp}, {0, 0, AsBefore},
	} {
		turned := k.SetBehind(c.behind)
		if turned != c.turned || k.Behind() != c.want || k.Calendar(int64(3*time.Hour)) != int64(3*time.Hour-c.want) || k.OnCalendar(5) != 5+int64(c.want) {
			t.Errorf("%d: behind by %v it is %v, %d", i, c.behind, k.Behind(), turned)
		}
	}
	k.SetBehind(time.Hour)
	if k.OnCalendar(math.MaxInt64-5) != math.MaxInt64 {
		t.Error("the end of time is exceeded")
	}
}
