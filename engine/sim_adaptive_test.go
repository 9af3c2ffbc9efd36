package engine

import (
	"math"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/internal/adaptive"
)

// limitOracle judges the limits of adaptive throttles in the simulation: what an answer of a
// client does to a limit follows from the formulas and from the order of deliveries and cuts, and
// no delivery exceeds a limit. A cut by the expiry of a lease is seen by the next look, which
// precedes every delivery that follows it.
type limitOracle struct {
	moment int // the last delivery or cut, in their order
	began  map[Receipt]int
	seen   map[*adaptive.Limit]*limitSeen
	checks int // answers whose effect on a limit was known
}

// limitSeen is what the oracle knows of a limit.
type limitSeen struct {
	cuts  uint64
	cutAt int // moment of the last cut; 0: none
}

func newLimitOracle() limitOracle {
	return limitOracle{began: map[Receipt]int{}, seen: map[*adaptive.Limit]*limitSeen{}}
}

// limitMillionths is a limit as the formulas have it.
func limitMillionths(l *adaptive.Limit) int64 { return int64(math.Round(l.Value() * 1e6)) }

// grown is a limit in millionths after a success.
func grown(value int64, most, inUse int64) int64 {
	const unit = 1_000_000
	if 2*inUse*unit < value {
		return value
	}
	return min(unrounded(value+max(unit, most*unit/20)*unit/value), most*unit)
}

// cut is a limit in millionths after a failure.
func cut(value int64, least int64) int64 { return max(unrounded(value*7/10), least*1_000_000) }

// unrounded is a limit that lacks less than 20 millionths of a whole number, which rounding has taken.
func unrounded(value int64) int64 {
	if next := (value + 19) / 1_000_000 * 1_000_000; next > value {
		return next
	}
	return value
}

// lookAtLimits records the cuts since the last look.
func (o *oracle) lookAtLimits(c *core) {
	for name, t := range c.order.Inside().AllThrottles() {
		l := t.Adaptive
		if (l != nil) != (t.Limits.AdaptiveMin > 0) {
			o.fail("throttle %s: its setting %+v does not say whether it is adaptive", name, t.Limits)
		}
		if l == nil {
			continue
		}
		if v := l.Value(); v < float64(t.Limits.AdaptiveMin) || v > float64(t.Limits.Concurrency) {
			o.fail("throttle %s has the limit %f, out of %d to %d", name, v, t.Limits.AdaptiveMin, t.Limits.Concurrency)
		}
		seen := o.adaptive.seen[l]
		if seen == nil {
			seen = &limitSeen{}
			o.adaptive.seen[l] = seen
		}
		if seen.cuts != l.Cuts() {
			o.adaptive.moment++
			seen.cuts, seen.cutAt = l.Cuts(), o.adaptive.moment
		}
	}
}

// leased records a delivery, which must not exceed a limit.
func (o *oracle) leased(c *core, r Receipt, throttles []string) {
	o.lookAtLimits(c)
	o.adaptive.moment++
	o.adaptive.began[r] = o.adaptive.moment
	for _, name := range throttles {
		if t, _ := c.order.Inside().Throttle(name); t.Adaptive != nil && t.InUse > int64(t.Adaptive.Value()) {
			o.fail("%d leases of throttle %s, whose limit is %f", t.InUse, name, t.Adaptive.Value())
		}
	}
}

// limitBefore is an adaptive throttle before an answer.
type limitBefore struct {
	name        string
	limit       *adaptive.Limit
	value       int64
	inUse       int64
	least, most int64
	began       int // of the lease; 0: not known
	was         adaptive.Limit
}

// limitsOf returns the adaptive throttles that the lease of a receipt counts for.
func (o *oracle) limitsOf(c *core, r Receipt) (before []limitBefore) {
	o.lookAtLimits(c)
	m := c.leases.byID[r.ID]
	if m == nil || m.fence != r.Fence {
		return nil
	}
	for _, name := range m.throttleKeys() {
		if t, _ := c.order.Inside().Throttle(name); t.Adaptive != nil {
			before = append(before, limitBefore{
				name: name, limit: t.Adaptive, value: limitMillionths(t.Adaptive), inUse: t.InUse, least: int64(t.Limits.AdaptiveMin), most: int64(t.Limits.Concurrency),
				began: o.adaptive.began[r], was: *t.Adaptive,
			})
		}
	}
	return before
}

// limitsAfter compares the limits after an answer with what it says.
func (o *oracle) limitsAfter(before []limitBefore, is limitOutcome) {
	for i := range before {
		b := &before[i]
		want, cuts := b.value, b.was.Cuts()
		switch is {
		case limitGrows:
			want = grown(b.value, b.most, b.inUse)
		case limitIsCut:
			if b.began == 0 {
				continue
			}
			if b.began > o.adaptive.seen[b.limit].cutAt {
				want = cut(b.value, b.least)
				cuts++
			}
		case limitStays:
		}
		o.adaptive.checks++
		if got := limitMillionths(b.limit); got != want || b.limit.Cuts() != cuts {
			o.fail("throttle %s had the limit %d with %d leases and has %d after %d cuts, want %d after %d", b.name, b.value, b.inUse, got, b.limit.Cuts(), want, cuts)
		}
	}
}

// limitOutcome is what an answer does to limits.
type limitOutcome int

const (
	limitStays limitOutcome = iota
	limitGrows
	limitIsCut
)

// outcomeOf is limitStays unless the engine has taken the answer.
func outcomeOf(taken bool, o limitOutcome) limitOutcome {
	if !taken {
		return limitStays
	}
	return o
}

// unlimited has adaptive throttles allow their concurrency until back is called.
func (s *sim) unlimited(c *core) (back func()) {
	p := c.order.Inside()
	var were []dispatch.InsideThrottle
	for _, t := range p.AllThrottles() {
		if t.Adaptive != nil {
			were = append(were, t)
			p.SetAdaptive(t, nil)
		}
	}
	return func() {
		for _, t := range were {
			p.SetAdaptive(t, t.Adaptive)
		}
	}
}
