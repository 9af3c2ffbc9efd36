package dispatch

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// A hall is an engine without messages, records and clients: queues with keys, each a list of what its
// messages cost and name, consumers that are numbers, and leases. It drives an Order through its
// exported methods by a program of bytes, and verifies after each step that the rules hold.
type hall struct {
	o     *Order
	now   int64
	units int // left of the step

	queues   []*hallQueue
	leases   []hallLease
	detached []*Detached
	purged   []*hallKey // not cleared yet
	budgets  map[string]*hallBudget
	limits   map[string]Limits
	most     map[string]int64 // leases that a throttle may have: its concurrency, or what it had when that was lowered

	program   []byte
	delivered int
	faults    []string
	plant     func(Inside) // breaks a rule after each step; nil: nothing does
}

type hallQueue struct {
	q       *Queue
	name    string
	keys    []*hallKey
	seq     uint64
	waiting int
	paused  bool
	free    bool
}

func (q *hallQueue) String() string { return q.name }

// hallKey begins with its Key, so that a pointer to that is one to it.
type hallKey struct {
	Key
	queue   *hallQueue
	weight  uint32
	stopped bool
	loading bool
	heads   []Head
}

type hallLease struct {
	set    *Set
	queue  *hallQueue
	cost   uint32
	began  int64
	charge []*hallBudget
}

type hallBudget struct {
	available, reserved int64
	waits               bool
}

func (b *hallBudget) Covers(charge int64) bool { return charge <= b.available }
func (b *hallBudget) Cover() int64             { return b.available }
func (b *hallBudget) Await(waits bool)         { b.waits = waits }
func (b *hallBudget) RanDry()                  {}

func (h *hall) Room() bool      { return h.units > 0 }
func (h *hall) Spend(units int) { h.units -= units }
func (h *hall) Announce(*Queue) {}
func (h *hall) Budget(name string) Budget {
	if b := h.budgets[name]; b != nil {
		return b
	}
	return nil
}

const manyUnits = 1 << 12

func newHall(program []byte) *hall {
	h := &hall{now: 1, units: manyUnits, budgets: map[string]*hallBudget{}, limits: map[string]Limits{}, most: map[string]int64{}, program: program}
	h.o = New(Config{Quantum: 2}, h)
	h.o.Advance(h.now)
	for i := range 3 {
		q := &hallQueue{name: fmt.Sprint("q", i)}
		q.q = h.o.NewQueue(q)
		h.queues = append(h.queues, q)
	}
	return h
}

// next returns the next number of the program, below n.
func (h *hall) next(n int) int {
	if len(h.program) == 0 {
		return 0
	}
	b := h.program[0]
	h.program = h.program[1:]
	return int(b) % n
}

func (h *hall) queue() *hallQueue { return h.queues[h.next(len(h.queues))] }

// head is what stands at the head of a key.
func (k *hallKey) head() Head {
	switch {
	case len(k.heads) == 0:
		return Head{Weight: k.weight, Cost: CostMin}
	case k.stopped:
		return Head{State: Stopped, Weight: k.weight, Cost: CostMin}
	case k.loading:
		return Head{State: Loading, Weight: k.weight, Cost: CostMin}
	}
	head := k.heads[0]
	head.State, head.Weight = Ready, k.weight
	return head
}

func (h *hall) settle(k *hallKey) { k.queue.q.Set(&k.Key, k.head()) }

// set makes what limits a message: up to two of three throttles, sometimes one that only messages of its key name, and
// sometimes a budget.
func (h *hall) set(own string) *Set {
	l := &Set{}
	n := h.next(16)
	for i, name := range []string{"a", "b", "c"} {
		if n>>i&1 == 1 && len(l.Names) < 2 {
			l.Names = append(l.Names, name)
		}
	}
	if h.next(3) == 0 {
		l.Names = append(l.Names, own)
	}
	if n>>3 == 1 {
		l.Budgets, l.Charge = []string{[]string{"x", "y"}[h.next(2)]}, int64(h.next(5))
	}
	if len(l.Names)+len(l.Budgets) == 0 {
		return nil
	}
	return l
}

