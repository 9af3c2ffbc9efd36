package harness

import (
	"net"
	"testing"
)

// A reserved port can be listened on again and again, and is given to no listener and no connection that
// leaves the choice to the system.
func TestAReservedPortIsGivenToNoOther(t *testing.T) {
	addr, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Close(), l.Close()
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	seen := map[string]bool{addr: true}
	take := func(got string) {
		t.Helper()
		if seen[got] {
			t.Fatalf("%s was given twice", got)
		}
		seen[got] = true
	}
	// Of so many ports of the some 28,000 that there are, many would be given twice if none was held.
	for range 600 {
		another, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		take(another)
	}
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		take(l.Addr().String())
		c, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if seen[c.LocalAddr().String()] {
			t.Fatalf("%s was given to a connection", c.LocalAddr())
		}
	}
}
