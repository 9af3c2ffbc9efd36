package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// TestKeysOfAClassStayWithinTheBound of deficit round robin in every interval in which both
// keys have messages: with costs from 1 to 1,000,000 in any order, messages that enter at the
// head of their key, keys that join and leave, retries, delays and a throttle.
func TestKeysOfAClassStayWithinTheBound(t *testing.T) {
	plain := []string{"joins", "weights"}
	mixed := []string{"joins", "weights", "fronts", "cheap", "retries", "delays", "reschedules"}
	for i, x := range []struct {
		name     string
		disturb  []string
		throttle func(s *schedSim) []*schedThrottle
	}{
		{"no throttle", plain, func(*schedSim) []*schedThrottle { return nil }},
		{"no throttle, heads change", mixed, func(*schedSim) []*schedThrottle { return nil }},
		{"rate", plain, func(s *schedSim) []*schedThrottle { return []*schedThrottle{s.throttle(1000, 1, 0)} }},
		{"rate, heads change", mixed, func(s *schedSim) []*schedThrottle { return []*schedThrottle{s.throttle(1000, 5, 0)} }},
		{"concurrency", plain, func(s *schedSim) []*schedThrottle { return []*schedThrottle{s.throttle(0, 0, 2)} }},
		{"concurrency, heads change", mixed, func(s *schedSim) []*schedThrottle { return []*schedThrottle{s.throttle(0, 0, 2)} }},
		{"two throttles", mixed, func(s *schedSim) []*schedThrottle {
			return []*schedThrottle{s.throttle(0, 0, 2), s.throttle(900, 3, 0)}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			widest, bad := 0.0, 0
			seeds, first, step := uint64(24), uint64(0), uint64(1)
			if testing.Short() { // two of the six pairs of quantum and costs in each set-up
				seeds, first, step = 6, uint64(i)%3, 3
			}
			for seed := first; seed < seeds; seed += step {
				c := &creditTrial{quantum: []uint32{1, 1000}[seed%2], costMax: []float64{5, 100, 1e6}[seed/2%3], disturb: x.disturb}
				s := c.run(seed, x.throttle)
				widest = max(widest, s.widest)
				if s.apart+s.broken+len(s.faults) > 0 {
					if bad++; bad == 1 {
						t.Errorf("seed %d (quantum %d, costs to %g): %q %q", seed, c.quantum, c.costMax, s.reds, s.faults)
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d seeds break the bound; the widest range is %.3f of it", bad, seeds, widest)
			} else {
				t.Logf("the widest range is %.3f of the bound", widest)
			}
		})
	}
}

// creditTrial is a queue with keys that always have messages, and a disturbance.
type creditTrial struct {
	quantum uint32
	costMax float64
	disturb []string
}

func (c *creditTrial) cost(s *schedSim) uint32 {
	return uint32(math.Exp(s.rng.Float64() * math.Log(c.costMax)))
}

func (c *creditTrial) run(seed uint64, throttle func(s *schedSim) []*schedThrottle) *schedSim {
	s := newSchedSim(seed, func(cfg *Config) { cfg.Quantum = c.quantum })
	s.relaxed = true
	s.constant(2 * time.Millisecond)
	ts := throttle(s)
	q := s.queue()
	for range 6 {
		k := q.key(1+s.rng.Uint32N(10), ts...)
		k.costs, k.keep = func() uint32 { return c.cost(s) }, 4
		k.refill()
	}
	ws := s.crew(4, q)
	for _, what := range c.disturb {
		every := time.Duration((2 + 20*s.rng.Float64()) * 1e6)
		if what == "retries" {
			for _, w := range ws {
				w.fail = 0.15
			}
			continue
		}
		var again func()
		again = func() {
			c.disturbOnce(s, q, what, ts)
			s.after(every, again)
		}
		s.after(every, again)
	}
	s.run(time.Minute, func() bool { return s.deliveries > 3000 })
	return s
}

func (c *creditTrial) disturbOnce(s *schedSim, q *schedQueue, what string, ts []*schedThrottle) {
	k := q.keys[s.rng.IntN(6)]
	switch what {
	case "joins":
		if len(q.keys) < 40 {
			q.key(1+s.rng.Uint32N(10), ts...)
		}
		k = q.keys[s.rng.IntN(len(q.keys))]
		k.put(c.cost(s), 4, 0)
	case "weights":
		if s.rng.IntN(10) == 0 {
			k.setWeight(1 + s.rng.Uint32N(10))
		}
	case "fronts":
		k.put(c.cost(s), 9, 0)
	case "cheap": // enters at the head of the key with the most expensive message
		for _, o := range q.keys {
			if len(o.ready) > 0 && len(k.ready) > 0 && o.ready[0].cost > k.ready[0].cost {
				k = o
			}
		}
		k.put(1, 9, 0)
	case "delays":
		k.put(c.cost(s), 5, time.Duration(s.rng.IntN(50))*time.Millisecond)
	case "reschedules":
		if len(k.ready) > 1 {
			s.reschedule(k.ready[s.rng.IntN(len(k.ready))], time.Duration(s.rng.IntN(3)*10)*time.Millisecond)
		}
	default:
		panic(what)
	}
}

// crowd is a queue with very many keys of one message each.
type crowd struct {
	*world
	like map[string]Enqueue // the message of each key
	hold int                // messages leased at a time
	out  []Receipt
	keys []string // the keys of these messages
}

// put enqueues n messages, 1000 in a turn.
func (w *crowd) put(n int, of func(i int) *Enqueue) {
	w.t.Helper()
	for i := 0; i < n; {
		var tasks []*Task
		for ; i < n && len(tasks) < 1000; i++ {
			req := of(i)
			w.like[req.Key] = *req
			req.Queue, req.Payload = "q", []byte("x")
			if err := w.Prepare(req); err != nil {
				w.t.Fatal(err)
			}
			tasks = append(tasks, &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })})
		}
		w.Do(tasks...)
		for _, task := range tasks {
			if !task.Done() || task.Err() != nil {
				w.t.Fatal(task.Err())
			}
		}
	}
}

