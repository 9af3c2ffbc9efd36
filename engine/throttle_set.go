package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/internal/adaptive"
	"github.com/faisca/fila/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// throttleTable is the component of all throttles.
type throttleTable struct {
	byName  map[string]*throttle
	list    intrusive.Roster[throttle]
	version uint64 // incremented when a throttle is added or removed: throttle sets of an older version are stale

	timers   intrusive.Heap[*throttle] // armed timers: next tokens and ends of reservations
	idle     int                       // classes in scheduler.idle of all queues
	order    uint64                    // last number given to an entry in a line or a claim
	afterCut int64                     // later than all cuts of adaptive throttles, see leaseTime

	unset map[string]*unsetKey // throttle keys without a setting that live leases name

	recent []*throttleSet // of keys that came not long ago, recentSets slots by the hash of the key

	stale, staleEnd uint32 // queues from one number to the other may have keys in older classes, see reclassifySlice
	staleFrom       uint64 // cursor in the keys of the first of them
}

// recentSets is how many throttle sets are remembered of keys that may have been forgotten.
const recentSets = 4096

// reset forgets all throttles. The version and the order keep growing, so nothing that refers
// to the old throttles is taken for current.
func (s *throttleTable) reset() {
	*s = throttleTable{byName: map[string]*throttle{}, unset: map[string]*unsetKey{}, recent: make([]*throttleSet, recentSets), version: s.version + 1, order: s.order, afterCut: s.afterCut}
}

// next is the time of the first timer of a throttle.
func (s *throttleTable) next(*core) int64 {
	if t, ok := s.timers.First(); ok {
		return t.wakeAt
	}
	return never
}

// behind reports whether there may be room that the next turn gives away, which follows at once.
func (s *throttleTable) behind(c *core) bool { return c.grants.pending() || s.next(c) <= c.now }

// expire lists the throttles whose timers are due, and has their room given away with what the step
// has left: beside a full inbox the serve step alone would deliver a third of it.
func (s *throttleTable) expire(c *core) {
	for c.room() {
		t, ok := s.timers.First()
		if !ok || t.wakeAt > c.now {
			break
		}
		c.spend(1)
		c.disarm(t)
		c.list(t)
	}
	c.atLeast(c.tasks.budget.part(32))
	c.serveReady()
}

// addThrottle creates a throttle with a full bucket. The new version of the table makes all
// throttle sets look up their throttles again.
func (c *core) addThrottle(key string, set storage.Throttle) *throttle {
	t := &throttle{name: key, set: set, tokens: float64(set.Burst), at: c.now, entries: map[*queue]*entry{}, waitingKeys: waitingKeys{countedAt: c.now}, freedAt: c.now, timer: -1}
	t.adapt(nil)
	c.throttles.byName[key] = t
	c.throttles.version++
	t.seq = c.throttles.list.Add(t)
	return t
}

// checkThrottleKey returns ErrInvalid for an empty key and ErrTooBig for one above
// Limits.Throttle.
func (c *core) checkThrottleKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a throttle key has at least one byte", ErrInvalid)
	}
	if len(key) > c.cfg.Limits.Throttle {
		return fmt.Errorf("%w: throttle key of %d bytes, the limit is %d", ErrTooBig, len(key), c.cfg.Limits.Throttle)
	}
	return nil
}

// need is how many tokens the class takes whose turn is next in the entry, 1 if none waits.
func (e *entry) need() int64 {
	if cl, ok := e.waiting.First(); ok {
		return cl.need(cl.flowAt(e.throttle))
	}
	return 1
}

// nextNeed is how many tokens the class takes that is next in the line of the throttle, 1 if
// none waits.
func (t *throttle) nextNeed() int64 {
	if e, ok := t.line.First(); ok {
		return e.need()
	}
	return 1
}

// arm sets the timer of a throttle: for the tokens of the class that is next in the line or has
// the first claim, and for the end of a reservation. A class that waits for a concurrency slot
// needs no timer, since the end of a lease wakes the throttle.
func (c *core) arm(t *throttle) {
	at := int64(math.MaxInt64)
	if t.set.ByCost || t.first != nil {
		at = c.save(t)
	}
	if t.set.Rate > 0 {
		if tokens := t.required(t.nextNeed()) + t.reserved; t.line.Len() > 0 && t.slotsBeside(t.reservedSlots()) && !t.holds(c.now, tokens) {
			at = min(at, t.holdsAt(c.now, tokens))
		}
		if cl := t.nextClaim(); cl != nil { // it takes over what is reserved for a later one
			if tokens := t.required(cl.need(cl.flowAt(t))); !t.holds(c.now, tokens) {
				at = min(at, t.holdsAt(c.now, tokens))
			}
		}
	}
	if t.reservedFor != nil {
		at = min(at, t.reservedUntil(c.now))
	}
	if at == math.MaxInt64 {
		c.disarm(t)
		return
	}
	t.wakeAt = max(at, c.now+1)
	if t.timer < 0 {
		c.throttles.timers.Push(t)
	} else {
		c.throttles.timers.Fix(t)
	}
}

