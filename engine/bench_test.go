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

// What scheduling costs. Absolute times are the machine's; the promises are
// ratios, so each benchmark here runs both sides in one process, in turns, and
// reports the ratio of their medians: make bench-scheduler.

// noStore takes everything and keeps nothing: what is left is the engine.
type noStore struct{ *storage.Memory }

func (noStore) Commit(*storage.Batch, bool) error { return nil }

// workload is an engine at work: messages come in, are leased and are acked, and as
// many stay behind as there were.
type workload struct {
	*Stepper
	b         testing.TB
	names     []string
	throttles []string
	at        int           // key of the next message
	pick      func() string // the key of the next message; nil: they take turns
	costs     func() uint32 // of the next message; nil: all cost the same

	requests []*Enqueue
	tasks    []*Task
	leases   []*leaseTask
	spent    cost
}

// cost is the time of the engine for a message.
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

// A turn of 64 tasks, and leases of 16 messages, are what a busy broker makes.
const (
	turnTasks = 64
	batchSize = 16
)

// newLoad starts an engine with keys of so many messages each.
func newLoad(b testing.TB, keys, backlog int, throttles ...string) *workload {
	b.Helper()
	return newLoadOf(b, keys, backlog, nil, throttles...)
}

// newLoadOf is newLoad with messages of the costs that a function returns.
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
	l.at = keys / 2 // far from the key whose turn it is: nothing is warm
	l.spent = cost{}
	return l
}

func (l *workload) set(key string, o ThrottleOptions) {
	l.Do(&Task{Call: callFunc(func(tx *Tx) error { return tx.SetThrottle(key, o) })})
}

// prepare makes what connections make: it is not the loop's time.
func (l *workload) prepare() {
	l.requests, l.tasks, l.leases = l.requests[:0], nil, nil
	payload := make([]byte, 100)
	for range turnTasks {
		req := &Enqueue{Queue: "q", Throttles: slices.Clone(l.throttles), Payload: payload}
		if l.pick != nil {
			req.Key = l.pick()
		} else {
			req.Key = l.names[l.at%len(l.names)]
			l.at++
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

// cycle enqueues, leases and acks the messages of a turn.
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

// cpuTime is the time that this thread has been running: what else runs on the
// machine does not count, except for what it does to the caches.
func cpuTime() time.Duration {
	var ts linux.Timespec
	if err := linux.ClockGettime(linux.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// run makes cycles and returns what a message has cost, in nanoseconds.
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

// compare lets both work in turns, so that what else the machine does hits both.
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
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

// BenchmarkFairnessAgainstFIFO is a hundred keys against one, which is plain FIFO,
// with the same backlog.
func BenchmarkFairnessAgainstFIFO(b *testing.B) {
	compare(b, newLoad(b, 1, 192), newLoad(b, 96, 2))
}

// BenchmarkMillionKeysAgainstTen has ten keys against very many.
func BenchmarkMillionKeysAgainstTen(b *testing.B) {
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) { compare(b, newLoad(b, 10, 20), newLoad(b, keys, 2)) })
	}
}

// BenchmarkRandomCostsAgainstEqual has messages of any cost up to the greatest, against
// such that cost the same. A lease is to take at most three times as long.
func BenchmarkRandomCostsAgainstEqual(b *testing.B) {
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
			random := newLoadOf(b, keys, 2, func() uint32 { return 1 + rng.Uint32N(DefaultConfig().Limits.Cost) })
			compare(b, newLoad(b, keys, 2), random)
		})
	}
}

// BenchmarkTwoThrottlesAgainstNone puts two throttles on each message, by rate and
// by concurrency, neither of which ever holds anything back.
func BenchmarkTwoThrottlesAgainstNone(b *testing.B) {
	throttled := newLoad(b, 96, 2, "provider:x", "tenant:y")
	rate, many := 1e9, uint64(1_000_000)
	throttled.set("provider:x", ThrottleOptions{Rate: &rate})
	throttled.set("tenant:y", ThrottleOptions{Rate: &rate, Concurrency: &many})
	compare(b, newLoad(b, 96, 2), throttled)
}

// BenchmarkTokenBucket is one check of one throttle, and a token taken, among a
// thousand throttles.
func BenchmarkTokenBucket(b *testing.B) {
	l := newLoad(b, 96, 2)
	rate := 1e9
	messages := make([]*message, 1000)
	for i := range messages {
		name := fmt.Sprint("throttle-", i)
		l.set(name, ThrottleOptions{Rate: &rate})
		messages[i] = &message{throttles: newThrottleSet([]string{name}), key: &fairKey{}}
	}
	c := l.core
	i := 0
	for b.Loop() {
		c.now++
		m := messages[i%len(messages)]
		i++
		if len(c.blockers(m)) > 0 {
			b.Fatal("it is full")
		}
		c.consume(m)
	}
}