// TestADeliveryCostsNoMoreWithMoreKeys whatever the costs and throttles of their messages. With
// a hundred times the keys, a delivery may take longer only by the depth of a tree and by cache
// misses. The bound is a quarter of what looking at each key would take, so that neither the speed of
// the machine nor other processes on it matter.
func TestADeliveryCostsNoMoreWithMoreKeys(t *testing.T) {
	testkit.AtLength(t)
	one, conc, two := 1.0, uint64(1), uint64(2)
	same := func(cost uint32, throttles ...string) func(w *crowd, n int) {
		return func(w *crowd, n int) {
			w.put(n, func(i int) *Enqueue {
				return &Enqueue{Key: fmt.Sprint("k", i), Meta: Meta{Cost: cost, Throttles: throttles}}
			})
		}
	}
	for _, x := range []struct {
		name string
		set  func(w *crowd, n int) // enqueues the message of every key
	}{
		{name: "equal costs", set: same(1)},
		{name: "costs of 1,000 beside one key of cost 2", set: func(w *crowd, n int) {
			same(1000)(w, n)
			w.put(20, func(int) *Enqueue { return &Enqueue{Key: "cheap", Meta: Meta{Cost: 2}} })
		}},
		{name: "costs to a million", set: func(w *crowd, n int) {
			w.put(n, func(i int) *Enqueue {
				return &Enqueue{Key: fmt.Sprint("k", i), Meta: Meta{Cost: 1 + uint32(i)*2_654_435_761%1_000_000}}
			})
		}},
		{name: "weights and costs", set: func(w *crowd, n int) {
			w.put(n, func(i int) *Enqueue {
				return &Enqueue{Key: fmt.Sprint("k", i), Meta: Meta{Weight: 1 + uint32(i%50), Cost: 1 + uint32(i)*2_654_435_761%10_000}}
			})
		}},
		{name: "all wait for a rate, beside a free key", set: func(w *crowd, n int) {
			w.throttle("t", ThrottleOptions{Rate: &one})
			same(1, "t")(w, n)
			w.put(20, func(int) *Enqueue { return &Enqueue{Key: "free"} })
		}},
		{name: "all share one place", set: func(w *crowd, n int) {
			w.throttle("t", ThrottleOptions{Concurrency: &conc})
			same(1, "t")(w, n)
		}},
		{name: "all share a place of each of two", set: func(w *crowd, n int) {
			w.throttle("t", ThrottleOptions{Concurrency: &conc})
			w.throttle("u", ThrottleOptions{Concurrency: &conc})
			same(1, "t", "u")(w, n)
		}},
		{name: "places of each of two and of an own throttle, beside keys of each", set: func(w *crowd, n int) {
			w.hold = 4
			w.throttle("t", ThrottleOptions{Concurrency: &two})
			w.throttle("u", ThrottleOptions{Concurrency: &two})
			w.put(20, func(i int) *Enqueue {
				return &Enqueue{Key: fmt.Sprint("one", i%2), Meta: Meta{Throttles: []string{"t", "u"}[i%2 : i%2+1]}}
			})
			for i := range n {
				w.throttle(fmt.Sprint("own", i), ThrottleOptions{Concurrency: &conc})
			}
			w.put(n, func(i int) *Enqueue {
				return &Enqueue{Key: fmt.Sprint("k", i), Meta: Meta{Throttles: []string{"t", "u", fmt.Sprint("own", i)}}}
			})
		}},
	} {
		t.Run(x.name, func(t *testing.T) { compareCrowds(t, x.set) })
	}
}

