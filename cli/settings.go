package cli

import (
	"strings"
	"time"
)

// setting describes one setting: the only place that does.
type setting struct {
	name  string // section, dot, key
	doc   string // one or more whole sentences
	value value
	// secret settings are never shown, in no listing and no error.
	secret bool
}

// env is the environment variable of the setting.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.Replace(s.name, ".", "__", 1))
}

func (s setting) section() string {
	section, _, _ := strings.Cut(s.name, ".")
	return section
}

// shown is the value as a listing may show it.
func (s setting) shown() string {
	if s.secret && s.value.String() != "" {
		return "(set)"
	}
	return s.value.literal()
}

// The bounds that several settings share.
const (
	day = 24 * 60 * 60 * 1000 // ms
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	// Less and RocksDB's index blocks push each other out all the time.
	blockCacheMin = 8 * mib

	nameMax = 1 << 15 // bytes; names are parts of keys, which the store keeps in memory
)

// settings is the table: every setting, bound to its field of c, in the order
// in which the sections are documented.
func settings(c *Config) []setting {
	var all []setting
	all = append(all, serverSettings(&c.Server)...)
	all = append(all, memorySettings(&c.Server)...)
	all = append(all, strangerSettings(&c.Server)...)
	all = append(all, authSettings(&c.Auth)...)
	all = append(all, tlsSettings(&c.TLS)...)
	all = append(all, storageSettings(&c.Storage)...)
	all = append(all, schedulerSettings(&c.Scheduler)...)
	all = append(all, luaSettings(&c.Lua)...)
	all = append(all, limitSettings(&c.Limits)...)
	all = append(all, logSettings(&c.Log)...)
	all = append(all, tracingSettings(&c.Tracing)...)
	all = append(all, watchSettings(c)...)
	return append(all, figuresSettings(&c.Admin)...)
}

// figuresSettings are about what operators see of queues and fairness keys.
func figuresSettings(c *Admin) []setting {
	return []setting{
		{
			name:  "admin.figures_ms",
			value: millis(&c.FiguresAge, 5000, 100, 60*60*1000),
			doc: "Age up to which the figures of fairness keys in `FILA.FIGURES` and `FILA.KEYS` with `BY` are shown again. Older ones are found by a look at all keys, " +
				"0.1 s of the broker's time for a million in slices of less than a millisecond, for all clients together and only when one asks.",
		},
	}
}

