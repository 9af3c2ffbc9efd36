package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/intrusive"
)

// A pattern is a setting whose name ends in *: each throttle key that begins with what precedes the * and has no setting
// of its own has a throttle of its own with the limits of the pattern, an instance. Of several prefixes the longest
// one counts.
//
// # Limits change later than the command
//
// There may be a million instances, so a command about a pattern changes none of them. Each throttle refers to the terms
// that hold for it, which are never changed; a command replaces those of the pattern, notes when it did, and makes
// all throttle sets stale. An instance gets its new terms (follow) when its set is looked up again, which precedes
// each delivery, and at the latest when Sweep comes to it. Its bucket is computed as if it had got them with the command,
// except where several commands came in between.
//
// # When an instance exists
//
// It is added with the set that names it (find), without another version of the table. It is forgotten when it equals
// a new one. States of an instance (throttle.unused):
//
//	needed    the next message of a key, or a lease, names it
//	suspect   in kept.suspects: it may be unused, which is looked at some milliseconds later
//	dated     in kept.unnamed: unused, and not equal to a new one before wakeAt
//	gone      forgotten, or no pattern covers it any more
//
//	needed → suspect   lookAtUse: its last lease has ended, its last key has another next message; or it is new
//	suspect → needed   checkUse: something names it again
//	suspect → dated    checkUse: its bucket is not full, or its adaptive limit was cut not long ago
//	suspect → gone     checkUse: it equals a new one
//	dated → needed     named: something names it again
//	dated → gone       forgetDue: wakeAt has come; or there are too many of them, and it is the first
//
// A set that refers to a throttle that is gone looks up its throttle keys again (current).

// terms are limits that hold for a throttle. They are not changed once a throttle has them.
type terms struct {
	Limits
	pattern *pattern // whose limits they are; nil: of a setting of the throttle's own, or none
	from    int64    // since when they hold, Unix nanoseconds
	until   int64    // when others took their place, Unix nanoseconds; 0: they hold

	restored bool // they are from before a restart: so are leases from before a new instance with them
}

// unlimited are the terms of a throttle that limits nothing.
//
//nolint:gochecknoglobals // nothing changes it: invariant 37
var unlimited terms

// pattern is a setting for all throttle keys with a prefix. The throttle in it takes part in nothing: it stands for the
// pattern in the roster, has its terms, and sums over all instances that there have been.
type pattern struct {
	throttle
	prefix    string
	instances int64 // in memory
}

// stands reports whether a throttle is the one that stands for a pattern.
func (t *throttle) stands() bool { return t.set.pattern != nil && t == &t.set.pattern.throttle }

// patterns finds patterns.
type patterns struct {
	byPrefix map[string]*pattern
	lengths  []prefixLength // of the prefixes, the greatest first
}

type prefixLength struct{ length, patterns int }

// patternPrefix returns the prefix of a pattern; ok is false if the key is none.
func patternPrefix(key string) (prefix string, ok bool) { return strings.CutSuffix(key, "*") }

// IsPattern reports whether a setting of that name is one for all throttle keys with a prefix.
func IsPattern(key string) bool { return strings.HasSuffix(key, "*") }

// count adds n to the number of patterns with a length.
func (p *patterns) count(length, n int) {
	i, found := slices.BinarySearchFunc(p.lengths, length, func(l prefixLength, length int) int { return cmp.Compare(length, l.length) })
	if !found {
		p.lengths = slices.Insert(p.lengths, i, prefixLength{length: length})
	}
	if p.lengths[i].patterns += n; p.lengths[i].patterns == 0 {
		p.lengths = slices.Delete(p.lengths, i, i+1)
	}
}

// patternOf returns the pattern that covers a throttle key without a setting, nil if none does. It takes a look-up for
// each length of a prefix.
func (o *Order) patternOf(key string) *pattern {
	for _, l := range o.patterns.lengths {
		if l.length <= len(key) {
			if p := o.patterns.byPrefix[key[:l.length]]; p != nil {
				return p
			}
		}
	}
	return nil
}

