package engine

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/engine/dispatch"
)

// keyStats are the statistics of a fairness key since the start of the broker.
type keyStats struct {
	keyDeliveries
	dispatch.Tally // what throttles have done to it
}

// keyDeliveries are those of a fairness key since the start of the broker.
type keyDeliveries struct {
	delivered uint64
	share     minuteSum // cost delivered in the last minute
}

// statistics returns all statistics of a key.
func (k *fairKey) statistics(now int64) keyStats { return keyStats{k.stats, k.Key.Tally(now)} }

// deliver counts a delivery of a cost.
func (s *keyDeliveries) deliver(now int64, cost uint32) {
	s.delivered++
	s.share.add(now, uint64(cost))
}

// add adds the totals of o; the share of the last minute is not summed.
func (s *keyStats) add(o keyStats) {
	s.delivered += o.delivered
	s.Tally.Add(o.Tally)
}

// subtract is the inverse of add. A sum of counts that were taken at different times may fall
// short of one of them: it is 0 then.
func (s *keyStats) subtract(o keyStats) {
	s.delivered -= min(o.delivered, s.delivered)
	s.Admitted -= min(o.Admitted, s.Admitted)
	s.Refused -= min(o.Refused, s.Refused)
	s.Waited = max(s.Waited-o.Waited, 0)
}

// BusyKey holds the totals of a fairness key since the start of the broker, or the sum of
// several keys, with an empty name. Admitted and Refused count decisions of throttles.
type BusyKey struct {
	Key                          string
	Delivered, Admitted, Refused uint64
	Waited                       time.Duration // for throttles
}

// busy returns the totals under a name.
func (s *keyStats) busy(key string) BusyKey {
	return BusyKey{Key: key, Delivered: s.delivered, Admitted: s.Admitted, Refused: s.Refused, Waited: time.Duration(s.Waited)}
}

// idleStats keeps the statistics of a queue's fairness keys that have no messages, and so no
// fairKey: of the busiest by name, of all others as one sum. States of the statistics of a key:
//
//	live      in its fairKey, while the key has messages
//	by name   in list: keep, when the key is forgotten
//	summed    in rest: trim, when more than 2*idleStatsMax are by name
//
//	live → by name → live   the key is forgotten, and created again (take)
//	by name → summed        for good: the name starts from zero if it comes back
//
// With very many keys most messages create a key and end it, so keep and take run for each
// of these messages. The list is in the order in which the keys were forgotten, with an
// open-addressing table of its indexes. A key that comes back leaves a gap in the list, and
// its slot in the table refers to the gap: rebuild removes both when the table is full.
type idleStats struct {
	list  []idleKey
	slots []idleSlot // a power of two, at most half of them in use
	n     int        // keys in the list, without gaps
	rest  keyStats   // sum of the keys that were trimmed

	busiest busiestKeys // of all keys of the queue
}

type idleKey struct {
	hash nameHash
	name string // "": a gap
	keyStats
}

// idleSlot is 0 if it is empty, else an index of the list plus 1 in the lower idleTagShift
// bits, and bits of the hash above: most other keys are skipped without reading them.
type idleSlot uint32

const (
	// idleStatsMax bounds the keys without messages that a queue has statistics of by name:
	// when there are twice as many, the busiest idleStatsMax remain.
	idleStatsMax = 1000
	idleSlotsMin = 64 // slots of the first table
	idleTagShift = 16 // the list has far fewer entries than 1<<16
)

// slotOf returns the slot of a hash and an index of the list.
func slotOf(h nameHash, at int) idleSlot {
	return idleSlot(h>>32)<<idleTagShift | idleSlot(at+1)
}

