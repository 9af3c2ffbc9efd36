//go:build !race

package commands

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/ops/otlptest"
	"github.com/faisca/fila/internal/ops/tracing"
)

// tracedServer is a server whose spans go to a collector.
type tracedServer struct {
	*server
	t         *testing.T
	collector *otlptest.Collector
	tracer    *tracing.Tracer
}

func newTracedServer(t *testing.T) *tracedServer {
	t.Helper()
	s := &tracedServer{t: t, collector: otlptest.New(t)}
	s.server = newServer(t, func(c *Config) {
		var err error
		if s.tracer, err = tracing.New(tracing.Config{Endpoint: s.collector.URL, Ratio: 1, Now: c.Now}); err != nil {
			t.Fatal(err)
		}
		c.Tracer = s.tracer
	})
	s.do(t, "FILA.QUEUE", "CREATE", "q")
	return s
}

// enqueue enqueues a sampled message and returns its id.
func (s *tracedServer) enqueue() string {
	s.t.Helper()
	v, _, err := decode(s.do(s.t, "FILA.ENQUEUE", "q", "hello", "HEADER", "traceparent", sampled))
	if err != nil || v.kind != '$' {
		s.t.Fatalf("%v, %v", v, err)
	}
	return v.text
}

// lease leases n messages on a connection and returns their receipts.
func (s *tracedServer) lease(conn string, n int) (receipts []string) {
	s.t.Helper()
	v, _, err := decode(s.connect(conn).do("FILA.LEASE", "q", "COUNT", fmt.Sprint(n), "CONSUMER", conn))
	if err != nil || len(v.items) != n {
		s.t.Fatalf("%v, %v", v, err)
	}
	for _, item := range v.items {
		receipts = append(receipts, item.items[0].text)
	}
	return receipts
}

