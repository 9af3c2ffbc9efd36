package remote

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/faisca/fila/internal/ops/admin"
)

func TestTheDashboardListensOnThisMachineAlone(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "localhost:5558", "[::1]:5558", "127.8.8.8:1"} {
		if err := onThisMachine(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"0.0.0.0:5558", ":5558", "10.0.0.7:5558", "[::]:5558", "fila.example.com:5558", "127.0.0.1", "localhost:http"} {
		if err := onThisMachine(addr); err == nil {
			t.Errorf("%s is taken", addr)
		}
	}
}

// A connection that its other end closes is over, as is one that is closed; one that is only slow
// is not.
func TestAConnectionElsewhereSaysWhenItIsOver(t *testing.T) {
	over := func(f *farConn) bool {
		select {
		case <-f.over:
			return true
		default:
			return false
		}
	}
	for _, closes := range []bool{false, true} {
		here, there := net.Pipe()
		f := &farConn{Conn: here, over: make(chan struct{})}
		if err := f.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(make([]byte, 1)); err == nil || over(f) {
			t.Fatalf("a read that takes too long: %v, over: %t", err, over(f))
		}
		if err := f.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if closes {
			_ = f.Close()
		} else {
			_ = there.Close()
			_, _ = f.Read(make([]byte, 1))
		}
		if !over(f) {
			t.Errorf("closed here: %t: it is not over", closes)
		}
		_, _ = here.Close(), there.Close()
	}
}

func TestABrokerElsewhereThatIsNotThereIsUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &elsewhere{target{addr: l.Addr().String()}}
	_ = l.Close()
	if state := e.State(context.Background()); state != admin.Unreachable {
		t.Errorf("it is %s", state)
	}
	if _, _, err := e.Connect("", nil, nil); err == nil {
		t.Error("there is a connection to nothing")
	}
	if _, _, err := e.Connect("anna", nil, nil); err == nil {
		t.Error("it speaks for a user that it was not started with")
	}
}
