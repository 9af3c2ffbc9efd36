package engine

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

// keyStats count what became of a fairness key since the broker has started.
type keyStats struct {
	delivered         uint64
	share             minuteSum
	admitted, refused uint64
	waited            int64 // nanoseconds
}

func (s *keyStats) deliver(now int64, cost uint32) {
	s.delivered++
	s.share.add(now, uint64(cost))
}

func (s *keyStats) add(o keyStats) {
	s.delivered += o.delivered
	s.admitted += o.admitted
	s.refused += o.refused
	s.waited += o.waited
}

// minuteSum is a sum over about the last minute: that of the minute that runs,
// plus the part of the one before that a sliding minute still covers.
type minuteSum struct {
	minute    int64
	cur, prev uint64
}

const minute = int64(time.Minute)

func (s *minuteSum) roll(now int64) {
	switch m := now / minute; m {
	case s.minute:
	case s.minute + 1:
		s.minute, s.prev, s.cur = m, s.cur, 0
	default:
		s.minute, s.prev, s.cur = m, 0, 0
	}
}

func (s *minuteSum) add(now int64, n uint64) {
	s.roll(now)
	s.cur += n
}

func (s *minuteSum) value(now int64) float64 {
	s.roll(now)
	return float64(s.cur) + float64(s.prev)*(1-float64(now%minute)/float64(minute))
}

// BusyKey is what became of one fairness key, or of several in a sum.
type BusyKey struct {
	Key                          string
	Delivered, Admitted, Refused uint64
	Waited                       time.Duration // for throttles
}

func (s *keyStats) busy(key string) BusyKey {
	return BusyKey{Key: key, Delivered: s.delivered, Admitted: s.admitted, Refused: s.refused, Waited: time.Duration(s.waited)}
}

func (b *BusyKey) stats() keyStats {
	return keyStats{delivered: b.Delivered, admitted: b.Admitted, refused: b.Refused, waited: int64(b.Waited)}
}

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
		p.counting.keyReturned(name)
	}
	return s
}

// keep keeps the counts of a key that is forgotten.
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

// Busiest asks for the N keys of a queue with the most deliveries since the broker has
// started, and for the sum of all others.
type Busiest struct {
	Queue string
	N     int

	epoch uint64
	need  uint64 // number of the count that is recent enough
}

// busyCount counts the deliveries of all keys of a queue, in slices. Each key counts once,
// with what it had at some time during the count: those without messages at first, the
// others in the order of the roster. A key that ends before its turn counts then.
//
// All who ask meanwhile share the next count: what they have seen happen is in it.
type busyCount struct {
	no     uint64
	n      int
	cursor uint64
	sum    keyStats // without the top
	top    []BusyKey
	// counted are names that came back after they were counted.
	counted map[string]struct{}
	done    bool
}

// busyPart is how many keys count for a unit of work.
const busyPart = 8

// BusiestKeys returns the keys and the sum.
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
			p.counting = nil // in a transaction it is all one step
		}
	}
	for {
		b := p.counting
		if b == nil || b.done && b.no < req.need || b.n < req.N {
			if c.reclaiming(q) && !tx.atomic { // the sum is not known before
				return nil, BusyKey{}, tx.yield()
			}
			b = c.startCount(q, req.N)
		}
		others := first && !tx.atomic && b.no < req.need // it is theirs to go on with, for this turn
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

// sweeps says that a queue was emptied and its keys are not given back yet.
func (c *core) reclaiming(q *queue) bool {
	return slices.ContainsFunc(c.detached.queues, func(r *detachedQueue) bool { return r.queue == q })
}

func (c *core) startCount(q *queue, n int) *busyCount {
	p := &q.idle
	p.counts++
	b := &busyCount{no: p.counts, n: n, sum: p.rest}
	for name, s := range p.all() {
		b.count(name, s)
	}
	for _, r := range c.detached.queues { // of a transaction, which does not wait for them
		if r.queue == q {
			r.addTo(&b.sum)
		}
	}
	c.spend(p.n / busyPart)
	p.counting = b
	return b
}

// goOn counts as far as the turn goes, and reports whether that was all.
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

// countKey counts a key that has not been yet.
func (b *busyCount) countKey(k *fairKey) {
	if _, ok := b.counted[k.name]; !ok {
		b.count(k.name, &k.stats)
	}
}

// ended counts a key that ends before its turn has come.
func (b *busyCount) keyForgotten(k *fairKey) {
	if !b.done && k.seq > b.cursor {
		b.countKey(k)
	}
}

// back notes that a key comes back that was counted.
func (b *busyCount) keyReturned(name string) {
	if b.done {
		return
	}
	if b.counted == nil {
		b.counted = map[string]struct{}{}
	}
	b.counted[name] = struct{}{}
}

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
