//go:build unix

package rawio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/faisca/fila/internal/tuning"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := nettest.NewLocalListener("tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.Dial(l.Addr().Network(), l.Addr().String()); err != nil { //nolint:noctx // of this process
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	a, b = Conn(a), Conn(b)
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestAConnIsAConnection(t *testing.T) {
	nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
		a, b = pair(t)
		return a, b, func() { _, _ = a.Close(), b.Close() }, nil
	})
}

func TestOnlyTCPIsWrapped(t *testing.T) {
	a, _ := pair(t)
	if _, ok := a.(*conn); ok != tuning.Enabled {
		t.Errorf("a TCP connection is a %T", a)
	}
	c, _ := net.Pipe()
	if Conn(c) != c || NewSink(c) != nil {
		t.Error("a pipe in memory has a descriptor")
	}
}

func TestMoreThanTheSocketTakesArrives(t *testing.T) {
	a, b := pair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	failed := make(chan error, 1)
	go func() {
		n, err := a.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		failed <- errors.Join(err, a.Close())
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

func TestErrorsAreThoseOfPackageNet(t *testing.T) {
	a, b := pair(t)
	if err := b.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	_, err := b.Read(make([]byte, 1))
	if late, ok := errors.AsType[*net.OpError](err); !ok || !late.Timeout() || late.Op != "read" {
		t.Errorf("past the deadline: %v", err)
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := a.(interface{ SetLinger(int) error }).SetLinger(0); err != nil { //nolint:forcetypeassert // TCP
		t.Fatal(err)
	}
	if err := a.Close(); err != nil { // resets
		t.Fatal(err)
	}
	_, err = b.Read(make([]byte, 1))
	if of, ok := errors.AsType[*net.OpError](err); !ok || of.Op != "read" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
