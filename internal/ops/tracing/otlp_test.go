//go:build !notrace

package tracing

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/ops/otlptest"
	"github.com/faisca/fila/internal/testkit"
)

func newExporting(t *testing.T, endpoint string, log io.Writer) *Tracer {
	t.Helper()
	tracer, err := New(Config{Endpoint: endpoint, Ratio: 1, Version: "1.2.3", Now: time.Now, Log: zerolog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// sample is a delivery that has ended with nothing to wait for.
func sample() *Delivery {
	c, _, _ := parse([]byte(sampled))
	at := time.Unix(1_700_000_000, 5)
	return &Delivery{context: c, queue: "q", id: "id", ready: at, leased: at.Add(time.Second), attributes: attributesOf(opDeliver, "q", "id")}
}

func TestSpansReachTheCollectorAsTheyAre(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	c := otlptest.New(t)
	tracer := newExporting(t, c.URL, io.Discard)
	d := sample()
	ended := d.leased.Add(time.Second)
	tracer.deliver(d, end{at: ended, outcome: nacked, failure: "broken"})
	d = sample()
	d.child, d.queue = true, "child"
	tracer.deliver(d, end{at: d.leased, outcome: Acked})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tracer.Counts(); got != (Counts{Exported: 6}) {
		t.Errorf("counted: %+v", got)
	}
	if s := c.Service(); s["service.name"] != "fila" || s["service.version"] != "1.2.3" || s["deployment.environment"] != "test" {
		t.Errorf("the service: %v", s)
	}
	spans := map[string]otlptest.Span{}
	for _, s := range c.Spans() {
		spans[s.Name] = s
	}
	deliver, wait, lease := spans["deliver q"], spans["wait q"], spans["lease q"]
	for _, x := range []struct {
		span         otlptest.Span
		began, ended time.Time
		parent, link string
		failure      string
	}{
		{deliver, d.ready, ended, "", traceID + "-" + spanID, ""},
		{wait, d.ready, d.leased, deliver.ID, "", ""},
		{lease, d.leased, ended, deliver.ID, "", "broken"},
	} {
		if s := x.span; !s.Began.Equal(x.began) || !s.Ended.Equal(x.ended) || s.Parent != x.parent || s.Link != x.link || s.Error != x.failure || s.Failed != (x.failure != "") {
			t.Errorf("%+v, want %+v", s, x)
		}
		if x.span.Trace != deliver.Trace || x.span.Trace == traceID || x.span.Server {
			t.Errorf("%s is of trace %s", x.span.Name, x.span.Trace)
		}
	}
	if s := spans["deliver child"]; s.Trace != traceID || s.Parent != spanID || s.Link != "" {
		t.Errorf("as a child: %+v", s)
	}
}

func TestACollectorThatHangsHoldsUpNothing(t *testing.T) {
	c := otlptest.New(t)
	c.Hang(true)
	tracer := newExporting(t, c.URL, io.Discard)
	const n = queueMax // deliveries of three spans each
	for range n {
		d := sample()
		tracer.deliver(d, end{at: d.leased, outcome: Acked})
	}
	const fit = queueMax / 3 * 3
	if got := tracer.Counts(); got != (Counts{Dropped: 3*n - fit}) {
		t.Errorf("counted: %+v, want %d dropped", got, 3*n-fit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := tracer.Close(ctx); err == nil {
		t.Error("the spans have reached a collector that hangs")
	}
}

func TestWhatTheCollectorRefusesIsCountedAndLoggedOnce(t *testing.T) {
	c := otlptest.New(t)
	c.Answer(http.StatusBadRequest)
	var log strings.Builder
	tracer := newExporting(t, c.URL, &log)
	for range batchMax {
		d := sample()
		tracer.deliver(d, end{at: d.leased, outcome: Acked})
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tracer.Counts(); got != (Counts{Failed: 3 * batchMax}) {
		t.Errorf("counted: %+v", got)
	}
	if n := strings.Count(log.String(), "does not take spans"); n != 1 || c.Requests() < 3 {
		t.Errorf("%d lines for %d requests: %s", n, c.Requests(), &log)
	}
}

func TestAnEndpointMayNameThePath(t *testing.T) {
	c := otlptest.New(t)
	for _, path := range []string{"", "/", "/v1/traces"} {
		tracer := newExporting(t, c.URL+path, io.Discard)
		d := sample()
		tracer.deliver(d, end{at: d.leased, outcome: Acked})
		if err := tracer.Close(t.Context()); err != nil || tracer.Counts().Exported != 3 {
			t.Errorf("%q: %v, %+v", path, err, tracer.Counts())
		}
	}
	if none, err := New(Config{}); none != nil || err != nil {
		t.Errorf("without an endpoint: %v, %v", none, err)
	}
}

// A connection that ends a delivery hands its spans over as they are; they are encoded elsewhere.
// A budget of allocations, as in package commands.
func TestEndingADeliveryAllocatesWithinItsBudget(t *testing.T) {
	const budget = 8
	tracer := newTracer(Config{})
	tracer.out = discard{}
	d := *sample()
	if n := testkit.Allocations(100, func() {
		again := d
		tracer.deliver(&again, end{at: again.leased, outcome: Acked})
	}); n > budget {
		t.Errorf("%v allocations, the budget is %d", n, budget)
	}
}

type discard struct{}

func (discard) send(*span)                  {}
func (discard) close(context.Context) error { return nil }

// What the three spans of a delivery cost the connection that ends it.
func BenchmarkDelivery(b *testing.B) {
	tracer, err := New(Config{Endpoint: "http://127.0.0.1:1", Ratio: 1, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		d := sample()
		tracer.deliver(d, end{at: d.leased, outcome: Acked})
	}
}
