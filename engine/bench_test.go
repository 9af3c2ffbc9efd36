package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	linux "golang.org/x/sys/unix"

	"github.com/faisca/fila/storage"
)

// The cost of scheduling. Times depend on the machine; the promises are ratios. So each
// benchmark runs both sides in one process, in turns, and reports the ratio of their
// medians: make bench-scheduler.

// noStore discards all writes, which leaves the cost of the engine.
type noStore struct{ *storage.Memory }

func (noStore) Commit(*storage.Batch, bool) error { return nil }

// workload is an engine under a steady load: messages are enqueued, leased and acked, and
// the backlog stays constant.
type workload struct {
	*Stepper
	b         testing.TB
	names     []string
	throttles []string
	at        int           // index of the next message's key
	pick      func() string // key of the next message; nil: all keys in turn
	costs     func() uint32 // cost of the next message; nil: the same for all

	requests []*Enqueue
	tasks    []*Task
	leases   []*leaseTask
	spent    cost
	delay    time.Duration // of the next messages
	own      bool          // each message names a throttle that its key alone has
}

// cost is the engine's time for one message.
type cost struct{ enqueue, lease, ack time.Duration }

type leaseTask struct {
	req LeaseRequest
	ds  []*Delivery
}

func (l *leaseTask) Apply(tx *Tx) (err error) {
	l.ds, err = tx.Lease(&l.req)
	return err
}

type ackTask struct{ receipts []Receipt }

func (a *ackTask) Apply(tx *Tx) error {
	_, err := tx.Ack("q", a.receipts)
	return err
}

type enqueueTask struct{ req *Enqueue }

func (e *enqueueTask) Apply(tx *Tx) error {
	_, err := tx.Enqueue(e.req)
	return err
}

func (e *enqueueTask) Announce() *Enqueue { return e.req }

// Sizes of turns and leases of a busy broker.
const (
	turnTasks = 64
	batchSize = 16
)

// newLoad starts an engine with a number of keys and messages for each of them.
func newLoad(b testing.TB, keys, backlog int, throttles ...string) *workload {
	b.Helper()
	return newLoadOf(b, keys, backlog, nil, throttles...)
}

// newLoadOf is newLoad with a function that returns the costs of messages.
func newLoadOf(b testing.TB, keys, backlog int, costs func() uint32, throttles ...string) *workload {
	b.Helper()
	cfg := DefaultConfig()
	cfg.WindowTotal = 4 * keys * backlog
	cfg.WindowTotal = max(cfg.WindowTotal, DefaultConfig().WindowTotal)
	cfg.BodyBytes = 1 << 40
	s, err := NewStepper(cfg, noStore{storage.NewMemory()}, time.Unix(1_700_000_000, 0))
	if err != nil {
		b.Fatal(err)
	}
	l := &workload{Stepper: s, b: b, costs: costs, throttles: throttles}
	l.Do(&Task{Call: callFunc(func(tx *Tx) error { return tx.CreateQueue("q", QueueOptions{}) })})
	for i := range keys {
		l.names = append(l.names, fmt.Sprintf("tenant-%07d", i))
	}
	for range backlog * keys / turnTasks {
		l.prepare()
		l.enqueue()
	}
	l.at = keys / 2 // far from the key whose turn it is, so that caches are cold
	l.spent = cost{}
	return l
}

// newRandomLoad is newLoad with two messages of each key, of random costs up to the maximum.
func newRandomLoad(b *testing.B, keys int) *workload {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	return newLoadOf(b, keys, 2, func() uint32 { return 1 + rng.Uint32N(DefaultConfig().Limits.Cost) })
}

// newShuffledLoad is newLoad with two messages of each key, where keys do not lie in memory in the order in which they
// deliver, as those of a broker that has run for a while: each has had a delayed message before.
func newShuffledLoad(b *testing.B, keys int) *workload {
	b.Helper()
	l := newLoad(b, keys, 0)
	order := rand.New(rand.NewPCG(3, 4)).Perm(keys) //nolint:gosec // reproducible on purpose
	l.delay = time.Hour
	for range keys / turnTasks {
		l.prepare()
		l.enqueue()
	}
	l.delay, l.at = 0, 0
	l.pick = func() string {
		l.at++
		return l.names[order[l.at%keys]]
	}
	for range 2 * keys / turnTasks {
		l.prepare()
		l.enqueue()
	}
	l.pick, l.at, l.spent = nil, keys/2, cost{}
	return l
}

