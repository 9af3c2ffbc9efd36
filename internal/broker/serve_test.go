package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/internal/testkit"
)

// instance is a broker in this process, with its store in memory.
type instance struct {
	addr  string
	stop  context.CancelFunc
	ended chan error
}

// launch starts a broker and waits until it is ready.
func launch(t *testing.T, flags map[string]string) instance {
	t.Helper()
	t.Chdir(t.TempDir())
	all := map[string]string{"server.listen_addr": "127.0.0.1:0", "storage.engine": "memory"}
	maps.Copy(all, flags)
	l, err := cli.Load(cli.Input{Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(readyLine, 1)
	ctx, cancel := context.WithCancel(t.Context())
	i := instance{stop: cancel, ended: make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		i.ended <- serve(ctx, l.Config, zerolog.New(ready), nil)
	}()
	t.Cleanup(func() { // the next test finds neither its files nor its limits of memory
		cancel()
		<-over
	})
	select {
	case i.addr = <-ready:
	case err := <-i.ended:
		t.Fatal("ended before it was ready: ", err)
	}
	return i
}

// readyLine is a log writer that extracts the address of the ready line.
type readyLine chan string

func (r readyLine) Write(b []byte) (int, error) {
	var line struct{ Message, Address string }
	if json.Unmarshal(b, &line) == nil && line.Message == "ready" {
		r <- line.Address
	}
	return len(b), nil
}

func (i instance) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", i.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience())); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// ask sends a command and returns its reply of one line.
func ask(t *testing.T, c net.Conn, r *bufio.Reader, command, want string) {
	t.Helper()
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadString('\n'); err != nil || got != want+"\r\n" {
		t.Fatalf("%s answers %q (%v), want %s", command, got, err, want)
	}
}

func TestAStopEndsWaitingLeasesEmptyHanded(t *testing.T) {
	i := launch(t, nil)
	worker, fromWorker := i.dial(t)
	ask(t, worker, fromWorker, "FILA.QUEUE CREATE jobs", "+OK")
	if _, err := io.WriteString(worker, "FILA.LEASE jobs BLOCK 0\r\n"); err != nil {
		t.Fatal(err)
	}
	waitForWaiter(t, i)
	i.stop()
	rest, err := io.ReadAll(fromWorker)
	if err != nil || string(rest) != "*0\r\n" {
		t.Errorf("the worker reads %q (%v), want an empty array and the end", rest, err)
	}
	if err := <-i.ended; err != nil {
		t.Error(err)
	}
}

// waitForWaiter returns once a lease waits in queue jobs.
func waitForWaiter(t *testing.T, i instance) {
	t.Helper()
	c, r := i.dial(t)
	testkit.Eventually(t, "a lease waits", func() bool {
		if _, err := io.WriteString(c, "FILA.QUEUE INFO jobs\r\nPING\r\n"); err != nil {
			t.Fatal(err)
		}
		var info strings.Builder
		for !strings.HasSuffix(info.String(), "+PONG\r\n") {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			info.WriteString(line)
		}
		return strings.Contains(info.String(), "waiters\r\n:1\r\n")
	})
}

func TestTheShutdownCommandStopsTheBroker(t *testing.T) {
	i := launch(t, nil)
	c, r := i.dial(t)
	ask(t, c, r, "PING", "+PONG")
	if _, err := io.WriteString(c, "SHUTDOWN\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-i.ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", i.addr); err == nil {
		t.Error("it still accepts")
	}
}

func TestAPasswordIsAskedFor(t *testing.T) {
	i := launch(t, map[string]string{"auth.password": "s3cret"})
	c, r := i.dial(t)
	ask(t, c, r, "FILA.QUEUE LIST", "-NOAUTH Authentication required.")
	ask(t, c, r, "AUTH s3cret", "+OK")
	ask(t, c, r, "FILA.QUEUE LIST", "*0")
}

func TestLimitsReachTheirParts(t *testing.T) {
	i := launch(t, map[string]string{"limits.payload_bytes": "5", "limits.count": "2", "server.maxclients": "1"})
	c, r := i.dial(t)
	ask(t, c, r, "FILA.QUEUE CREATE jobs", "+OK")
	for command, want := range map[string]string{
		"FILA.ENQUEUE jobs 12345":  "$36",
		"FILA.ENQUEUE jobs 123456": "-TOOBIG ",
		"FILA.LEASE jobs COUNT 3":  "-ERR ",
	} {
		if _, err := io.WriteString(c, command+"\r\n"); err != nil {
			t.Fatal(err)
		}
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("%s answers %q (%v), want %s", command, line, err, want)
		}
		if strings.HasPrefix(line, "$") {
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, second := i.dial(t)
	if line, err := second.ReadString('\n'); err != nil || !strings.HasPrefix(line, "-ERR max number of clients") {
		t.Errorf("the second client reads %q (%v)", line, err)
	}
}

func TestAPortInUseIsSaidBeforeTheStoreIsTouched(t *testing.T) {
	i := launch(t, nil)
	l, err := cli.Load(cli.Input{Flags: map[string]string{"server.listen_addr": i.addr, "storage.path": "untouched"}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	err = serve(t.Context(), l.Config, zerolog.New(&log), nil)
	if err == nil || !strings.Contains(err.Error(), i.addr+" is in use") || !strings.Contains(err.Error(), "--server.listen_addr") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(log.String(), "ready") {
		t.Error(log.String())
	}
}
