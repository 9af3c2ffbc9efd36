//go:build !notrace

package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	about "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

const (
	// queueMax bounds the spans that wait for the collector, those on their way included.
	queueMax = 8192
	// batchMax is how many spans make a batch that does not wait for more.
	batchMax = 512
	// batchDelay is how long a span waits for others.
	batchDelay = time.Second
	// exportTimeout bounds one request to the collector, with its repetitions.
	exportTimeout = 10 * time.Second
)

// otlp sends spans with OpenTelemetry's client of OTLP over HTTP, in batches. The spans of the
// SDK are not used: all that is known of a span is known when it is made, and to build each
// with the SDK first takes as much time again as to send it, on the goroutine of a connection.
type otlp struct {
	client otlptrace.Client
	log    zerolog.Logger
	n      *counters

	room  atomic.Int64 // spans that may still be added
	queue chan *span   // has room for as many: adding to it never waits
	stop  chan struct{}
	ended chan struct{} // run has returned
	once  sync.Once
	abort context.CancelFunc // ends a request under way

	service *about.Resource
	scope   *common.InstrumentationScope
	away    bool // the last batch did not reach the collector
}

// newSink returns a sink that sends to the endpoint of the configuration.
func newSink(cfg *Config, n *counters) (sink, error) {
	to, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	if to.Path == "" || to.Path == "/" {
		to.Path = "/v1/traces"
	}
	ctx, abort := context.WithCancel(context.Background())
	o := &otlp{
		client: otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(to.String()), otlptracehttp.WithTimeout(exportTimeout),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTimeout / 2, MaxElapsedTime: exportTimeout})),
		log: cfg.Log, n: n, queue: make(chan *span, queueMax), stop: make(chan struct{}), ended: make(chan struct{}), abort: abort,
		scope: &common.InstrumentationScope{Name: "github.com/faisca/fila", Version: cfg.Version},
	}
	o.room.Store(queueMax)
	if err := o.client.Start(ctx); err != nil {
		abort()
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	// What comes later overrides: the environment has the last word on the service.
	service, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", System), attribute.String("service.version", cfg.Version)), resource.WithFromEnv())
	if err != nil {
		cfg.Log.Warn().Err(err).Msg("tracing: a part of what describes this service is missing")
	}
	o.service = &about.Resource{}
	for _, a := range service.Attributes() {
		o.service.Attributes = append(o.service.Attributes, textValue(string(a.Key), a.Value.String()))
	}
	go o.run(ctx)
	return o, nil
}

// send implements sink.
func (o *otlp) send(s *span) {
	n := int64(s.count())
	if o.room.Add(-n) < 0 {
		o.room.Add(n)
		o.n.dropped.Add(uint64(n))
		return
	}
	o.queue <- s
}

// close implements sink.
func (o *otlp) close(ctx context.Context) error {
	o.once.Do(func() { close(o.stop) })
	defer o.abort()
	select {
	case <-o.ended:
		return o.client.Stop(ctx)
	case <-ctx.Done():
		return fmt.Errorf("tracing: spans have not reached the collector: %w", ctx.Err())
	}
}

// run sends batches until close, and then what is left.
func (o *otlp) run(ctx context.Context) {
	defer close(o.ended)
	tick := time.NewTicker(batchDelay)
	defer tick.Stop()
	var batch []*trace.Span
	export := func() {
		if len(batch) > 0 {
			o.export(ctx, batch)
			batch = nil
		}
	}
	add := func(s *span) {
		if batch = appendSpan(batch, s, nil, nil); len(batch) >= batchMax {
			export()
		}
	}
	for {
		select {
		case s := <-o.queue:
			add(s)
		case <-tick.C:
			export()
		case <-o.stop:
			for {
				select {
				case s := <-o.queue:
					add(s)
				default:
					export()
					return
				}
			}
		}
	}
}

// export sends a batch, and counts what has become of it.
func (o *otlp) export(ctx context.Context, batch []*trace.Span) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	err := o.client.UploadTraces(ctx, []*trace.ResourceSpans{{
		Resource: o.service, ScopeSpans: []*trace.ScopeSpans{{Scope: o.scope, Spans: batch}},
	}})
	o.room.Add(int64(len(batch)))
	if err == nil {
		o.n.exported.Add(uint64(len(batch)))
		if o.away {
			o.log.Info().Msg("tracing: the collector takes spans again")
		}
		o.away = false
		return
	}
	o.n.failed.Add(uint64(len(batch)))
	if !o.away {
		o.log.Warn().Err(err).Msg("tracing: the collector does not take spans; they are dropped and counted until it does")
	}
	o.away = true
}

// The flags of a span: it is sampled, and whether its parent is in another process is known.
const (
	flags       = uint32(trace.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK) | 1
	flagsRemote = flags | uint32(trace.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
)

// appendSpan appends a span and those within it, as they are sent. in and parent are the ids
// of the trace and of the span around it; nil: there is none.
func appendSpan(list []*trace.Span, s *span, in, parent []byte) []*trace.Span {
	out := &trace.Span{
		SpanId: binary.BigEndian.AppendUint64(nil, rand.Uint64()), Name: s.name(), Kind: trace.Span_SPAN_KIND_INTERNAL, Flags: flags,
		StartTimeUnixNano: uint64(s.began.UnixNano()), EndTimeUnixNano: uint64(s.ended.UnixNano()),
		Attributes: make([]*common.KeyValue, 0, len(s.attributes)),
	}
	if s.server {
		out.Kind = trace.Span_SPAN_KIND_SERVER
	}
	switch {
	case s.parent != nil:
		in, parent, out.Flags = s.parent.Trace[:], s.parent.Span[:], flagsRemote
	case in == nil:
		in = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rand.Uint64()), rand.Uint64())
	}
	out.TraceId, out.ParentSpanId = in, parent
	if s.link != nil {
		out.Links = []*trace.Span_Link{{TraceId: s.link.Trace[:], SpanId: s.link.Span[:], Flags: flagsRemote}}
	}
	if s.failure != "" {
		out.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: s.failure}
	}
	for i := range s.attributes {
		a := &s.attributes[i]
		if a.numeric {
			out.Attributes = append(out.Attributes, &common.KeyValue{Key: a.name, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: a.number}}})
		} else {
			out.Attributes = append(out.Attributes, textValue(a.name, a.text))
		}
	}
	list = append(list, out)
	for i := range s.within {
		list = appendSpan(list, &s.within[i], in, out.SpanId)
	}
	return list
}

func textValue(name, value string) *common.KeyValue {
	return &common.KeyValue{Key: name, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}
