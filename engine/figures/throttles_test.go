package figures

import (
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/timeline"
	"github.com/faisca/fila/storage"
)

// recordThrottles records a step of the throttles alone.
func (h *History) recordThrottles(all *All, at uint32, look func(string) (ThrottleNumbers, bool)) {
	h.Begin(timeline.Begin(at), all)
	h.RecordThrottles(timeline.Begin(at), look)
	h.Finish()
}

func TestThrottlesHaveAHistoryThatOutlivesTheirCounters(t *testing.T) {
	var h History
	var all All
	const begin = uint32(1000 * 60)
	now := timeline.Begin(begin)
	if !h.FollowThrottle("api", false, now) {
		t.Fatal("there is no room for the first one")
	}
	passed := uint64(0)
	look := func(string) (ThrottleNumbers, bool) {
		return ThrottleNumbers{Passed: passed, Refused: passed / 2, Leases: 3, Waiting: int64(passed % 7)}, true
	}
	for i := range uint32(30) {
		if passed += 10; i == 15 {
			passed = 4 // it had left memory
		}
		h.recordThrottles(&all, begin+i, look)
	}
	list := h.OfThrottle("api", 90)
	if len(list) < 28 {
		t.Fatalf("%d moments", len(list))
	}
	for i, m := range list[1:] {
		grown := m.Passed - list[i].Passed
		if grown != 10 && grown != 4 || m.Leases != 3 || m.At.Sub(list[i].At) != timeline.Length {
			t.Errorf("%+v after %+v", m, list[i])
		}
	}

	var restored History
	h.EachThrottle(func(name string, rec *storage.History) {
		var read storage.History
		if err := read.Decode(rec.Append(nil)); err != nil || name != "api" || !restored.RestoreThrottle(name, &read) {
			t.Fatalf("%s: %v", name, err)
		}
	}, func(name string) { t.Errorf("%s is gone", name) })
	h.EachThrottle(func(name string, _ *storage.History) { t.Errorf("%s is written again", name) }, func(string) {})
	restored.begun = begin
	passed = 0
	restored.recordThrottles(&all, begin+36, look)
	if list := restored.OfThrottle("api", 360); len(list) < 4 || list[len(list)-1].Passed != 244 {
		t.Errorf("after a start: %+v", list)
	}
}

func TestFewThrottlesHaveAHistory(t *testing.T) {
	var h History
	now := timeline.Begin(60_000)
	for i := range ThrottlesMax {
		if !h.FollowThrottle(fmt.Sprint("t", i), false, now) {
			t.Fatalf("there is no room for number %d", i)
		}
	}
	if h.FollowThrottle("more", false, now) || !h.FollowThrottle("asked", true, now) || len(h.throttles.byName) != ThrottlesMax || h.OfThrottle("more", 1) != nil {
		t.Errorf("%d are followed", len(h.throttles.byName))
	}
	for i := range ThrottlesMax - 1 {
		if !h.FollowThrottle(fmt.Sprint("asked", i), true, now) {
			t.Fatalf("there is no room for asked number %d", i)
		}
	}
	if h.FollowThrottle("late", true, now) {
		t.Error("one that was asked for has given its place")
	}
	if !h.FollowThrottle("late", true, now+int64(WatchedFor)) {
		t.Error("they keep their places for good")
	}
}

func TestAThrottleWithoutLimitsIsForgotten(t *testing.T) {
	var h History
	var all All
	begin := uint32(60_000)
	h.FollowThrottle("api", true, timeline.Begin(begin))
	var gone []string
	for i := range 3 * uint32(time.Hour/timeline.Length) {
		h.recordThrottles(&all, begin+i, func(string) (ThrottleNumbers, bool) { return ThrottleNumbers{Passed: 5}, false })
		h.EachThrottle(func(string, *storage.History) {}, func(name string) { gone = append(gone, name) })
	}
	if len(gone) != 1 || gone[0] != "api" || h.OfThrottle("api", 1) != nil {
		t.Errorf("gone are %v", gone)
	}
}
