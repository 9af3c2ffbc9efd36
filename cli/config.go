package cli

import (
	"path/filepath"
	"time"
)

// Config is a complete, validated configuration, as returned by [Load]. The meanings, defaults and
// bounds of its fields are in settings.go.
type Config struct {
	Server    Server
	Auth      Auth
	TLS       TLS
	Storage   Storage
	Cluster   Cluster
	Scheduler Scheduler
	Lua       Lua
	Limits    Limits
	Signals   Signals
	Budgets   Budgets
	Groups    Groups
	Log       Log
	Slowlog   Slowlog
	Latency   Latency
	Tracing   Tracing
	Admin     Admin
	Metrics   Metrics
	Tables    // of the file, and from Server.QueuesFile
}

// Server configures connections.
type Server struct {
	ListenAddr         string        // empty: no plaintext connections
	AuthTimeout        time.Duration // zero: unlimited
	UnauthenticatedMax int           // maximum of unauthenticated connections
	MaxClients         int
	IdleTimeout        time.Duration // zero: unlimited
	WriteTimeout       time.Duration
	MaxBlock           time.Duration // zero: BLOCK 0 is unlimited
	InputBytesMax      int64
	MemoryBytes        int64
	OutputBytesMax     int64
	ReplyBytesMax      int64
	WindowMax          int
	ShutdownTimeout    time.Duration
	QueuesFile         string // empty: none
	PprofAddr          string // empty: no profiles
}

// Auth configures authentication and rights.
type Auth struct {
	Password string   // empty: no password
	Users    []string // lines of ACL rules
	ACLFile  string   // empty: none
}

// TLS configures encrypted connections.
type TLS struct {
	ListenAddr      string // empty: no TLS connections
	CertFile        string
	KeyFile         string
	CAFile          string // empty: none
	AuthClients     string // ClientsMust, ClientsMay or ClientsNeedNot
	AuthClientsUser string // off or cn
}

// The values of tls.auth_clients.
const (
	ClientsMust    = "yes"
	ClientsMay     = "optional"
	ClientsNeedNot = "no"
)

// Storage configures the store and the durability of writes.
type Storage struct {
	Engine          string // EngineRocksDB or EngineMemory
	Path            string // expanded
	BackupPath      string // expanded; empty: derived from Path, see Backups
	Sync            string // SyncAlways, SyncInterval or SyncNever
	SyncInterval    time.Duration
	Mode            string // low_space, balanced or high_throughput
	LeaseLag        time.Duration
	Memtable        string // default, lanes or skiplist
	BlockCacheBytes int64
	ReserveBytes    int64
}

// Backups returns the directory of backups.
func (s *Storage) Backups() string {
	if s.BackupPath != "" {
		return s.BackupPath
	}
	return filepath.Clean(s.Path) + "-backups"
}

// The values of storage.engine and storage.sync.
const (
	EngineRocksDB = "rocksdb"
	EngineMemory  = "memory"

	SyncAlways   = "always"
	SyncInterval = "interval"
	SyncNever    = "never"
)

// Scheduler configures the delivery of messages.
type Scheduler struct {
	Quantum     uint32
	Visibility  time.Duration
	MaxAttempts uint32
	Backoff     time.Duration
	MaxBackoff  time.Duration
	Jitter      uint32 // maximum random reduction of a backoff, in percent
	DedupWindow time.Duration
	Window      int
	BodyBytes   int64
}

// Lua bounds the scripts of queues.
type Lua struct {
	Timeout         time.Duration // of one call
	MemoryBytes     int           // allocations of one call
	BreakerErrors   uint32        // in a row, that open the breaker
	BreakerCooldown time.Duration
}

// Limits are the maximum sizes and counts of what clients send.
type Limits struct {
	QueueName         int // bytes
	Key               int // bytes
	Headers           int
	HeaderName        int // bytes
	HeaderValue       int // bytes
	Payload           int // bytes
	Result            int // bytes
	Command           int // bytes
	Throttles         int
	Holds             int
	ThrottleInstances int
	Consumer          int // bytes
	Reply             int // bytes
	Script            int // bytes
	History           int // bytes, of the sources of all scripts that were loaded before
	Weight            uint32
	Cost              uint32
	Count             int
	Crons             int
	Budgets           int
	Groups            int // that have not come to their end
	Signals           int // pairs of subject and name
}

// Signals configures sums that fade with time.
type Signals struct {
	Windows    []time.Duration // rising
	Checkpoint time.Duration
}

// Budgets configures budgets.
type Budgets struct{ HistoryDays int }

// Groups configures groups of messages.
type Groups struct{ Keep time.Duration }

// Log configures the log.
type Log struct {
	Level  string
	Format string // auto, json or console
}

// Slowlog configures SLOWLOG.
type Slowlog struct {
	SlowerThan time.Duration // negative: none
	MaxEntries int
}

// Metrics is how much metrics show by name.
type Metrics struct{ Queues, Keys, Throttles, Budgets int }

// Latency configures LATENCY.
type Latency struct {
	Threshold time.Duration // zero: none
}

// Tracing is which messages have spans, and where these go.
type Tracing struct {
	Endpoint string  // of the collector; empty: no spans
	Ratio    float64 // 0 to 1, of the sampled messages
	Relation string  // RelationLink or RelationParent
}

// Admin configures what operators see, and how they reach the broker over HTTP.
type Admin struct {
	ListenAddr string // empty: nowhere
	TLS        bool   // with the files of TLS
	Plain      bool   // an address that other machines can reach may be without TLS
	Hosts      []string
	Prefix     string        // of all paths; begins and ends with a slash
	FiguresAge time.Duration // maximum age of cached figures of fairness keys
}

// Settings are all settings by name and value, as text. Secrets are left out,
// so that the outcome may be shown to any client.
func (c *Config) Settings() map[string]string {
	all := map[string]string{}
	for _, s := range settings(c) {
		if !s.secret {
			all[s.name] = s.value.String()
		}
	}
	return all
}
