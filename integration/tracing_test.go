package integration_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/ops/otlptest"
	"github.com/faisca/fila/internal/testkit"
)

const (
	producerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	producerSpan  = "00f067aa0ba902b7"
)

// traced is a broker whose spans go to a collector, and a client.
type traced struct {
	*testing.T
	*redis.Client
	collector *otlptest.Collector
	hang      func() // makes the collector hang that the broker sends to
}

// newTraced starts a broker that sends its spans to a collector of this process; with
// TEST_COLLECTOR, to the OpenTelemetry collector of that path, which sends them on to the former.
func newTraced(t *testing.T, args ...string) *traced {
	t.Helper()
	c := otlptest.New(t)
	url, hang := c.URL, func() { c.Hang(true) }
	if path := os.Getenv("TEST_COLLECTOR"); path != "" {
		url, hang = relay(t, path, c.URL)
	}
	addr := kit.Serve(t, append([]string{"--tracing.endpoint", url, "--scheduler.backoff_ms", "0"}, args...)...).Addr()
	r := &traced{T: t, Client: kit.Connect(t, addr, 3), collector: c, hang: hang}
	r.do("FILA.QUEUE", "CREATE", "orders", "MAXATTEMPTS", "2")
	return r
}

// relay starts an OpenTelemetry collector that sends on what it receives at url, without
// gathering or trying again. hang stops its process.
func relay(t *testing.T, path, to string) (url string, hang func()) {
	t.Helper()
	addr := kit.Reserve(t)
	config := filepath.Join(t.TempDir(), "collector.yaml")
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: %s}}}}
exporters: {otlp_http: {endpoint: %s, compression: none, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
`, addr, to)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(t.Context(), path, "--config", config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (make test-collector builds it)", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may hang
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the collector said\n%s", log.String())
		}
	})
	testkit.Eventually(t, "the collector listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err == nil
	})
	return "http://" + addr, func() {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	}
}

func (r *traced) do(args ...any) any {
	r.Helper()
	v, err := r.Client.Do(r.Context(), args...).Result()
	if err != nil {
		r.Fatalf("%v: %v", args, err)
	}
	return v
}

func (r *traced) enqueue() {
	r.Helper()
	r.do("FILA.ENQUEUE", "orders", "hello", "KEY", "tenant-1", "HEADER", "traceparent", "00-"+producerTrace+"-"+producerSpan+"-01")
}

// lease leases the next message and returns its receipt.
func (r *traced) lease(visibility int) any {
	r.Helper()
	messages, _ := r.do("FILA.LEASE", "orders", "BLOCK", testkit.Patience().Milliseconds()/2, "VISIBILITY", visibility, "CONSUMER", "worker-1").([]any)
	if len(messages) != 1 {
		r.Fatalf("leased %v", messages)
	}
	message, _ := messages[0].([]any)
	return message[0]
}

// spans waits for the spans of as many deliveries, each with its wait and its lease, and of as
// many enqueues.
func (r *traced) spans(enqueues, deliveries int) (all map[string][]otlptest.Span) {
	r.Helper()
	testkit.Eventually(r.T, "all spans have come", func() bool {
		all = map[string][]otlptest.Span{}
		for _, s := range r.collector.Spans() {
			name, queue, _ := strings.Cut(s.Name, " ")
			if queue != "orders" || s.Attributes["messaging.system"] != "fila" {
				r.Fatalf("span %+v", s)
			}
			all[name] = append(all[name], s)
		}
		return len(all["enqueue"]) == enqueues && len(all["deliver"]) == deliveries && len(all["wait"]) == deliveries && len(all["lease"]) == deliveries
	})
	return all
}

// Every way in which a delivery may end, one after the other, of one message.
func TestAProducersTraceGoesOnInTheBroker(t *testing.T) {
	t.Parallel()
	r := newTraced(t)
	before := time.Now()
	r.enqueue()
	durable := time.Now()
	r.do("FILA.NACK", "orders", r.lease(60_000), "ERROR", "broken", "DELAY", 300)
	retried := time.Now()
	r.do("FILA.RELEASE", "orders", r.lease(60_000))
	r.lease(200) // the second failure, which expires: the message is dead
	testkit.Eventually(t, "a dead message is redriven", func() bool { return r.do("FILA.REDRIVE", "orders.dlq") == int64(1) })
	redriven := time.Now()
	receipt := r.lease(60_000)
	r.do("FILA.EXTEND", "orders", receipt, 120_000)
	r.do("FILA.ACK", "orders", receipt)
	after := time.Now()

	all := r.spans(1, 4)
	if s := all["enqueue"][0]; !s.Server || s.Trace != producerTrace || s.Parent != producerSpan || s.Began.Before(before) || s.Ended.After(durable) || !s.Ended.After(s.Began) {
		t.Errorf("enqueue: %+v, between %v and %v", s, before, durable)
	}
	for i, want := range []struct {
		outcome, failure, dlq, attempt string
	}{
		{"nacked", "broken", "", "1"}, {"released", "", "", "2"}, {"expired", "the lease expired", "orders.dlq", "2"}, {"acked", "", "", "1"},
	} {
		deliver, wait, lease := all["deliver"][i], all["wait"][i], all["lease"][i]
		got := deliver.Attributes
		if got["fila.outcome"] != want.outcome || got["fila.dlq"] != want.dlq || got["fila.attempt"] != want.attempt || got["fila.key"] != "tenant-1" || got["messaging.message.body.size"] != "5" {
			t.Errorf("delivery %d: %v, want %+v", i, got, want)
		}
		if deliver.Trace == producerTrace || deliver.Parent != "" || deliver.Link != producerTrace+"-"+producerSpan || deliver.Server {
			t.Errorf("delivery %d is no trace of its own with a link: %+v", i, deliver)
		}
		if wait.Parent != deliver.ID || lease.Parent != deliver.ID || wait.Trace != deliver.Trace || lease.Trace != deliver.Trace {
			t.Errorf("delivery %d: wait and lease are not within it", i)
		}
		if !wait.Began.Equal(deliver.Began) || !wait.Ended.Equal(lease.Began) || !lease.Ended.Equal(deliver.Ended) || lease.Ended.Before(lease.Began) || wait.Ended.Before(wait.Began) {
			t.Errorf("delivery %d: %v to %v, wait %v to %v, lease %v to %v", i, deliver.Began, deliver.Ended, wait.Began, wait.Ended, lease.Began, lease.Ended)
		}
		if lease.Failed != (want.failure != "") || lease.Error != want.failure || lease.Attributes["messaging.client.id"] != "worker-1" {
			t.Errorf("delivery %d: lease %+v", i, lease)
		}
	}
	d := all["deliver"]
	for i, x := range []struct{ at, from, to time.Time }{
		{d[0].Began, before, durable},
		{d[1].Began, d[0].Ended.Add(300 * time.Millisecond), retried.Add(time.Hour)}, // ready after its delay
		{d[2].Began, d[1].Began, d[2].Ended},
		{d[2].Ended, all["lease"][2].Began.Add(200 * time.Millisecond), redriven},
		{d[3].Began, d[2].Ended, redriven},
		{d[3].Ended, redriven, after},
	} {
		if x.at.Before(x.from) || x.at.After(x.to) {
			t.Errorf("time %d is %v, want from %v to %v", i, x.at, x.from, x.to)
		}
	}
}

func TestADeliveryMayBeAChildOfTheProducersSpan(t *testing.T) {
	t.Parallel()
	r := newTraced(t, "--tracing.relation", "parent")
	r.enqueue()
	r.do("FILA.ACK", "orders", r.lease(60_000))
	if s := r.spans(1, 1)["deliver"][0]; s.Trace != producerTrace || s.Parent != producerSpan || s.Link != "" {
		t.Errorf("%+v", s)
	}
}

// A collector that hangs holds up neither clients nor the stop, which serve checks.
func TestACollectorThatHangsHoldsUpNoClient(t *testing.T) {
	t.Parallel()
	r := newTraced(t)
	r.hang()
	const messages = 3000 // four spans each: more than may wait
	for range messages {
		r.enqueue()
	}
	for acked := 0; acked < messages; {
		leased, _ := r.do("FILA.LEASE", "orders", "COUNT", 100, "BLOCK", testkit.Patience().Milliseconds()).([]any)
		ack := []any{"FILA.ACK", "orders"}
		for _, m := range leased { // as many as are in memory, at most 100
			message, _ := m.([]any)
			ack = append(ack, message[0])
		}
		if n := r.do(ack...); len(leased) == 0 || n != int64(len(leased)) {
			t.Fatalf("%v of %d acked", n, len(leased))
		}
		acked += len(leased)
	}
	info := fmt.Sprint(r.do("INFO", "stats"))
	if !regexp.MustCompile(`tracing_spans_dropped:[1-9]`).MatchString(info) || !strings.Contains(info, "tracing_spans_exported:0\r\n") {
		t.Errorf("spans are not counted as dropped: %s", info)
	}
}

func TestABrokerServesWithoutItsCollector(t *testing.T) {
	t.Parallel()
	r := newTraced(t)
	r.collector.Answer(http.StatusServiceUnavailable)
	r.enqueue()
	r.do("FILA.ACK", "orders", r.lease(60_000))
	testkit.Eventually(t, "spans are sent", func() bool { return r.collector.Requests() > 0 })
	if got := r.do("PING"); got != "PONG" {
		t.Errorf("PING answers %v", got)
	}
}

// The recipes of docs/how-to/tracing.md are run as they are printed, but for the port: what their
// workers find in the header is what their producers have sent, and what the broker's own
// span belongs to.
func TestTheRecipesForTracesAreTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "tracing.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		language, file string
		run            []string
	}{
		{"go", "main.go", []string{"go", "run", "-buildvcs=false"}},
		{"python", "recipe.py", []string{"/usr/bin/python3"}},
		{"js", "recipe.mjs", []string{"node"}},
	} {
		t.Run(x.language, func(t *testing.T) {
			r := newTraced(t)
			code := regexp.MustCompile("(?s)\n```"+x.language+"\n(.*?)```").FindAllSubmatch(text, -1)
			if len(code) != 1 {
				t.Fatalf("%d programs in docs/how-to/tracing.md", len(code))
			}
			dir := moduleDir(t)
			if x.language == "js" {
				suits := exec.CommandContext(t.Context(), "node", "suits.cjs", "ioredis")
				suits.Dir = filepath.Join("clients", "javascript")
				if out, err := suits.CombinedOutput(); err != nil {
					leftOut(t, fmt.Sprintf("the recipe for Node.js cannot be tried; make setup-tests installs ioredis, or says why not (%v)\n%s", err, out))
				}
			}
			file := filepath.Join(dir, x.file)
			_, port, _ := strings.Cut(r.Options().Addr, ":")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(code[0][1]), "5555", port)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), x.run[0], append(x.run[1:], x.file)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v (make setup-tests installs what it needs)\n%s", err, out)
			}
			s := r.spans(1, 1)
			span := strings.TrimSpace(strings.TrimPrefix(string(out), "from "))
			if parent := s["enqueue"][0].Parent; span != parent {
				t.Errorf("the worker says %q, the broker's span belongs to %q", out, parent)
			}
			if link := s["deliver"][0].Link; !strings.HasSuffix(link, "-"+span) || s["deliver"][0].Attributes["fila.outcome"] != "acked" {
				t.Errorf("the delivery is linked to %q", link)
			}
		})
	}
}

// moduleDir returns a directory of the test with the libraries that recipes use: those of this Go module,
// and those of Node.js that make setup-tests has installed.
func moduleDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("module github.com/faisca/fila\n"), []byte("module example.org/recipe\n"), 1)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	modules, err := filepath.Abs(filepath.Join("clients", "javascript", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}
