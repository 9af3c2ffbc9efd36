// Package adaptive computes a limit of concurrency from how work goes: it grows while work
// succeeds and is cut while it fails, as the window of a TCP connection does (additive increase,
// multiplicative decrease: Chiu and Jain, 1989). It knows neither clocks nor leases: the caller
// says how many leases are in use, and when a lease began in relation to a cut.
//
// A limit is kept in millionths, rounded down: the same successes and failures give the same
// limit on any machine. One that lacks less than 20 of them of a whole number is that number, as it
// would be without rounding.
package adaptive

import "math/bits"

const (
	unit = 1_000_000 // one lease, in millionths

	// A limit grows from 1 to its most within some 20 rounds of leases, one at a time for a most
	// of up to 20.
	rounds = 20

	// What as many roundings may take, in millionths.
	rounded = 20

	// A cut leaves seven tenths of the limit.
	cutTo, cutOf = 7, 10
)

// Limit is how many leases may be in use at a time: between a least and a most, both included.
type Limit struct {
	least, most, value int64  // millionths
	cutAt              int64  // when the last cut was, see Failure; 0: there was none
	cuts               uint64 // failures that have cut the limit
}

// New returns a limit that begins with the most. Both are from 1 to 1e9, and least <= most.
func New(least, most uint64) *Limit {
	l := &Limit{value: int64(most) * unit}
	l.Set(least, most)
	return l
}

// Set changes the bounds. The limit stays where it is, or goes to the bound that it exceeds.
func (l *Limit) Set(least, most uint64) {
	l.least, l.most = int64(least)*unit, int64(most)*unit
	l.value = min(max(l.value, l.least), l.most)
}

// Slots is how many leases the limit allows at a time, at least 1.
func (l *Limit) Slots() int64 { return l.value / unit }

// Value is the limit, of which Slots is the whole part.
func (l *Limit) Value() float64 { return float64(l.value) / unit }

// Cuts is how many failures have cut the limit, also those that found it at its least.
func (l *Limit) Cuts() uint64 { return l.cuts }

// Success tells that the work of a lease went well while so many leases were in use, this one
// included. Where they were at least half of the limit it grows by max(1, most/20) divided by
// the limit, so by that much in a round in which every slot is used once. Fewer leases say nothing
// about whether the provider could do more.
func (l *Limit) Success(inUse int64) {
	if l.value == l.most || 2*inUse*unit < l.value {
		return
	}
	hi, lo := bits.Mul64(uint64(max(unit, l.most/rounds)), unit)
	more, _ := bits.Div64(hi, lo, uint64(l.value))
	l.value = min(whole(l.value+int64(more)), l.most)
}

// whole returns the whole number that a value lacks less than rounded of, or the value.
func whole(value int64) int64 {
	if short := unit - value%unit; short < rounded {
		return value + short
	}
	return value
}

// Failure tells at a time that the work of a lease has failed, which began at another. A lease
// that began at the time of the last cut or before belongs to the failures that it was made for,
// so many failures at once are one cut. A later one cuts the limit. Failure reports whether it
// has cut. Times are numbers above 0 that do not go back.
func (l *Limit) Failure(began, now int64) bool {
	if began <= l.cutAt {
		return false
	}
	l.value = max(whole(l.value*cutTo/cutOf), l.least)
	l.cutAt = now
	l.cuts++
	return true
}
