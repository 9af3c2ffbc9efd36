package engine

import (
	"cmp"
	"fmt"
	"math"
	"testing"
	"time"
)

// The rules of scheduling, one test for each, with the figures that users reported. Nothing is
// random here: the time of work is constant unless stated otherwise.

// newRuleSim returns a simulation that counts broken rules instead of stopping at the first.
func newRuleSim(t *testing.T) *schedSim {
	t.Helper()
	s := newSchedSim(1, nil)
	s.relaxed = true
	t.Cleanup(func() {
		for _, f := range s.faults {
			t.Error(f)
		}
		if s.broken+s.apart > 0 {
			t.Errorf("%d times a message waited that could go, %d times two keys were too far apart; first %q", s.broken, s.apart, s.reds)
		}
		if err := s.step.Check(); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
	return s
}

func (s *schedSim) constant(d time.Duration) { s.work = func() time.Duration { return d } }

// atLeast fails the test if a figure is too small.
func atLeast[T int | int64 | float64](t *testing.T, what string, got, least T) {
	t.Helper()
	if got < least {
		t.Errorf("%s: %v, want at least %v", what, got, least)
	} else {
		t.Logf("%s: %v", what, got)
	}
}

// within fails the test if two figures differ by more than a part of the greater one.
func within(t *testing.T, what string, a, b int, part float64) {
	t.Helper()
	if float64(max(a, b)-min(a, b)) > part*float64(max(a, b)) {
		t.Errorf("%s: %d and %d", what, a, b)
	} else {
		t.Logf("%s: %d and %d", what, a, b)
	}
}

// hindrance is a reason why a queue cannot use the tokens that it shares with another queue.
type hindrance struct {
	name   string
	hinder func(s *schedSim, q *schedQueue)
	least  int  // what the other queue gets of 1020 tokens
	busy   bool // its messages need a throttle that is full
}

func hindrances() []hindrance {
	after := func(d time.Duration, do func(q *schedQueue)) func(*schedSim, *schedQueue) {
		return func(s *schedSim, q *schedQueue) {
			s.crew(3, q)
			s.after(d, func() { do(q) })
		}
	}
	return []hindrance{
		{name: "it never had a worker", hinder: func(*schedSim, *schedQueue) {}, least: 1019},
		{name: "its worker has polled until nothing was left, and gone", least: 969, hinder: func(s *schedSim, q *schedQueue) {
			w := s.crew(1, q)[0]
			w.block, w.every, w.factor = -1, time.Millisecond, 0
			s.after(300*time.Millisecond, func() { w.leave(true) })
		}},
		{name: "its worker has left while it waited", least: 969, hinder: func(s *schedSim, q *schedQueue) {
			w := s.crew(1, q)[0]
			w.factor = 0
			s.after(500*time.Millisecond, func() { w.leave(false) })
		}},
		{name: "its worker comes and goes", least: 969, hinder: func(s *schedSim, q *schedQueue) {
			w := s.worker(q)
			w.factor = 1e6
			var turn func()
			turn = func() {
				w.leave(true)
				w.comeBack()
				s.after(333*time.Millisecond, turn)
			}
			s.after(0, turn)
		}},
		{name: "its workers' waits end", least: 969, hinder: func(s *schedSim, q *schedQueue) {
			w := s.crew(1, q)[0]
			w.block, w.every, w.factor = 3*time.Millisecond, 400*time.Millisecond, 400
		}},
		{name: "it is paused", hinder: after(500*time.Millisecond, func(q *schedQueue) { q.pause(true) }), least: 969},
		{name: "it is paused before anything waits", hinder: after(0, func(q *schedQueue) { q.pause(true) }), least: 999},
		{name: "all of its keys are paused", least: 969, hinder: after(500*time.Millisecond, func(q *schedQueue) {
			for _, k := range q.keys {
				k.pause(true)
			}
		})},
		{name: "another throttle of its messages is full", busy: true, least: 1018, hinder: after(0, func(*schedQueue) {})},
	}
}

// TestATokenWaitsForNoQueueThatCannotUseIt: two queues share a rate of 100 per second, and one
// of them cannot use it. The other queue gets all of it.
func TestATokenWaitsForNoQueueThatCannotUseIt(t *testing.T) {
	for _, x := range hindrances() {
		for _, keys := range []int{1, 25} {
			t.Run(fmt.Sprintf("%s, %d keys", x.name, keys), func(t *testing.T) {
				s := newRuleSim(t)
				s.constant(time.Millisecond)
				rate, places := s.throttle(100, 20, 0), s.throttle(0, 0, 1)
				ts := []*schedThrottle{rate}
				stuck, free := s.queue(), s.queue()
				if x.busy {
					ts = append(ts, places)
					other := s.queue()
					other.endless(3, 1, 1, places)
					s.crew(1, other)[0].factor = 1e6
					s.run(time.Nanosecond, nil)
				}
				for range keys {
					stuck.endless(4, 1, 1, ts...)
				}
				free.endless(5, 1, 1, rate)
				s.crew(3, free)
				x.hinder(s, stuck)
				s.run(10*time.Second, nil)
				atLeast(t, "of 1020 tokens both queues got", free.got+stuck.got, 1019)
				atLeast(t, "the one that can use them", free.got, x.least)
			})
		}
	}
}

// TestASlowWorkerKeepsNoTokensFromIdleOnes: one slow worker for a queue with five keys and
// three idle workers for another queue share 100 tokens per second.
func TestASlowWorkerKeepsNoTokensFromIdleOnes(t *testing.T) {
	for _, burst := range []int{20, 5, 1} {
		t.Run(fmt.Sprint("burst ", burst), func(t *testing.T) {
			s := newRuleSim(t)
			s.constant(time.Millisecond)
			rate := s.throttle(100, float64(burst), 0)
			slow, fast := s.queue(), s.queue()
			for range 5 {
				slow.endless(4, 1, 1, rate)
			}
			fast.endless(4, 1, 1, rate)
			s.crew(1, slow)[0].factor = 750
			s.crew(3, fast)
			s.run(6*time.Second, nil)
			atLeast(t, fmt.Sprintf("of %d tokens both", 600+burst), slow.got+fast.got, 599+burst)
			atLeast(t, "the slow worker", slow.got, 8)
			atLeast(t, "the fast workers", fast.got, 590+burst)
		})
	}
}

// TestAPollTakesAnyAdmittedMessage: a poll finds any message that throttles admit if no worker
// waits.
func TestAPollTakesAnyAdmittedMessage(t *testing.T) {
	s := newRuleSim(t)
	s.constant(time.Millisecond)
	rate, places := s.throttle(10, 5, 0), s.throttle(0, 0, 3)
	for range 3 {
		q := s.queue()
		for range 5 {
			q.endless(4, 1, 1, rate)
			q.endless(4, 1, 1, places)
			q.endless(4, 1, 1, rate, places)
		}
		w := s.crew(1, q)[0]
		w.block, w.every, w.factor = -1, 70*time.Millisecond, 200
	}
	s.run(100*time.Second, nil)
	atLeast(t, "polls", s.deliveries, 1000)
}

// TestALeaseThatWaitsTakesAllTheRoomOfAThrottle: three slots become free at once, and a lease of
// up to three messages waits.
func TestALeaseThatWaitsTakesAllTheRoomOfAThrottle(t *testing.T) {
	s := newRuleSim(t)
	a := s.throttle(0, 0, 3)
	q := s.queue()
	for range 3 {
		q.endless(2, 1, 1, a)
	}
	first := s.worker(q)
	first.count, first.lapse = 3, time.Second
	s.after(0, first.lease)
	s.after(time.Millisecond, func() { first.leave(true) })
	second := s.worker(q)
	second.count = 3
	s.after(2*time.Millisecond, second.lease)
	s.constant(time.Hour)
	s.run(2*time.Second, nil)
	if second.left != 3 {
		t.Errorf("it got %d messages", second.left)
	}
}

// TestQueuesTakeTurnsAtAThrottle, however many keys each of them has.
func TestQueuesTakeTurnsAtAThrottle(t *testing.T) {
	for name, throttle := range map[string]func(*schedSim) *schedThrottle{
		"rate":        func(s *schedSim) *schedThrottle { return s.throttle(10, 1, 0) },
		"burst":       func(s *schedSim) *schedThrottle { return s.throttle(10, 20, 0) },
		"concurrency": func(s *schedSim) *schedThrottle { return s.throttle(0, 0, 4) },
		"both":        func(s *schedSim) *schedThrottle { return s.throttle(10, 3, 8) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newRuleSim(t)
			a := throttle(s)
			many, one := s.queue(), s.queue()
			for range 25 {
				many.endless(4, 1, 1, a)
			}
			one.endless(4, 1, 1, a)
			s.crew(6, many)
			s.crew(6, one)
			s.crew(6, many)
			s.crew(6, one)
			s.run(1000*time.Second, nil)
			within(t, "25 keys and 1 key", many.got, one.got, 0.02)
			for _, k := range many.keys {
				if k.got < many.got/25-2 || k.got > many.got/25+2 {
					t.Errorf("key %s got %d of %d", k.name, k.got, many.got)
				}
			}
			atLeast(t, "use", a.use(), 0.999)
		})
	}
}

// TestKeysOfAQueueShareItsTurnsByWeight, beside another queue.
func TestKeysOfAQueueShareItsTurnsByWeight(t *testing.T) {
	s := newRuleSim(t)
	a := s.throttle(0, 0, 3)
	many, one := s.queue(), s.queue()
	light, heavy := many.endless(5, 1, 1, a), many.endless(12, 3, 1, a)
	one.endless(4, 1, 1, a)
	s.crew(6, many)
	s.crew(6, one)
	s.run(2000*time.Second, nil)
	within(t, "both queues", many.got, one.got, 0.02)
	within(t, "weight 1 three times, and weight 3", 3*light.got, heavy.got, 0.02)
}

// TestACostlyMessageTakesMoreOfItsKeysShare under a throttle, beside a key without one.
func TestACostlyMessageTakesMoreOfItsKeysShare(t *testing.T) {
	s := newRuleSim(t)
	a := s.throttle(10, 1, 0)
	q := s.queue()
	dear, cheap, heavy := q.endless(4, 1, 3, a), q.endless(4, 1, 1, a), q.endless(4, 2, 1, a)
	free := q.endless(4, 1, 1)
	for _, w := range s.crew(20, q) {
		w.factor = 0.2
	}
	s.run(500*time.Second, nil)
	within(t, "cost 3 and cost 1", int(dear.cost), int(cheap.cost), 0.02)
	within(t, "weight 1 twice and weight 2", 2*cheap.got, heavy.got, 0.02)
	atLeast(t, "use", a.use(), 0.999)
	atLeast(t, "the key without a throttle", free.got, 10_000)
}

// TestOneSetOfWorkersTakesTurnsAmongItsQueues: 9 keys and 1 key under one throttle, in two
// queues with the same workers.
func TestOneSetOfWorkersTakesTurnsAmongItsQueues(t *testing.T) {
	for _, conc := range []int{2, 0} {
		t.Run(fmt.Sprint("concurrency ", conc), func(t *testing.T) {
			s := newRuleSim(t)
			var ts []*schedThrottle
			if conc > 0 {
				ts = append(ts, s.throttle(0, 0, conc))
			}
			nine, one, empty := s.queue(), s.queue(), s.queue()
			for range 9 {
				nine.endless(4, 1, 1, ts...)
			}
			one.endless(5, 1, 1, ts...)
			s.crew(3, nine, one)
			for _, w := range s.crew(3, empty) {
				w.block, w.every = -1, 10*time.Millisecond
			}
			seconds := 500 * time.Second
			if testing.Short() {
				seconds /= 4
			}
			s.run(seconds, nil)
			within(t, "9 keys and 1 key", nine.got, one.got, 0.02)
		})
	}
}

// TestLeasesOfSeveralQueuesAreFairWhateverComesBetween: calls for other queues and of other
// workers do not change whose turn it is.
func TestLeasesOfSeveralQueuesAreFairWhateverComesBetween(t *testing.T) {
	for name, between := range map[string]func(s *schedSim, w *schedWorker, qs []*schedQueue){
		"nothing":                   func(*schedSim, *schedWorker, []*schedQueue) {},
		"a poll of an empty queue":  func(_ *schedSim, w *schedWorker, qs []*schedQueue) { w.pollOf(qs[2]) },
		"a poll of two empty ones":  func(_ *schedSim, w *schedWorker, qs []*schedQueue) { w.pollOf(qs[2], qs[3]) },
		"another worker's of those": func(s *schedSim, _ *schedWorker, qs []*schedQueue) { s.worker(qs[2:]...).pollOf(qs[2], qs[3]) },
		"a set with a queue of them": func(s *schedSim, _ *schedWorker, qs []*schedQueue) {
			s.worker(qs[2:]...).pollOf(qs[2], qs[0])
		},
		"two polls, of three queues": func(_ *schedSim, w *schedWorker, qs []*schedQueue) {
			w.pollOf(qs[2], qs[3], qs[4])
			w.pollOf(qs[4], qs[3])
		},
		"a new connection each time": func(_ *schedSim, w *schedWorker, _ []*schedQueue) { w.connect() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newRuleSim(t)
			qs := []*schedQueue{s.queue(), s.queue(), s.queue(), s.queue(), s.queue()}
			qs[0].endless(2, 1, 1)
			qs[1].endless(2, 1, 1)
			w := s.worker(qs[0], qs[1])
			for range 200 {
				w.pollOf(qs[0], qs[1])
				between(s, w, qs)
			}
			if name == "a set with a queue of them" { // it gets a message of that queue each time
				atLeast(t, "the queue that only one set has", qs[1].got, 95)
				return
			}
			within(t, "the two queues", qs[0].got, qs[1].got, 0.03)
		})
	}
}

