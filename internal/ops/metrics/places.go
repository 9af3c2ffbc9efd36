package metrics

import "time"

// stay is how long a name keeps its place at least: a name that comes and goes would be another
// series each time.
const stay = 10 * time.Minute

// places are a bounded number of names that have series, of those that want one. The zero value
// has none.
type places struct {
	by    map[string]*place
	round uint64 // number of the last choice
}

// place is a name with series, and the counters of these.
type place struct {
	since    time.Time
	wanted   uint64 // round in which it was last among those that want a place
	counters [4]counter
}

// counter is a count that never goes back, whatever happens to what it counts: if that begins
// again at 0, the counter goes on from where it is.
type counter struct{ shown, last uint64 }

// see takes over the present count and returns what to show.
func (c *counter) see(n uint64) uint64 {
	if n < c.last {
		c.last = 0
	}
	c.shown += n - c.last
	c.last = n
	return c.shown
}

// choose gives places to the names that want one, the first of them first: at most most names
// have one, and all the places of a group at most *room more. A name that wants none any more
// loses its place to one that does, once it has stayed.
func (p *places) choose(now time.Time, wanted []string, most int, room *int) {
	p.round++
	for _, name := range wanted {
		if at := p.by[name]; at != nil {
			at.wanted = p.round
		}
	}
	for _, name := range wanted {
		if p.by[name] != nil {
			continue
		}
		if (len(p.by) >= most || *room <= 0) && !p.vacate(now, room) {
			return
		}
		if p.by == nil {
			p.by = map[string]*place{}
		}
		p.by[name] = &place{since: now, wanted: p.round}
		*room--
	}
}

// vacate takes the place of a name that has stayed and does not want it in this round, and
// reports whether there was one.
func (p *places) vacate(now time.Time, room *int) bool {
	for name, at := range p.by {
		if at.wanted != p.round && now.Sub(at.since) >= stay {
			p.drop(name, room)
			return true
		}
	}
	return false
}

// drop takes the place of a name.
func (p *places) drop(name string, room *int) {
	if p.by[name] != nil {
		delete(p.by, name)
		*room++
	}
}

// inTurns returns the first most names of some lists, which take turns, each name once.
func inTurns(most int, lists ...[]string) []string {
	var names []string
	known := map[string]bool{}
	for i, more := 0, true; more && len(names) < most; i++ {
		more = false
		for _, list := range lists {
			if i >= len(list) {
				continue
			}
			more = true
			if name := list[i]; !known[name] && len(names) < most {
				known[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}
