package integration_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
)

// ends lists the ways in which a broker's process ends.
func ends() map[string]func(b *harness.Broker) error {
	return map[string]func(b *harness.Broker) error{"stop": (*harness.Broker).Stop, "kill -9": (*harness.Broker).Kill}
}

// TestLeasesOutliveTheBroker: an answered lease holds after a restart, its receipt is accepted, and
// other clients do not get the message meanwhile.
func TestLeasesOutliveTheBroker(t *testing.T) {
	t.Parallel()
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			// Without lag, since a kill may lose leases written after their reply.
			b := kit.Serve(t, "--storage.lease_lag_ms", "0")
			c := kit.Connect(t, b.Addr(), 3)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 60_000, "BACKOFF", 0)
			for i := range 4 {
				kit.Do(t, c, "FILA.ENQUEUE", "q", i, "KEY", "acme", "HEADER", "n", i)
			}
			held := lease(t, c, "q", "COUNT", 3)
			if len(held) != 3 {
				t.Fatalf("leased %+v", held)
			}
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			kit.Start(t, b)
			d := lease(t, c, "q", "COUNT", 10)
			if len(d) != 1 || d[0].payload != "3" || d[0].attempt != 1 || fmt.Sprint(d[0].headers) != "[n 3]" || d[0].key != "acme" {
				t.Errorf("after the restart %+v is handed out", d)
			}
			if until, ok := kit.Do(t, c, "FILA.EXTEND", "q", held[0].receipt, 120_000).(int64); !ok || !time.UnixMilli(until).After(held[0].until) {
				t.Errorf("extended to %d", until)
			}
			if n := kit.Do(t, c, "FILA.ACK", "q", held[0].receipt, held[1].receipt); n != int64(2) {
				t.Errorf("%v acked", n)
			}
			if r := kit.Mapped(t, kit.Do(t, c, "FILA.NACK", "q", held[2].receipt)); r["action"] != "retry" || r["attempt"] != int64(2) {
				t.Errorf("nacked: %v", r)
			}
			if d := one(t, c, "q"); d.payload != "2" || d.attempt != 2 || d.deliveries != 2 {
				t.Errorf("after the nack: %+v", d)
			}
		})
	}
}

// TestTimersOutliveTheBroker: delayed messages keep their time across a restart and are not delivered
// early.
func TestTimersOutliveTheBroker(t *testing.T) {
	t.Parallel()
	const hour = 3_600_000
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t, "--storage.lease_lag_ms", "0")
			c := kit.Connect(t, b.Addr(), 3)
			// One message that is nacked and one whose consumer is gone, each with the times given.
			type timers struct {
				nacked, dropped delivery
				ready           int64
			}
			later := func(queue string, delay, visible int64) (s timers) {
				kit.Do(t, c, "FILA.QUEUE", "CREATE", queue, "BACKOFF", 0)
				kit.Do(t, c, "FILA.ENQUEUE", queue, "delayed")
				s.nacked = one(t, c, queue)
				kit.Do(t, c, "FILA.ENQUEUE", queue, "dropped")
				s.dropped = one(t, c, queue, "VISIBILITY", visible)
				ready, ok := kit.Mapped(t, kit.Do(t, c, "FILA.NACK", queue, s.nacked.receipt, "DELAY", delay))["ready_at"].(int64)
				if !ok {
					t.Fatal("a nack does not say when the message is ready again")
				}
				s.ready = ready
				return s
			}
			far, near := later("far", hour, 2*hour), later("near", 700, 1200)
			times := func() string {
				var all []any
				for _, d := range []delivery{far.nacked, far.dropped} {
					id, _, _ := strings.Cut(d.receipt, ":")
					m := kit.Mapped(t, kit.Do(t, c, "FILA.GET", "far", id))
					all = append(all, m["ready_at"], m["lease_until"])
				}
				return fmt.Sprint(all...)
			}
			before := times()
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			kit.Start(t, b)
			back := time.Now()
			kit.WantStats(t, c, "far", map[string]int64{"ready": 0, "delayed": 1, "leased": 1, "counting": 0})
			if got := times(); got != before {
				t.Errorf("before the restart %s, now %s", before, got)
			}
			due := map[string]time.Time{"delayed": time.UnixMilli(near.ready), "dropped": near.dropped.until}
			for len(due) > 0 {
				d := one(t, c, "near", "VISIBILITY", hour)
				at, awaited := due[d.payload]
				delete(due, d.payload)
				attempt := int64(2)
				if d.payload == "dropped" && at.Before(back) {
					attempt = d.attempt // on a slow machine: a lease that ended while the broker was down is not counted
				}
				if early := time.Until(at); !awaited || d.attempt != attempt || early > time.Millisecond {
					t.Errorf("%+v came %s early, awaited are %v", d, early, due)
				}
			}
			if n := kit.Do(t, c, "FILA.ACK", "near", near.dropped.receipt); n != int64(0) {
				t.Errorf("the receipt of a lease that is over acked %v", n)
			}
		})
	}
}

