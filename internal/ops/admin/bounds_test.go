package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/internal/testkit"
)

// slowly sends the beginning of a request whose body never comes, and returns its connection.
func (s *site) slowly(l *pipes, head string) net.Conn {
	s.t.Helper()
	c := l.dial()
	s.t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n", head); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Requests of clients that are allowed to send them take all places. Nothing waits, health is
// still answered, and the places come back.
func TestRequestsAtOnceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on a busy machine the first requests would be cut off before the last are there
		l := newPipes()
		s := serveOn(t, l, newBroker(t), nil)
		s.connect(l)
		var all []net.Conn
		for range requestsMax {
			all = append(all, s.slowly(l, "/v1/command HTTP/1.1\r\nContent-Type: application/json\r\nX: "))
		}
		testkit.Eventually(t, "all places are taken", func() bool { return len(s.requests) == requestsMax })
		got := s.do("POST", "/v1/command", `["PING"]`)
		if got.status != http.StatusServiceUnavailable || got.json(t)["code"] != "BUSY" || got.header.Get("Retry-After") != "1" {
			t.Errorf("one more: %d %s", got.status, got.body)
		}
		if got := s.do("GET", "/v1/session", ""); got.status != http.StatusServiceUnavailable {
			t.Errorf("the session: %d", got.status)
		}
		if got := s.do("GET", "/healthz", ""); got.status != 200 {
			t.Errorf("health: %d", got.status)
		}
		s.follow("/v1/live")
		_ = all[0].Close()
		testkit.Eventually(t, "a place is free", func() bool { return s.do("POST", "/v1/command", `["PING"]`).status == 200 })
	})
}

// Without credentials a request takes no place for longer than it is refused in.
func TestStrangersTakeNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on a busy machine the first requests would be cut off before the last are there
		l := newPipes()
		s := serveOn(t, l, newBroker(t, users()...), nil)
		s.connect(l)
		for range requestsMax + 1 {
			c := s.slowly(l, "/v1/command HTTP/1.1\r\nContent-Type: application/json\r\nX: ")
			b := make([]byte, len("HTTP/1.1 401"))
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 401" {
				t.Fatalf("%q, %v", b, err)
			}
		}
		if got := s.run(200, "ACL WHOAMI", as("admin", "nimda")); got != `"admin"` {
			t.Error(got)
		}
		for range loginsMax {
			s.slowly(l, "/v1/session HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nX: ")
		}
		testkit.Eventually(t, "all logins are taken", func() bool { return len(s.logins) == loginsMax })
		if got := s.login("admin", "nimda"); got.status != http.StatusServiceUnavailable {
			t.Errorf("one more login: %d", got.status)
		}
		s.run(200, "PING", as("admin", "nimda"))
	})
}

func TestStreamsAtOnceAreBounded(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	var all []*follower
	for range streamsMax {
		all = append(all, s.follow("/v1/events?pattern=fila:*"))
	}
	if got := s.do("GET", "/v1/live", ""); got.status != http.StatusServiceUnavailable || got.json(t)["code"] != "BUSY" {
		t.Errorf("one more: %d %s", got.status, got.body)
	}
	s.run(200, "PING")
	_ = all[0].resp.Body.Close()
	testkit.Eventually(t, "a place is free", func() bool {
		resp := s.send("GET", "/v1/live", "")
		defer resp.Body.Close()
		return resp.StatusCode == 200
	})
}

func TestLargeRepliesAtOnceAreBounded(t *testing.T) {
	large := newPlaces(1)
	gate := func(ctx context.Context, text string) *replyGate {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			_, _ = io.WriteString(theirs, text)
		}()
		t.Cleanup(func() { ours.Close() })
		return &replyGate{Conn: ours, ctx: ctx, large: large}
	}
	first := gate(t.Context(), strings.Repeat("x", 2*smallBytes))
	if b, err := io.ReadAll(first); len(b) != 2*smallBytes || err != nil || len(large) != 1 {
		t.Fatalf("%d bytes, %v, %d places", len(b), err, len(large))
	}
	if b, err := io.ReadAll(gate(t.Context(), strings.Repeat("x", smallBytes/2))); len(b) != smallBytes/2 || err != nil {
		t.Errorf("a small one beside it: %d bytes, %v", len(b), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := gate(ctx, strings.Repeat("x", 2*smallBytes))
	if b, err := io.ReadAll(second); len(b) >= 2*smallBytes || !errors.Is(err, context.Canceled) {
		t.Errorf("a large one beside it: %d bytes, %v", len(b), err)
	}
	second.release()
	first.release()
	if third := gate(t.Context(), strings.Repeat("x", 2*smallBytes)); len(large) != 0 {
		t.Error("its place is kept")
	} else if _, err := io.ReadAll(third); err != nil {
		t.Error(err)
	}
}

func TestALargeReplyComesWhole(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	s.run(200, "FILA.QUEUE CREATE jobs")
	text := strings.Repeat("x", bodyBytesMax-100)
	for range 4 {
		if got := s.do("POST", "/v1/command", `["FILA.ENQUEUE","jobs","`+text+`"]`); got.status != 200 {
			t.Fatal(got.body)
		}
	}
	got := s.do("POST", "/v1/command", `["FILA.LEASE","jobs","COUNT","4"]`)
	if got.status != 200 || strings.Count(got.body, text) != 4 {
		t.Errorf("%d, %d bytes", got.status, len(got.body))
	}
	testkit.Eventually(t, "its place is free", func() bool { return len(s.large) == 0 })
}

// A broker that starts or stops takes no connections.
func TestWithoutABrokerCommandsAreRefused(t *testing.T) {
	s := serve(t, newBroker(t), func(c *Config) { c.Broker = away{} })
	for _, got := range []reply{s.do("POST", "/v1/command", `["PING"]`), s.do("GET", "/v1/live", ""), s.login("admin", "nimda"), s.do("GET", "/v1/session", "", as("a", "b"))} {
		if got.status != http.StatusServiceUnavailable || got.json(t)["code"] != "LOADING" {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if got := s.do("GET", "/readyz", ""); got.status != 503 || got.body != "recovering\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// away is a broker that recovers.
type away struct{}

func (away) Connect(string, net.Addr, net.Addr) (net.Conn, <-chan struct{}, error) {
	return nil, nil, ErrUnavailable
}

func (away) State(context.Context) State { return Recovering }

// A broker that ends while a command runs is one clear error.
func TestAConnectionThatEndsIsAnError(t *testing.T) {
	s := serve(t, newBroker(t), nil)
	got := s.do("POST", "/v1/command", `["SHUTDOWN"]`)
	if got.status != http.StatusServiceUnavailable || got.json(t)["code"] != "CLOSED" || strings.Count(got.body, "\n") != 1 {
		t.Errorf("%d %s", got.status, got.body)
	}
}
