package cli

import (
	"strings"
	"time"
)

// setting describes one setting. All other descriptions derive from it.
type setting struct {
	name  string // section, dot, key
	doc   string // one or more complete sentences
	value value
	// secret settings are never shown in listings or errors.
	secret bool
}

// entry is a setting that is no secret.
func entry(name string, v value, doc string) setting { return setting{name: name, value: v, doc: doc} }

// env returns the setting's environment variable.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.Replace(s.name, ".", "__", 1))
}

func (s setting) section() string {
	section, _, _ := strings.Cut(s.name, ".")
	return section
}

// shown returns the value for listings.
func (s setting) shown() string {
	if s.secret && s.value.String() != "" {
		return "(set)"
	}
	return s.value.literal()
}

// Bounds shared by several settings.
const (
	day = 24 * 60 * 60 * 1000 // ms
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	// With less, data blocks and RocksDB's index blocks keep evicting each other.
	blockCacheMin = 8 * mib

	nameMax = 1 << 15 // bytes; names are parts of keys, which the store keeps in memory
)

// settings is the table: every setting, bound to its field of c, in the order
// in which the sections are documented.
func settings(c *Config) []setting {
	var all []setting
	all = append(all, serverSettings(&c.Server)...)
	all = append(all, memorySettings(&c.Server)...)
	all = append(all, unauthenticatedSettings(&c.Server)...)
	all = append(all, authSettings(&c.Auth)...)
	all = append(all, tlsSettings(&c.TLS)...)
	all = append(all, storageSettings(&c.Storage)...)
	all = append(all, clusterSettings(&c.Cluster)...)
	all = append(all, clusterPorts(&c.Cluster)...)
	all = append(all, schedulerSettings(&c.Scheduler)...)
	all = append(all, luaSettings(&c.Lua)...)
	all = append(all, limitSettings(&c.Limits)...)
	all = append(all, signalSettings(&c.Signals)...)
	all = append(all, budgetSettings(&c.Budgets)...)
	all = append(all, groupSettings(&c.Groups)...)
	all = append(all, logSettings(&c.Log)...)
	all = append(all, tracingSettings(&c.Tracing)...)
	all = append(all, watchSettings(c)...)
	all = append(all, adminSettings(&c.Admin)...)
	return append(all, metricsSettings(&c.Metrics)...)
}

