package dispatch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Blocker is a throttle that does not admit the next message of a key now.
type Blocker struct {
	Throttle    string
	InUse       int64     // live leases that name the throttle
	Concurrency uint64    // its limit of live leases if no slot is free; else 0
	Limit       int64     // of these, the ones that an adaptive throttle allows now; 0: it is not adaptive, or a slot is free
	Rate        float64   // its tokens per second if the key waits for tokens; else 0
	NextAt      time.Time // when the bucket will have the tokens; zero if it has them
	Reserved    bool      // it has room, which is reserved for messages that need several throttles
	Saved       bool      // it has the tokens, and saves them for a message that comes before
	Need        int64     // tokens that the message takes, under a throttle by cost; else 0
	Tokens      float64   // in the bucket now
	Burst       uint64    // capacity of the bucket
	Pattern     string    // the pattern whose limits it has; "": it has a setting of its own
	HeldUntil   time.Time // it is held until then; zero: it is not
}

// whole formats the whole tokens of a bucket.
func whole(tokens float64) string { return plain(math.Floor(tokens + tokenSlack)) }

// called names a throttle, and the pattern whose limits it has.
func (b *Blocker) called() string {
	if b.Pattern != "" {
		return fmt.Sprintf("throttle %q of pattern %q", b.Throttle, b.Pattern)
	}
	return fmt.Sprintf("throttle %q", b.Throttle)
}

// slotsReason says how many leases a throttle allows that has no free slot.
func (b *Blocker) slotsReason() string {
	if b.Limit > 0 && uint64(b.Limit) < b.Concurrency {
		return fmt.Sprintf("%s allows %d of %d leases at a time now", b.called(), b.Limit, b.Concurrency)
	}
	return fmt.Sprintf("%s has %d of %d leases in use", b.called(), b.InUse, b.Concurrency)
}

// Reason says in half a sentence what the throttle lacks.
func (b *Blocker) Reason() string {
	switch {
	case !b.HeldUntil.IsZero():
		return fmt.Sprintf("%s is held until %s", b.called(), b.HeldUntil.UTC().Format("2006-01-02T15:04:05.000Z"))
	case b.Reserved:
		return fmt.Sprintf("what %s has free is kept for a message that needs several throttles", b.called())
	case b.Concurrency > 0 && b.Rate > 0 && b.Need > 0:
		return fmt.Sprintf("%s, and has %s tokens, the message takes %d", b.slotsReason(), whole(b.Tokens), b.Need)
	case b.Concurrency > 0 && b.Rate > 0:
		return b.slotsReason() + ", and has no token"
	case b.Concurrency > 0:
		return b.slotsReason()
	case b.Saved:
		return fmt.Sprintf("%s saves its tokens for a message that comes before", b.called())
	case b.Need > int64(b.Burst):
		return fmt.Sprintf("%s has %s tokens, the message takes %d and goes out when the bucket of %d is full, it gets %s a second",
			b.called(), whole(b.Tokens), b.Need, b.Burst, plain(b.Rate))
	case b.Need > 0:
		return fmt.Sprintf("%s has %s tokens, the message takes %d, it gets %s a second", b.called(), whole(b.Tokens), b.Need, plain(b.Rate))
	default:
		return fmt.Sprintf("%s has no token, it gets %s a second", b.called(), plain(b.Rate))
	}
}

// plain formats a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// blocker describes the throttle with an index in the set of a message of a key, if it does not
// admit the message now. Room that is reserved for a claim does not count.
func (o *Order) blocker(k *Key, l *Set, cost uint32, i int) (b Blocker, blocks bool) {
	t, need := l.set[i], l.need(i, cost)
	admits := t.admits(o.now, need)
	before, saved := o.savedBefore(k, t, need)
	if admits && !saved {
		return b, false
	}
	b = Blocker{Throttle: t.name, HeldUntil: t.heldTime(), InUse: int64(t.inUse), Reserved: !admits && t.admitsReserved(o.now, need), Tokens: t.level(o.now), Burst: t.set.Burst}
	if p := t.set.pattern; p != nil {
		b.Pattern = p.name
	}
	if t.set.ByCost {
		b.Need = need
	}
	if !t.slotFree(0) {
		b.Concurrency = t.set.Concurrency
		if t.adaptive != nil {
			b.Limit = t.slots()
		}
	}
	switch tokens := t.required(need); {
	case !t.holds(o.now, tokens):
		b.Rate, b.NextAt = t.set.Rate, time.Unix(0, t.holdsAt(o.now, tokens+t.reserved))
	case saved:
		b.Saved = true
		b.Rate, b.NextAt = t.set.Rate, time.Unix(0, t.holdsAt(o.now, before+t.reserved))
	}
	return b, true
}