func (h *hall) enqueue() {
	q := h.queue()
	i := h.next(8)
	for len(q.keys) <= i {
		k := &hallKey{queue: q, weight: uint32(1 + len(q.keys)%3)}
		q.seq++
		k.Number(q.seq)
		q.keys = append(q.keys, k)
	}
	k := q.keys[i]
	k.heads = append(k.heads, Head{Cost: uint32(1 + h.next(9)), Set: h.set(fmt.Sprint(q.name, ".", i))})
	h.settle(k)
}

// hallNames are throttle keys and patterns.
//
//nolint:gochecknoglobals // a constant
var hallNames = []string{"a", "b", "c", "q0.0", "q0.1", "q1.0", "q2.2", "q*", "q0.*", "*"}

// throttle sets a throttle or a pattern, or deletes it.
func (h *hall) throttle() {
	name := hallNames[h.next(len(hallNames))]
	n := h.next(8)
	l := Limits{ByCost: n&1 == 1}
	if n&2 == 2 || l.ByCost {
		l.Rate, l.Burst = float64(1+h.next(50))*1e3, uint64(1+h.next(6))
	}
	if n&4 == 4 {
		l.Concurrency = uint64(1 + h.next(4))
	}
	if l == (Limits{}) {
		h.o.DropThrottle(name)
	} else {
		h.o.SetThrottle(name, l)
	}
	for h.o.Sweep(2) > 0 {
		continue
	}
	inUse := h.inUse()
	for _, name := range hallNames {
		l := h.o.Inside().Limits(name)
		if l == nil {
			delete(h.limits, name)
			continue
		}
		h.limits[name] = *l
		if h.most[name] = int64(l.Concurrency); l.Concurrency > 0 {
			h.most[name] = max(h.most[name], inUse[name])
		}
	}
	for _, q := range h.queues {
		for _, k := range q.keys {
			if IsPattern(name) || h.next(2) == 1 { // the others move when they come up
				q.q.Refresh(&k.Key)
			}
		}
	}
}

func (h *hall) inUse() map[string]int64 {
	n := map[string]int64{}
	for _, l := range h.leases {
		if l.set != nil {
			for _, name := range l.set.Names {
				n[name]++
			}
		}
	}
	return n
}

// budget makes a budget, changes it, or deletes one that nothing has reserved.
func (h *hall) budget() {
	name := []string{"x", "y"}[h.next(2)]
	b := h.budgets[name]
	switch n := h.next(4); {
	case b == nil:
		h.budgets[name] = &hallBudget{available: int64(h.next(12))}
		h.o.Changed(name)
	case n == 0 && b.reserved == 0:
		delete(h.budgets, name)
		h.o.Changed(name)
	case n == 1:
		b.available = max(b.available-int64(h.next(8)), 0)
		h.o.Drained(name)
	default:
		b.available += int64(h.next(12))
		h.o.Freed(name)
	}
}

// deliver has a consumer of a queue take a message, and reports whether it has one. served says that it
// has waited.
func (h *hall) deliver(q *hallQueue, served bool) bool {
	for !q.paused {
		k := q.q.Next()
		if k == nil {
			if !h.o.Pending() || !h.Room() {
				return false
			}
			h.Spend(1)
			if !served {
				h.serveReady()
			} else if !q.q.Again() {
				return false
			}
			continue
		}
		key := (*hallKey)(unsafe.Pointer(k)) // a Key is the beginning of its hallKey
		head := key.heads[0]
		q.q.Take(k)
		lease := hallLease{set: head.Set, queue: q, cost: head.Cost, began: h.o.LeaseTime()}
		if head.Set != nil && !q.free {
			for _, name := range head.Set.Budgets {
				b := h.budgets[name]
				if b == nil || b.available < head.Set.Charge {
					h.fail("a message of %v goes out that budget %q does not cover", q, name)
					continue
				}
				b.available -= head.Set.Charge
				b.reserved += head.Set.Charge
				lease.charge = append(lease.charge, b)
			}
		}
		h.leases = append(h.leases, lease)
		key.heads = key.heads[1:]
		key.loading = len(key.heads) > 0 && h.next(8) == 1
		h.settle(key)
		h.delivered++
		return true
	}
	return false
}

