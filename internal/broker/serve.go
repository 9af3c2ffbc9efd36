package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/broker/backup"
	"github.com/faisca/fila/internal/fault"
	"github.com/faisca/fila/internal/ops/admin"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/scripting"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// broker is a running broker: one of each part.
type broker struct {
	cfg     cli.Config
	log     zerolog.Logger
	server  *resp.Server
	handler lateHandler
	store   store
	engine  *loop.Engine // nil: the engines of member
	member  *member      // nil: no replication
	scripts *scripting.Sandbox
	phase   atomic.Int32
	pulse   pulse
	admin   *admin.Server // nil: off
	level   *logLevel
	latency *telemetry.Latency
	tracer  *tracing.Tracer // nil: tracing is off
	disk    disk
	// collector adapts Go's garbage collector; nil: it is as the operator has set it.
	collector *collector
	memory    *memory
	// plain and secure are the addresses where clients connect; nil: there is none.
	plain, secure net.Addr
	// measured is the store, if it has figures of its own; else nil.
	measured measured
	// certificates are those of the listeners with TLS, by the name in metrics.
	certificates map[string]*tls.Config

	storeFiles int // files that the store may keep open
	supervisor supervisor

	running chan error // the result of engine.Run
	serving chan error // the result of server.Serve
}

// serve runs the broker until ctx ends. The start has four steps:
//
//  1. listen, so that a port in use is reported before anything is changed; the admin
//     listener serves from here on, to say that the broker recovers
//  2. open the store
//  3. recover; clients that connect meanwhile wait in the listen queue
//  4. accept connections
//
// The stop has three:
//
//  1. stop the engine: waiting leases end without a message, submitted commands are
//     committed, later ones are refused
//  2. stop accepting and reading; each command that was read gets its reply
//  3. sync and close the store
//
// The engine stops first, because a connection that is no longer read counts as
// disconnected, and its blocked lease would end with an error.
func serve(ctx context.Context, cfg cli.Config, log zerolog.Logger, reloads <-chan cli.Reload) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	level := newLogLevel(cfg.Log.Level)
	log = level.on(log)
	files, err := shareDescriptors(&cfg, log)
	if err != nil {
		return err
	}
	b := &broker{
		cfg: cfg, storeFiles: files, log: log, level: level, supervisor: newSupervisor(os.Getenv, log),
		latency: telemetry.NewLatency(time.Now, cfg.Latency.Threshold), running: make(chan error, 1), serving: make(chan error, 1),
	}
	if b.tracer, err = tracing.New(tracingConfig(cfg, log)); err != nil {
		return cli.UsageError{Err: err}
	}
	leaveProcessor()
	b.memory, b.collector = watchMemory(ctx, cfg.Server.MemoryBytes), setCollector(cfg)
	started := time.Now()
	connections := respConfig(cfg, log)
	if connections.TLS, err = certificates(cfg, log); err != nil {
		return err
	}
	plain, secure, err := b.listen(ctx, connections)
	if err != nil {
		return err
	}
	server := b.server
	addr := cmp.Or(plain, secure)
	defer b.closeAdmin()
	if err := b.serveOperators(ctx, connections.TLS); err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	if err := b.open(ctx); err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	h, err := b.commands(addr, stop)
	if err != nil {
		return errors.Join(err, server.Shutdown(ctx), b.store.Close())
	}
	b.handler.set(h)
	if b.member != nil {
		b.member.start(ctx)
		go func() { b.serving <- server.Serve(context.WithoutCancel(ctx)) }()
		b.ready(plain, secure, time.Since(started))
		go b.supervisor.feed(ctx, b.deciding())
		return b.wait(ctx, h, reloads)
	}

	// The engine does not end with ctx: stop ends it, in order.
	go func() { b.running <- b.engine.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-b.engine.Ready():
		returnGarbage()
	case err := <-b.running:
		return errors.Join(b.damaged(fmt.Errorf("recovery: %w", err)), server.Shutdown(ctx), b.store.Close())
	case <-ctx.Done():
		return b.stop(nil)
	}
	if err := b.applyQueuesAtStart(ctx); err != nil {
		return b.stop(err)
	}
	go func() { b.serving <- server.Serve(context.WithoutCancel(ctx)) }()
	b.ready(plain, secure, time.Since(started))
	go b.supervisor.feed(ctx, b.deciding())

	return b.wait(ctx, h, reloads)
}

// checkUsers refuses users, or an address that others reach, as commands does at a start.
func checkUsers(cfg cli.Config) error {
	open, err := commands.CheckUsers(cfg.Auth.Password, cfg.Auth.Users, cfg.Auth.ACLFile)
	if err == nil && open {
		err = cfg.CheckOpen()
	}
	return err
}

