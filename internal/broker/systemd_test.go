package broker

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"os"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// notified is a notification socket like that of systemd.
func notified(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

// next returns the next datagram that is no keep-alive, and the number of keep-alives
// before it.
func next(t *testing.T, c *net.UnixConn) (state string, alive int) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(testkit.Patience())); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if state = string(buf[:n]); state != "WATCHDOG=1" {
			return state, alive
		}
		alive++
	}
}

func TestSystemdIsToldOfStartAndStop(t *testing.T) {
	c := notified(t)
	i := launch(t, nil)
	if state, _ := next(t, c); state != "READY=1\nSTATUS=serving "+i.addr {
		t.Errorf("at the start it is told %q", state)
	}
	i.stop()
	if state, alive := next(t, c); state != "STOPPING=1\nSTATUS=stopping" || alive != 0 {
		t.Errorf("at the stop it is told %q, after %d signs of life that it did not want", state, alive)
	}
	if err := <-i.ended; err != nil {
		t.Error(err)
	}
}

func TestTheWatchdogIsFedAsLongAsTheLoopTurns(t *testing.T) {
	c := notified(t)
	t.Setenv("WATCHDOG_USEC", "3000") // a sign of life each millisecond
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	gate := make(chan struct{})
	e, err := loop.New(engine.DefaultConfig(), storage.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(context.WithoutCancel(t.Context())) }()
	<-e.Ready()
	ctx, cancel := context.WithCancel(t.Context())
	fed := make(chan struct{})
	s := newSupervisor(os.Getenv, zerolog.Nop())
	go func() { s.feed(ctx, e); close(fed) }()
	for range 3 {
		wantAlive(t, c)
	}

	// The loop is stuck in a call. Keep-alives that were sent before are read first.
	entered := make(chan struct{})
	e.Submit([]*engine.Task{{Call: stuck{entered, gate}, Client: engine.NewClient(1, func() {})}})
	<-entered
	buf := make([]byte, 64)
	for read := 0; ; read++ {
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			break
		}
		if read == 1000 {
			t.Fatal("the signs of life go on while the loop is stuck")
		}
	}
	s.say("MARK")
	if state, alive := next(t, c); state != "MARK" || alive > 1 { // one had its answer of the loop before, and may come late
		t.Errorf("while the loop is stuck there are %d signs of life, then %q", alive, state)
	}
	close(gate)
	wantAlive(t, c)
	cancel()
	<-fed
	e.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// stuck is a call that blocks the loop until it is released.
type stuck struct{ entered, gate chan struct{} }

func (s stuck) Apply(*engine.Tx) error {
	close(s.entered)
	<-s.gate
	return nil
}

func wantAlive(t *testing.T, c *net.UnixConn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(testkit.Patience())); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "WATCHDOG=1" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
}

func TestTheWatchdogIsFedByTheRightProcessOnly(t *testing.T) {
	for _, x := range []struct {
		socket, usec, pid string
		want              time.Duration
	}{
		{"/run/x", "30000000", "", 30 * time.Second},
		{"/run/x", "30000000", strconv.Itoa(os.Getpid()), 30 * time.Second},
		{"/run/x", "30000000", "1", 0},
		{"", "30000000", "", 0},
		{"/run/x", "", "", 0},
		{"/run/x", "-1", "", 0},
		{"/run/x", "soon", "", 0},
	} {
		env := map[string]string{"NOTIFY_SOCKET": x.socket, "WATCHDOG_USEC": x.usec, "WATCHDOG_PID": x.pid}
		if got := newSupervisor(func(name string) string { return env[name] }, zerolog.Nop()); got.watchdog != x.want {
			t.Errorf("%+v: %s", x, got.watchdog)
		}
	}
}

func TestABrokerStartsWithoutASupervisorAtTheSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	i := launch(t, nil)
	i.stop()
	if err := <-i.ended; err != nil {
		t.Error(err)
	}
	var log strings.Builder
	newSupervisor(os.Getenv, zerolog.New(&log)).say("READY=1")
	if !strings.Contains(log.String(), "systemd cannot be notified") {
		t.Errorf("it logs %q", log.String())
	}
}
