package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/faisca/fila/engine"
)

// topThrottles collects the throttles that may have series: those that have them, those with
// most keys waiting, and the oldest where no others fill the places.
type topThrottles struct {
	most   int
	places *places
	all    int
	held   map[string]*engine.ThrottleInfo // with a place
	top    []*engine.ThrottleInfo          // at most twice as many as there are places
}

// offer looks at a throttle.
func (t *topThrottles) offer(i *engine.ThrottleInfo) {
	t.all++
	if t.places.by[i.Key] != nil {
		t.held[i.Key] = i
	}
	if t.top = append(t.top, i); len(t.top) >= 2*t.most {
		t.cut()
	}
}

// cut leaves those with most keys waiting; of others the oldest stay.
func (t *topThrottles) cut() {
	slices.SortStableFunc(t.top, func(a, b *engine.ThrottleInfo) int { return cmp.Compare(b.Waiting, a.Waiting) })
	if len(t.top) > t.most {
		clear(t.top[t.most:])
		t.top = t.top[:t.most]
	}
}

// throttleSample is a throttle at one moment, and its counters as shown.
type throttleSample struct {
	*engine.ThrottleInfo
	passed, refused, waited, cuts uint64 // waited in nanoseconds
}

// choose gives places to throttles and returns those that have one.
func (t *topThrottles) choose(now time.Time) []throttleSample {
	t.cut()
	p := t.places
	unlimited := t.most // the places are bounded by their number alone
	for name := range p.by {
		if t.held[name] == nil {
			p.drop(name, &unlimited) // it was deleted
		}
	}
	wanted := make([]string, len(t.top))
	for i, info := range t.top {
		wanted[i] = info.Key
	}
	unlimited = t.most
	p.choose(now, wanted, t.most, &unlimited)
	for _, info := range t.top {
		if p.by[info.Key] != nil {
			t.held[info.Key] = info
		}
	}
	samples := make([]throttleSample, 0, len(p.by))
	for name, at := range p.by {
		i := t.held[name]
		samples = append(samples, throttleSample{
			ThrottleInfo: i, passed: at.counters[0].see(i.Admitted), refused: at.counters[1].see(i.Refused),
			waited: at.counters[2].see(uint64(max(i.Waited, 0))), cuts: at.counters[3].see(i.Cuts),
		})
	}
	slices.SortFunc(samples, func(a, b throttleSample) int { return cmp.Compare(a.Key, b.Key) })
	return samples
}

// write writes the series of a throttle.
func (t *throttleSample) write(f *families) {
	l := label(labelThrottle, text(t.Key))
	f.value(throttleTokens, t.Tokens, l)
	f.count(throttleBurst, t.Burst, l)
	f.value(throttleRate, t.Rate, l)
	f.number(throttleHeld, t.InUse, l)
	f.count(throttleConcurrency, t.Concurrency, l)
	f.number(throttleWaiting, t.Waiting, l)
	f.count(throttlePassed, t.passed, l)
	f.count(throttleRefused, t.refused, l)
	f.value(throttleWaited, time.Duration(t.waited).Seconds(), l) //nolint:gosec // a sum of durations
	if t.Min > 0 {
		f.value(throttleAdaptive, t.Limit, l)
		f.count(throttleCuts, t.cuts, l)
	}
}
