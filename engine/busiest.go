package engine

import (
	"cmp"
	"slices"
	"strings"
)

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
			if c.reclaims(q) && !tx.atomic { // the sum is not known before
				return nil, BusyKey{}, tx.yield()
			}
			b = c.startCount(q, req.N)
		}
		others := first && !tx.atomic && b.no < req.need // it is theirs to go on with, for this turn
		if !b.done && (others || !b.goOn(tx, q)) {
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
func (c *core) reclaims(q *queue) bool {
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
func (b *busyCount) goOn(tx *Tx, q *queue) bool {
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
func (b *busyCount) ended(k *fairKey) {
	if !b.done && k.seq > b.cursor {
		b.countKey(k)
	}
}

// back notes that a key comes back that was counted.
func (b *busyCount) back(name string) {
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
