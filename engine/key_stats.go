package engine

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// keyStats are the statistics of a fairness key since the start of the broker.
type keyStats struct {
	delivered         uint64    // deliveries
	share             minuteSum // cost delivered in the last minute
	admitted, refused uint64    // by throttles
	waited            int64     // for throttles, in nanoseconds
}

// deliver counts a delivery of a cost.
func (s *keyStats) deliver(now int64, cost uint32) {
	s.delivered++
	s.share.add(now, uint64(cost))
}

// add adds the totals of o; the share of the last minute is not summed.
func (s *keyStats) add(o keyStats) {
	s.delivered += o.delivered
	s.admitted += o.admitted
	s.refused += o.refused
	s.waited += o.waited
}

// minuteSum estimates a sum over the last minute without storing its parts: the sum of the
// current minute, plus the fraction of the previous one that a sliding minute still covers.
type minuteSum struct {
	minute    int64  // number of the current minute since 1970
	cur, prev uint64 // sums of this minute and of the one before
}

const minute = int64(time.Minute)

// roll moves to the minute of now.
func (s *minuteSum) roll(now int64) {
	switch m := now / minute; m {
	case s.minute:
	case s.minute + 1:
		s.minute, s.prev, s.cur = m, s.cur, 0
	default:
		s.minute, s.prev, s.cur = m, 0, 0
	}
}

// add adds n at the time now.
func (s *minuteSum) add(now int64, n uint64) {
	s.roll(now)
	s.cur += n
}

// value returns the estimate at the time now.
func (s *minuteSum) value(now int64) float64 {
	s.roll(now)
	return float64(s.cur) + float64(s.prev)*(1-float64(now%minute)/float64(minute))
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
	return BusyKey{Key: key, Delivered: s.delivered, Admitted: s.admitted, Refused: s.refused, Waited: time.Duration(s.waited)}
}

// stats is the inverse of busy.
func (b *BusyKey) stats() keyStats {
	return keyStats{delivered: b.Delivered, admitted: b.Admitted, refused: b.Refused, waited: int64(b.Waited)}
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

	counting *busyCount // under way, or the last one; nil: none yet
	counts   uint64     // number of counts that have begun
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
	return idleSlot(h>>32)<<idleTagShift | idleSlot(at+1) //nolint:gosec // bounded by the slots
}

// find returns the index of a name in the list, or -1. Probing ends at an empty slot; slots of
// gaps are skipped because a gap has no name.
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
	if p.counting != nil {
		p.counting.keyReturned(name)
	}
	return s
}

