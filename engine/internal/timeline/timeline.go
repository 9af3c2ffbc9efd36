// Package timeline keeps what numbers were, at three resolutions: every ten seconds, every minute, every ten minutes.
//
// Time is cut into steps of ten seconds, and at a coarser resolution into steps of several of these. A line has the
// numbers of a step only where they differ from those of the step before, so what does not change takes no memory, and
// steps in which nothing looked at them are set together, when something does: nothing has changed meanwhile.
//
//	Seconds   ten seconds  the last 15 minutes
//	Minutes   a minute     the last hour
//	Tens      ten minutes  the last day
package timeline

import (
	"slices"
	"time"
)

// Resolution is how far apart the steps of a line are.
type Resolution uint8

// The resolutions, the finest first.
const (
	Seconds Resolution = iota
	Minutes
	Tens
	Resolutions = 3
)

// Length is the length of a step of the finest resolution. All steps that have no resolution beside them are such.
const Length = 10 * time.Second

// Every returns the length of a step, in steps of the finest resolution.
func (r Resolution) Every() uint32 { return [...]uint32{1, 6, 60}[r] }

// Steps returns how many steps a line goes back, its newest one included.
func (r Resolution) Steps() uint32 { return [...]uint32{90, 60, 144}[r] }

// Span returns how far a line goes back, in steps of the finest resolution.
func (r Resolution) Span() uint32 { return r.Every() * r.Steps() }

// first returns the first step of the resolution that does not begin before a step of the finest.
func (r Resolution) first(step uint32) uint32 { return (step + r.Every() - 1) / r.Every() }

// StepAt returns the step of a time in Unix nanoseconds.
func StepAt(nanos int64) uint32 { return uint32(nanos / int64(Length)) }

// Begin returns the beginning of a step in Unix nanoseconds.
func Begin(step uint32) int64 { return int64(step) * int64(Length) }

// Lines are what numbers were at the beginning of each step; before the first one that is set they were zero. The zero
// value is empty. Each point takes the size of V and 4 bytes more.
type Lines[V comparable] [Resolutions]line[V]

// Point is what the numbers are from a step of a resolution on.
type Point[V comparable] struct {
	Step   uint32
	Values V
}

type line[V comparable] struct {
	points []Point[V] // of rising steps; the first may be older than the line goes back: it says what was before the others
}

// Set says what the numbers have been from a step up to another, at the resolutions up to one. Steps must not fall; the
// last call for a step counts.
func (l *Lines[V]) Set(coarsest Resolution, from, to uint32, now V) {
	for r := range coarsest + 1 {
		if at := r.first(from); at*r.Every() <= to {
			l[r].set(at, r.Steps(), now)
		}
	}
}

// At returns the numbers at the beginning of a step of a resolution, and whether any were set by then.
func (l *Lines[V]) At(r Resolution, step uint32) (v V, set bool) { return l[r].at(step) }

// Points returns those of a resolution. They are shared and change.
func (l *Lines[V]) Points(r Resolution) []Point[V] { return l[r].points }

// Changed returns the step, of the finest resolution, of the newest point of the minutes and the tens; 0: there is none.
func (l *Lines[V]) Changed() (step uint32) {
	for r := Minutes; r < Resolutions; r++ {
		if p := l[r].points; len(p) > 0 {
			step = max(step, p[len(p)-1].Step*r.Every())
		}
	}
	return step
}

// Restore sets the points of a resolution, of rising steps, which the lines keep.
func (l *Lines[V]) Restore(r Resolution, points []Point[V]) { l[r].points = points }

// Last returns the newest numbers of the minutes, of the tens where there are none.
func (l *Lines[V]) Last() (v V) {
	for _, r := range []Resolution{Tens, Minutes} {
		if p := l[r].points; len(p) > 0 {
			v = p[len(p)-1].Values
		}
	}
	return v
}

// Cut drops the points behind a step: the clock has gone back.
func (l *Lines[V]) Cut(step uint32) {
	for r := range Resolution(Resolutions) {
		p := l[r].points
		for len(p) > 0 && p[len(p)-1].Step*r.Every() > step {
			p = p[:len(p)-1]
		}
		l[r].points = p
	}
}

func (l *line[V]) set(step, steps uint32, now V) {
	n := len(l.points)
	if n > 0 && l.points[n-1].Step == step {
		l.points[n-1].Values = now
		return
	}
	l.forget(step, steps)
	var zero V
	if n = len(l.points); n == 0 && now == zero || n > 0 && l.points[n-1].Values == now {
		return
	}
	l.points = append(l.points, Point[V]{step, now})
}

// forget drops the points that none of the steps up to this one needs.
func (l *line[V]) forget(step, steps uint32) {
	first := 0 // the last point that is not after the first of these steps
	for first+1 < len(l.points) && l.points[first+1].Step+steps <= step+1 {
		first++
	}
	switch {
	case first == 0:
	case first == len(l.points)-1:
		l.points = []Point[V]{l.points[first]} // an idle line returns its memory
	default:
		l.points = slices.Delete(l.points, 0, first)
	}
}

func (l *line[V]) at(step uint32) (v V, set bool) {
	i, found := slices.BinarySearchFunc(l.points, step, func(p Point[V], step uint32) int { return int(int64(p.Step) - int64(step)) })
	switch {
	case found:
		return l.points[i].Values, true
	case i == 0:
		return v, false
	}
	return l.points[i-1].Values, true
}

// Known says of which steps something is known.
type Known struct {
	Since   uint32 // from which on the numbers are known
	Seconds uint32 // from which on they are known at the finest resolution: a start forgets what was before
	Until   uint32 // the last one
}

// Place is a step of a resolution.
type Place struct {
	Resolution Resolution
	Step       uint32
}

// Begin returns the beginning of the step, of the finest resolution.
func (p Place) Begin() uint32 { return p.Step * p.Resolution.Every() }

// Places returns where to look for what is known of the last steps, at the finest resolution that goes back so far, and
// at the coarsest one at most. The last place is the newest step.
func (k Known) Places(last uint32, coarsest Resolution) (places []Place) {
	if k.Until == 0 || k.Since > k.Until {
		return nil
	}
	last = max(min(last, coarsest.Span()), 1)
	from := max(k.Since, k.Until-min(last, k.Until)+1)
	r := Seconds
	for r < coarsest && r.Span() < k.Until-from+1 {
		r++
	}
	until := k.Until + 1 // where a finer resolution takes over
	if r == Seconds {
		r, until = Minutes, max(from, min(k.Seconds, k.Until))
	}
	for step := r.first(from); step*r.Every() < until; step++ {
		places = append(places, Place{r, step})
	}
	for step := until; step <= k.Until; step++ {
		places = append(places, Place{Seconds, step})
	}
	if n := len(places); n == 0 || places[n-1].Begin() < k.Until {
		places = append(places, Place{Seconds, k.Until})
	}
	return places
}