// pollOf leases from queues without waiting, and acks.
func (w *schedWorker) pollOf(qs ...*schedQueue) {
	s := w.sim
	own := w.queues
	w.queues, w.block, w.every, w.away = qs, -1, 1000*time.Hour, false
	w.lease()
	w.away = true
	w.queues = own
	s.run(time.Minute, func() bool { return w.left == 0 })
}

// TestAWaitingKeyIsNotOvertakenByNewOnes: twenty keys wait for a throttle, and a new key joins
// every half token.
func TestAWaitingKeyIsNotOvertakenByNewOnes(t *testing.T) {
	crews := map[string]func(s *schedSim, q *schedQueue){
		"workers wait": func(s *schedSim, q *schedQueue) { s.crew(30, q) },
		"a worker polls": func(s *schedSim, q *schedQueue) {
			w := s.crew(1, q)[0]
			w.block, w.every, w.factor = -1, 5*time.Millisecond, 0.97
		},
		"a worker polls once a token": func(s *schedSim, q *schedQueue) {
			s.crew(1, q)[0].factor = 0
			w := s.worker(q)
			w.block, w.every, w.factor = -1, 100*time.Millisecond, 1
			s.after(150*time.Millisecond, func() { s.workers[0].leave(false); w.lease() })
		},
		"a worker is busy for as long as a token takes": func(s *schedSim, q *schedQueue) { s.crew(1, q) },
	}
	for crew, start := range crews {
		for _, conc := range []int{0, 1} {
			for _, cost := range []uint32{1, 10} {
				t.Run(fmt.Sprintf("%s, concurrency %d, cost %d", crew, conc, cost), func(t *testing.T) {
					s := newRuleSim(t)
					s.constant(100 * time.Millisecond)
					rate, burst := 10.0, 1.0
					if conc > 0 {
						rate, burst = 0, 0
					}
					a := s.throttle(rate, burst, conc)
					q := s.queue()
					var order []int
					s.onDeliver = func(m *schedMessage) { order = append(order, m.key.no) }
					start(s, q)
					for range 21 {
						q.key(1, a).put(cost, 4, 0)
					}
					var fresh func()
					fresh = func() {
						q.key(1, a).put(cost, 4, 0)
						s.after(50*time.Millisecond, fresh)
					}
					s.after(30*time.Millisecond, fresh)
					s.run(2400*time.Millisecond, nil)
					atLeast(t, "deliveries", len(order), 22)
					old := 0
					for _, no := range order[:21] {
						if no < 21 {
							old++
						}
					}
					atLeast(t, "old keys among the first 21", old, 21)
				})
			}
		}
	}
}

