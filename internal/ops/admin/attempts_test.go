package admin

import (
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

func wrong() error { return client.RefusalError{Code: "WRONGPASS", Text: "no"} }

func right() error { return nil }

// waits returns how long an address has to wait; 0 if its attempt was made.
func waits(t *testing.T, err error) time.Duration {
	t.Helper()
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return 0
	}
	if f.status != http.StatusTooManyRequests {
		t.Fatalf("status %d", f.status)
	}
	return f.retry
}

func TestAFailureCostsASecondAndDoublesToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		from := netip.MustParseAddr("10.0.0.1")
		for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			want := time.Duration(seconds) * time.Second
			if err := a.try(from, wrong); waits(t, err) != 0 {
				t.Fatalf("attempt %d: %v", i, err)
			}
			if got := waits(t, a.try(from, right)); got != want {
				t.Fatalf("after %d failures it waits %s, want %s", i+1, got, want)
			}
			if err := a.try(netip.MustParseAddr("10.0.0.2"), right); err != nil {
				t.Fatalf("another address: %v", err)
			}
			time.Sleep(want - 1)
			if waits(t, a.try(from, right)) != 1 {
				t.Fatal("it is let in too early")
			}
			time.Sleep(time.Nanosecond)
		}
		if err := a.try(from, right); err != nil {
			t.Fatal(err)
		}
		if err := a.try(from, wrong); waits(t, err) != 0 {
			t.Fatal(err)
		}
		if got := waits(t, a.try(from, right)); got != time.Minute {
			t.Errorf("a success in between forgives: it waits %s", got)
		}
		time.Sleep(time.Minute + penaltyForgiven + 1)
		_ = a.try(from, wrong)
		if got := waits(t, a.try(from, right)); got != time.Second {
			t.Errorf("it is never forgiven: it waits %s", got)
		}
	})
}

// Of attempts that are made at the same time, those behind one that fails are not looked at.
func TestAttemptsAtTheSameTimeAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		looked := 0
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_ = a.try(netip.MustParseAddr("10.0.0.1"), func() error { looked++; return wrong() })
			})
		}
		all.Wait()
		if looked != 1 {
			t.Errorf("%d passwords were looked at", looked)
		}
	})
}

func TestWhatCountsAsOneAddress(t *testing.T) {
	for _, same := range [][2]string{{"::ffff:10.0.0.1", "10.0.0.1"}, {"2001:db8::1", "2001:db8::ffff:1:2:3"}, {"fe80::1%eth0", "fe80::1"}} {
		if network(netip.MustParseAddr(same[0])) != network(netip.MustParseAddr(same[1])) {
			t.Errorf("%s are two", same)
		}
	}
	for _, other := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"2001:db8::1", "2001:db8:0:1::1"}} {
		if network(netip.MustParseAddr(other[0])) == network(netip.MustParseAddr(other[1])) {
			t.Errorf("%s are one", other)
		}
	}
}

func TestTheTableOfFailuresIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		first := netip.MustParseAddr("10.0.0.1")
		_ = a.try(first, wrong)
		time.Sleep(penaltyFirst)
		_ = a.try(first, wrong) // waits two seconds now
		addr := netip.MustParseAddr("10.1.0.1")
		for range attemptsMax - 1 {
			_ = a.try(addr, wrong)
			addr = addr.Next()
		}
		if len(a.failed) != attemptsMax {
			t.Fatalf("%d addresses, want %d", len(a.failed), attemptsMax)
		}
		for range 100 {
			_ = a.try(addr, wrong)
			addr = addr.Next()
		}
		if len(a.failed) != attemptsMax {
			t.Errorf("%d addresses, want %d", len(a.failed), attemptsMax)
		}
		if waits(t, a.try(first, right)) == 0 {
			t.Error("the address with the longest penalty was dropped")
		}
	})
}

func TestWrongPasswordsOverHTTPAreSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, newBroker(t, users()...), nil)
		s.connect(l)
		if got := s.login("admin", "guess"); got.status != http.StatusUnauthorized || got.json(t)["code"] != "WRONGPASS" || got.header.Get("Set-Cookie") != "" {
			t.Fatalf("a wrong password: %d %s", got.status, got.body)
		}
		for name, got := range map[string]reply{
			"login": s.login("admin", "nimda"), "Basic": s.do("GET", "/v1/session", "", as("admin", "nimda")), "stream": s.do("GET", "/v1/live", "", as("admin", "nimda")),
		} {
			after, err := strconv.Atoi(got.header.Get("Retry-After"))
			if got.status != http.StatusTooManyRequests || err != nil || after < 1 || got.header.Get("Set-Cookie") != "" {
				t.Errorf("%s with the right password within a second: %d %s, Retry-After %q", name, got.status, got.body, got.header.Get("Retry-After"))
			}
		}
		if got := s.do("GET", "/healthz", ""); got.status != 200 {
			t.Errorf("what needs no password is %d", got.status)
		}
		testkit.Eventually(t, "the right password counts again", func() bool { return s.login("admin", "nimda").status == http.StatusNoContent })
	})
}