// serveReady serves waiting consumers.
func (h *hall) serveReady() {
	for q := h.o.Ready(); q != nil; q = h.o.Ready() {
		of := q.Owner().(*hallQueue)
		for q.HasOpen() && of.waiting > 0 {
			if !h.Room() {
				q.Offer()
				return
			}
			if !h.deliver(of, true) {
				break
			}
			if of.waiting--; of.waiting == 0 {
				q.Demand(false)
			}
		}
	}
}

// end ends a lease: with success, failure, neither, or as if it had not reached its client.
func (h *hall) end() {
	if len(h.leases) == 0 {
		return
	}
	i := h.next(len(h.leases))
	l := h.leases[i]
	h.leases = slices.Delete(h.leases, i, i+1)
	switch h.next(5) {
	case 0:
		h.o.Succeeded(l.set)
	case 1:
		h.o.Failed(l.set, l.began)
	case 2:
		h.o.Undo(l.set, l.cost)
	case 3:
		h.o.Settle(l.set, int64(l.cost), int64(h.next(8)), l.began)
	}
	if l.set == nil {
		return
	}
	h.o.End(l.set)
	for i, b := range l.charge {
		b.reserved -= l.set.Charge
		if h.budgets[l.set.Budgets[i]] == b {
			b.available += int64(h.next(2)) * l.set.Charge // half of the time it is spent
			h.o.Freed(l.set.Budgets[i])
		}
	}
}

// change changes a key or a queue.
func (h *hall) change() {
	q := h.queue()
	switch h.next(12) {
	case 0, 3, 4:
		q.paused = h.next(4) == 0
		q.q.Pause(q.paused)
	case 1:
		d := q.q.Replace()
		h.purged = append(h.purged, q.keys...)
		q.keys = nil
		d.Reclaim(h.next(3))
		if !d.Empty() {
			h.detached = append(h.detached, d)
		}
	case 2:
		q.free = !q.free
		q.q.Free(q.free)
		for _, k := range q.keys {
			q.q.Refresh(&k.Key)
		}
	default:
		if len(q.keys) == 0 {
			return
		}
		k := q.keys[h.next(len(q.keys))]
		switch h.next(4) {
		case 0:
			k.weight = uint32(1 + h.next(5))
		case 1:
			k.stopped = !k.stopped
		case 2:
			k.loading = false
		default:
			if len(k.heads) > 0 { // its first message is cancelled
				k.heads = k.heads[1:]
			}
		}
		h.settle(k)
	}
}

// consume has a consumer ask, and wait if there is nothing, or one that waits leave.
func (h *hall) consume() {
	q := h.queue()
	switch n := h.next(4); {
	case n == 0 && q.waiting > 0:
		if q.waiting--; q.waiting == 0 {
			q.q.Demand(false)
		}
	case n == 1:
		h.serveReady()
		h.deliver(q, false)
	default:
		q.waiting++
		if q.waiting == 1 {
			q.q.Demand(true)
		}
		if q.q.Loaded() {
			q.q.Offer()
		}
	}
}

// step takes a step of the program.
func (h *hall) step() {
	h.units = manyUnits
	if h.next(4) == 0 {
		h.units = 1 + h.next(20)
	}
	if h.next(3) == 0 {
		h.now += int64(h.next(256)) * 10_000
		h.o.Advance(h.now)
	}
	h.o.Expire()
	switch n := h.next(16); {
	case n < 4:
		h.enqueue()
	case n < 7:
		h.consume()
	case n < 10:
		h.end()
	case n == 10:
		h.throttle()
	case n == 11:
		h.budget()
	case n == 12:
		h.change()
	default:
		h.enqueue()
		h.consume()
	}
	for _, d := range h.detached {
		d.Reclaim(1)
	}
	if n := len(h.purged); n > 0 && len(h.detached) == 0 {
		h.purged[n-1].Clear()
		h.purged = h.purged[:n-1]
	}
	h.detached = slices.DeleteFunc(h.detached, (*Detached).Empty)
	if h.plant != nil {
		h.plant(h.o.Inside())
	}
	h.serveReady()
}

