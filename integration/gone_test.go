package integration_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/proc"
	"github.com/faisca/fila/internal/testkit"
)

// leaving returns the ways in which a client waiting in a lease disconnects.
func leaving() map[string]func(c *net.TCPConn) error {
	return map[string]func(c *net.TCPConn) error{
		"FIN": (*net.TCPConn).Close,
		"RST": func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		},
		"FIN behind further commands": func(c *net.TCPConn) error {
			if _, err := fmt.Fprint(c, strings.Repeat("PING\r\n", 100)); err != nil {
				return err
			}
			return c.Close()
		},
		"FIN behind half a command": func(c *net.TCPConn) error {
			if _, err := fmt.Fprint(c, "*2\r\n$4\r\nECHO\r\n$100\r\nha"); err != nil {
				return err
			}
			return c.Close()
		},
		// As `printf ... | nc` does: the client could still read, but Redis also considers it
		// closed.
		"only its own side closed": (*net.TCPConn).CloseWrite,
	}
}

// TestAWaiterThatHasGoneSwallowsNoMessage disconnects a waiting client and enqueues once the broker
// has noticed: the next client gets the message.
func TestAWaiterThatHasGoneSwallowsNoMessage(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	for name, leave := range leaving() {
		t.Run(name, func(t *testing.T) {
			queue := strings.ReplaceAll(name, " ", "-")
			kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
			for n := range 20 {
				victim := waiter(t, c, b.Addr(), queue)
				if err := leave(victim); err != nil {
					t.Fatal(err)
				}
				kit.WantStats(t, c, queue, map[string]int64{"waiters": 0})
				payload := fmt.Sprint(n)
				kit.Do(t, c, "FILA.ENQUEUE", queue, payload)
				d := one(t, c, queue)
				if d.payload != payload || d.attempt != 1 {
					t.Errorf("the next one got %+v", d)
				}
				kit.Do(t, c, "FILA.ACK", queue, d.receipt)
			}
		})
	}
}

// waiter opens a connection that waits in a lease with BLOCK 0.
func waiter(t *testing.T, c *redis.Client, addr, queue string) *net.TCPConn {
	t.Helper()
	conn := kit.Dial(t, addr)
	if _, err := fmt.Fprintf(conn, "FILA.LEASE %s BLOCK 0\r\n", queue); err != nil {
		t.Fatal(err)
	}
	kit.WantStats(t, c, queue, map[string]int64{"waiters": 1})
	return conn
}

// The message arrives at the moment the client disconnects. It may be delivered before the broker
// can notice; it is then returned when the broker notices, or at the latest when the lease expires,
// and nothing is lost.
func TestAWaiterThatGoesInTheMomentOfDeliveryLosesNothing(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 500, "BACKOFF", 0)
	expired := 0
	for name, leave := range leaving() {
		for n := range 10 {
			victim := waiter(t, c, b.Addr(), "q")
			if err := leave(victim); err != nil {
				t.Fatal(err)
			}
			kit.Do(t, c, "FILA.ENQUEUE", "q", n)
			d := one(t, c, "q", "VISIBILITY", 600_000)
			if d.payload != fmt.Sprint(n) {
				t.Errorf("%s: got %+v", name, d)
			}
			if d.attempt > 1 {
				expired++
			}
			kit.Do(t, c, "FILA.ACK", "q", d.receipt)
		}
	}
	t.Logf("%d of %d leases had to run out", expired, 10*len(leaving()))
	kit.WantStats(t, c, "q", map[string]int64{"ready": 0, "delayed": 0, "leased": 0, "waiters": 0})
}

// TestWaitersCostNothing compares the cost of the same work to the broker alone and with thousands
// of waiting connections.
// It is not parallel: it raises the limit of open files of this process, and compares CPU times.
func TestWaitersCostNothing(t *testing.T) {
	waiters := openFiles(t, 10_000)
	b := kit.Serve(t, "--storage.engine", "memory", "--server.maxclients", "20000")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "idle")
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "busy")
	work(t, b, c) // warm-up
	alone := work(t, b, c)
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for range waiters {
		conn, err := net.Dial("tcp", b.Addr())
		if err != nil {
			t.Fatalf("connecting %d times: %v", waiters, err)
		}
		conns = append(conns, conn)
		if _, err := fmt.Fprint(conn, "FILA.LEASE idle BLOCK 600000\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	kit.WantStats(t, c, "idle", map[string]int64{"waiters": int64(waiters)})
	// What the connections have left is collected meanwhile, and other processes make the processor's caches
	// cold: what costs more each time is the waiting.
	testkit.Eventually(t, "the same work costs as much beside those that wait", func() bool {
		loaded := work(t, b, c)
		t.Logf("the same work takes %s of CPU alone, %s beside %d that wait", alone, loaded, waiters)
		return loaded <= 2*alone+200*time.Millisecond
	})
	const while = 500 * time.Millisecond
	after := used(t, b)
	testkit.Eventually(t, "with all waiting and nothing to do it uses little", func() bool { // garbage of before may be collected yet
		before := after
		for end := time.Now().Add(while); time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		after = used(t, b)
		return after.CPU-before.CPU <= while/4
	})
	t.Logf("%d MB resident, %d KB for each that waits", after.Resident>>20, after.Resident>>10/int64(waiters))
}

// openFiles returns how many connections this process can open, up to want. The broker holds the
// other ends in its own process, under the same limit.
func openFiles(t *testing.T, want int) int {
	t.Helper()
	const others = 500 // needed by the test and the broker for other purposes
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if need := uint64(want + others); limit.Cur < need {
		// Only root may exceed the hard limit.
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: max(need, limit.Max)}); err == nil {
			limit.Cur = need
		}
	}
	if limit.Cur < 2*others {
		t.Fatalf("%d open files are too few to tell anything (ulimit -n)", limit.Cur)
	}
	return min(want, int(limit.Cur)-others)
}

func used(t *testing.T, b *harness.Broker) proc.Use {
	t.Helper()
	u, err := proc.UseOf(b.PID())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// work enqueues, leases and acks, and returns the CPU time that the broker used.
func work(t *testing.T, b *harness.Broker, c *redis.Client) time.Duration {
	t.Helper()
	before := used(t, b)
	for range 1500 {
		p := c.Pipeline()
		for range 10 {
			p.Do(t.Context(), "FILA.ENQUEUE", "busy", "x")
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		ack := []any{"FILA.ACK", "busy"}
		for _, d := range lease(t, c, "busy", "COUNT", 10) {
			ack = append(ack, d.receipt)
		}
		if n := kit.Do(t, c, ack...); n != int64(10) {
			t.Fatalf("%v acked", n)
		}
	}
	return used(t, b).CPU - before.CPU
}

// A blocked lease blocks only its own connection; commands queued behind it are answered after it,
// in order.
func TestCommandsBehindAWaitingLeaseWaitTheirTurn(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	conn := waiter(t, c, b.Addr(), "q")
	if _, err := fmt.Fprint(conn, "PING\r\nECHO behind\r\n"); err != nil {
		t.Fatal(err)
	}
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x")
	r := bufio.NewReader(conn)
	var all strings.Builder
	for !strings.HasSuffix(all.String(), "$6\r\nbehind\r\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, all.String())
		}
		all.WriteString(line)
	}
	if text := all.String(); !strings.HasPrefix(text, "*1\r\n*9\r\n") || !strings.Contains(text, "+PONG\r\n$6") {
		t.Errorf("answered %q", text)
	}
}