// commands returns the handler of the commands.
func (b *broker) commands(addr net.Addr, stop func()) (*commands.Handler, error) {
	h, err := commands.New(b.commandsConfig(addr.String(), stop), b.deciding())
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	if h.OpenToAll() {
		if err := b.cfg.CheckOpen(); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// listen opens the ports for clients, which wait there until the server serves. It returns their
// addresses, nil for a port that is not configured.
func (b *broker) listen(ctx context.Context, connections resp.Config) (plain, secure net.Addr, err error) {
	b.certificates = map[string]*tls.Config{}
	if slices.ContainsFunc(connections.More, func(l resp.Listener) bool { return l.TLS }) || b.cfg.TLS.ListenAddr != "" {
		b.certificates["tls"] = connections.TLS
	}
	if b.cfg.Admin.ListenAddr != "" && b.cfg.Admin.TLS {
		b.certificates["admin"] = connections.TLS
	}
	if b.server, err = resp.NewServer(connections, &b.handler); err != nil {
		return nil, nil, cli.UsageError{Err: err}
	}
	if plain, secure, err = b.server.Listen(ctx); err != nil {
		return nil, nil, listenError(err, listenSetting(b.cfg, err))
	}
	b.plain, b.secure = plain, secure
	return plain, secure, nil
}

// wait serves until ctx or a part of the broker ends.
func (b *broker) wait(ctx context.Context, h *commands.Handler, reloads <-chan cli.Reload) error {
	if b.disk.path != "" {
		go b.disk.follow(ctx)
	}
	ended, what := b.running, "engine"
	if b.member != nil {
		ended, what = b.member.running, "node "+b.cfg.Cluster.NodeID
	}
	for {
		select {
		case <-ctx.Done():
			return b.stop(nil)
		case err := <-b.serving:
			return b.stop(fmt.Errorf("server: %w", err))
		case err := <-ended:
			// Without stop: the engine has ended, and what it had not committed was never
			// acknowledged.
			return errors.Join(fmt.Errorf("%s: %w", what, err), b.server.Shutdown(expired()), b.store.Close())
		case r := <-reloads:
			b.reload(h, &r)
		}
	}
}

// reload applies a changed configuration as far as a running broker can, and logs the
// settings that need a restart.
func (b *broker) reload(h *commands.Handler, r *cli.Reload) {
	changed := slices.Clone(r.Changed)
	if b.admin != nil {
		b.admin.SetHosts(r.Config.Admin.Hosts)
		changed = slices.DeleteFunc(changed, func(name string) bool { return name == "admin.hosts" })
	}
	set, fixed := h.Reload(r.Config.Settings(), changed)
	if len(changed) < len(r.Changed) {
		set = append(set, "admin.hosts")
	}
	if len(fixed) > 0 {
		b.log.Warn().Strs("settings", fixed).Msg("changed settings that require a restart")
	}
	if err := h.ReloadUsers(); err != nil {
		b.log.Error().Err(err).Msg("users not reloaded; the earlier ones stay in force")
	}
	b.log.Info().Strs("settings", set).Msg("configuration in force")
}

// ready logs the addresses and the duration of the start, and notifies the supervisor.
func (b *broker) ready(plain, secure net.Addr, took time.Duration) {
	b.pulse.tasks = b.deciding()
	b.phase.Store(phaseRunning)
	b.log.Info().Str("address", text(plain)).Str("tls_address", text(secure)).Str("storage", b.cfg.Storage.Engine).Str("path", b.where()).
		Str("sync", b.cfg.Storage.Sync).Str("version", cli.Version()).Dur("start_ms", took).Msg("ready")
	b.supervisor.say("READY=1\nSTATUS=serving " + text(cmp.Or(plain, secure)))
}

// applyQueuesAtStart creates the configured queues. If the store takes no writes, it keeps
// trying in the background and the broker starts without them.
func (b *broker) applyQueuesAtStart(ctx context.Context) error {
	err := b.applyQueues()
	if errors.Is(err, engine.ErrMisconf) {
		b.log.Error().Err(err).Msg("the store refuses writes; configured queues will be applied when writes resume")
		go b.applyQueuesLater(ctx)
		return nil
	}
	return err
}

// setCollector configures Go's garbage collector, and returns what adapts it.
func setCollector(cfg cli.Config) *collector {
	floor := uint64(garbageFloor)
	if cfg.Storage.Mode == "low_space" {
		floor = garbageFloorLowSpace
	}
	return keepGarbageFloor(floor)
}

// open opens the store, and creates the engine on it or makes it that of a node.
func (b *broker) open(ctx context.Context) error {
	store, err := openStore(b.cfg.Storage, b.cfg.Cluster.NodeID != "", b.storeFiles, b.log)
	if err != nil {
		return b.damaged(err)
	}
	b.measured, _ = store.(measured)
	b.store = fault.WrapStore(store)
	sandbox := scriptingConfig(b.cfg)
	sandbox.BreakerChanged = func(h hook.Hook, s hook.BreakerState) { b.newest().BreakerChanged(h, s) } // hooks run only after there is an engine
	if b.scripts, err = scripting.New(sandbox); err != nil {
		return errors.Join(cli.UsageError{Err: err}, store.Close())
	}
	if b.cfg.Cluster.NodeID == "" {
		b.engine, err = b.newEngine(b.store, func(*engine.Config) {})
	} else {
		err = b.openMember(ctx, store)
	}
	if err != nil {
		return errors.Join(err, store.Close())
	}
	if b.disk.path = b.where(); b.disk.path != "" {
		b.disk.look()
	}
	return nil
}

// deciding is what commands are decided by: the engine, or the seat of a node.
func (b *broker) deciding() commands.Engine {
	if b.member != nil {
		return b.member.seat
	}
	return b.engine
}

// newest returns the engine; of a node the one in force, or the last one: nil if there was none.
func (b *broker) newest() *loop.Engine {
	if b.member != nil {
		return b.member.seat.newest()
	}
	return b.engine
}

// newEngine returns an engine on a store; alter changes its configuration. All engines of a node
// share one sandbox, which has a few things of the system that it keeps.
func (b *broker) newEngine(store engine.Store, alter func(*engine.Config)) (*loop.Engine, error) {
	cfg := engineConfig(b.cfg, b.scripts, b.log)
	cfg.Observe, cfg.Memory = b.latency.Observe, b.memory.state
	cfg.Held = func(bytes int64) {
		if b.collector != nil {
			b.collector.holds(bytes)
		}
		b.memory.grew()
	}
	if cfg.Backups = backups(b.cfg.Storage, b.store); cfg.Backups != nil {
		cfg.LastBackup = backup.Newest(b.cfg.Storage.Backups())
	}
	alter(&cfg)
	e, err := loop.New(cfg, store)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	return e, nil
}

// stop stops all parts in order. It returns cause, joined with what made the stop
// incomplete: then some acknowledged writes may not be on disk.
func (b *broker) stop(cause error) error {
	b.log.Info().Msg("stopping")
	b.phase.Store(phaseStopping)
	b.supervisor.say("STOPPING=1\nSTATUS=stopping")
	err := errors.Join(cause, b.stopDeciding())
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.Server.ShutdownTimeout)
	defer cancel()
	left := b.server.Shutdown(ctx)
	if left != nil {
		// Clients that do not read their replies are no error of the broker.
		b.log.Warn().Err(left).Msg("some replies did not reach their clients")
	}
	if b.member != nil {
		err = errors.Join(err, b.member.close(left == nil))
	}
	err = errors.Join(err, b.store.Sync(), b.store.Close())
	b.flushSpans()
	if err == nil {
		b.log.Info().Msg("stopped")
	}
	return err
}

// stopDeciding stops the engine, or the node.
func (b *broker) stopDeciding() error {
	if b.member != nil {
		return b.member.end()
	}
	b.engine.Stop()
	return <-b.running
}

// flushTimeout bounds the time in which spans are sent at the stop, within that of replies.
const flushTimeout = 3 * time.Second

// flushSpans sends the spans that wait for the collector. The store is closed before, so a
// collector that hangs delays nothing but the end of the process.
func (b *broker) flushSpans() {
	if b.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(flushTimeout, b.cfg.Server.ShutdownTimeout))
	defer cancel()
	if err := b.tracer.Close(ctx); err != nil {
		b.log.Warn().Err(err).Msg("some spans were not sent")
	}
}

