package engine

import "iter"

// remains are the fairness keys that a queue had when it was emptied. With the step that
// empties it they are none of its keys any more: not in its table, ring or roster, and
// nobody finds them there. What is left of them is counted elsewhere: the messages of
// their windows, the bodies of these, the places that keys have in throttles. To give
// that back is to go through all keys, and a turn that does so with a million of them
// keeps everybody waiting: so it is done in portions, one a turn, and the turns follow
// each other.
//
// Until it comes to them, emptied keys are met in three places: in the line of a
// throttle, in line for a read, and by a read that comes back (alive). They are passed
// over there, so many in a turn and no more. None of them may be settled: it would
// change the ring that the queue has now.
//
// All of it is in memory only. The records are gone with the batch of the emptying.
type remains struct {
	queue     *queue
	scheduler *scheduler // of that time
	keys      []rosterEntry[fairKey]
	named     bool // the counts of the keys are kept by name
}

// sweepMax is how many keys and messages are given back in one turn, of each queue that
// was emptied: as fast as they came at least, however often a queue is filled and emptied.
const sweepMax = 4096

// emptied says that the key was its queue's when that was emptied.
func (k *fairKey) emptied() bool { return k.seq <= k.queue.emptied }

// leaveRemains leaves the keys of a queue to sweep. Few of them are not worth the trouble, and
// their counts stay known by name, so it is done with them at once.
func (c *core) leaveRemains(q *queue) {
	r := &remains{queue: q, scheduler: q.scheduler, keys: q.roster.entries, named: q.keys.n < min(pastMax, c.sweepMax)}
	for r.named && !r.done() {
		c.sweepSome(r)
	}
	if !r.done() {
		c.remains = append(c.remains, r)
	}
}

// sweep gives back a portion of what emptied queues have left.
func (c *core) sweep() {
	rest := c.remains[:0]
	for _, r := range c.remains {
		c.sweepSome(r)
		if !r.done() {
			rest = append(rest, r)
		}
	}
	clear(c.remains[len(rest):])
	c.remains = rest
	c.unfinished = c.unfinished || len(rest) > 0
}

func (r *remains) done() bool { return len(r.keys) == 0 && len(r.scheduler.classes) == 0 }

func (c *core) sweepSome(r *remains) {
	n := 0
	for _, cl := range r.scheduler.classes {
		if n >= c.sweepMax {
			return
		}
		n++
		c.swept++
		c.dropClass(cl)
	}
	for ; n < c.sweepMax && len(r.keys) > 0; r.keys = r.keys[1:] {
		n++
		k := r.keys[0].what
		if k == nil {
			continue
		}
		n += len(k.window)
		c.swept += 1 + len(k.window)
		c.sweepKey(k)
		if r.named {
			r.queue.past.keep(k)
		} else {
			r.queue.past.rest.add(k.stats)
		}
	}
}

func (c *core) sweepKey(k *fairKey) {
	for _, m := range k.window {
		c.forget(m)
	}
	k.window = nil
	k.class, k.prev, k.next = nil, nil, nil // or one that is still held would keep them all in memory
}

// all goes through the keys that sweep has not come to.
func (r *remains) all() iter.Seq[*fairKey] {
	return func(yield func(*fairKey) bool) {
		for _, e := range r.keys {
			if e.what != nil && !yield(e.what) {
				return
			}
		}
	}
}

// addTo adds the counts of those keys to a sum.
func (r *remains) addTo(sum *keyStats) {
	for k := range r.all() {
		sum.add(k.stats)
	}
}
