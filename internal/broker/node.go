package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/broker/backup"
	"github.com/faisca/fila/internal/certs"
	"github.com/faisca/fila/internal/cluster"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/storage"
)

// member is a broker as a node of a cluster. It has an engine only while it leads, which the seat
// shows to the commands; those that find none go to the leader.
type member struct {
	b      *broker
	seat   *seat
	router *relay.Router
	port   *cluster.Port
	node   *cluster.Node

	mu      sync.Mutex // serializes what the seat is told
	leading bool       // lead runs
	leader  string     // id of the node that leads; empty: unknown
	closing bool       // no link of another node is served any more

	finished chan struct{}  // closed when nothing more is executed that comes with links of other nodes
	links    sync.WaitGroup // that are served

	stop    context.CancelFunc // ends the node in order: a leader hands over
	running chan error         // the result of node.Run
}

// openMember makes the broker a node of its cluster, with the store that was opened.
func (b *broker) openMember(ctx context.Context, opened store) error {
	cfg := &b.cfg.Cluster
	m := &member{b: b, finished: make(chan struct{}), running: make(chan error, 1)}
	m.router = relay.NewRouter(relay.Config{
		Dial: func(ctx context.Context, node string) (net.Conn, error) { return m.node.Dial(ctx, node) }, Serve: b.server.ServeRelayed, Wait: cfg.Wait, Log: b.log,
	})
	m.seat = newSeat(cfg.Wait, m.router)
	var source *certs.Source
	if cfg.CertFile != "" {
		var err error
		source, err = certs.New(certs.Files{Cert: cfg.CertFile, Key: cfg.KeyFile, CA: cfg.CAFile}, tls.RequireAndVerifyClientCert, b.log)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("cluster: %w", err)}
		}
	}
	var err error
	m.port, err = cluster.OpenPort(ctx, cluster.PortConfig{Listen: cfg.Listen(), Node: cfg.NodeID, Cluster: cfg.Name, TLS: source, Link: m.link, Log: b.log})
	if err != nil {
		return listenError(err, "cluster.listen_addr")
	}
	peers := make([]cluster.Peer, len(cfg.Peers))
	for i, p := range cfg.Peers {
		peers[i] = cluster.Peer(p)
	}
	m.node, err = cluster.New(cluster.Config{
		ID: cfg.NodeID, Name: cfg.Name, Peers: peers, Dir: b.cfg.ClusterPath(), Version: cli.Version(), Election: cfg.Election, LogBytes: cfg.LogBytes,
		Store: localStore{b.store, opened, b.cfg.Storage.Path, b.latency.Apply}, Path: b.cfg.Storage.Path, Lead: m.lead, Leader: m.follow,
		SetLearner: m.setLearner, Contact: b.contact(), Free: func() uint64 { _, free := b.disk.figures(); return free }, Log: b.log,
		Users: func() map[string]string { return b.handler.h.Load().UserLines() },
	}, m.port)
	if err != nil {
		return errors.Join(err, m.port.Close())
	}
	b.member = m
	return nil
}

// link serves the commands that another node passes on.
func (m *member) link(c net.Conn, node string) {
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		_ = c.Close() // nothing was written
		return
	}
	m.links.Add(1)
	m.mu.Unlock()
	defer m.links.Done()
	if err := relay.Serve(c, m.finished, m.b.server.ServeRelayed, m.b.log); err != nil {
		m.b.log.Debug().Err(err).Str("node", node).Msg("the link of another node has ended")
	}
}

// start starts the node.
func (m *member) start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		m.followUsers(ctx)
	}()
	go func() {
		err := m.node.Run(ctx)
		m.stop()
		<-followed // the store is closed once the node has ended
		m.running <- err
	}()
}

// usersEvery is the time between two looks at the users of the cluster. With the time in which entries
// of the log reach this node, it is a part of the second in which a change is in force.
const usersEvery = 250 * time.Millisecond

// followUsers brings changes of the users into force that other nodes have made, until ctx ends.
func (m *member) followUsers(ctx context.Context) {
	again := time.NewTicker(usersEvery)
	defer again.Stop()
	defer func() { m.b.handler.h.Load().EndRefreshes() }()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		text := ""
		if err := m.b.handler.h.Load().RefreshUsers(); err != nil {
			text = err.Error()
		}
		if text != last && text != "" {
			m.b.log.Error().Str("error", text).Msg("the users of the cluster cannot be read; those of before stay in force")
		}
		last = text
	}
}

