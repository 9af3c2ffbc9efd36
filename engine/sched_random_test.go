package engine

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Random set-ups: queues, keys, weights, costs, priorities, retries, delays, up to four
// throttles per message, and workers that connect, disconnect, poll and are slow. The promises
// of every rule are checked after every event. How much of the throttles was used, and what
// each class got, is judged over all set-ups.

var schedSetUps = flag.Int("setups", 40, "random set-ups of the scheduler that are tried")

const (
	setUpSeconds    = 600
	setUpDeliveries = 5000
	// A visit delivers quantum x weight messages of cost 1. With a quantum of 100 and a weight
	// of 50, one visit would last as long as the whole set-up, and the other keys would seem to
	// starve. So weights are small where the quantum is large, and such a set-up lasts longer.
	setUpTurn = 200
)

// setUp is a random set-up. Those of odd seeds have no message with several throttles.
type setUp struct {
	*schedSim
	several   bool
	paid      *rand.Rand // budgets pay for messages; nil: for none
	batches   bool       // workers lease several messages at a time
	same      bool       // and all of one key
	gathers   bool       // keys of some queues gather messages
	contended bool       // every message names a throttle, and there are always workers
	costMax   uint32
	weightMax uint32
	own       []*schedThrottle // throttles of one key each
	changes   []string         // the disturbances
}

func newSetUp(seed uint64) *setUp {
	quantum := []uint32{1, 1, 4, 100}[seed/2%4]
	onDisk := seed%10 < 2 // most messages are on disk only
	u := &setUp{several: seed%2 == 0, schedSim: newSchedSim(seed, func(c *Config) {
		c.Quantum = quantum
		if onDisk {
			c.Window, c.WindowTotal = 2, 2+int(seed%7)
		}
	})}
	if u.onDisk = onDisk; onDisk {
		u.slack = 2 * u.quantum // a key whose read finds nothing misses a visit
	}
	u.patterns, u.settles = seed%3 == 2, true
	r := u.rng
	u.contended = r.IntN(3) > 0
	u.work = [...]func() time.Duration{
		func() time.Duration { return exponential(u.schedSim) },
		func() time.Duration { return uniform(u.schedSim) },
		func() time.Duration { return narrow(u.schedSim) },
		func() time.Duration { return time.Second },
	}[r.IntN(4)]
	u.costMax, u.weightMax = []uint32{1, 1, 3, 20, 1000}[r.IntN(5)], []uint32{1, 1, 10, 50}[r.IntN(4)]
	u.weightMax = min(u.weightMax, setUpTurn/quantum)
	for range 1 + r.IntN(4) {
		u.randomThrottle()
	}
	u.randomBudgets(seed)
	shared := slices.Clone(u.throttles)
	for range 1 + r.IntN(4) {
		q := u.queue()
		u.randomGathering(seed, q)
		keys := 1 + r.IntN(6)
		if r.IntN(8) == 0 {
			keys = 25
		}
		for range keys {
			u.randomKey(q, shared)
		}
	}
	u.randomWorkers()
	u.randomBatches(seed)
	u.randomHolds(seed, shared)
	for range r.IntN(4) {
		u.disturb(shared)
	}
	return u
}

func (u *setUp) randomThrottle() {
	r := u.rng
	rate, burst, conc := 1+9*r.Float64(), float64(1+r.IntN(5)), 1+r.IntN(3)
	cost := (1 + float64(u.costMax)) / 2 // of a message, in the mean
	switch r.IntN(10) {
	case 0, 1:
		u.throttle(rate, burst, 0)
	case 8: // the dearest messages may take more than the bucket holds
		u.throttleByCost(rate*cost, math.Ceil(burst*cost/2), 0)
	case 9:
		u.throttleByCost(rate*cost, math.Ceil(burst*cost/2), conc+3)
	case 2:
		u.throttle(rate, burst, conc+3)
	case 4:
		u.adaptiveThrottle(1+conc/3, conc+3)
	default:
		u.throttle(0, 0, conc)
	}
}

