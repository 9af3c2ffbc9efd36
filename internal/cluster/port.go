package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/certs"
	"github.com/faisca/fila/internal/rawio"
)

// A connection to the node port begins with a byte that says what it is for, and a greeting:
//
//	dialler    kind 1 | length 2 | greeting as JSON
//	acceptor   0, or 1 | length 2 | reason
//
// What follows is Raft's, questions and answers (question.go), or a link for commands.
const (
	kindRaft     = 'R'
	kindQuestion = 'Q'
	kindLink     = 'L'
)

const (
	greetingVersion = 1
	greetingMax     = 4 << 10         // bytes
	greetingTime    = 5 * time.Second // for TLS and the greeting
	greetingsMax    = 64              // connections that have not greeted
	connectionsMax  = 1024
)

// greeting is what a node says of itself when it connects.
type greeting struct {
	Version int    `json:"version"`
	Name    string `json:"name"`    // of the cluster
	Cluster string `json:"cluster"` // id of the cluster; empty: the node is in none
	Node    string `json:"node"`
	Group   int    `json:"group"` // of slots; there is one, 0
	// Instance is of the process, at random: a copy of a node's directories is another one.
	Instance string `json:"instance"`
	// Standing is that with which the process has begun, Known what it knows of the node that it
	// connects to; nil: none.
	Standing *standing `json:"standing,omitempty"`
	Known    *standing `json:"known,omitempty"`
}

// PortConfig configures OpenPort.
type PortConfig struct {
	Listen  string
	Node    string        // id of this node
	Cluster string        // name of the cluster
	TLS     *certs.Source // nil: none
	// Link takes a connection for commands from another node; it closes it. nil: refused.
	Link func(c net.Conn, node string)
	Log  zerolog.Logger
}

// Port is the node port: one listener for all that the nodes of a cluster say to each other. A node
// without an identity answers questions only: Raft would vote without knowing its cluster.
type Port struct {
	cfg      PortConfig
	l        net.Listener
	raft     chan net.Conn
	instance string

	mu     sync.Mutex
	id     string // of the cluster; empty: no identity
	answer func(from string, q question, body []byte) ([]byte, error)
	check  func(from *greeting) error // of connections for Raft and commands
	// standings returns the standing with which this node has begun, and what is known of the node at an
	// address; nil: there are none.
	standings func(addr string) (began, known *standing)
	conns     map[net.Conn]bool
	closed    bool
	done      sync.WaitGroup
}

// OpenPort listens. Connections are served from Serve on.
func OpenPort(ctx context.Context, cfg PortConfig) (*Port, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	return &Port{cfg: cfg, l: l, raft: make(chan net.Conn), instance: uuid.NewString(), conns: map[net.Conn]bool{}}, nil
}

// Addr returns the address of the listener.
func (p *Port) Addr() net.Addr { return p.l.Addr() }

// serve accepts connections until Close. answer is called for each question, check for each other
// connection before it is answered; nil: none is refused. standings may be nil.
func (p *Port) serve(answer func(from string, q question, body []byte) ([]byte, error), check func(from *greeting) error, standings func(addr string) (began, known *standing)) {
	p.mu.Lock()
	p.answer, p.check, p.standings = answer, check, standings
	p.mu.Unlock()
	p.done.Go(p.accept)
}

// join sets the id of the cluster that this node belongs to.
func (p *Port) join(cluster string) {
	p.mu.Lock()
	p.id = cluster
	p.mu.Unlock()
}

func (p *Port) cluster() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// Close closes the listener and all connections that it has accepted, and waits for their ends.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	err := p.l.Close()
	for c := range p.conns {
		_ = c.Close() // its user may have closed it already
	}
	p.mu.Unlock()
	p.done.Wait()
	return err
}

func (p *Port) accept() {
	greeting := make(chan struct{}, greetingsMax)
	for {
		greeting <- struct{}{}
		c, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.cfg.Log.Warn().Err(err).Msg("a connection between nodes was not accepted")
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // no descriptors: the loop must not spin
			<-greeting
			continue
		}
		if c = rawio.Conn(c); !p.add(c) {
			_ = c.Close()
			<-greeting
			continue
		}
		p.done.Go(func() {
			p.greeted(c, func() { <-greeting })
		})
	}
}

// add keeps a connection for Close. It returns false for one that must be closed.
func (p *Port) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.conns) >= connectionsMax {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Port) remove(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// greeted serves a connection that was accepted; over is called when its greeting is.
func (p *Port) greeted(raw net.Conn, over func()) {
	defer func() {
		p.remove(raw)
		_ = raw.Close()
	}()
	c, kind, from, err := p.welcome(raw)
	over()
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			p.cfg.Log.Warn().Err(err).Str("from", raw.RemoteAddr().String()).Msg("a connection to the node port was refused")
		}
		return
	}
	switch kind {
	case kindRaft:
		kept := &keptConn{Conn: c, over: make(chan struct{})}
		select {
		case p.raft <- kept:
			<-kept.over
		case <-time.After(greetingTime): // Raft has ended
		}
	case kindQuestion:
		p.mu.Lock()
		answer := p.answer
		p.mu.Unlock()
		answerQuestions(c, from.Node, answer)
	case kindLink:
		p.cfg.Link(c, from.Node)
	}
}

