package engine

import (
	"sort"
)

// fairKey is a fairness key of a queue that has messages; it exists as long as
// there are any.
//
// Its ready messages are ordered by place. Those before the edge are in the
// window, each of them; those at or after it are on disk only. While nothing is
// on disk only, the edge is lastPlace. Reads (read.go) move the edge back, and a
// window that grows too long is cut, which moves it forward: memory is bounded
// by what is about to be delivered, not by what is stored.
//
// With very many keys, each of their lines is one to wait for, so its fields are in
// the order of who needs them, 64 bytes at a time: to enqueue, the first two; to
// deliver, a third.
type fairKey struct {
	name   string
	window []*message // ready, before the edge, in order; in few as long as it fits
	total  int64      // messages of any status; a difference while counting
	class  *class     // that it delivers with, nil if it cannot, see scheduler.go
	idHash uint32     // of name, for ids
	// behind says that there may be ready messages at or after the edge. If it
	// is false there are none.
	hasBacklog   bool
	visited      bool // it is in the middle of its turn
	awaitingRead bool // nothing in the window, and perhaps something on disk
	paused       bool

	few    [3]*message // where the window of a key with few messages is
	queue  *queue
	leased int64 // messages
	slot   int32 // in the heap of the calendar, or inNear
	weight uint32
	// What due was worked out for: the cost of the next message, and the weight.
	placedCost, placedWeight uint32
	// vain says that the last read has brought nothing that can be delivered: others need
	// not wait for the next one.
	lastReadEmpty bool
	// rankMax is the rank of no message in the window less than, which tells where
	// the newest message goes without looking at another one.
	rankMax     uint8
	counted     bool // total is exact
	pinned      bool // has settings of its own, which outlive its messages
	stored      bool // a record of its settings exists
	prefetching bool // in core.hungry

	// Where it stands in its class, see scheduler.go. credit is that after the visit of round
	// base, and grants since then; while the key is in no class, base is how many rounds
	// before it left that was.
	prev, next *fairKey
	credit     int64
	base, due  int64    // rounds of the class: of the last visit, of the next
	pos        position // in the circle of keys
	seq        uint64   // place in lists; the order of keys at the same place

	stats     keyStats
	throttles *throttleSet // of the newest message that has any
	delayed   int64        // messages; also a difference while counting
	hash      nameHash     // of name, for tables

	read *read // under way, or waiting in core.hungry
	edge place
	// What its class had been refused, and had waited, when the key joined.
	refusedBase uint64
	waitedBase  int64
}

func (c *core) newFairKey(q *queue, name string, h nameHash) *fairKey {
	k := &fairKey{queue: q, name: name, hash: h, idHash: h.idHash(), weight: 1, edge: lastPlace, counted: true}
	if set, ok := q.settings[name]; ok {
		k.weight, k.paused, k.pinned, k.stored = max(set.Weight, 1), set.Paused, true, true
	}
	k.stats = q.idle.take(h, name)
	q.keys.add(h, k)
	c.heads.keys++
	k.seq = q.roster.add(k)
	return k
}

// idle says that the key has no messages, of whatever status: it can be forgotten.
func (k *fairKey) idle() bool { return k.counted && k.total == 0 && k.read == nil }

// inWindow says on which side of the edge a place is.
func (k *fairKey) inWindow(p place) bool { return !k.hasBacklog || p.less(k.edge) }

// add puts a ready message where it belongs: into the window, or nowhere if it
// is behind the edge, where a later read finds it. It reports whether the
// message is held in memory. newest says that no message has a greater id.
func (k *fairKey) add(m *message, newest bool, windowMax int) bool {
	if !k.inWindow(m.place) {
		k.addToBacklog(m.place)
		return false
	}
	n := len(k.window)
	if n == 0 || newest && m.rank >= k.rankMax || !m.place.less(k.window[n-1].place) {
		if n >= windowMax { // the window is full: the rest stays on disk
			k.retreat(m.place)
			return false
		}
		k.push(m)
	} else {
		i := sort.Search(n, func(i int) bool { return m.place.less(k.window[i].place) })
		k.push(k.window[n-1])
		copy(k.window[i+1:n], k.window[i:])
		k.window[i] = m
	}
	m.status = ready
	return true
}

