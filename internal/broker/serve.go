package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/backup"
	"github.com/faisca/fila/internal/telemetry"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/scripting"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// broker is the running whole: one of each part.
type broker struct {
	cfg     cli.Config
	log     zerolog.Logger
	server  *resp.Server
	store   store
	engine  *engine.Engine
	level   *logLevel
	latency *telemetry.Latency
	disk    disk

	storeFiles int // that the store may keep open
	supervisor supervisor

	running chan error // what engine.Run returned
	serving chan error // what server.Serve returned
}

// serve runs the broker until ctx ends. The order of the start:
//
//  1. listen, so that a port in use is said before anything is touched
//  2. open the store
//  3. recover; who connects meanwhile waits in the listener's queue
//  4. accept
//
// and of the stop:
//
//  1. stop the engine: what waits for a message ends with none, what was
//     submitted is committed, what comes now is refused
//  2. accept and read no more; every command that was read gets its answer
//  3. make it durable and close the store
//
// The engine is first because a connection that is no longer read counts as one
// whose client left: its blocked lease would end with an error.
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
	leaveProcessor()
	setMemory(cfg)
	started := time.Now()
	handler := new(lateHandler)
	connections := respConfig(cfg, log)
	if connections.TLS, err = certificates(cfg.TLS, log); err != nil {
		return err
	}
	server, err := resp.NewServer(connections, handler)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	b.server = server
	plain, secure, err := server.Listen(ctx)
	if err != nil {
		return listenError(err)
	}
	addr := cmp.Or(plain, secure)
	if err := serveProfiles(ctx, cfg.Server.PprofAddr, log); err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	if err := b.open(); err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	h, err := commands.New(b.commandsConfig(addr.String(), stop), b.engine)
	if err != nil {
		return errors.Join(cli.UsageError{Err: err}, server.Shutdown(ctx), b.store.Close())
	}
	if h.OpenToAll() {
		if err := cfg.CheckOpen(); err != nil {
			return errors.Join(err, server.Shutdown(ctx), b.store.Close())
		}
	}
	handler.set(h)

	// The engine must outlive ctx: it ends in order, after the connections.
	go func() { b.running <- b.engine.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-b.engine.Ready():
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
	go b.supervisor.feed(ctx, b.engine)

	return b.wait(ctx, h, reloads)
}

// wait serves until ctx or a part of the broker ends.
func (b *broker) wait(ctx context.Context, h *commands.Handler, reloads <-chan cli.Reload) error {
	if b.disk.path != "" {
		go b.disk.follow(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return b.stop(nil)
		case err := <-b.serving:
			return b.stop(fmt.Errorf("server: %w", err))
		case err := <-b.running:
			// Not through stop: the engine is gone, and what it had not committed was
			// never acknowledged.
			return errors.Join(fmt.Errorf("engine: %w", err), b.server.Shutdown(expired()), b.store.Close())
		case r := <-reloads:
			b.reload(h, &r)
		}
	}
}

// reload puts in force what can change while the broker runs, and logs what cannot.
func (b *broker) reload(h *commands.Handler, r *cli.Reload) {
	set, fixed := h.Reload(r.Config.Settings(), r.Changed)
	if len(fixed) > 0 {
		b.log.Warn().Strs("settings", fixed).Msg("these settings have changed and take a restart")
	}
	if err := h.ReloadUsers(); err != nil {
		b.log.Error().Err(err).Msg("the users stay as they are")
	}
	b.log.Info().Strs("settings", set).Msg("configuration in force")
}

// ready says that clients are served, where, and how long the start has taken.
func (b *broker) ready(plain, secure net.Addr, took time.Duration) {
	b.log.Info().Str("address", text(plain)).Str("tls_address", text(secure)).Str("storage", b.cfg.Storage.Engine).Str("path", b.where()).
		Str("sync", b.cfg.Storage.Sync).Str("version", cli.Version()).Dur("start_ms", took).Msg("ready")
	b.supervisor.say("READY=1\nSTATUS=serving " + text(cmp.Or(plain, secure)))
}

