// Package decay keeps sums that fade exponentially with time. For a window of length w, a sum
// of values v that were added at times t is at the time now
//
//	Σ v · e^(-(now-t)/w)
//
// # Forward decay
//
// Fading each sum whenever it is touched costs an exponential for each window and addition.
// Forward decay (Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009) measures time from a fixed
// landmark L instead. A [Sum] holds
//
//	Σ v · e^((t-L)/w)
//
// so an addition multiplies its value by a weight that depends on its time only, and is the same
// for all additions of a moment ([Windows.At]). Reading divides by e^((now-L)/w).
//
// Weights grow with the distance from the landmark, so landmarks move on: those of a window are
// the multiples of 64 w since 1970, and the landmark of a sum is the last one before its newest
// value. Weights are therefore at most e^64. A sum that is touched behind a later landmark is
// first multiplied by e^(-64) for each landmark between. Since landmarks depend on nothing but
// time, equal additions at equal times give equal bits, also across restarts.
//
// Rounding: the argument of a weight is at most 64 and exact to 53 bits, so a weight has a
// relative error of about 1e-14. For values of one sign the error of a sum stays below 1e-9
// after any number of additions; the tests compare with exact sums.
package decay

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// WindowsMax is the largest number of windows.
	WindowsMax = 4
	// LengthMin is the least length of a window.
	LengthMin = time.Second
	// LengthMax is the greatest length of a window.
	LengthMax = 365 * 24 * time.Hour
	// All is the name of the sum that never fades.
	All = "all"
	// landmarkLengths is the distance of two landmarks, in lengths of the window.
	landmarkLengths = 64
)

// Windows are the windows of all sums. They are immutable.
type Windows struct {
	n       int
	lengths [WindowsMax]int64 // nanoseconds, rising
	names   [WindowsMax]string
}

// NewWindows returns windows of rising lengths in whole milliseconds, 1 to WindowsMax of them.
func NewWindows(lengths []time.Duration) (*Windows, error) {
	if len(lengths) == 0 || len(lengths) > WindowsMax {
		return nil, fmt.Errorf("%d windows, there must be from 1 to %d", len(lengths), WindowsMax)
	}
	w := &Windows{n: len(lengths)}
	for i, d := range lengths {
		switch {
		case d < LengthMin || d > LengthMax:
			return nil, fmt.Errorf("a window of %d ms, it must be from %d to %d", d.Milliseconds(), LengthMin.Milliseconds(), LengthMax.Milliseconds())
		case d%time.Millisecond != 0:
			return nil, errors.New("a window is whole milliseconds long")
		case i > 0 && d <= lengths[i-1]:
			return nil, errors.New("each window must be longer than the one before")
		}
		w.lengths[i], w.names[i] = int64(d), name(d)
	}
	return w, nil
}

