//go:build unix

package resp

import (
	"bytes"
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

func TestIdleConnectionsAreSmall(t *testing.T) {
	// 11 KiB, nearly all of it the stacks of the two goroutines; a buffer that
	// stays would show.
	const n, each = 1000, 14 << 10
	got := idleBytes(t, n)
	t.Log(got, "bytes a connection")
	if got > each {
		t.Fatalf("%d bytes a connection", got)
	}
}

// idleBytes measures one connection that was used and then fell quiet. The
// clients are bare descriptors, so only the server's side counts.
func idleBytes(tb testing.TB, n int) int64 {
	tb.Helper()
	h := newTestHandler()
	h.sessions = make(chan *testSession, 2*n)
	s, addr := startServer(tb, h, func(c *Config) { c.MaxClients = n })
	warm := bareClient(tb, addr)
	before := heap()
	for range n - 1 {
		bareClient(tb, addr)
	}
	testkit.Eventually(tb, "all replies are sent", func() bool { return s.Stats().BytesOut == uint64(n*7*20) })
	grown := heap() - before
	runtime.KeepAlive(warm)
	return grown / int64(n-1)
}

// bareClient connects, pipelines some commands, and stays without reading.
func bareClient(tb testing.TB, addr string) int {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	to := &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}
	if err := syscall.Connect(fd, to); err != nil {
		tb.Fatal(err)
	}
	if _, err := syscall.Write(fd, bytes.Repeat([]byte("PING\r\n"), 20)); err != nil {
		tb.Fatal(err)
	}
	return fd
}

// BenchmarkIdleConnections reports what one quiet connection costs the server.
func BenchmarkIdleConnections(b *testing.B) {
	const n = 9000 // both ends count against this process' descriptors
	var got int64
	for b.Loop() {
		got = idleBytes(b, n)
	}
	b.ReportMetric(float64(got), "B/conn")
}
