package figures

import (
	"fmt"
	"slices"
)

// idleStats keeps the statistics of a queue's fairness keys that have no messages, and so no
// Key, of the busiest of them. States of the statistics of a key:
//
//	live      in its Key, while it has messages
//	by name   in list: keep, when the key is forgotten
//	unnamed   nowhere: trim, when more than 2*IdleMax are by name. The totals of the queue have them
//
//	live → by name → live   the key is forgotten, and created again (take)
//	by name → unnamed       for good: the name starts from zero if it comes back
//
// With very many keys most messages create a key and end it, so keep and take run for each
// of these messages. The list is in the order in which the keys were forgotten, with an
// open-addressing table of its indexes. A key that comes back leaves a gap in the list, and
// its slot in the table refers to the gap: rebuild removes both when the table is full.
type idleStats struct {
	list  []idleKey
	slots []idleSlot // a power of two, at most half of them in use
	n     int        // keys in the list, without gaps
}

type idleKey struct {
	hash uint64
	name string // "": a gap
	stats
}

// idleSlot is 0 if it is empty, else an index of the list plus 1 in the lower idleTagShift
// bits, and bits of the hash above: most other keys are skipped without reading them.
type idleSlot uint32

const (
	// IdleMax bounds the keys without messages that a queue has statistics of by name:
	// when there are twice as many, the busiest IdleMax remain.
	IdleMax      = 1000
	idleSlotsMin = 64 // slots of the first table
	idleTagShift = 16 // the list has far fewer entries than 1<<16
)

// slotOf returns the slot of a hash and an index of the list.
func slotOf(h uint64, at int) idleSlot {
	return idleSlot(h>>32)<<idleTagShift | idleSlot(at+1)
}

// find returns the index of a name in the list, or -1. Probing ends at an empty slot; slots of
// gaps are skipped because a gap has no name.
func (p *idleStats) find(h uint64, name string) int {
	if p.n == 0 {
		return -1
	}
	mask := len(p.slots) - 1
	for i := int(h) & mask; p.slots[i] != 0; i = (i + 1) & mask {
		at := int(p.slots[i]&(1<<idleTagShift-1)) - 1
		if p.slots[i] == slotOf(h, at) && p.list[at].name == name {
			return at
		}
	}
	return -1
}

// take removes the statistics of a name and returns them, for a key that is created again.
func (p *idleStats) take(h uint64, name string) stats {
	at := p.find(h, name)
	if at < 0 {
		return stats{}
	}
	s := p.list[at].stats
	p.list[at] = idleKey{}
	p.n--
	return s
}

// keep adds the statistics of a key that is forgotten, unless they are zero. The cost of rebuild
// and trim is spread over the keys that were added since the last one: O(1) for each, but for
// the sort.
func (q *Queue) keep(h uint64, name string, s stats) {
	p := &q.idle
	if s.Delivered == 0 && s.Refused == 0 {
		return
	}
	if len(p.list) >= len(p.slots)/2 {
		p.rebuild()
	}
	p.list = append(p.list, idleKey{hash: h, name: name, stats: s})
	p.put(h, len(p.list)-1)
	if p.n++; p.n >= 2*IdleMax {
		p.trim(&q.busiest)
	}
}

// put adds an index of the list to the table, which has room.
func (p *idleStats) put(h uint64, at int) {
	mask := len(p.slots) - 1
	i := int(h) & mask
	for p.slots[i] != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slotOf(h, at)
}

// trim leaves the busiest IdleMax keys in the list, and those in busiestKeys if they are no
// busier than others; of equally busy keys those that were forgotten
// last remain. It takes O(n log n) once in IdleMax keys.
func (p *idleStats) trim(busiest *busiestKeys) {
	var buf [2 * IdleMax]uint64
	counts := buf[:0]
	for i := range p.list {
		if p.list[i].name != "" {
			counts = append(counts, p.list[i].Delivered)
		}
	}
	slices.Sort(counts)
	counts, kept := counts[:len(counts)-IdleMax], counts[len(counts)-IdleMax:]
	least := kept[0]
	first, _ := slices.BinarySearch(counts, least)
	equal := len(counts) - first // keys that have least deliveries and are trimmed
	for i := range p.list {
		s := &p.list[i]
		if s.name == "" || s.Delivered > least || busiest.has(s) {
			continue
		}
		if s.Delivered == least {
			if equal == 0 {
				continue
			}
			equal--
		}
		*s = idleKey{}
		p.n--
	}
	p.rebuild()
}

// rebuild closes the gaps of the list and makes a table with room for as many keys again.
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

// check verifies that every name is found and has no messages, and that the bounds hold (22).
func (p *idleStats) check(live func(name string) *Key) error {
	n := 0
	for i := range p.list {
		k := &p.list[i]
		if k.name == "" {
			continue
		}
		n++
		if p.find(k.hash, k.name) != i || live(k.name) != nil {
			return fmt.Errorf("counts of key %q are kept by mistake", k.name)
		}
	}
	if n != p.n || n >= 2*IdleMax || len(p.list) > len(p.slots)/2 {
		return fmt.Errorf("counts of %d keys are kept in %d places of %d, it says %d", n, len(p.list), len(p.slots), p.n)
	}
	return nil
}
