//go:build cgo

package broker

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// Operations on very many messages, seen from the loop: the duration of its turns. Each
// benchmark is a single run: -benchtime 1x.

var lifecycleN = flag.Int("lifecycle", 1_000_000, "messages of BenchmarkLifecycle") //nolint:gochecknoglobals // a flag

// lifecycle is an engine over RocksDB whose turns are measured.
type lifecycle struct {
	b      *testing.B
	engine *loop.Engine

	mu      sync.Mutex
	turns   []time.Duration
	own     []time.Duration // of the turns, the time on a processor
	commits []commit
	on      bool
	loop    loopThread
}

// commit is the size and the duration of a commit.
type commit struct {
	records, bytes int
	took           time.Duration
}

// meteredStore measures the commits of a store.
type meteredStore struct {
	*rocks.Store
	l *lifecycle
}

func (s meteredStore) Commit(b *storage.Batch, sync bool) error {
	began := time.Now()
	err := s.Store.Commit(b, sync)
	s.l.mu.Lock()
	if s.l.on {
		s.l.commits = append(s.l.commits, commit{records: b.Len(), bytes: b.Size(), took: time.Since(began)})
	}
	s.l.mu.Unlock()
	return err
}

// loopThread is the thread of the loop, locked to it from its first turn on. So its CPU
// time is the cost of turns, independent of other load.
type loopThread struct {
	locked bool
	used   time.Duration
}

// turn returns the CPU time of the loop since the turn before. It is called on the loop.
func (t *loopThread) turn(b *testing.B) time.Duration {
	b.Helper()
	if !t.locked {
		runtime.LockOSThread()
		t.locked = true
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Error(err)
	}
	before := t.used
	t.used = time.Duration(ts.Nano())
	return t.used - before
}

