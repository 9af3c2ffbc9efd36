package tracing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/storage"
)

// kept is a sink that keeps what it is sent.
type kept struct{ spans []*span }

func (k *kept) send(s *span)                { k.spans = append(k.spans, s) }
func (k *kept) close(context.Context) error { return nil }

// world is a tracer beside an engine that is driven by hand.
type world struct {
	*engine.Stepper
	*testing.T
	tracer *Tracer
	sent   *kept
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	s, err := engine.NewStepper(engine.DefaultConfig(), storage.NewMemory(), time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Endpoint: "http://127.0.0.1:1", Ratio: 1, Now: s.Now}
	if change != nil {
		change(&cfg)
	}
	w := &world{Stepper: s, T: t, tracer: newTracer(cfg), sent: &kept{}}
	w.tracer.out = w.sent
	s.Listen(w.tracer.Observe)
	s.Want(Kinds)
	w.call(func(tx *engine.Tx) error { return tx.CreateQueue("q", engine.QueueOptions{}) })
	return w
}

type call func(tx *engine.Tx) error

func (c call) Apply(tx *engine.Tx) error { return c(tx) }

func (w *world) call(c call) {
	w.Helper()
	task := &engine.Task{Call: c}
	w.Do(task)
	if !task.Done() || task.Err() != nil {
		w.Fatalf("done: %v, %v", task.Done(), task.Err())
	}
}

// enqueue enqueues a message with a header.
func (w *world) enqueue(traceparent string) {
	w.Helper()
	req := &engine.Enqueue{Queue: "q", Key: "tenant", Payload: []byte("hello"), Headers: []engine.Header{header(Header, traceparent)}}
	began, e := w.Now(), w.tracer.Enqueue(req)
	if err := w.Prepare(req); err != nil {
		w.Fatal(err)
	}
	var id engine.ID
	w.call(func(tx *engine.Tx) (err error) { id, err = tx.Enqueue(req); return err })
	if e != nil {
		w.tracer.Enqueued(e, req, id, began, w.Now(), nil)
	}
}

// lease leases n messages, as a connection does.
func (w *world) lease(n int) []*engine.Delivery {
	w.Helper()
	var ds []*engine.Delivery
	req := &engine.LeaseRequest{Queues: []string{"q"}, Count: n, Block: -1}
	w.call(func(tx *engine.Tx) (err error) { ds, err = tx.Lease(req); return err })
	if len(ds) != n {
		w.Fatalf("%d messages leased, want %d", len(ds), n)
	}
	for _, d := range ds {
		if _, err := w.Load([]*engine.Delivery{d}); err != nil {
			w.Fatal(err)
		}
		w.tracer.Leased(d, "worker-1")
	}
	return ds
}

func (w *world) ack(receipts ...engine.Receipt) {
	w.Helper()
	w.call(func(tx *engine.Tx) error { _, err := tx.Ack("q", receipts); return err })
	w.end(Acked, receipts)
}

// end makes the spans of deliveries, as a connection does.
func (w *world) end(outcome string, receipts []engine.Receipt) {
	for i := range receipts {
		if d := w.tracer.Take(&receipts[i]); d != nil {
			w.tracer.Ended(d, outcome, w.Now())
		}
	}
}

// taken returns what was sent so far as lines: the name, when it began and ended since the
// start of the test, what it belongs to, the outcome and the error.
func (w *world) taken() (lines []string) {
	start := time.Unix(1_700_000_000, 0)
	var add func(s *span, indent string)
	add = func(s *span, indent string) {
		line := fmt.Sprintf("%s%s %v-%v", indent, s.name(), s.began.Sub(start), s.ended.Sub(start))
		if s.parent != nil {
			line += fmt.Sprintf(" child of %x", s.parent.Span)
		}
		if s.link != nil {
			line += fmt.Sprintf(" linked to %x", s.link.Span)
		}
		if outcome := s.value(attrOutcome); outcome != nil {
			line += fmt.Sprint(" ", outcome)
		}
		if s.failure != "" {
			line += " error " + s.failure
		}
		lines = append(lines, line)
		for i := range s.within {
			add(&s.within[i], indent+"  ")
		}
	}
	for _, s := range w.sent.spans {
		add(s, "")
	}
	w.sent.spans = nil
	return lines
}

