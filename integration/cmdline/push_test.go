package cmdline_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// endpoint is a receiver that keeps what it has answered with 2xx, and can be killed and come back.
type endpoint struct {
	t    *testing.T
	addr string

	mu     sync.Mutex
	server *http.Server
	got    map[string]int
	answer func(w http.ResponseWriter, r *http.Request, body string) bool // whether it is done; nil: it always is
}

func receive(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{t: t, got: map[string]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.addr = l.Addr().String()
	e.begin(l)
	t.Cleanup(e.kill)
	return e
}

func (e *endpoint) begin(l net.Listener) {
	s := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	e.mu.Lock()
	e.server = s
	e.mu.Unlock()
	go func() { _ = s.Serve(l) }() // until it is closed
}

// kill closes the connections, also of requests that are under way.
func (e *endpoint) kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.server.Close() // what fails is what is killed
}

// again listens at the same address.
func (e *endpoint) again() {
	e.t.Helper()
	testkit.Eventually(e.t, "the address is free again", func() bool {
		l, err := net.Listen("tcp", e.addr)
		if err == nil {
			e.begin(l)
		}
		return err == nil
	})
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answer == nil || e.answer(w, r, string(body)) {
		e.got[string(body)]++
	}
}

// seen is how many messages have been taken.
func (e *endpoint) seen() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.got)
}

// The receiver, fila push and the broker are killed in turns: each message is taken at least once, none is dead.
func TestPushLosesNothingWhenEitherSideIsKilled(t *testing.T) {
	rounds, share := 12, 60 // share is how many messages each round brings
	if testing.Short() {
		rounds, share = 6, 30
	}
	b := serve(t)
	b.do("FILA.QUEUE", "CREATE", "q", "VISIBILITY", "800", "BACKOFF", "10", "MAXATTEMPTS", "100000")
	e := receive(t)
	line := "fila push q http://" + e.addr + " --private --concurrency 4 2>> log"
	w := b.working(line)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what fila push has said last: %q", b.lastLines("log", 20))
		}
	})
	messages := 0
	for round := range rounds {
		// More than a killed process has left under way, so that a new one has connected before the broker is killed.
		some := e.seen() + 5 + rand.IntN(share/2)
		for range share {
			messages++
			b.do("FILA.ENQUEUE", "q", strconv.Itoa(messages))
		}
		testkit.Eventually(t, "some of them are taken", func() bool { return e.seen() >= some })
		switch round % 3 {
		case 0:
			e.kill()
			e.again()
		case 1:
			interrupt(t, w, syscall.SIGKILL)
			w = b.working(line)
		case 2:
			b.restart()
		}
	}
	testkit.Eventually(t, "the queue is empty", func() bool { return b.left("q") == 0 })
	if code := interrupt(t, w, syscall.SIGTERM); code != 0 {
		t.Errorf("it stopped with exit code %d", code)
	}
	for n := 1; n <= messages; n++ {
		if e.got[strconv.Itoa(n)] == 0 {
			t.Errorf("message %d was acked and never taken", n)
		}
	}
	if dead := b.info("q.dlq", "ready"); dead > 0 {
		t.Errorf("%d messages are dead", dead)
	}
}

func TestTheAnswerOfAReceiverDecides(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "q", "BACKOFF", "3600000")
	e := receive(t)
	e.answer = func(w http.ResponseWriter, _ *http.Request, body string) bool {
		status, err := strconv.Atoi(body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(status)
		fmt.Fprintf(w, "reason %d\n", status)
		return status == http.StatusOK
	}
	for status, want := range map[int]string{200: "", 410: "dead", 500: "delayed", 429: "delayed"} {
		b.do("FILA.ENQUEUE", "q", strconv.Itoa(status), "KEY", "acme", "THROTTLE", "provider:acme")
		_, stderr, code := b.typed("fila push q http://" + e.addr + " --private --max 1 --hold 'provider:{key}'")
		if code != 0 {
			t.Fatalf("%d: exit code %d, said %s", status, code, stderr)
		}
		queue := map[bool]string{true: "q.dlq", false: "q"}[want == "dead"]
		var list []any
		if want != "" {
			list = b.do("FILA.BROWSE", queue, "PAYLOAD", strconv.Itoa(status)).([]any)[1].([]any)
		}
		if want == "" != (len(list) == 0) {
			t.Errorf("%d: %s has %v", status, queue, list)
		}
		for _, m := range list {
			m := m.(client.Map)
			if reason := fmt.Sprintf("%d %s: reason %d", status, http.StatusText(status), status); m.Text("status") != want || m.Text("error") != reason {
				t.Errorf("%d: a message is %s with the error %q", status, m.Text("status"), m.Text("error"))
			}
		}
		held := b.do("FILA.THROTTLE", "GET", "provider:acme")
		if m, ok := held.(client.Map); (ok && m.Int("held_until") > 0) != (status == http.StatusTooManyRequests) {
			t.Errorf("%d: the throttle is %v", status, held)
		}
		b.do("FILA.THROTTLE", "HOLD", "provider:acme", "0")
	}
	// A message that does not name the throttle is delayed alone.
	b.do("FILA.PURGE", "q")
	b.do("FILA.ENQUEUE", "q", "503", "KEY", "acme")
	_, stderr, code := b.typed("fila push q http://" + e.addr + " --private --max 1 --hold provider:other")
	if code != 0 || !strings.Contains(stderr, "this message alone is delayed by 10m0s") {
		t.Errorf("exit code %d, said %s", code, stderr)
	}
	if n := b.info("q", "delayed"); n != 1 {
		t.Errorf("%d messages are delayed", n)
	}
}

func TestPushRefusesWhatIsNotPublic(t *testing.T) {
	b := serve(t, "--storage.engine", "memory")
	e := receive(t)
	b.do("FILA.QUEUE", "CREATE", "q", "BACKOFF", "3600000")
	b.do("FILA.ENQUEUE", "q", "secret")
	_, port, err := net.SplitHostPort(e.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, code := b.typed("fila push q http://localhost:" + port + " --max 1")
	if code != 0 || !strings.Contains(stderr, "is not a public address: --private allows it") || e.seen() > 0 || b.info("q", "ready") != 1 {
		t.Errorf("exit code %d, said %s, %d were sent, %d are left", code, stderr, e.seen(), b.info("q", "ready"))
	}
	for line, want := range map[string]string{
		"fila push q ftp://example.com":                         "URL must be an address",
		"fila push q https://example.com --timeout 0s":          "--timeout must be at least 1ms",
		"fila push q https://example.com --secret-file missing": "--secret-file: ",
		"fila push q https://example.com --concurrency 0":       "--concurrency must be from 1",
	} {
		if _, stderr, code := b.typed(line); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, said %s", line, code, stderr)
		}
	}
}