func newLifecycle(b *testing.B) *lifecycle {
	b.Helper()
	store, err := rocks.Open(rocks.Options{Path: b.TempDir(), Mode: "balanced", BlockCacheBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	l := &lifecycle{b: b}
	cfg := engine.DefaultConfig()
	cfg.Observe = func(what engine.Activity, took time.Duration) {
		if what == engine.ActivityTurn {
			own := l.loop.turn(b)
			l.mu.Lock()
			if l.on {
				l.turns, l.own = append(l.turns, took), append(l.own, own)
			}
			l.mu.Unlock()
		}
	}
	if l.engine, err = loop.New(cfg, meteredStore{store, l}); err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.engine.Run(b.Context()) }()
	<-l.engine.Ready()
	b.Cleanup(func() {
		l.engine.Stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	l.do(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
	return l
}

type lifecycleCall func(tx *engine.Tx) error

func (f lifecycleCall) Apply(tx *engine.Tx) error { return f(tx) }

// do runs calls and waits for all of them.
func (l *lifecycle) do(calls ...func(tx *engine.Tx) error) {
	l.b.Helper()
	woken := make(chan struct{}, 1)
	client := engine.NewClient(1, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	tasks := make([]*engine.Task, len(calls))
	for i, call := range calls {
		tasks[i] = &engine.Task{Call: lifecycleCall(call), Client: client}
	}
	l.engine.Submit(slices.Clone(tasks))
	for _, t := range tasks {
		for !t.Done() {
			<-woken
		}
		if t.Err() != nil {
			l.b.Fatal(t.Err())
		}
	}
}

// fill enqueues n messages of 256 bytes with the given number of keys.
func (l *lifecycle) fill(n, keys int, at int64) {
	l.b.Helper()
	l.fillWith(n, func(i int) *engine.Enqueue { return &engine.Enqueue{Key: fmt.Sprintf("k%d", i%keys), At: at} })
}

// fillWith enqueues n messages of 256 bytes.
func (l *lifecycle) fillWith(n int, request func(i int) *engine.Enqueue) {
	l.b.Helper()
	const portion = 2000
	payload := make([]byte, 256)
	for from := 0; from < n; from += portion {
		calls := make([]func(tx *engine.Tx) error, 0, portion)
		for i := from; i < min(n, from+portion); i++ {
			req := request(i)
			req.Queue, req.Payload = "q", payload
			if err := l.engine.Prepare(req); err != nil {
				l.b.Fatal(err)
			}
			calls = append(calls, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
		l.do(calls...)
	}
}

// measure runs an operation and reports the turns during it.
func (l *lifecycle) measure(run func()) {
	l.b.Helper()
	l.mu.Lock()
	l.on = true
	l.mu.Unlock()
	l.b.ResetTimer()
	run()
	l.b.StopTimer()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
	slices.Sort(l.turns)
	n := len(l.turns)
	ms := func(i int) float64 { return float64(l.turns[i]) / 1e6 }
	l.b.ReportMetric(ms(n*99/100), "p99-turn-ms")
	l.b.ReportMetric(ms(n-1), "longest-turn-ms")
	l.b.ReportMetric(float64(n), "turns")
}

// drain leases and acks until n messages have come.
func (l *lifecycle) drain(n int) {
	for got := 0; got < n; {
		var ds []*engine.Delivery
		l.do(func(tx *engine.Tx) (err error) {
			ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 500, Block: time.Second})
			return err
		})
		receipts := make([]engine.Receipt, len(ds))
		for i, d := range ds {
			receipts[i] = d.Receipt
		}
		l.do(func(tx *engine.Tx) error {
			acked, err := tx.Ack("q", receipts)
			got += acked
			return err
		})
	}
}

func (l *lifecycle) purge(key string) {
	n := 0
	req := &engine.Purge{Queue: "q", Key: key}
	l.do(func(tx *engine.Tx) (err error) { n, err = tx.Purge(req); return err })
	if n != *lifecycleN {
		l.b.Errorf("%d purged", n)
	}
}

func BenchmarkLifecycle(b *testing.B) {
	n := *lifecycleN
	b.Run("due in the same second", func(b *testing.B) {
		l := newLifecycle(b)
		due := time.Now().Add(time.Minute).Truncate(time.Second) // the load takes less
		l.fill(n, 1000, due.UnixNano())
		if late := time.Since(due); late > 0 {
			b.Fatalf("the load took %v too long", late)
		}
		<-time.After(time.Until(due))
		l.measure(func() { l.drain(n) })
	})
	b.Run("outlived in the same second", func(b *testing.B) {
		l := newLifecycle(b)
		end := time.Now().Add(time.Minute) // the load takes less
		l.fillWith(n, func(i int) *engine.Enqueue {
			return &engine.Enqueue{Key: fmt.Sprintf("k%d", i%1000), TTL: time.Until(end).Truncate(time.Second)}
		})
		if late := time.Since(end); late > 0 {
			b.Fatalf("the load took %v too long", late)
		}
		<-time.After(time.Until(end) - time.Second)
		l.measure(func() {
			for dead := int64(0); dead < int64(n); <-time.After(10 * time.Millisecond) {
				l.do(func(tx *engine.Tx) error {
					counts, err := tx.QueueStats("q.dlq")
					dead = counts.Dead
					return err
				})
			}
		})
	})
	b.Run("deduplication ids", func(b *testing.B) {
		l := newLifecycle(b)
		l.fillWith(1000, func(i int) *engine.Enqueue { return &engine.Enqueue{Dedup: fmt.Sprintf("before-%d", i)} })
		l.drain(1000)
		before := heap()
		l.measure(func() {
			l.fillWith(n, func(i int) *engine.Enqueue { return &engine.Enqueue{Dedup: fmt.Sprintf("an id of some length %d", i)} })
		})
		l.drain(n)
		<-time.After(2 * time.Second) // the ids of the last moments are in memory
		l.fillWith(1, func(int) *engine.Enqueue { return &engine.Enqueue{Dedup: "last"} })
		b.ReportMetric(max(float64(heap())-float64(before), 0)/float64(n), "heap-bytes/id")
		l.fillWith(1000, func(i int) *engine.Enqueue {
			return &engine.Enqueue{Dedup: fmt.Sprintf("an id of some length %d", i*(n/1000))}
		})
		l.do(func(tx *engine.Tx) error {
			counts, err := tx.QueueStats("q")
			if counts.Deduplicated != 1000 {
				b.Errorf("%d of 1000 known ids were found", counts.Deduplicated)
			}
			return err
		})
	})
	b.Run("browse", func(b *testing.B) {
		l := newLifecycle(b)
		l.fill(n, 1000, 0)
		l.measure(func() {
			for seen, cursor := 0, ""; seen == 0 || cursor != ""; {
				req := &engine.Browse{Queue: "q", Cursor: cursor, Count: 1000}
				l.do(func(tx *engine.Tx) error {
					next, list, err := tx.Browse(req)
					if err == nil {
						seen += len(list)
						cursor = next
					}
					return err
				})
				if cursor == "" && seen != n {
					b.Fatalf("%d seen", seen)
				}
			}
		})
	})
	for _, keys := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("purge a queue of %d keys", keys), func(b *testing.B) {
			l := newLifecycle(b)
			l.fill(n, keys, 0)
			l.measure(func() {
				l.purge("")
				b.StopTimer()
				<-time.After(2 * time.Second) // what it leaves is given back in the turns that follow
			})
		})
	}
	b.Run("purge a key", func(b *testing.B) {
		l := newLifecycle(b)
		l.fill(n, 1, 0)
		l.measure(func() { l.purge("k0") })
	})
}

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