// TestCreditIsNotLostWhenACheapMessageComesFirst: cheap messages keep entering at the head of a
// key with messages of cost 100. The key retains its half of the deliveries.
func TestCreditIsNotLostWhenACheapMessageComesFirst(t *testing.T) {
	const dearCost, every = 100, 40
	seconds := 20
	if testing.Short() {
		seconds = 5
	}
	for name, cheap := range map[string]func(s *schedSim, k *schedKey) func(){
		"by priority": func(_ *schedSim, k *schedKey) func() { return func() { k.put(1, 9, 0) } },
		"by a retry": func(s *schedSim, k *schedKey) func() {
			k.put(1, 4, 0)
			s.onDeliver = func(m *schedMessage) { // nacked as soon as it is delivered
				if m.key == k && m.cost == 1 {
					s.after(0, func() {
						s.call(func(tx *Tx) error {
							s.over(m, m.receipt, true, s.failedWork)
							s.comesBack(m, every*time.Millisecond)
							_, err := tx.Nack(&Nack{Queue: k.queue.name, Receipt: m.receipt, Delay: every * time.Millisecond})
							return err
						})
					})
				}
			}
			return nil
		},
		"by being rescheduled": func(s *schedSim, k *schedKey) func() {
			var later []*schedMessage
			for range 3000 {
				later = append(later, k.put(1, 4, time.Hour))
			}
			return func() {
				if len(later) > 0 {
					s.reschedule(later[0], 0)
					later = later[1:]
				}
			}
		},
		"by the end of its delay": func(_ *schedSim, k *schedKey) func() {
			for i := range 3000 {
				k.put(1, 4, time.Duration(i*every)*time.Millisecond)
			}
			return nil
		},
	} {
		for _, throttled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, throttled %v", name, throttled), func(t *testing.T) {
				s := newRuleSim(t)
				s.constant(time.Millisecond)
				var ts []*schedThrottle
				if throttled {
					ts = append(ts, s.throttle(1000, 1, 0))
				}
				q := s.queue()
				mixed := q.key(1, ts...)
				tick := cheap(s, mixed)
				mixed.costs, mixed.keep = func() uint32 { return dearCost }, 3
				mixed.refill()
				plain := q.endless(3, 1, 1, ts...)
				if tick != nil {
					var again func()
					again = func() {
						tick()
						s.after(every*time.Millisecond, again)
					}
					again()
				}
				s.crew(1, q)
				s.run(time.Duration(seconds)*time.Second, nil)
				atLeast(t, "part of the key with dear and cheap messages", float64(mixed.cost)/float64(mixed.cost+plain.cost), 0.49)
				atLeast(t, "its dear messages", (int(mixed.cost)-mixed.got)/(dearCost-1), 4*seconds)
			})
		}
	}
}