// setPattern sets what the throttle keys with a prefix allow.
func (o *Order) setPattern(prefix string, set Limits) {
	p := o.patterns.byPrefix[prefix]
	if p == nil {
		p = &pattern{prefix: prefix, throttle: throttle{name: prefix + "*", extra: &extra{waitingKeys: waitingKeys{countedAt: o.now}}, timer: -1}}
		o.patterns.byPrefix[prefix] = p
		o.patterns.count(len(prefix), 1)
		o.enroll(&o.roster, &p.throttle)
	} else {
		p.set.until = o.now
	}
	p.set = &terms{Limits: set, pattern: p, from: o.now}
	o.changedPatterns()
}

// dropPattern deletes a pattern, and reports whether there was one.
func (o *Order) dropPattern(prefix string) bool {
	p := o.patterns.byPrefix[prefix]
	if p == nil {
		return false
	}
	delete(o.patterns.byPrefix, prefix)
	o.patterns.count(len(prefix), -1)
	o.roster.Remove(p.seq)
	p.set.until = o.now
	o.changedPatterns()
	return true
}

// changedPatterns has all throttle sets look up their throttles again, and begins a sweep over all instances.
func (o *Order) changedPatterns() {
	o.version++
	o.sweeping, o.sweptTo = true, 0
}

// Sweeping reports whether Sweep has something to do.
func (o *Order) Sweeping() bool { return o.sweeping }

// Sweep gives up to most instances the limits that hold for them since patterns have changed, and returns how
// many it has looked at: 0 if there is nothing left to do.
func (o *Order) Sweep(most int) int {
	if !o.sweeping {
		return 0
	}
	page := make([]*throttle, 0, most)
	o.sweptTo = o.instances.Walk(o.sweptTo, most, func(t *throttle) { page = append(page, t) })
	o.sweeping = o.sweptTo != 0
	for _, t := range page {
		if !t.gone && t.set.pattern != nil {
			o.follow(t)
		}
	}
	return len(page)
}

// find returns the throttle of a key with the limits that hold for it now; nil: nothing limits the key.
func (o *Order) find(key string) *throttle {
	t := o.throttles[key]
	if t == nil {
		if p := o.patternOf(key); p != nil {
			return o.addInstance(key, p)
		}
		return nil
	}
	if !o.follow(t) {
		return nil
	}
	return t
}

// addInstance adds the throttle of a key that a pattern covers.
func (o *Order) addInstance(key string, p *pattern) *throttle {
	t := o.newThrottle(key, p.set)
	t.inUse = o.takeUnset(key)
	o.enroll(&o.instances, t)
	o.countInstance(t, 1)
	t.adapt(nil, o.now)
	o.takesCost(t, p.set.restored)
	o.lookAtUse(t)
	return t
}

// countInstance adds a throttle to the sums of its pattern, or takes it out of those of the present.
func (o *Order) countInstance(t *throttle, n int32) {
	if p := t.set.pattern; p != nil {
		p.instances += int64(n)
		o.live += int(n)
		p.inUse += n * t.inUse
		p.countWaiting(o.now, int64(n)*t.waitsNow())
	}
}

// countOfPattern changes the number of keys that wait for the instances of a pattern.
func (t *throttle) countOfPattern(now, change int64) {
	if p := t.set.pattern; p != nil {
		p.countWaiting(now, change)
	}
}

// follow gives an instance the terms that hold for it now. It deletes one that no pattern covers any more, and
// returns false. A throttle with a setting of its own has its terms already.
func (o *Order) follow(t *throttle) bool {
	was := t.set
	if was.pattern == nil && was != &unlimited {
		return true
	}
	p := o.patternOf(t.name)
	switch {
	case p == nil && was == &unlimited:
	case p == nil && t.heldUntil != 0:
		o.change(t, &unlimited, o.now)
	case p == nil:
		o.drop(t)
		return false
	case p.set == was:
	case was.until != 0:
		o.change(t, p.set, was.until)
	default:
		o.change(t, p.set, p.set.from) // a pattern with a longer prefix
	}
	return true
}

