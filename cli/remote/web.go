package remote

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/ops/admin"
)

// webAddr is where fila web listens unless it is told otherwise.
const webAddr = "127.0.0.1:5558"

func webRow() row {
	return row{
		name: "web", short: "Serve the dashboard for a broker elsewhere",
		long: `For a broker whose admin listener is off or cannot be reached: the dashboard then goes over
the port of clients. It speaks for the user of the connection, so it has no login. Only this
machine reaches it, and on it only programs that know the address, which has a secret in it
that changes each time.`,
		run:      (*call).web,
		options:  []option{{"listen", "", text, "`host:port` on this machine; port 0: any that is free"}},
		examples: []string{"fila web --listen 127.0.0.1:0", "fila web --url fila://10.0.0.7:5555 --listen 127.0.0.1:0"},
	}
}

// web serves the dashboard until it is interrupted.
func (c *call) web() error {
	addr := webAddr
	if c.given("listen") {
		addr = c.text("listen")
	}
	if err := onThisMachine(addr); err != nil {
		return usagef("--listen %w", err)
	}
	return ended(c.serveWeb(addr))
}

// serveWeb serves the dashboard on addr until the context ends.
func (c *call) serveWeb(addr string) error {
	// Credentials that are wrong are better refused here than by each request.
	conn, t, err := c.broker.dial(c.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	info, err := conn.Do(c.ctx, "INFO", "fila")
	if err != nil && !client.Refused(err) {
		return err
	}
	figures, _ := info.(string)
	secret := make([]byte, 16)
	rand.Read(secret)
	prefix := "/" + base64.RawURLEncoding.EncodeToString(secret) + "/"
	server, err := admin.New(admin.Config{Broker: &elsewhere{t}, Version: field(figures, "fila_version"), Prefix: prefix, OneUser: true})
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(c.ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", addr, err)
	}
	fmt.Fprintf(c.env.Stdout, "http://%s%s\n", l.Addr(), prefix)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-c.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Second)
	defer cancel()
	server.Close(ctx)
	return err
}

// onThisMachine refuses addresses that other machines can reach.
func onThisMachine(addr string) error {
	if err := CheckAddr(addr); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(addr) // CheckAddr has tried it
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("must be an address of this machine alone, as 127.0.0.1:5558, not %q: the dashboard speaks for your user", addr)
}

// elsewhere is a broker that is reached over the port of clients.
type elsewhere struct{ target }

// Connect implements admin.Broker. The connection speaks for the user of the target.
func (e *elsewhere) Connect(user string, _, _ net.Addr) (net.Conn, <-chan struct{}, error) {
	if user != "" {
		return nil, nil, errors.New("this dashboard speaks for the user that it was started with")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", e.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: no broker at %s", admin.ErrUnavailable, e.addr)
	}
	if e.tls != nil {
		nc = tls.Client(nc, e.tls)
	}
	if e.password != "" || e.named {
		if err := e.authenticate(ctx, nc); err != nil {
			_ = nc.Close()
			return nil, nil, err
		}
	}
	far := &farConn{Conn: nc, over: make(chan struct{})}
	return far, far.over, nil
}

// authenticate makes the connection that of the target's user. What follows is a client of its own
// on the same connection: after its last reply nothing is left that the first has read.
func (e *elsewhere) authenticate(ctx context.Context, nc net.Conn) error {
	o := client.Options{Password: e.password}
	if e.named {
		o.User = e.user
	}
	_, err := client.New(ctx, nc, o)
	return err
}

// State implements admin.Broker.
func (e *elsewhere) State(ctx context.Context) admin.State {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := e.dial(ctx)
	if err != nil {
		return admin.Unreachable
	}
	defer conn.Close()
	reply, err := conn.Do(ctx, "INFO", "persistence", "fila")
	figures, _ := reply.(string)
	switch {
	case client.Refused(err, "LOADING"), err == nil && field(figures, "loading") == "1":
		return admin.Recovering
	case client.Refused(err):
		return admin.Running // it executes commands, and the user may not ask
	case err != nil:
		return admin.Stuck
	case strings.TrimSpace(field(figures, "writable")) == "0":
		return admin.ReadOnly
	}
	return admin.Running
}

// farConn says when its other end has closed it.
type farConn struct {
	net.Conn

	once sync.Once
	over chan struct{}
}

// Read reads from the broker.
func (f *farConn) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		f.end()
	}
	return n, err
}

// Close closes the connection.
func (f *farConn) Close() error {
	f.end()
	return f.Conn.Close()
}

func (f *farConn) end() { f.once.Do(func() { close(f.over) }) }