// value returns an attribute, nil if the span does not have it.
func (s *span) value(name string) any {
	for _, a := range s.attributes {
		if a.name == name && a.numeric {
			return a.number
		} else if a.name == name {
			return a.text
		}
	}
	return nil
}

func (w *world) wantSpans(after string, want ...string) {
	w.Helper()
	if got := w.taken(); !slices.Equal(got, want) {
		w.Errorf("after %s:\n%s\nwant:\n%s", after, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAMessageHasFourSpans(t *testing.T) {
	w := newWorld(t, nil)
	w.enqueue(sampled)
	w.wantSpans("an enqueue", "enqueue q 0s-0s child of "+spanID)
	w.Advance(time.Second)
	d := w.lease(1)[0]
	w.Advance(2 * time.Second)
	w.wantSpans("a lease")
	w.ack(d.Receipt)
	w.wantSpans("an ack", "deliver q 0s-3s linked to "+spanID+" acked", "  wait q 0s-1s", "  lease q 1s-3s acked")
	w.ack(d.Receipt)
	w.wantSpans("a second ack")
}

func TestEachDeliveryHasSpansOfItsOwn(t *testing.T) {
	w := newWorld(t, nil)
	w.enqueue(sampled)
	w.taken()
	d := w.lease(1)[0]
	w.Advance(time.Second)
	nack := &engine.Nack{Queue: "q", Receipt: d.Receipt, Error: "no such file", Delay: 5 * time.Second}
	w.call(func(tx *engine.Tx) error { _, err := tx.Nack(nack); return err })
	retry := w.sent.spans[0]
	if at := w.Now().Add(5 * time.Second).UnixMilli(); retry.value(attrReadyAt) != at || retry.value(attrAttempt) != int64(1) || retry.value(attrDLQ) != nil {
		t.Errorf("attributes of a retry: %v", retry.attributes)
	}
	w.wantSpans("a nack", "deliver q 0s-1s linked to "+spanID+" nacked", "  wait q 0s-0s", "  lease q 0s-1s nacked error no such file")

	w.Advance(7 * time.Second)
	d = w.lease(1)[0]
	w.Advance(d.Visibility)
	w.wantSpans("an expiry", "deliver q 6s-38s linked to "+spanID+" expired", "  wait q 6s-8s", "  lease q 8s-38s expired error the lease expired")

	d = w.lease(1)[0]
	released := []engine.Receipt{d.Receipt}
	w.call(func(tx *engine.Tx) error { _, err := tx.Release("q", released); return err })
	w.end(Released, released)
	w.wantSpans("a release", "deliver q 38s-38s linked to "+spanID+" released", "  wait q 38s-38s", "  lease q 38s-38s released")

	d = w.lease(1)[0]
	dead := &engine.Nack{Queue: "q", Receipt: d.Receipt, Dead: true}
	w.call(func(tx *engine.Tx) error { _, err := tx.Nack(dead); return err })
	if s := w.sent.spans[0]; s.value(attrDLQ) != "q.dlq" || s.value(attrReason) != "nack" || s.value(attrReadyAt) != nil {
		t.Errorf("attributes of a dead message: %v", s.attributes)
	}
	w.wantSpans("a death", "deliver q 38s-38s linked to "+spanID+" nacked", "  wait q 38s-38s", "  lease q 38s-38s nacked error nacked")
	if n := w.tracer.live.size(); n != 0 {
		t.Errorf("%d deliveries remain", n)
	}
}

// A lease that ends early is taken back before its client learns of it.
func TestWhatDidNotReachItsClientHasNoSpans(t *testing.T) {
	w := newWorld(t, nil)
	w.enqueue(sampled)
	w.taken()
	ds := w.lease(1)
	w.tracer.Undelivered(ds)
	w.call(func(tx *engine.Tx) error { return tx.Undeliver(ds) })
	w.wantSpans("a delivery that is taken back")
	w.Advance(time.Second)
	w.ack(w.lease(1)[0].Receipt)
	w.wantSpans("the next one", "deliver q 0s-1s linked to "+spanID+" acked", "  wait q 0s-1s", "  lease q 1s-1s acked")
}

func TestABareReceiptEndsTheDeliveryThatItHeld(t *testing.T) {
	w := newWorld(t, nil)
	for range 3 {
		w.enqueue(sampled)
	}
	w.taken()
	ds := w.lease(3)
	stale := ds[1].Receipt
	stale.Fence++
	w.ack(engine.Receipt{ID: ds[0].Receipt.ID, Bare: true}, stale, ds[2].Receipt)
	if got := w.taken(); len(got) != 6 || w.tracer.live.size() != 1 {
		t.Errorf("%d spans, %d deliveries remain: %q", len(got), w.tracer.live.size(), got)
	}
}

func TestAnExtensionIsNotAnEnd(t *testing.T) {
	w := newWorld(t, nil)
	w.enqueue(sampled)
	w.taken()
	d := w.lease(1)[0]
	w.Advance(d.Visibility - time.Second)
	var until time.Time
	w.call(func(tx *engine.Tx) (err error) { until, err = tx.Extend("q", d.Receipt, time.Minute); return err })
	w.tracer.Extended(d.Receipt, until)
	w.Advance(30 * time.Second)
	w.ack(d.Receipt)
	w.wantSpans("an extension", "deliver q 0s-59s linked to "+spanID+" acked", "  wait q 0s-0s", "  lease q 0s-59s acked")
}

func TestADeliveryIsAChildOnlyOfANewMessage(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Parent = true })
	w.enqueue(sampled)
	w.taken()
	w.Advance(parentAge)
	released := []engine.Receipt{w.lease(1)[0].Receipt}
	w.call(func(tx *engine.Tx) error { _, err := tx.Release("q", released); return err })
	w.end(Released, released)
	if s := w.sent.spans[0]; s.parent == nil || s.link != nil {
		t.Error("a message of an hour: its delivery is no child")
	}
	w.Advance(time.Nanosecond)
	w.ack(w.lease(1)[0].Receipt)
	if s := w.sent.spans[1]; s.parent != nil || s.link == nil {
		t.Error("an older message: its delivery is a child")
	}
}

func TestOnlySampledMessagesHaveSpans(t *testing.T) {
	w := newWorld(t, nil)
	w.enqueue("")
	w.enqueue(sampled[:54] + "0")
	w.enqueue("junk")
	for _, d := range w.lease(3) {
		w.ack(d.Receipt)
	}
	w.wantSpans("messages that are not sampled")
	if n := w.tracer.live.size(); n != 0 {
		t.Errorf("%d deliveries in the table", n)
	}
}

// The same messages have spans at the enqueue and at the delivery, and about as many as the
// ratio says.
func TestTheRatioIsDecidedByTheTrace(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Ratio = 0.25 })
	var context [2]Context
	n := 0
	for i := range 4000 {
		value := fmt.Sprintf("00-%016x%016x-%s-01", i, uint64(i)*0x9e3779b97f4a7c15+1, spanID)
		if c, ok := w.tracer.sampled([]engine.Header{header(Header, value)}); ok {
			n++
			context[n%2] = c
		}
	}
	if n < 900 || n > 1100 || context[0] == context[1] {
		t.Errorf("%d of 4000 have spans", n)
	}
	for ratio, want := range map[float64]bool{0: false, 1: true} {
		tracer := newTracer(Config{Ratio: ratio})
		if _, got := tracer.sampled([]engine.Header{header(Header, "00-"+strings.Repeat("f", 32)+"-"+spanID+"-01")}); got != want {
			t.Errorf("a ratio of %v: %v", ratio, got)
		}
	}
}

