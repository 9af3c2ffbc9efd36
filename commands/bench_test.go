//go:build !race

package commands

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/resp"
)

// What the hot commands may allocate on their connection, in counts: these hold on
// every machine, as times do not. A change that makes one cheaper lowers its budget; one that needs
// more says why in the commit. The race detector allocates on its own.

func TestParsingAllocatesWithinItsBudget(t *testing.T) {
	payload := string(make([]byte, 256))
	for _, x := range []struct {
		name   string
		budget float64
		args   []string
	}{
		// The call, and the record that the loop is given; options are lists.
		{"enqueue", 2, []string{"FILA.ENQUEUE", "orders", payload, "KEY", "tenant-1"}},
		{"enqueue with options", 4, []string{"FILA.ENQUEUE", "orders", payload, "KEY", "tenant-1", "WEIGHT", "3", "THROTTLE", "lane", "HEADER", "trace", "7f3a"}},
		{"lease", 1, []string{"FILA.LEASE", "orders", "COUNT", "16", "BLOCK", "5000"}},
		{"ack", 1, []string{"FILA.ACK", "orders", "0194f3b0-0000-7000-8000-000000000000:1"}},
	} {
		n := parsing(t, x.args)
		for range 4 { // in some sessions two of the names share a place of their cache, by chance
			n = min(n, parsing(t, x.args))
		}
		if n > x.budget {
			t.Errorf("%s: %v allocations, the budget is %v", x.name, n, x.budget)
		}
	}
}

