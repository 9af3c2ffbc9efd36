package commands

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/ops/metrics"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
)

// Limits are the limits that the commands enforce. The engine has its own for what it stores.
type Limits struct {
	Count    int // greatest COUNT of a lease
	Consumer int // greatest length of a consumer's name in bytes
	// Weight and Cost are the greatest weight of a key and cost of a message, as in the engine.
	Weight, Cost int
	// ReplyBytes bounds the payloads and headers in one lease's reply. The first
	// message always fits; those beyond the bound are returned as if never delivered.
	ReplyBytes int
	// Transaction and TransactionBytes bound an open transaction: its commands, and the bytes of
	// their arguments.
	Transaction, TransactionBytes int
	// QueuedTotal bounds the bytes of all open transactions beyond a small allowance for each.
	QueuedTotal int64
	// Name bounds the names of queues, keys and throttles, Message the record of a message, Script
	// the source of a hook and Result the value of an ack, in bytes.
	Name, Message, Script, Result int
	// Retained bounds the bytes of messages that one connection retains between their lease and
	// the writing of the reply, RetainedTotal those of all connections, and LoadTotal the bytes
	// that all replies to leases have read from disk at the same time.
	Retained, RetainedTotal, LoadTotal int64
}

// Counters are the totals of the server that INFO shows.
type Counters struct {
	Connected, Accepted, Rejected uint64 // connections: open now, accepted and refused since the start
	Commands                      uint64 // read since the start
	BytesIn, BytesOut             uint64
}

// Config connects the commands with the process that they run in.
type Config struct {
	Password string // of the user "default"; empty: clients need not authenticate
	// Users are the rules of users, in the format of ACL LIST. ACLFile is a file of such rules
	// that replaces Users; ACL SAVE and ACL LOAD use it.
	Users   []string
	ACLFile string
	// CertificateUsers authenticates a client as the user that its TLS certificate names, if
	// that user exists and is enabled.
	CertificateUsers bool
	Version          string // version of Fila, for INFO
	Addr             string // address that the server listens on, for INFO
	Limits           Limits // zero fields take their defaults
	// Now is the clock. Required: the package reads no other.
	Now func() time.Time
	// Shutdown starts the shutdown without waiting for it. If it is nil, SHUTDOWN is refused.
	Shutdown func()
	// Counters may be nil: INFO then shows zeros.
	Counters func() Counters
	// Disk returns the size of the store and the free space of its disk in bytes, zeros if they
	// are unknown. It must not wait for the disk. It may be nil.
	Disk func() (size, free uint64)
	// MaxClients and IdleTimeout are shown by CONFIG GET under their names in Redis.
	MaxClients  int
	IdleTimeout time.Duration
	// Settings are all settings that CONFIG GET shows, by full name.
	Settings map[string]string
	// SlowAfter is the duration from which on the slow log records a command; a negative one
	// turns the log off. SlowMax is its length. CONFIG SET changes both.
	SlowAfter time.Duration
	SlowMax   int
	// LogLevel lets CONFIG SET change the log level. It may be nil.
	LogLevel LogLevel
	// Metrics makes the reply of FILA.METRICS; nil: one with the default bounds.
	Metrics *metrics.Collector
	// Latency receives the engine's measurements. It may be nil.
	Latency *telemetry.Latency
	// Tracer makes spans of messages; nil: tracing is off.
	Tracer *tracing.Tracer
	// Cluster is the node that this process is, and Relay its way to the leader; nil: there is no
	// replication.
	Cluster Cluster
	Relay   *relay.Router
	// UserStore reads the users of the cluster; nil: users are those of this process.
	UserStore UserStore
	// Replication tells what the node knows of its cluster; nil: there is none.
	Replication Replication
	Log         zerolog.Logger
}

