package harness

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// greetingTime is when a connection without a greeting is given up.
const greetingTime = 5 * time.Second

// Cut is how the network treats what one node sends to another.
type Cut uint8

// The cuts.
const (
	Whole   Cut = iota // everything arrives
	Closed             // connections are closed, and new ones
	Stalled            // nothing arrives, until the network is whole again
)

// way is the way from one node to another.
type way struct{ from, to string }

// Network connects nodes by proxies, without TLS. A node is reached at the address of its proxy; where a
// connection comes from is read from the greeting with which it begins:
//
//	kind 1 | length 2 | JSON with the name of the node
type Network struct {
	to        map[string]string // by node: where it listens
	listeners []net.Listener
	running   sync.WaitGroup

	mu      sync.Mutex
	cuts    map[way]Cut
	changed chan struct{} // closed when cuts have changed
	links   map[*link]bool
	closed  bool
}

// link is a connection of one node to another.
type link struct {
	way      way
	from, to net.Conn
}

func (l *link) close() {
	_ = l.from.Close() // both may have ended already
	_ = l.to.Close()
}

// NewNetwork begins a network of nodes that listen at the given addresses, and returns the addresses at
// which others reach them.
func NewNetwork(listens map[string]string) (*Network, map[string]string, error) {
	n := &Network{to: listens, cuts: map[way]Cut{}, changed: make(chan struct{}), links: map[*link]bool{}}
	reached := map[string]string{}
	for node := range listens {
		addr, err := Reserve()
		if err != nil {
			return nil, nil, errors.Join(err, n.Close())
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, nil, errors.Join(err, n.Close())
		}
		n.listeners = append(n.listeners, l)
		n.running.Go(func() { n.accept(node, l) })
		reached[node] = addr
	}
	return n, reached, nil
}

// Close ends all connections.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	for l := range n.links {
		l.close()
	}
	n.change()
	n.mu.Unlock()
	var all error
	for _, l := range n.listeners {
		all = errors.Join(all, l.Close())
	}
	n.running.Wait()
	return all
}

// Isolate sets how what a node sends to others, and what they send to it, is treated.
func (n *Network) Isolate(node string, sends, gets Cut) {
	for other := range n.to {
		if other != node {
			n.Sever(node, other, sends, gets)
		}
	}
}

// Sever sets how what a node sends to one other, and what that one sends to it, is treated. Nodes that both reach
// are a bridge between the two.
func (n *Network) Sever(node, other string, sends, gets Cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[way{node, other}], n.cuts[way{other, node}] = sends, gets
	for l := range n.links {
		if n.cuts[l.way] == Closed {
			l.close()
		}
	}
	n.change()
}

// change tells what waits that the cuts have changed. The caller holds mu.
func (n *Network) change() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// state returns the cut of a way, what is closed when that changes, and whether the network has ended.
func (n *Network) state(w way) (c Cut, changed <-chan struct{}, over bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[w], n.changed, n.closed
}

// pass waits until a way is not stalled. It reports whether it is open.
func (n *Network) pass(w way) bool {
	for {
		c, changed, over := n.state(w)
		switch {
		case over || c == Closed:
			return false
		case c == Whole:
			return true
		}
		<-changed
	}
}

func (n *Network) accept(node string, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		n.running.Go(func() { n.connect(node, c) })
	}
}

// connect passes a connection to a node on.
func (n *Network) connect(node string, from net.Conn) {
	defer from.Close()
	_ = from.SetReadDeadline(time.Now().Add(greetingTime)) // it fails when the connection has ended
	greeting, sender, err := readGreeting(from)
	_ = from.SetReadDeadline(time.Time{})
	w := way{sender, node}
	if err != nil || !n.pass(w) {
		return
	}
	to, err := net.Dial("tcp", n.to[node])
	if err != nil {
		return
	}
	l := &link{w, from, to}
	defer l.close()
	n.mu.Lock()
	if n.closed || n.cuts[w] == Closed {
		n.mu.Unlock()
		return
	}
	n.links[l] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.links, l)
		n.mu.Unlock()
	}()
	if _, err := to.Write(greeting); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { n.pump(l, to, from, w) })
	both.Go(func() { n.pump(l, from, to, way{w.to, w.from}) })
	both.Wait()
}

// pump passes on what comes from one end, until either end or the network closes the connection. A
// direction that is closed while the connection was made in the other one stalls.
func (n *Network) pump(l *link, to io.Writer, from io.Reader, w way) {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		count, err := from.Read(buf)
		if err != nil {
			return
		}
		for {
			c, changed, over := n.state(w)
			if over {
				return
			}
			if c == Whole {
				break
			}
			<-changed
		}
		if _, err := to.Write(buf[:count]); err != nil {
			return
		}
	}
}

// readGreeting reads the greeting of a connection and returns it with the name of the node.
func readGreeting(c io.Reader) (greeting []byte, node string, err error) {
	const head = 3
	greeting = make([]byte, head, head+1<<16)
	if _, err := io.ReadFull(c, greeting); err != nil {
		return nil, "", err
	}
	greeting = greeting[:head+int(binary.BigEndian.Uint16(greeting[1:]))]
	body := greeting[head:]
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, "", err
	}
	var from struct {
		Node string `json:"node"`
	}
	if err := json.Unmarshal(body, &from); err != nil {
		return nil, "", fmt.Errorf("the greeting of a node: %w", err)
	}
	return greeting, from.Node, nil
}