// end ends the node in order. Commands of clients still go to the next leader until close.
func (m *member) end() error {
	m.stop()
	return <-m.running
}

// close ends all connections with other nodes. If the server has answered all it has read, their links are ended in order.
func (m *member) close(answered bool) error {
	m.router.Close()
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	if answered {
		close(m.finished)
		m.links.Wait()
	}
	return m.port.Close()
}

// follow notes which node leads.
func (m *member) follow(leader cluster.Peer) {
	m.mu.Lock()
	m.leader = leader.ID
	m.direct()
	m.mu.Unlock()
	if h := m.b.handler.h.Load(); h != nil {
		h.LeaderChanged()
	}
}

// direct tells the seat which node leads, unless this one does. The caller holds mu.
func (m *member) direct() {
	switch {
	case m.leading:
	case m.leader == "" || m.leader == m.b.cfg.Cluster.NodeID:
		m.seat.Follow("")
	default:
		m.seat.Follow(m.leader)
	}
}

// take gives the seat to an engine.
func (m *member) take(e *loop.Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = true
	m.seat.Seat(e)
}

// leads reports whether this node has an engine.
func (m *member) leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading
}

// leave ends the leadership of this node for the seat.
func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = false
	m.seat.Vacate()
	m.direct()
}

// lead is one leadership, see cluster.Config.
func (m *member) lead(ctx context.Context, l *cluster.Leadership) error {
	e, err := m.b.newEngine(l.Store, func(c *engine.Config) {
		c.KeepTime, c.Start = true, m.seat.Start()
		c.Confirm = func() error {
			began := time.Now()
			err := l.Confirm()
			m.b.latency.Confirm(time.Since(began))
			return err
		}
	})
	if err != nil {
		return err
	}
	if err := m.b.handler.h.Load().RefreshUsers(); err != nil {
		m.b.log.Error().Err(err).Msg("the users of the cluster cannot be read; those of before stay in force")
	}
	m.take(e)
	ran := make(chan error, 1)
	go func() { ran <- e.Run(context.WithoutCancel(ctx)) }()
	select {
	case err = <-ran: // halted by itself, or it could not start
	case <-ctx.Done():
		e.Halt(context.Cause(ctx))
		err = <-ran
	case <-l.Yield:
		m.seat.Hold()
		e.Stop()
		err = <-ran
	}
	m.leave()
	if err != nil && ctx.Err() == nil && !errors.Is(err, engine.ErrDeposed) {
		return m.b.damaged(fmt.Errorf("engine: %w", err))
	}
	return err
}

// setLearner writes or removes the record of a learner with the engine in force, see cluster.Config.
func (m *member) setLearner(ctx context.Context, node string, learner bool) error {
	done := make(chan struct{}, 1)
	task := &engine.Task{Call: &learnerCall{node, learner}, Client: engine.NewClient(0, func() {
		select {
		case done <- struct{}{}:
		default:
		}
	})}
	m.seat.Submit([]*engine.Task{task})
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("the record of node %s was not acknowledged: %w", node, ctx.Err())
	}
	if err := task.Err(); err != nil {
		return fmt.Errorf("the record of node %s was not written: %w", node, err)
	}
	return nil
}

// learnerCall is the call that setLearner makes.
type learnerCall struct {
	node    string
	learner bool
}

// Apply implements engine.Call.
func (c *learnerCall) Apply(tx *engine.Tx) error { return tx.SetLearner(c.node, c.learner) }

// localStore is the store of a node.
type localStore struct {
	store

	opened store // as it was opened: store may wrap it
	path   string
	apply  func(took time.Duration) // is told of each commit
}

// Commit implements replica.Local.
func (l localStore) Commit(b *storage.Batch, sync bool) error {
	began := time.Now()
	err := l.store.Commit(b, sync)
	l.apply(time.Since(began))
	return err
}

// Adopt implements cluster.LocalStore.
func (l localStore) Adopt(dir string) error {
	s, ok := l.opened.(interface {
		Replace(change func() error) error
	})
	if !ok {
		return errors.New("this store cannot be replaced")
	}
	if err := s.Replace(func() error { return backup.Exchange(l.path, dir) }); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