// name returns the length of a window in the largest unit that divides it, up to hours.
func name(d time.Duration) string {
	for _, u := range []struct {
		unit   time.Duration
		suffix string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.suffix
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// Len returns the number of windows.
func (w *Windows) Len() int { return w.n }

// Name returns the name of window i, such as 5m; All behind the last one.
func (w *Windows) Name(i int) string {
	if i == w.n {
		return All
	}
	return w.names[i]
}

// String returns the names of all windows, separated by blanks.
func (w *Windows) String() string { return strings.Join(append(slices.Clone(w.names[:w.n]), All), " ") }

// Length returns the length of window i.
func (w *Windows) Length(i int) time.Duration { return time.Duration(w.lengths[i]) }

// Index returns the window of a name, Len for All. ok is false if there is none.
func (w *Windows) Index(name string) (i int, ok bool) {
	for i := range w.n {
		if w.names[i] == name {
			return i, true
		}
	}
	return w.n, name == All
}

// landmark returns the last landmark of window i that is not after a time.
func (w *Windows) landmark(i int, at int64) int64 {
	at = max(at, 0)
	return at - at%(landmarkLengths*w.lengths[i])
}

// Weights are what a moment gives each window: they are computed once for all additions of that
// moment. The zero value is no moment.
type Weights struct {
	at        int64 // Unix nanoseconds
	landmarks [WindowsMax]int64
	by        [WindowsMax]float64
}

// At returns the weights of a time in Unix nanoseconds.
func (w *Windows) At(at int64) Weights {
	m := Weights{at: at}
	for i := range w.n {
		m.landmarks[i] = w.landmark(i, at)
		m.by[i] = math.Exp(w.ages(i, at-m.landmarks[i]))
	}
	return m
}

// Time returns the moment of the weights, in Unix nanoseconds.
func (m *Weights) Time() int64 { return m.at }

// ages returns a duration in lengths of window i.
func (w *Windows) ages(i int, d int64) float64 { return float64(d) / float64(w.lengths[i]) }

// fade returns x · e^(-age) in steps, because e^(-age) alone may be too small for a float64 where
// the product is not.
func fade(x, age float64) float64 {
	const step = 600
	for ; age > step && x != 0; age -= step {
		x *= math.Exp(-step)
	}
	return x * math.Exp(-age)
}

// Sum is the faded sums of the values that were added to it, one for each window, and the sum that
// never fades. One goroutine adds; any number of others may read at the same time. The zero value
// is empty.
type Sum struct {
	// version is odd while the sums are moved to other landmarks. A reader that has seen two
	// different versions, or an odd one, reads again.
	version atomic.Uint32
	at      atomic.Int64              // Unix nanoseconds of the newest value; 0: none
	by      [WindowsMax]atomic.Uint64 // bits of the sum relative to the landmark of at
	all     atomic.Uint64             // bits of the sum that never fades
}

// Time returns the time of the newest value in Unix nanoseconds, 0 if there is none.
func (s *Sum) Time() int64 { return s.at.Load() }

func add(to *atomic.Uint64, v float64) {
	to.Store(math.Float64bits(math.Float64frombits(to.Load()) + v))
}

// Add adds a finite value at the moment of the weights, which may lie before that of earlier
// values.
func (s *Sum) Add(w *Windows, m *Weights, v float64) {
	at := s.at.Load()
	add(&s.all, v)
	if m.at < at {
		for i := range w.n {
			add(&s.by[i], fade(v, w.ages(i, w.landmark(i, at)-m.at)))
		}
		return
	}
	if m.at > at {
		s.advance(w, m, at)
	}
	for i := range w.n {
		add(&s.by[i], v*m.by[i])
	}
}

// advance makes the moment that of the newest value, and moves the sums to its landmarks.
func (s *Sum) advance(w *Windows, m *Weights, from int64) {
	passed := false
	for i := range w.n {
		passed = passed || from < m.landmarks[i] // else from has the same landmark
	}
	if !passed {
		s.at.Store(m.at)
		return
	}
	s.version.Add(1)
	for i := range w.n {
		if from < m.landmarks[i] {
			x := math.Float64frombits(s.by[i].Load())
			s.by[i].Store(math.Float64bits(fade(x, w.ages(i, m.landmarks[i]-w.landmark(i, from)))))
		}
	}
	s.at.Store(m.at)
	s.version.Add(1)
}

// Value returns the sum of window i at a time in Unix nanoseconds; window Len is the sum that never
// fades. A time before the newest value counts as that of the value, so that a clock that is set back
// makes nothing grow. Sums below 1e-300 may be 0.
func (s *Sum) Value(w *Windows, i int, now int64) float64 {
	if i == w.n {
		return math.Float64frombits(s.all.Load())
	}
	for {
		version := s.version.Load()
		at, bits := s.at.Load(), s.by[i].Load()
		if version%2 == 0 && s.version.Load() == version {
			return fade(math.Float64frombits(bits), w.ages(i, max(now, at)-w.landmark(i, at)))
		}
		runtime.Gosched()
	}
}

// State is a Sum as it is stored.
type State struct {
	At  int64 // Unix nanoseconds of the newest value
	All float64
	By  [WindowsMax]Stored
}

// Stored is the sum of one window, relative to its landmark before State.At.
type Stored struct {
	Length time.Duration // of the window; 0: there is none
	Sum    float64
}

// State returns what is stored of the sum. Only the goroutine that adds may call it.
func (s *Sum) State(w *Windows) State {
	st := State{At: s.at.Load(), All: math.Float64frombits(s.all.Load())}
	for i := range w.n {
		st.By[i] = Stored{w.Length(i), math.Float64frombits(s.by[i].Load())}
	}
	return st
}

// Restore sets an empty sum to a stored one. Windows that are not stored are empty, stored ones that
// do not exist any more are dropped.
func (s *Sum) Restore(w *Windows, st *State) {
	s.at.Store(st.At)
	s.all.Store(math.Float64bits(st.All))
	for _, b := range st.By {
		for i := range w.n {
			if w.lengths[i] == int64(b.Length) {
				s.by[i].Store(math.Float64bits(b.Sum))
			}
		}
	}
}
