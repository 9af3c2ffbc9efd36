package metrics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/storage"
)

// many returns a broker with so many queues and keys; each of the first has messages, and has
// delivered and acked some if it is busy.
func many(t testing.TB, queues, keys int, busy bool) *broker {
	t.Helper()
	s, err := engine.NewStepper(engine.DefaultConfig(), storage.NewMemory(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{Stepper: s, t: t, collector: New(Config{Queues: 1000, Keys: 10, Throttles: 100, Now: s.Now})}
	var tasks []*engine.Task
	flush := func() {
		b.Do(tasks...)
		for _, task := range tasks {
			if !task.Done() || task.Err() != nil {
				t.Fatalf("done %v, %v", task.Done(), task.Err())
			}
		}
		tasks = nil
	}
	apply := func(f func(tx *engine.Tx) error) {
		if tasks = append(tasks, &engine.Task{Call: call(f)}); len(tasks) == 500 {
			flush()
		}
	}
	name := func(i int) string { return fmt.Sprintf("orders-of-region-%05d", i) }
	for i := range queues {
		apply(func(tx *engine.Tx) error { return tx.CreateQueue(name(i), engine.QueueOptions{NoDLQ: true}) })
	}
	flush()
	for i := range max(keys, queues) {
		req := &engine.Enqueue{Queue: name(i % queues), Key: fmt.Sprintf("tenant-%07d", i), Payload: []byte("x")}
		if err := b.Prepare(req); err != nil {
			t.Fatal(err)
		}
		apply(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
	}
	flush()
	for i := range queues {
		if busy {
			b.Advance(time.Millisecond)
			apply(func(tx *engine.Tx) error {
				ds, err := tx.Lease(&engine.LeaseRequest{Queues: []string{name(i)}, Count: 1, Block: -1})
				for _, d := range ds {
					_, err = tx.Ack(name(i), []engine.Receipt{d.Receipt})
				}
				return err
			})
		}
	}
	flush()
	return b
}

func compressed(t *testing.T, text []byte) int {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(text)
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.Len()
}

func TestAScrapeOfTenThousandQueuesIsBelowTwoMegabytes(t *testing.T) {
	const most = 2 << 20
	b := many(t, 10_000, 0, true)
	text, protobuf := b.scrape(Text, nil), b.scrape(Protobuf, nil)
	counters, gauges := series(parse(t, text))
	t.Logf("%d numbers; text %d bytes, compressed %d; protobuf %d bytes, compressed %d", len(counters)+len(gauges), len(text), compressed(t, text),
		len(protobuf), compressed(t, protobuf))
	if len(protobuf) > most || compressed(t, text) > most/4 {
		t.Errorf("protobuf %d bytes, text %d compressed", len(protobuf), compressed(t, text))
	}
	wantSeries(t, gauges, map[string]float64{`fila_metrics_left_out{kind=queue}`: 9000, `fila_queues{state=empty}`: 10_000})
	wantSeries(t, counters, map[string]float64{`fila_queue_messages_acked_total{queue=}`: 9000, `fila_queue_wait_seconds{queue=}_count`: 9000})
}

// counted counts the turns that a call takes.
type counted struct {
	engine.Call

	turns int
}

func (c *counted) Apply(tx *engine.Tx) error {
	c.turns++
	return c.Call.Apply(tx)
}

func TestAScrapeOfManyQueuesTakesManyTurns(t *testing.T) {
	turns := func(queues, keys int) int {
		b := many(t, queues, keys, false)
		c := &counted{Call: b.collector.Scrape()}
		task := &engine.Task{Call: c, Client: engine.NewClient(1, func() {})}
		b.Do(task)
		if !task.Done() || task.Err() != nil {
			t.Fatalf("done %v, %v", task.Done(), task.Err())
		}
		return c.turns
	}
	// The work of a turn is bounded by the engine: what grows is the number of turns.
	few, queues, keys := turns(10, 0), turns(5000, 0), turns(10, 20_000)
	if few > 3 || queues < 10 || keys < 5 {
		t.Errorf("%d turns for 10 queues, %d for 5,000, %d for 20,000 keys", few, queues, keys)
	}
	t.Logf("%d turns for 10 queues, %d for 5,000, %d for 20,000 keys", few, queues, keys)
}

// What a scrape takes with the default bounds, by format: the engine's part and the text. It does
// not hold up the loop for this time; see the number of turns.
func BenchmarkScrape(b *testing.B) {
	for _, scene := range []struct {
		queues, keys int
		busy         bool
	}{{100, 10_000, true}, {10_000, 0, true}, {10_000, 1_000_000, false}} {
		for _, f := range []Format{Text, Protobuf} {
			b.Run(fmt.Sprintf("%d queues, %d keys, %s", scene.queues, scene.keys, f), func(b *testing.B) {
				s := many(b, scene.queues, scene.keys, scene.busy)
				bytes, turns := 0, 0
				for b.Loop() {
					scrape := s.collector.Scrape()
					c := &counted{Call: scrape}
					s.Advance(6 * time.Second) // so that there is another sweep
					s.Do(&engine.Task{Call: c, Client: engine.NewClient(1, func() {})})
					text, err := scrape.Write(f, &Server{}, nil)
					if err != nil {
						b.Fatal(err)
					}
					bytes, turns = len(text), c.turns
				}
				b.ReportMetric(float64(bytes), "bytes")
				b.ReportMetric(float64(turns), "turns")
			})
		}
	}
}
