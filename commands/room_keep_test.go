package commands

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/faisca/fila/resp"
)

// waiting returns the replies that a connection has not written: commands that were
// handled, and answered, while nothing is read.
func (c *fakeConn) handle(cmds ...[]string) (read []resp.Command, waiting []*pending) {
	read = commandsOf(cmds...)
	c.session.Handle(read)
	c.server.Do()
	for _, r := range c.window {
		if within, ok := r.(interface{ Unwrap() resp.Reply }); ok {
			r = within.Unwrap()
		}
		if p, ok := r.(*pending); ok {
			waiting = append(waiting, p)
		}
	}
	return read, waiting
}

// A reply that waits keeps of a large command what the slow log would show, and a short
// command that came with it does not keep what both came in.
func TestLargeArgumentsAreNotKeptForTheReply(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	c := s.connect("")
	payload := strings.Repeat("x", 100<<10)
	read, waiting := c.handle([]string{"FILA.ENQUEUE", "orders", payload}, []string{"FILA.STATS", "orders"})
	if len(waiting) != 2 {
		t.Fatalf("%d replies wait", len(waiting))
	}
	for i, p := range waiting {
		kept := 0
		for _, text := range p.shown {
			kept += len(text)
		}
		if p.args != nil || read[i].Args != nil || kept == 0 || kept > slowArgsMax*(slowBytesMax+perWord) {
			t.Errorf("command %d: %d arguments are kept, %d were read, %d bytes are for the slow log", i, len(p.args), len(read[i].Args), kept)
		}
	}
	c.flush()
	if _, few := c.handle([]string{"FILA.STATS", "orders"}); len(few) != 1 || few[0].args == nil {
		t.Error("a short command has lost its arguments")
	}
}

// Leases that are pipelined and not read keep of their messages what a connection may, and
// what all may; the others are read again when they are written, and none is missing.
func TestLeasedMessagesAreKeptWithinBounds(t *testing.T) {
	const messages, size = 6, 100 << 10
	for name, limits := range map[string]Limits{
		"one connection":  {Handed: 2*size + smallRoom, HandedTotal: 1 << 30},
		"all connections": {Handed: 1 << 30, HandedTotal: 2*size + smallRoom},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(c *Config) { c.Limits = limits })
			s.do(t, "FILA.QUEUE", "CREATE", "orders")
			payload := strings.Repeat("x", size)
			var leases [][]string
			for range messages {
				s.do(t, "FILA.ENQUEUE", "orders", payload)
				leases = append(leases, []string{"FILA.LEASE", "orders"})
			}
			c := s.connect("")
			_, waiting := c.handle(leases...)
			kept := 0
			for _, p := range waiting {
				if l, ok := p.call.(*leaseCall); ok {
					for _, d := range l.deliveries {
						kept += d.Held()
					}
				}
			}
			if most := 2*size + smallRoom; len(waiting) != messages || kept > most || kept < most/2 {
				t.Errorf("%d leases keep %d bytes, %d are allowed", len(waiting), kept, most)
			}
			if c.flush(); strings.Count(c.received(), payload) != messages {
				t.Error("messages are missing")
			}
			if n := s.handler.handed.Used() + s.handler.loads.Used() + c.session.handed.Load(); n != 0 {
				t.Errorf("%d bytes are counted that nobody has", n)
			}
		})
	}
}

// What a lease keeps is not counted for ever when the commit after it fails, or the client
// has gone.
func TestALeaseThatIsNotWrittenKeepsNothing(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "fresh")
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.do(t, "FILA.ENQUEUE", "orders", strings.Repeat("x", 100<<10))
	c := s.connect("leaves")
	if _, waiting := c.handle([]string{"FILA.LEASE", "orders"}); len(waiting) != 1 || s.handler.handed.Used() == 0 {
		t.Fatal("the lease keeps nothing to begin with")
	}
	c.gone()
	if n := s.handler.handed.Used(); n != 0 {
		t.Errorf("%d bytes are kept for a client that has gone", n)
	}
	s.Do()
	s.store.FailCommits(errors.New("the disk is gone"))
	c = s.connect("fails")
	c.handle([]string{"FILA.ENQUEUE", "fresh", strings.Repeat("x", 100<<10)}, []string{"FILA.LEASE", "fresh"})
	c.flush()
	if n := s.handler.handed.Used(); n != 0 {
		t.Errorf("%d bytes are kept after a commit that has failed: %q", n, c.received())
	}
}

// Messages that are read to be written are counted among those of all connections: a reply
// that has some ends when there is no room for more, and one that has none waits.
func TestMessagesAreReadWithinWhatAllConnectionsMayHave(t *testing.T) {
	const size = 2 << 20
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *Config) {
			c.Limits = Limits{Message: size + smallRoom, Loading: 2 * (size + smallRoom), Handed: 1, HandedTotal: 1}
		})
		s.do(t, "FILA.QUEUE", "CREATE", "orders")
		s.handler.handed.Take(1) // so that none is kept from when it was in memory
		payload := strings.Repeat("x", size)
		for range 4 {
			s.do(t, "FILA.ENQUEUE", "orders", payload)
		}
		if got := strings.Count(s.do(t, "FILA.LEASE", "orders", "COUNT", "4"), payload); got != 2 {
			t.Errorf("a reply has %d messages, there was room for 2", got)
		}
		s.handler.loads.Take(2 * (size + smallRoom)) // by others
		c := s.connect("other")
		c.handle([]string{"FILA.LEASE", "orders", "COUNT", "4"})
		written := make(chan struct{})
		go func() {
			c.flush()
			close(written)
		}()
		synctest.Wait()
		if c.out.Len() > 0 {
			t.Error("a message was read while others had all the room")
		}
		s.handler.loads.Give(2 * (size + smallRoom))
		<-written
		if got := strings.Count(c.received(), payload); got != 2 {
			t.Errorf("a reply has %d messages, there are 2 left", got)
		}
		if n := s.handler.loads.Used(); n != 0 {
			t.Errorf("%d bytes are counted that nobody has", n)
		}
	})
}

// Commands that wait for EXEC are bounded, those of all clients together; short
// transactions always pass, and what one has held others have when it is over.
func TestLongTransactionsOfAllClientsAreBounded(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Limits.QueuedTotal = 1 << 20 })
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	long, short := strings.Repeat("x", 600<<10), strings.Repeat("x", 100<<10)
	queue := func(conn, payload string) string {
		c := s.connect(conn)
		if c.session.multi == nil {
			c.do("MULTI")
		}
		return c.do("FILA.ENQUEUE", "orders", payload)
	}
	for _, step := range []struct {
		conn, payload, want string
		before              func()
	}{
		{"a", long, "+QUEUED", nil},
		{"b", long, "-OOM", nil},
		{"c", short, "+QUEUED", nil},
		{"c", short, "+QUEUED", nil},
		{"d", long, "+QUEUED", func() { s.connect("a").do("EXEC") }},
		{"e", long, "-OOM", nil},
		{"f", long, "+QUEUED", func() { s.connect("d").gone() }},
		{"g", long, "+QUEUED", func() { s.connect("f").do("DISCARD") }},
		{"h", long, "+QUEUED", func() { s.connect("g").do("RESET") }},
	} {
		if step.before != nil {
			step.before()
		}
		if got := queue(step.conn, step.payload); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %.80q, want %s", step.conn, got, step.want)
		}
	}
	s.connect("h").do("DISCARD")
	if n := s.handler.queued.Used(); n != 0 {
		t.Errorf("%d bytes are counted that nobody has", n)
	}
}
