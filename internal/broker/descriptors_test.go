package broker

import (
	"net"
	"strings"
	"testing"
)

func TestDescriptorsAreSharedOut(t *testing.T) {
	for _, c := range []struct {
		limit          uint64
		wanted, tables int
		clients, store int
	}{
		{1 << 20, 10_000, 1000, 10_000, 1000},
		{1<<64 - 1, 1_000_000, 4000, 1_000_000, 4000}, // no limit
		{11_064, 10_000, 1000, 10_000, 1000},
		{11_063, 10_000, 1000, 9_999, 1000},
		{4096, 10_000, 1000, 3032, 1000},
		{2064, 10_000, 1000, 1000, 1000},
		{1024, 10_000, 1000, 480, 480},
		{1024, 100, 1000, 100, 860}, // few clients: the store has the rest
		{1024, 10_000, 0, 960, 0},   // in memory
		{160, 10_000, 1000, 32, 64},
		{65, 1, 0, 1, 0},
	} {
		clients, store, err := share(c.limit, filesBeside, c.wanted, c.tables)
		if err != nil || clients != c.clients || store != c.store {
			t.Errorf("of %d for %d clients and %d tables: %d and %d, %v; want %d and %d", c.limit, c.wanted, c.tables, clients, store, err, c.clients, c.store)
		}
	}
	for _, c := range []struct {
		limit          uint64
		wanted, tables int
		least          string
	}{{159, 10_000, 1000, "160"}, {0, 10_000, 1000, "160"}, {95, 10_000, 0, "96"}, {64, 1, 0, "65"}} {
		if _, _, err := share(c.limit, filesBeside, c.wanted, c.tables); err == nil || !strings.Contains(err.Error(), "at least "+c.least+":") {
			t.Errorf("of %d for %d clients and %d tables: %v", c.limit, c.wanted, c.tables, err)
		}
	}
}

// For any limit and any wishes, clients and store get at most what they want, at least
// their minimum, and together at most what there is.
func TestNoDescriptorIsSharedOutTwice(t *testing.T) {
	for limit := uint64(0); limit < 3000; limit += 7 {
		for _, wanted := range []int{1, 31, 32, 33, 500, 10_000} {
			for _, tables := range []int{0, 63, 64, 256, 1000, 4000} {
				clients, store, err := share(limit, filesBeside, wanted, tables)
				if err != nil {
					continue
				}
				if clients+store+filesBeside > int(limit) || clients > wanted || store > tables || clients < min(wanted, clientsMin) || store < min(tables, storeFilesMin) {
					t.Fatalf("of %d for %d clients and %d tables: %d and %d", limit, wanted, tables, clients, store)
				}
			}
		}
	}
}

// A few connections for profiles suffice; the next one is accepted when one of them ends.
func TestConnectionsForProfilesAreFew(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	bounded := few{l, make(chan struct{}, 2)}
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	first, second := <-accepted, <-accepted
	defer second.Close()
	select {
	case <-accepted:
		t.Error("a third one was accepted")
	default:
	}
	for range 2 { // it makes room once
		_ = first.Close()
	}
	third := <-accepted
	defer third.Close()
	if n := len(bounded.room); n != 2 {
		t.Errorf("%d connections are counted, want 2", n)
	}
}
