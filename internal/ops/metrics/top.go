package metrics

import (
	"cmp"
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
}

// waiting is a name, and how many keys wait for it.
type waiting struct {
	name string
	keys int64
}

func newTop(most int, p *places) *top { return &top{most: most, places: p, held: map[string]bool{}} }

// offer looks at a name. Names come in the order of their creation.
func (t *top) offer(name string, keys int64) {
	t.all++
	if t.places.by[name] != nil {
		t.held[name] = true
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
}

// choose gives places to names, and returns those that have one in order.
func (t *top) choose(now time.Time) []string {
	t.cut()
	p := t.places
	unlimited := t.most // the places are bounded by their number alone
	for name := range p.by {
		if !t.held[name] {
			p.drop(name, &unlimited) // it was deleted
		}
	}
	wanted := make([]string, len(t.list))
	for i, w := range t.list {
		wanted[i] = w.name
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