func (c *Config) check() error {
	if c.Now == nil {
		return errors.New("commands: a clock is required")
	}
	if c.Limits.Count < 0 || c.Limits.Consumer < 0 || c.Limits.Weight < 0 || c.Limits.Cost < 0 || c.Limits.ReplyBytes < 0 || c.Limits.Transaction < 0 || c.Limits.TransactionBytes < 0 ||
		c.Limits.Name < 0 || c.Limits.Message < 0 || c.Limits.Script < 0 || c.Limits.Result < 0 || c.Limits.LoadTotal < 0 || c.Limits.Retained < 0 || c.Limits.RetainedTotal < 0 || c.Limits.QueuedTotal < 0 {
		return errors.New("commands: impossible limit")
	}
	defaults := []struct {
		limit *int
		value int
	}{{&c.Limits.Count, 10_000}, {&c.Limits.Consumer, 512}, {&c.Limits.ReplyBytes, 64 << 20}, {&c.Limits.Transaction, 100_000}, {&c.Limits.TransactionBytes, 32 << 20},
		{&c.Limits.Weight, 1_000_000}, {&c.Limits.Cost, 1_000_000}, {&c.Limits.Name, 512}, {&c.Limits.Message, 17 << 20}, {&c.Limits.Script, 64 << 10}, {&c.Limits.Result, 1 << 20}}
	for _, d := range defaults {
		if *d.limit == 0 {
			*d.limit = d.value
		}
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New(metrics.Config{Queues: 1000, Keys: 10, Throttles: 100, Budgets: 100, Now: c.Now})
	}
	c.Limits.LoadTotal = cmp.Or(c.Limits.LoadTotal, 96<<20)
	c.Limits.QueuedTotal = cmp.Or(c.Limits.QueuedTotal, 1<<30)
	c.Limits.RetainedTotal = cmp.Or(c.Limits.RetainedTotal, 32<<20)
	c.Limits.Retained = cmp.Or(c.Limits.Retained, 8<<20)
	return nil
}

// Engine is the part of *loop.Engine that the commands use. Tests use an *engine.Stepper.
type Engine interface {
	Ready() <-chan struct{}
	Elapsed() time.Duration
	Submit(tasks []*engine.Task)
	Settle(c *engine.Client, gone <-chan struct{}) error
	Leave(c *engine.Client)
	Prepare(req *engine.Enqueue) error
	PreparePublish(req *engine.Publish) error
	PrepareGroup(req *engine.OpenGroup) error
	PrepareCron(cr *engine.Cron) error
	PrepareMove(req *engine.BudgetMove) error
	CompileScript(by hook.Caller, kind hook.Kind, source string) (hook.Hook, error)
	ScriptSource(queue string, kind hook.Kind, version string) (string, error)
	Snapshot() *engine.Snapshot
	Load(ds []*engine.Delivery) (read int, err error)
	LoadResult(r *engine.Result) error
	Listen(to func([]engine.Event))
	Want(kinds engine.EventKind)
}

// Handler opens a session for each connection. It implements resp.Handler.
type Handler struct {
	cfg     Config
	engine  Engine
	table   *command.Table[*Session, call]
	hub     *events.Hub
	started time.Time
	runID   string
	ready   atomic.Bool // the engine has recovered
	calls   *telemetry.Calls
	slow    telemetry.SlowLog
	latency *telemetry.Latency
	zero    atomic.Pointer[Counters] // totals at the last CONFIG RESETSTAT, or nil

	nodes          nodes
	ports          ports
	users          *acl.Users
	shared         sharedUsers
	defaultAccount *acl.Account // of the default user
	denied         acl.Log
	failures       failures
	// Budgets of the messages that leases retain until their replies are written, and of those
	// that replies read from disk. They are separate to exclude deadlock: a reply of the first
	// kind may be queued behind one that waits for the second budget.
	retained, loads *resp.Budget
	queued          *resp.Budget // arguments of open transactions

	mu        sync.Mutex
	sessions  map[uint64]*Session // by connection id
	lastRates rates
}