// parsing counts the allocations of a command in a session of its own.
func parsing(t *testing.T, args []string) float64 {
	t.Helper()
	s := newServer(t, nil)
	c := s.connect("").session
	words := commandsOf(args)[0].Args
	return testkit.Allocations(200, func() {
		cmd, rest, err := c.handler.table.Lookup(words)
		if err != nil {
			t.Fatal(err)
		}
		if err = c.in.Scan(&cmd.Syntax, rest); err != nil {
			t.Fatal(err)
		}
		call, err := cmd.Spec.Parse(c, &c.in)
		if p, ok := call.(preparer); ok && err == nil {
			err = p.Prepare(c)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestRenderingAllocatesWithinItsBudget(t *testing.T) {
	s := newServer(t, nil)
	for _, x := range []struct {
		name   string
		budget float64
		call   call
	}{
		{"enqueue", 0, &enqueueCall{}},
		{"lease of 16", 49, leaseOf16(t, s)},
		{"ack", 0, &ackCall{}},
	} {
		var w resp.Writer // it keeps what is written: now and then it grows, less than once a run
		n := testkit.Allocations(200, func() {
			if err := x.call.Render(s.handler, &w); err != nil {
				t.Fatal(err)
			}
		})
		if n > x.budget {
			t.Errorf("%s: %v allocations, the budget is %v", x.name, n, x.budget)
		}
	}
}

// The hot commands apart from the engine: find, scan, parse and prepare; then
// render.

func benchmarkParse(b *testing.B, args ...string) {
	b.Helper()
	s := newServer(b, nil)
	c := s.connect("").session
	words := commandsOf(args)[0].Args
	b.ReportAllocs()
	for b.Loop() {
		cmd, rest, err := c.handler.table.Lookup(words)
		if err != nil {
			b.Fatal(err)
		}
		if err = c.in.Scan(&cmd.Syntax, rest); err != nil {
			b.Fatal(err)
		}
		call, err := cmd.Spec.Parse(c, &c.in)
		if p, ok := call.(preparer); ok && err == nil {
			err = p.Prepare(c)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseEnqueue(b *testing.B) {
	benchmarkParse(b, "FILA.ENQUEUE", "orders", string(make([]byte, 256)))
}

func BenchmarkParseEnqueueOptions(b *testing.B) {
	benchmarkParse(b, "FILA.ENQUEUE", "orders", string(make([]byte, 224)), "KEY", "tenant-1", "WEIGHT", "3", "HEADER", "trace", "7f3a")
}

// What two throttles cost beside the same message without.
func BenchmarkParseEnqueueThrottles(b *testing.B) {
	args := []string{"FILA.ENQUEUE", "orders", string(make([]byte, 224)), "KEY", "tenant-1"}
	b.Run("none", func(b *testing.B) { benchmarkParse(b, args...) })
	b.Run("two", func(b *testing.B) {
		benchmarkParse(b, append(args, "THROTTLE", "provider:x", "THROTTLE", "tenant:1")...)
	})
}

func BenchmarkParseLease(b *testing.B) {
	benchmarkParse(b, "FILA.LEASE", "orders", "COUNT", "16", "BLOCK", "5000")
}

func BenchmarkParseAck(b *testing.B) {
	benchmarkParse(b, "FILA.ACK", "orders", "0194f3b0-0000-7000-8000-000000000000:1")
}

func BenchmarkRenderEnqueue(b *testing.B) {
	var c enqueueCall
	benchmarkRender(b, newServer(b, nil), &c)
}

// leased keeps what a lease hands out.
type leased struct{ *leaseCall }

func BenchmarkRenderLease(b *testing.B) {
	s := newServer(b, nil)
	benchmarkRender(b, s, leaseOf16(b, s))
}

// leaseOf16 is a lease that has got 16 messages.
func leaseOf16(t testing.TB, s *server) leased {
	t.Helper()
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	for range 16 {
		s.do(t, "FILA.ENQUEUE", "orders", string(make([]byte, 224)), "KEY", "tenant-1", "HEADER", "trace", "7f3a")
	}
	c := leased{&leaseCall{
		session: s.connect("").session,
		account: s.connect("").session.login.account.Load(),
		req:     engine.LeaseRequest{Queues: []string{"orders"}, Count: 16, Block: -1},
	}}
	s.Submit([]*engine.Task{{Call: c}})
	if len(c.deliveries) != 16 {
		t.Fatal(len(c.deliveries))
	}
	return c
}

func BenchmarkRenderAck(b *testing.B) { benchmarkRender(b, newServer(b, nil), &ackCall{}) }

func benchmarkRender(b *testing.B, s *server, c call) {
	b.Helper()
	var w resp.Writer
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := c.Render(s.handler, &w); err != nil {
			b.Fatal(err)
		}
		if n++; n%64 == 0 { // as large as the buffer of a connection gets
			w.Take()
		}
	}
}

func BenchmarkPipelineOfPings(b *testing.B) {
	s := newServer(b, nil)
	c := s.connect("")
	read := make([][]string, 16)
	for i := range read {
		read[i] = []string{"PING"}
	}
	cmds := commandsOf(read...)
	b.ReportAllocs()
	for b.Loop() {
		c.session.Handle(cmds)
		c.flush()
		c.out.Reset()
	}
}

// What asking for rights costs a command: nothing is to be seen of it for a user
// without restrictions, beside the scan that both have in common.
func BenchmarkCheck(b *testing.B) {
	for name, rules := range map[string]string{
		"unrestricted": "user default on nopass ~* +@all", "restricted": "user default on nopass %R~other* %W~mails %W~orders* +@produce",
	} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, func(c *Config) { c.Users = []string{rules} })
			c := s.connect("").session
			words := commandsOf([]string{"FILA.ENQUEUE", "orders", "hello"})[0].Args
			b.ReportAllocs()
			for b.Loop() {
				cmd, rest, err := c.handler.table.Lookup(words)
				if err == nil {
					err = c.check(cmd, rest)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("scan alone", func(b *testing.B) {
		c := newServer(b, nil).connect("").session
		words := commandsOf([]string{"FILA.ENQUEUE", "orders", "hello"})[0].Args
		for b.Loop() {
			cmd, rest, err := c.handler.table.Lookup(words)
			if err == nil {
				err = c.in.Scan(&cmd.Syntax, rest)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// tracer returns a tracer whose spans are received and thrown away.
func tracer(t testing.TB, now func() time.Time) *tracing.Tracer {
	t.Helper()
	discard := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })) //nolint:errcheck // the rest of a request that was cancelled
	t.Cleanup(discard.Close)
	on, err := tracing.New(tracing.Config{Endpoint: discard.URL, Ratio: 1, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// cycler takes messages through a server: enqueued one by one, then leased and acked together.
type cycler struct {
	*server
	session *fakeConn
	words   [][][]byte // of the enqueues of a cycle
}

// newCycler returns one of n messages a cycle, with a header each; every sampledEach-th is
// sampled, none if it is 0.
func newCycler(t testing.TB, n, sampledEach int, on bool) *cycler {
	t.Helper()
	c := &cycler{server: newServer(t, func(c *Config) {
		if on {
			c.Tracer = tracer(t, c.Now)
		}
	})}
	c.session = c.connect("")
	c.session.do("FILA.QUEUE", "CREATE", "q")
	for i := range n {
		value := unsampled
		if sampledEach > 0 && i%sampledEach == 0 {
			value = sampled
		}
		c.words = append(c.words, wordsOf([]string{"FILA.ENQUEUE", "q", "hello", "KEY", fmt.Sprint("tenant-", i%8), "HEADER", "traceparent", value}))
	}
	return c
}

// cycle takes the messages through the server once.
func (c *cycler) cycle(t testing.TB) {
	t.Helper()
	for _, words := range c.words {
		c.session.session.Handle([]resp.Command{{Args: words}})
	}
	c.settle()
	c.session.out.Reset()
	v, _, err := decode(c.session.do("FILA.LEASE", "q", "COUNT", fmt.Sprint(len(c.words))))
	if err != nil || len(v.items) != len(c.words) {
		t.Fatalf("%d messages leased, want %d, %v", len(v.items), len(c.words), err)
	}
	ack := make([]string, 0, 2+len(v.items))
	ack = append(ack, "FILA.ACK", "q")
	for _, item := range v.items {
		ack = append(ack, item.items[0].text)
	}
	if got := c.session.do(ack...); got != fmt.Sprintf(":%d\r\n", len(c.words)) {
		t.Fatal(got)
	}
	c.Advance(time.Millisecond)
}

// Switched off, tracing allocates nothing for any command; switched on, nothing for messages
// that are not sampled.
func TestTracingAllocatesOnlyForSampledMessages(t *testing.T) {
	const messages = 64
	// The least of several servers: what their maps allocate depends on the seeds of the hashes, up to
	// half an allocation a message.
	allocations := func(sampledEach int, on bool) float64 {
		least := math.Inf(1)
		for range testkit.Rounds {
			c := newCycler(t, messages, sampledEach, on)
			for range 20 {
				c.cycle(t)
			}
			least = min(least, testing.AllocsPerRun(20, func() { c.cycle(t) })/messages)
		}
		return least
	}
	off := allocations(1, false)
	for name, n := range map[string]float64{"switched off, no message sampled": allocations(0, false), "switched on, no message sampled": allocations(0, true)} {
		if n > off+0.5 { // one more for each enqueue would be 1
			t.Errorf("%s: %.2f allocations a message, want %.2f", name, n, off)
		}
	}
	if on := allocations(1, true); on < off+10 {
		t.Errorf("all sampled: %.2f allocations a message beside %.2f: the test sees no spans", on, off)
	}
}

// What a command pays for the question whether tracing is on.
func TestACommandAsksOnceWhetherTracingIsOn(t *testing.T) {
	s := newServer(t, nil)
	p := &pending{session: s.connect("").session, call: &ackCall{}}
	if n := testkit.Allocations(100, p.trace); n != 0 || p.traced {
		t.Errorf("%v allocations, traced: %v", n, p.traced)
	}
}

// The processor time of the commands and the loop, without sockets and disk, so the shares are
// larger than those of a broker. That of the collector is in it: it only reads.
func BenchmarkTracingAgainstNone(b *testing.B) {
	for _, x := range []struct {
		name        string
		sampledEach int
	}{{"none-sampled", 0}, {"1-in-100", 100}, {"all-sampled", 1}} {
		b.Run(x.name, func(b *testing.B) {
			const messages, turns = 100, 8
			off, on := newCycler(b, messages, x.sampledEach, false), newCycler(b, messages, x.sampledEach, true)
			var took [2]time.Duration
			for n := range turns {
				for i, c := range []*cycler{off, on} {
					began := processorTime(b)
					for range b.N/turns + 1 {
						c.cycle(b)
					}
					if t := c.handler.cfg.Tracer; t != nil && n == turns-1 {
						if err := t.Close(b.Context()); err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(float64(t.Counts().Dropped), "dropped")
					}
					took[i] += processorTime(b) - began
				}
			}
			b.ReportMetric(100*(float64(took[1])/float64(took[0])-1), "%more")
			b.ReportMetric(float64(took[0].Nanoseconds())/float64(messages*turns*(b.N/turns+1)), "ns/message")
		})
	}
}

// processorTime returns what the process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
