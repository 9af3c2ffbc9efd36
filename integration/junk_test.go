package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// answers sends bytes, closes its side, and returns everything received.
func answers(t *testing.T, addr, send string) string {
	t.Helper()
	c := kit.Dial(t, addr)
	defer c.Close()
	// A broker that refuses the first bytes may close before it reads the last ones, so write
	// errors are ignored.
	_, _ = io.WriteString(c, send)
	_ = c.CloseWrite()
	reply, err := io.ReadAll(c)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%.100q is never answered", send)
	}
	return string(reply)
}

// alive fails unless another connection is served by the same process, which must not spin.
func alive(t *testing.T, b *harness.Broker, c *redis.Client, pid int) {
	t.Helper()
	if kit.Do(t, c, "PING") != "PONG" {
		t.Error("another connection is not served")
	}
	if b.PID() != pid || !strings.Contains(fmt.Sprint(kit.Do(t, c, "INFO", "server")), fmt.Sprintf("process_id:%d\r\n", pid)) {
		t.Error("it is not the same process any more")
	}
}

// TestFramesThatMustNotHarm sends frames that break parsers which trust their input. A protocol
// error is reported and ends the connection; preceding commands are answered.
func TestFramesThatMustNotHarm(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	pid := b.PID()
	for name, x := range map[string]struct{ send, want string }{
		"a length that overflows":        {"*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"more arguments than there are":  {"*9000000000000000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a million arguments and more":   {"*2147483647\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"a negative length":              {"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"a null argument":                {"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		"no number":                      {"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		"no bulk":                        {"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"},
		"a number without an end":        {"*1" + strings.Repeat("1", 70_000), "-ERR Protocol error: too big mbulk count string\r\n"},
		"a length without an end":        {"*1\r\n$" + strings.Repeat("1", 70_000), "-ERR Protocol error: too big bulk count string\r\n"},
		"a line without an end":          {strings.Repeat("a", 70_000), "-ERR Protocol error: too big inline request\r\n"},
		"quotes that do not close":       {"ECHO \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
		"empty frames are no commands":   {"*0\r\n*-1\r\n\r\nPING\r\n", "+PONG\r\n"},
		"good commands before a bad one": {"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n$-5\r\n", "+PONG\r\n+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"},
		"cut in the count":               {"PING\r\n*3", "+PONG\r\n"},
		"cut in an argument":             {"PING\r\n*2\r\n$4\r\nECHO\r\n$1000\r\nabc", "+PONG\r\n"},
		"an HTTP request":                {"POST / HTTP/1.1\r\nHost: x\r\n\r\nFILA.QUEUE CREATE x\r\n", ""},
	} {
		if got := answers(t, b.Addr(), x.send); got != x.want {
			t.Errorf("%s: answered %.200q, want %q", name, got, x.want)
		}
		alive(t, b, c, pid)
	}
	// Oversized commands are refused without being buffered.
	got := answers(t, b.Addr(), "*2\r\n$4\r\nECHO\r\n$600000000\r\n"+strings.Repeat("x", 1<<20))
	if !strings.HasPrefix(got, "-ERR Protocol error: invalid bulk length") {
		t.Errorf("an argument of 600 MB: %.100q", got)
	}
	after := used(t, b)
	testkit.Eventually(t, "after all that it uses little", func() bool { // garbage of before may be collected yet
		before := after
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		after = used(t, b)
		return after.CPU-before.CPU <= 100*time.Millisecond
	})
	if after.Resident > 200<<20 {
		t.Errorf("after all that it uses %d MB", after.Resident>>20)
	}
}

// TestNoiseIsHarmless sends random bytes, some of which resemble the protocol.
func TestNoiseIsHarmless(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	pid := b.PID()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"*", "$", "\r\n", "1", "-", "999", "FILA.LEASE", "FILA.ENQUEUE", " ", "\"", "\x00", "q", "EXEC", "HELLO 3\r\n", "*3\r\n$1\r\n"}
	for n := range 200 {
		var noise bytes.Buffer
		for noise.Len() < 4096 {
			if n%2 == 0 {
				noise.WriteByte(byte(chance.Uint32()))
			} else {
				noise.WriteString(pieces[chance.IntN(len(pieces))])
			}
		}
		answers(t, b.Addr(), noise.String())
	}
	alive(t, b, c, pid)
}

// TestOneByteAtATime sends long commands one byte per packet.
func TestOneByteAtATime(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Dial(t, b.Addr())
	if err := c.SetNoDelay(true); err != nil {
		t.Fatal(err)
	}
	go func() {
		text := "*4\r\n$10\r\nFILA.QUEUE\r\n$6\r\nCREATE\r\n$1\r\nq\r\n$5\r\nNODLQ\r\nFILA.ENQUEUE q \"a b\"\r\nFILA.LEASE q\r\n"
		text += strings.Repeat("ECHO 0123456789\r\n", 3000) + "QUIT\r\n"
		for i := range len(text) {
			if _, err := c.Write([]byte{text[i]}); err != nil {
				t.Errorf("byte %d: %v", i, err)
				return
			}
		}
	}()
	reply, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(reply)
	if !strings.HasPrefix(text, "+OK\r\n$36\r\n") || !strings.Contains(text, "$3\r\na b\r\n") ||
		strings.Count(text, "$10\r\n0123456789\r\n") != 3000 || !strings.HasSuffix(text, "+OK\r\n") {
		t.Errorf("answered %.300q ... %q", text, text[max(0, len(text)-100):])
	}
}

// TestWhatIsRefusedIsRefusedClearly tests both sides of each limit, where a value on both sides can
// be sent.
func TestWhatIsRefusedIsRefusedClearly(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory")
	c := kit.Connect(t, b.Addr(), 3)
	pid := b.PID()
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	long := func(n int) string { return strings.Repeat("x", n) }
	headers := func(n int) []any {
		command := []any{"FILA.ENQUEUE", "q", "x"}
		for i := range n {
			command = append(command, "HEADER", fmt.Sprint(i), "v")
		}
		return command
	}
	for _, x := range []struct {
		code    string // "" if accepted
		command []any
	}{
		{"ERR unknown command 'FILA.NOSUCH'", []any{"FILA.NOSUCH", "q"}},
		{"ERR unknown subcommand 'NOSUCH'", []any{"FILA.QUEUE", "NOSUCH", "q"}},
		{"ERR wrong number of arguments for 'fila.enqueue' command", []any{"FILA.ENQUEUE", "q"}},
		{"ERR wrong number of arguments for 'fila.ack' command", []any{"FILA.ACK", "q"}},
		{"ERR syntax error near 'NOSUCH'", []any{"FILA.ENQUEUE", "q", "x", "NOSUCH"}},
		{"NOQUEUE ", []any{"FILA.ENQUEUE", "nosuch", "x"}},
		{"NOQUEUE ", []any{"FILA.LEASE", "nosuch"}},
		{"QUEUEEXISTS ", []any{"FILA.QUEUE", "CREATE", "q"}},
		{"BADRECEIPT ", []any{"FILA.ACK", "q", "junk"}},
		{"ERR COUNT ", []any{"FILA.LEASE", "q", "COUNT", 0}},
		{"", []any{"FILA.LEASE", "q", "COUNT", 10_000}},
		{"ERR COUNT ", []any{"FILA.LEASE", "q", "COUNT", 10_001}},
		{"ERR BLOCK ", []any{"FILA.LEASE", "q", "BLOCK", -1}},
		{"ERR BLOCK ", []any{"FILA.LEASE", "q", "BLOCK", "9223372036854775808"}},
		{"ERR VISIBILITY ", []any{"FILA.LEASE", "q", "VISIBILITY", 0}},
		{"", []any{"FILA.QUEUE", "CREATE", long(255)}}, // the dead-letter queue's name adds .dlq
		{"TOOBIG ", []any{"FILA.QUEUE", "CREATE", long(256)}},
		{"INVALID ", []any{"FILA.QUEUE", "CREATE", "a\nb"}},
		{"TOOBIG ", []any{"FILA.CONFIG", "SET", long(513), "x"}},
		{"", []any{"FILA.ENQUEUE", "q", "x", "KEY", long(512)}},
		{"TOOBIG ", []any{"FILA.ENQUEUE", "q", "x", "KEY", long(513)}},
		{"", []any{"FILA.ENQUEUE", "q", "x", "HEADER", "h", long(8192)}},
		{"TOOBIG ", []any{"FILA.ENQUEUE", "q", "x", "HEADER", "h", long(8193)}},
		{"TOOBIG ", []any{"FILA.ENQUEUE", "q", "x", "HEADER", long(513), "v"}},
		{"", headers(64)},
		{"TOOBIG ", headers(65)},
		{"", []any{"FILA.ENQUEUE", "q", long(16 << 20)}},
		{"TOOBIG ", []any{"FILA.ENQUEUE", "q", long(16<<20 + 1)}},
	} {
		err := c.Do(t.Context(), x.command...).Err()
		switch {
		case x.code == "" && err != nil:
			t.Errorf("%.60q: %.200v", x.command, err)
		case x.code != "" && (err == nil || !strings.HasPrefix(err.Error(), x.code)):
			t.Errorf("%.60q: %.200v, want %s", x.command, err, x.code)
		case err != nil && (strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 500):
			t.Errorf("%.60q: an error is one short line: %.1000q", x.command, err.Error())
		}
	}
	alive(t, b, c, pid)
	kit.WantStats(t, c, "q", map[string]int64{"enqueued": 4, "ready": 4})
}

// Connections over the limit receive an error, and a closed connection frees its place.
func TestTooManyConnectionsAreTold(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory", "--server.maxclients", "3")
	// The connection of the readiness check may still be open.
	var taken []*net.TCPConn
	testkit.Eventually(t, "three connections are accepted", func() bool {
		c := kit.Dial(t, b.Addr())
		if reply := ping(c); strings.HasPrefix(reply, "+PONG") {
			taken = append(taken, c)
		} else if !strings.HasPrefix(reply, "-ERR max number of clients reached") {
			t.Fatalf("one too many is told %q", reply)
		}
		return len(taken) == 3
	})
	if reply := ping(kit.Dial(t, b.Addr())); !strings.HasPrefix(reply, "-ERR max number of clients reached") {
		t.Errorf("the fourth is told %q", reply)
	}
	taken[0].Close()
	testkit.Eventually(t, "another is accepted after one has gone", func() bool {
		return strings.HasPrefix(ping(kit.Dial(t, b.Addr())), "+PONG")
	})
}

// ping returns the reply to PING.
func ping(c net.Conn) string {
	_, _ = io.WriteString(c, "PING\r\n") // a refused connection may be closed already
	reply := make([]byte, 100)
	n, _ := c.Read(reply) // in that case this is empty
	return string(reply[:n])
}
