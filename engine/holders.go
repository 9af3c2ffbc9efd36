package engine

import (
	"cmp"
	"slices"
	"time"
)

// Explanations find leases by walking over all of them, in slices if there are many.
// Explanations are rare, and an index of leases by throttle would add work to every delivery.

// holderSearch looks for the leases that keep throttles full, for an explanation.
type holderSearch struct {
	walk  *leaseWalk
	full  map[string]bool // the throttles whose slots are all in use
	found []holderLease   // those that end first, at most holdersMax, in that order
	count int64           // of all leases that name such a throttle
}

// holderLease is one delivery: the delivery number tells whether the lease still exists at the
// end of the walk.
type holderLease struct {
	Holder
	fence uint64
}

// searchHolders starts the search for an explanation.
func (c *core) searchHolders(x *Explanation) *holderSearch {
	s := &holderSearch{walk: c.walkLeases(), full: map[string]bool{}}
	for i := range x.BlockedBy {
		if b := &x.BlockedBy[i]; b.Concurrency > 0 {
			s.full[b.Throttle] = true
		}
	}
	return s
}

// addHolders adds to an explanation the leases that keep its throttles full. It returns
// ErrWouldBlock if it continues in a later turn; *search then holds the search. Leases that
// began after the search are not named, and those that have ended are left out. HolderCount is
// that of the explanation where a single throttle is full, else that of the walk.
func (tx *Tx) addHolders(x *Explanation, search **holderSearch) error {
	c := tx.core
	if x.State != KeyConcurrency {
		return nil
	}
	s := *search
	if s == nil || s.walk.epoch != c.epoch {
		s = c.searchHolders(x)
		*search = s
	}
	if len(s.full) > 0 && !s.walk.each(tx, s.look) {
		return tx.yield()
	}
	*search = nil
	for _, h := range s.found {
		if m := c.leases.byID[h.ID]; m != nil && m.fence == h.fence {
			x.Holders = append(x.Holders, h.Holder)
		}
	}
	x.HolderCount = s.count
	for i := range x.BlockedBy {
		if b := &x.BlockedBy[i]; len(s.full) == 1 && s.full[b.Throttle] {
			x.HolderCount = b.InUse
		}
	}
	return nil
}

// look adds a lease to those found if it names a full throttle. It always returns true: the
// walk goes over all leases.
func (s *holderSearch) look(m *message) bool {
	if m.retrying || !slices.ContainsFunc(m.throttleKeys(), func(name string) bool { return s.full[name] }) {
		return true
	}
	s.count++
	h := holderLease{fence: m.fence, Holder: Holder{
		ID: m.id, Queue: m.key.queue.name, Key: m.key.name, Consumer: m.consumer, Until: time.Unix(0, m.until),
	}}
	at, _ := slices.BinarySearchFunc(s.found, h, func(a, b holderLease) int {
		return cmp.Or(a.Until.Compare(b.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
	if at == holdersMax {
		return true
	}
	s.found = slices.Insert(s.found, at, h)
	s.found = s.found[:min(len(s.found), holdersMax)]
	return true
}
