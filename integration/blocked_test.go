package integration_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// blocked is a connection that waits in a lease with BLOCK 0.
type blocked struct {
	*net.TCPConn
	r  *bufio.Reader
	id int64
}

// block returns one that is waiting.
func block(t *testing.T, c *redis.Client, b *harness.Broker, queue string) *blocked {
	t.Helper()
	conn := kit.Dial(t, b.Addr())
	w := &blocked{TCPConn: conn, r: bufio.NewReader(conn)}
	if _, err := fmt.Fprint(conn, "CLIENT ID\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanf(w.r, ":%d\r\n", &w.id); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "FILA.LEASE %s BLOCK 0\r\n", queue); err != nil {
		t.Fatal(err)
	}
	kit.WantStats(t, c, queue, map[string]int64{"waiters": 1})
	return w
}

func (w *blocked) want(t *testing.T, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(w.r, got); string(got) != text {
		t.Fatalf("got %q, %v; want %q", got[:n], err, text)
	}
}

// ended fails unless the connection ends after exactly this text.
func (w *blocked) ended(t *testing.T, text string) {
	t.Helper()
	got, err := io.ReadAll(w.r)
	if string(got) != text || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v; want %q and the end", got, err, text)
	}
}

// intact verifies that no client is waiting, and that new messages are delivered normally.
func intact(t *testing.T, c *redis.Client, queue string) {
	t.Helper()
	kit.WantStats(t, c, queue, map[string]int64{"waiters": 0, "leased": 0})
	kit.Do(t, c, "FILA.ENQUEUE", queue, "next")
	d := one(t, c, queue)
	if d.payload != "next" || d.attempt != 1 || d.deliveries != 1 {
		t.Errorf("the next one got %+v", d)
	}
	kit.Do(t, c, "FILA.ACK", queue, d.receipt)
}

// The four ways to end another client's wait, and what that client receives.
func TestClientUnblock(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	for _, how := range []struct{ mode, reply string }{
		{"", "*0\r\n"}, {"TIMEOUT", "*0\r\n"}, {"ERROR", "-UNBLOCKED "},
	} {
		w := block(t, c, b, "q")
		if _, err := fmt.Fprint(w, "ECHO behind\r\n"); err != nil {
			t.Fatal(err)
		}
		args := []any{"CLIENT", "UNBLOCK", w.id}
		if how.mode != "" {
			args = append(args, how.mode)
		}
		if n := kit.Do(t, c, args...); n != int64(1) {
			t.Errorf("%s: %v unblocked", how.mode, n)
		}
		w.want(t, how.reply)
		if strings.HasPrefix(how.reply, "-") {
			if _, err := w.r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		w.want(t, "$6\r\nbehind\r\n")
		if n := kit.Do(t, c, args...); n != int64(0) { // no longer blocked
			t.Errorf("%s: %v unblocked twice", how.mode, n)
		}
		w.Close()
		intact(t, c, "q")
	}
	if n := kit.Do(t, c, "CLIENT", "UNBLOCK", 999_999); n != int64(0) {
		t.Errorf("%v of nobody", n)
	}
}

// killing returns every filter that can select a blocked client.
func killing(w *blocked) map[string][]any {
	addr, laddr := w.LocalAddr().String(), w.RemoteAddr().String()
	return map[string][]any{
		"old form":    {"CLIENT", "KILL", addr},
		"ID":          {"CLIENT", "KILL", "ID", w.id},
		"ADDR":        {"CLIENT", "KILL", "ADDR", addr},
		"LADDR":       {"CLIENT", "KILL", "LADDR", laddr},
		"USER":        {"CLIENT", "KILL", "USER", "default"},
		"TYPE":        {"CLIENT", "KILL", "TYPE", "normal"},
		"several":     {"CLIENT", "KILL", "TYPE", "normal", "ID", w.id, "ADDR", addr, "LADDR", laddr, "USER", "default", "SKIPME", "yes"},
		"not another": {"CLIENT", "KILL", "TYPE", "pubsub", "ID", w.id},
	}
}

func TestClientKillOfABlockedClient(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolTimeout: testkit.Patience(), PoolSize: 1})
	defer c.Close()
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	for name := range killing(block0(t, b)) {
		w := block(t, c, b, "q")
		if _, err := fmt.Fprint(w, "FILA.ENQUEUE q never\r\n"); err != nil { // queued behind the wait: not executed
			t.Fatal(err)
		}
		reply := kit.Do(t, c, killing(w)[name]...)
		if name == "not another" {
			if reply != int64(0) {
				t.Errorf("%s: %v", name, reply)
			}
			w.Close()
		} else {
			if reply == int64(0) {
				t.Errorf("%s: nobody killed", name)
			}
			w.ended(t, "")
		}
		intact(t, c, "q")
	}
}