// damaged adds the next steps of the operator to an error of a damaged store.
func (b *broker) damaged(err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	dir := b.where()
	if absolute, unknown := filepath.Abs(dir); unknown == nil {
		dir = absolute
	}
	return fmt.Errorf("%w; nothing was changed: `fila check %s` lists the damage, `fila repair %s` salvages what can be read, `fila restore` restores a backup",
		err, dir, dir)
}

// where returns the path of the store; "" for a store in memory.
func (b *broker) where() string {
	if b.cfg.Storage.Engine == cli.EngineMemory {
		return ""
	}
	return b.cfg.Storage.Path
}

// lateHandler lets the server listen before there is a handler. set must be called before
// Serve.
type lateHandler struct {
	h atomic.Pointer[commands.Handler]
}

func (l *lateHandler) set(h *commands.Handler) { l.h.Store(h) }

func (l *lateHandler) isSet() bool { return l.h.Load() != nil }

func (l *lateHandler) Open(c *resp.Conn) resp.Session { return fault.WrapSession(l.h.Load().Open(c)) }

// text returns an address for the log; "" for nil.
func text(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// listenError replaces error codes of the system by sentences that say what to do. setting is
// that of the address.
func listenError(err error, setting string) error {
	addr := "the address"
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		addr = op.Addr.String()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another process: is Fila running already? choose another with --%s", addr, setting)
	case errors.Is(err, syscall.EACCES):
		return cli.UsageError{Err: fmt.Errorf("%s may not be listened on by this user: choose a port above 1023 with --%s", addr, setting)}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose another with --%s", addr, setting)
	}
	return err
}

// expired returns a context that has ended, for calls that must not wait.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