func (l *workload) set(key string, o ThrottleOptions) {
	l.Do(&Task{Call: callFunc(func(tx *Tx) error { return tx.SetThrottle(key, o) })})
}

// prepare does the work of connections, which is not the loop's time.
func (l *workload) prepare() {
	l.requests, l.tasks, l.leases = l.requests[:0], nil, nil
	payload := make([]byte, 100)
	for range turnTasks {
		req := &Enqueue{Queue: "q", Meta: Meta{Throttles: slices.Clone(l.throttles)}, Payload: payload, Delay: l.delay}
		if l.pick != nil {
			req.Key = l.pick()
		} else {
			req.Key = l.names[l.at%len(l.names)]
			l.at++
		}
		if l.own {
			req.Throttles = []string{"own:" + req.Key}
		}
		if l.costs != nil {
			req.Cost = l.costs()
		}
		if err := l.Prepare(req); err != nil {
			l.b.Fatal(err)
		}
		l.tasks = append(l.tasks, &Task{Call: &enqueueTask{req}})
	}
	for range turnTasks / batchSize {
		l.leases = append(l.leases, &leaseTask{req: LeaseRequest{Queues: []string{"q"}, Count: batchSize, Block: -1}})
	}
}

func (l *workload) enqueue() {
	start := cpuTime()
	l.Do(l.tasks...)
	l.spent.enqueue += cpuTime() - start
}

// cycle enqueues, leases and acks the messages of one turn.
func (l *workload) cycle() {
	l.now = l.now.Add(50 * time.Microsecond)
	l.prepare()
	l.enqueue()
	tasks := make([]*Task, 0, len(l.leases))
	for _, c := range l.leases {
		tasks = append(tasks, &Task{Call: c})
	}
	start := cpuTime()
	l.Do(tasks...)
	l.spent.lease += cpuTime() - start
	tasks = tasks[:0]
	for _, c := range l.leases {
		a := &ackTask{}
		for _, d := range c.ds {
			a.receipts = append(a.receipts, d.Receipt)
		}
		if len(a.receipts) != batchSize {
			l.b.Fatalf("a lease of %d found %d messages", batchSize, len(a.receipts))
		}
		tasks = append(tasks, &Task{Call: a})
	}
	start = cpuTime()
	l.Do(tasks...)
	l.spent.ack += cpuTime() - start
}

// cpuTime is the CPU time of this thread: other processes affect it only through the
// caches.
func cpuTime() time.Duration {
	var ts linux.Timespec
	if err := linux.ClockGettime(linux.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// run runs cycles and returns the cost of a message in nanoseconds.
func (l *workload) run(cycles int) (enqueue, lease, all float64) {
	l.spent = cost{}
	for range cycles {
		l.cycle()
	}
	n := float64(cycles * turnTasks)
	enqueue, lease = float64(l.spent.enqueue.Nanoseconds())/n, float64(l.spent.lease.Nanoseconds())/n
	return enqueue, lease, enqueue + lease + float64(l.spent.ack.Nanoseconds())/n
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// compare runs both workloads in turns, so that other load of the machine affects both.
func compare(b *testing.B, base, other *workload) {
	b.Helper()
	const cycles = 100
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	base.run(cycles)
	other.run(cycles)
	var figures [6][]float64 // enqueue, lease, all of base, then of the other
	for b.Loop() {
		for i, l := range []*workload{base, other} {
			enqueue, lease, all := l.run(cycles)
			for j, x := range []float64{enqueue, lease, all} {
				figures[3*i+j] = append(figures[3*i+j], x)
			}
		}
	}
	for i, name := range []string{"enqueue", "lease", "all"} {
		was, is := median(figures[i]), median(figures[3+i])
		b.ReportMetric(was, name+"-base-ns")
		b.ReportMetric(is, name+"-ns")
		b.ReportMetric(100*(is/was-1), name+"-more-%")
	}
	b.ReportMetric(0, "ns/op") // the sum of both is meaningless
}

// BenchmarkFairnessAgainstFIFO compares a hundred keys with one, which is plain FIFO, with
// the same backlog.
func BenchmarkFairnessAgainstFIFO(b *testing.B) {
	compare(b, newLoad(b, 1, 192), newLoad(b, 96, 2))
}

// BenchmarkMillionKeysAgainstTen compares a million keys with ten.
func BenchmarkMillionKeysAgainstTen(b *testing.B) {
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) { compare(b, newLoad(b, 10, 20), newLoad(b, keys, 2)) })
	}
}