func keysOf(q *hallQueue) iter.Seq[*Key] {
	return func(yield func(*Key) bool) {
		for _, k := range q.keys {
			if !yield(&k.Key) {
				return
			}
		}
	}
}

// check verifies the invariants, and that no consumer waits for a message that could go.
func (h *hall) check() {
	bad := func(no int, format string, args ...any) {
		h.fail("invariant %d: "+format, append([]any{no}, args...)...)
	}
	all := func(yield func(*Queue) bool) {
		for _, q := range h.queues {
			if !yield(q.q) {
				return
			}
		}
	}
	inUse := h.inUse()
	h.o.Check(all, slices.Values(h.detached), inUse, nil, h.Room(), bad)
	for name, l := range h.limits {
		if n := inUse[name]; l.Concurrency > 0 {
			if n > h.most[name] {
				h.fail("%d leases of throttle %q, which allows %d", n, name, l.Concurrency)
			}
			h.most[name] = max(int64(l.Concurrency), min(h.most[name], n))
		}
	}
	for _, q := range h.queues {
		q.q.Check(keysOf(q), bad)
		for _, k := range q.keys {
			if err := k.Matches(k.head()); err != nil {
				bad(36, "%v", err)
			}
		}
		if demand := q.waiting > 0 && !q.paused; !h.Room() || !demand || q.q.offered || h.o.NextTimer() <= h.now {
			continue
		}
		if q.q.Loaded() {
			bad(5, "%v has a class open, and a consumer waits that has not asked", q)
		}
		for _, k := range q.keys {
			head := k.head()
			if head.State == Ready && len(h.o.Blockers(&k.Key, head.Set, head.Cost)) == 0 && h.covered(q, head.Set) && !q.q.WaitsForRead(&k.Key) {
				bad(5, "key %d of %v can deliver, and a consumer waits", k.seq, q)
			}
		}
	}
	for name, b := range h.budgets {
		if waits := h.o.Waiting(name) > 0; waits != b.waits {
			h.fail("keys wait for budget %q: %v, it knows %v", name, waits, b.waits)
		}
	}
}

func (h *hall) covered(q *hallQueue, l *Set) bool {
	if l == nil || q.free {
		return true
	}
	return !slices.ContainsFunc(l.Budgets, func(name string) bool { b := h.budgets[name]; return b == nil || b.available < l.Charge })
}