func TestARefusedEnqueueIsAnError(t *testing.T) {
	w := newWorld(t, nil)
	req := &engine.Enqueue{Queue: "none", Headers: []engine.Header{header(Header, sampled)}}
	w.tracer.Enqueued(w.tracer.Enqueue(req), req, engine.ID{}, w.Now(), w.Now(), errors.New("no such queue"))
	if s := w.sent.spans[0]; s.value(attrMessage) != nil || s.value(attrPriority) != int64(4) {
		t.Errorf("attributes: %v", s.attributes)
	}
	w.wantSpans("a refusal", "enqueue none 0s-0s child of "+spanID+" error no such queue")
}

func TestTheTableIsBounded(t *testing.T) {
	const each = deliveriesMax / shardCount
	now := time.Unix(1_700_000_000, 0)
	var table deliveries
	id := func(n int) receipt { return receipt{id: engine.ID{byte(n), byte(n >> 8)}} } // all of one shard
	for i := range each {
		if lost := table.put(id(i), &Delivery{until: now.Add(time.Duration(i%2) * time.Hour)}, now); lost != 0 {
			t.Fatalf("delivery %d does not fit", i)
		}
	}
	if lost := table.put(id(each), &Delivery{}, now.Add(staleAfter)); lost != 1 || table.size() != each {
		t.Errorf("beyond the bound: %d lost, %d in the table", lost, table.size())
	}
	later := now.Add(staleAfter + sweepEvery)
	if lost := table.put(id(each), &Delivery{until: later}, later); lost != each/2 || table.size() != each/2+1 {
		t.Errorf("with stale ones: %d lost, %d in the table", lost, table.size())
	}
	if table.take(id(1)) == nil || table.take(id(2)) != nil || table.take(id(each)) == nil {
		t.Error("the wrong ones are left")
	}
}

