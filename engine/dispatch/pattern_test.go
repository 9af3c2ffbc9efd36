package dispatch

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// later lets time pass, and forgets what is to be forgotten.
func (h *hall) later(nanos int64) {
	h.now += nanos
	h.o.Advance(h.now)
	h.units = manyUnits
	h.o.Expire()
	h.serveReady()
}

// live returns the throttle keys with a throttle in memory.
func (h *hall) live() (names []string) {
	for name := range h.o.Inside().AllThrottles() {
		names = append(names, name)
	}
	return names
}

func (h *hall) one(q *hallQueue, seq uint64, names ...string) *hallKey {
	return h.put(q, seq, Head{Cost: 1, Set: &Set{Names: names}})
}

// A throttle key has the limits of its own setting, else those of the longest prefix.
func TestAPatternCoversThrottleKeysWithoutASetting(t *testing.T) {
	o := newHall(nil).o
	for i, name := range []string{"*", "plan:*", "plan:gold:*", "plan:gold:7"} {
		o.SetThrottle(name, Limits{Concurrency: uint64(i + 1)})
	}
	for name, want := range map[string]struct {
		concurrency uint64
		pattern     string
	}{
		"x": {1, "*"}, "plan:": {2, "plan:*"}, "plan": {1, "*"}, "plan:gold": {2, "plan:*"}, "plan:gold:8": {3, "plan:gold:*"},
		"plan:gold:7": {4, ""}, "plan:gold:77": {3, "plan:gold:*"}, "plan:gold:7*": {3, "plan:gold:*"}, "plan:gold:*": {3, ""},
	} {
		if i, ok := o.Throttle(name); !ok || i.Concurrency != want.concurrency || i.Pattern != want.pattern || i.IsPattern != (name == "plan:gold:*") {
			t.Errorf("%s: %+v, %v", name, i, ok)
		}
	}
	if !o.DropThrottle("plan:gold:*") || o.DropThrottle("plan:gold:*") || o.DropThrottle("plan:gold:8") {
		t.Error("a pattern is deleted once, and an instance is none")
	}
	if i, _ := o.Throttle("plan:gold:8"); i.Pattern != "plan:*" {
		t.Errorf("the pattern with the longest prefix is deleted: %+v", i)
	}
	o.DropThrottle("*")
	if _, ok := o.Throttle("x"); ok {
		t.Error("a throttle key has limits that no pattern covers")
	}
}

// What a bucket has given stays where one limit takes the place of another, at the time of the command.
func TestABucketOutlivesChangesOfItsPattern(t *testing.T) {
	h := newHall(nil)
	q := h.queues[0]
	h.o.SetThrottle("t:*", Limits{Rate: 1, Burst: 10})
	for i := range 8 {
		h.one(q, uint64(i+1), "t:a")
	}
	for range 8 {
		if !h.deliver(q, false) {
			t.Fatal("it has tokens")
		}
	}
	tokens := func(want float64, what string) {
		t.Helper()
		if i, ok := h.o.Throttle("t:a"); !ok || i.Tokens < want-1e-6 || i.Tokens > want+1e-6 {
			t.Errorf("%s: %v tokens, want %v", what, i.Tokens, want)
		}
		h.sound(t)
	}
	tokens(2, "eight of ten are taken")
	h.later(1e9)
	h.o.SetThrottle("t:*", Limits{Rate: 2, Burst: 10})
	h.later(1e9)
	tokens(5, "one second at 1, one at 2")
	h.o.SetThrottle("t:a*", Limits{Rate: 4, Burst: 100})
	h.later(5e8)
	tokens(7, "half a second at 4")
	h.o.DropThrottle("t:a*")
	h.later(5e8)
	tokens(8, "half a second at 2")
	h.o.SetThrottle("t:a", Limits{Rate: 1, Burst: 20})
	h.later(1e9)
	tokens(9, "one second at 1, by a setting of its own")
	h.o.DropThrottle("t:a")
	tokens(9, "the pattern again")
	if i, _ := h.o.Throttle("t:a"); i.Pattern != "t:*" || i.InUse != 8 || i.Admitted != 8 {
		t.Errorf("%+v", i)
	}
	h.o.DropThrottle("t:*")
	for len(h.leases) > 0 {
		h.end()
		h.sound(t)
	}
	if n := len(h.live()) + h.o.Inside().Unset(); n != 0 {
		t.Errorf("%d throttles are left", n)
	}
}