// change gives a throttle other terms, which hold since a time. What its bucket has given and what is in use stay. A bucket
// for which a token means something else is full.
func (o *Order) change(t *throttle, to *terms, since int64) {
	was := t.set
	since = max(since, t.at)
	tokens := t.level(since)
	if was.Rate == 0 || was.ByCost != to.ByCost {
		tokens = float64(to.Burst)
	}
	if was.ByCost != to.ByCost && t.shared {
		t.restartTurns()
		o.host.Spend(len(t.entries) / entriesPerUnit)
	}
	moves := (was.pattern == nil) != (to.pattern == nil)
	if moves {
		o.strike(t)
	}
	o.named(t) // it is forgotten at another time
	o.assign(t, to)
	if !was.ByCost {
		o.takesCost(t, false)
	}
	t.tokens, t.at = min(tokens, float64(to.Burst)), since
	switch {
	case moves && to.pattern == nil:
		o.enroll(&o.roster, t)
	case moves:
		o.enroll(&o.instances, t)
	}
	o.lookAtUse(t)
	o.list(t)
}

// assign gives a throttle terms, and counts it in the sums of their pattern.
func (o *Order) assign(t *throttle, to *terms) {
	o.countInstance(t, -1)
	t.set = to
	o.countInstance(t, 1)
	t.adapt(t.adaptive, o.now)
}

// drop deletes a throttle: nothing limits its key any more, or it equals a new one. Without limits, it has room for its
// owner, or for all classes in its line.
func (o *Order) drop(t *throttle) {
	delete(o.throttles, t.name)
	if n := len(o.throttles); n <= shrunkMax && o.peak >= shrinks*max(n, shrunkMax/shrinks) {
		o.throttles, o.peak = maps.Collect(maps.All(o.throttles)), n // a map keeps the memory of its greatest size
	}
	o.strike(t)
	o.leaveUnset(t)
	o.named(t)
	o.assign(t, &unlimited)
	t.inUse, t.gone = 0, true
	o.disarm(t)
	if t.gating && !t.owner.class.scheduler.detached {
		o.returnToRing(t.owner)
	}
	o.list(t)
}

// keptState says whether an instance is to be forgotten, see above.
type keptState uint8

const (
	needed keptState = iota
	suspect
	dated
)

// kept are the instances that nothing may name any more.
type kept struct {
	suspects []*throttle
	checkAt  int64                     // when suspects are looked at, Unix nanoseconds
	unnamed  intrusive.Heap[*throttle] // dated, by the time at which they equal new ones
	live     int                       // instances in memory
	evicted  uint64                    // instances that were forgotten before, because there were too many
	peak     int                       // the most entries that Order.throttles has had since it was made

	sweeping bool // patterns have changed
	sweptTo  uint64
}

const (
	// suspectTime is after how many nanoseconds an instance is looked at that may be unused: that of a key with one
	// message after the other is rarely forgotten in between.
	suspectTime = 50e6
	// suspectsMax is how many of them are looked at without waiting that long.
	suspectsMax = 1 << 16
	// shrunkMax is with how many throttles their table is copied to a smaller one, if it has had shrinks times as many.
	shrunkMax, shrinks = 8192, 64
	// cutKept is for how many nanoseconds after its last lease an adaptive limit is kept that was cut.
	cutKept = 600e9
)

// unneeded reports whether nothing names an instance.
func (t *throttle) unneeded() bool {
	return t.set.pattern != nil && !t.gone && t.inUse == 0 && t.owner == nil && t.keys == 0 && t.heldUntil == 0
}