// disarm stops the timer of a throttle.
func (c *core) disarm(t *throttle) {
	if t.timer >= 0 {
		c.throttles.timers.Remove(t)
	}
}

// throttleSet is the throttle set of a message: its throttle keys, with the throttles looked
// up, and the budgets that pay for it. Consecutive messages of a fairness key with the same names
// and charge share one throttleSet, so that throttles and class need not be looked up for each
// message. Names or budgets are not empty.
type throttleSet struct {
	names   []string    // throttle keys, as the message names them
	budgets []string    // names of budgets, as the message names them
	charge  int64       // to each of them
	set     []*throttle // of the keys that have a setting, in the order of names
	needs   []int64     // tokens that a delivery takes of each of set unless its throttle is by cost; nil: one of each
	unset   []*unsetKey // the other keys
	version uint64      // of the throttleTable for which set, unset and class hold
	class   *class      // of messages with this set; nil: not looked up

	accounts   []*account // the budgets, in the order of their names; nil for one that does not exist
	accountsIn uint64     // version of the accountTable for which accounts hold
}

// newThrottleSet returns the set of these throttle keys and budgets, nil if there are none.
func newThrottleSet(names, budgets []string, charge int64) *throttleSet {
	if len(names)+len(budgets) == 0 {
		return nil
	}
	return &throttleSet{names: names, budgets: budgets, charge: charge}
}

// has reports whether the set, which may be nil, has these throttle keys and budgets.
func (l *throttleSet) has(names, budgets []string) bool {
	return l != nil && slices.Equal(l.names, names) && slices.Equal(l.budgets, budgets)
}

// throttleSet returns the set of these throttle keys and budgets for a message of a fairness key,
// nil if there are none. It returns the key's present set if that is the same, or the one that the
// key had when its last message left: a key without messages is forgotten, and when it comes back
// its messages mostly name what they named before. A set that differs by its charge alone shares
// what has been looked up: the class does not depend on the charge.
func (c *core) throttleSet(k *fairKey, names, budgets []string, charge int64) *throttleSet {
	if len(names)+len(budgets) == 0 {
		return nil
	}
	if !k.throttles.has(names, budgets) {
		k.throttles = c.recentSet(k.queue, k.hash, names, budgets, charge)
	}
	if l := k.throttles; l.charge != charge {
		same := *l
		same.charge = charge
		k.throttles = &same
	}
	return k.throttles
}

// recentSet returns the set of these throttle keys and budgets that the fairness key with a hash has
// had last, or a new one. Its charge may be another one.
func (c *core) recentSet(q *queue, hash nameHash, names, budgets []string, charge int64) *throttleSet {
	slot := &c.throttles.recent[(uint64(hash)+uint64(q.no))%recentSets]
	if !(*slot).has(names, budgets) {
		*slot = newThrottleSet(names, budgets, charge)
	}
	return *slot
}

// budgets returns the budgets that pay for the message, which the caller must not change, and
// the charge to each of them.
func (m *message) budgets() (names []string, charge int64) {
	if m.throttles == nil {
		return nil, 0
	}
	return m.throttles.budgets, m.throttles.charge
}

// throttleKeys returns the throttle keys of the message, which the caller must not change.
func (m *message) throttleKeys() []string {
	return m.throttles.keys()
}

func (l *throttleSet) keys() []string {
	if l == nil {
		return nil
	}
	return l.names
}

// throttlesOf returns the throttles that limit a message, in the order of its throttle keys. It
// looks them up again if a throttle has been added or removed since.
func (c *core) throttlesOf(m *message) []*throttle { return c.limits(m.throttles) }

