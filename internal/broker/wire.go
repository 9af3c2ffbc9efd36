package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/certs"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/scripting"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// This file derives the configuration of each part from the settings. Options of a part
// without a setting keep their defaults.

func respConfig(cfg cli.Config, log zerolog.Logger) resp.Config {
	c := resp.DefaultConfig()
	c.Addr = cfg.Server.ListenAddr
	c.TLSAddr = cfg.TLS.ListenAddr
	c.AuthTimeout = cfg.Server.AuthTimeout
	c.UnauthenticatedMax = cfg.Server.UnauthenticatedMax
	c.MaxClients = cfg.Server.MaxClients
	c.IdleTimeout = cfg.Server.IdleTimeout
	c.WriteTimeout = cfg.Server.WriteTimeout
	c.WindowMax = cfg.Server.WindowMax
	c.InputBytesMax = cfg.Server.InputBytesMax
	c.OutputBytesMax = cfg.Server.OutputBytesMax
	c.ReplyBytesMax = cfg.Server.ReplyBytesMax / 2 // commands have the other half, see replyLimits
	// One argument may have the size of a whole command. The command itself may be larger
	// by a margin for its name and options, so that a payload slightly above the limit gets
	// an error reply instead of a closed connection.
	c.Limits.BulkBytesMax = cfg.Limits.Command
	c.Limits.CommandBytesMax = cfg.Limits.Command + 1<<20
	for _, p := range cfg.Cluster.Ports() {
		c.More = append(c.More, resp.Listener{Addr: p.Addr, TLS: p.TLS, Mode: modeOf(p)})
	}
	c.Log = log
	return c
}

// modeOf returns the mode of a port.
func modeOf(p cli.Port) resp.Mode {
	if p.Sentinel {
		return commands.ModeSentinel
	}
	return commands.ModeCluster
}

// listenSetting returns the setting of the address that the server cannot listen on.
func listenSetting(cfg cli.Config, err error) string {
	failed, ok := errors.AsType[*resp.ListenError](err)
	if !ok {
		return "server.listen_addr"
	}
	for _, p := range cfg.Cluster.Ports() {
		if l := failed.Listener; l.Mode == modeOf(p) && l.TLS == p.TLS {
			return p.Setting
		}
	}
	if failed.Listener.TLS {
		return "tls.listen_addr"
	}
	return "server.listen_addr"
}

// certificates loads the files of TLS; nil if no listener is configured to use it.
func certificates(all cli.Config, log zerolog.Logger) (*tls.Config, error) {
	cfg := all.TLS
	wanted := cfg.ListenAddr != "" || all.Admin.ListenAddr != "" && all.Admin.TLS
	for _, p := range all.Cluster.Ports() {
		wanted = wanted || p.TLS
	}
	if !wanted {
		return nil, nil
	}
	clients := map[string]tls.ClientAuthType{
		cli.ClientsMust: tls.RequireAndVerifyClientCert, cli.ClientsMay: tls.VerifyClientCertIfGiven, cli.ClientsNeedNot: tls.NoClientCert,
	}[cfg.AuthClients]
	source, err := certs.New(certs.Files{Cert: cfg.CertFile, Key: cfg.KeyFile, CA: cfg.CAFile}, clients, log)
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("tls: %w", err)}
	}
	return source.Config(), nil
}

// engineConfig returns the engine's configuration. scripts compiles the hooks of queues.
func engineConfig(cfg cli.Config, scripts hook.Loader, log zerolog.Logger) engine.Config {
	c := engine.DefaultConfig()
	c.Visibility = cfg.Scheduler.Visibility
	c.Backoff = cfg.Scheduler.Backoff
	c.MaxBackoff = cfg.Scheduler.MaxBackoff
	c.Jitter = cfg.Scheduler.Jitter
	c.DedupWindow = cfg.Scheduler.DedupWindow
	c.MaxAttempts = cfg.Scheduler.MaxAttempts
	c.Quantum = cfg.Scheduler.Quantum
	c.MaxBlock = cfg.Server.MaxBlock
	c.LeaseWriteDelay = cfg.Storage.LeaseLag
	c.Sync = syncMode(cfg.Storage.Sync)
	c.SyncInterval = cfg.Storage.SyncInterval
	c.Limits = messageLimits(cfg.Limits)
	c.Scripts = scripts
	c.Window = cfg.Scheduler.Window
	c.BodyBytes = cfg.Scheduler.BodyBytes
	c.ReplyBytes = cfg.Limits.Reply
	c.HistoryBytes = cfg.Limits.History
	c.FiguresAge = cfg.Admin.FiguresAge
	c.SignalWindows = cfg.Signals.Windows
	c.SignalCheckpoint = cfg.Signals.Checkpoint
	c.HistoryDays = cfg.Budgets.HistoryDays
	c.GroupsKeep = cfg.Groups.Keep
	c.Log = log
	return c
}

