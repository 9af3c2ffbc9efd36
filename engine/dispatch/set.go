package dispatch

import (
	"cmp"
	"math"

	"github.com/faisca/fila/engine/internal/adaptive"
	"github.com/faisca/fila/engine/internal/intrusive"
)

// addThrottle creates a throttle with a full bucket and a setting. The new version of the table makes all
// throttle sets look up their throttles again.
func (o *Order) addThrottle(key string, set Limits) *throttle {
	o.version++
	t := o.newThrottle(key, &terms{Limits: set, from: o.now})
	t.grow(o.now)
	o.enroll(&o.roster, t)
	t.adapt(nil, o.now)
	return t
}

// newThrottle adds a throttle with a full bucket to the table. It is in no roster yet.
func (o *Order) newThrottle(key string, set *terms) *throttle {
	t := &throttle{name: key, set: set, extra: &noExtra, tokens: float64(set.Burst), at: o.now, timer: -1}
	o.throttles[key] = t
	o.peak = max(o.peak, len(o.throttles))
	return t
}

// enroll adds a throttle to a roster, and numbers it if it is new. Numbers are those of both rosters.
func (o *Order) enroll(r *intrusive.Roster[throttle], t *throttle) {
	o.seq++
	r.Skip(o.seq - 1)
	if n := r.Add(t); t.seq == 0 {
		t.seq = n
	} else {
		t.grow(o.now)
		t.number = n
	}
}

// strike takes a throttle out of a roster.
func (r *rosters) strike(t *throttle) {
	list := &r.roster
	if t.set.pattern != nil {
		list = &r.instances
	}
	list.Remove(cmp.Or(t.number, t.seq))
}

