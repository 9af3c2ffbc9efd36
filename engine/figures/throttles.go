package figures

import (
	"maps"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/timeline"
	"github.com/faisca/fila/storage"
)

// ThrottlesMax is how many throttles have a history: those with a setting while there is room, and any that a client asks for,
// in place of the one that has changed least lately. One that was asked for in the last WatchedFor stays, and one without
// a setting that has not changed for an hour is not followed any more.
const ThrottlesMax = 64

// ThrottleNumbers are what a history has of a throttle.
type ThrottleNumbers struct {
	Passed, Refused uint64 // deliveries that it admitted; times that it stopped keys
	Leases, Waiting int64
}

// ThrottleMoment is what a throttle had done and held at one time. Its counters begin when it is followed.
type ThrottleMoment struct {
	At time.Time
	ThrottleNumbers
}

// throttleValues are numbers as they are stored, counters modulo 2^32.
type throttleValues [4]uint32

func (v *throttleValues) slice() []uint32 { return v[:] }

// throttleLine is the history of a throttle.
type throttleLine struct {
	since   uint32
	watched int64           // until then it stays, Unix nanoseconds
	took    ThrottleNumbers // when it was looked at: the counters of a throttle begin again when it leaves memory
	sum     ThrottleNumbers // its counters over all that
	lines   timeline.Lines[throttleValues]
	written uint32 // the last step that a record has
	stored  bool   // there is a record
}

// throttles are the followed ones. They are few, so each is looked at in each step.
type throttles struct {
	byName map[string]*throttleLine
	gone   []string // not followed any more, with a record
}

// FollowThrottle follows a throttle; with asked for some minutes at least, also if that takes the place of another. It
// reports whether it is followed.
func (h *History) FollowThrottle(name string, asked bool, now int64) bool {
	t := &h.throttles
	l := t.byName[name]
	if l == nil {
		if len(t.byName) >= ThrottlesMax && (!asked || !t.makeRoom(now)) {
			return false
		}
		l = &throttleLine{since: timeline.StepAt(now) + 1}
		t.add(name, l)
	}
	if asked {
		l.watched = now + int64(WatchedFor)
	}
	return true
}

func (t *throttles) add(name string, l *throttleLine) {
	if t.byName == nil {
		t.byName = map[string]*throttleLine{}
	}
	t.byName[name] = l
}

// names returns those of the followed throttles in their order, as batches are a function of what has happened.
func (t *throttles) names() []string { return slices.Sorted(maps.Keys(t.byName)) }

// makeRoom stops following the throttle that has changed least lately, of equal ones the first by name.
func (t *throttles) makeRoom(now int64) bool {
	least, at := "", uint32(0)
	for name, l := range t.byName {
		if c := max(l.lines.Changed(), l.since); l.watched <= now && (least == "" || c < at || c == at && name < least) {
			least, at = name, c
		}
	}
	if least != "" {
		t.drop(least)
	}
	return least != ""
}

func (t *throttles) drop(name string) {
	if t.byName[name].stored {
		t.gone = append(t.gone, name)
	}
	delete(t.byName, name)
}

// RecordThrottles records the followed throttles. look returns what one has done since it is in memory and holds, and
// whether it has limits. It returns how many were looked at.
func (h *History) RecordThrottles(now int64, look func(name string) (n ThrottleNumbers, limited bool)) int {
	t := &h.throttles
	looked := len(t.byName)
	for _, name := range t.names() {
		l := t.byName[name]
		if h.fine == 0 { // after a start
			l.lines.Cut(h.step)
			l.since = min(l.since, h.step)
		}
		n, limited := look(name)
		l.sum.Passed += growth(l.took.Passed, n.Passed)
		l.sum.Refused += growth(l.took.Refused, n.Refused)
		l.took = n
		l.lines.Set(timeline.Minutes, max(h.from(), min(l.since, h.step)), h.step,
			throttleValues{uint32(l.sum.Passed), uint32(l.sum.Refused), bounded(n.Leases), bounded(n.Waiting)})
		if !limited && l.watched <= now && h.step-min(max(l.lines.Changed(), l.since), h.step) > idleFor {
			t.drop(name)
		}
	}
	return looked
}

// growth returns how much a counter has grown, which may have begun again at zero.
func growth(was, is uint64) uint64 {
	if is < was {
		return is
	}
	return is - was
}

// OfThrottle returns the moments of a followed throttle in the last steps of ten seconds, an hour at most, the oldest first.
func (h *History) OfThrottle(name string, last uint32) (list []ThrottleMoment) {
	l := h.throttles.byName[name]
	if l == nil {
		return nil
	}
	for _, p := range h.known(max(l.since, h.begun)).Places(last, timeline.Minutes) {
		v, _ := l.lines.At(p.Resolution, p.Step)
		list = append(list, ThrottleMoment{time.Unix(0, timeline.Begin(p.Begin())), ThrottleNumbers{
			grown(v[0], l.sum.Passed), grown(v[1], l.sum.Refused), int64(v[2]), int64(v[3]),
		}})
	}
	return list
}

// EachThrottle calls put with the record of each throttle that has changed since its last one, and gone with each that is
// not followed any more and has a record.
func (h *History) EachThrottle(put func(name string, rec *storage.History), gone func(name string)) {
	t := &h.throttles
	for _, name := range t.gone {
		gone(name)
	}
	t.gone = nil
	for _, name := range t.names() {
		l := t.byName[name]
		if at := l.lines.Changed(); at > l.written {
			l.written, l.stored = at, true
			put(name, record(&l.lines, l.since, (*throttleValues).slice))
		}
	}
}

// RestoreThrottle follows a throttle again at a start. It reports whether there is room for it.
func (h *History) RestoreThrottle(name string, rec *storage.History) bool {
	l := &throttleLine{since: rec.Begun, stored: true}
	if len(h.throttles.byName) >= ThrottlesMax || !restore(&l.lines, rec, (*throttleValues).slice) {
		return false
	}
	v := l.lines.Last()
	l.sum.Passed, l.sum.Refused, l.written = uint64(v[0]), uint64(v[1]), l.lines.Changed()
	h.throttles.add(name, l)
	return true
}