// messageLimits returns the limits for requests of clients and decisions of scripts.
func messageLimits(l cli.Limits) engine.Limits {
	d := engine.DefaultConfig().Limits
	return engine.Limits{
		Limits: hook.Limits{
			Key: l.Key, Throttle: l.Key, Throttles: l.Throttles, Weight: l.Weight, Cost: l.Cost, Script: l.Script,
		},
		QueueName: l.QueueName, Dedup: l.Key, HeaderName: l.HeaderName, HeaderValue: l.HeaderValue, Headers: l.Headers,
		Payload: l.Payload, Result: l.Result, Count: l.Count, Crons: l.Crons, Budgets: l.Budgets, Groups: l.Groups, Holds: l.Holds, Instances: l.ThrottleInstances, Signals: l.Signals, Values: d.Values, ValueBytes: d.ValueBytes,
	}
}

func scriptingConfig(cfg cli.Config) scripting.Config {
	c := scripting.DefaultConfig()
	c.Timeout = cfg.Lua.Timeout
	c.Memory = cfg.Lua.MemoryBytes
	c.Failures = cfg.Lua.BreakerErrors
	c.Cooldown = cfg.Lua.BreakerCooldown
	c.Source = cfg.Limits.Script
	c.Limits = messageLimits(cfg.Limits).Limits
	return c
}

func syncMode(setting string) engine.SyncMode {
	switch setting {
	case cli.SyncInterval:
		return engine.SyncInterval
	case cli.SyncNever:
		return engine.SyncNever
	default:
		return engine.SyncAlways
	}
}

// commandsConfig returns the configuration of commands: addr is the address of the server,
// stop the effect of SHUTDOWN.
func (b *broker) commandsConfig(addr string, stop func()) commands.Config {
	c := commands.Config{
		Password: b.cfg.Auth.Password,
		Users:    b.cfg.Auth.Users,
		ACLFile:  b.cfg.Auth.ACLFile,

		CertificateUsers: b.cfg.TLS.AuthClientsUser == "cn",
		Version:          cli.Version(),
		Addr:             addr,
		Limits:           replyLimits(b.cfg),
		Now:              time.Now,
		Shutdown:         stop,
		Counters:         b.counters,
		Disk:             b.disk.figures,
		MaxClients:       b.cfg.Server.MaxClients,
		IdleTimeout:      b.cfg.Server.IdleTimeout,
		Settings:         b.cfg.Settings(),
		SlowAfter:        b.cfg.Slowlog.SlowerThan,
		SlowMax:          b.cfg.Slowlog.MaxEntries,
		LogLevel:         b.level,
		Latency:          b.latency,
		Tracer:           b.tracer,
		Metrics:          b.metrics(),
		Log:              b.log,
	}
	if b.member != nil {
		c.Cluster, c.Relay, c.Replication = b.member.seat, b.member.router, b.member
		c.UserStore = func(known uint64) (uint64, map[string]string, error) { return storage.ReadUsers(b.store, known) }
	}
	return c
}

// tracingConfig returns the configuration of the tracer.
func tracingConfig(cfg cli.Config, log zerolog.Logger) tracing.Config {
	return tracing.Config{
		Endpoint: cfg.Tracing.Endpoint, Ratio: cfg.Tracing.Ratio, Parent: cfg.Tracing.Relation == cli.RelationParent,
		Version: cli.Version(), Now: time.Now, Log: log,
	}
}

// replyLimits returns the bounds by which commands estimate and limit their replies.
func replyLimits(cfg cli.Config) commands.Limits {
	l := cfg.Limits
	// A message is at most as large as the command that enqueued it.
	message := min(l.Command, l.Payload+l.Headers*(l.HeaderName+l.HeaderValue)) + (l.Throttles+engine.BudgetsMax)*l.Key
	return commands.Limits{
		Count: l.Count, Consumer: l.Consumer, Weight: int(l.Weight), Cost: int(l.Cost), ReplyBytes: l.Reply, Name: max(l.QueueName, l.Key), Message: message, Script: l.Script, Result: l.Result,
		Retained: cfg.Server.OutputBytesMax, QueuedTotal: cfg.Server.InputBytesMax, RetainedTotal: cfg.Server.ReplyBytesMax / 8, LoadTotal: cfg.Server.ReplyBytesMax * 3 / 8,
	}
}

func (b *broker) counters() commands.Counters {
	s := b.server.Stats()
	return commands.Counters{
		Connected: uint64(max(s.Current, 0)), Accepted: s.Accepted, Rejected: s.Rejected,
		Commands: s.Commands, BytesIn: s.BytesIn, BytesOut: s.BytesOut,
	}
}