// block0 is a connection without a command in progress, for its addresses.
func block0(t *testing.T, b *harness.Broker) *blocked {
	t.Helper()
	return &blocked{TCPConn: kit.Dial(t, b.Addr())}
}

// QUIT and RESET are queued behind a waiting lease. QUIT ends the wait, since its client wants no
// further reply. RESET waits for its turn like any queued command, and the messages are delivered
// to the client.
func TestQuitAndResetBehindAWaitingLease(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	w := block(t, c, b, "q")
	if _, err := fmt.Fprint(w, "QUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	kit.WantStats(t, c, "q", map[string]int64{"waiters": 0})
	rest, err := io.ReadAll(w.r)
	if err != nil || !strings.HasSuffix(string(rest), "+OK\r\n") {
		t.Errorf("QUIT: %q, %v", rest, err)
	}
	intact(t, c, "q")

	w = block(t, c, b, "q")
	if _, err := fmt.Fprint(w, "RESET\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x")
	w.want(t, "*1\r\n*9\r\n")
	var text strings.Builder
	for !strings.HasSuffix(text.String(), "+RESET\r\n+PONG\r\n") {
		line, err := w.r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		text.WriteString(line)
	}
	kit.WantStats(t, c, "q", map[string]int64{"leased": 1, "waiters": 0})
}

// A client library whose read timeout is shorter than BLOCK repeatedly gives up, closes the
// connection and reconnects. No message is lost or counted as failed, and the abandoned waits are
// removed.
func TestAReadTimeoutShorterThanBlock(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 60_000)
	hasty := redis.NewClient(&redis.Options{Addr: b.Addr(), MaxRetries: -1, ReadTimeout: 20 * time.Millisecond, ContextTimeoutEnabled: true})
	defer hasty.Close()
	for range 20 {
		err := hasty.Do(t.Context(), "FILA.LEASE", "q", "BLOCK", 0).Err()
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			t.Fatalf("%v is no timeout", err)
		}
	}
	intact(t, c, "q")
}

// A lease whose reply could not be written because the connection closed at that moment is returned
// immediately: the next delivery is attempt one, long before the lease would have expired.
func TestALeaseThatCannotBeWrittenGoesBackAtOnce(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 600_000)
	// The payload exceeds the socket buffers: the client reads nothing and resets, so most of these
	// replies fail before their end.
	payload := strings.Repeat("x", 1<<20)
	const n = 24
	for range n {
		kit.Do(t, c, "FILA.ENQUEUE", "q", payload)
	}
	conn := kit.Dial(t, b.Addr())
	if err := conn.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, strings.Repeat("FILA.LEASE q\r\n", n)); err != nil {
		t.Fatal(err)
	}
	kit.WantStats(t, c, "q", map[string]int64{"leased": n})
	if err := conn.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	// Replies that fit into the system's buffers count as delivered; the last ones cannot have fit.
	testkit.Eventually(t, "half of the leases end", func() bool { return kit.Stats(t, c, "q")["leased"].(int64) <= n/2 })
	for _, d := range lease(t, c, "q", "COUNT", n) {
		if d.attempt != 1 {
			t.Errorf("attempt %d", d.attempt)
		}
	}
}

// In RESP3 a connection may receive events while it waits for a message.
func TestEventsComeWhileALeaseWaits(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	conn := kit.Dial(t, b.Addr())
	r := bufio.NewReader(conn)
	if _, err := fmt.Fprint(conn, "HELLO 3\r\nSUBSCRIBE fila:r:created\r\nFILA.LEASE q BLOCK 0\r\n"); err != nil {
		t.Fatal(err)
	}
	kit.WantStats(t, c, "q", map[string]int64{"waiters": 1})
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "r")
	seen := ""
	for !strings.Contains(seen, "fila:r:created\r\n$") || strings.Count(seen, ">3") < 2 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += line
	}
	kit.WantStats(t, c, "q", map[string]int64{"waiters": 1})
}

// A subscriber that does not read is disconnected, and no other client is affected.
func TestASubscriberThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory", "--server.output_bytes_max", "65536")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	conn := kit.Dial(t, b.Addr())
	if err := conn.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "PSUBSCRIBE *\r\n"); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyEqual(t, "the number of subscriptions", any(int64(1)), func() any { return kit.Do(t, c, "PUBSUB", "NUMPAT") })
	testkit.Eventually(t, "the subscriber is disconnected", func() bool {
		p := c.Pipeline()
		for range 500 {
			p.Do(t.Context(), "FILA.ENQUEUE", "q", "x")
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		return kit.Do(t, c, "PUBSUB", "NUMPAT") == int64(0)
	})
}
