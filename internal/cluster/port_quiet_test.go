//go:build !plain && unix

package cluster

import (
	"context"
	"net"
	"testing"
)

// Both ends of what nodes say to each other bypass Go's scheduler: else a leader without work takes two thirds more CPU.
func TestConnectionsBetweenNodesAreRaw(t *testing.T) {
	linked := make(chan net.Conn, 1)
	a := portOf(t, PortConfig{Node: "a", Cluster: "test", Link: func(c net.Conn, _ string) { linked <- c }})
	b := node(t, "b")
	a.join("id")
	b.join("id")
	dialled, err := b.Dial(context.Background(), a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialled.Close() }()
	for side, c := range map[string]net.Conn{"dialled": dialled, "accepted": <-linked} {
		if _, bare := c.(*net.TCPConn); bare {
			t.Errorf("%s: Go's own connection", side)
		}
	}
}
