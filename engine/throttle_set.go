package engine

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// throttleSet is all throttles, and which of them may have room for what waits.
type throttleTable struct {
	byName  map[string]*throttle
	list    roster[throttle]
	version uint64 // grows with each change of which throttles there are

	timers   timers[*throttle] // by their next token, if a class waits for it
	notified []*throttle       // may have got room
	waking   *throttle         // whose room wakeAll gives away
	deferred bool              // wakeAll has left some of notified to the next step
	order    uint64            // of the newest entry in a line, and claim

	unset map[string]*unsetKey // throttle keys without a setting that leases name

	stale     []*queue // whose keys may name throttles that have come or gone, see reclass
	staleFrom uint64   // cursor in the first of them
}

func (s *throttleTable) reset() {
	*s = throttleTable{byName: map[string]*throttle{}, unset: map[string]*unsetKey{}, version: s.version + 1, waking: s.waking, order: s.order, staleFrom: s.staleFrom}
}

func (s *throttleTable) next(*core) int64 {
	if t, ok := s.timers.next(); ok {
		return t.wakeAt
	}
	return never
}

// expire wakes the throttles whose next token has come.
func (s *throttleTable) expire(c *core) {
	for c.room() {
		t, ok := s.timers.next()
		if !ok || t.wakeAt > c.now {
			break
		}
		c.spend(1)
		c.disarm(t)
		c.notify(t)
	}
	c.atLeast(c.tasks.budget.part(32))
	c.wakeAll()
}

// limits are the throttle keys of a message. Messages of a fairness key that have the
// same ones share them, so that the throttles need not be looked up for each.
type throttleSet struct {
	names   []string
	set     []*throttle // those of them that have a setting
	unset   []*unsetKey // the others
	version uint64      // of core.throttles, for which that holds
	class   *class      // of a message with these, for the same version; nil: not looked up
}

// newLimits returns nil for no keys.
func newThrottleSet(names []string) *throttleSet {
	if len(names) == 0 {
		return nil
	}
	return &throttleSet{names: names}
}

// limit returns the limits with these keys, the same ones as long as the key's
// messages have the same.
func (k *fairKey) throttleSet(names []string) *throttleSet {
	if len(names) == 0 {
		return nil
	}
	if k.throttles == nil || !slices.Equal(k.throttles.names, names) {
		k.throttles = newThrottleSet(names)
	}
	return k.throttles
}

// throttleKeys are those of a message.
func (m *message) throttleKeys() []string {
	return m.throttles.keys()
}

func (l *throttleSet) keys() []string {
	if l == nil {
		return nil
	}
	return l.names
}

// throttlesOf returns the throttles that hold for a message, in the order of its keys.
func (c *core) throttlesOf(m *message) []*throttle {
	l := m.throttles
	if l == nil {
		return nil
	}
	if l.version != c.throttles.version {
		l.version, l.set, l.unset, l.class = c.throttles.version, nil, nil, nil
		for _, name := range l.names {
			if t := c.throttles.byName[name]; t != nil {
				l.set = append(l.set, t)
			} else {
				l.unset = append(l.unset, c.unsetNamed(name))
			}
		}
	}
	return l.set
}

// A message may name throttle keys that have no setting: they limit nothing. But when one
// gets a setting, the leases that name it count from that moment on, and there may be a
// hundred thousand leases. So those that are in use are counted for each such key while
// there are any, as a throttle counts its own.

// unsetKey is a throttle key without a setting. It is in core.unset while it is in use.
type unsetKey struct {
	name  string
	inUse int64 // leases of messages that name it
}

// unsetNamed returns the key of a name, which may be one that is not in use.
func (c *core) unsetNamed(name string) *unsetKey {
	if u := c.throttles.unset[name]; u != nil {
		return u
	}
	return &unsetKey{name: name}
}

// useUnset counts a lease for the keys without a setting that its message names, and
// endUnset is its end.
func (c *core) useUnset(m *message) {
	c.throttlesOf(m) // so that they are up to date
	l := m.throttles
	if l == nil {
		return
	}
	for i, u := range l.unset {
		if u.inUse == 0 { // it may have come into use through another message
			u = c.unsetNamed(u.name)
			l.unset[i], c.throttles.unset[u.name] = u, u
		}
		u.inUse++
	}
}