// randomSet returns a random throttle set for a message.
func (u *setUp) randomSet(shared []*schedThrottle) []*schedThrottle {
	n := u.rng.IntN(len(shared) + 1)
	if u.contended {
		n = max(n, 1)
	}
	if !u.several {
		n = min(n, 1)
	}
	var set []*schedThrottle
	for i, p := range u.rng.Perm(len(shared)) {
		if i < n {
			set = append(set, shared[p])
		}
	}
	slices.SortFunc(set, func(a, b *schedThrottle) int { return slices.Index(shared, a) - slices.Index(shared, b) })
	return set
}

// ownThrottle adds a throttle of one key, which has the limits of a pattern for several of them.
func (u *setUp) ownThrottle(conc int) *schedThrottle {
	if !u.patterns {
		return u.throttle(0, 0, conc)
	}
	t := u.newThrottle()
	t.settings = []string{fmt.Sprintf("own:%d:*", conc)}
	t.name = fmt.Sprintf("own:%d:%d", conc, len(u.throttles))
	t.set(0, 0, conc)
	return t
}

func (u *setUp) randomKey(q *schedQueue, shared []*schedThrottle) {
	r := u.rng
	set := u.randomSet(shared)
	if u.several && r.IntN(12) == 0 { // a limit of one tenant
		own := u.ownThrottle(1 + r.IntN(2))
		u.own = append(u.own, own)
		set = append(set, own)
	}
	k := q.key(1+r.Uint32N(u.weightMax), set...)
	most := 1 + r.Uint32N(u.costMax)
	k.costs = func() uint32 { return 1 + r.Uint32N(most) }
	if r.IntN(10) == 0 {
		k.class = nil
		k.sets = append(k.sets, u.randomSet(shared))
		q.class(k.sets[1])
	}
	u.payFor(k)
	switch r.IntN(5) {
	case 0: // messages are enqueued at intervals
		u.again(time.Duration(r.ExpFloat64()*20e9), func() {
			const most = 20
			for range min(1+r.IntN(8), most-len(k.ready)) {
				k.put(k.costs(), uint8(r.IntN(10)), 0)
			}
		})
	case 1: // some of them delayed
		k.keep = 4
		u.again(time.Duration(r.ExpFloat64()*10e9), func() {
			if len(k.ready) < 20 {
				k.put(k.costs(), 4, time.Duration(r.ExpFloat64()*5e9))
			}
		})
	case 2: // cheap ones of a higher priority
		k.keep = 4
		u.again(time.Duration(r.ExpFloat64()*10e9), func() {
			if len(k.ready) == 0 || k.ready[0].cost > 1 {
				k.put(1, 9, 0)
			}
		})
	default:
		k.keep = 4
	}
	k.refill()
}

// again calls a function at intervals of about d from then on.
func (u *setUp) again(d time.Duration, do func()) {
	d = max(d, 100*time.Millisecond)
	u.after(time.Duration(u.rng.Float64()*2*float64(d)), func() {
		do()
		u.again(d, do)
	})
}

// randomBatches has workers lease several messages of one key at a time, in a third of the set-ups.
func (u *setUp) randomBatches(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // reproducible on purpose
	if r.IntN(3) > 0 || u.onDisk {      // messages on disk are not read within a turn
		return
	}
	u.batches, u.same = true, true
	for _, w := range u.workers {
		if r.IntN(2) == 0 {
			w.count, w.same = 1+r.IntN(8), true
		}
	}
}

func (u *setUp) randomWorkers() {
	r := u.rng
	lapse, fail, count := time.Duration(0), 0.0, 1
	if r.IntN(4) == 0 {
		lapse = time.Duration(2+r.IntN(6)) * time.Second
	}
	if r.IntN(3) == 0 {
		fail = 0.15
	}
	if r.IntN(4) == 0 && !u.onDisk { // messages on disk are not read within a turn
		count, u.batches = 3, true
	}
	for _, q := range u.queues {
		n := 14
		switch {
		case u.contended:
			n = 40
		case r.IntN(3) == 0:
			n = 1 + r.IntN(3)
		}
		u.crew(n, q)
	}
	for i := range 1 + r.IntN(6) {
		set := slices.Clone(u.queues)
		r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
		w := u.crew(1, set[:1+r.IntN(len(set))]...)[0]
		w.factor = 0.2 + 5*r.Float64()
		switch i % 3 {
		case 0:
			w.block, w.every = -1, time.Duration((0.05+r.Float64())*1e9)
		case 1:
			w.block, w.every = time.Duration((0.1+r.Float64())*1e9), time.Duration(r.Float64()*1e9)
		}
	}
	for _, w := range u.workers {
		w.lapse, w.fail, w.lazy = lapse, fail, r.IntN(2) == 0
		if r.IntN(3) == 0 {
			w.count = count
		}
		if r.IntN(5) == 0 {
			u.again(time.Duration((1+20*r.Float64())*1e9), func() {
				if w.away {
					w.comeBack()
				} else {
					w.leave(w.lapse > 0)
				}
			})
		}
	}
}