// applyQueuesAtStart makes the queues that the configuration lists. On a full disk that
// waits until the store takes writes.
func (b *broker) applyQueuesAtStart(ctx context.Context) error {
	err := b.applyQueues()
	if errors.Is(err, engine.ErrMisconf) {
		b.log.Error().Err(err).Msg("the queues of the configuration are applied when the store takes writes")
		go b.applyQueuesLater(ctx)
		return nil
	}
	return err
}

// setMemory tells the garbage collector how much memory there is to use.
func setMemory(cfg cli.Config) {
	if limit := cfg.Server.MemoryBytes; limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	floor := uint64(garbageFloor)
	if cfg.Storage.Mode == "low_space" {
		floor = garbageFloorLowSpace
	}
	keepGarbageFloor(floor)
}

// open opens the store and makes the engine on it.
func (b *broker) open() error {
	store, err := openStore(b.cfg.Storage, b.storeFiles, b.log)
	if err != nil {
		return b.damaged(err)
	}
	sandbox := scriptingConfig(b.cfg)
	sandbox.BreakerChanged = func(h hook.Hook, s hook.BreakerState) { b.engine.HookTurned(h, s) } // no hook runs before there is an engine
	scripts, err := scripting.New(sandbox)
	if err != nil {
		return errors.Join(cli.UsageError{Err: err}, store.Close())
	}
	store = faultyStore(store)
	cfg := engineConfig(b.cfg, scripts, b.log)
	cfg.Observe = b.latency.Observe
	if cfg.Backups = backups(b.cfg.Storage, store); cfg.Backups != nil {
		cfg.LastBackup = backup.Newest(b.cfg.Storage.Backups())
	}
	e, err := engine.New(cfg, store)
	if err != nil {
		return errors.Join(cli.UsageError{Err: err}, store.Close())
	}
	b.store, b.engine = store, e
	if b.disk.path = b.where(); b.disk.path != "" {
		b.disk.look()
	}
	return nil
}

// stop ends everything in order. Its error is cause's, or what kept the end
// from being orderly: then not all that was acknowledged may be on disk.
func (b *broker) stop(cause error) error {
	b.log.Info().Msg("stopping")
	b.supervisor.say("STOPPING=1\nSTATUS=stopping")
	b.engine.Stop()
	err := errors.Join(cause, <-b.running)
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.Server.ShutdownTimeout)
	defer cancel()
	if err := b.server.Shutdown(ctx); err != nil {
		// Clients that do not read are no failure of ours.
		b.log.Warn().Err(err).Msg("some replies did not reach their clients")
	}
	err = errors.Join(err, b.store.Sync(), b.store.Close())
	if err == nil {
		b.log.Info().Msg("stopped")
	}
	return err
}

// damaged adds to an error of a damaged store what can be done about it.
func (b *broker) damaged(err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	dir := b.where()
	if absolute, unknown := filepath.Abs(dir); unknown == nil {
		dir = absolute
	}
	return fmt.Errorf("%w; nothing was changed: `fila check %s` says what is damaged, `fila repair %s` saves what can be read, `fila restore` takes a backup",
		err, dir, dir)
}

// where the store is; empty for one in memory.
func (b *broker) where() string {
	if b.cfg.Storage.Engine == cli.EngineMemory {
		return ""
	}
	return b.cfg.Storage.Path
}

// lateHandler lets the server listen before there is anything to serve with.
// It is set before Serve is called.
type lateHandler struct {
	h atomic.Pointer[commands.Handler]
}

func (l *lateHandler) set(h *commands.Handler) { l.h.Store(h) }

func (l *lateHandler) Open(c *resp.Conn) resp.Session { return faultySession(l.h.Load().Open(c)) }

// text is an address to read, empty where there is none.
func text(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// listenError says in a sentence what the system says in a code.
func listenError(err error) error {
	addr := "the address"
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		addr = op.Addr.String()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another process: is Fila running already? choose another with --server.listen_addr", addr)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s may not be listened on by this user: choose a port above 1023 with --server.listen_addr", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose another with --server.listen_addr", addr)
	}
	return err
}

// expired is a context that has ended: what gets it does not wait.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