// savedBefore reports whether the tokens of a throttle by cost are saved for messages that come before the first message
// of a key: for a class that is next in its line, or for the key of its queue that is next, which leaves too few. tokens
// is what the bucket has to hold until the message of the key may go, as far as is known.
func (o *Order) savedBefore(k *Key, t *throttle, need int64) (tokens int64, saved bool) {
	cl := k.class
	if cl == nil || !t.set.ByCost || cl.keys == 0 {
		return 0, false
	}
	i := slices.IndexFunc(cl.flows, func(s flow) bool { return s.throttle == t })
	if i < 0 {
		return 0, false
	}
	s := &cl.flows[i]
	if cl.state == classWaiting && cl.entry == s.entry || cl.state == classOpen && o.saved(cl, s) {
		return t.required(t.nextNeed()), true
	}
	next := cl
	if first := cl.scheduler.open.next(); first != nil && cl.state == classOpen && slices.ContainsFunc(first.flows, func(s flow) bool { return s.throttle == t }) {
		next = first
	}
	if next.head() == k {
		return 0, false
	}
	tokens = int64(next.head().placedCost) + t.required(need)
	return tokens, !t.holds(o.now, tokens+t.reserved)
}

// lacksOnlyTokens reports whether the throttle admits a message at NextAt, if no other takes the
// tokens.
func (b *Blocker) lacksOnlyTokens() bool {
	return b.Rate != 0 && b.Concurrency == 0 && b.HeldUntil.IsZero()
}

// Blockers returns the throttles that do not admit a message of a key now, in the order of its throttle
// keys. set, which may be nil, and cost are those of the message.
func (o *Order) Blockers(k *Key, set *Set, cost uint32) (all []Blocker) {
	for i := range o.limits(set) {
		if b, blocks := o.blocker(k, set, cost, i); blocks {
			all = append(all, b)
		}
	}
	return all
}

// Blocked reports whether throttles do not admit a message of a key now, whether one of them
// lacks more than tokens, and whether one is held. See Blockers.
func (o *Order) Blocked(k *Key, set *Set, cost uint32) (blocked, slots, held bool) {
	for i := range o.limits(set) {
		if b, blocks := o.blocker(k, set, cost, i); blocks {
			blocked, held = true, held || !b.HeldUntil.IsZero()
			slots = slots || !b.lacksOnlyTokens()
		}
	}
	return blocked, slots, held
}

// ThrottleInfo describes a throttle at one moment. Counters begin at zero when the throttle is
// created in memory: by SetThrottle or at a start.
type ThrottleInfo struct {
	Key                string
	Rate               float64       // tokens per second; 0: not limited
	Burst, Concurrency uint64        // capacity of the bucket, live leases; 0: not limited
	ByCost             bool          // a delivery takes the cost of its message in tokens, else one
	Tokens             float64       // in the bucket now; below 0: the debt of a message that took more than Burst
	InUse              int64         // live leases that name the key
	Waiting            int64         // fairness keys, not paused, whose next message it does not admit now
	Admitted, Refused  uint64        // deliveries that it admitted; times that it stopped a class of keys
	Waited             time.Duration // sum over keys
	NextAt             time.Time     // when the bucket will suffice for the message that is next, if keys wait for tokens; else zero
	Min                uint64        // the least that an adaptive throttle allows; 0: it is not adaptive
	Limit              float64       // what it allows now: the whole part is live leases; 0: it is not adaptive
	Cuts               uint64        // failures that have cut Limit
	Pattern            string        // the pattern whose limits it has; "": it has a setting of its own, or is a pattern
	HeldUntil          time.Time     // no message that names it is delivered before; zero: it is not held
	IsPattern          bool          // it is a pattern: Tokens are those of a new instance, numbers are sums over all instances
	Instances          int64         // of a pattern: those in memory
}

// naming returns how many keys the next message names the throttle of, without those that wait for budgets.
func (t *throttle) naming() int64 {
	if k := t.owner; k != nil && k.class != nil && !k.class.scheduler.detached && (k.held == 0 || k.held == gated) {
		return 1
	}
	return t.keys
}

// pausedKeys returns how many of the keys in the line of a throttle are of paused queues, in time
// proportional to the number of those or of the queues in the line, whichever is less. Paused keys
// are in no class and not in the line.
func (o *Order) pausedKeys(t *throttle) (n int64) {
	if t.owner != nil && t.naming() == 1 && t.owner.class.scheduler.queue.paused {
		return 1
	}
	if len(t.entries) < len(o.paused) {
		for q, e := range t.entries {
			if q.paused {
				n += e.keys
			}
		}
		return n
	}
	for q := range o.paused {
		if e := t.entries[q]; e != nil {
			n += e.keys
		}
	}
	return n
}

// unaskedMax bounds the classes of a queue that unasked looks at.
const unaskedMax = 8

