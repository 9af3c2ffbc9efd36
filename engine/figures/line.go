package figures

import (
	"math"
	"slices"
	"time"
)

// Time is cut into steps of the same length for all lines. A line stores the numbers of a step only
// where they differ from those of the step before, so what does not change takes no memory, and
// steps in which nothing looked at a queue are set together, when something does: nothing has changed
// meanwhile.

const (
	// Length is the length of a step.
	Length = 10 * time.Second
	// Steps is how many steps a line goes back, its newest one included.
	Steps = 60
)

// StepAt returns the step of a time in Unix nanoseconds.
func StepAt(nanos int64) uint32 { return uint32(nanos / int64(Length)) }

// beginOf returns the beginning of a step in Unix nanoseconds.
func beginOf(step uint32) int64 { return int64(step) * int64(Length) }

// Numbers are what a line has of a queue.
type Numbers struct {
	Flow
	ByStatus
}

// values are numbers as they are stored: events modulo 2^32, and messages up to 2^32-1.
type values [9]uint32

func (n *Numbers) values() (v values) {
	for i, events := range [5]uint64{n.Enqueued, n.Delivered, n.Acked, n.Nacked, n.Expired} {
		v[i] = uint32(events)
	}
	for i, messages := range [4]int64{n.Ready, n.Delayed, n.Leased, n.Dead} {
		v[5+i] = uint32(min(max(messages, 0), math.MaxUint32))
	}
	return v
}

// numbers returns the numbers that were stored, which are now those of n. Less than 2^32 events
// have happened since.
func (v *values) numbers(n Numbers) Numbers {
	for i, events := range []*uint64{&n.Enqueued, &n.Delivered, &n.Acked, &n.Nacked, &n.Expired} {
		*events -= uint64(uint32(*events) - v[i])
	}
	n.Ready, n.Delayed, n.Leased, n.Dead = int64(v[5]), int64(v[6]), int64(v[7]), int64(v[8])
	return n
}

// line is what the numbers were at the beginning of each step; before the first one that is set
// they were zero. The zero line is empty. It takes 40 bytes for each step in which a number has
// changed, at most 61 of them.
type line struct {
	points []point // of rising steps; the first may be older than Steps: it says what was before the others
}

type point struct {
	step   uint32
	values values
}

// set says what the numbers are at the beginning of a step and of all that follow, until it is
// called for a later one. Steps must not fall; the last call for a step counts.
func (l *line) set(step uint32, now Numbers) {
	v, n := now.values(), len(l.points)
	if n > 0 && l.points[n-1].step == step {
		l.points[n-1].values = v
		return
	}
	l.forget(step)
	if n = len(l.points); n == 0 && v == (values{}) || n > 0 && l.points[n-1].values == v {
		return
	}
	l.points = append(l.points, point{step, v})
}

// forget drops the points that no step of the Steps up to this one needs.
func (l *line) forget(step uint32) {
	first := 0 // the last point that is not after the first of these steps
	for first+1 < len(l.points) && l.points[first+1].step+Steps <= step+1 {
		first++
	}
	switch {
	case first == 0:
	case first == len(l.points)-1:
		l.points = []point{l.points[first]} // an idle line returns its memory
	default:
		l.points = slices.Delete(l.points, 0, first)
	}
}

// at returns the numbers at the beginning of a step, which is one of the last Steps. now are the
// present ones.
func (l *line) at(step uint32, now Numbers) Numbers {
	i, found := slices.BinarySearchFunc(l.points, step, func(p point, step uint32) int { return int(int64(p.step) - int64(step)) })
	switch {
	case found:
		return l.points[i].values.numbers(now)
	case i == 0:
		return Numbers{}
	}
	return l.points[i-1].values.numbers(now)
}