// New returns a handler for the engine. The engine must not be running yet.
func New(cfg Config, e Engine) (*Handler, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	specs := table()
	if cfg.UserStore != nil {
		inStore(specs)
	}
	h := &Handler{cfg: cfg, engine: e, table: command.New(specs), sessions: make(map[uint64]*Session)}
	h.hub = events.New(h)
	h.joinCluster()
	h.openPorts()
	var err error
	if h.users, err = readUsers(h.table, cfg); err != nil {
		return nil, err
	}
	h.defaultAccount = h.users.Account(defaultUser)
	h.started = cfg.Now()
	h.runID = runID(h.started)
	h.queued = resp.NewBudget(cfg.Limits.QueuedTotal)
	h.retained, h.loads = resp.NewBudget(cfg.Limits.RetainedTotal), resp.NewBudget(cfg.Limits.LoadTotal)
	h.calls = telemetry.NewCalls(len(h.table.All))
	h.slow.Threshold.Store(cfg.SlowAfter.Microseconds())
	h.slow.Max.Store(int64(cfg.SlowMax))
	if h.latency = cfg.Latency; h.latency == nil {
		h.latency = telemetry.NewLatency(cfg.Now, 0)
	}
	if cfg.Tracer != nil {
		h.hub.Tap(tracing.Kinds, cfg.Tracer.Observe)
	}
	e.Listen(h.hub.Publish)
	if err := h.shareUsers(); err != nil {
		return nil, err
	}
	return h, nil
}

// Open starts the session of a new connection.
func (h *Handler) Open(c *resp.Conn) resp.Session { return h.open(c) }

func (h *Handler) open(c connection) *Session {
	s := &Session{handler: h, conn: c, mode: c.Mode(), secure: c.Secure()}
	s.prefs.proto, s.nodes.relayed = 2, c.Relayed()
	s.subs.at = events.NewSubscriber((*receiver)(s))
	s.client = engine.NewClient(c.ID(), c.Wake)
	s.client.Answer = c.Answer
	s.in.CountMax = int64(h.cfg.Limits.Count)
	s.reset()
	h.mu.Lock()
	h.sessions[c.ID()] = s
	h.mu.Unlock()
	return s
}

func (h *Handler) leave(s *Session) {
	h.mu.Lock()
	delete(h.sessions, s.conn.ID())
	h.mu.Unlock()
	s.hub().Leave(&s.subs.at)
}

// session returns the session of a client, or nil.
func (h *Handler) session(id uint64) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id]
}

// list returns all sessions, the oldest first.
func (h *Handler) list() []*Session {
	h.mu.Lock()
	all := make([]*Session, 0, len(h.sessions))
	for _, s := range h.sessions {
		all = append(all, s)
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *Session) int {
		if a.conn.ID() < b.conn.ID() {
			return -1
		}
		return 1
	})
	return all
}

// loading reports whether the engine's first recovery is still running.
func (h *Handler) loading() bool {
	if h.ready.Load() {
		return false
	}
	select {
	case <-h.engine.Ready():
		h.ready.Store(true)
		return false
	default:
		return true
	}
}

// submitUndo submits a call without a reply. If the broker stops before it is applied, the leases
// expire by themselves.
func (h *Handler) submitUndo(c engine.Call) { h.engine.Submit([]*engine.Task{{Call: c}}) }

// CheckUsers reads users as New does, and reports whether the default user needs no password then.
func CheckUsers(password string, lines []string, file string) (open bool, err error) {
	users, err := readUsers(command.New(table()), Config{Password: password, Users: lines, ACLFile: file})
	return err == nil && users.Account(defaultUser).User().Open(), err
}

// readUsers returns the users of a configuration.
func readUsers(t *command.Table[*Session, call], cfg Config) (*acl.Users, error) {
	return acl.New(t.Catalog(glob.Match), acl.Config{Password: cfg.Password, Lines: cfg.Users, File: cfg.ACLFile})
}
