package resp

import (
	"net"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// A session that waits in Handle learns that its client has left, although there are bytes
// before that which nothing reads meanwhile.
func TestAWatchedConnectionNoticesThatItsClientIsLost(t *testing.T) {
	for name, leave := range map[string]func(c *net.TCPConn, s *testSession){
		"closed":      func(c *net.TCPConn, _ *testSession) { _ = c.Close() },
		"reset":       func(c *net.TCPConn, _ *testSession) { _ = c.SetLinger(0); _ = c.Close() },
		"half closed": func(c *net.TCPConn, _ *testSession) { _ = c.CloseWrite() },
		"killed":      func(_ *net.TCPConn, s *testSession) { s.c.Close() },
		"stopped":     func(_ *net.TCPConn, s *testSession) { s.c.CloseAfterFlush() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHandler()
			_, addr := startServer(t, h, nil)
			c := dial(t, addr)
			s := testkit.Receive(t, "the connection opens", h.sessions)
			h.sessions <- s
			c.send("WATCH\r\n")
			r := testkit.Receive(t, "the command watches its client", h.waits)
			c.send("PING\r\nPING\r\n") // nothing reads it
			if s.c.hungUp() {
				t.Error("the client is there, and counts as lost")
			}
			leave(c.Conn.(*net.TCPConn), s)
			s.release(r)
			testkit.Receive(t, "Gone is called", s.gone)
		})
	}
}
