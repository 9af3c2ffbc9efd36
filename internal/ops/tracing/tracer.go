package tracing

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
)

// Config is what a tracer needs to know.
type Config struct {
	// Endpoint is the URL of an OpenTelemetry collector that takes OTLP over HTTP, with or
	// without the path of traces; empty: tracing is off.
	Endpoint string
	// Ratio is the share of the sampled messages that have spans, from 0 to 1. It is decided by
	// the id of the trace, as OpenTelemetry's own sampler does.
	Ratio float64
	// Parent makes a delivery a child of the span in the header, in place of a trace of its own
	// with a link to it. It does not hold for messages older than an hour.
	Parent  bool
	Version string           // of Fila, for the resource
	Now     func() time.Time // the clock
	Log     zerolog.Logger
}

// Tracer makes spans. Its methods may be called from any goroutine and never wait; nil is no
// tracer.
type Tracer struct {
	cfg  Config
	keep uint64 // traces below it have spans
	live deliveries
	out  sink
	n    counters
}

// sink takes spans to the collector. send never waits. close sends what is waiting, until
// the context ends.
type sink interface {
	send(s *span)
	close(ctx context.Context) error
}

// counters are how many spans came to which end.
type counters struct{ exported, dropped, failed atomic.Uint64 }

// Counts are how many spans have come to which end since the start.
type Counts struct {
	Exported uint64 // the collector has taken them
	Dropped  uint64 // there was no room for them, or the end of their delivery was not seen
	Failed   uint64 // the collector was away, too slow, or has refused them
}

// New returns a tracer, nil if there is no endpoint. It does not connect: a collector may
// come later.
func New(cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	t := newTracer(cfg)
	var err error
	if t.out, err = newSink(&t.cfg, &t.n); err != nil {
		return nil, err
	}
	return t, nil
}

// newTracer returns a tracer without a sink.
func newTracer(cfg Config) *Tracer { return &Tracer{cfg: cfg, keep: bound(cfg.Ratio)} }

// bound returns the bound below which a ratio of the ids of traces are.
func bound(ratio float64) uint64 {
	if ratio >= 1 {
		return math.MaxUint64
	}
	return uint64(max(ratio, 0) * (1 << 63))
}

// sampled returns the context of a message that has spans.
func (t *Tracer) sampled(headers []engine.Header) (Context, bool) {
	c, sampled := contextOf(headers)
	return c, sampled && binary.BigEndian.Uint64(c.Trace[8:])>>1 < t.keep
}

// Kinds are the events that Observe needs.
const Kinds = engine.EventFailed | engine.EventDead

// Counts returns what has become of the spans.
func (t *Tracer) Counts() Counts {
	return Counts{Exported: t.n.exported.Load(), Dropped: t.n.dropped.Load(), Failed: t.n.failed.Load()}
}

// Close sends the spans that are waiting, until the context ends. Later ones are dropped.
func (t *Tracer) Close(ctx context.Context) error { return t.out.close(ctx) }

// Enqueue is a sampled enqueue under way.
type Enqueue struct {
	context Context
	bytes   int
}

// Enqueue returns the enqueue of a message to make spans of; nil if it has none. It must be
// called before the message is prepared, which takes its headers and payload away.
func (t *Tracer) Enqueue(req *engine.Enqueue) *Enqueue {
	c, sampled := t.sampled(req.Headers)
	if !sampled {
		return nil
	}
	return &Enqueue{context: c, bytes: len(req.Payload)}
}

// defaultPriority is the priority of a message that names none.
const defaultPriority = 4

// Enqueued makes the span of an enqueue: began is when the command was read, ended when the
// message was durable or, with an error, refused.
func (t *Tracer) Enqueued(e *Enqueue, req *engine.Enqueue, id engine.ID, began, ended time.Time, err error) {
	s := span{operation: opEnqueue, queue: req.Queue, server: true, began: began, ended: ended, parent: &e.context}
	message, priority := "", int64(defaultPriority)
	if err != nil {
		s.failure = text(err.Error())
	} else {
		message = id.String()
	}
	if req.Priority != nil {
		priority = int64(*req.Priority)
	}
	s.attributes = append(attributesOf(opEnqueue, req.Queue, message),
		num(attrBody, int64(e.bytes)), str(attrKey, text(req.Key)), num(attrPriority, priority))
	t.out.send(&s)
}

// parentAge is the age of a message from which on its delivery is not a child of the header's
// span: trace stores are made for traces that end within minutes.
const parentAge = time.Hour

