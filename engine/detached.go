package engine

// detachedQueue are the fairness keys that a queue had when it was emptied. With the step that
// empties it they are none of its keys any more: not in its table, schedule or roster, and
// nobody finds them there. What is left of them is counted elsewhere: the messages of
// their windows, the bodies of these, the places that keys and leases have in throttles.
// To give that back is to go through all keys, and a turn that does so with a million of
// them keeps everybody waiting: so it is done in portions, one a turn, and the turns
// follow each other.
//
// Until it comes to them, emptied keys are met in these places: in the line of a
// throttle, in line for a read, by a read that comes back (alive), and through a lease.
// They are passed over there, so many in a turn and no more; their receipts are worth
// nothing (held). None of them may be settled: it would change the schedule that the
// queue has now.
//
// All of it is in memory only. The records are gone with the batch of the emptying.
type detachedQueue struct {
	queue     *queue
	no        uint32     // that the queue had
	scheduler *scheduler // of that time
	keys      roster[fairKey]
	named     bool // the counts of the keys are kept by name
}

// detachedKeys is what emptied queues have left, until it is given back.
type detachedKeys struct {
	queues    []*detachedQueue
	leases    int64    // see leases.go
	leaseAt   int      // where reclaim goes on to look for those
	reclaimed int      // keys, leases and messages in this turn, here and in queues whose throttles have changed
	max       int      // as the constant; tests set any number
	orphaned  []uint32 // numbers of no queue under which there are settings of keys

	untimed
	unchecked
}

func (d *detachedKeys) reset() { d.queues, d.leases, d.leaseAt, d.orphaned = nil, 0, 0, nil }

// reclaimMax is how many keys, leases and messages are given back in one turn: as fast as
// they came at least, however often queues are filled and emptied.
const reclaimMax = turnUnits

// emptied says that the key was its queue's when that was emptied.
func (k *fairKey) purged() bool { return k.seq <= k.queue.purgedUpTo }

// detach leaves what a queue had to sweep. Few keys are mostly done with at once,
// and their counts stay known by name.
func (c *core) detach(r *detachedQueue) {
	if r.named {
		c.reclaimSome(r)
	}
	if c.unfinished(r) {
		c.detached.queues = append(c.detached.queues, r)
	}
}

// left says that there is more to give back.
func (c *core) unfinished(r *detachedQueue) bool {
	return len(r.keys.blocks) > 0 || len(r.scheduler.classes) > 0 || c.delayed.index.byQueue[r.no] != nil || c.ttl.index.byQueue[r.no] != nil
}

// sweep gives back a portion of what emptied queues have left.
func (c *core) reclaim() {
	c.reclaimLeases()
	for len(c.detached.queues) > 0 && c.detached.reclaimed < c.detached.max {
		r := c.detached.queues[0]
		c.reclaimSome(r)
		if c.unfinished(r) {
			break
		}
		c.detached.queues[0] = nil
		c.detached.queues = c.detached.queues[1:]
	}
	c.tasks.unfinished = c.tasks.unfinished || len(c.detached.queues) > 0 || c.detached.leases > 0
}

func (c *core) reclaimSome(r *detachedQueue) {
	for ; c.detached.reclaimed < c.detached.max; c.detached.reclaimed++ {
		if d := c.delayed.index.byQueue[r.no]; d != nil {
			c.unschedule(d)
		} else if d := c.ttl.index.byQueue[r.no]; d != nil {
			c.unindex(&c.ttl.index, d.at, d.mk)
		} else {
			break
		}
	}
	for _, cl := range r.scheduler.classes {
		if c.detached.reclaimed >= c.detached.max {
			return
		}
		c.detached.reclaimed++
		c.dropClass(cl)
	}
	for c.detached.reclaimed < c.detached.max {
		k := r.keys.shift()
		if k == nil {
			return
		}
		c.detached.reclaimed += 1 + len(k.window)
		c.reclaimKey(k)
		r.keepStats(k)
	}
}

// keepStats keeps the counts of a key: by name, unless they were too many. Another key of
// that name may be there already, or have been.
func (r *detachedQueue) keepStats(k *fairKey) {
	p := &r.queue.idle
	switch now := r.queue.keys.find(k.hash, k.name); {
	case !r.named:
		p.rest.add(k.stats)
	case now != nil:
		now.stats.add(k.stats)
	default:
		k.stats.add(p.take(k.hash, k.name))
		p.keep(k)
	}
}

func (c *core) reclaimKey(k *fairKey) {
	for _, m := range k.window {
		c.forget(m)
	}
	k.window = nil
	k.class, k.prev, k.next = nil, nil, nil // or one that is still held would keep them all in memory
}

// addTo adds the counts of those keys to a sum.
func (r *detachedQueue) addTo(sum *keyStats) {
	for k := range r.keys.all() {
		sum.add(k.stats)
	}
}

// When a queue is emptied, its leases stay where they are, and are worth nothing from
// then on (held). How many there are is counted, and sweep goes through all leases, a
// portion a turn, until it has found as many: nothing else has to know which leases
// belong to which queue. Leases move in their heap meanwhile, so some are found only when
// it comes around again.

// looksPerUnit is how many leases are looked at for a unit of work.
const looksPerUnit = 4

// reclaimLeases drops leases of emptied queues.
func (c *core) reclaimLeases() {
	for n := 1; c.detached.leases > 0 && c.detached.reclaimed < c.detached.max; n++ {
		if c.detached.leaseAt >= c.leases.ends.len() {
			c.detached.leaseAt = 0
		}
		if m := c.leases.ends.h[c.detached.leaseAt]; m.key.purged() {
			c.dropLease(m) // another one takes its place
			c.detached.reclaimed++
			continue
		}
		c.detached.leaseAt++
		if n%looksPerUnit == 0 {
			c.detached.reclaimed++
		}
	}
}

// dropLease forgets the lease of a message that is gone with what its queue held. Its
// records went by range.
func (c *core) dropLease(m *message) {
	delete(c.leases.byID, m.id)
	c.leases.ends.remove(m)
	c.detached.leases--
	m.key.leased--
	if m.throttles != nil {
		c.endUse(m)
	}
	m.lease, m.status = lease{}, gone
}
