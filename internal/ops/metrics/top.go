package metrics

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// top collects the names that may have series, of throttles or of budgets: those that have them,
// those with most keys waiting, and the oldest where no others fill the places.
type top struct {
	most   int
	places *places
	all    int
	held   map[string]bool // have a place, and exist
	list   []waiting       // at most twice as many as there are places
	least  int64           // what has fewer keys waiting, or as many, is not among the first; -1: that is not known
}

// waiting is a name, and how many keys wait for it.
type waiting struct {
	name string
	keys int64
}

func newTop(most int, p *places) *top {
	return &top{most: most, places: p, held: map[string]bool{}, least: -1}
}

// offer looks at a name. Names come in the order of their creation.
func (t *top) offer(name string, keys int64) {
	t.all++
	if t.places.by[name] != nil {
		t.held[name] = true
	}
	if keys <= t.least {
		return
	}
	if t.list = append(t.list, waiting{name, keys}); len(t.list) >= 2*t.most {
		t.cut()
	}
}

// cut leaves those with most keys waiting; of others the oldest stay.
func (t *top) cut() {
	slices.SortStableFunc(t.list, func(a, b waiting) int { return cmp.Compare(b.keys, a.keys) })
	if len(t.list) > t.most {
		clear(t.list[t.most:])
		t.list = t.list[:t.most]
	}
	if t.most > 0 && len(t.list) == t.most {
		t.least = t.list[t.most-1].keys
	}
}

// first returns the names with most keys waiting.
func (t *top) first() []string {
	t.cut()
	names := make([]string, len(t.list))
	for i, w := range t.list {
		names[i] = w.name
	}
	return names
}

// choose gives places to names, and returns those that have one in order.
func (t *top) choose(now time.Time) []string { return t.give(now, t.first()) }

// give gives places to those that want one, the first of them first, and returns the names that have one in order.
func (t *top) give(now time.Time, wanted []string) []string {
	p := t.places
	unlimited := t.most // the places are bounded by their number alone
	for name := range p.by {
		if !t.held[name] {
			p.drop(name, &unlimited) // it was deleted
		}
	}
	unlimited = t.most
	p.choose(now, wanted, t.most, &unlimited)
	names := make([]string, 0, len(p.by))
	for name := range p.by {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// leftOut is how many have no place.
func (t *top) leftOut() int64 { return int64(max(t.all-len(t.places.by), 0)) }

// busiest collects the throttles of patterns that may have series: those with most deliveries and those for which keys
// have waited longest take turns, as keys do.
type busiest struct{ passed, waited *top }

func newBusiest(most int, p *places) *busiest { return &busiest{newTop(most, p), newTop(most, p)} }

// offer looks at a throttle.
func (b *busiest) offer(name string, admitted uint64, waited time.Duration) {
	b.passed.offer(name, int64(min(admitted, math.MaxInt64)))
	b.waited.offer(name, int64(waited))
}

// choose gives places to names, and returns those that have one in order.
func (b *busiest) choose(now time.Time) []string {
	return b.passed.give(now, inTurns(b.passed.most, b.passed.first(), b.waited.first()))
}