func (c *core) endUnset(m *message) {
	for _, u := range m.throttles.unset {
		if u.inUse--; u.inUse == 0 {
			delete(c.throttles.unset, u.name)
		}
	}
}

// takeUnset returns how many leases name a key that gets a setting.
func (c *core) takeUnset(name string) int64 {
	n := c.unsetNamed(name).inUse
	delete(c.throttles.unset, name)
	return n
}

// leaveUnset goes on counting the leases that name a key whose setting is taken away.
func (c *core) leaveUnset(t *throttle) {
	if t.inUse > 0 {
		c.throttles.unset[t.name] = &unsetKey{name: t.name, inUse: t.inUse}
	}
}

// What an explanation says of leases is found by going through all of them, in slices if
// there are many: it is asked rarely, and an index would cost each delivery something.

// leaseWalk goes through the leases over several turns. A lease that lasts meanwhile is
// met exactly once, as Go says of a map that changes under a range. The order is that of
// the map: what is made of it must not depend on that.
type leaseWalk struct {
	epoch uint64
	it    *reflect.MapIter
}

// leasesPerUnit is how many leases a walk meets for a unit of work. They are all over the
// memory.
const leasesPerUnit = 2

func (c *core) walkLeases() *leaseWalk {
	return &leaseWalk{epoch: c.epoch, it: reflect.ValueOf(c.leases.byID).MapRange()}
}

// each calls fn with the leases until it returns false. It reports whether the walk is
// over; else the task has to yield.
func (w *leaseWalk) each(tx *Tx, fn func(m *message) bool) (over bool) {
	for n := 0; n%leasesPerUnit != 0 || tx.more(); n++ {
		if !w.it.Next() {
			return true
		}
		if m, ok := reflect.TypeAssert[*message](w.it.Value()); !ok || !fn(m) {
			return true
		}
	}
	return false
}

// holderSearch looks for the leases that keep throttles full, for an explanation.
type holderSearch struct {
	walk  *leaseWalk
	full  map[string]bool
	found []holderLease // the first ones to end, at most holdersMax
	count int64
}

type holderLease struct {
	Holder
	fence uint64
}

func (c *core) searchHolders(x *Explanation) *holderSearch {
	s := &holderSearch{walk: c.walkLeases(), full: map[string]bool{}}
	for i := range x.BlockedBy {
		if b := &x.BlockedBy[i]; b.Concurrency > 0 {
			s.full[b.Throttle] = true
		}
	}
	return s
}

// addHolders adds the leases to an explanation that keep its throttles full. It returns
// ErrWouldBlock where it goes on in a later turn. Those that have begun since are not
// named; how many there are is what the throttle said when the explanation was made, if
// it is one throttle.
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

// look takes a lease among those found if it keeps a throttle full.
func (s *holderSearch) look(m *message) bool {
	if !slices.ContainsFunc(m.throttleKeys(), func(name string) bool { return s.full[name] }) {
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

// leasedSearch looks for the leased messages of the keys that an id may belong to.
type leasedSearch struct {
	walk   *leaseWalk
	leased map[ID]struct{}
}

// searchLeased returns the leased messages of the keys of a queue that an id may belong to.
// It returns ErrWouldBlock where it goes on in a later turn.
func (tx *Tx) searchLeased(q *queue, id ID, search **leasedSearch) (map[ID]struct{}, error) {
	c, hash := tx.core, idKeyHash(id)
	left := int64(0)
	for _, k := range q.keys.withID(hash) {
		left += k.leased
	}
	s := *search
	if s == nil || s.walk.epoch != c.epoch {
		s = &leasedSearch{walk: c.walkLeases(), leased: map[ID]struct{}{}}
		*search = s
	}
	left -= int64(len(s.leased))
	over := left <= 0 || s.walk.each(tx, func(m *message) bool {
		if m.key.queue == q && m.key.idHash == hash && !m.key.purged() {
			s.leased[m.id] = struct{}{}
			left--
		}
		return left > 0
	})
	if !over {
		return nil, tx.yield()
	}
	*search = nil
	return s.leased, nil
}