func serverSettings(c *Server) []setting {
	return []setting{
		{
			name:  "server.listen_addr",
			value: text{to: &c.ListenAddr, def: "127.0.0.1:5555", check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			doc: "Where clients connect without TLS; empty: nowhere. Port 0 takes a free one and logs it. An address that other machines can reach is refused " +
				"unless clients have to authenticate.",
		},
		{
			name:  "server.maxclients",
			value: count(&c.MaxClients, 10_000, 1, 1_000_000),
			doc: "Connections at the same time; one more is answered an error and closed. At the start it is lowered, with a line in the log, to what the " +
				"limit of open files (`ulimit -n`) allows beside the store.",
		},
		{
			name:  "server.idle_timeout_ms",
			value: millis(&c.IdleTimeout, 0, 0, 365*day),
			doc:   "A connection that sends nothing for so long, and waits for nothing, is closed. 0: never.",
		},
		{
			name:  "server.write_timeout_ms",
			value: millis(&c.WriteTimeout, 30_000, 1, day),
			doc:   "A client that does not take its replies for so long is disconnected.",
		},
		{
			name:  "server.max_block_ms",
			value: millis(&c.MaxBlock, 0, 0, 365*day),
			doc:   "The longest a `BLOCK` may wait; a longer one, and `BLOCK 0`, end after so long. 0: no cap.",
		},
		{
			name:  "server.window_max",
			value: count(&c.WindowMax, 1024, 1, 1_000_000),
			doc:   "Commands of one connection that may be unanswered; at that many it is not read until replies have left.",
		},
		{
			name:  "server.shutdown_timeout_ms",
			value: millis(&c.ShutdownTimeout, 10_000, 0, day),
			doc:   "After SIGTERM or SIGINT, replies in flight have so long to reach their clients.",
		},
		{
			name:  "server.queues_file",
			value: text{to: &c.QueuesFile, of: "path", says: "a file"},
			doc: "A file with `[[queues]]`, applied at start together with those of the configuration file; nothing is deleted. " +
				"See [queues](queues.md). Empty: none. `--queues FILE` is short for it.",
		},
		{
			name:  "server.pprof_addr",
			value: text{to: &c.PprofAddr, check: checkPprofAddr, of: "host:port", says: "empty, or host:port of this machine alone"},
			doc: "Where `go tool pprof` gets profiles of the running broker, over HTTP. Empty: nowhere. It asks for no password, so only an " +
				"address that other machines cannot reach is taken.",
		},
	}
}

// memorySettings are about what connections may take of memory.
func memorySettings(c *Server) []setting {
	return []setting{
		{
			name:  "server.input_bytes_max",
			value: sized(&c.InputBytesMax, gib, mib, 1024*gib),
			doc: "Memory for long commands that all connections are sending at the same time. A connection that wants more is told so and " +
				"closed; short commands always pass. As much again for commands that wait for `EXEC`: one that wants more is refused.",
		},
		{
			name:  "server.memory_bytes",
			value: sized(&c.MemoryBytes, 0, 0, 1024*gib),
			doc: "Memory of the Go part above which garbage is collected more often. It is no hard limit, and RocksDB's memory (`storage.mode`) " +
				"comes on top. 0: what `GOMEMLIMIT` says, else no limit.",
		},
		{
			name:  "server.output_bytes_max",
			value: sized(&c.OutputBytesMax, 8*mib, 64*kib, 64*gib),
			doc: "What may wait for a slow client. Of replies: at so much no further command of the connection is executed until some have left; " +
				"one that takes more is executed alone, and small ones are bounded by `server.window_max`. Of events and lines of `MONITOR`: more disconnect it.",
		},
		{
			name:  "server.reply_bytes_max",
			value: sized(&c.ReplyBytesMax, 256*mib, mib, 1024*gib),
			doc: "Memory for replies that wait in all connections: half of it for results of commands, and half for messages that are leased. " +
				"At so much a command that takes much waits before it is executed; short ones always pass.",
		},
	}
}

// strangerSettings are about clients that have not said who they are.
func strangerSettings(c *Server) []setting {
	return []setting{
		{
			name:  "server.auth_timeout_ms",
			value: millis(&c.AuthTimeout, 10_000, 0, day),
			doc:   "Where clients have to authenticate, a connection that has not done so within this time is closed. 0: never.",
		},
		{
			name:  "server.unauthenticated_max",
			value: count(&c.UnauthenticatedMax, 1000, 1, 1_000_000),
			doc:   "Connections that have yet to authenticate, or to finish the TLS handshake; one more closes the oldest of them.",
		},
	}
}

func authSettings(c *Auth) []setting {
	return []setting{
		{
			name:   "auth.password",
			value:  text{to: &c.Password, says: "any text"},
			secret: true,
			doc: "The password of the user `default`, for `AUTH` and `HELLO`. Empty: none is asked for. " +
				"Prefer the environment or a file to a flag, which others on the machine can see.",
		},
		{
			name:   "auth.users",
			value:  lines{to: &c.Users},
			secret: true,
			doc: "Users and their rights, each a line as `ACL LIST` shows them: " +
				"`user worker on #<SHA-256 of the password> %R~orders* +@consume +@connection`. See [security](security.md).",
		},
		{
			name:  "auth.acl_file",
			value: text{to: &c.ACLFile, of: "path", says: "a file"},
			doc: "A file with such lines, instead of `auth.users`: `ACL SAVE` writes it, `ACL LOAD` reads it again. A line for the user " +
				"`default` in it overrides `auth.password`. Empty: users made at run time are gone when the broker stops.",
		},
	}
}

func tlsSettings(c *TLS) []setting {
	return []setting{
		{
			name:  "tls.listen_addr",
			value: text{to: &c.ListenAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			doc: "Where clients connect with TLS, 1.2 or later; empty: nowhere. An address that other machines can reach is refused unless " +
				"clients have to authenticate, by password or by certificate.",
		},
		{
			name:  "tls.cert_file",
			value: text{to: &c.CertFile, of: "path", says: "a file"},
			doc:   "The server's certificate in PEM, with its intermediate certificates. The three files are read again when they change.",
		},
		{name: "tls.key_file", value: text{to: &c.KeyFile, of: "path", says: "a file"}, doc: "The certificate's private key in PEM."},
		{
			name:  "tls.ca_file",
			value: text{to: &c.CAFile, of: "path", says: "a file"},
			doc:   "Certificates, in PEM, of the authorities whose clients are accepted.",
		},
		{
			name:  "tls.auth_clients",
			value: text{to: &c.AuthClients, def: ClientsMust, choices: []string{ClientsMust, ClientsMay, ClientsNeedNot}},
			doc:   "Whether clients have to show a certificate signed by an authority in `tls.ca_file`. `optional`: one that is shown has to be valid.",
		},
		{
			name:  "tls.auth_clients_user",
			value: text{to: &c.AuthClientsUser, def: "off", choices: []string{"off", "cn"}},
			doc:   "`cn`: a client with a certificate is the user that its common name names, without a password, if that user exists and is on.",
		},
	}
}

func storageSettings(c *Storage) []setting {
	return []setting{
		{
			name:  "storage.engine",
			value: text{to: &c.Engine, def: EngineRocksDB, choices: []string{EngineRocksDB, EngineMemory}},
			doc:   "`memory` keeps nothing when the process ends: for tests and trials.",
		},
		{
			name:  "storage.path",
			value: text{to: &c.Path, def: "./data", check: notEmpty, of: "path", says: "a directory"},
			doc:   "The directory of the store, made if it is not there. `~/` and `$HOME` at its start expand.",
		},
		{
			name:  "storage.backup_path",
			value: text{to: &c.BackupPath, of: "path", says: "empty, or a directory"},
			doc: "Where `BGSAVE` and `FILA.BACKUP` put backups, made if it is not there; clients only choose names in it. On the file system of " +
				"`storage.path` a backup is made in a moment and shares its files, elsewhere it is a copy. Empty: `storage.path` with `-backups` behind it.",
		},
		{
			name:  "storage.sync",
			value: text{to: &c.Sync, def: SyncAlways, choices: []string{SyncAlways, SyncInterval, SyncNever}},
			doc: "When a write is synced to disk. `always`: before its reply. `interval`: every `storage.sync_interval_ms`. " +
				"`never`: when the operating system does it. All three survive the end of the process; see [guarantees](guarantees.md) for power cuts.",
		},
		{
			name:  "storage.sync_interval_ms",
			value: millis(&c.SyncInterval, 100, 1, 60*60*1000),
			doc:   "With `storage.sync` at `interval`: the time between two syncs, and so what a power cut can take.",
		},
		{
			name:  "storage.mode",
			value: text{to: &c.Mode, def: "balanced", choices: []string{"low_space", "balanced", "high_throughput"}},
			doc: "What the store is tuned for. `low_space`: little disk and memory. `high_throughput`: more of both, and a longer start, for fewer " +
				"compactions. Their block caches are 32, 64 (`balanced`) and 256 MiB.",
		},
		{
			name:  "storage.memtable",
			value: text{to: &c.Memtable, def: "default", choices: []string{"default", "lanes", "skiplist"}},
			doc: "Where the store holds messages and leases before it writes tables. `lanes`: Fila's own, which sorts when it has to. `skiplist`: RocksDB's, " +
				"slower. `default`: lanes, in a [plain build](../ARCHITECTURE.md#below-the-defaults) RocksDB's. The data on disk is the same.",
		},
		{
			name:  "storage.lease_lag_ms",
			value: millis(&c.LeaseLag, 5, 0, 60_000),
			doc: "How long after its reply a lease is written, if it still lasts by then: a crash within that time " +
				"hands the message out again at once. 0: before the reply.",
		},
		{
			name:  "storage.block_cache_bytes",
			value: sized(&c.BlockCacheBytes, 0, 0, 1024*gib),
			doc:   "Memory for blocks read from disk, at least 8 MiB (8388608). 0: what `storage.mode` says.",
		},
		{
			name:  "storage.reserve_bytes",
			value: sized(&c.ReserveBytes, 32*mib, 0, 1024*gib),
			doc: "Space that the store keeps in a file of its own, and gives back when the disk is full: to delete messages is to write, too. " +
				"At most a sixteenth of the disk. 0: none, so a disk that is full has to be given space from outside. See [operations](operations.md#a-full-disk).",
		},
	}
}

func schedulerSettings(c *Scheduler) []setting {
	return []setting{
		{
			name:  "scheduler.quantum",
			value: count(&c.Quantum, 1, 1, 1_000_000),
			doc:   "Deficit round robin: the credit that a fairness key gets per round and unit of weight. 1 interleaves keys most finely.",
		},
		{
			name:  "scheduler.visibility_timeout_ms",
			value: millis(&c.Visibility, 30_000, 1, 365*day),
			doc:   "The visibility timeout: how long a lease lasts when neither the command nor the queue says.",
		},
		{
			name:  "scheduler.max_attempts",
			value: count(&c.MaxAttempts, 10, 1, 1_000_000),
			doc:   "Failures after which a message goes to the dead-letter queue, when the queue does not say.",
		},
		{
			name:  "scheduler.backoff_ms",
			value: millis(&c.Backoff, 1000, 0, 365*day),
			doc:   "The pause before the first retry, when the queue does not say; it doubles with each further one.",
		},
		{
			name:  "scheduler.max_backoff_ms",
			value: millis(&c.MaxBackoff, 300_000, 0, 365*day),
			doc:   "The longest pause between two retries, when the queue does not say. At least `scheduler.backoff_ms`.",
		},
		{
			name:  "scheduler.backoff_jitter_percent",
			value: count(&c.Jitter, 0, 0, 100),
			doc: "How much of such a pause chance may take off, when the queue does not say. Messages that failed together are then not retried " +
				"together. 0: nothing, each pause is as long as the backoff.",
		},
		{
			name:  "scheduler.dedup_window_ms",
			value: millis(&c.DedupWindow, 300_000, 0, 365*day),
			doc:   "How long a queue that was created without `DEDUPWINDOW` remembers the ids given as `DEDUP`. 0: not at all.",
		},
		{
			name:  "scheduler.window",
			value: count(&c.Window, 256, 2, 100_000),
			doc:   "Ready messages of one fairness key that are tracked in memory; the rest of its backlog is read ahead from disk.",
		},
		{
			name:  "scheduler.body_bytes",
			value: sized(&c.BodyBytes, 128*mib, 0, 1024*gib),
			doc:   "Memory for payloads and headers between enqueue and delivery; what does not fit is read from disk.",
		},
	}
}

func luaSettings(c *Lua) []setting {
	return []setting{
		{
			name:  "lua.timeout_ms",
			value: millis(&c.Timeout, 10, 1, 60_000),
			doc:   "How long one call of a script may take; one that takes longer has failed. The client that enqueues waits for it.",
		},
		{
			name:  "lua.memory_bytes",
			value: sized(&c.MemoryBytes, mib, 256*kib, gib),
			doc:   "What one call of a script may allocate, garbage included; one that allocates more has failed.",
		},
		{
			name:  "lua.breaker_cooldown_ms",
			value: millis(&c.BreakerCooldown, 10_000, 1, day),
			doc: "For how long a script that has failed three times in a row is not run, and safe defaults are used; " +
				"then one call decides whether it is run again.",
		},
	}
}

func limitSettings(c *Limits) []setting {
	return []setting{
		{name: "limits.queue_name_bytes", value: sized(&c.QueueName, 255, 1, nameMax), doc: "Longest queue name. A dead-letter queue that is made with a queue has four bytes more, `.dlq`."},
		{name: "limits.key_bytes", value: sized(&c.Key, 512, 1, nameMax), doc: "Longest fairness key, throttle key or dedup id."},
		{name: "limits.headers", value: count(&c.Headers, 64, 1, 10_000), doc: "Headers of one message."},
		{name: "limits.header_name_bytes", value: sized(&c.HeaderName, 512, 1, nameMax), doc: "Longest header name."},
		{name: "limits.header_value_bytes", value: sized(&c.HeaderValue, 8*kib, 1, 64*mib), doc: "Longest header value."},
		{name: "limits.payload_bytes", value: sized(&c.Payload, 16*mib, 1, 512*mib), doc: "Largest payload."},
		{
			name:  "limits.command_bytes",
			value: sized(&c.Command, 32*mib, kib, gib-mib),
			doc:   "Largest command, all its arguments together. At least `limits.payload_bytes` plus 1024.",
		},
		{name: "limits.throttles", value: count(&c.Throttles, 16, 0, 1024), doc: "Throttle keys of one message."},
		{name: "limits.script_bytes", value: sized(&c.Script, 64*kib, 1, mib), doc: "Largest source of a script."},
		{name: "limits.weight", value: count(&c.Weight, 1_000_000, 1, 1_000_000), doc: "Greatest weight of a fairness key."},
		{name: "limits.cost", value: count(&c.Cost, 1_000_000, 1, 1_000_000), doc: "Greatest cost of one delivery."},
		{name: "limits.consumer_bytes", value: sized(&c.Consumer, 512, 1, nameMax), doc: "Longest consumer name."},
		{
			name:  "limits.reply_bytes",
			value: sized(&c.Reply, 64*mib, mib, gib),
			doc: "What the messages of one reply to `FILA.LEASE` may hold together. The first always fits; those beyond go back as if " +
				"they had not been handed out.",
		},
		{name: "limits.count", value: count(&c.Count, 10_000, 1, 1_000_000), doc: "Greatest `COUNT`."},
		{name: "limits.crons", value: count(&c.Crons, 10_000, 1, 1_000_000), doc: "Recurring messages there may be, see [cron](cron.md)."},
	}
}

func logSettings(c *Log) []setting {
	return []setting{
		{
			name:  "log.level",
			value: text{to: &c.Level, def: "info", choices: []string{"debug", "info", "warn", "error"}},
			doc:   "The least severe lines that are logged. Payloads and header values never are.",
		},
		{
			name:  "log.format",
			value: text{to: &c.Format, def: "auto", choices: []string{"auto", "json", "console"}},
			doc:   "`auto`: readable lines on a terminal, JSON elsewhere. The log goes to standard error.",
		},
	}
}

// watchSettings are of what is kept for looking into a running server.
func watchSettings(c *Config) []setting {
	return []setting{
		{
			name:  "slowlog.slower_than_us",
			value: number[time.Duration]{to: &c.Slowlog.SlowerThan, def: 100_000, min: -1, max: 60 * 60 * 1000 * 1000, unit: "us", scale: int64(time.Microsecond)},
			doc: "Commands that take at least this many microseconds are kept for `SLOWLOG`, counted from being read until the reply may leave: with " +
				"the commit, without waiting for messages. -1: none. `CONFIG SET slowlog-log-slower-than` changes it while the server runs.",
		},
		{
			name:  "slowlog.max_entries",
			value: count(&c.Slowlog.MaxEntries, 128, 0, 10_000),
			doc:   "How many of the newest slow commands are kept, clipped to some 4 KiB each. `CONFIG SET slowlog-max-len` changes it while the server runs.",
		},
		{
			name:  "latency.threshold_ms",
			value: millis(&c.Latency.Threshold, 100, 0, day),
			doc: "Turns of the engine, commits and commands that take at least this long are kept for `LATENCY`. 0: none. " +
				"`CONFIG SET latency-monitor-threshold` changes it while the server runs.",
		},
	}
}