// disturb changes settings or messages from time to time.
func (u *setUp) disturb(shared []*schedThrottle) {
	r := u.rng
	q := u.queues[r.IntN(len(u.queues))]
	k := q.keys[r.IntN(len(q.keys))]
	every := time.Duration((2 + 30*r.Float64()) * 1e9)
	what := r.IntN(9)
	u.changes = append(u.changes, [...]string{
		"queue paused", "key paused", "weight set", "throttle set", "new keys", "throttle removed", "queue purged", "cancelled", "rescheduled",
	}[what])
	switch what {
	case 0:
		u.again(every, func() { q.pause(!q.paused) })
	case 1:
		u.again(every, func() { k.pause(!k.paused) })
	case 2:
		u.again(every, func() { k.setWeight(1 + r.Uint32N(u.weightMax)) })
	case 3:
		t := shared[r.IntN(len(shared))]
		u.again(every, func() {
			if t.rate > 0 {
				t.set(max(t.rate*(0.5+r.Float64()), 1e-6), t.burst, t.conc) // no rate may be 0
			} else {
				t.set(0, 0, 1+r.IntN(max(3, t.conc)))
			}
		})
	case 4: // keys join and leave
		sets := [][]*schedThrottle{u.randomSet(shared), u.randomSet(shared)}
		u.again(every/10, func() {
			if len(q.keys) < 60 {
				fresh := q.key(1+r.Uint32N(u.weightMax), sets[r.IntN(2)]...)
				for range 1 + r.IntN(3) {
					fresh.put(1+r.Uint32N(u.costMax), 4, 0)
				}
			}
		})
	case 5:
		t := shared[r.IntN(len(shared))]
		rate, burst, conc := t.rate, t.burst, t.conc
		u.again(10*every, func() {
			t.remove()
			u.after(time.Second, func() { t.set(rate, burst, conc) })
		})
	case 6:
		u.again(10*every, q.purge)
	case 7:
		u.again(every/4, func() {
			if len(k.ready) > 0 {
				u.cancel(k.ready[0])
			}
		})
	case 8:
		u.again(every/4, func() {
			if len(k.ready) > 0 {
				u.reschedule(k.ready[r.IntN(len(k.ready))], time.Duration(r.IntN(3))*time.Second)
			}
		})
	}
}

// TestEveryRuleHoldsInRandomSetUps runs as many set-ups as -setups says, from seed -seed.
func TestEveryRuleHoldsInRandomSetUps(t *testing.T) {
	n := *schedSetUps
	if testing.Short() {
		n = min(n, 5)
	}
	j := &schedJudge{}
	for seed := *simFirst; seed < *simFirst+uint64(n); seed++ {
		u := newSetUp(seed)
		u.relaxed = true
		u.run(setUpSeconds*time.Second, u.enough)
		if u.cut > 0 {
			t.Errorf("seed %d: %d batches were shorter than they may be", seed, u.cut)
		}
		if red := slices.Concat(u.faults, u.reds); len(red) > 0 {
			if j.bad++; j.bad <= 10 {
				t.Errorf("seed %d (%v): %d times a message waited that could go, %d times two keys were too far apart; first %s",
					seed, u.changes, u.broken, u.apart, red[0])
			}
		}
		if err := u.step.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		u.sameLimits(t)
		j.add(seed, u)
	}
	j.report(t, n)
}

