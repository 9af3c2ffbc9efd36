//go:build cgo

package broker

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

// The delay of other clients while the loop processes one large command, or many timers
// that fire together: the longest turn, and the longest wait of a client that only needs a
// reply. It is a single run: -benchtime 1x.

var (
	stallKeys   = flag.Int("stall-keys", 1_000_000, "fairness keys of BenchmarkStalls") //nolint:gochecknoglobals // a flag
	stallLeases = flag.Int("stall-leases", 100_000, "leases of BenchmarkStalls")        //nolint:gochecknoglobals // a flag
	stallValues = flag.Int("stall-values", 99_000, "values of BenchmarkStalls")         //nolint:gochecknoglobals // a flag
)

// stalls is an engine with very many keys, leases and values.
type stalls struct {
	*lifecycle
	rows []stallRow
}

type stallRow struct {
	act           string
	took, waiting time.Duration
	turn, own     time.Duration // the longest turn, and the one that used most of a processor
	turns         int
	usual, commit time.Duration // of commits, the median and the longest
	records       int           // of the largest batch
	bytes         int
}

// enqueueMany enqueues n messages into a queue, as request returns them.
func (s *stalls) enqueueMany(queue string, n int, request func(i int, req *engine.Enqueue)) {
	s.b.Helper()
	const portion = 2000
	for from := 0; from < n; from += portion {
		calls := make([]func(tx *engine.Tx) error, 0, portion)
		for i := from; i < min(n, from+portion); i++ {
			req := &engine.Enqueue{Queue: queue, Payload: []byte("a message")}
			request(i, req)
			if err := s.engine.Prepare(req); err != nil {
				s.b.Fatal(err)
			}
			calls = append(calls, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
		s.do(calls...)
	}
}

// keyed fills a new queue with a message for each of n keys.
func (s *stalls) keyed(queue string, n int) {
	s.b.Helper()
	s.do(func(tx *engine.Tx) error { return tx.CreateQueue(queue, engine.QueueOptions{NoDLQ: true}) })
	s.enqueueMany(queue, n, func(i int, req *engine.Enqueue) { req.Key = fmt.Sprintf("k%d", i) })
}

// hold leases n messages of a queue and returns their receipts.
func (s *stalls) hold(queue string, n int, visibility time.Duration) (receipts []engine.Receipt) {
	s.b.Helper()
	for len(receipts) < n {
		var ds []*engine.Delivery
		req := &engine.LeaseRequest{Queues: []string{queue}, Count: min(1000, n-len(receipts)), Block: -1, Visibility: visibility}
		s.do(func(tx *engine.Tx) (err error) { ds, err = tx.Lease(req); return err })
		for _, d := range ds {
			receipts = append(receipts, d.Receipt)
		}
	}
	return receipts
}

// measureAct runs act while a client sends requests, and until settle has passed.
func (s *stalls) measureAct(name string, settle time.Duration, act func()) {
	s.b.Helper()
	<-time.After(300 * time.Millisecond) // what came before is done with
	woken := make(chan struct{}, 1)
	client := engine.NewClient(2, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	var worst time.Duration
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !stop.Load() {
			began := time.Now()
			task := &engine.Task{Client: client, Call: lifecycleCall(func(*engine.Tx) error { return nil })}
			s.engine.Submit([]*engine.Task{task})
			for !task.Done() {
				<-woken
			}
			worst = max(worst, time.Since(began))
			<-time.After(200 * time.Microsecond)
		}
	}()
	s.mu.Lock()
	s.turns, s.own, s.commits, s.on = s.turns[:0], s.own[:0], s.commits[:0], true
	s.mu.Unlock()
	began := time.Now()
	act()
	took := time.Since(began)
	<-time.After(settle)
	stop.Store(true)
	<-ended
	s.mu.Lock()
	s.on = false
	row := stallRow{act: name, took: took, waiting: worst, turns: len(s.turns)}
	if len(s.turns) > 0 {
		row.turn, row.own = slices.Max(s.turns), slices.Max(s.own)
	}
	slices.SortFunc(s.commits, func(a, b commit) int { return cmp.Compare(a.took, b.took) })
	if n := len(s.commits); n > 0 {
		row.usual = s.commits[n/2].took
	}
	for _, c := range s.commits {
		row.commit, row.records, row.bytes = max(row.commit, c.took), max(row.records, c.records), max(row.bytes, c.bytes)
	}
	s.mu.Unlock()
	s.rows = append(s.rows, row)
}

func (s *stalls) once(name string, call func(tx *engine.Tx) error) {
	s.b.Helper()
	s.measureAct(name, 0, func() { s.do(call) })
}

func BenchmarkStalls(b *testing.B) {
	s := &stalls{lifecycle: newLifecycle(b)}
	s.keyed("big", *stallKeys)
	for from := 0; from < *stallValues; from += 1000 {
		values := map[string]string{}
		for i := from; i < min(from+1000, *stallValues); i++ {
			values[fmt.Sprintf("value:%07d", i)] = "1"
		}
		s.do(func(tx *engine.Tx) error { return tx.SetConfig(values) })
	}
	b.ResetTimer()
	s.measureAct("nothing", 2*time.Second, func() {}) // what the machine does beside
	s.enqueuing()
	s.looking()
	s.receipts()
	s.throttles()
	s.settings()
	s.timers()
	s.emptying()
	b.StopTimer()
	s.report()
}

// enqueuing measures a commit of one message on this disk.
func (s *stalls) enqueuing() {
	s.keyed("one", 1)
	s.measureAct("one ENQUEUE after the other", 0, func() {
		for began := time.Now(); time.Since(began) < 2*time.Second; {
			s.enqueueMany("one", 1, func(int, *engine.Enqueue) {})
		}
	})
}

// looking measures commands that show something, and settings.
func (s *stalls) looking() {
	s.measureAct("1,000 x CONFIG SET", 0, func() {
		calls := make([]func(tx *engine.Tx) error, 1000)
		for i := range calls {
			values := map[string]string{fmt.Sprintf("value:%07d", i*7): "2"}
			calls[i] = func(tx *engine.Tx) error { return tx.SetConfig(values) }
		}
		s.do(calls...)
	})
	s.once("CONFIG LIST COUNT 10000", func(tx *engine.Tx) error { tx.ConfigKeys("", "", 10_000); return nil })
	keys := func() func(tx *engine.Tx) error {
		req := &engine.Keys{Queue: "big", Count: 10_000, Match: func(string) bool { return true }}
		return func(tx *engine.Tx) error { _, _, err := tx.Keys(req); return err }
	}
	s.once("KEYS COUNT 10000", keys())
	s.measureAct("100 x KEYS COUNT 10000", 0, func() {
		calls := make([]func(tx *engine.Tx) error, 100)
		for i := range calls {
			calls[i] = keys()
		}
		s.do(calls...)
	})
	survey, known := &engine.Survey{Queue: "big"}, false
	s.once("STATS queue", func(tx *engine.Tx) error {
		if !known {
			if _, _, err := tx.Survey(survey); err != nil {
				return err
			}
			known = true
		}
		_, _, err := tx.BusiestKeys("big")
		return err
	})
	s.once("STATS", func(tx *engine.Tx) error { tx.Stats(); return nil })
	usage := &engine.QueueMemory{Queue: "big"}
	s.once("MEMORY USAGE SAMPLES 0", func(tx *engine.Tx) error { _, err := tx.QueueMemory(usage); return err })
	page := &engine.Browse{Queue: "big", Count: 10_000}
	s.once("BROWSE COUNT 10000", func(tx *engine.Tx) error { _, _, err := tx.Browse(page); return err })
	why := &engine.ExplainKey{Queue: "big", Key: "k77"}
	s.once("EXPLAIN KEY", func(tx *engine.Tx) error { _, err := tx.ExplainKey(why); return err })
}

// receipts measures commands with many receipts or ids.
func (s *stalls) receipts() {
	s.keyed("held", *stallLeases)
	all := s.hold("held", *stallLeases-20_000, time.Hour)
	req := &engine.LeaseRequest{Queues: []string{"held"}, Count: 10_000, Block: -1, Visibility: time.Hour}
	s.once("LEASE COUNT 10000", func(tx *engine.Tx) error { _, err := tx.Lease(req); return err })
	s.once("RELEASE of 20,000", func(tx *engine.Tx) error { _, err := tx.Release("held", all[:20_000]); return err })
	s.once("ACK of 20,000", func(tx *engine.Tx) error { _, err := tx.Ack("held", all[20_000:40_000]); return err })
	s.keyed("gone", 1)
	ids := make([]engine.ID, 0, 100_000)
	s.enqueueMany("gone", cap(ids), func(i int, req *engine.Enqueue) { req.Key = fmt.Sprintf("k%d", i%100) })
	for cursor := ""; ; {
		page := &engine.Browse{Queue: "gone", Cursor: cursor, Count: 10_000}
		s.do(func(tx *engine.Tx) error {
			next, list, err := tx.Browse(page)
			if err == nil {
				for _, v := range list {
					ids = append(ids, v.ID)
				}
				cursor = next
			}
			return err
		})
		if cursor == "" {
			break
		}
	}
	cancel := &engine.Cancel{Queue: "gone", IDs: ids}
	s.once(fmt.Sprintf("CANCEL of %d", len(ids)), func(tx *engine.Tx) error { _, err := tx.Cancel(cancel); return err })
	s.measureAct("10,000 x ENQUEUE in EXEC (one write)", 0, func() {
		calls, errs := make([]engine.Call, 10_000), make([]error, 10_000)
		for i := range calls {
			req := &engine.Enqueue{Queue: "gone", Payload: []byte("m")}
			if err := s.engine.Prepare(req); err != nil {
				s.b.Fatal(err)
			}
			calls[i] = lifecycleCall(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
		s.do(func(tx *engine.Tx) error { return tx.Exec(calls, errs) })
	})
}

// throttles measures a throttle with very many keys and leases.
func (s *stalls) throttles() {
	const name = "full"
	s.do(func(tx *engine.Tx) error { return tx.CreateQueue("shared", engine.QueueOptions{NoDLQ: true}) })
	s.enqueueMany("shared", *stallLeases, func(i int, req *engine.Enqueue) {
		req.Key, req.Throttles = fmt.Sprintf("k%d", i), []string{name}
	})
	full := uint64(*stallLeases / 2)
	s.hold("shared", int(full), time.Hour)
	set := func() {
		s.do(func(tx *engine.Tx) error { return tx.SetThrottle(name, engine.ThrottleOptions{Concurrency: &full}) })
	}
	s.measureAct("THROTTLE SET, a new one", 500*time.Millisecond, set)
	why := &engine.ExplainKey{Queue: "shared", Key: fmt.Sprintf("k%d", *stallLeases-1)}
	s.once("EXPLAIN KEY, a full throttle", func(tx *engine.Tx) error { _, err := tx.ExplainKey(why); return err })
	s.measureAct("THROTTLE DEL", 500*time.Millisecond, func() {
		s.do(func(tx *engine.Tx) error { _, err := tx.DeleteThrottle(name); return err })
	})
}

// settings measures the purge of a queue whose keys have settings.
func (s *stalls) settings() {
	s.keyed("pinned", 1)
	for from := 0; from < *stallLeases; from += 1000 {
		var calls []func(tx *engine.Tx) error
		for i := from; i < min(from+1000, *stallLeases); i++ {
			calls = append(calls, func(tx *engine.Tx) error {
				return tx.SetKey("pinned", fmt.Sprintf("k%d", i), engine.KeyOptions{Weight: new(uint32(2))})
			})
		}
		s.do(calls...)
	}
	purge := &engine.Purge{Queue: "pinned"}
	s.once("PURGE with settings of keys", func(tx *engine.Tx) error { _, err := tx.Purge(purge); return err })
}

// timers measures timers that fire together.
func (s *stalls) timers() {
	const n = 80_000
	at := time.Now().Add(10 * time.Second)
	s.keyed("leased", n)
	s.hold("leased", n, time.Until(at))
	s.await(n, "leases end", at, func() engine.Counts { return s.counts("leased") }, func(c engine.Counts) bool { return c.Leased == 0 })
	at = time.Now().Add(10 * time.Second)
	s.keyed("due", 1)
	s.enqueueMany("due", n, func(i int, req *engine.Enqueue) { req.Key, req.At = fmt.Sprintf("k%d", i), at.UnixNano() })
	s.await(n, "messages are due", at, func() engine.Counts { return s.counts("due") }, func(c engine.Counts) bool { return c.Delayed == 0 })
	at = time.Now().Add(10 * time.Second)
	s.keyed("mortal", 1)
	s.enqueueMany("mortal", n, func(i int, req *engine.Enqueue) { req.Key, req.TTL = fmt.Sprintf("k%d", i), time.Until(at) })
	s.await(n, "times to live are over", at, func() engine.Counts { return s.counts("mortal") }, func(c engine.Counts) bool { return c.Ready <= 1 })
	s.measureAct("BLOCK of 10,000 clients ends", 0, func() {
		tasks, left := make([]*engine.Task, 10_000), make(chan struct{}, 10_000)
		for i := range tasks {
			client := engine.NewClient(uint64(i+10), func() { left <- struct{}{} })
			tasks[i] = &engine.Task{Client: client, Call: lifecycleCall(func(tx *engine.Tx) error {
				_, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Second})
				return err
			})}
		}
		s.engine.Submit(tasks)
		for range 10_000 {
			<-left
		}
	})
}

// await measures from just before a time until its effects are complete.
func (s *stalls) await(n int, what string, at time.Time, counts func() engine.Counts, over func(engine.Counts) bool) {
	if time.Until(at) < 500*time.Millisecond {
		s.b.Fatalf("%s: the load took too long", what)
	}
	<-time.After(time.Until(at) - 400*time.Millisecond)
	s.measureAct(fmt.Sprintf("%d %s", n, what), 0, func() {
		for !over(counts()) {
			<-time.After(5 * time.Millisecond)
		}
	})
}

func (s *stalls) counts(queue string) (c engine.Counts) {
	s.do(func(tx *engine.Tx) (err error) { c, err = tx.QueueStats(queue); return err })
	return c
}

// emptying measures commands that remove everything.
func (s *stalls) emptying() {
	s.hold("big", *stallLeases, time.Hour)
	purge := &engine.Purge{Queue: "big"}
	s.measureAct("PURGE with leases", 2*time.Second, func() {
		s.do(func(tx *engine.Tx) error { _, err := tx.Purge(purge); return err })
	})
	s.measureAct("QUEUE DELETE with leases", 2*time.Second, func() {
		s.do(func(tx *engine.Tx) error { return tx.DeleteQueue("held", true) })
	})
}

// report prints the waits of other clients, the longest first.
func (s *stalls) report() {
	slices.SortFunc(s.rows, func(a, b stallRow) int { return cmp.Compare(max(b.turn, b.waiting), max(a.turn, a.waiting)) })
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	var table strings.Builder
	fmt.Fprintf(&table, "%-38s %15s %13s %10s %16s %16s %7s %9s\n", "act", "another waited", "longest turn", "processor", "a commit", "largest batch", "turns", "took")
	for _, r := range s.rows {
		fmt.Fprintf(&table, "%-38s %12.1f ms %10.1f ms %7.1f ms %5.1f %7.1f ms %8d %4d KiB %7d %6.0f ms\n",
			r.act, ms(r.waiting), ms(r.turn), ms(r.own), ms(r.usual), ms(r.commit), r.records, r.bytes>>10, r.turns, ms(r.took))
	}
	fmt.Print("\n" + table.String()) // a log of a benchmark is cut
	s.b.ReportMetric(ms(s.rows[0].turn), "longest-turn-ms")
	s.b.ReportMetric(ms(s.rows[0].waiting), "longest-wait-ms")
}