// lookAtUse has an instance looked at, if nothing names it.
func (o *Order) lookAtUse(t *throttle) {
	if t.unused != needed || !t.unneeded() {
		return
	}
	t.unused = suspect
	if o.suspects = append(o.suspects, t); len(o.suspects) == 1 {
		o.checkAt = o.now + suspectTime
	}
}

// named says that something names a throttle.
func (o *Order) named(t *throttle) {
	if t.unused == dated {
		o.unnamed.Remove(t)
		t.unused = needed
	}
}

// nextForget is when forgetDue has something to do, in Unix nanoseconds, or Never.
func (o *Order) nextForget() int64 {
	at := int64(Never)
	if t, ok := o.unnamed.First(); ok {
		at = t.wakeAt
	}
	switch n := len(o.suspects); {
	case n > suspectsMax:
		at = o.now
	case n > 0:
		at = min(at, o.checkAt)
	}
	return at
}

// forgetDue looks at the instances that may be unused, and forgets those that equal new ones, as far as the budget of
// the step goes.
func (o *Order) forgetDue() {
	if len(o.suspects) > suspectsMax || o.now >= o.checkAt {
		for len(o.suspects) > 0 && o.host.Room() {
			last := len(o.suspects) - 1
			t := o.suspects[last]
			o.suspects[last], o.suspects = nil, o.suspects[:last]
			o.host.Spend(1)
			t.unused = needed
			o.checkUse(t)
		}
		if len(o.suspects) == 0 {
			o.suspects = nil // its memory grows with the busiest moment
		}
	}
	for o.host.Room() {
		t, ok := o.unnamed.First()
		if !ok || t.wakeAt > o.now {
			return
		}
		o.host.Spend(1)
		o.named(t)
		if o.follow(t) {
			o.checkUse(t)
		}
	}
}

// checkUse forgets an instance that nothing names and that equals a new one. One that does not is forgotten later.
func (o *Order) checkUse(t *throttle) {
	if !t.unneeded() {
		return
	}
	at := t.likeNewAt(o.now)
	if at <= o.now {
		o.drop(t)
		return
	}
	o.disarm(t) // what has waited for it has gone, and its timer may be left
	t.wakeAt, t.unused = at, dated
	o.unnamed.Push(t)
	if o.unnamed.Len() > o.cfg.Instances {
		o.evicted++
		first, _ := o.unnamed.First()
		o.drop(first)
	}
}

// likeNewAt is when an instance that nothing names equals a new one: its bucket is full, and it is long ago that its
// adaptive limit was cut. It is at most now if it does already.
func (t *throttle) likeNewAt(now int64) int64 {
	at := now
	if !t.holds(now, int64(t.set.Burst)) {
		at = t.holdsAt(now, int64(t.set.Burst))
	}
	if l := t.adaptive; l != nil && l.Value() < float64(t.set.Concurrency) {
		at = max(at, t.freedAt+cutKept)
	}
	return at
}

// RestoreInstances adds the instances of before a Reset that do not equal new ones, once all settings are restored.
func (o *Order) RestoreInstances(before Buckets) {
	for old := range before.rosters.instances.All() {
		p := o.patternOf(old.name)
		if p != nil && o.throttles[old.name] == nil && old.likeNewAt(o.now) > o.now {
			t := o.addInstance(old.name, p)
			o.takeOver(t, old)
			t.freedAtLeast(old.freedAt)
		}
	}
}

// freedAtLeast restores when the last lease of an adaptive throttle ended.
func (t *throttle) freedAtLeast(at int64) {
	if t.adaptive != nil {
		t.freedAt = at
	}
}

// Instances are numbers of the instances of patterns.
type Instances struct {
	Live    int    // in memory
	Unnamed int    // of these, the ones that nothing names and that are not equal to new ones
	Evicted uint64 // forgotten too early, because there were more than Config.Instances of these
}

// Instances returns the numbers of instances.
func (o *Order) Instances() Instances {
	return Instances{Live: o.live, Unnamed: o.unnamed.Len(), Evicted: o.evicted}
}
