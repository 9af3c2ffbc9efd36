// Package otlptest is an OpenTelemetry collector for tests: it takes spans over HTTP and keeps
// them.
package otlptest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was received. Ids are hexadecimal.
type Span struct {
	Name              string
	Trace, ID, Parent string
	Link              string // "<trace>-<span>" of its only link; "": it has none
	Server            bool   // of kind server; else internal
	Began, Ended      time.Time
	Failed            bool
	Error             string            // if it has failed
	Attributes        map[string]string // numbers in decimal
}

// Collector receives spans. Its methods may be called from any goroutine.
type Collector struct {
	URL string

	mu       sync.Mutex
	hang     chan struct{} // requests wait for its end; nil: they do not
	status   int
	requests int
	spans    []Span
	service  map[string]string
}

// New starts a collector that ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{status: http.StatusOK}
	server := httptest.NewServer(c)
	c.URL = server.URL
	t.Cleanup(func() {
		c.Hang(false)
		server.Close()
	})
	return c
}

// Hang makes requests wait, or ends their wait.
func (c *Collector) Hang(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hang != nil {
		close(c.hang)
	}
	if c.hang = nil; yes {
		c.hang = make(chan struct{})
	}
}

// Answer sets the status of all further answers. Spans are kept only with 200.
func (c *Collector) Answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Spans returns the spans so far, by the time at which they began.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return a.Began.Compare(b.Began) })
	return all
}

// Requests returns how many requests have come.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Service returns the attributes of the service that has sent spans.
func (c *Collector) Service() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.service
}

// ServeHTTP takes an export.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var got collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &got) != nil {
		http.Error(w, "no traces in "+r.URL.Path, http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if hang := c.hang; hang != nil {
		c.mu.Unlock()
		<-hang
		c.mu.Lock()
	}
	if c.status != http.StatusOK {
		w.WriteHeader(c.status)
		return
	}
	for _, resource := range got.GetResourceSpans() {
		c.service = attributes(resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, received(s))
			}
		}
	}
}

func received(s *trace.Span) Span {
	at := func(nanos uint64) time.Time { return time.Unix(0, int64(nanos)) }
	out := Span{
		Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Server: s.GetKind() == trace.Span_SPAN_KIND_SERVER, Began: at(s.GetStartTimeUnixNano()), Ended: at(s.GetEndTimeUnixNano()),
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR, Error: s.GetStatus().GetMessage(), Attributes: attributes(s.GetAttributes()),
	}
	for _, l := range s.GetLinks() {
		out.Link += hex.EncodeToString(l.GetTraceId()) + "-" + hex.EncodeToString(l.GetSpanId())
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return all
}