func TestADeliveryThatDoesNotFitIsCounted(t *testing.T) {
	w := newWorld(t, nil)
	for i := range shardCount {
		for n := range deliveriesMax / shardCount {
			w.tracer.live.put(receipt{engine.ID{byte(n), byte(n >> 8), 15: byte(i)}, 0}, &Delivery{until: w.Now()}, w.Now())
		}
	}
	w.enqueue(sampled)
	w.taken()
	w.ack(w.lease(1)[0].Receipt)
	w.wantSpans("a full table")
	if got := w.tracer.Counts(); got != (Counts{Dropped: spansOfDelivery}) {
		t.Errorf("counted: %+v", got)
	}
}

func TestTextsAreUTF8AndBounded(t *testing.T) {
	if got, want := text("a\xff"+strings.Repeat("x", 2*textMax)), `a\xff`+strings.Repeat("x", textMax-5); got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}

// Every attribute that spans have is in the table, for the spans that it is on, and every
// one of the table is used.
func TestTheTableOfAttributesIsTrue(t *testing.T) {
	w := newWorld(t, nil)
	w.enqueue(sampled)
	d := w.lease(1)[0]
	for _, nack := range []*engine.Nack{{Queue: "q", Receipt: d.Receipt}, {Queue: "q", Dead: true}} {
		if nack.Dead {
			nack.Receipt = w.lease(1)[0].Receipt
		}
		w.call(func(tx *engine.Tx) error { _, err := tx.Nack(nack); return err })
		w.Advance(time.Minute)
	}
	used := map[string]map[string]bool{}
	var note func(s *span)
	note = func(s *span) {
		for _, a := range s.attributes {
			if used[a.name] == nil {
				used[a.name] = map[string]bool{}
			}
			used[a.name][s.operation] = true
			kind := "string"
			if a.numeric {
				kind = "int"
			}
			if i := slices.IndexFunc(Attributes(), func(x Attribute) bool { return x.Name == a.name }); i < 0 || Attributes()[i].Type != kind {
				t.Errorf("%s of type %s is not in the table", a.name, kind)
			}
		}
		for i := range s.within {
			note(&s.within[i])
		}
	}
	for _, s := range w.sent.spans {
		note(s)
	}
	for _, a := range Attributes() {
		for _, o := range Operations() {
			if used[a.Name][o.Name] != slices.Contains(a.On, o.Name) {
				t.Errorf("%s on %s: the table says %v, spans %v", a.Name, o.Name, slices.Contains(a.On, o.Name), used[a.Name][o.Name])
			}
		}
	}
}