// several is a set-up with keys of one throttle beside keys of several throttles.
type several struct {
	name   string
	concs  []int // concurrency of each throttle; below 0: a rate
	sets   []string
	keys   int // keys of each set
	weight uint32
	apart  bool // each set has a queue of its own
	crew   int
	work   func(s *schedSim) time.Duration
	slow   []float64 // for each set, the factor by which its work takes longer
	share  float64   // least fraction of an equal share for any key; 0: 0.8
	use    float64
}

func exponential(s *schedSim) time.Duration { return time.Duration(s.rng.ExpFloat64() * 1e9) }
func uniform(s *schedSim) time.Duration     { return time.Duration(2 * s.rng.Float64() * 1e9) }
func narrow(s *schedSim) time.Duration      { return time.Duration((0.5 + s.rng.Float64()) * 1e9) }

// TestMessagesWithSeveralThrottlesGetTheirShare beside messages that need only one of their
// throttles, and reduce the use of the throttles little.
func TestMessagesWithSeveralThrottlesGetTheirShare(t *testing.T) {
	two, three := []string{"A", "B", "AB"}, []string{"A", "B", "C", "ABC"}
	pairs := []string{"A", "B", "C", "AB", "BC", "AC"}
	for _, x := range []several{
		{name: "1+1", concs: []int{1, 1}, sets: two, work: exponential},
		{name: "1+1 uniform", concs: []int{1, 1}, sets: two, work: uniform},
		{name: "1+1 narrow", concs: []int{1, 1}, sets: two, work: narrow},
		{name: "1+1 five keys each", concs: []int{1, 1}, sets: two, keys: 5, work: exponential},
		{name: "1+1 a queue for each", concs: []int{1, 1}, sets: two, apart: true, crew: 3, work: exponential},
		{name: "2+2", concs: []int{2, 2}, sets: two, work: exponential},
		{name: "2+2 uniform", concs: []int{2, 2}, sets: two, work: uniform},
		{name: "1+3", concs: []int{1, 3}, sets: two, work: exponential},
		{name: "1+1 weight 10", concs: []int{1, 1}, sets: two, weight: 10, work: exponential},
		{name: "2+2 weight 10", concs: []int{2, 2}, sets: two, weight: 10, work: exponential},
		{name: "1+1+1", concs: []int{1, 1, 1}, sets: three, work: exponential},
		{name: "2+2+2", concs: []int{2, 2, 2}, sets: three, crew: 12, work: exponential},
		{name: "1+1+1 five keys each", concs: []int{1, 1, 1}, sets: three, keys: 5, crew: 12, work: exponential},
		{name: "AB BC CA beside A B C, 1 each", concs: []int{1, 1, 1}, sets: pairs, crew: 12, use: 0.75, work: exponential},
		{name: "AB BC CA beside A B C, 2 each, six queues", concs: []int{2, 2, 2}, sets: pairs, apart: true, crew: 4, work: exponential},
		{name: "A frees a hundred times faster than B", concs: []int{1, 1}, sets: two, slow: []float64{0.1, 10, 0.1}, work: exponential},
		{name: "two rates", concs: []int{-2, -3}, sets: two, crew: 40, work: exponential},
		{name: "rate and concurrency", concs: []int{-2, 1}, sets: two, crew: 20, work: exponential},
		{name: "rate 5 and concurrency 2, a queue for each", concs: []int{-5, 2}, sets: two, apart: true, crew: 40, work: exponential},
		{name: "rate and concurrency, weight 10", concs: []int{-2, 1}, sets: two, weight: 10, crew: 20, work: exponential},
	} {
		t.Run(x.name, func(t *testing.T) { x.run(t) })
	}
}

