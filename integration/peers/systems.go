package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/bench"
)

// system is a server with settings, and the way to use it.
type system struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Settings string `json:"settings"`
	Batch    string `json:"batch"` // how a batch is sent, leased and acked
	// Synced reports whether acknowledged messages are on disk.
	Synced bool `json:"synced"`

	// start starts the server below a directory, or uses a running one.
	start func(ctx context.Context, run *run) (*running, error)
	// stored: its queue is filled with -backlog messages before a case.
	stored bool
}

// running is a system whose server runs.
type running struct {
	system  *system
	Version string
	pid     int
	peer    bench.Peer // nil if round is set
	round   func(ctx context.Context, c *testCase, o *options) (bench.Round, error)
	load    *bench.Load // of a queue that stays filled from round to round
}

const respBatch = "one write of N commands; one lease and one ack of N"

// systems returns all systems to compare, Fila first. The cases name those that they are for.
func systems(o *options) []system {
	const streams, perTask = "XADD × N in one write; one XREADGROUP COUNT N; one XACK and one XDEL of N", "one command per task"
	messages := fmt.Sprintf("%d messages stored", o.backlog)
	return []system{
		{ID: "fila", Name: "Fila", Settings: "storage.sync always, 100 fairness keys", Batch: respBatch, Synced: true, start: startFila("fila", "always")},
		{ID: "fila-plain", Name: "Fila", Settings: "the same, built with the tag plain", Batch: "the same", Synced: true, start: startPlain},
		{ID: "fila-interval", Name: "Fila", Settings: "storage.sync interval (100 ms), 100 fairness keys", Batch: respBatch, start: startFila("fila-interval", "interval")},
		{ID: "fila-stored", Name: "Fila", Settings: "storage.sync always, 100 fairness keys, " + messages, Batch: respBatch, Synced: true, start: startFila("fila-stored", "always"), stored: true},
		{ID: "redis-always", Name: "Redis Streams", Settings: "appendfsync always", Batch: streams, Synced: true, start: startStreams("redis-always", "always")},
		{ID: "redis-everysec", Name: "Redis Streams", Settings: "appendfsync everysec", Batch: streams, start: startStreams("redis-everysec", "everysec")},
		{ID: "redis-stored", Name: "Redis Streams", Settings: "appendfsync always, " + messages, Batch: streams, Synced: true, start: startStreams("redis-stored", "always"), stored: true},
		{ID: "rabbitmq", Name: "RabbitMQ", Settings: "quorum queue, confirms, prefetch N", Batch: "N publishes, their confirms awaited together; one ack of N, not confirmed", Synced: true, start: startRabbit},
		{ID: "nats-always", Name: "NATS JetStream", Settings: "file store, sync_interval always", Batch: "N asynchronous publishes; one fetch of N; N acks, the last confirmed", Synced: true, start: startNATS(true)},
		{ID: "nats-default", Name: "NATS JetStream", Settings: "file store, sync_interval 2 min (default)", Batch: "the same", start: startNATS(false)},
		{ID: "beanstalkd-f0", Name: "beanstalkd", Settings: "-b, -f0", Batch: "N puts, N reserves, N deletes, each in one write", Synced: true, start: startBeanstalkd("-f0")},
		{ID: "beanstalkd-default", Name: "beanstalkd", Settings: "-b, -f50 (default)", Batch: "the same", start: startBeanstalkd("-f50")},
		{ID: "bullmq-always", Name: "BullMQ", Settings: "Redis, appendfsync always", Batch: "addBulk of N; N getNextJob and N moveToCompleted at once", Synced: true, start: startBullMQ("always")},
		{ID: "bullmq-everysec", Name: "BullMQ", Settings: "Redis, appendfsync everysec", Batch: "the same", start: startBullMQ("everysec")},
		{ID: "asynq-always", Name: "asynq", Settings: "Redis, appendfsync always, 8 servers", Batch: perTask + ", N goroutines", Synced: true, start: startAsynq("always")},
		{ID: "asynq-everysec", Name: "asynq", Settings: "Redis, appendfsync everysec, 8 servers", Batch: "the same", start: startAsynq("everysec")},
	}
}