// BenchmarkRandomCostsAgainstEqual compares messages of random cost, up to the maximum,
// with messages of equal cost, whose keys lie in memory in the order in which they deliver, or do not ("shuffled").
func BenchmarkRandomCostsAgainstEqual(b *testing.B) {
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			compare(b, newLoad(b, keys, 2), newRandomLoad(b, keys))
		})
		b.Run(fmt.Sprint("shuffled/", keys), func(b *testing.B) { compare(b, newShuffledLoad(b, keys), newRandomLoad(b, keys)) })
	}
}

// BenchmarkTwoThrottlesAgainstNone compares messages with two throttles, of rate and
// concurrency, that admit everything, with messages without throttles.
func BenchmarkTwoThrottlesAgainstNone(b *testing.B) {
	throttled := newLoad(b, 96, 2, "provider:x", "tenant:y")
	rate, many := 1e9, uint64(1_000_000)
	throttled.set("provider:x", ThrottleOptions{Rate: &rate})
	throttled.set("tenant:y", ThrottleOptions{Rate: &rate, Concurrency: &many})
	compare(b, newLoad(b, 96, 2), throttled)
}

// BenchmarkAThrottleForEachTenantAgainstOne compares messages of which each names the throttle of its key, all of one
// pattern, with messages that name one throttle; all throttles admit everything. The messages of the one may take 5 %
// longer than those of the other.
func BenchmarkAThrottleForEachTenantAgainstOne(b *testing.B) {
	rate, many := 1e9, uint64(1_000_000)
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			one := newLoad(b, keys, 0, "own:shared-throttle")
			each := newLoad(b, keys, 0)
			each.own = true
			for _, l := range []*workload{one, each} {
				l.set("own:*", ThrottleOptions{Rate: &rate, Concurrency: &many})
				for range 2 * keys / turnTasks {
					l.prepare()
					l.enqueue()
				}
				l.at, l.spent = keys/2, cost{}
			}
			compare(b, one, each)
		})
	}
}

// BenchmarkTheFirstMessageOfEachTenant measures what a tenant with a message takes: with one throttle for all, with a throttle
// key of its own that nothing limits, and with one that a pattern covers, which has an instance; and what is left of all
// when the messages are acked.
func BenchmarkTheFirstMessageOfEachTenant(b *testing.B) {
	const keys = 1 << 20
	rate, many := 1e9, uint64(1_000_000)
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // what finalizers have held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for name, own := range map[string]bool{"one": false, "unlimited": true, "pattern": true} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range b.N {
				l := newLoad(b, keys, 0)
				if l.own = own; !own {
					l.throttles = []string{"own:shared-throttle"}
				}
				if name != "unlimited" {
					l.set("own:*", ThrottleOptions{Rate: &rate, Concurrency: &many})
				}
				empty := heap()
				for range keys / turnTasks {
					l.prepare()
					l.enqueue()
				}
				b.ReportMetric(float64(l.spent.enqueue.Nanoseconds())/keys, "enqueue-ns")
				b.ReportMetric((heap()-empty)/keys, "bytes/key")
				b.ReportMetric(float64(l.core.order.Instances().Live), "instances")
				l.requests, l.tasks = nil, nil
				for left := keys; left > 0; left -= batchSize {
					t := &leaseTask{req: LeaseRequest{Queues: []string{"q"}, Count: batchSize, Block: -1}}
					l.Do(&Task{Call: t})
					a := &ackTask{}
					for _, d := range t.ds {
						a.receipts = append(a.receipts, d.Receipt)
					}
					l.Do(&Task{Call: a})
				}
				for l.core.order.Instances().Live > 0 && l.Now().Before(time.Unix(1_700_001_000, 0)) {
					l.now = l.now.Add(100 * time.Millisecond)
					l.Do()
				}
				b.ReportMetric((heap()-empty)/keys, "bytes-left/key")
				runtime.KeepAlive(l)
			}
		})
	}
}
