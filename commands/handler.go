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
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/telemetry"
	"github.com/faisca/fila/resp"
)

// Limits are what the commands themselves hold a client to; the engine has its
// own for what it stores.
type Limits struct {
	Count    int // messages a lease may ask for
	Consumer int // bytes of a consumer's name
	// Weight and Cost are the greatest of a key and of a message, as the engine's are.
	Weight, Cost int
	// ReplyBytes bounds the payloads and headers in one lease's reply. The first
	// message always fits; those beyond go back as if never delivered.
	ReplyBytes int
	// Transaction and TransactionBytes are what a client may queue since MULTI, in
	// commands and in bytes of their arguments.
	Transaction, TransactionBytes int
	// QueuedTotal is what the long ones of all clients may hold, in bytes.
	QueuedTotal int64
	// Name is the longest name of a queue, a key or a throttle, Message the largest
	// record of a message, Script the longest source of a hook, in bytes.
	Name, Message, Script int
	// Retained bounds what one connection keeps of messages that were in memory when it
	// leased them, RetainedTotal what all keep, LoadTotal what all have read again to
	// answer leases.
	Retained, RetainedTotal, LoadTotal int64
}

// Counters are the figures of the server that INFO shows.
type Counters struct {
	Connected, Accepted, Rejected uint64 // connections: now, since the start, refused
	Commands                      uint64 // read since the start
	BytesIn, BytesOut             uint64
}

// Config is what the commands need to know of the process around them.
type Config struct {
	Password string // of the user "default"; empty: clients need not authenticate
	// Users are lines that describe users, as ACL LIST writes them; ACLFile is a
	// file of such lines in their place, which ACL SAVE and ACL LOAD use.
	Users   []string
	ACLFile string
	// CertificateUsers makes a client with a certificate the user of its name, if
	// there is one and it is on.
	CertificateUsers bool
	Version          string // Fila's own, for INFO
	Addr             string // where the server listens, for INFO
	Limits           Limits // zero fields mean their defaults
	// Now is the clock. Required: nothing else here knows the time.
	Now func() time.Time
	// Shutdown is called by SHUTDOWN and must not block: it sets the end going.
	// Nil refuses the command.
	Shutdown func()
	// Counters may be nil: INFO then shows zeros.
	Counters func() Counters
	// Disk is what the store takes of the disk and what is free on it, in bytes; nil, or
	// zeros: that is not known. It must not wait for the disk.
	Disk func() (size, free uint64)
	// MaxClients and IdleTimeout are shown under the names Redis has for them.
	MaxClients  int
	IdleTimeout time.Duration
	// Settings are shown by CONFIG GET beside those names: full name and value.
	Settings map[string]string
	// SlowAfter is what a command takes to be kept in the slow log, which holds the
	// SlowMax newest; negative: none is. Both can be changed while it runs.
	SlowAfter time.Duration
	SlowMax   int
	// LogLevel can be changed while it runs; nil: it cannot.
	LogLevel LogLevel
	// Latency is what the engine reports to; nil: nothing does.
	Latency *telemetry.Latency
	Log     zerolog.Logger
}

func (c *Config) check() error {
	if c.Now == nil {
		return errors.New("commands: a clock is required")
	}
	if c.Limits.Count < 0 || c.Limits.Consumer < 0 || c.Limits.Weight < 0 || c.Limits.Cost < 0 || c.Limits.ReplyBytes < 0 || c.Limits.Transaction < 0 || c.Limits.TransactionBytes < 0 ||
		c.Limits.Name < 0 || c.Limits.Message < 0 || c.Limits.Script < 0 || c.Limits.LoadTotal < 0 || c.Limits.Retained < 0 || c.Limits.RetainedTotal < 0 || c.Limits.QueuedTotal < 0 {
		return errors.New("commands: impossible limit")
	}
	defaults := []struct {
		limit *int
		value int
	}{{&c.Limits.Count, 10_000}, {&c.Limits.Consumer, 512}, {&c.Limits.ReplyBytes, 64 << 20}, {&c.Limits.Transaction, 100_000}, {&c.Limits.TransactionBytes, 32 << 20},
		{&c.Limits.Weight, 1_000_000}, {&c.Limits.Cost, 1_000_000}, {&c.Limits.Name, 512}, {&c.Limits.Message, 17 << 20}, {&c.Limits.Script, 64 << 10}}
	for _, d := range defaults {
		if *d.limit == 0 {
			*d.limit = d.value
		}
	}
	c.Limits.LoadTotal = cmp.Or(c.Limits.LoadTotal, 96<<20)
	c.Limits.QueuedTotal = cmp.Or(c.Limits.QueuedTotal, 1<<30)
	c.Limits.RetainedTotal = cmp.Or(c.Limits.RetainedTotal, 32<<20)
	c.Limits.Retained = cmp.Or(c.Limits.Retained, 8<<20)
	return nil
}

// Engine is what the commands need of an engine. *engine.Engine is one; tests
// drive an *engine.Stepper by hand.
type Engine interface {
	Ready() <-chan struct{}
	Elapsed() time.Duration
	Submit(tasks []*engine.Task)
	Leave(c *engine.Client)
	Prepare(req *engine.Enqueue) error
	PrepareCron(cr *engine.Cron) error
	CompileScript(kind hook.Kind, source string) (hook.Hook, error)
	Snapshot() *engine.Snapshot
	Load(d *engine.Delivery) error
	Listen(to func([]engine.Event))
	Want(kinds engine.EventKind)
}

// Handler opens a session for every connection. It implements resp.Handler.
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
	zero    atomic.Pointer[Counters] // what RESETSTAT has found; nil: it was not used

	users          *acl.Users
	defaultAccount *acl.Account // of the default user
	denied         acl.Log
	failures       failures
	// What leases retain of messages until they are written, and what is read again to be
	// written now. They are two, as a reply of the first kind may wait behind one of the
	// second: a command that waits for the second needs nothing that only the first gives back.
	retained, loads *resp.Budget
	queued          *resp.Budget // arguments of commands since MULTI

	mu        sync.Mutex
	sessions  map[uint64]*Session // by connection id
	lastRates rates
}

// New returns a handler for the engine. The engine must not be running yet.
func New(cfg Config, e Engine) (*Handler, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, engine: e, table: command.New(table()), hub: events.New(e), sessions: make(map[uint64]*Session)}
	var err error
	if h.users, err = acl.New(h.table.Catalog(glob.Match), acl.Config{Password: cfg.Password, Lines: cfg.Users, File: cfg.ACLFile}); err != nil {
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
	e.Listen(h.hub.Publish)
	return h, nil
}

// Open starts the session of a connection that was just accepted.
func (h *Handler) Open(c *resp.Conn) resp.Session { return h.open(c) }

func (h *Handler) open(c connection) *Session {
	s := &Session{handler: h, conn: c, proto: 2}
	s.subscriber = events.NewSubscriber((*receiver)(s))
	s.client = engine.NewClient(c.ID(), c.Wake)
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
	h.hub.Leave(&s.subscriber)
}

// list returns the sessions there are, the oldest first.
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

// loading reports whether the engine has yet to finish its first recovery.
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

// submitUndo submits a call that has no reply. If the broker stops
// before it is applied, the leases it would have ended end by themselves.
func (h *Handler) submitUndo(c engine.Call) { h.engine.Submit([]*engine.Task{{Call: c}}) }
