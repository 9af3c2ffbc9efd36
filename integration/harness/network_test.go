package harness

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a node that sends back each line, behind the greeting.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, _, err := readGreeting(c); err != nil {
					return
				}
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if _, err := c.Write([]byte(line)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// greet connects as a node.
func greet(t *testing.T, addr, node string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	body := []byte(`{"node":"` + node + `"}`)
	if _, err := c.Write(append(binary.BigEndian.AppendUint16([]byte{'Q'}, uint16(len(body))), body...)); err != nil {
		t.Fatal(err)
	}
	return c
}

// answered reports whether a line comes back: yes, or no because the connection has ended, or not in time.
func answered(c net.Conn, wait time.Duration) string {
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return "ended"
	}
	return heard(c, wait)
}

func heard(c net.Conn, wait time.Duration) string {
	_ = c.SetReadDeadline(time.Now().Add(wait)) // as for a connection that has ended
	b := make([]byte, 6)
	n, err := c.Read(b)
	switch {
	case n == len(b):
		return "yes"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "not yet"
	}
	return "ended"
}

func TestANetworkCutsWhatItIsTold(t *testing.T) {
	const long, short = 10 * time.Second, 50 * time.Millisecond
	n, at, err := NewNetwork(map[string]string{"a": echo(t), "b": echo(t), "c": echo(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	want := func(got, want, what string) {
		t.Helper()
		if got != want {
			t.Errorf("%s is answered: %s, want %s", what, got, want)
		}
	}
	ab, bc := greet(t, at["b"], "a"), greet(t, at["c"], "b")
	want(answered(ab, long), "yes", "a by b")
	want(answered(bc, long), "yes", "b by c")

	n.Isolate("a", Stalled, Whole)
	want(answered(ab, short), "not yet", "a, whose words do not arrive,")
	want(answered(bc, long), "yes", "b by c meanwhile")
	n.Isolate("a", Whole, Whole)
	want(heard(ab, long), "yes", "a at last")

	n.Isolate("b", Whole, Closed)
	want(heard(ab, long), "ended", "a, whose connection to b is closed,")
	want(answered(bc, short), "not yet", "b, which hears nothing,")
	want(answered(greet(t, at["b"], "a"), long), "ended", "a, which connects again,")
	n.Isolate("b", Whole, Whole)
	want(heard(bc, long), "yes", "b at last")
	want(answered(greet(t, at["b"], "a"), long), "yes", "a, which connects again,")
}