func (x *several) run(t *testing.T) {
	t.Helper()
	seconds := 4000.0
	if testing.Short() {
		seconds /= 4
	}
	s := newRuleSim(t)
	s.work = func() time.Duration { return x.work(s) }
	for _, c := range x.concs {
		s.throttle(float64(max(-c, 0)), float64(max(min(-c, 1), 0)), max(c, 0))
	}
	var q *schedQueue
	for i, set := range x.sets {
		if q == nil || x.apart {
			q = s.queue()
			s.crew(max(x.crew, 8), q)
		}
		var ts []*schedThrottle
		for _, name := range set {
			ts = append(ts, s.throttles[name-'A'])
		}
		weight := uint32(1)
		if len(set) > 1 {
			weight = max(x.weight, 1)
		}
		for range max(x.keys, 1) {
			k := q.endless(3*int(weight), weight, 1, ts...)
			if x.slow != nil {
				k.slow = x.slow[i]
			}
		}
	}
	s.run(time.Duration(seconds*1e9), nil)
	least, use := s.leastShare(), 1.0
	for _, th := range s.throttles {
		if th.rate > 0 {
			use = min(use, float64(th.passed)/(th.rate*seconds))
		} else {
			use = min(use, th.used/float64(th.conc)/seconds)
		}
	}
	atLeast(t, "the least part of an equal share", least, cmp.Or(x.share, 0.8))
	atLeast(t, "the least use of a throttle", use, cmp.Or(x.use, 0.8))
}

