package figures

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// busiestKeys are the keys of a queue with the most deliveries, kept up to date: a delivery costs
// one comparison, and the work of a change is bounded by BusiestMax. A key is in the list with
// its Key, or with its statistics if it has no messages and is known by name (idleStats).
//
//	delivery of a key above least     note: it replaces the least busy one
//	the key is forgotten              forgotten: its statistics are kept here
//	the key has messages again        resumed
//	the queue is purged               dropBusiest; Keep lists those again that keep their names
//
// Among keys with as many deliveries as the least busy of the list, any may be in it.
type busiestKeys struct {
	list  []busiestKey // in no order
	least uint64       // deliveries up to which no other key belongs into the list
}

// busiestKey is a key of the list.
type busiestKey struct {
	key   *Key // nil: it has no messages
	name  string
	stats stats // while it has no messages
}

// BusiestMax is the number of keys in the list.
const BusiestMax = 10

// delivered returns the deliveries of a key of the list.
func (b *busiestKey) delivered() uint64 {
	if b.key != nil {
		return b.key.Delivered
	}
	return b.stats.Delivered
}

// note lists a key after a delivery if it belongs into the list.
func (l *busiestKeys) note(k *Key, name string) {
	if !k.busiest && k.Delivered > l.least {
		k.busiest = l.add(busiestKey{key: k, name: name})
	}
}

// add adds a key that is not in the list if there is room, or if it is busier than the least
// busy one, which leaves the list.
func (l *busiestKeys) add(b busiestKey) bool {
	if len(l.list) < BusiestMax {
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
	if len(l.list) < BusiestMax {
		return
	}
	l.least = l.list[0].delivered()
	for i := range l.list {
		l.least = min(l.least, l.list[i].delivered())
	}
}

// forgotten keeps the statistics of a listed key that has no messages any more.
func (l *busiestKeys) forgotten(k *Key, stats stats) {
	for i := range l.list {
		if l.list[i].key == k {
			l.list[i].key, l.list[i].stats = nil, stats
		}
	}
}

// resumed refers to the Key of a key that has messages again, if it is in the list.
func (l *busiestKeys) resumed(k *Key, name string) {
	if k.Delivered < l.least {
		return
	}
	for i := range l.list {
		if b := &l.list[i]; b.key == nil && b.name == name {
			*b, k.busiest = busiestKey{key: k, name: name}, true
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
func (q *Queue) dropBusiest() {
	q.busiest.drop(func(b *busiestKey) bool { return b.key != nil })
	for i := range q.idle.list {
		q.busiest.noteIdle(&q.idle.list[i])
	}
}

// noteIdle lists a key without messages if it belongs into the list.
func (l *busiestKeys) noteIdle(k *idleKey) {
	if k.name != "" && k.Delivered > l.least && !l.has(k) {
		l.add(busiestKey{name: k.name, stats: k.stats})
	}
}

// has reports whether a key without messages is in the list.
func (l *busiestKeys) has(k *idleKey) bool {
	return k.Delivered >= l.least && slices.ContainsFunc(l.list, func(b busiestKey) bool { return b.name == k.name })
}

// BusyKey holds the totals of a fairness key since the start of the broker, or the sum of
// several keys, with an empty name. Admitted and Refused count decisions of throttles.
type BusyKey struct {
	Key                          string
	Delivered, Admitted, Refused uint64
	Waited                       time.Duration // for throttles
}

// busy returns the totals under a name.
func (s *stats) busy(key string) BusyKey {
	return BusyKey{Key: key, Delivered: s.Delivered, Admitted: s.Admitted, Refused: s.Refused, Waited: time.Duration(s.Waited)}
}

// Busiest returns the keys of the queue with the most deliveries since the start of the broker, at most
// BusiestMax and the busiest first, and the sum of all others. all is what throttles have done to
// all keys, and of says it of one that has messages.
func (q *Queue) Busiest(all Tally, of func(name string) Tally) (top []BusyKey, rest BusyKey) {
	sum := stats{deliveries: deliveries{Delivered: q.events[Delivered]}, Tally: all}
	for i := range q.busiest.list {
		b := &q.busiest.list[i]
		s := b.stats
		if b.key != nil {
			s = b.key.with(of(b.name))
		}
		top = append(top, s.busy(b.name))
		sum.subtract(s)
	}
	slices.SortFunc(top, func(a, b BusyKey) int {
		return cmp.Or(cmp.Compare(b.Delivered, a.Delivered), strings.Compare(a.Key, b.Key))
	})
	return top, sum.busy("")
}

// check verifies that the list has the busiest keys (26). Keys that a purge has detached are in none.
func (l *busiestKeys) check(idle *idleStats, keys iter.Seq2[string, *Key], live func(name string) *Key) error {
	listed := map[string]bool{}
	for i := range l.list {
		b := &l.list[i]
		if k := b.key; listed[b.name] || k != nil && (!k.busiest || live(b.name) != k) {
			return fmt.Errorf("key %q is among the busiest by mistake", b.name)
		}
		listed[b.name] = true
	}
	for name, k := range keys {
		if k.busiest != listed[name] || !k.busiest && k.Delivered > l.least {
			return fmt.Errorf("key %q with %d deliveries is not among the busiest, the least of which has %d", name, k.Delivered, l.least)
		}
	}
	known := map[string]stats{}
	for i := range idle.list {
		s := &idle.list[i]
		if known[s.name] = s.stats; s.name != "" && !listed[s.name] && s.Delivered > l.least {
			return fmt.Errorf("key %q with %d deliveries, without messages, is not among the busiest, the least of which has %d", s.name, s.Delivered, l.least)
		}
	}
	for i := range l.list {
		if b := &l.list[i]; b.key == nil && known[b.name] != b.stats {
			return fmt.Errorf("key %q, without messages, is among the busiest by mistake", b.name)
		}
	}
	return nil
}

// Check verifies the statistics of keys without messages (22), and the list of the busiest keys (26). keys are
// all that have messages, and live finds one of them.
func (q *Queue) Check(keys iter.Seq2[string, *Key], live func(name string) *Key) (idle, busiest error) {
	return q.idle.check(live), q.busiest.check(&q.idle, keys, live)
}