// fail notes what is wrong.
func (h *hall) fail(format string, args ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// run runs the program to its end, or until a rule is broken.
func (h *hall) run() {
	for len(h.program) > 0 && len(h.faults) == 0 {
		h.step()
		h.check()
	}
}

// random returns a hall with a program of a seed.
func random(seed uint64, size int) *hall {
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible on purpose
	program := make([]byte, size)
	for i := range program {
		program[i] = byte(rng.Uint32())
	}
	return newHall(program)
}

// TestTheRulesHoldInRandomPrograms has calls in any order, with steps that end at any point because their budget is spent.
func TestTheRulesHoldInRandomPrograms(t *testing.T) {
	many := uint64(600)
	if testing.Short() {
		many = 12
	}
	seeds := []uint64{1066, 1298, 9683, 20203, 90299} // each has found room that was not given
	for seed := range many {
		seeds = append(seeds, seed)
	}
	delivered := 0
	for _, seed := range seeds {
		h := random(seed, 3500)
		if h.run(); len(h.faults) > 0 {
			t.Fatalf("seed %d, %d bytes before the end, throttles %v: %q", seed, len(h.program), h.limits, h.faults)
		}
		delivered += h.delivered
	}
	t.Logf("%d deliveries in %d programs", delivered, len(seeds))
	if delivered < 40*len(seeds) {
		t.Errorf("%d deliveries in %d programs: this shows little", delivered, len(seeds))
	}
}

// TestTheRulesFindPlantedFaults breaks one rule after each step.
func TestTheRulesFindPlantedFaults(t *testing.T) {
	for fault, plant := range map[string]func(h *hall) func(Inside){
		"room that is not listed":   func(*hall) func(Inside) { return Inside.HideRoom },
		"credits that are not seen": func(*hall) func(Inside) { return func(p Inside) { p.HideCredits() } },
		"an offer that is lost":     func(*hall) func(Inside) { return Inside.ForgetOffers },
		"a cost that is not told":   func(h *hall) func(Inside) { return h.eachKey(Inside.Misprice) },
		"a key that is moved":       func(h *hall) func(Inside) { return h.eachQueue(func(p Inside, q *Queue) { p.Postpone(q, -1) }) },
		"a demand that is not told": func(h *hall) func(Inside) {
			return h.eachQueue(func(_ Inside, q *Queue) { q.waits = false })
		},
	} {
		t.Run(fault, func(t *testing.T) {
			for seed := range uint64(200) {
				h := random(seed, 3500)
				h.plant = plant(h)
				if h.run(); len(h.faults) > 0 {
					t.Logf("seed %d: %q", seed, h.faults)
					return
				}
			}
			t.Error("nothing is found in 200 programs")
		})
	}
}

func (h *hall) eachQueue(do func(Inside, *Queue)) func(Inside) {
	return func(p Inside) {
		for _, q := range h.queues {
			do(p, q.q)
		}
	}
}

func (h *hall) eachKey(do func(Inside, *Key)) func(Inside) {
	return func(p Inside) {
		for _, q := range h.queues {
			for _, k := range q.keys {
				do(p, &k.Key)
			}
		}
	}
}

func FuzzOrder(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(random(seed, 400).program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		h := newHall(program)
		if h.run(); len(h.faults) > 0 {
			t.Errorf("%d bytes before the end, throttles %v: %q", len(h.program), h.limits, h.faults)
		}
	})
}

// What a purge has left of a queue says nothing of the queue: its last key may leave the ring, held by a budget, while
// the queue has an open class that has been announced.
func TestAPurgedClassLeavesTheAnnouncementOfItsQueue(t *testing.T) {
	h := newHall(nil)
	a, b := h.queues[0], h.queues[1]
	h.o.SetThrottle("t", Limits{Concurrency: 1})
	h.budgets["m"] = &hallBudget{available: 10}
	h.o.Changed("m")
	held := &Set{Names: []string{"t"}}
	put := func(q *hallQueue, seq uint64, set *Set) { h.put(q, seq, Head{Cost: 1, Set: set}) }
	put(b, 1, held)
	put(b, 2, &Set{Names: []string{"t"}}) // so that the throttle is one of classes
	b.keys[1].heads = nil
	h.settle(b.keys[1])
	if !h.deliver(b, false) {
		t.Fatal("the throttle has no room: the test shows nothing")
	}
	put(a, 1, &Set{Names: []string{"t"}, Budgets: []string{"m"}, Charge: 5})
	if h.deliver(a, false) {
		t.Fatal("the throttle has more room than it should: the test shows nothing")
	}
	purged := a.q.Replace()
	put(a, 2, nil)
	a.q.Announced = true
	h.budgets["m"].available = 2
	h.o.Drained("m")
	h.o.End(held)
	h.serveReady()
	if purged.Empty() || h.o.Held() != 1 {
		t.Fatalf("%d keys are held: the test shows nothing", h.o.Held())
	}
	if !a.q.HasOpen() || !a.q.Announced {
		t.Errorf("a class is open: %v, it is announced: %v", a.q.HasOpen(), a.q.Announced)
	}
}
