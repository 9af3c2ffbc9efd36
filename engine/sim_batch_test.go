//go:build !race

package engine

// Batches in the simulation: a part of the leases takes messages of one key only.

// leaseOneKey makes a lease one of a single key, in some of the cases. It draws no random number.
func (s *sim) leaseOneKey(req *LeaseRequest) {
	for _, q := range req.Queues {
		if s.oracle.order.on && q == "a" { // it refuses them
			return
		}
	}
	req.SameKey = s.decisions%3 == 0
}

// ofOneKey judges a lease of one key: all of its messages are of that, and one that has fewer than it asked for has left
// nothing that may follow. Leases that ended while it read the others (inParts) are left out of its answer.
func (s *sim) ofOneKey(tx *Tx, req *LeaseRequest, ds []*Delivery, inParts bool) {
	if !req.SameKey || len(ds) == 0 {
		return
	}
	for _, d := range ds {
		if d.Queue != ds[0].Queue || d.Key != ds[0].Key {
			s.oracle.fail("a lease of one key has messages of %s/%s and %s/%s", ds[0].Queue, ds[0].Key, d.Queue, d.Key)
		}
	}
	q := tx.core.queues.byName[ds[0].Queue]
	if q == nil || inParts || len(ds) >= req.Count {
		return
	}
	if k := q.keys.get(ds[0].Key); k != nil && !k.paused && !q.set.PausedOut {
		if k.window.Len() > 0 && q.order.Follows(&k.Key) {
			s.oracle.fail("a lease of %d messages of one key has %d, and another one may follow", req.Count, len(ds))
		}
		if k.window.Awaiting() && !k.window.LastReadEmpty() {
			s.oracle.fail("a lease of %d messages of one key has %d, and has not read the others", req.Count, len(ds))
		}
	}
}
