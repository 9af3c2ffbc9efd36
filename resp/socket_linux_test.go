package resp

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/faisca/fila/internal/testkit"
)

func TestAcceptedSocketsNoticeDeadPeers(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	raw, err := s.c.nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct {
		name              string
		level, opt, value int
	}{
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30_000},
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	} {
		var got int
		if cerr := raw.Control(func(fd uintptr) {
			got, err = unix.GetsockoptInt(int(fd), o.level, o.opt)
		}); cerr != nil || err != nil || got != o.value {
			t.Errorf("%s is %d, want %d (%v, %v)", o.name, got, o.value, cerr, err)
		}
	}
}

// What the system of a client had not acknowledged when the connection ended has not reached the client.
func TestAReplyThatWasNeverAcknowledgedIsDropped(t *testing.T) {
	for _, c := range []struct {
		name    string
		reads   bool // the client reads its reply
		patient bool // it is taken to be on its way for longer than the connection lasts
		drops   int32
	}{
		{"it is stuck", false, false, 1},
		{"it is on its way", false, true, 0},
		{"it is read", true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestHandler()
			server, addr := startServer(t, h, nil)
			if server.unackedMin = 0; c.patient {
				server.unackedMin = testkit.Patience()
			}
			dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
				return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
			}}
			nc, err := dialer.DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			client := newClient(t, nc)
			s := testkit.Receive(t, "the connection opens", h.sessions)
			h.sessions <- s
			client.send("WAITFRAIL\r\n")
			r := testkit.Receive(t, "the command waits", h.waits)
			r.text = "$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n" // more than the client's system takes
			s.release(r)
			testkit.Eventually(t, "the reply is written", func() bool { return r.sent.Load() && s.c.Pending() == 0 })
			if c.reads {
				if _, err := io.ReadFull(client.r, make([]byte, len(r.text))); err != nil {
					t.Fatal(err)
				}
			}
			if err := nc.(*net.TCPConn).SetLinger(0); err != nil { //nolint:forcetypeassert // it is
				t.Fatal(err)
			}
			client.Close()
			testkit.Receive(t, "Gone is called", s.gone)
			testkit.Eventually(t, "the connection ends", func() bool { return len(server.Conns()) == 0 })
			if n := r.drops.Load(); n != c.drops {
				t.Errorf("%d drops, want %d", n, c.drops)
			}
		})
	}
}
