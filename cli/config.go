package cli

import (
	"path/filepath"
	"time"
)

// Config is the whole configuration, checked: what [Load] returns can be used
// as it is. Each field's meaning, default and bounds are in settings.go.
type Config struct {
	Server    Server
	Auth      Auth
	TLS       TLS
	Storage   Storage
	Scheduler Scheduler
	Lua       Lua
	Limits    Limits
	Log       Log
	Slowlog   Slowlog
	Latency   Latency
	Tracing   Tracing
	Admin     Admin
	Queues    []Queue // of the file's [[queues]] and of Server.QueuesFile
}

// Server is how connections are taken and kept.
type Server struct {
	ListenAddr         string        // empty: nowhere without TLS
	AuthTimeout        time.Duration // zero: a client may take for ever to authenticate
	UnauthenticatedMax int           // connections that have not authenticated
	MaxClients         int
	IdleTimeout        time.Duration // zero: a connection may be silent for ever
	WriteTimeout       time.Duration
	MaxBlock           time.Duration // zero: BLOCK 0 waits for ever
	InputBytesMax      int64
	MemoryBytes        int64
	OutputBytesMax     int64
	ReplyBytesMax      int64
	WindowMax          int
	ShutdownTimeout    time.Duration
	QueuesFile         string // empty: none
	PprofAddr          string // empty: no profiles
}

// Auth is who may use the broker.
type Auth struct {
	Password string   // empty: no password
	Users    []string // lines of ACL rules
	ACLFile  string   // empty: none
}

// TLS is how connections are made private.
type TLS struct {
	ListenAddr      string // empty: nowhere
	CertFile        string
	KeyFile         string
	CAFile          string // empty: none
	AuthClients     string // ClientsMust, ClientsMay or ClientsNeedNot
	AuthClientsUser string // off or cn
}

// What tls.auth_clients may be.
const (
	ClientsMust    = "yes"
	ClientsMay     = "optional"
	ClientsNeedNot = "no"
)

// Storage is where messages are kept and how hard each write is.
type Storage struct {
	Engine          string // EngineRocksDB or EngineMemory
	Path            string // expanded
	BackupPath      string // expanded; empty: beside Path, see Backups
	Sync            string // SyncAlways, SyncInterval or SyncNever
	SyncInterval    time.Duration
	Mode            string // low_space, balanced or high_throughput
	LeaseLag        time.Duration
	Memtable        string // default, lanes or skiplist
	BlockCacheBytes int64
	ReserveBytes    int64
}

// Backups is the directory that backups are in.
func (s *Storage) Backups() string {
	if s.BackupPath != "" {
		return s.BackupPath
	}
	return filepath.Clean(s.Path) + "-backups"
}

// What storage.engine and storage.sync may be.
const (
	EngineRocksDB = "rocksdb"
	EngineMemory  = "memory"

	SyncAlways   = "always"
	SyncInterval = "interval"
	SyncNever    = "never"
)

// Scheduler is what decides who gets which message when.
type Scheduler struct {
	Quantum     uint32
	Visibility  time.Duration
	MaxAttempts uint32
	Backoff     time.Duration
	MaxBackoff  time.Duration
	Jitter      uint32 // percentage of such a pause that chance may take off
	DedupWindow time.Duration
	Window      int
	BodyBytes   int64
}

// Lua is what the scripts of queues may use.
type Lua struct {
	Timeout         time.Duration // of one call
	MemoryBytes     int           // that one call may allocate
	BreakerCooldown time.Duration
}

// Limits are the greatest sizes and counts a client may send.
type Limits struct {
	QueueName   int // bytes
	Key         int // bytes
	Headers     int
	HeaderName  int // bytes
	HeaderValue int // bytes
	Payload     int // bytes
	Command     int // bytes
	Throttles   int
	Consumer    int // bytes
	Reply       int // bytes
	Script      int // bytes
	Weight      uint32
	Cost        uint32
	Count       int
	Crons       int
}

// Log is what the log says and how.
type Log struct {
	Level  string
	Format string // auto, json or console
}

// Slowlog is which commands are kept for SLOWLOG.
type Slowlog struct {
	SlowerThan time.Duration // negative: none
	MaxEntries int
}

// Admin is what operators see.
type Admin struct {
	FiguresAge time.Duration // of figures of fairness keys that are shown again
}

// Latency is what is kept for LATENCY.
type Latency struct {
	Threshold time.Duration // zero: nothing
}

// Tracing is which messages have spans, and where these go.
type Tracing struct {
	Endpoint string  // of the collector; empty: no spans
	Ratio    float64 // 0 to 1, of the sampled messages
	Relation string  // RelationLink or RelationParent
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
