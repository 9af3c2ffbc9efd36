//go:build !race

package commands

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// idIn returns the ids in replies, receiptsIn the receipts.
func idIn(replies string) []string {
	return regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).FindAllString(replies, -1)
}

func receiptsIn(replies string) []string {
	return regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`).FindAllString(replies, -1)
}

// ackUnread acks a message, while no connection writes what becomes ready.
func ackUnread(s *server, receipt, value string) {
	s.connect("acks").handle([]string{"FILA.ACK", "q", receipt, "RESULT", value})
}

// Results that clients wait for and do not read keep of their values what a connection may, and what
// all may; the others are read again when they are written, and none is missing. A request that does
// not wait has the room of its value, like other commands.
func TestResultsAreKeptWithinBounds(t *testing.T) {
	const messages, size = 6, 100 << 10
	for name, limits := range map[string]Limits{
		"one connection":  {Retained: 2*size + smallRoom, RetainedTotal: 1 << 30},
		"all connections": {Retained: 1 << 30, RetainedTotal: 2*size + smallRoom},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(c *Config) { c.Limits = limits })
			s.do(t, "FILA.QUEUE", "CREATE", "q")
			var asks [][]string
			for range messages {
				id := idIn(s.do(t, "FILA.ENQUEUE", "q", "x"))[0]
				asks = append(asks, []string{"FILA.RESULT", "q", id, "BLOCK", "0"})
			}
			c := s.connect("waits")
			_, waiting := c.handle(asks...)
			value := strings.Repeat("v", size)
			for _, receipt := range receiptsIn(s.do(t, "FILA.LEASE", "q", "COUNT", strconv.Itoa(messages))) {
				ackUnread(s, receipt, value)
			}
			kept := 0
			for _, p := range waiting {
				if r, ok := p.call.(*resultCall); ok && p.Ready() {
					kept += len(r.req.Result.Value)
				}
			}
			if most := 2*size + smallRoom; len(waiting) != messages || kept > most || kept < most/2 {
				t.Errorf("%d results keep %d bytes, %d are allowed", len(waiting), kept, most)
			}
			if c.flush(); strings.Count(c.received(), value) != messages {
				t.Errorf("%d of %d values came", strings.Count(c.received(), value), messages)
			}
			if n := s.handler.retained.Used() + s.handler.loads.Used() + c.session.memory.retained.Load(); n != 0 {
				t.Errorf("%d bytes are counted that no reply holds", n)
			}
		})
	}
}

// What a result keeps is not counted for ever when the commit that it waits for fails, or the client
// has gone.
func TestAResultThatIsNotWrittenKeepsNothing(t *testing.T) {
	s := newServer(t, nil)
	s.do(t, "FILA.QUEUE", "CREATE", "q")
	value := strings.Repeat("v", 100<<10)
	begin := func(name string) (c *fakeConn, receipt string) {
		id := idIn(s.do(t, "FILA.ENQUEUE", "q", "x"))[0]
		c = s.connect(name)
		c.handle([]string{"FILA.RESULT", "q", id, "BLOCK", "0"})
		return c, receiptsIn(s.do(t, "FILA.LEASE", "q"))[0]
	}
	c, receipt := begin("leaves")
	if ackUnread(s, receipt, value); s.handler.retained.Used() == 0 {
		t.Fatal("the result keeps nothing to begin with")
	}
	c.gone()
	if n := s.handler.retained.Used(); n != 0 {
		t.Errorf("%d bytes are kept for a client that has gone", n)
	}
	c, receipt = begin("fails")
	s.store.FailCommits(errors.New("the disk is gone"))
	ackUnread(s, receipt, value)
	c.flush()
	if n := s.handler.retained.Used(); n != 0 {
		t.Errorf("%d bytes are kept after a commit that has failed: %q", n, c.received())
	}
}

// A value that has no room and is not on disk is refused, and the client may ask again.
func TestAResultWithoutRoomThatIsNotKeptIsRefused(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Limits = Limits{Retained: 1, RetainedTotal: 1} })
	s.do(t, "FILA.QUEUE", "CREATE", "q", "RESULTTTL", "0")
	s.handler.retained.Take(1) // the first one always has room
	id := idIn(s.do(t, "FILA.ENQUEUE", "q", "x"))[0]
	c := s.connect("waits")
	c.handle([]string{"FILA.RESULT", "q", id, "BLOCK", "0"})
	ackUnread(s, receiptsIn(s.do(t, "FILA.LEASE", "q"))[0], strings.Repeat("v", 100<<10))
	if c.flush(); !strings.HasPrefix(c.received(), "-OOM too many results wait to be read by their clients, and the queue keeps none") {
		t.Errorf("it is answered %.200q", c.received())
	}
}