// allSystems returns the systems of the kind that the flags choose.
func allSystems(o *options) []system {
	if o.nodes {
		return clusters()
	}
	return systems(o)
}

// run is the state shared by all systems of a run.
type run struct {
	options
	root  string
	redis map[string]*redisServer // by name
	ends  []func()
}

// later registers a function to call at the end of the run, in reverse order.
func (r *run) later(end func()) { r.ends = append(r.ends, end) }

func (r *run) end() {
	for _, end := range slices.Backward(r.ends) {
		end()
	}
}

func startFila(name, sync string) func(context.Context, *run) (*running, error) {
	return func(ctx context.Context, r *run) (*running, error) { return r.fila(ctx, name, r.bin, sync) }
}

func startPlain(ctx context.Context, r *run) (*running, error) {
	if _, err := os.Stat(r.plain); err != nil {
		return nil, missing{"fila-plain", "run make bench-peers"}
	}
	return r.fila(ctx, "fila-plain", r.plain, "always")
}

// fila starts a broker with its data in a directory of that name.
func (r *run) fila(ctx context.Context, name, bin, sync string) (*running, error) {
	dir := filepath.Join(r.root, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	b, err := harness.New(bin, dir, "--storage.sync", sync)
	if err != nil {
		return nil, err
	}
	if err := b.Start(); err != nil {
		return nil, err
	}
	r.later(func() { _ = b.Kill() }) // its directory is removed anyway
	if err := b.Ready(ctx); err != nil {
		return nil, err
	}
	return resp(ctx, b.Addr())
}

// resp returns a system for the sessions of package bench.
func resp(ctx context.Context, addr string) (*running, error) {
	peer, name, pid, err := bench.Server{Addr: addr}.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &running{Version: strings.Fields(name)[1], pid: pid, peer: peer}, nil
}

type redisServer struct {
	place
	pid int
}

// redisWith starts a Redis with this appendfsync setting, shared by all systems that use its name.
func (r *run) redisWith(ctx context.Context, name, fsync string) (*redisServer, error) {
	if s := r.redis[name]; s != nil {
		return s, nil
	}
	bin, err := need("redis-server", "apt-get install redis-server")
	if err != nil {
		return nil, err
	}
	at, err := newPlace(r.root, name)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(ctx, at.dir, nil, listening(at.addr), bin, "--bind", "127.0.0.1", "--port", strconv.Itoa(at.port), "--dir", at.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", fsync)
	if err != nil {
		return nil, err
	}
	r.later(p.stop)
	r.redis[name] = &redisServer{at, p.pid()}
	return r.redis[name], nil
}

func startStreams(name, fsync string) func(context.Context, *run) (*running, error) {
	return func(ctx context.Context, r *run) (*running, error) {
		s, err := r.redisWith(ctx, name, fsync)
		if err != nil {
			return nil, err
		}
		return resp(ctx, s.addr)
	}
}

func startBullMQ(fsync string) func(context.Context, *run) (*running, error) {
	return func(ctx context.Context, r *run) (*running, error) {
		dir, err := findBullMQ(r.source)
		if err != nil {
			return nil, err
		}
		s, err := r.redisWith(ctx, "redis-"+fsync, fsync)
		if err != nil {
			return nil, err
		}
		b := &bullmq{port: s.port, pid: s.pid, dir: dir}
		return &running{Version: packageVersion(filepath.Join(dir, "node_modules", "bullmq")), pid: s.pid, round: b.round}, nil
	}
}

func startAsynq(fsync string) func(context.Context, *run) (*running, error) {
	return func(ctx context.Context, r *run) (*running, error) {
		s, err := r.redisWith(ctx, "redis-"+fsync, fsync)
		if err != nil {
			return nil, err
		}
		return &running{Version: moduleVersion("github.com/hibiken/asynq"), pid: s.pid, peer: &asynqs{addr: s.addr, workers: 64 * 16}}, nil
	}
}

func startBeanstalkd(flush string) func(context.Context, *run) (*running, error) {
	return func(ctx context.Context, r *run) (*running, error) {
		bin, err := need("beanstalkd", "apt-get install beanstalkd")
		if err != nil {
			return nil, err
		}
		at, err := newPlace(r.root, "beanstalkd"+flush)
		if err != nil {
			return nil, err
		}
		p, err := startProcess(ctx, at.dir, nil, listening(at.addr), bin, "-l", "127.0.0.1", "-p", strconv.Itoa(at.port), "-b", at.dir, flush)
		if err != nil {
			return nil, err
		}
		r.later(p.stop)
		out, err := exec.CommandContext(ctx, bin, "-v").Output()
		if err != nil {
			return nil, err
		}
		return &running{Version: strings.TrimPrefix(strings.TrimSpace(string(out)), "beanstalkd "), pid: p.pid(), peer: &beanstalk{addr: at.addr}}, nil
	}
}

// natsBinary returns the server built by make bench-peers beside this program.
func (r *run) natsBinary() (string, error) {
	if _, err := os.Stat(r.natsd); err != nil {
		return "", missing{"natsd", "run make bench-peers"}
	}
	return filepath.Abs(r.natsd)
}

// startNATS starts the server built by make bench-peers beside this program.
func startNATS(always bool) func(context.Context, *run) (*running, error) {
	return func(ctx context.Context, r *run) (*running, error) {
		bin, err := r.natsBinary()
		if err != nil {
			return nil, err
		}
		at, err := newPlace(r.root, fmt.Sprintf("nats-%t", always))
		if err != nil {
			return nil, err
		}
		p, err := startProcess(ctx, at.dir, nil, listening(at.addr), bin, "-port", strconv.Itoa(at.port), "-dir", at.dir, "-sync-always="+strconv.FormatBool(always))
		if err != nil {
			return nil, err
		}
		r.later(p.stop)
		out, err := exec.CommandContext(ctx, bin, "-version").Output()
		if err != nil {
			return nil, err
		}
		return &running{Version: strings.TrimSpace(string(out)), pid: p.pid(), peer: &jet{addr: at.addr}}, nil
	}
}

// rabbitScript is the server's script on Debian; the one in PATH switches to another user.
const rabbitScript = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// startRabbit starts a node with its own port mapper, all on loopback.
func startRabbit(ctx context.Context, r *run) (*running, error) {
	bin, err := need(rabbitScript, "apt-get install rabbitmq-server")
	if err != nil {
		return nil, err
	}
	at, err := newPlace(r.root, "rabbitmq")
	if err != nil {
		return nil, err
	}
	dist, err := newPlace(r.root, "rabbitmq")
	if err != nil {
		return nil, err
	}
	epmd, err := r.startMapper(ctx, "epmd")
	if err != nil {
		return nil, err
	}
	env := rabbitEnv(at, at.dir, "fila-peers@localhost", epmd.port, dist.port)
	peer := &rabbit{addr: at.addr}
	p, err := startProcess(ctx, at.dir, env, peer.ready, bin)
	if err != nil {
		return nil, err
	}
	r.later(p.stop)
	return &running{Version: peer.version, pid: p.pid(), peer: peer}, nil
}

// startMapper starts a port mapper of Erlang.
func (r *run) startMapper(ctx context.Context, name string) (place, error) {
	at, err := newPlace(r.root, name)
	if err != nil {
		return place{}, err
	}
	p, err := startProcess(ctx, at.dir, nil, listening(at.addr), "epmd", "-port", strconv.Itoa(at.port), "-address", "127.0.0.1")
	if err != nil {
		return place{}, err
	}
	r.later(p.stop)
	return at, nil
}

// rabbitEnv returns the environment of a node with its data in a place of its own.
func rabbitEnv(at place, home, node string, mapper, dist int) []string {
	return []string{
		"HOME=" + home,
		"ERL_EPMD_PORT=" + strconv.Itoa(mapper),
		"RABBITMQ_NODENAME=" + node,
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(at.port),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(dist),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_MNESIA_BASE=" + at.dir,
		"RABBITMQ_LOG_BASE=" + at.dir,
		"RABBITMQ_PID_FILE=" + filepath.Join(at.dir, "pid"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(at.dir, "plugins"),
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(at.dir, "none"),
	}
}