// welcome does the handshake of TLS, reads the greeting and answers it.
func (p *Port) welcome(raw net.Conn) (c net.Conn, kind byte, from greeting, err error) {
	c = raw
	if err := raw.SetDeadline(time.Now().Add(greetingTime)); err != nil {
		return nil, 0, from, err
	}
	if p.cfg.TLS != nil {
		c = tls.Server(raw, p.cfg.TLS.Config())
	}
	head := make([]byte, 3)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, 0, from, err
	}
	kind = head[0]
	n := binary.BigEndian.Uint16(head[1:])
	if n > greetingMax {
		return nil, 0, from, fmt.Errorf("a greeting of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, 0, from, err
	}
	if err := json.Unmarshal(body, &from); err != nil {
		return nil, 0, from, errors.New("this is not a node of Fila")
	}
	if err := p.judge(kind, &from); err != nil {
		reason := []byte(err.Error())
		reply := append(binary.BigEndian.AppendUint16([]byte{1}, uint16(len(reason))), reason...)
		_, _ = c.Write(reply) // the refusal stands either way
		return nil, 0, from, err
	}
	_, err = c.Write([]byte{0})
	return c, kind, from, errors.Join(err, raw.SetDeadline(time.Time{}))
}

// judge refuses greetings of nodes that do not belong here.
func (p *Port) judge(kind byte, from *greeting) error {
	id := p.cluster()
	switch {
	case from.Version != greetingVersion:
		return fmt.Errorf("node %s speaks version %d between nodes, %s version %d: upgrade the older one", from.Node, from.Version, p.cfg.Node, greetingVersion)
	case from.Name != p.cfg.Cluster:
		return fmt.Errorf("node %s is of cluster %q, %s of %q (cluster.name)", from.Node, from.Name, p.cfg.Node, p.cfg.Cluster)
	case from.Node == p.cfg.Node:
		return fmt.Errorf("two nodes have the name %s (cluster.node_id)", from.Node)
	case from.Cluster != "" && id != "" && from.Cluster != id:
		return fmt.Errorf("node %s belongs to the cluster with the id %s, %s to %s: they were formed apart; empty cluster.path and storage.path of the one to give up",
			from.Node, from.Cluster, p.cfg.Node, id)
	case kind == kindQuestion:
		return nil
	case kind != kindRaft && kind != kindLink, kind == kindLink && p.cfg.Link == nil:
		return fmt.Errorf("node %s asks for a connection of kind %q, which %s does not know: upgrade it", from.Node, kind, p.cfg.Node)
	case id == "":
		return fmt.Errorf("%s has not joined the cluster yet", p.cfg.Node)
	case from.Cluster == "":
		return fmt.Errorf("node %s has not joined the cluster yet", from.Node)
	}
	p.mu.Lock()
	check := p.check
	p.mu.Unlock()
	if check != nil {
		return check(from)
	}
	return nil
}

// Dial connects to the node port of another node for commands.
func (p *Port) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return p.dial(ctx, kindLink, addr)
}

// dial connects to the node port of another node. Its error says why the other node refuses.
func (p *Port) dial(ctx context.Context, kind byte, addr string) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	if c, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err != nil {
		return nil, err
	}
	if c = rawio.Conn(c); p.cfg.TLS != nil {
		if c, err = p.secure(ctx, c, addr); err != nil {
			return nil, err
		}
	}
	open := c // the function below may run after c was returned as nil
	stop := context.AfterFunc(ctx, func() { _ = open.SetDeadline(time.Unix(1, 0)) })
	err = p.greet(open, kind, addr)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = open.Close()
		return nil, fmt.Errorf("node at %s: %w", addr, err)
	}
	return c, nil
}

// secure does the handshake of TLS with the node at addr. It closes the connection after an error.
func (p *Port) secure(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	cfg := p.cfg.TLS.Dial()
	host, _, err := net.SplitHostPort(addr)
	if err == nil {
		cfg.ServerName = host
		c := tls.Client(raw, cfg)
		if err = c.HandshakeContext(ctx); err == nil {
			return c, nil
		}
	}
	_ = raw.Close()
	return nil, err
}

func (p *Port) greet(c net.Conn, kind byte, addr string) error {
	g := greeting{Version: greetingVersion, Name: p.cfg.Cluster, Cluster: p.cluster(), Node: p.cfg.Node, Instance: p.instance}
	p.mu.Lock()
	standings := p.standings
	p.mu.Unlock()
	if standings != nil && kind != kindQuestion {
		g.Standing, g.Known = standings(addr)
	}
	body, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(body))), body...)); err != nil {
		return err
	}
	head := make([]byte, 3)
	if _, err := io.ReadFull(c, head[:1]); err != nil || head[0] == 0 {
		return err
	}
	if _, err := io.ReadFull(c, head[1:]); err != nil {
		return err
	}
	reason := make([]byte, min(binary.BigEndian.Uint16(head[1:]), greetingMax))
	if _, err := io.ReadFull(c, reason); err != nil {
		return err
	}
	return refusedError(reason)
}

// refusedError is the reason for which a node refuses a connection or a question.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// keptConn is a connection that another goroutine than that of its acceptor uses.
type keptConn struct {
	net.Conn

	once sync.Once
	over chan struct{} // closed by Close
}

// Close closes the connection.
func (c *keptConn) Close() error {
	c.once.Do(func() { close(c.over) })
	return c.Conn.Close()
}
