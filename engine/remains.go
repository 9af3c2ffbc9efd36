package engine

// remains are the fairness keys that a queue had when it was emptied. With the step that
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
type remains struct {
	queue     *queue
	no        uint32     // that the queue had
	scheduler *scheduler // of that time
	keys      roster[fairKey]
	named     bool // the counts of the keys are kept by name
}

// sweepMax is how many keys, leases and messages are given back in one turn: as fast as
// they came at least, however often queues are filled and emptied.
const sweepMax = turnUnits

// emptied says that the key was its queue's when that was emptied.
func (k *fairKey) emptied() bool { return k.seq <= k.queue.emptied }

// leaveRemains leaves what a queue had to sweep. Few keys are mostly done with at once,
// and their counts stay known by name.
func (c *core) leaveRemains(r *remains) {
	if r.named {
		c.sweepSome(r)
	}
	if c.left(r) {
		c.remains = append(c.remains, r)
	}
}

// left says that there is more to give back.
func (c *core) left(r *remains) bool {
	return len(r.keys.blocks) > 0 || len(r.scheduler.classes) > 0 || c.due.byQueue[r.no] != nil || c.ends.byQueue[r.no] != nil
}

// sweep gives back a portion of what emptied queues have left.
func (c *core) sweep() {
	c.sweepLeases()
	for len(c.remains) > 0 && c.swept < c.sweepMax {
		r := c.remains[0]
		c.sweepSome(r)
		if c.left(r) {
			break
		}
		c.remains[0] = nil
		c.remains = c.remains[1:]
	}
	c.unfinished = c.unfinished || len(c.remains) > 0 || c.orphans > 0
}

func (c *core) sweepSome(r *remains) {
	for ; c.swept < c.sweepMax; c.swept++ {
		if d := c.due.byQueue[r.no]; d != nil {
			c.unschedule(d)
		} else if d := c.ends.byQueue[r.no]; d != nil {
			c.unindex(&c.ends, d.at, d.mk)
		} else {
			break
		}
	}
	for _, cl := range r.scheduler.classes {
		if c.swept >= c.sweepMax {
			return
		}
		c.swept++
		c.dropClass(cl)
	}
	for c.swept < c.sweepMax {
		k := r.keys.shift()
		if k == nil {
			return
		}
		c.swept += 1 + len(k.window)
		c.sweepKey(k)
		r.keepStats(k)
	}
}

// keepStats keeps the counts of a key: by name, unless they were too many. Another key of
// that name may be there already, or have been.
func (r *remains) keepStats(k *fairKey) {
	p := &r.queue.past
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

func (c *core) sweepKey(k *fairKey) {
	for _, m := range k.window {
		c.forget(m)
	}
	k.window = nil
	k.class, k.prev, k.next = nil, nil, nil // or one that is still held would keep them all in memory
}

// addTo adds the counts of those keys to a sum.
func (r *remains) addTo(sum *keyStats) {
	for k := range r.keys.all() {
		sum.add(k.stats)
	}
}