// An instance is forgotten when nothing names it and it equals a new one, not before, and its counts stay.
func TestAnInstanceIsForgottenWhenItEqualsANewOne(t *testing.T) {
	h := newHall(nil)
	q := h.queues[0]
	h.o.SetThrottle("r:*", Limits{Rate: 1, Burst: 2})
	h.o.SetThrottle("c:*", Limits{Concurrency: 1})
	h.o.SetThrottle("a:*", Limits{Concurrency: 8, AdaptiveMin: 1})
	version := h.o.version
	for i, name := range []string{"r:1", "c:1", "a:1"} {
		h.one(q, uint64(i+1), name)
		if !h.deliver(q, false) {
			t.Fatal("it has room")
		}
	}
	h.later(1e9)
	if got := h.live(); !slices.Equal(got, []string{"a:1", "c:1", "r:1"}) || h.o.version != version {
		t.Errorf("leases name them: %q; the throttle sets are stale: %v", got, h.o.version != version)
	}
	for _, l := range h.leases {
		h.o.Failed(l.set, l.began)
	}
	h.one(q, 4, "r:1") // takes the token that has come, and one of the burst
	if !h.deliver(q, false) {
		t.Fatal("it has a token")
	}
	for len(h.leases) > 0 {
		h.end()
	}
	for _, x := range []struct {
		after int64
		left  []string
	}{{1e8, []string{"a:1", "r:1"}}, {8e8, []string{"a:1", "r:1"}}, {2e8, []string{"a:1"}}, {590e9, []string{"a:1"}}, {10e9, nil}} {
		h.later(x.after)
		if got := h.live(); !slices.Equal(got, x.left) {
			t.Errorf("%d ms later: %q are in memory, want %q", x.after/1e6, got, x.left)
		}
		h.sound(t)
	}
	if i, _ := h.o.Throttle("r:*"); i.Admitted != 2 || i.Instances != 0 || !i.IsPattern {
		t.Errorf("the sums of the pattern: %+v", i)
	}
	if i, ok := h.o.Throttle("r:1"); !ok || i.Admitted != 0 || i.Tokens != 2 {
		t.Errorf("a forgotten instance is shown as a new one: %+v", i)
	}
}

// Of the instances that nothing names, those that would be full first make room for others.
func TestInstancesThatNothingNamesAreBounded(t *testing.T) {
	const most = 3
	h := newHall(nil)
	h.o.cfg.Instances = most
	q := h.queues[0]
	h.o.SetThrottle("r:*", Limits{Rate: 0.001, Burst: 9})
	for i := range 6 {
		k := h.put(q, uint64(i+1))
		for range 6 - i {
			k.heads = append(k.heads, Head{Cost: 1, Set: &Set{Names: []string{fmt.Sprint("r:", i)}}})
		}
		h.settle(k)
	}
	for h.deliver(q, false) {
		continue
	}
	for len(h.leases) > 0 {
		h.end()
	}
	h.later(1e9)
	if got := h.live(); !slices.Equal(got, []string{"r:0", "r:1", "r:2"}) || h.o.Instances() != (Instances{Live: most, Unnamed: most, Evicted: 3}) {
		t.Errorf("%q are in memory, %+v", got, h.o.Instances())
	}
	h.sound(t)
}

// An instance that is the own throttle of its key takes at most 200 bytes, with its place in the tables, and nothing
// when it is forgotten.
func TestAnInstanceTakesFewBytes(t *testing.T) {
	const n, most = 100_000, 200
	h := newHall(nil)
	h.o.SetThrottle("tenant:*", Limits{Rate: 5, Burst: 10, Concurrency: 4})
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("tenant:", 1_000_000+i)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for _, name := range names {
		t := h.o.find(name)
		t.inUse++ // as if a lease named it
		h.o.patterns.byPrefix["tenant:"].inUse++
	}
	h.o.suspects = nil
	bytes := float64(heap()-before) / n
	t.Logf("%.0f bytes for each instance", bytes)
	if bytes > most {
		t.Errorf("%.0f bytes for each instance, at most %d are promised", bytes, most)
	}
	for _, name := range names {
		i := h.o.throttles[name]
		i.use(-1)
		i.unused = needed
		h.o.lookAtUse(i)
	}
	for range n/manyUnits + 1 {
		h.later(1e9)
	}
	if left := len(h.o.throttles); left != 0 || !h.o.instances.Empty() {
		t.Errorf("%d instances are left", left)
	}
	h.o.suspects = nil
	if left := (float64(heap()) - float64(before)) / n; left > 1 {
		t.Errorf("%.1f bytes are left of each instance that was forgotten", left)
	}
	runtime.KeepAlive(names)
	runtime.KeepAlive(h)
}
