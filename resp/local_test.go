package resp

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

// serveLocal serves a local connection of a user and returns the other end.
func serveLocal(t *testing.T, h *testHandler, s *Server, user string) (*client, *testSession) {
	t.Helper()
	ours, theirs := net.Pipe()
	go s.ServeLocal(ours, user)
	return newClient(t, theirs), <-h.sessions
}

func TestALocalConnectionKnowsItsUserAndOthersKnowNone(t *testing.T) {
	h := newTestHandler()
	s := newTestServer(t, h, nil)
	c, session := serveLocal(t, h, s, "ops")
	if got := session.c.LocalUser(); got != "ops" {
		t.Errorf("its user is %q", got)
	}
	ours, theirs := net.Pipe()
	go s.ServeConn(ours, 0)
	other := <-h.sessions
	if got := other.c.LocalUser(); got != "" {
		t.Errorf("another connection has the user %q", got)
	}
	_ = theirs.Close()
	c.send("QUIT\r\n")
	c.wantEnd("+OK\r\n")
}

func TestLocalConnectionsTakeNoPlacesOfClients(t *testing.T) {
	h := newTestHandler()
	s, addr := startServer(t, h, func(c *Config) { c.MaxClients = 1 })
	for range 3 {
		c, _ := serveLocal(t, h, s, "")
		c.send("PING\r\n")
		c.want("+PONG\r\n")
	}
	first := dial(t, addr)
	first.send("PING\r\n")
	first.want("+PONG\r\n")
	<-h.sessions
	dial(t, addr).wantEnd(tooManyClients)
	late, session := serveLocal(t, h, s, "")
	late.send("QUIT\r\n")
	late.wantEnd("+OK\r\n")
	testkit.Receive(t, "the session ends", session.gone)
	dial(t, addr).wantEnd(tooManyClients) // the end of a local one makes no room for others
}

func TestALocalConnectionMayBeIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		s := newTestServer(t, h, func(c *Config) { c.IdleTimeout = time.Minute })
		c, _ := serveLocal(t, h, s, "ops")
		time.Sleep(time.Hour)
		c.send("QUIT\r\n")
		c.wantEnd("+OK\r\n")
	})
}

func TestAShutdownEndsLocalConnectionsAndTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		s := newTestServer(t, h, nil)
		c, session := serveLocal(t, h, s, "ops")
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-session.gone
		c.wantEnd("")
		ours, theirs := net.Pipe()
		go s.ServeLocal(ours, "ops")
		newClient(t, theirs).wantEnd("")
	})
}

// A client of another node takes a place like any client, but only that node knows whether it is idle.
func TestARelayedConnectionMayBeIdleAndTakesAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		s := newTestServer(t, h, func(c *Config) { c.IdleTimeout, c.MaxClients = time.Minute, 1 })
		ours, theirs := net.Pipe()
		go s.ServeRelayed(ours)
		c, session := newClient(t, theirs), <-h.sessions
		if !session.c.Relayed() {
			t.Error("it does not know that it is relayed")
		}
		time.Sleep(time.Hour)
		late, end := net.Pipe()
		go s.ServeRelayed(late)
		newClient(t, end).wantEnd(tooManyClients)
		c.send("QUIT\r\n")
		c.wantEnd("+OK\r\n")
	})
}