// TestReservedRoomIsReleasedImmediately when the message with several throttles for which it is
// reserved cannot be delivered any more.
func TestReservedRoomIsReleasedImmediately(t *testing.T) {
	for name, change := range map[string]func(q *schedQueue, w []*schedWorker, n int){
		"its queue is paused": func(q *schedQueue, _ []*schedWorker, n int) { q.pause(n%2 == 0) },
		"its keys are paused": func(q *schedQueue, _ []*schedWorker, n int) {
			for _, k := range q.keys {
				k.pause(n%2 == 0)
			}
		},
		"its workers leave": func(_ *schedQueue, ws []*schedWorker, n int) {
			for _, w := range ws {
				if n%2 == 0 {
					w.leave(false)
				} else {
					w.comeBack()
				}
			}
		},
		"it is cancelled": func(q *schedQueue, _ []*schedWorker, n int) {
			k := q.keys[n%2]
			for len(k.ready) > 0 {
				k.keep = 0
				q.sim.cancel(k.ready[0])
			}
			q.sim.after(300*time.Millisecond, func() {
				k.keep = 3
				k.refill()
			})
		},
		"its queue is purged": func(q *schedQueue, _ []*schedWorker, _ int) { q.purge() },
		"its other throttle is removed": func(q *schedQueue, _ []*schedWorker, n int) {
			if b := q.keys[1].class.throttles[1]; n%2 == 0 {
				b.remove()
			} else {
				b.set(0, 0, 1)
			}
		},
		"its other throttle is changed": func(q *schedQueue, _ []*schedWorker, n int) {
			q.keys[1].class.throttles[1].set(0, 0, 1+n%2)
		},
		"a message without throttles comes before it": func(q *schedQueue, _ []*schedWorker, n int) {
			k := q.keys[n%2]
			k.class, k.sets[0] = nil, nil
			k.put(1, 9, 0)
			k.sets[0] = q.classes[0].throttles
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRuleSim(t)
			s.work = func() time.Duration { return exponential(s) }
			a, b := s.throttle(0, 0, 1), s.throttle(0, 0, 1)
			both, one := s.queue(), s.queue()
			for range 2 {
				both.endless(3, 1, 1, a, b)
			}
			one.endless(3, 1, 1, a)
			one.endless(3, 1, 1, b)
			s.crew(8, one)
			ws := s.crew(4, both)
			var again func()
			n := 0
			again = func() {
				change(both, ws, n)
				n++
				s.after(time.Duration((0.2+2*s.rng.Float64())*1e9), again)
			}
			s.after(time.Second, again)
			s.run(2000*time.Second, nil)
			atLeast(t, "messages with both throttles", both.got, 100)
			atLeast(t, "the least use", min(a.use(), b.use()), 0.8)
		})
	}
}

// leastShare is the least fraction that a key got of its share by weight, of what its tightest
// throttle admitted.
func (s *schedSim) leastShare() float64 {
	got, weights := map[*schedThrottle]float64{}, map[*schedThrottle]float64{}
	keys := func(each func(k *schedKey)) {
		for _, q := range s.queues {
			for _, k := range q.keys {
				each(k)
			}
		}
	}
	keys(func(k *schedKey) {
		for _, t := range k.class.throttles {
			got[t] += float64(k.got)
			weights[t] += float64(k.weight)
		}
	})
	least := math.Inf(1)
	keys(func(k *schedKey) {
		share := math.Inf(1)
		for _, t := range k.class.throttles {
			share = min(share, got[t]*float64(k.weight)/weights[t])
		}
		least = min(least, float64(k.got)/share)
	})
	return least
}