// find returns the index of a name in the list, or -1. Probing ends at an empty slot; slots of
// gaps are skipped because a gap has no name.
func (p *idleStats) find(h nameHash, name string) int {
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

// of returns the statistics of a name, zero if there are none.
func (p *idleStats) of(name string) keyStats {
	if at := p.find(hashName(name), name); at >= 0 {
		return p.list[at].keyStats
	}
	return keyStats{}
}

// take removes the statistics of a name and returns them, for a key that is created again.
func (p *idleStats) take(h nameHash, name string) keyStats {
	at := p.find(h, name)
	if at < 0 {
		return keyStats{}
	}
	s := p.list[at].keyStats
	p.list[at] = idleKey{}
	p.n--
	return s
}

// keep adds the statistics of a key that is forgotten, unless they are zero. The cost of rebuild
// and trim is spread over the keys that were added since the last one: O(1) for each, but for
// the sort.
func (p *idleStats) keep(h nameHash, name string, s keyStats) {
	if s.delivered == 0 && s.Refused == 0 {
		return
	}
	if len(p.list) >= len(p.slots)/2 {
		p.rebuild()
	}
	p.list = append(p.list, idleKey{hash: h, name: name, keyStats: s})
	p.put(h, len(p.list)-1)
	if p.n++; p.n >= 2*idleStatsMax {
		p.trim()
	}
}

// put adds an index of the list to the table, which has room.
func (p *idleStats) put(h nameHash, at int) {
	mask := len(p.slots) - 1
	i := int(h) & mask
	for p.slots[i] != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slotOf(h, at)
}

// trim leaves the busiest idleStatsMax keys in the list, and those in busiestKeys if they are no
// busier than others. It adds the others to rest; of equally busy keys those that were forgotten
// last remain. It takes O(n log n) once in idleStatsMax keys.
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
	equal := len(counts) - first // keys that have least deliveries and are trimmed
	for i := range p.list {
		s := &p.list[i]
		if s.name == "" || s.delivered > least || p.busiest.has(s) {
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

// all iterates over the names in the order in which they were forgotten.
func (p *idleStats) all() iter.Seq2[string, *keyStats] {
	return func(yield func(string, *keyStats) bool) {
		for i := range p.list {
			if k := &p.list[i]; k.name != "" && !yield(k.name, &k.keyStats) {
				return
			}
		}
	}
}

// check verifies invariant 22: every name is found, has no fairKey, and the bounds hold.
func (p *idleStats) check(q *queue) error {
	n := 0
	for name := range p.all() {
		n++
		if at := p.find(hashName(name), name); at < 0 || p.list[at].name != name || q.keys.get(name) != nil {
			return fmt.Errorf("counts of key %q are kept by mistake", name)
		}
	}
	if n != p.n || n >= 2*idleStatsMax || len(p.list) > len(p.slots)/2 {
		return fmt.Errorf("counts of %d keys are kept in %d places of %d, it says %d", n, len(p.list), len(p.slots), p.n)
	}
	return nil
}

// busiestKeys are the keys of a queue with the most deliveries, kept up to date: a delivery costs
// one comparison, and the work of a change is bounded by busiestMax. A key is in the list with
// its fairKey, or with its statistics if it has no messages and is known by name (idleStats).
//
//	delivery of a key above least     note: it replaces the least busy one
//	the key is forgotten              forgotten: its statistics are kept here
//	the key has messages again        resumed
//	the queue is purged               dropBusiest; keepStats lists those again that keep their names
//
// Among keys with as many deliveries as the least busy of the list, any may be in it.
type busiestKeys struct {
	list  []busiestKey // in no order
	least uint64       // deliveries up to which no other key belongs into the list
}

// busiestKey is a key of the list.
type busiestKey struct {
	key   *fairKey // nil: it has no messages
	name  string
	stats keyStats // while it has no messages
}

// busiestMax is the number of keys in the list.
const busiestMax = 10

// delivered returns the deliveries of a key of the list.
func (b *busiestKey) delivered() uint64 {
	if b.key != nil {
		return b.key.stats.delivered
	}
	return b.stats.delivered
}

// note lists a key after a delivery if it belongs into the list.
func (l *busiestKeys) note(k *fairKey) {
	if !k.busiest && k.stats.delivered > l.least {
		k.busiest = l.add(busiestKey{key: k, name: k.name})
	}
}

// add adds a key that is not in the list if there is room, or if it is busier than the least
// busy one, which leaves the list.
func (l *busiestKeys) add(b busiestKey) bool {
	if len(l.list) < busiestMax {
		l.list = append(l.list, b)
	} else {
		at := 0
		for i := range l.list {
			if l.list[i].delivered() < l.list[at].delivered() {
				at = i
			}
		}
		if least := l.list[at].delivered(); b.delivered() <= least {
			l.least = least // the keys of the list have deliveries meanwhile
			return false
		}
		if k := l.list[at].key; k != nil {
			k.busiest = false
		}
		l.list[at] = b
	}
	l.setLeast()
	return true
}

func (l *busiestKeys) setLeast() {
	l.least = 0
	if len(l.list) < busiestMax {
		return
	}
	l.least = l.list[0].delivered()
	for i := range l.list {
		l.least = min(l.least, l.list[i].delivered())
	}
}

// forgotten keeps the statistics of a listed key that has no messages any more.
func (l *busiestKeys) forgotten(k *fairKey, stats keyStats) {
	for i := range l.list {
		if l.list[i].key == k {
			l.list[i].key, l.list[i].stats = nil, stats
		}
	}
}

// resumed refers to the fairKey of a key that has messages again, if it is in the list.
func (l *busiestKeys) resumed(k *fairKey) {
	if k.stats.delivered < l.least {
		return
	}
	for i := range l.list {
		if b := &l.list[i]; b.key == nil && b.name == k.name {
			*b, k.busiest = busiestKey{key: k, name: k.name}, true
		}
	}
}

// drop takes the keys out of the list for which gone returns true.
func (l *busiestKeys) drop(gone func(b *busiestKey) bool) {
	kept := l.list[:0]
	for i := range l.list {
		if b := &l.list[i]; !gone(b) {
			kept = append(kept, *b)
		} else if b.key != nil {
			b.key.busiest = false
		}
	}
	clear(l.list[len(kept):])
	l.list = kept
	l.setLeast()
}

// dropBusiest takes all keys with messages out of the list of the busiest, since a purge detaches
// them, and fills their places from those without.
func (p *idleStats) dropBusiest() {
	p.busiest.drop(func(b *busiestKey) bool { return b.key != nil })
	for i := range p.list {
		p.busiest.noteIdle(&p.list[i])
	}
}

// noteIdle lists a key without messages if it belongs into the list.
func (l *busiestKeys) noteIdle(k *idleKey) {
	if k.name != "" && k.delivered > l.least && !l.has(k) {
		l.add(busiestKey{name: k.name, stats: k.keyStats})
	}
}

// has reports whether a key without messages is in the list.
func (l *busiestKeys) has(k *idleKey) bool {
	return k.delivered >= l.least && slices.ContainsFunc(l.list, func(b busiestKey) bool { return b.name == k.name })
}

// BusiestKeys returns the keys of a queue with the most deliveries since the start of the broker,
// at most ten and the busiest first, and the sum of all others. The error is ErrNoQueue.
func (tx *Tx) BusiestKeys(queue string) (top []BusyKey, rest BusyKey, err error) {
	c := tx.core
	q, err := c.queueNamed(queue)
	if err != nil {
		return nil, BusyKey{}, err
	}
	sum := keyStats{keyDeliveries{delivered: q.totals.events[countDelivered]}, q.order.Tally()}
	for _, b := range q.idle.busiest.list {
		s := b.stats
		if k := b.key; k != nil {
			s = k.statistics(c.now)
		}
		top = append(top, s.busy(b.name))
		sum.subtract(s)
	}
	slices.SortFunc(top, func(a, b BusyKey) int {
		return cmp.Or(cmp.Compare(b.Delivered, a.Delivered), strings.Compare(a.Key, b.Key))
	})
	return top, sum.busy(""), nil
}

// check verifies that the list has the busiest keys. Keys that a purge has detached are in none.
func (l *busiestKeys) check(q *queue) error {
	listed := map[string]bool{}
	for i := range l.list {
		b := &l.list[i]
		if k := b.key; listed[b.name] || k != nil && (!k.busiest || q.keys.get(b.name) != k) || k == nil && q.idle.of(b.name) != b.stats {
			return fmt.Errorf("key %q is among the busiest by mistake", b.name)
		}
		listed[b.name] = true
	}
	for k := range q.roster.All() {
		if k.busiest != listed[k.name] || !k.busiest && k.stats.delivered > l.least {
			return fmt.Errorf("key %q with %d deliveries is not among the busiest, the least of which has %d", k.name, k.stats.delivered, l.least)
		}
	}
	for name, s := range q.idle.all() {
		if !listed[name] && s.delivered > l.least {
			return fmt.Errorf("key %q with %d deliveries, without messages, is not among the busiest, the least of which has %d", name, s.delivered, l.least)
		}
	}
	return nil
}
