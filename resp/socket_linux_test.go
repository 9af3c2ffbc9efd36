package resp

import (
	"net"
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