// rosters are the throttles in the order of creation.
type rosters struct {
	roster    intrusive.Roster[throttle] // with settings, and what stands for patterns
	instances intrusive.Roster[throttle] // of patterns
	seq       uint64                     // the number given last
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
func (o *Order) arm(t *throttle) {
	at := int64(math.MaxInt64)
	if t.set.ByCost || t.first != nil {
		at = o.save(t)
	}
	if t.set.Rate > 0 {
		if tokens := t.required(t.nextNeed()) + t.reserved; t.line.Len() > 0 && t.slotsBeside(t.reservedSlots()) && !t.holds(o.now, tokens) {
			at = min(at, t.holdsAt(o.now, tokens))
		}
		if cl := t.nextClaim(); cl != nil {
			if tokens := t.required(cl.need(cl.flowAt(t))); !t.holds(o.now, tokens) {
				at = min(at, t.holdsAt(o.now, tokens))
			}
		}
	}
	if t.reservedFor != nil {
		at = min(at, t.reservedUntil(o.now))
	}
	switch {
	case t.timer >= 0 && t.unused != dated && t.wakeAt <= o.now: // it is due: what follows from that is still to come
	case at == math.MaxInt64:
		o.disarm(t)
	default:
		o.setTimer(t, at)
	}
}

// setTimer sets the timer of a throttle to a time.
func (o *Order) setTimer(t *throttle, at int64) {
	o.named(t) // it has another timer
	t.wakeAt = max(at, o.now+1)
	if t.timer < 0 {
		o.timers.Push(t)
	} else {
		o.timers.Fix(t)
	}
}

// disarm stops the timer of a throttle.
func (o *Order) disarm(t *throttle) {
	if t.timer >= 0 && t.unused != dated {
		o.timers.Remove(t)
	}
}

// Set is what limits a message beside its queue: its throttle keys, and the budgets that pay for it. The
// messages of a key that name the same share one Set, so that throttles and class need not be
// looked up for each message. A copy of a Set with another charge is as good.
type Set struct {
	Names   []string // throttle keys, as the message names them; must not be changed
	Budgets []string // names of budgets; must not be changed
	Charge  int64    // to each of them

	set     []*throttle // of the keys that have limits, in the order of Names
	unset   []*unsetKey // the other keys
	version uint64      // of the order for which set, unset and class hold
	added   uint64      // Order.added for which unset holds
	class   *class      // of messages with this set; nil: not looked up
	owned   bool        // the throttles were the key's own when class was looked up
}

// limits returns the throttles of a set, which may be nil, in the order of its throttle keys. It looks them up again
// if a setting or a pattern has been added or removed since, or one of its throttles was forgotten.
func (o *Order) limits(l *Set) []*throttle {
	if l == nil {
		return nil
	}
	if !o.current(l) {
		o.lookUp(l)
	}
	return l.set
}

// current reports whether the throttles that were looked up of a set are those of its throttle keys.
func (o *Order) current(l *Set) bool {
	if l.version != o.version {
		return false
	}
	for _, t := range l.set {
		if t.gone {
			return false
		}
	}
	if l.added != o.added {
		l.added = o.added
		for _, u := range l.unset {
			if is := o.unset[u.name]; o.throttles[u.name] != nil || is != u && (is != nil || u.inUse > 0) {
				return false // it is held, or was
			}
		}
	}
	return true
}

// lookUp looks up the throttles of a set. A throttle that is deleted by it returns its owner to the ring, which must
// still find it in its set: so the set is changed at the end.
func (o *Order) lookUp(l *Set) {
	var (
		set   []*throttle
		unset []*unsetKey
	)
	if n := len(l.Names); n > 0 {
		set = make([]*throttle, 0, n)
	}
	for _, name := range l.Names {
		if t := o.find(name); t != nil {
			set = append(set, t)
		} else {
			unset = append(unset, o.unsetNamed(name))
		}
	}
	l.version, l.added, l.set, l.unset, l.class = o.version, o.added, set, unset, nil
}

// A throttle key without a setting limits nothing. But once it gets a setting, the live leases
// that name it count toward its concurrency, and there may be 100,000 leases to look at. So the
// leases of such keys are counted as well, for as long as there are any.
//
//	unset, not in use   not in memory
//	unset, in use       unsetKey with inUse >= 1 in Order.unset
//	set                 throttle with inUse
//
//	takeUnset moves the count to the throttle when the key gets a setting,
//	leaveUnset back when the setting is deleted.

// unsetKey is a throttle key without a setting. It is in Order.unset while it is in
// use.
type unsetKey struct {
	name  string
	inUse int64 // live leases of messages that name it
}

// unsetNamed returns the unset key of a name. One that is not in use is new, and is not in the
// table.
func (o *Order) unsetNamed(name string) *unsetKey {
	if u := o.unset[name]; u != nil {
		return u
	}
	return &unsetKey{name: name}
}

// useUnset counts a new lease for the unset keys that its message names. endUnset undoes it.
func (o *Order) useUnset(l *Set) {
	if l == nil {
		return
	}
	o.limits(l) // brings the set up to date
	for i, u := range l.unset {
		if u.inUse == 0 { // another message may have put the key into use
			u = o.unsetNamed(u.name)
			l.unset[i], o.unset[u.name] = u, u
		}
		u.inUse++
	}
}

// endUnset ends a lease for the unset keys of its message.
func (o *Order) endUnset(l *Set) {
	for _, u := range l.unset {
		if u.inUse--; u.inUse == 0 {
			delete(o.unset, u.name)
		}
	}
}

// takeUnset returns the number of live leases that name a key that gets a setting, and forgets
// the unset key.
func (o *Order) takeUnset(name string) int32 {
	n := o.unsetNamed(name).inUse
	delete(o.unset, name)
	return int32(n)
}

// leaveUnset continues to count the live leases of a key whose setting is deleted.
func (o *Order) leaveUnset(t *throttle) {
	if t.inUse > 0 {
		o.unset[t.name] = &unsetKey{name: t.name, inUse: int64(t.inUse)}
	}
}

// An adaptive throttle allows as many leases as its limit (engine/internal/adaptive), which is in memory
// only: a start begins with Concurrency. A lease that ends with an ack tells its throttles of a
// success, one that ends with a nack or expires of a failure, both before it returns its slots, so
// that End lists a throttle whose limit has grown. Other ends tell nothing: release, cancel and
// purge, and a message that is dead by its own fault. A limit is only ever behind what commits:
// after a failed one it may have heard of an end that did not take place.
//
// The failures of leases that began before a cut belong to that cut. Times tell which these are,
// and leases and cuts have different ones also within a turn: LeaseTime goes on with each cut.

// LeaseTime is when a lease begins that begins now, in Unix nanoseconds: after all cuts.
func (o *Order) LeaseTime() int64 { return max(o.now, o.afterCut) }

// adapt gives the throttle the limit of its setting: old within the new bounds, or a new one where
// that is nil; none if the throttle is not adaptive.
func (t *throttle) adapt(old *adaptive.Limit, now int64) {
	switch least := t.set.AdaptiveMin; {
	case least > 0 && old != nil:
		old.Set(least, t.set.Concurrency)
	case least > 0:
		old = adaptive.New(least, t.set.Concurrency)
	case t.adaptive == nil:
		return
	default:
		old = nil
	}
	t.grow(now)
	t.adaptive = old
}

// Succeeded says that the work of a lease has succeeded. It precedes End.
func (o *Order) Succeeded(set *Set) {
	for _, t := range o.limits(set) {
		if t.adaptive != nil {
			t.adaptive.Success(int64(t.inUse))
		}
	}
}

// Failed says that the work of a lease that began at a time (LeaseTime) has failed. It precedes End.
func (o *Order) Failed(set *Set, began int64) {
	now := o.LeaseTime()
	for _, t := range o.limits(set) {
		if t.adaptive != nil && t.adaptive.Failure(began, now) {
			o.afterCut = now + 1
		}
	}
}