// judge runs a set-up and returns what is judged of it.
func judge(seed uint64) *schedJudge {
	u := newSetUp(seed)
	u.relaxed = true
	u.run(setUpSeconds*time.Second, u.enough)
	j := &schedJudge{}
	j.add(seed, u)
	return j
}

// Two throttles that both have a rate and a concurrency were each too short-lived to be reserved while a class
// waited for the other: the oldest claim went nowhere, and with it every class with several throttles.
func TestAClaimAtThrottlesWithRateAndConcurrencyIsServed(t *testing.T) {
	j := judge(9172)
	if len(j.several) < 6 {
		t.Fatalf("%d classes with several throttles are judged", len(j.several))
	}
	if low := spread(t, "part of its share, a class with several throttles", j.several, 0.5); low > 0 {
		t.Errorf("%.0f %% get less than half of their share", 100*low)
	}
}

// Leases end at two throttles at once, and the first one gives its room away in the turns of its own line, while the
// second one still has its room.
func TestAClassLeavesTheTurnsAtAThrottleThatIsStillToGiveItsRoomAway(t *testing.T) {
	for seed, about := range map[uint64]string{
		5288: "A class that needs both made a claim, as the second one had room, and so got the room of those that wait for that one alone.",
		5584: "A queue without consumers was first in the line of the second one, and hid the queue behind it, which has consumers and had fewer turns.",
	} {
		j := judge(seed)
		if len(j.single) == 0 {
			t.Fatalf("set-up %d: no class with one throttle is judged", seed)
		}
		if low := spread(t, "part of its share, a class with one throttle", j.single, 0.75); low > 0 {
			t.Errorf("set-up %d: %.0f %% get less than three quarters of their share. %s", seed, 100*low, about)
		}
	}
}

// These set-ups were red. The invariants hold after each of their steps, and no message waits that could go.
func TestNothingWaitsInSetUpsThatWereRed(t *testing.T) {
	for seed, about := range map[uint64]string{
		825:  "A lease of several queues that is served for one of them may take the turn of another: those that wait for that one are asked, too, else its class stays open, stands in no line, and gets no room that appears later.",
		1407: "A poll of a queue without demand ends: two classes that a throttle by cost stops were opened and stopped in turns until the budget of the turn was spent, and the poll came back with nothing.",
		1438: "Throttles that are reserved for a later claim while the class of an earlier one is open are its own when that class waits again.",
	} {
		u := newSetUp(seed)
		u.relaxed = true
		u.run(setUpSeconds*time.Second, func() bool {
			if err := u.step.Check(); err != nil {
				t.Fatalf("set-up %d: %v. %s", seed, err, about)
			}
			return u.enough()
		})
		if u.broken > 0 {
			t.Errorf("set-up %d: %d times a message waited that could go; first %s. %s", seed, u.broken, u.reds[0], about)
		}
	}
}

// enough reports whether the set-up has delivered enough messages to be judged.
func (u *setUp) enough() bool { return u.deliveries >= setUpDeliveries*max(int(u.quantum)/20, 1) }

// schedJudge collects the results of the set-ups.
type schedJudge struct {
	bad, deliveries, dos int
	busy                 int // classes whose queues had no worker waiting: not judged
	widest               float64
	kept                 time.Duration
	use                  [5][]seen // of throttles, by the size of the largest throttle set that names them
	// Fractions of their fair parts: classes with one throttle, without and with messages of
	// several throttles beside them.
	alone, single []seen
	several       []seen    // fractions of classes with several throttles
	besideBatches [2][]seen // use of throttles, and fractions of classes with several, where batches of one key go ahead
	interrupted   []seen    // use of throttles with others in a message, where holds stop these or keys gather
}

// busy reports whether no worker waited for the queue in nearly all of the time.
func (q *schedQueue) busy() bool {
	return float64(q.awaited) < 0.1*float64(q.sim.now-schedStart*1e9)
}

// seen is a figure and the set-up that it comes from.
type seen struct {
	x    float64
	what string
}

