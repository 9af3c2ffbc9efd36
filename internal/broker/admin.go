package broker

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/ops/admin"
)

// The phases of a broker, in their order.
const (
	phaseRecovering int32 = iota // from the start until it serves clients
	phaseRunning
	phaseStopping // until the end of the process
)

// adminCloseTime is how long requests under way may take to end after everything else has.
const adminCloseTime = time.Second

// serveOperators opens the admin listener and that of profiles.
func (b *broker) serveOperators(ctx context.Context, secure *tls.Config) error {
	if err := b.serveAdmin(ctx, secure); err != nil {
		return err
	}
	return serveProfiles(ctx, b.cfg.Server.PprofAddr, b.log)
}

// serveAdmin opens the admin listener and serves it until closeAdmin; without an address it
// does nothing. secure is the configuration of TLS, if there is one.
func (b *broker) serveAdmin(ctx context.Context, secure *tls.Config) error {
	cfg := b.cfg.Admin
	if cfg.ListenAddr == "" {
		return nil
	}
	server, err := admin.New(admin.Config{
		Broker: (*inside)(b), Version: cli.Version(), Prefix: cfg.Prefix, Hosts: cfg.Hosts,
		CertificateUsers: b.cfg.TLS.AuthClientsUser == "cn", Metrics: metricsFormat, Log: b.log,
	})
	if err != nil {
		return cli.UsageError{Err: err}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.ListenAddr)
	if err != nil {
		return listenError(err, "admin.listen_addr")
	}
	scheme, addr := "http", l.Addr().String()
	l = few{l, make(chan struct{}, admin.ConnectionsMax)}
	if cfg.TLS {
		scheme, l = "https", tls.NewListener(l, secure)
	}
	b.admin = server
	go func() {
		if err := server.Serve(l); err != nil {
			b.log.Error().Err(err).Msg("the admin listener has failed")
		}
	}()
	b.log.Info().Str("url", scheme+"://"+addr+cfg.Prefix).Msg("admin listener")
	return nil
}

// closeAdmin closes the admin listener. It is the last to go, so that it can say that the
// broker stops.
func (b *broker) closeAdmin() {
	if b.admin == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminCloseTime)
	defer cancel()
	b.admin.Close(ctx)
}

// inside is the broker as the admin listener sees it.
type inside broker

// Connect implements admin.Broker by a pipe within the process.
func (i *inside) Connect(user string, from, to net.Addr) (net.Conn, <-chan struct{}, error) {
	if !i.handler.isSet() || i.phase.Load() == phaseStopping {
		return nil, nil, admin.ErrUnavailable
	}
	theirs, ours := net.Pipe()
	end := &pipeEnd{Conn: ours, from: from, to: to, over: make(chan struct{})}
	go i.server.ServeLocal(end, user)
	return theirs, end.over, nil
}

// pipeEnd is the broker's end of a pipe, with the addresses of the connection that it is for.
type pipeEnd struct {
	net.Conn

	from, to net.Addr
	once     sync.Once
	over     chan struct{} // closed by Close
}

// Close closes the pipe.
func (p *pipeEnd) Close() error {
	p.once.Do(func() { close(p.over) })
	return p.Conn.Close()
}

// RemoteAddr returns the address of the client.
func (p *pipeEnd) RemoteAddr() net.Addr { return p.from }

// LocalAddr returns the address that the client has connected to.
func (p *pipeEnd) LocalAddr() net.Addr { return p.to }

// State implements admin.Broker.
func (i *inside) State(ctx context.Context) admin.State {
	switch i.phase.Load() {
	case phaseRecovering:
		return admin.Recovering
	case phaseStopping:
		return admin.Stopping
	}
	if i.member != nil && !i.member.leads() {
		if i.member.node.Status().Leader.ID == "" {
			return admin.Recovering
		}
		return admin.Running // commands go to the leader
	}
	switch alive, writable := i.pulse.feel(ctx); {
	case !alive && i.phase.Load() == phaseStopping: // since then
		return admin.Stopping
	case !alive:
		return admin.Stuck
	case !writable:
		return admin.ReadOnly
	}
	return admin.Running
}

// pulseTime is how long a task may take through the loop of an engine that is alive.
const pulseTime = 2 * time.Second

// pulse finds out whether tasks go through the engine's loop. However many ask, one task is
// under way: a loop that is stuck gathers none.
type pulse struct {
	tasks submitter

	mu   sync.Mutex
	beat *beat // under way, or nil
}

// beat is a task on its way through the loop.
type beat struct {
	began    time.Time
	done     chan struct{}
	writable bool // set before done is closed
}

// Apply implements engine.Call.
func (b *beat) Apply(tx *engine.Tx) error {
	b.writable = tx.Writable()
	return nil
}

// feel reports whether a task has gone through the loop within pulseTime, and whether the
// store takes new messages.
func (p *pulse) feel(ctx context.Context) (alive, writable bool) {
	p.mu.Lock()
	b := p.beat
	if b == nil {
		b = &beat{began: time.Now(), done: make(chan struct{})}
		p.beat = b
		go p.run(context.WithoutCancel(ctx), b)
	}
	p.mu.Unlock()
	late := time.NewTimer(pulseTime - time.Since(b.began))
	defer late.Stop()
	select {
	case <-b.done:
		return true, b.writable
	case <-late.C:
	case <-ctx.Done():
	}
	return false, false
}

// run sends the task of a beat and waits for it, which may never end.
func (p *pulse) run(ctx context.Context, b *beat) {
	pass(ctx, p.tasks, b)
	p.mu.Lock()
	p.beat = nil
	p.mu.Unlock()
	close(b.done)
}
