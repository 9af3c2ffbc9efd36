package resp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

func TestAStrangerHasOnlySoMuchTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		h.noAuth = true
		c, s := pipe(t, h, func(c *Config) { c.AuthTimeout = 10 * time.Second })
		start := time.Now()
		time.Sleep(9 * time.Second) // what it does meanwhile gains it nothing
		c.send("PING\r\n")
		c.want("+PONG\r\n")
		c.wantEnd("-ERR not authenticated in time\r\n")
		if d := time.Since(start); d != 10*time.Second {
			t.Fatal("closed after", d)
		}
		<-s.gone
	})
}

func TestWhoIsKnownInTimeStays(t *testing.T) {
	for _, idle := range []time.Duration{0, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h := newTestHandler()
			h.noAuth = true
			c, _ := pipe(t, h, func(c *Config) { c.AuthTimeout, c.IdleTimeout = 10*time.Second, idle })
			time.Sleep(9 * time.Second)
			c.send("AUTH\r\n")
			c.want("+OK\r\n")
			for range 3 {
				time.Sleep(20 * time.Hour)
				c.send("PING\r\n")
				c.want("+PONG\r\n")
			}
			c.send("QUIT\r\n")
			c.wantEnd("+OK\r\n")
		})
	}
}

// RESET makes a client unknown again: its time runs from then on.
func TestWhoBecomesAStrangerAgainHasItsTimeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		c, s := pipe(t, h, func(c *Config) { c.AuthTimeout = 10 * time.Second })
		time.Sleep(time.Hour)
		s.forget.Store(true)
		c.send("PING\r\n")
		c.want("+PONG\r\n")
		start := time.Now()
		c.wantEnd("-ERR not authenticated in time\r\n")
		if d := time.Since(start); d != 10*time.Second {
			t.Fatal("closed after", d)
		}
	})
}

func TestTooManyUnauthenticatedConnectionsEvictTheOldest(t *testing.T) {
	h := newTestHandler()
	h.noAuth = true
	_, addr := startServer(t, h, func(c *Config) { c.UnauthenticatedMax = 2 })
	known := dial(t, addr)
	known.send("AUTH\r\n")
	known.want("+OK\r\n")
	var all []*client
	for range 4 {
		c := dial(t, addr)
		c.send("PING\r\n") // by its answer it is there, one after the other
		c.want("+PONG\r\n")
		all = append(all, c)
	}
	all[0].wantEnd("")
	all[1].wantEnd("")
	for _, c := range []*client{all[2], all[3], known} {
		c.send("PING\r\n")
		c.want("+PONG\r\n")
	}
	all[2].send("AUTH\r\n")
	all[2].want("+OK\r\n")
	late := dial(t, addr)
	late.send("PING\r\n")
	late.want("+PONG\r\n")
	all[3].send("PING\r\n") // there is room for two again
	all[3].want("+PONG\r\n")
}

// A client that never finishes its handshake is unauthenticated, too.
func TestUnfinishedHandshakesMakeRoom(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, func(c *Config) {
		c.Addr, c.TLSAddr, c.UnauthenticatedMax = "", c.Addr, 1
		c.TLS = selfSigned(t)
	})
	first := dial(t, addr)
	first.send("\x16\x03\x01")
	testkit.Eventually(t, "the second connection takes the place of the first", func() bool { // which has to be there before
		second := dial(t, addr)
		defer second.Close()
		_ = first.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := first.r.ReadByte()
		return err != nil && !strings.Contains(err.Error(), "timeout")
	})
}