// push puts a message at the end of the window.
func (k *fairKey) push(m *message) {
	switch n := len(k.window); {
	case n == 0:
		k.window = k.few[:0]
	case n == cap(k.window) && n <= len(k.few): // if they leave few, nothing of them stays in it
		k.window = append(make([]*message, 0, 4*n), k.window...)
		k.few = [len(k.few)]*message{}
	}
	k.window = append(k.window, m)
	k.rankMax = m.rank
}

// cut leaves n messages in the window and returns the others, which are from
// now on the disk's.
func (k *fairKey) cut(n int) []*message {
	if len(k.window) <= n {
		return nil
	}
	rest := k.window[n:]
	k.retreat(rest[0].place)
	k.window = k.window[:n:n]
	return rest
}

// addOnDisk takes note of a message that becomes ready at a place and is on disk
// only. It returns the messages that are from now on the disk's, too.
func (k *fairKey) addOnDisk(p place) []*message {
	if !k.inWindow(p) {
		k.addToBacklog(p)
		return nil
	}
	i := sort.Search(len(k.window), func(i int) bool { return !k.window[i].place.less(p) })
	rest := k.cut(i)
	k.retreat(p)
	return rest
}

// addBehind takes note of a message that becomes ready behind the edge.
func (k *fairKey) addToBacklog(p place) {
	k.hasBacklog = true
	if r := k.read; r != nil && p.less(r.unseen) {
		r.unseen = p
	}
}

// retreat moves the edge to an earlier place.
func (k *fairKey) retreat(p place) {
	k.edge, k.hasBacklog = p, true
	if k.read != nil {
		k.read.stale = true
	}
}

// touch must be called when a message of the key changes on disk other than by
// its enqueue: a read under way may have seen it as it was.
func (k *fairKey) touch(p place) {
	r := k.read
	if r == nil || !r.issued || r.stale || p.less(r.from) {
		return
	}
	if len(r.changed) >= changedMax {
		r.stale, r.changed = true, nil
		return
	}
	if r.changed == nil {
		r.changed = map[ID]struct{}{}
	}
	r.changed[p.id] = struct{}{}
}

// changedMax bounds the changes that a read under way can be told of.
const changedMax = 10_000

// at returns the message of the window at a place, or nil.
func (k *fairKey) at(p place) *message {
	i := sort.Search(len(k.window), func(i int) bool { return !k.window[i].place.less(p) })
	if i == len(k.window) || k.window[i].place != p {
		return nil
	}
	return k.window[i]
}

// removeAt takes the message at a place out of the window, nil if there is none.
func (k *fairKey) removeAt(p place) *message {
	i := sort.Search(len(k.window), func(i int) bool { return !k.window[i].place.less(p) })
	if i == len(k.window) || k.window[i].place != p {
		return nil
	}
	m := k.window[i]
	copy(k.window[i:], k.window[i+1:])
	k.window[len(k.window)-1] = nil
	k.window = k.window[:len(k.window)-1]
	return m
}

// pop takes the first message of the window.
func (k *fairKey) pop() *message {
	m := k.window[0]
	if n := len(k.window); n <= len(k.few) { // one that is in few stays where it is
		copy(k.window, k.window[1:])
		k.window[n-1] = nil
		k.window = k.window[:n-1]
		return m
	}
	k.window[0] = nil
	k.window = k.window[1:]
	return m
}

// keyOf returns a queue's fairness key, made if it is new.
func (c *core) keyOf(q *queue, name string) *fairKey {
	return c.keyWithHash(q, name, hashName(name))
}

// keyWithHash is keyOf for those who know the hash.
func (c *core) keyWithHash(q *queue, name string, h nameHash) *fairKey {
	if k := q.keys.find(h, name); k != nil {
		return k
	}
	return c.newFairKey(q, name, h)
}

// settle must follow every change of a key's window, edge, counts, weight or
// pause. It keeps what depends on them: its place in the schedule, the wish for a
// read, and the key's existence.
func (c *core) settle(k *fairKey) {
	q := k.queue
	c.reschedule(k)
	if starved := len(k.window) == 0 && k.hasBacklog && !k.paused; starved != k.awaitingRead {
		k.awaitingRead = starved
		if starved {
			q.awaitingRead++
		} else {
			q.awaitingRead--
			k.lastReadEmpty = false
			c.offer(q)
		}
	}
	c.requestRead(k)
	if k.idle() {
		c.forgetKey(k)
	}
}

// offer has a queue looked at in serve if somebody waits for it.
func (c *core) offer(q *queue) {
	if q.waiters.first != nil && !q.offered {
		q.offered = true
		c.waits.offers = append(c.waits.offers, q)
	}
}