func (j *schedJudge) add(seed uint64, u *setUp) {
	j.deliveries += u.deliveries
	j.dos += u.dos
	j.widest = max(j.widest, u.widest)
	most := map[*schedThrottle]int{}
	for _, q := range u.queues {
		for _, c := range q.classes {
			for _, t := range c.throttles {
				most[t] = max(most[t], len(c.throttles))
			}
			turns := max(u.quantum/20, 1) // beside keys without throttles, a class must wait for some of their visits
			few, enough := 30*turns, 100*turns
			part, of := c.share()
			if of < few || math.IsInf(of, 1) {
				continue
			}
			is := seen{part, fmt.Sprintf("seed %d, %s, %d of %.1f", seed, c, c.got, of)}
			switch {
			case c.budgets: // the credits decide
			case q.busy():
				// Queues with a waiting consumer take turns. The classes of one whose workers only poll, or are
				// all busy, get what happens to be free at the moment in which one of them asks.
				j.busy++
			case len(c.throttles) > 1 && u.same:
				j.besideBatches[1] = append(j.besideBatches[1], is)
			case len(c.throttles) > 1:
				j.several = append(j.several, is)
			case u.several:
				j.single = append(j.single, is)
			case of >= enough && !u.batches: // a turn at the throttle is one lease
				j.alone = append(j.alone, is)
			}
		}
	}
	for _, t := range u.throttles {
		j.kept = max(j.kept, time.Duration(t.idleMost))
		const enough = 30
		if t.amount() >= enough && !slices.Contains(u.own, t) {
			i := min(most[t], 4)
			use := &j.use[i]
			switch {
			case u.same && i > 1:
				use = &j.besideBatches[0]
			case (u.holds || u.gathers) && i > 1:
				use = &j.interrupted
			}
			*use = append(*use, seen{t.use(), fmt.Sprintf("seed %d, %s (rate %.1f, concurrency %d)", seed, t.name, t.rate, t.conc)})
		}
	}
}

// spread writes the distribution of figures and returns the fraction of them below a bound.
func spread(t *testing.T, what string, all []seen, bound float64) float64 {
	t.Helper()
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, func(a, b seen) int { return int(math.Copysign(1, a.x-b.x)) })
	at := func(p float64) float64 { return all[int(p*float64(len(all)-1))].x }
	below := 0
	for below < len(all) && all[below].x < bound {
		below++
	}
	t.Logf("%s, %d of them: least %.2f (%s), 1 %% below %.2f, 2 %% below %.2f, 5 %% below %.2f, median %.2f; %d below %.2f",
		what, len(all), all[0].x, all[0].what, at(0.01), at(0.02), at(0.05), at(0.5), below, bound)
	return float64(below) / float64(len(all))
}

func (j *schedJudge) report(t *testing.T, n int) {
	t.Helper()
	t.Logf("%d classes are not judged, as no worker waited for their queues", j.busy)
	t.Logf("%d set-ups, %d deliveries in %d calls; the widest range of two keys was %.3f of the bound, the longest time a place was kept %v",
		n, j.deliveries, j.dos, j.widest, j.kept)
	if j.bad > 0 {
		t.Errorf("%d of %d set-ups break a rule", j.bad, n)
	}
	for _, x := range []struct {
		what  string
		all   []seen
		bound float64
		few   float64 // the fraction of them that may be below it
	}{
		{"use of throttles, messages with one", j.use[1], 0.95, 0},
		{"use of throttles, messages with two", j.use[2], 0.8, 0.02},
		{"use of throttles, messages with three or four", slices.Concat(j.use[3], j.use[4]), 0.75, 0.02},
		{"part of its turns, a queue whose messages have one throttle", j.alone, 0.75, 0},
		{"part of its share, a class with one throttle beside several", j.single, 0.25, 0},
		{"part of its share, a class with several throttles", j.several, 0.1, 0},
		{"use of throttles, messages with several, beside holds or keys that gather", j.interrupted, 0.75, 0.06},
		{"use of throttles, messages with several, beside batches of one key", j.besideBatches[0], 0.75, 0.06},
		{"part of its share, a class with several throttles, beside batches of one key", j.besideBatches[1], 0.1, 0.02},
	} {
		if part := spread(t, x.what, x.all, x.bound); part > x.few {
			t.Errorf("%s: %.1f %% are below %.2f, at most %.0f %% may be", x.what, 100*part, x.bound, 100*x.few)
		}
	}
}
