// Package kit has what tests of the running binary share: starting it, alone or as the nodes of a cluster,
// and speaking to it. It is package harness for tests: what goes wrong fails the test, and what is started
// ends with it. Waiting is package testkit's.
package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/testkit"
)

// Binary returns the broker to test, see [harness.Binary].
func Binary(tb testing.TB) string {
	tb.Helper()
	bin, err := harness.Binary(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// Reserve returns an address for a server to listen on, see [harness.Reserve].
func Reserve(tb testing.TB) string {
	tb.Helper()
	addr, err := harness.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}

// Prepare returns a broker with its data below a directory of the test. It starts no process. At the end of
// the test a running one must stop in order, and it must never have panicked.
func Prepare(tb testing.TB, args ...string) *harness.Broker {
	tb.Helper()
	return PrepareIn(tb, tb.TempDir(), args...)
}

// PrepareIn is Prepare with the directory.
func PrepareIn(tb testing.TB, dir string, args ...string) *harness.Broker {
	tb.Helper()
	b, err := harness.New(Binary(tb), dir, args...)
	if err != nil {
		tb.Fatal(err)
	}
	b.SetEnv("FILA_LUA__TIMEOUT_MS=60000") // for machines that are busy with other tests
	ends(tb, "the broker", b)
	return b
}

// Serve starts a broker and waits until it serves. It keeps its address when it is killed and started again.
func Serve(tb testing.TB, args ...string) *harness.Broker {
	tb.Helper()
	b := Prepare(tb, args...)
	Start(tb, b)
	return b
}

// Start starts a broker that does not run, and waits until it serves.
func Start(tb testing.TB, b *harness.Broker) {
	tb.Helper()
	if err := b.Start(); err != nil {
		tb.Fatal(err)
	}
	Ready(tb, b)
}

// Launch starts a broker that answers nothing without TLS or a password, and waits until it logs that it
// serves. It returns the fields of that line.
func Launch(tb testing.TB, b *harness.Broker) (fields map[string]any) {
	tb.Helper()
	if err := b.Start(); err != nil {
		tb.Fatal(err)
	}
	return Logged(tb, b, "ready")
}

// Ready waits until a broker that was started serves.
func Ready(tb testing.TB, b *harness.Broker) {
	tb.Helper()
	if err := b.Ready(testkit.Context(tb)); err != nil {
		tb.Fatal(err)
	}
}

// Log returns what a broker has logged.
func Log(tb testing.TB, b *harness.Broker) string {
	tb.Helper()
	text, err := os.ReadFile(b.Log())
	if err != nil && !errors.Is(err, os.ErrNotExist) { // never started
		tb.Error(err)
	}
	return string(text)
}

// Logged waits until a running broker has logged a line with this message, and returns the fields of the
// newest one. It fails the test if the broker has ended.
func Logged(tb testing.TB, b *harness.Broker, message string) (fields map[string]any) {
	tb.Helper()
	testkit.Eventually(tb, fmt.Sprintf("%q is logged", message), func() bool {
		ended := !b.Alive()
		for text := range strings.Lines(Log(tb, b)) {
			var line map[string]any
			if json.Unmarshal([]byte(text), &line) == nil && line["message"] == message {
				fields = line
			}
		}
		if fields == nil && ended {
			tb.Fatalf("the broker has ended without logging %q:\n%s", message, Log(tb, b))
		}
		return fields != nil
	})
	return fields
}

// Signal sends a signal to a running broker.
func Signal(tb testing.TB, b *harness.Broker, s os.Signal) {
	tb.Helper()
	if err := b.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// Kill ends a broker as a crash would.
func Kill(tb testing.TB, b *harness.Broker) {
	tb.Helper()
	if err := b.Kill(); err != nil {
		tb.Fatal(err)
	}
}

// Stop stops a broker in order.
func Stop(tb testing.TB, b *harness.Broker) {
	tb.Helper()
	if err := b.Stop(); err != nil {
		tb.Fatal(err)
	}
}

// Exit waits until a broker ends without being told to by the harness, and returns its exit code.
func Exit(tb testing.TB, b *harness.Broker) (code int) {
	tb.Helper()
	code, err := b.Wait(testkit.Context(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return code
}

// Run runs the binary with a subcommand or arguments with which it does not start. It returns what it
// prints and its exit code.
func Run(tb testing.TB, args ...string) (out string, code int) {
	tb.Helper()
	cmd := exec.CommandContext(testkit.Context(tb), Binary(tb), args...)
	cmd.Dir = tb.TempDir()
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0 {
		tb.Fatalf("fila %s: %v: %s", strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), cmd.ProcessState.ExitCode()
}

// ends sees to the end of a broker, after that of the test.
func ends(tb testing.TB, name string, b *harness.Broker) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := b.Stop(); err != nil {
			tb.Errorf("%s did not stop in order: %v", name, err)
		}
		log := Log(tb, b)
		if tb.Failed() || strings.Contains(log, "panic") || strings.Contains(log, `"level":"fatal"`) {
			tb.Errorf("the log of %s:\n%s", name, log[max(0, len(log)-10_000):])
		}
	})
}

// Connect returns a client of go-redis that repeats no command and waits for blocked ones.
func Connect(tb testing.TB, addr string, protocol int) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: protocol, MaxRetries: -1,
		DialTimeout: testkit.Patience(), ReadTimeout: testkit.Patience(), WriteTimeout: testkit.Patience(), PoolTimeout: testkit.Patience(),
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial returns a connection without a client library. Its reads and writes fail when Patience has passed.
func Dial(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	c, err := new(net.Dialer).DialContext(testkit.Context(tb), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	deadline, _ := testkit.Context(tb).Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		tb.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// Doer sends commands: a client of go-redis of any kind.
type Doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// Do sends a command that must not be refused, and returns its reply; nil is one. While another node is taking
// over, it asks again, as clients do: LOADING says that nothing was executed.
func Do(tb testing.TB, c Doer, args ...any) (reply any) {
	tb.Helper()
	testkit.Eventually(tb, fmt.Sprintf("%.200q is executed", args), func() bool {
		var err error
		reply, err = c.Do(tb.Context(), args...).Result()
		if err != nil && !errors.Is(err, redis.Nil) && !Loading(err) {
			tb.Fatalf("%.200q: %v", args, err)
		}
		return !Loading(err)
	})
	return reply
}

// Loading reports whether a command was refused, and not executed, because another node is taking over or the
// broker has not read its store yet.
func Loading(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "LOADING ") }

// Deposed reports whether the node that executed a command has ceased to lead meanwhile, so that the command may have
// been executed or not. One that only reads is asked again.
func Deposed(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "MISCONF ") && strings.Contains(err.Error(), "may have happened or not")
}

// Mapped converts a reply that is a map in RESP3 and a flat array in RESP2.
func Mapped(tb testing.TB, reply any) map[string]any {
	tb.Helper()
	m := map[string]any{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			m[fmt.Sprint(k)] = v
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			m[fmt.Sprint(reply[i])] = reply[i+1]
		}
	default:
		tb.Fatalf("%v is no map", reply)
	}
	return m
}

// Stats returns the statistics of a queue.
func Stats(tb testing.TB, c Doer, queue string) map[string]any {
	tb.Helper()
	return Mapped(tb, Do(tb, c, "FILA.STATS", queue))
}

// WantStats waits until the statistics of a queue have these values. A broker that is starting, or a cluster
// in which another node is taking over, may refuse until then.
func WantStats(tb testing.TB, c Doer, queue string, want map[string]int64) {
	tb.Helper()
	testkit.EventuallyEqual(tb, "the statistics of "+queue, want, func() map[string]int64 {
		got := map[string]int64{}
		reply, err := c.Do(tb.Context(), "FILA.STATS", queue).Result()
		if Loading(err) || Deposed(err) {
			return nil
		}
		if err != nil {
			tb.Fatalf("the statistics of %s: %v", queue, err)
		}
		for name, value := range Mapped(tb, reply) {
			if _, wanted := want[name]; wanted {
				got[name], _ = value.(int64)
			}
		}
		return got
	})
}