// unasked returns how many keys a throttle by cost does not admit while no class waits in its line, since no consumer has
// asked for their messages, and the least that one of them takes. Of a queue with many classes at the throttle, the keys
// of those beyond unaskedMax count as the throttle admits 1 token or not.
func (t *throttle) unasked(now int64) (keys, least int64) {
	least = 1
	for q, e := range t.entries {
		if q.paused || e.scheduler.detached {
			continue
		}
		others := e.keys
		for _, cl := range e.classes[:min(len(e.classes), unaskedMax)] {
			if cl.keys == 0 {
				continue
			}
			others -= int64(cl.keys)
			if need := cl.need(cl.flowAt(t)); !t.admits(now, need) {
				if keys == 0 || need < least {
					least = need
				}
				keys += int64(cl.keys)
			}
		}
		if others > 0 && !t.admits(now, 1) {
			keys += others
		}
	}
	return keys, least
}

// info describes a throttle, see pausedKeys for its time.
func (o *Order) info(t *throttle) ThrottleInfo {
	now := o.now
	i := ThrottleInfo{
		HeldUntil: t.heldTime(),
		Key:       t.name, Rate: t.set.Rate, Burst: t.set.Burst, Concurrency: t.set.Concurrency, ByCost: t.set.ByCost,
		Tokens: t.level(now), InUse: int64(t.inUse), Admitted: t.admitted, Refused: t.refused, Waited: time.Duration(t.waitedSum(now)),
	}
	if p := t.set.pattern; t.stands() {
		i.Tokens, i.Waiting, i.IsPattern, i.Instances = float64(i.Burst), t.waiting, true, p.instances
		i.Min, i.Limit = t.set.AdaptiveMin, min(float64(t.set.AdaptiveMin), 1)*float64(t.set.Concurrency)
		return i
	} else if p != nil {
		i.Pattern = p.name
	}
	if l := t.adaptive; l != nil {
		i.Min, i.Limit, i.Cuts = t.set.AdaptiveMin, l.Value(), l.Cuts()
	}
	if i.Tokens > -tokenSlack {
		i.Tokens = max(i.Tokens, 0)
	}
	next := t.nextNeed()
	switch {
	case t.owner != nil:
		next = t.ownNeed()
	case t.set.ByCost && t.line.Len() == 0:
		i.Waiting, next = t.unasked(now)
	}
	if i.Waiting == 0 && !t.admits(now, next) {
		i.Waiting = t.naming() - o.pausedKeys(t)
	}
	if i.Waiting > 0 && !t.holds(now, t.required(next)) {
		i.NextAt = time.Unix(0, t.holdsAt(now, t.required(next)+t.reserved))
	}
	return i
}

// Throttle describes the throttle of a key, or a pattern. ok is false if nothing limits the key. An instance that is
// not in memory is described as a new one.
func (o *Order) Throttle(key string) (info ThrottleInfo, ok bool) {
	if prefix, is := patternPrefix(key); is && o.patterns.byPrefix[prefix] != nil {
		return o.info(&o.patterns.byPrefix[prefix].throttle), true
	}
	if t := o.throttles[key]; t != nil && o.follow(t) {
		return o.info(t), true
	}
	p := o.patternOf(key)
	if p == nil {
		return ThrottleInfo{}, false
	}
	t := &throttle{name: key, set: p.set, extra: &noExtra, tokens: float64(p.set.Burst), at: o.now, timer: -1}
	t.inUse = int32(o.unsetNamed(key).inUse)
	t.adapt(nil, o.now)
	return o.info(t), true
}

// afterSettings is the bit of the cursor of ListThrottles in the instances.
const afterSettings = 1 << 62

// ListThrottles returns a page of the settings whose names match, in the order of creation, and with instances after
// these the instances of patterns that are in memory. It
// looks at count throttles at most, and returns the cursor of the next page, 0 at the end; the
// first page has cursor 0. A throttle that exists and keeps its kind throughout a listing is listed exactly once.
func (o *Order) ListThrottles(cursor uint64, count int, instances bool, match func(string) bool) (next uint64, list []ThrottleInfo) {
	page := make([]*throttle, 0, min(count, 1000))
	look := func(t *throttle) { page = append(page, t) }
	if cursor < afterSettings {
		if next = o.roster.Walk(cursor, count, look); next == 0 && instances && !o.instances.Empty() {
			cursor, count = afterSettings, count-len(page)
			next = afterSettings // with a page that is full
		}
	}
	if cursor >= afterSettings && count > 0 {
		if next = o.instances.Walk(cursor-afterSettings, count, look); next != 0 {
			next += afterSettings
		}
	}
	for _, t := range page {
		if match(t.name) && !t.gone && (t.stands() || o.follow(t)) {
			list = append(list, o.info(t))
		}
	}
	return next, list
}

// WalkInstances shows up to count instances of patterns that are in memory: how often each has admitted a message, and for
// how long keys have waited for it. It returns the cursor of the next ones, 0 at the end; the first cursor is 0.
func (o *Order) WalkInstances(cursor uint64, count int, see func(name string, admitted uint64, waited time.Duration)) (next uint64) {
	return o.instances.Walk(cursor, count, func(t *throttle) {
		if !t.gone && t.set.pattern != nil {
			see(t.name, t.admitted, time.Duration(t.waitedSum(o.now)))
		}
	})
}