// keep adds the statistics of a key that is forgotten, unless they are zero. A count under way
// counts the key first, if its cursor has not reached it. The cost of rebuild and trim is
// spread over the keys that were added since the last one: O(1) for each, but for the sort.
func (p *idleStats) keep(k *fairKey) {
	if k.stats.delivered == 0 && k.stats.refused == 0 {
		return
	}
	if p.counting != nil {
		p.counting.keyForgotten(k)
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

// put adds an index of the list to the table, which has room.
func (p *idleStats) put(h nameHash, at int) {
	mask := len(p.slots) - 1
	i := int(h) & mask //nolint:gosec // the mask bounds it
	for p.slots[i] != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slotOf(h, at)
}

// trim leaves the busiest idleStatsMax keys in the list and adds the others to rest; of
// equally busy keys those that were forgotten last remain. It takes O(n log n) once in
// idleStatsMax keys.
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

// Busiest requests the N keys of a queue with the most deliveries since the start of the
// broker, and the sum of all others.
type Busiest struct {
	Queue string
	N     int

	epoch uint64
	need  uint64 // number of the first count that is recent enough; 0: the request begins
}

// busyCount counts the deliveries of all keys of a queue, in slices. Each key is counted once,
// with its statistics at some time during the count: the keys without messages first, the
// others in the order of the roster. A key that is forgotten before the cursor reaches it is
// counted then.
//
// A request needs a count that began after the request, so that it includes every earlier
// delivery. All requests that arrive during a count share the next one.
type busyCount struct {
	no      uint64
	n       int // length of top
	cursor  uint64
	sum     keyStats            // of the keys that are not in top
	top     []BusyKey           // by deliveries, the most first
	counted map[string]struct{} // names of keys that were counted and came back afterwards
	done    bool                // all keys are counted
}

// busyPart is the number of keys that are counted for a unit of work.
const busyPart = 8

// BusiestKeys returns the keys, the busiest first, and the sum of all others. For a queue of
// very many keys it takes several turns, and returns ErrWouldBlock until then. The steps:
//
//  1. The request needs the next count, unless it has been waiting for one.
//  2. If there is no count, or a complete one that is too old, it begins one, after detached
//     keys are reclaimed. If the current one has a shorter top than N, it is replaced.
//  3. It advances the count within the budget, and yields until the count is complete.
//  4. If that count began before the request, it begins the next one, else it is the result.
func (tx *Tx) BusiestKeys(req *Busiest) (top []BusyKey, rest BusyKey, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, BusyKey{}, err
	}
	p := &q.idle
	first := req.need == 0
	if req.need == 0 || req.epoch != c.epoch {
		req.need, req.epoch = p.counts+1, c.epoch
		if tx.atomic {
			p.counting = nil // a transaction counts in one step
		}
	}
	for {
		b := p.counting
		if b == nil || b.done && b.no < req.need || b.n < req.N {
			if c.reclaiming(q) && !tx.atomic { // the statistics of detached keys are incomplete
				return nil, BusyKey{}, tx.yield()
			}
			b = c.startCount(q, req.N)
		}
		others := first && !tx.atomic && b.no < req.need // earlier requests advance their count in this turn
		if !b.done && (others || !b.advance(tx, q)) {
			return nil, BusyKey{}, tx.yield()
		}
		if b.no >= req.need {
			req.need = 0
			n := min(req.N, len(b.top))
			sum := b.sum
			for _, k := range b.top[n:] {
				sum.add(k.stats())
			}
			return b.top[:n], sum.busy(""), nil
		}
	}
}

// reclaiming reports whether a queue was purged and its detached keys are not reclaimed yet.
func (c *core) reclaiming(q *queue) bool {
	return slices.ContainsFunc(c.detached.queues, func(r *detachedQueue) bool { return r.queue == q })
}

// startCount begins a count with the keys that have no messages. In a transaction, which does
// not wait for detached keys to be reclaimed, these are part of the sum.
func (c *core) startCount(q *queue, n int) *busyCount {
	p := &q.idle
	p.counts++
	b := &busyCount{no: p.counts, n: n, sum: p.rest}
	for name, s := range p.all() {
		b.count(name, s)
	}
	for _, r := range c.detached.queues {
		if r.queue == q {
			r.addTo(&b.sum)
		}
	}
	c.spend(p.n / busyPart)
	p.counting = b
	return b
}

// advance counts as far as the budget lasts, and reports whether the count is complete.
func (b *busyCount) advance(tx *Tx, q *queue) bool {
	n, yields := 0, false
	b.cursor = q.roster.walkWhile(b.cursor, func(k *fairKey) bool {
		if yields = n%busyPart == 0 && !tx.more(); yields {
			return false
		}
		n++
		b.countKey(k)
		return true
	})
	if b.done = !yields; b.done {
		b.counted = nil
	}
	return b.done
}

// countKey counts a key unless it was counted before it came back.
func (b *busyCount) countKey(k *fairKey) {
	if _, ok := b.counted[k.name]; !ok {
		b.count(k.name, &k.stats)
	}
}

// keyForgotten counts a key that is forgotten before the cursor has reached it: the cursor
// will not find it, and idleStats was counted at the beginning.
func (b *busyCount) keyForgotten(k *fairKey) {
	if !b.done && k.seq > b.cursor {
		b.countKey(k)
	}
}

// keyReturned records that a key comes back from idleStats, where it was counted: it has a new
// number in the roster, which the cursor will reach.
func (b *busyCount) keyReturned(name string) {
	if b.done {
		return
	}
	if b.counted == nil {
		b.counted = map[string]struct{}{}
	}
	b.counted[name] = struct{}{}
}

// count adds a key to top, or to the sum if it is not among the n busiest so far.
func (b *busyCount) count(name string, s *keyStats) {
	k := s.busy(name)
	if n := len(b.top); n == b.n && k.Delivered < b.top[n-1].Delivered {
		b.sum.add(*s)
		return
	}
	i, _ := slices.BinarySearchFunc(b.top, k, func(a, b BusyKey) int {
		return cmp.Or(cmp.Compare(b.Delivered, a.Delivered), strings.Compare(a.Key, b.Key))
	})
	b.top = slices.Insert(b.top, i, k)
	if len(b.top) > b.n {
		b.sum.add(b.top[b.n].stats())
		b.top = b.top[:b.n]
	}
}
