package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

func TestTheLifeOfAMessageWithGoRedis(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), protocol)
			queue := fmt.Sprintf("orders-%d", protocol)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", queue, "VISIBILITY", 60_000, "MAXATTEMPTS", 2, "BACKOFF", 0)
			payload := string([]byte{0, '\r', '\n', 0xff})
			id := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", queue, payload, "KEY", "acme", "HEADER", "trace", "7f3a"))

			d := one(t, c, queue, "VISIBILITY", 600_000)
			if d.id() != id || d.payload != payload || d.key != "acme" || d.queue != queue || d.attempt != 1 || d.deliveries != 1 || fmt.Sprint(d.headers) != "[trace 7f3a]" {
				t.Errorf("leased %+v", d)
			}
			if since := time.Since(d.enqueuedAt); since < -time.Second || since > testkit.Patience() || d.until.Sub(d.enqueuedAt) < 10*time.Minute {
				t.Errorf("enqueued %s, leased until %s", d.enqueuedAt, d.until)
			}
			if again := lease(t, c, queue); len(again) != 0 {
				t.Errorf("handed out while it is leased: %+v", again)
			}
			until, ok := kit.Do(t, c, "FILA.EXTEND", queue, d.receipt, 660_000).(int64)
			if !ok || time.UnixMilli(until).Before(d.until.Add(30*time.Second)) {
				t.Errorf("extended from %s to %d", d.until, until)
			}
			if n := kit.Do(t, c, "FILA.RELEASE", queue, d.receipt); n != int64(1) {
				t.Errorf("%v released", n)
			}
			failAndDie(t, c, queue)
			if n := kit.Do(t, c, "FILA.REDRIVE", queue+".dlq"); n != int64(1) {
				t.Errorf("%v redriven", n)
			}
			d = one(t, c, queue)
			if d.attempt != 1 || d.payload != payload {
				t.Errorf("after the redrive: %+v", d)
			}
			for _, want := range []int64{1, 0} {
				if n := kit.Do(t, c, "FILA.ACK", queue, d.receipt); n != want {
					t.Errorf("%v acked, want %d", n, want)
				}
			}
			kit.WantStats(t, c, queue, map[string]int64{
				"ready": 0, "delayed": 0, "leased": 0, "enqueued": 1, "delivered": 4, "acked": 1, "nacked": 2, "released": 1, "dead_lettered": 1, "waiters": 0,
			})
			kit.WantStats(t, c, queue+".dlq", map[string]int64{"dead": 0, "leased": 0, "redriven": 1})
		})
	}
}

// failAndDie nacks the queue's message, whose first delivery was released, until it is in the
// dead-letter queue.
func failAndDie(t *testing.T, c *redis.Client, queue string) {
	t.Helper()
	d := one(t, c, queue)
	if d.attempt != 1 || d.deliveries != 2 {
		t.Errorf("after a release: %+v", d)
	}
	if r := kit.Mapped(t, kit.Do(t, c, "FILA.NACK", queue, d.receipt, "ERROR", "it broke", "DELAY", 1)); r["action"] != "retry" || r["attempt"] != int64(2) {
		t.Errorf("the first nack answers %v", r)
	}
	if err := c.Do(t.Context(), "FILA.EXTEND", queue, d.receipt, 1000).Err(); err == nil || !strings.HasPrefix(err.Error(), "LEASELOST ") {
		t.Errorf("a receipt after its lease: %v", err)
	}
	d = one(t, c, queue)
	if d.attempt != 2 || d.deliveries != 3 {
		t.Errorf("after a nack: %+v", d)
	}
	if r := kit.Mapped(t, kit.Do(t, c, "FILA.NACK", queue, d.receipt)); r["action"] != "dlq" || r["dlq"] != queue+".dlq" {
		t.Errorf("the last nack answers %v", r)
	}
	kit.WantStats(t, c, queue, map[string]int64{"ready": 0, "delayed": 0, "leased": 0})
	kit.WantStats(t, c, queue+".dlq", map[string]int64{"dead": 1, "ready": 0})
}