func serverSettings(c *Server) []setting {
	return []setting{
		entry("server.listen_addr", text{to: &c.ListenAddr, def: "127.0.0.1:5555", check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"Listen address for plaintext connections; empty disables them. Port 0 selects a free port, which is logged. An address reachable from "+
				"other machines is refused unless clients must authenticate."),
		entry("server.maxclients", count(&c.MaxClients, 10_000, 1, 1_000_000),
			"Maximum number of connections; further ones receive an error and are closed. If the limit of open files (`ulimit -n`) is too low for "+
				"it, it is lowered at start, which is logged."),
		entry("server.idle_timeout_ms", millis(&c.IdleTimeout, 0, 0, 365*day),
			"A connection that sends nothing for this long, and does not wait for anything, is closed. 0: never."),
		entry("server.write_timeout_ms", millis(&c.WriteTimeout, 30_000, 1, day),
			"A client that does not read its replies for this long is disconnected."),
		entry("server.max_block_ms", millis(&c.MaxBlock, 0, 0, 365*day),
			"Maximum wait of `BLOCK`; longer waits, and `BLOCK 0`, are reduced to it. 0: unlimited."),
		entry("server.window_max", count(&c.WindowMax, 1024, 1, 1_000_000),
			"Maximum number of unanswered commands of a connection; at this number the broker stops reading from it until replies have been sent."),
		entry("server.shutdown_timeout_ms", millis(&c.ShutdownTimeout, 10_000, 0, day),
			"Time that replies in flight have to reach their clients after SIGTERM or SIGINT."),
		entry("server.queues_file", text{to: &c.QueuesFile, of: "path", says: "a file"},
			"A file with `[[queues]]`, `[[topics]]` and `[[throttles]]`, applied at start together with those of the configuration file; nothing is deleted. See [queues](../how-to/queues.md). "+
				"Empty: none. `--queues FILE` is a short form."),
		entry("server.pprof_addr", text{to: &c.PprofAddr, check: checkPprofAddr, of: "host:port", says: "empty, or host:port of this machine alone"},
			"Address at which the running broker serves profiles for `go tool pprof` over HTTP; empty disables them. There is no authentication, so "+
				"only addresses unreachable from other machines are accepted."),
	}
}

// memorySettings bound the memory of connections.
func memorySettings(c *Server) []setting {
	return []setting{
		entry("server.input_bytes_max", sized(&c.InputBytesMax, gib, mib, 1024*gib),
			"Memory for the long commands that all connections are sending. A connection that would exceed it receives an error and is closed; short "+
				"commands are always accepted. The same amount is available for commands queued for `EXEC`; a command that would exceed it is refused."),
		entry("server.memory_bytes", sized(&c.MemoryBytes, 0, 0, 1024*gib),
			"Limit on Go memory, near which garbage is collected more often. RocksDB's memory (`storage.mode`) is additional. When 85 % of it are in use, a "+
				"fourth of it by what is stored, commands that store something new are refused with `OOM`. 0: the value of `GOMEMLIMIT`, or no limit. In a container (a control group with a "+
				"limit of memory), at most nine tenths of its limit less what RocksDB takes."),
		entry("server.output_bytes_max", sized(&c.OutputBytesMax, 8*mib, 64*kib, 64*gib),
			"Maximum output buffered for a slow client. Replies: at this size no further command of the connection is executed until some have been "+
				"sent; a command with a larger reply is executed alone, and the number of small replies is bounded by `server.window_max`. Events and "+
				"lines of `MONITOR`: a client that exceeds it is disconnected."),
		entry("server.reply_bytes_max", sized(&c.ReplyBytesMax, 256*mib, mib, 1024*gib),
			"Memory for the unsent replies of all connections: half for results of commands, half for leased messages. When it is full, commands "+
				"with large replies wait before they are executed; those with short ones always proceed."),
	}
}

// unauthenticatedSettings bound unauthenticated connections.
func unauthenticatedSettings(c *Server) []setting {
	return []setting{
		entry("server.auth_timeout_ms", millis(&c.AuthTimeout, 10_000, 0, day),
			"If authentication is required, a connection that has not authenticated within this time is closed. 0: never."),
		entry("server.unauthenticated_max", count(&c.UnauthenticatedMax, 1000, 1, 1_000_000),
			"Maximum number of connections that have not authenticated or not finished the TLS handshake; a further one closes the oldest of them."),
	}
}

func authSettings(c *Auth) []setting {
	return []setting{
		{
			name:   "auth.password",
			value:  text{to: &c.Password, says: "any text"},
			secret: true,
			doc: "The password of the user `default`, for `AUTH` and `HELLO`. Empty: no password. Prefer the environment or a file to a flag, which other " +
				"users of the machine can see.",
		},
		{
			name:   "auth.users",
			value:  lines{to: &c.Users},
			secret: true,
			doc: "Users and their rights, each as a line of `ACL LIST`: `user worker on #<SHA-256 of the password> %R~orders* +@consume +@connection`. " +
				"See [security](../how-to/security.md).",
		},
		entry("auth.acl_file", text{to: &c.ACLFile, of: "path", says: "a file"},
			"A file with such lines, instead of `auth.users`: `ACL SAVE` writes it, `ACL LOAD` reloads it. A line for the user `default` overrides "+
				"`auth.password`. Empty: users created at run time are lost when the broker stops. With `cluster.node_id`, `auth.*` give the users with which "+
				"the cluster is formed; from then on they are in its store."),
	}
}

func tlsSettings(c *TLS) []setting {
	return []setting{
		entry("tls.listen_addr", text{to: &c.ListenAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"Listen address for TLS connections, 1.2 or later; empty disables them. An address reachable from other machines is refused unless "+
				"clients must authenticate, by password or by certificate."),
		entry("tls.cert_file", text{to: &c.CertFile, of: "path", says: "a file"},
			"The server's certificate in PEM, with its intermediate certificates. The three files are reloaded when they change."),
		entry("tls.key_file", text{to: &c.KeyFile, of: "path", says: "a file"}, "The certificate's private key in PEM."),
		entry("tls.ca_file", text{to: &c.CAFile, of: "path", says: "a file"},
			"Certificates, in PEM, of the authorities whose client certificates are accepted."),
		entry("tls.auth_clients", text{to: &c.AuthClients, def: ClientsMust, choices: []string{ClientsMust, ClientsMay, ClientsNeedNot}},
			"Whether clients must present a certificate signed by an authority in `tls.ca_file`. `optional`: a presented certificate must be valid."),
		entry("tls.auth_clients_user", text{to: &c.AuthClientsUser, def: "off", choices: []string{"off", "cn"}},
			"`cn`: a client with a certificate is authenticated as the user named by its common name, without a password, if that user exists and is enabled."),
	}
}

func storageSettings(c *Storage) []setting {
	return []setting{
		entry("storage.engine", text{to: &c.Engine, def: EngineRocksDB, choices: []string{EngineRocksDB, EngineMemory}},
			"`memory` loses everything when the process ends: for tests and trials."),
		entry("storage.path", text{to: &c.Path, def: "./data", check: notEmpty, of: "path", says: "a directory"},
			"The directory of the store, created if it does not exist. A leading `~/` or `$HOME` is expanded."),
		entry("storage.backup_path", text{to: &c.BackupPath, of: "path", says: "empty, or a directory"},
			"The directory of the backups of `BGSAVE` and `FILA.BACKUP`, created if it does not exist; clients only choose names in it. On the file "+
				"system of `storage.path` a backup is fast and shares files with the store, elsewhere it is a copy. Empty: `storage.path` with the "+
				"suffix `-backups`."),
		entry("storage.sync", text{to: &c.Sync, def: SyncAlways, choices: []string{SyncAlways, SyncInterval, SyncNever}},
			"When a write is synced to disk. `always`: before its reply. `interval`: every `storage.sync_interval_ms`. `never`: when the operating "+
				"system decides. In all three modes writes survive the end of the process; see [guarantees](../explanation/guarantees.md) for power cuts."),
		entry("storage.sync_interval_ms", millis(&c.SyncInterval, 100, 1, 60*60*1000),
			"With `storage.sync` at `interval`: the time between two syncs, and so the period whose writes a power cut may lose."),
		entry("storage.mode", text{to: &c.Mode, def: "balanced", choices: []string{"low_space", "balanced", "high_throughput"}},
			"The resources for which the store is tuned. `low_space`: little disk space and memory. `high_throughput`: more of both, and a longer "+
				"start, for fewer compactions. The block caches are 32, 64 (`balanced`) and 256 MiB."),
		entry("storage.memtable", text{to: &c.Memtable, def: "default", choices: []string{"default", "lanes", "skiplist"}},
			"The structure of messages, leases and budgets in memory before they are written to tables. `lanes`: Fila's own, which sorts only when necessary. "+
				"`skiplist`: RocksDB's, slower. `default`: lanes, or RocksDB's in a [plain build](../internals/below-the-defaults.md). The data on "+
				"disk is the same."),
		entry("storage.lease_lag_ms", millis(&c.LeaseLag, 5, 0, 60_000),
			"The delay after its reply at which a lease is written, if it still exists then: after a crash within that time the message is delivered "+
				"again immediately. 0: written before the reply."),
		entry("storage.block_cache_bytes", sized(&c.BlockCacheBytes, 0, 0, 1024*gib),
			"Memory for blocks read from disk, at least 8 MiB (8388608). 0: chosen by `storage.mode`."),
		entry("storage.reserve_bytes", sized(&c.ReserveBytes, 32*mib, 0, 1024*gib),
			"Size of a file that reserves disk space and is deleted when the disk is full, since deleting messages requires writes, too. At most a "+
				"sixteenth of the disk. 0: none; a full disk then needs space freed outside the store. See [operations](../how-to/operations.md#a-full-disk)."),
	}
}

func schedulerSettings(c *Scheduler) []setting {
	return []setting{
		entry("scheduler.quantum", count(&c.Quantum, 1, 1, 1_000_000),
			"Deficit round robin: the credit that a fairness key gets per round and unit of weight. 1 gives the finest interleaving."),
		entry("scheduler.visibility_timeout_ms", millis(&c.Visibility, 30_000, 1, 365*day),
			"The visibility timeout: the duration of a lease if neither the command nor the queue sets it."),
		entry("scheduler.max_attempts", count(&c.MaxAttempts, 10, 1, 1_000_000),
			"Number of failures after which a message goes to the dead-letter queue, if the queue does not set it."),
		entry("scheduler.backoff_ms", millis(&c.Backoff, 1000, 0, 365*day),
			"The delay before the first retry, if the queue does not set it; it doubles with each further retry."),
		entry("scheduler.max_backoff_ms", millis(&c.MaxBackoff, 300_000, 0, 365*day),
			"The maximum delay between two retries, if the queue does not set it. At least `scheduler.backoff_ms`."),
		entry("scheduler.backoff_jitter_percent", count(&c.Jitter, 0, 0, 100),
			"Random reduction of such a delay, at most this percentage, if the queue does not set it, so that messages that failed together are not "+
				"retried together. 0: none."),
		entry("scheduler.dedup_window_ms", millis(&c.DedupWindow, 300_000, 0, 365*day),
			"How long a queue created without `DEDUPWINDOW` remembers the ids given as `DEDUP`. 0: no deduplication."),
		entry("scheduler.window", count(&c.Window, 256, 2, 100_000),
			"Number of ready messages of one fairness key that are tracked in memory; the rest of its backlog is prefetched from disk."),
		entry("scheduler.body_bytes", sized(&c.BodyBytes, 128*mib, 0, 1024*gib),
			"Memory for payloads and headers between enqueue and delivery; those that do not fit are read from disk. Where it is short, a lease may return fewer messages than are ready, above all large ones."),
	}
}

func luaSettings(c *Lua) []setting {
	return []setting{
		entry("lua.timeout_ms", millis(&c.Timeout, 10, 1, 60_000),
			"Maximum duration of one call of a script, unless its queue has `LUATIMEOUT`; a longer call fails. The client that enqueues waits for it."),
		entry("lua.memory_bytes", sized(&c.MemoryBytes, mib, 256*kib, gib),
			"Maximum memory that one call of a script may allocate, garbage included, unless its queue has `LUAMEMORY`; a call that allocates more fails."),
		entry("lua.breaker_errors", count(&c.BreakerErrors, 3, 1, 1_000_000),
			"Number of consecutive errors after which a script is disabled for a while, unless its queue has `BREAKERERRORS`."),
		entry("lua.breaker_cooldown_ms", millis(&c.BreakerCooldown, 10_000, 1, day),
			"How long a script that has failed too often in a row is disabled, with default decisions in effect; then one call determines whether "+
				"it is enabled again."),
	}
}

func limitSettings(c *Limits) []setting {
	return []setting{
		entry("limits.queue_name_bytes", sized(&c.QueueName, 255, 1, nameMax), "Longest queue name. The name of a dead-letter queue created with a queue is four bytes longer, by `.dlq`."),
		entry("limits.key_bytes", sized(&c.Key, 512, 1, nameMax), "Longest fairness key, throttle key, dedup id or unique id."),
		entry("limits.headers", count(&c.Headers, 64, 1, 10_000), "Maximum number of headers of a message."),
		entry("limits.header_name_bytes", sized(&c.HeaderName, 512, 1, nameMax), "Longest header name."),
		entry("limits.header_value_bytes", sized(&c.HeaderValue, 8*kib, 1, 64*mib), "Longest header value."),
		entry("limits.payload_bytes", sized(&c.Payload, 16*mib, 1, 512*mib), "Largest payload."),
		entry("limits.result_bytes", sized(&c.Result, mib, 1, 64*mib), "Largest result of an ack, see [results](../explanation/messages.md#results)."),
		entry("limits.command_bytes", sized(&c.Command, 32*mib, kib, gib-mib),
			"Largest command, including all of its arguments. At least `limits.payload_bytes` plus 1024."),
		entry("limits.throttles", count(&c.Throttles, 16, 0, 1024), "Maximum number of throttle keys of a message."),
		entry("limits.holds", count(&c.Holds, 100_000, 1, 1_000_000),
			"Maximum number of throttle keys that are held at a time. One more takes the place of the one that ends first, see [holds](../how-to/rate-limit.md#when-the-provider-says-429)."),
		entry("limits.throttle_instances", count(&c.ThrottleInstances, 1_000_000, 1, 100_000_000),
			"Maximum number of throttles of patterns that are in memory although nothing names them any more, until their buckets are full again. One more, and the one that would be full first is forgotten, see [patterns](../how-to/rate-limit.md#a-limit-for-each-tenant)."),
		entry("limits.script_bytes", sized(&c.Script, 64*kib, 1, mib), "Largest script source."),
		entry("limits.script_history_bytes", sized(&c.History, 64*mib, 0, gib),
			"Maximum total size of the sources in the [histories](lua.md#history) of all scripts. Beyond it the oldest are forgotten; the one that was loaded "+
				"last is kept."),
		entry("limits.weight", count(&c.Weight, 1_000_000, 1, 1_000_000), "Maximum weight of a fairness key."),
		entry("limits.cost", count(&c.Cost, 1_000_000, 1, 1_000_000), "Maximum cost of a delivery."),
		entry("limits.consumer_bytes", sized(&c.Consumer, 512, 1, nameMax), "Longest consumer name."),
		entry("limits.reply_bytes", sized(&c.Reply, 64*mib, mib, gib),
			"Maximum total size of the messages in one reply to `FILA.LEASE`. The first message always fits; those beyond the limit return to the "+
				"queue as if they had not been delivered."),
		entry("limits.count", count(&c.Count, 10_000, 1, 1_000_000), "Maximum `COUNT`."),
		entry("limits.signals", count(&c.Signals, 100_000, 1, 1_000_000),
			"Maximum number of [signals](signals.md), pairs of subject and name. Each takes at most 256 bytes of memory, besides its names; one more takes the "+
				"place of the one that was added to longest ago."),
		entry("limits.crons", count(&c.Crons, 10_000, 1, 1_000_000), "Maximum number of recurring messages, see [cron](../how-to/cron.md)."),
		entry("limits.budgets", count(&c.Budgets, 100_000, 1, 1_000_000), "Maximum number of budgets, see [budgets](../explanation/budgets.md)."),
		entry("limits.groups", count(&c.Groups, 100_000, 1, 10_000_000), "Maximum number of [groups](../how-to/groups.md) that have not ended. Each takes about 500 bytes of memory, and 150 for each queue that has members of it."),
	}
}

func logSettings(c *Log) []setting {
	return []setting{
		entry("log.level", text{to: &c.Level, def: "info", choices: []string{"debug", "info", "warn", "error"}},
			"The lowest level that is logged. Payloads and header values are never logged."),
		entry("log.format", text{to: &c.Format, def: "auto", choices: []string{"auto", "json", "console"}},
			"`auto`: readable lines on a terminal, JSON elsewhere. The log goes to standard error."),
	}
}

// watchSettings configure SLOWLOG and LATENCY.
func watchSettings(c *Config) []setting {
	return []setting{
		entry("slowlog.slower_than_us", number[time.Duration]{to: &c.Slowlog.SlowerThan, def: 100_000, min: -1, max: 60 * 60 * 1000 * 1000, unit: "us", scale: int64(time.Microsecond)},
			"Commands that take at least this long, in microseconds, are kept for `SLOWLOG`. The duration is measured from the read of the command "+
				"until its reply may be sent; it includes the commit and excludes waiting for messages. -1: none. `CONFIG SET slowlog-log-slower-than` "+
				"changes it at run time."),
		entry("slowlog.max_entries", count(&c.Slowlog.MaxEntries, 128, 0, 10_000),
			"Maximum number of slow commands kept, the newest, each truncated to about 4 KiB. `CONFIG SET slowlog-max-len` changes it at run time."),
		entry("latency.threshold_ms", millis(&c.Latency.Threshold, 100, 0, day),
			"Turns of the engine, commits and commands that take at least this long are kept for `LATENCY`. 0: none. `CONFIG SET "+
				"latency-monitor-threshold` changes it at run time."),
	}
}