func compareCrowds(t *testing.T, set func(w *crowd, n int)) {
	t.Helper()
	const few, many = 1000, 100_000
	sizes := []int{few, many}
	crowds := make([]*crowd, len(sizes))
	for i, n := range sizes {
		crowds[i] = &crowd{newWorld(t, func(c *Config) { c.LeaseWriteDelay = time.Hour }), map[string]Enqueue{}, 1, nil, nil}
		crowds[i].queue("q", QueueOptions{})
		set(crowds[i], n)
	}
	least := make([]time.Duration, len(sizes))
	// The rounds alternate and are short, so that beside other load some of each case are not interrupted.
	for round := range 35 {
		for i, w := range crowds {
			if took := w.deliveriesTake(10); round == 1 || round > 1 && took < least[i] { // the first round warms up
				least[i] = took
			}
		}
	}
	ratio := float64(least[1]) / float64(least[0])
	t.Logf("a delivery takes %v with %d keys, %v with %d: %.1f times as long", least[0], few, least[1], many, ratio)
	if most := float64(many / few / 4); ratio > most {
		t.Errorf("a delivery takes %.1f times as long with %d times the keys, at most %.0f", ratio, many/few, most)
	}
}

// deliveriesTake is the mean time of n deliveries: a lease, and the ack of the oldest message.
// Each key then gets another message like the one delivered.
func (w *crowd) deliveriesTake(n int) time.Duration {
	w.t.Helper()
	total := time.Duration(0)
	timed := func(call func(tx *Tx) error) {
		task := &Task{Call: callFunc(call)}
		start := time.Now()
		w.Do(task)
		total += time.Since(start)
		if !task.Done() || task.Err() != nil {
			w.t.Fatal(task.Err())
		}
	}
	for done := 0; done < n; {
		var ds []*Delivery
		timed(func(tx *Tx) (err error) {
			ds, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: w.hold - len(w.out), Block: -1})
			return err
		})
		for _, d := range ds {
			w.out, w.keys = append(w.out, d.Receipt), append(w.keys, d.Key)
		}
		if len(w.out) == 0 {
			w.t.Fatal("nothing is delivered")
		}
		key := w.keys[0]
		timed(func(tx *Tx) error { _, err := tx.Ack("q", w.out[:1]); return err })
		w.out, w.keys = w.out[1:], w.keys[1:]
		done++
		w.put(1, func(int) *Enqueue {
			req := w.like[key]
			return &req
		})
	}
	return total / time.Duration(n)
}

// A key that comes from other throttles in the middle of its turn goes on with it, before the
// key that is next and in a place of its own: a key that joins then finds a place between them,
// and each of the others has at most one turn before its first.
func TestAKeyThatChangesItsThrottlesTakesNoOtherKeysPlace(t *testing.T) {
	const turn = 10
	w := newWorld(t, func(c *Config) { c.Quantum = turn })
	w.queue("q", QueueOptions{NoDLQ: true})
	w.throttle("t", ThrottleOptions{Concurrency: new(uint64(100))})
	put := func(n int, key string, throttles ...string) {
		for range n {
			req := &Enqueue{Queue: "q", Key: key, Payload: []byte(key), Meta: Meta{Throttles: throttles}}
			if err := w.Prepare(req); err != nil {
				t.Fatal(err)
			}
			w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
		}
	}
	put(1, "moves", "t")
	put(9*turn, "moves")
	put(9*turn, "stays")
	order := func(n int) (keys string) {
		for _, d := range w.lease("q", n) {
			keys += d.Key[:1]
		}
		return keys
	}
	if got, want := order(3*turn+1), strings.Repeat("m", turn)+strings.Repeat("s", turn)+strings.Repeat("m", turn)+"s"; got != want {
		t.Fatalf("keys were served as %s, want %s", got, want)
	}
	put(1, "late")
	got := order(4 * turn)
	if first := strings.Index(got, "l"); first < 0 || strings.Count(got[:first], "s") > turn || strings.Count(got[:first], "m") > turn {
		t.Errorf("after a key has joined, keys were served as %s; each of the others has one turn of %d before it at most", got, turn)
	}
}
