package engine

import "slices"

// detachedQueue is the keys that a queue had when it was purged or deleted. The states of
// such a key:
//
//	live ──detachAll──▶ detached ──reclaim──▶ reclaimed (unreferenced)
//
// With detachAll the keys are in none of the queue's tables, so no command finds them. What
// they hold is still counted elsewhere: the messages of head caches, their bodies, entries
// in the lines of throttles, and concurrency slots of leases. Reclaiming visits all keys;
// with a million of them that would stall a turn, so each turn reclaims a portion, and
// turns follow each other until nothing is left.
//
// Until then, detached keys can be met in four places, each of which skips them at bounded
// cost: the line of a throttle, the queue of reads, the result of a read, and a lease.
// Their receipts are invalid (leaseOf). A detached key must not be settled: that would
// change the scheduler that the queue has now.
//
// Detaching is in memory only; the records went with the batch of detachAll.
type detachedQueue struct {
	queue     *queue
	no        uint32     // the number that the queue had
	scheduler *scheduler // the scheduler that the queue had
	keys      roster[fairKey]
	named     bool // statistics of the keys are kept by name, not only in sum
}

// detachedKeys is the component that reclaims detached keys and leases.
type detachedKeys struct {
	queues    []*detachedQueue
	leases    int64    // detached leases that are not reclaimed yet
	leaseAt   int      // index in the lease timers where the search for them continues
	reclaimed int      // keys, leases and messages visited in this turn; reclass counts here, too
	max       int      // reclaimMax, unless a test sets another bound
	scripts   [][]byte // keys of sources in the histories of queues that are gone
	orphaned  []uint32 // numbers without a queue under which the store has settings of keys

	untimed
	unchecked
}

func (d *detachedKeys) reset() {
	d.queues, d.leases, d.leaseAt, d.orphaned, d.scripts = nil, 0, 0, nil, nil
}

// reclaimMax is how many keys, leases and messages a turn reclaims. It is at least as many
// as a turn can enqueue, so that repeated purges do not accumulate detached keys.
const reclaimMax = turnUnits

// purged reports whether the key is detached. Keys are numbered in the order of their
// creation, so one number per queue tells.
func (k *fairKey) purged() bool { return k.seq <= k.queue.purgedUpTo }

// detach hands the former keys of a queue to reclaim. A small number of keys is reclaimed
// at once, and their statistics stay available by name.
func (c *core) detach(r *detachedQueue) {
	if r.named {
		c.reclaimSome(r)
	}
	if c.unfinished(r) {
		c.detached.queues = append(c.detached.queues, r)
	}
}

// unfinished reports whether something of a detached queue is left to reclaim.
func (c *core) unfinished(r *detachedQueue) bool {
	return len(r.keys.blocks) > 0 || len(r.scheduler.classes) > 0 || c.delayed.index.byQueue[r.no] != nil || c.ttl.index.byQueue[r.no] != nil
}

// reclaim reclaims a portion of the detached leases and keys, the oldest queue first. It is
// a step of each turn; the turn asks for another one as long as something is left.
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

// reclaimSome reclaims a portion of one detached queue: entries of the indexes by time,
// then classes, then keys.
func (c *core) reclaimSome(r *detachedQueue) {
	for ; c.detached.reclaimed < c.detached.max; c.detached.reclaimed++ {
		if d := c.delayed.index.byQueue[r.no].head(); d != nil {
			c.unschedule(d)
		} else if d := c.ttl.index.byQueue[r.no].head(); d != nil {
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

// keepStats keeps the statistics of a reclaimed key: under its name, or in the sum if there
// are too many keys. A new key with that name takes them over.
func (r *detachedQueue) keepStats(k *fairKey) {
	p, busiest := &r.queue.idle, &r.queue.idle.busiest
	switch now := r.queue.keys.find(k.hash, k.name); {
	case !r.named:
		p.rest.add(k.stats)
	case now != nil:
		now.stats.add(k.stats)
		busiest.note(now)
	default:
		busiest.drop(func(b *busiestKey) bool { return b.name == k.name })
		k.stats.add(p.take(k.hash, k.name))
		p.keep(k)
		if at := p.find(k.hash, k.name); at >= 0 { // else it was trimmed, or has no statistics
			busiest.noteIdle(&p.list[at])
		}
	}
}

// reclaiming reports whether a queue was purged and its detached keys are not reclaimed yet.
func (c *core) reclaiming(q *queue) bool {
	return slices.ContainsFunc(c.detached.queues, func(r *detachedQueue) bool { return r.queue == q })
}

// reclaimKey drops the messages of a key's head cache.
func (c *core) reclaimKey(k *fairKey) {
	for _, m := range k.window {
		c.forget(m)
	}
	k.window = nil
	k.class, k.prev, k.next = nil, nil, nil // one referenced key must not keep all others in memory
}

// The leases of a purged queue stay in the lease table, invalid. The table has no index by
// queue, as nothing else would use it. detachedKeys.leases counts them, and reclaimLeases
// walks the whole table, a portion in each turn, until it has found that many. Leases move
// within their heap meanwhile, so the walk may take more than one round.

// looksPerUnit is how many leases a unit of the budget pays for when they are only
// inspected.
const looksPerUnit = 4

// reclaimLeases drops a portion of the detached leases.
func (c *core) reclaimLeases() {
	for n := 1; c.detached.leases > 0 && c.detached.reclaimed < c.detached.max; n++ {
		if c.detached.leaseAt >= c.leases.ends.len() {
			c.detached.leaseAt = 0
		}
		if m := c.leases.ends.h[c.detached.leaseAt]; m.key.purged() {
			c.dropLease(m) // another lease takes its index
			c.detached.reclaimed++
			continue
		}
		c.detached.leaseAt++
		if n%looksPerUnit == 0 {
			c.detached.reclaimed++
		}
	}
}

// dropLease drops a detached lease and returns its throttle slots. Its records went by
// range deletion.
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