// A waiting lease is answered when a message arrives, promptly, and consumers are served in the
// order in which they began to wait.
func TestAWaitingLeaseIsAnswered(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	got := make([]chan []delivery, 3)
	for i := range got {
		got[i] = make(chan []delivery, 1)
		waiter := kit.Connect(t, b.Addr(), 2+i%2)
		go func() {
			reply, err := waiter.Do(t.Context(), "FILA.LEASE", "q", "BLOCK", 0).Result()
			if err != nil {
				t.Error(err)
			}
			d, err := leased(reply)
			if err != nil {
				t.Error(err)
			}
			got[i] <- d
		}()
		kit.WantStats(t, c, "q", map[string]int64{"waiters": int64(i) + 1})
	}
	for i := range got {
		kit.Do(t, c, "FILA.ENQUEUE", "q", fmt.Sprint(i))
		if d := testkit.Receive(t, fmt.Sprintf("waiter %d gets a message", i), got[i]); len(d) != 1 || d[0].payload != fmt.Sprint(i) {
			t.Errorf("waiter %d got %+v", i, d)
		}
	}
	begun := time.Now()
	if d := lease(t, c, "q", "BLOCK", 100); len(d) != 0 || time.Since(begun) < 100*time.Millisecond {
		t.Errorf("a wait in vain got %+v after %s", d, time.Since(begun))
	}
}

// cli runs redis-cli with a standard input and returns its output and exit code. A test whose options
// the installed redis-cli lacks is skipped, as make setup-tests says.
func cli(t *testing.T, addr, input string, args ...string) (string, int) {
	t.Helper()
	for _, option := range []string{"-e", "--json"} {
		if slices.Contains(args, option) && exec.CommandContext(t.Context(), "redis-cli", option, "--version").Run() != nil {
			leftOut(t, "redis-cli has no "+option+", which 7.0 and newer have")
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-h", host, "-p", port}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("redis-cli (make setup-tests installs it): %v", err)
	}
	return strings.TrimRight(out.String(), "\n"), cmd.ProcessState.ExitCode()
}

// leftOut ends a test that the programs of this system are too old or too new for.
func leftOut(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func TestRedisCli(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	addr := b.Addr()
	if out, code := cli(t, addr, "", "-e", "FILA.QUEUE", "CREATE", "q", "VISIBILITY", "3600000"); out != "OK" || code != 0 {
		t.Fatalf("%s, exit code %d", out, code)
	}
	if out, code := cli(t, addr, "", "-e", "FILA.ENQUEUE", "nosuch", "x"); !strings.HasPrefix(out, "NOQUEUE ") || code != 1 {
		t.Errorf("-e: %s, exit code %d", out, code)
	}
	const payload = "binary\x00safe\r\n"
	if out, code := cli(t, addr, payload, "-x", "FILA.ENQUEUE", "q"); len(out) != 36 || code != 0 {
		t.Errorf("-x: %s, exit code %d", out, code)
	}
	c := kit.Connect(t, addr, 3)
	if d := one(t, c, "q"); d.payload != payload {
		t.Errorf("-x enqueued %q", d.payload)
	}
	kit.Do(t, c, "FILA.ENQUEUE", "q", "hello", "HEADER", "trace", "7f3a")
	if out, _ := cli(t, addr, "", "-3", "--no-raw", "FILA.STATS", "q"); !strings.Contains(out, `"name" => "q"`) || !strings.Contains(out, `"ready" => (integer) 1`) {
		t.Errorf("-3: %s", out)
	}
	out, _ := cli(t, addr, "", "--json", "FILA.LEASE", "q")
	var messages [][]any
	if err := json.Unmarshal([]byte(out), &messages); err != nil || len(messages) != 1 || messages[0][1] != "hello" || fmt.Sprint(messages[0][2]) != "[trace 7f3a]" {
		t.Errorf("--json: %v: %s", err, out)
	}
	out, _ = cli(t, addr, "", "-3", "--json", "FILA.QUEUE", "INFO", "q")
	var info map[string]any
	if err := json.Unmarshal([]byte(out), &info); err != nil || info["name"] != "q" || info["leased"] != 2.0 {
		t.Errorf("-3 --json: %v: %s", err, out)
	}
	if out, code := cli(t, addr, "PING\nFILA.LEASE q\nFILA.ACK q junk\nPING\n"); code != 0 || out != "PONG\n\nBADRECEIPT not a message id or receipt: \"junk\"\n\nPONG" {
		t.Errorf("from a pipe: exit code %d: %q", code, out)
	}
}
