package engine

import (
	"iter"
	"slices"
)

// past keeps what became of fairness keys that have no messages: by name while they
// are few, the least busy ones in one sum when they become too many.
//
// With very many keys, most messages make a key and end it, so this is done for each
// of them. They are listed in the order in which they were forgotten, and found by an
// open table of places in the list. A key that comes back leaves a gap in the list, and
// its slot of the table, which leads to the gap: both go when the table is full.
type idleStats struct {
	list  []idleKey
	slots []idleSlot // a power of two, no more than half of them taken
	n     int        // in the list without the gaps
	rest  keyStats   // the sum of those that were too many

	counting *busyCount // of all keys, under way or the last one; nil: none yet
	counts   uint64     // that have begun
}

type idleKey struct {
	hash nameHash
	name string // "": a gap
	keyStats
}

// idleSlot is 0 where it is empty: else a place in the list plus one, and above that
// some bits of the hash, so that other keys need not be looked at.
type idleSlot uint32

const (
	// idleStatsMax bounds how many keys without messages a queue keeps counts of: when they
	// are twice as many, so many are left.
	idleStatsMax = 1000
	idleSlotsMin = 64
	idleTagShift = 16 // the list is far shorter: half of the slots of 2*idleStatsMax keys
)

func slotOf(h nameHash, at int) idleSlot {
	return idleSlot(h>>32)<<idleTagShift | idleSlot(at+1) //nolint:gosec // bounded by the slots
}

// find returns the place of a name in the list, -1 if it is not there.
func (p *idleStats) find(h nameHash, name string) int {
	if p.n == 0 {
		return -1
	}
	mask := len(p.slots) - 1
	for i := int(h) & mask; p.slots[i] != 0; i = (i + 1) & mask { //nolint:gosec // the mask bounds it
		at := int(p.slots[i]&(1<<idleTagShift-1)) - 1
		if p.slots[i] == slotOf(h, at) && p.list[at].name == name {
			return at
		}
	}
	return -1
}

// of returns what is kept of a name.
func (p *idleStats) of(name string) keyStats {
	if at := p.find(hashName(name), name); at >= 0 {
		return p.list[at].keyStats
	}
	return keyStats{}
}

// take is of for a key that comes back: its counts are its own again.
func (p *idleStats) take(h nameHash, name string) keyStats {
	at := p.find(h, name)
	if at < 0 {
		return keyStats{}
	}
	s := p.list[at].keyStats
	p.list[at] = idleKey{}
	p.n--
	if p.counting != nil {
		p.counting.back(name)
	}
	return s
}

// keep keeps the counts of a key that is forgotten.
func (p *idleStats) keep(k *fairKey) {
	if k.stats.delivered == 0 && k.stats.refused == 0 {
		return
	}
	if p.counting != nil {
		p.counting.ended(k)
	}
	if len(p.list) >= len(p.slots)/2 {
		p.rebuild()
	}
	p.list = append(p.list, idleKey{hash: k.hash, name: k.name, keyStats: k.stats})
	p.put(k.hash, len(p.list)-1)
	if p.n++; p.n >= 2*idleStatsMax {
		p.trim()
	}
}

func (p *idleStats) put(h nameHash, at int) {
	mask := len(p.slots) - 1
	i := int(h) & mask //nolint:gosec // the mask bounds it
	for p.slots[i] != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slotOf(h, at)
}

// trim leaves the busiest keys in the list, of equally busy ones those that were
// forgotten last.
func (p *idleStats) trim() {
	var buf [2 * idleStatsMax]uint64
	counts := buf[:0]
	for i := range p.list {
		if p.list[i].name != "" {
			counts = append(counts, p.list[i].delivered)
		}
	}
	slices.Sort(counts)
	counts, kept := counts[:len(counts)-idleStatsMax], counts[len(counts)-idleStatsMax:]
	least := kept[0]
	first, _ := slices.BinarySearch(counts, least)
	equal := len(counts) - first // of those that go
	for i := range p.list {
		s := &p.list[i]
		if s.name == "" || s.delivered > least {
			continue
		}
		if s.delivered == least {
			if equal == 0 {
				continue
			}
			equal--
		}
		p.rest.add(s.keyStats)
		*s = idleKey{}
		p.n--
	}
	p.rebuild()
}

// rebuild closes the gaps and makes a table with room for as many keys more.
func (p *idleStats) rebuild() {
	kept := p.list[:0]
	for i := range p.list {
		if p.list[i].name != "" {
			kept = append(kept, p.list[i])
		}
	}
	clear(p.list[len(kept):])
	p.list = kept
	slots := max(len(p.slots), idleSlotsMin)
	for slots < 4*len(kept) {
		slots *= 2
	}
	if slots == len(p.slots) {
		clear(p.slots)
	} else {
		p.slots = make([]idleSlot, slots)
	}
	for i := range kept {
		p.put(kept[i].hash, i)
	}
}

// all goes through the names in the order in which they were forgotten.
func (p *idleStats) all() iter.Seq2[string, *keyStats] {
	return func(yield func(string, *keyStats) bool) {
		for i := range p.list {
			if k := &p.list[i]; k.name != "" && !yield(k.name, &k.keyStats) {
				return
			}
		}
	}
}