// Leased takes note of a message that a client gets. Its payload and headers must be
// loaded. consumer is the name that the client gives itself.
func (t *Tracer) Leased(d *engine.Delivery, consumer string) {
	c, sampled := t.sampled(d.Headers())
	now := t.cfg.Now()
	if !sampled || !d.LeaseUntil.After(now) { // one whose lease is over has failed already
		return
	}
	leased := d.LeaseUntil.Add(-d.Visibility)
	id := d.Receipt.ID.String()
	known := &Delivery{
		context: c, queue: d.Queue, id: id, ready: leased.Add(-d.Waited), leased: leased, until: d.LeaseUntil, client: consumer,
		child: t.cfg.Parent && leased.Sub(d.EnqueuedAt) <= parentAge,
		attributes: append(attributesOf(opDeliver, d.Queue, id), num(attrBody, int64(len(d.Payload()))), str(attrKey, text(d.Key)),
			num(attrPriority, int64(d.Priority())), num(attrAttempt, int64(d.Attempt)), num(attrDelivered, int64(d.Deliveries))),
	}
	lost := t.live.put(receipt{d.Receipt.ID, d.Receipt.Fence}, known, now)
	t.n.dropped.Add(spansOfDelivery * uint64(lost))
}

// spansOfDelivery is how many spans a delivery has: deliver, wait and lease.
const spansOfDelivery = 3

// The ends of a delivery, as the attribute fila.outcome has them.
const (
	Acked    = "acked"
	Released = "released"
	nacked   = "nacked"
	expired  = "expired"
)

// Take removes the delivery of a receipt that was acked or released. It returns nil if the
// receipt did not hold, or if the delivery has no spans.
func (t *Tracer) Take(r *engine.Receipt) *Delivery {
	if !r.Held {
		return nil
	}
	return t.live.take(receipt{r.ID, r.Fence})
}

// Ended makes the spans of a delivery that Take has returned and that ended as its consumer
// wanted: Acked or Released.
func (t *Tracer) Ended(d *Delivery, outcome string, at time.Time) {
	t.deliver(d, end{at: at, outcome: outcome})
}

// Extended takes note of the new end of a lease.
func (t *Tracer) Extended(r engine.Receipt, until time.Time) {
	t.live.extend(receipt{r.ID, r.Fence}, until)
}

// Undelivered forgets deliveries that did not reach their client.
func (t *Tracer) Undelivered(ds []*engine.Delivery) {
	for _, d := range ds {
		t.live.take(receipt{d.Receipt.ID, d.Receipt.Fence})
	}
}

// Observe makes the spans of deliveries that have failed, by events of the Kinds.
func (t *Tracer) Observe(events []engine.Event) {
	for i := range events {
		ev := &events[i]
		if ev.Kind&Kinds == 0 {
			continue
		}
		d := t.live.take(receipt{ev.ID, ev.Fence})
		if d == nil {
			continue
		}
		e := end{at: ev.Time, outcome: nacked, failure: ev.Error, readyAt: ev.ReadyAt, reason: ev.Reason, dlq: ev.DLQ}
		if ev.Error == engine.LeaseExpired {
			e.outcome = expired
		}
		if e.failure == "" {
			e.failure = e.outcome
		}
		t.deliver(d, e)
	}
}

// end is how a delivery ended.
type end struct {
	at      time.Time
	outcome string
	failure string    // error text; "": it has not failed
	readyAt time.Time // of the next delivery; zero: not known, or there is none
	reason  string    // why the message is dead; "": it is not
	dlq     string    // the queue that it went to; "": none
}

// deliver makes the spans of a delivery.
func (t *Tracer) deliver(d *Delivery, e end) {
	outcome := str(attrOutcome, e.outcome)
	lease := span{
		operation: opLease, queue: d.queue, began: d.leased, ended: later(e.at, d.leased), failure: text(e.failure),
		attributes: append(attributesOf(opLease, d.queue, d.id), outcome),
	}
	if d.client != "" {
		lease.attributes = append(lease.attributes, str(attrClient, text(d.client)))
	}
	s := span{
		operation: opDeliver, queue: d.queue, began: d.ready, ended: lease.ended, attributes: append(d.attributes, outcome),
		within: []span{{operation: opWait, queue: d.queue, began: d.ready, ended: d.leased, attributes: attributesOf(opWait, d.queue, d.id)}, lease},
	}
	if d.child {
		s.parent = &d.context
	} else {
		s.link = &d.context
	}
	if !e.readyAt.IsZero() {
		s.attributes = append(s.attributes, num(attrReadyAt, e.readyAt.UnixMilli()))
	}
	if e.reason != "" {
		s.attributes = append(s.attributes, str(attrReason, e.reason))
	}
	if e.dlq != "" {
		s.attributes = append(s.attributes, str(attrDLQ, text(e.dlq)))
	}
	t.out.send(&s)
}

// later returns the later of two times: the clock may have been set back.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