// ended sends what waits and returns the spans of an operation, as how long they lasted,
// their outcome and their error. It is called once.
func (s *tracedServer) ended(operation string) (lines []string) {
	s.t.Helper()
	if err := s.tracer.Close(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	for _, span := range s.collector.Spans() {
		if span.Name == operation+" q" {
			lines = append(lines, strings.TrimSpace(fmt.Sprintln(span.Ended.Sub(span.Began), span.Attributes["fila.outcome"], span.Error)))
		}
	}
	return lines
}

func (s *tracedServer) wantEnded(operation string, want ...string) {
	s.t.Helper()
	if got := s.ended(operation); !slices.Equal(got, want) {
		s.t.Errorf("%s: %q, want %q", operation, got, want)
	}
}

func TestEachMessageOfALeaseHasItsSpans(t *testing.T) {
	s := newTracedServer(t)
	for range 3 {
		s.enqueue()
	}
	s.do(t, "FILA.ENQUEUE", "q", "silent", "HEADER", "traceparent", unsampled)
	receipts := s.lease("worker", 4)
	s.Advance(time.Second)
	s.do(t, "FILA.ACK", "q", receipts[0], receipts[3])
	s.Advance(time.Second)
	s.do(t, "FILA.NACK", "q", receipts[1], "ERROR", "broken")
	s.Advance(time.Second)
	s.do(t, "FILA.RELEASE", "q", receipts[2])
	s.wantEnded("lease", "1s acked", "2s nacked broken", "3s released")
	for _, span := range s.collector.Spans() {
		if client := span.Attributes["messaging.client.id"]; span.Name == "lease q" && client != "worker" {
			t.Errorf("leased by %q", client)
		}
	}
	if n := s.tracer.Counts(); n.Exported != 3*4 {
		t.Errorf("counted: %+v", n)
	}
}

func TestATransactionHasTheSpansOfItsCommands(t *testing.T) {
	s := newTracedServer(t)
	first, second := s.enqueue(), s.enqueue()
	exec := func(commands ...[]string) {
		t.Helper()
		s.do(t, "MULTI")
		for _, c := range commands {
			if got := s.do(t, c...); got != "+QUEUED\r\n" {
				t.Fatalf("%q: %q", c, got)
			}
		}
		if got := s.do(t, "EXEC"); strings.HasPrefix(got, "-") {
			t.Fatal(got)
		}
	}
	exec([]string{"FILA.LEASE", "q"}, []string{"FILA.ENQUEUE", "q", "x", "HEADER", "traceparent", sampled}, []string{"FILA.ACK", "q", first})
	s.Advance(time.Second)
	exec([]string{"FILA.LEASE", "q"})
	s.Advance(time.Second)
	exec([]string{"FILA.ACK", "q", first}, []string{"FILA.RELEASE", "q", second})
	s.wantEnded("lease", "0s acked", "1s released")
	enqueued := 0
	for _, span := range s.collector.Spans() {
		if span.Name == "enqueue q" && span.Trace+"-"+span.Parent == tracedBy {
			enqueued++
		}
	}
	if enqueued != 3 {
		t.Errorf("%d enqueues have a span that is a child of the producer's", enqueued)
	}
}

func TestABareReceiptAndOnlyALiveOneEndsADelivery(t *testing.T) {
	s := newTracedServer(t)
	id := s.enqueue()
	receipt := s.lease("worker", 1)[0]
	s.do(t, "FILA.RELEASE", "q", receipt)
	s.Advance(time.Second)
	s.lease("other", 1)
	s.Advance(time.Second)
	s.do(t, "FILA.ACK", "q", receipt) // of the delivery that has ended
	s.Advance(time.Second)
	s.do(t, "FILA.ACK", "q", id)
	s.do(t, "FILA.ACK", "q", id)
	s.wantEnded("lease", "0s released", "2s acked")
}

func TestAnExtendedLeaseIsTracedUntilItsEnd(t *testing.T) {
	s := newTracedServer(t)
	s.enqueue()
	receipt := s.lease("worker", 1)[0]
	s.Advance(20 * time.Second)
	s.do(t, "FILA.EXTEND", "q", receipt, "60000")
	s.Advance(50 * time.Second)
	s.do(t, "FILA.NACK", "q", receipt, "DELAY", "0")
	s.lease("worker", 1)
	s.Advance(31 * time.Second)
	s.settle()
	s.wantEnded("lease", "1m10s nacked nacked", "30s expired the lease expired")
}

// A client that does not wait for its replies has acked all the same.
func TestACommandWithoutAReplyHasItsSpans(t *testing.T) {
	s := newTracedServer(t)
	s.enqueue()
	s.enqueue()
	receipts := s.lease("worker", 2)
	silent := s.connect("silent")
	silent.do("CLIENT", "REPLY", "OFF")
	silent.do("FILA.ACK", "q", receipts[0])
	silent.do("FILA.ENQUEUE", "q", "x", "HEADER", "traceparent", sampled)
	silent.do("FILA.LEASE", "q") // the client does not learn of it, so it is taken back
	gone := s.connect("gone")
	gone.session.Handle(commandsOf([]string{"FILA.ACK", "q", receipts[1]}))
	gone.gone()
	s.settle()
	s.wantEnded("lease", "0s acked", "0s acked")
	if n := s.tracer.Counts(); n.Exported != 3+2*3 {
		t.Errorf("counted: %+v, want three enqueues and two deliveries", n)
	}
}

func TestALeaseThatItsClientDoesNotGetHasNoSpans(t *testing.T) {
	s := newTracedServer(t)
	s.enqueue()
	hasty := s.connect("hasty")
	hasty.session.Handle(commandsOf([]string{"FILA.LEASE", "q"}))
	hasty.gone()
	s.settle()
	s.Advance(time.Second)
	s.do(t, "FILA.ACK", "q", s.lease("worker", 1)[0])
	s.wantEnded("wait", "1s")
}

func TestARefusedEnqueueHasASpanWithItsError(t *testing.T) {
	s := newTracedServer(t)
	s.do(t, "FILA.QUEUE", "PAUSE", "q", "IN")
	if got := s.do(t, "FILA.ENQUEUE", "q", "x", "HEADER", "traceparent", sampled); !strings.HasPrefix(got, "-PAUSED") {
		t.Fatal(got)
	}
	if got := s.ended("enqueue"); len(got) != 1 || !strings.Contains(got[0], "takes no messages now") {
		t.Errorf("%q", got)
	}
}

func TestADeadMessageIsTracedThroughItsRedrive(t *testing.T) {
	s := newTracedServer(t)
	s.enqueue()
	s.Advance(time.Second)
	s.do(t, "FILA.NACK", "q", s.lease("worker", 1)[0], "DEAD")
	s.Advance(time.Second)
	if got := s.do(t, "FILA.REDRIVE", "q.dlq"); got != ":1\r\n" {
		t.Fatal(got)
	}
	s.Advance(2 * time.Second)
	s.do(t, "FILA.ACK", "q", s.lease("worker", 1)[0])
	s.wantEnded("wait", "1s", "2s")
	for _, span := range s.collector.Spans() {
		if dlq := span.Attributes["fila.dlq"]; span.Name == "deliver q" && (dlq == "q.dlq") != (span.Attributes["fila.outcome"] == "nacked") {
			t.Errorf("%+v", span)
		}
	}
}

func TestInfoCountsSpans(t *testing.T) {
	s := newTracedServer(t)
	s.enqueue()
	if err := s.tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.do(t, "INFO", "stats"); !strings.Contains(got, "\r\ntracing_spans_exported:1\r\ntracing_spans_dropped:0\r\ntracing_spans_failed:0\r\n") {
		t.Error(got)
	}
	if got := newServer(t, nil).do(t, "INFO", "stats"); strings.Contains(got, "tracing") {
		t.Errorf("switched off: %s", got)
	}
}