// limits returns the throttles of a set, which may be nil, in the order of its throttle keys. It looks them up again
// if a throttle has been added or removed since.
func (c *core) limits(l *throttleSet) []*throttle {
	if l == nil {
		return nil
	}
	if l.version != c.throttles.version {
		l.version, l.set, l.needs, l.unset, l.class = c.throttles.version, nil, nil, nil, nil
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

// A throttle key without a setting limits nothing. But once it gets a setting, the live leases
// that name it count toward its concurrency, and there may be 100,000 leases to look at. So the
// leases of such keys are counted as well, for as long as there are any.
//
//	unset, not in use   not in memory
//	unset, in use       unsetKey with inUse >= 1 in throttleTable.unset
//	set                 throttle with inUse
//
//	takeUnset moves the count to the throttle when the key gets a setting,
//	leaveUnset back when the setting is deleted.

// unsetKey is a throttle key without a setting. It is in throttleTable.unset while it is in
// use.
type unsetKey struct {
	name  string
	inUse int64 // live leases of messages that name it
}

// unsetNamed returns the unset key of a name. One that is not in use is new, and is not in the
// table.
func (c *core) unsetNamed(name string) *unsetKey {
	if u := c.throttles.unset[name]; u != nil {
		return u
	}
	return &unsetKey{name: name}
}

// useUnset counts a new lease for the unset keys that its message names. endUnset undoes it.
func (c *core) useUnset(m *message) {
	c.throttlesOf(m) // brings the set up to date
	l := m.throttles
	if l == nil {
		return
	}
	for i, u := range l.unset {
		if u.inUse == 0 { // another message may have put the key into use
			u = c.unsetNamed(u.name)
			l.unset[i], c.throttles.unset[u.name] = u, u
		}
		u.inUse++
	}
}

// endUnset ends a lease for the unset keys of its message.
func (c *core) endUnset(m *message) {
	for _, u := range m.throttles.unset {
		if u.inUse--; u.inUse == 0 {
			delete(c.throttles.unset, u.name)
		}
	}
}

// takeUnset returns the number of live leases that name a key that gets a setting, and forgets
// the unset key.
func (c *core) takeUnset(name string) int64 {
	n := c.unsetNamed(name).inUse
	delete(c.throttles.unset, name)
	return n
}

// leaveUnset continues to count the live leases of a key whose setting is deleted.
func (c *core) leaveUnset(t *throttle) {
	if t.inUse > 0 {
		c.throttles.unset[t.name] = &unsetKey{name: t.name, inUse: t.inUse}
	}
}

// An adaptive throttle allows as many leases as its limit (internal/adaptive), which is in memory
// only: a start begins with Concurrency. A lease that ends with an ack tells its throttles of a
// success, one that ends with a nack or expires of a failure, both before it returns its slots, so
// that endUse wakes a throttle whose limit has grown. Other ends tell nothing: release, cancel and
// purge, and a message that is dead by its own fault. A limit is only ever behind what commits:
// after a failed one it may have heard of an end that did not take place.
//
// The failures of leases that began before a cut belong to that cut. Times tell which these are,
// and leases and cuts have different ones also within a turn: leaseTime goes on with each cut.

// leaseTime is when a lease begins that begins now, in Unix nanoseconds: after all cuts.
func (c *core) leaseTime() int64 { return max(c.now, c.throttles.afterCut) }

// adapt gives the throttle the limit of its setting: old within the new bounds, or a new one where
// that is nil; none if the throttle is not adaptive.
func (t *throttle) adapt(old *adaptive.Limit) {
	switch t.adaptive = old; {
	case t.set.AdaptiveMin == 0:
		t.adaptive = nil
	case old == nil:
		t.adaptive = adaptive.New(t.set.AdaptiveMin, t.set.Concurrency)
	default:
		old.Set(t.set.AdaptiveMin, t.set.Concurrency)
	}
}

// succeeded tells the adaptive throttles of a leased message that its work has succeeded.
func (c *core) succeeded(m *message) {
	for _, t := range c.throttlesOf(m) {
		if t.adaptive != nil {
			t.adaptive.Success(t.inUse)
		}
	}
}

// failed tells the adaptive throttles of a leased message that its work has failed. A message that
// is dead for another reason than its attempts was wrong itself, which says nothing about them.
func (c *core) failed(m *message, dead bool, reason string) {
	if dead && reason != reasonAttempts {
		return
	}
	now, began := c.leaseTime(), c.leasedAt(m)
	for _, t := range c.throttlesOf(m) {
		if t.adaptive != nil && t.adaptive.Failure(began, now) {
			c.throttles.afterCut = now + 1
		}
	}
}

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