// TestAStopAnswersWhatIsInFlight stops the broker during a pipeline and while a client waits. The
// answered enqueues are exactly the stored ones.
func TestAStopAnswersWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--server.shutdown_timeout_ms", "3600000") // what is late is answered, too
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "idle")
	waiting := waiter(t, c, b.Addr(), "idle")
	conn := kit.Dial(t, b.Addr())
	var others sync.WaitGroup
	others.Go(func() {
		packet := []byte(strings.Repeat("FILA.ENQUEUE q "+strings.Repeat("x", 100)+"\r\n", 100))
		for {
			if _, err := conn.Write(packet); err != nil {
				return // the broker has stopped reading
			}
		}
	})
	r := bufio.NewReader(conn)
	answered, stopping := 0, false
	for {
		if answered == 1000 && !stopping {
			stopping = true
			others.Go(func() {
				if err := b.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
		line, err := r.ReadString('\n')
		if err != nil {
			// EOF, or a reset if unread commands were left. The count below shows that no reply is
			// lost by the reset.
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			break
		}
		if line == "$36\r\n" {
			if _, err := r.Discard(38); err != nil {
				t.Fatal(err)
			}
			answered++
		} else if !strings.HasPrefix(line, "-LOADING ") { // commands that came too late are refused; clients send them again
			t.Fatalf("answered %q", line)
		}
	}
	if reply, err := io.ReadAll(waiting); string(reply) != "*0\r\n" || err != nil {
		t.Errorf("who waited is answered %q, %v", reply, err)
	}
	others.Wait()
	kit.Start(t, b)
	t.Logf("%d answered", answered)
	kit.WantStats(t, c, "q", map[string]int64{"ready": int64(answered), "counting": 0})
}

// refusal returns the error of a start on that path, as that user.
func refusal(t *testing.T, bin, path string, code int, as *syscall.SysProcAttr) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, "--server.listen_addr", "127.0.0.1:0", "--storage.path", path)
	cmd.Dir, cmd.SysProcAttr = "/", as
	out, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%s: %v, want exit code %d: %s", path, err, code, out)
	}
	if strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "fila: ") {
		t.Errorf("not one line: %s", out)
	}
	return string(out)
}

func TestADataDirectoryIsMadeOrRefused(t *testing.T) {
	t.Parallel()
	bin := kit.Binary(t)
	path := filepath.Join(t.TempDir(), "data")
	deep := filepath.Join(path, "nosuch", "data")
	if said := refusal(t, bin, deep, 1, nil); !strings.Contains(said, filepath.Dir(deep)) {
		t.Errorf("below a directory that does not exist it says %s", said)
	}
	c := kit.Connect(t, kit.Serve(t, "--storage.path", path).Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	if said := refusal(t, bin, path, 1, nil); !strings.Contains(said, path) || !strings.Contains(said, "in use") {
		t.Errorf("a second broker says %s", said)
	}
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x") // the first broker is unaffected

	// Only root may write here, so the broker runs as another user.
	closed := t.TempDir()
	if err := os.Chmod(filepath.Dir(closed), 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(closed, "fila") // a copy that the other user can execute
	copyFile(t, bin, program)
	if err := os.Chmod(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o755) }) // otherwise only root could remove it
	var otherUser *syscall.SysProcAttr
	if os.Getuid() == 0 {
		otherUser = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if said := refusal(t, program, filepath.Join(closed, "data"), 2, otherUser); !strings.Contains(said, closed) || !strings.Contains(said, "permission denied") {
		t.Errorf("without permission it says %s", said)
	}
	if said := refusal(t, bin, filepath.Join(program, "data"), 2, nil); !strings.Contains(said, "not a directory") {
		t.Errorf("below a file it says %s", said)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := refusal(t, bin, foreign, 2, nil); !strings.Contains(said, "letter.txt") || !strings.Contains(said, "storage.path") {
		t.Errorf("among files of something else it says %s", said)
	}
}

// copyFile copies a program by a process of its own: a child that another test starts meanwhile would inherit the open file
// of this one, and a program that is open to be written cannot be executed.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// If the address is in use, the start fails and the store is unchanged.
func TestABrokerThatCannotListenLeavesTheStoreAlone(t *testing.T) {
	t.Parallel()
	b := kit.Prepare(t)
	l, err := net.Listen("tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said, code := kit.Run(t, "--server.listen_addr", b.Addr(), "--storage.path", b.Data())
	if code != 1 || !strings.Contains(said, "in use") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	kit.Start(t, b)
}
