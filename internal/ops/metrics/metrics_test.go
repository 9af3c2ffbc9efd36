package metrics

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// broker is an engine whose time the test sets, with a collector.
type broker struct {
	*engine.Stepper
	t         testing.TB
	collector *Collector
}

func start(t *testing.T, cfg Config) *broker {
	t.Helper()
	c := engine.DefaultConfig()
	c.Scripts = loader{}
	s, err := engine.NewStepper(c, storage.NewMemory(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{Stepper: s, t: t}
	cfg.Now = s.Now
	b.collector = New(cfg)
	return b
}

// loader makes hooks that count what the test says.
type loader struct{}

func (loader) Load(_ hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return &script{kind: kind, source: source}, nil
}

func (l loader) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return l.Load(hook.Caller{}, kind, source)
}

type script struct {
	hook.Hook // nil: these methods are enough here

	kind   hook.Kind
	source string
	stats  hook.Stats
}

func (s *script) Kind() hook.Kind            { return s.kind }
func (s *script) Source() string             { return s.source }
func (s *script) Version() string            { return s.source }
func (s *script) Stats(time.Time) hook.Stats { return s.stats }
func (s *script) Failing() bool              { return false }

// call is a call of the engine that is a function.
type call func(tx *engine.Tx) error

func (c call) Apply(tx *engine.Tx) error { return c(tx) }

// do applies a function in a turn.
func (b *broker) do(f func(tx *engine.Tx) error) {
	b.t.Helper()
	task := &engine.Task{Call: call(f), Client: engine.NewClient(1, func() {})}
	b.Do(task)
	if !task.Done() {
		b.t.Fatal("the task waits")
	}
	if err := task.Err(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) create(queues ...string) {
	b.t.Helper()
	for _, q := range queues {
		b.do(func(tx *engine.Tx) error { return tx.CreateQueue(q, engine.QueueOptions{NoDLQ: true}) })
	}
}

func (b *broker) enqueue(queue, key string) {
	b.t.Helper()
	req := &engine.Enqueue{Queue: queue, Key: key, Payload: []byte("x")}
	if err := b.Prepare(req); err != nil {
		b.t.Fatal(err)
	}
	b.do(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
}

// deliver leases a message and acks it, if there is one.
func (b *broker) deliver(queue string) {
	b.t.Helper()
	var ds []*engine.Delivery
	b.do(func(tx *engine.Tx) (err error) {
		ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{queue}, Count: 1, Block: -1})
		return err
	})
	for _, d := range ds {
		b.do(func(tx *engine.Tx) error { _, err := tx.Ack(queue, []engine.Receipt{d.Receipt}); return err })
	}
}

// scrape returns the text of an answer.
func (b *broker) scrape(f Format, may func(string) bool) []byte {
	b.t.Helper()
	s := b.collector.Scrape()
	b.do(s.Apply)
	text, err := s.Write(f, &Server{}, &Rights{Queue: may, Throttles: true, Budgets: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// families parses an answer in the text format.
func (b *broker) families(may func(string) bool) map[string]*dto.MetricFamily {
	b.t.Helper()
	return parse(b.t, b.scrape(Text, may))
}

func parse(t testing.TB, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// series are the numbers of counters and gauges, and the counts of histograms, by name and labels.
func series(all map[string]*dto.MetricFamily) (counters, gauges map[string]float64) {
	counters, gauges = map[string]float64{}, map[string]float64{}
	for name, of := range all {
		for _, m := range of.GetMetric() {
			labels := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			at := name + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				counters[at] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				gauges[at] = m.GetGauge().GetValue()
			default:
				h := m.GetHistogram()
				counters[at+"_count"], counters[at+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				for _, bucket := range h.GetBucket() {
					counters[at+"_bucket "+model.SampleValue(bucket.GetUpperBound()).String()] = float64(bucket.GetCumulativeCount())
				}
			}
		}
	}
	return counters, gauges
}

// wantSeries checks some series.
func wantSeries(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for _, at := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[at]; !ok || math.Abs(v-want[at]) > 1e-6 {
			t.Errorf("%s is %v (there: %v), want %v", at, v, ok, want[at])
		}
	}
}

func TestAQueueShowsWhatHappenedInIt(t *testing.T) {
	b := start(t, Config{Queues: 10, Keys: 10, Throttles: 10})
	b.create("orders")
	for range 3 {
		b.enqueue("orders", "tenant")
	}
	b.enqueue("orders", "other")
	b.Advance(2 * time.Second)
	b.deliver("orders")
	counters, gauges := series(b.families(nil))
	wantSeries(t, counters, map[string]float64{
		`fila_queue_messages_enqueued_total{queue=orders}`:                  4,
		`fila_queue_messages_delivered_total{queue=orders}`:                 1,
		`fila_queue_messages_acked_total{queue=orders}`:                     1,
		`fila_queue_messages_enqueued_total{queue=}`:                        0,
		`fila_queue_wait_seconds{queue=orders}_count`:                       1,
		`fila_queue_wait_seconds{queue=orders}_sum`:                         2,
		`fila_queue_work_seconds{outcome=acked,queue=orders}_count`:         1,
		`fila_queue_messages_dead_lettered_total{queue=orders,reason=nack}`: 0,
		`fila_key_messages_delivered_total{key=tenant,queue=orders}`:        1,
	})
	wantSeries(t, gauges, map[string]float64{
		`fila_queue_messages{queue=orders,state=ready}`:         3,
		`fila_queue_oldest_ready_seconds{queue=orders}`:         2,
		`fila_queue_state{queue=orders,state=ready}`:            1,
		`fila_queues{state=ready}`:                              1,
		`fila_queues{state=busy}`:                               0,
		`fila_queue_keys{queue=orders,state=ready}`:             2, // a consumer has asked within the last minute
		`fila_key_messages{key=tenant,queue=orders}`:            2,
		`fila_key_oldest_ready_seconds{key=other,queue=orders}`: 2,
		`fila_metrics_left_out{kind=key}`:                       0,
		`fila_metrics_left_out{kind=queue}`:                     0,
		`fila_store_writable{}`:                                 1,
	})
}

func TestNamesThatAreNotTextFailNoScrape(t *testing.T) {
	b := start(t, Config{Queues: 10, Keys: 10, Throttles: 10})
	names := []string{"caf\xc3\xa9", "bad\xff", `bad\xff`, `quo"te`, "\xf0\x9f", `\`, `\\x`, "replaced \uFFFD"}
	b.create(names...)
	for _, q := range names {
		b.enqueue(q, "key\xfe\n\x00")
		b.enqueue(q, "key")
		b.do(func(tx *engine.Tx) error { return tx.SetThrottle(q, engine.ThrottleOptions{Rate: new(1.0)}) })
	}
	_, gauges := series(b.families(nil))
	for _, q := range names {
		if v := gauges["fila_queue_messages{queue="+text(q)+",state=ready}"]; v != 2 {
			t.Errorf("%q has %v messages", q, v)
		}
	}
	if text := b.scrape(OpenMetrics, nil); !bytes.HasSuffix(text, []byte("\n# EOF\n")) {
		t.Errorf("OpenMetrics ends in %q", text[len(text)-20:])
	}
	if n := len(native(t, b.scrape(Protobuf, nil))); n < 20 {
		t.Errorf("%d metrics in protobuf", n)
	}
}

// OpenMetrics names the family of a counter without _total, and has no family twice.
func TestNoFormatDeclaresAFamilyTwice(t *testing.T) {
	b := start(t, Config{Queues: 10, Keys: 10, Throttles: 10})
	for _, f := range []Format{Text, OpenMetrics} {
		declared := map[string]bool{}
		for line := range strings.Lines(string(b.scrape(f, nil))) {
			words := strings.Fields(line)
			if len(words) < 4 || words[0] != "#" || words[1] != "TYPE" {
				continue
			}
			if declared[words[2]] {
				t.Errorf("%s declares %s twice", f, words[2])
			}
			declared[words[2]] = true
		}
		if len(declared) < 50 {
			t.Errorf("%s declares %d families", f, len(declared))
		}
		for _, name := range []string{"go_memstats_heap_alloc_bytes", "go_goroutines"} {
			if !declared[name] {
				t.Errorf("%s does not declare %s", f, name)
			}
		}
	}
}

// native parses an answer in protobuf.
func native(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	all := map[string]*dto.MetricFamily{}
	d := expfmt.NewDecoder(bytes.NewReader(text), expfmt.FmtProtoDelim)
	for {
		of := new(dto.MetricFamily)
		if err := d.Decode(of); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[of.GetName()] = of
	}
}

func TestAUserSeesItsQueuesAlone(t *testing.T) {
	b := start(t, Config{Queues: 1, Keys: 10, Throttles: 10})
	b.create("mine", "yours", "nameless")
	for _, q := range []string{"mine", "yours", "nameless"} {
		b.enqueue(q, "tenant of "+q)
	}
	b.families(nil)
	text := string(b.scrape(Text, func(q string) bool { return q == "mine" }))
	for _, hidden := range []string{"yours", "nameless", `queue=""`} {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is shown", hidden)
		}
	}
	if !strings.Contains(text, `fila_key_messages{queue="mine",key="tenant of mine"} 1`) {
		t.Error("its own queue is not shown")
	}
	if !strings.Contains(text, `fila_queues{state="no_consumer"} 1`) {
		t.Error("queues of others are counted by state")
	}
	if all := string(b.scrape(Text, nil)); !strings.Contains(all, `fila_queues{state="no_consumer"} 3`) {
		t.Error("queues without series are not counted by state")
	}
	if text = string(b.scrape(Text, func(q string) bool { return false })); strings.Contains(text, "queue=") {
		t.Error("a queue is shown to a user without rights")
	}
}

func TestScrapesThatComeTogetherShareOneReading(t *testing.T) {
	b := start(t, Config{Queues: 10, Keys: 10, Throttles: 10})
	b.do(func(tx *engine.Tx) error {
		for i := range 10_000 { // more than a turn reads
			if err := tx.SetThrottle(strconv.Itoa(i), engine.ThrottleOptions{Rate: new(1.0)}); err != nil {
				return err
			}
		}
		return nil
	})
	first, second := b.collector.Scrape(), b.collector.Scrape()
	tasks := []*engine.Task{
		{Call: first, Client: engine.NewClient(1, func() {})}, {Call: second, Client: engine.NewClient(2, func() {})},
	}
	b.Do(tasks...)
	for _, task := range tasks {
		if !task.Done() || task.Err() != nil {
			t.Fatalf("done %v, %v", task.Done(), task.Err())
		}
	}
	if first.reading != second.reading {
		t.Error("two readings")
	}
	if third := b.collector.Scrape(); true {
		b.do(third.Apply)
		if third.reading == first.reading {
			t.Error("a later scrape shows old figures")
		}
	}
}

func TestAReadingWhoseScrapesHaveLeftIsGivenUp(t *testing.T) {
	b := start(t, Config{Queues: 10})
	b.do(func(tx *engine.Tx) error { b.collector.join(tx.Now()); return nil })
	old := b.collector.current
	s := b.collector.Scrape()
	b.do(s.Apply)
	if s.reading != old {
		t.Error("a reading that has just begun is not shared")
	}
	old.done = false
	b.Advance(abandonedAfter + time.Millisecond)
	s = b.collector.Scrape()
	b.do(s.Apply)
	if s.reading == old {
		t.Error("a reading from before is continued")
	}
}

func TestAScrapeIsRefusedInATransaction(t *testing.T) {
	b := start(t, Config{Queues: 10})
	errs := make([]error, 1)
	task := &engine.Task{Call: call(func(tx *engine.Tx) error { return tx.Exec([]engine.Call{b.collector.Scrape()}, errs) }), Client: engine.NewClient(1, func() {})}
	b.Do(task)
	if !task.Done() || errs[0] == nil {
		t.Errorf("done %v, %v", task.Done(), errs[0])
	}
}

// TestTheBusiestThrottlesOfAPatternHaveSeries: beside the sums of the pattern, as many as there are places, by deliveries and
// by the time that keys have waited, in turns.
func TestTheBusiestThrottlesOfAPatternHaveSeries(t *testing.T) {
	b := start(t, Config{Throttles: 2})
	b.create("jobs")
	b.do(func(tx *engine.Tx) error {
		return tx.SetThrottle("tenant:*", engine.ThrottleOptions{Rate: new(1e-9), Burst: new(uint64(9))})
	})
	for tenant, n := range map[string]int{"idle": 1, "busy": 5, "stopped": 11} {
		for range n {
			req := &engine.Enqueue{Queue: "jobs", Key: tenant, Meta: engine.Meta{Throttles: []string{"tenant:" + tenant}}, Payload: []byte("x")}
			if err := b.Prepare(req); err != nil {
				t.Fatal(err)
			}
			b.do(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
	}
	for range 6 {
		b.deliver("jobs")
	}
	b.do(func(tx *engine.Tx) error { return tx.Hold("tenant:stopped", time.Minute) })
	b.Advance(time.Second)
	b.do(func(tx *engine.Tx) error { return tx.Hold("tenant:stopped", 0) })
	for range 11 {
		b.deliver("jobs")
	}
	b.Advance(time.Second)
	b.do(func(tx *engine.Tx) error { return tx.Hold("provider", 90*time.Second) })
	counters, gauges := series(b.families(nil))
	wantSeries(t, counters, map[string]float64{
		`fila_throttle_passed_total{throttle=tenant:*}`:       15,
		`fila_throttle_passed_total{throttle=tenant:stopped}`: 9,
		`fila_throttle_passed_total{throttle=tenant:busy}`:    5,
	})
	wantSeries(t, gauges, map[string]float64{
		`fila_throttle_waiting_keys{throttle=tenant:*}`:       1,
		`fila_throttle_waiting_keys{throttle=tenant:stopped}`: 1,
		`fila_throttle_hold_seconds{throttle=provider}`:       90,
		`fila_throttle_hold_seconds{throttle=tenant:*}`:       0,
		`fila_throttle_instances{}`:                           3,
	})
	if _, is := counters[`fila_throttle_passed_total{throttle=tenant:idle}`]; is {
		t.Error("three throttles of a pattern have series, of two places")
	}
}
