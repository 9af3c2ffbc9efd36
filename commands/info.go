package commands

import (
	"crypto/sha1" //nolint:gosec // an identifier, not a secret
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func info() Spec {
	return Spec{
		Name: "INFO", Group: "server", Since: "1.0.0", Complexity: "O(1)", Returns: "text",
		Summary: "Returns figures of the server, in sections.",
		Differs: "Has the sections " + strings.Join(infoSections(), ", ") + "; the last one is Fila's own. " +
			"Without a name, and for default, it shows all but " + strings.Join(infoOnRequest(), ", ") + "; all and everything show these as well. " +
			"What a figure of Redis would count and Fila does not have is 0.",
		Flags: []string{"loading", "stale"},
		ACL:   []string{"dangerous"},
		Tips:  []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		Args:  []Arg{{Name: "section", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{
			{"INFO nosuch", `""`},
			{"INFO server", "..."},
		},
		Parse: func(s *Session, in *input) (call, error) {
			c := &infoCall{blank: s.recovering, loading: s.recovering && s.handler.nodes.cluster == nil}
			if c.blank && !c.loading { // the leader has the engine, and this node passes writes on to it
				r := s.handler.replication()
				c.stats.Writable = r.Leader != ""
			}
			if c.mode, c.secure = s.mode, s.secure; c.mode == ModeSentinel {
				c.sentinel = s.view().SentinelInfo()
			}
			for _, s := range in.List("section") {
				c.sections = append(c.sections, strings.ToLower(command.Clip(s)))
			}
			return c, nil
		},
	}
}

func infoSections() []string {
	return []string{
		"server", "clients", "memory", "persistence", "stats", "replication", "cpu", "modules", "commandstats", "errorstats", "latencystats",
		"cluster", "keyspace", "fila",
	}
}

// infoOnRequest are the sections that are shown only on request.
func infoOnRequest() []string { return []string{"commandstats", "latencystats"} }

type infoCall struct {
	sections []string // empty: all
	blank    bool     // there is no engine, or it recovers: its figures are zeros
	loading  bool     // it recovers
	mode     resp.Mode
	secure   bool   // with TLS
	sentinel string // on a port for clients of Sentinel: the master
	stats    engine.Stats
}

// Apply implements engine.Call.
func (c *infoCall) Apply(tx *engine.Tx) error {
	c.stats = tx.Stats()
	return nil
}

// Render writes the requested sections in the order of infoSections.
func (c *infoCall) Render(h *Handler, w *resp.Writer) error {
	var b strings.Builder
	for _, name := range sectionsOf(c.mode) {
		if !c.wants(name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + infoTitle(name) + "\r\n")
		f := c.section(h, name)
		for i := range f {
			b.WriteString(f[i].name + ":")
			if f[i].kind == fieldNumber {
				b.WriteString(strconv.FormatInt(f[i].num, 10))
			}
			b.WriteString(f[i].text + "\r\n")
		}
	}
	w.Verbatim(b.String())
	return nil
}

// wants reports whether the section was requested.
func (c *infoCall) wants(section string) bool {
	asked := func(word string) bool { return slices.Contains(c.sections, word) }
	if asked(section) || asked("all") || asked("everything") {
		return true
	}
	return (len(c.sections) == 0 || asked("default")) && !slices.Contains(infoOnRequest(), section)
}

func infoTitle(section string) string {
	if section == "cpu" {
		return "CPU"
	}
	return strings.ToUpper(section[:1]) + section[1:]
}

func (c *infoCall) section(h *Handler, name string) fields {
	switch name {
	case "server":
		return h.infoServer(c.mode)
	case "clients":
		return h.infoClients(&c.stats)
	case "memory":
		return infoMemory(&c.stats)
	case "modules":
		return nil // there are none
	case "commandstats":
		return h.infoCommands()
	case "errorstats":
		return h.infoErrors()
	case "latencystats":
		return h.infoLatency()
	case "persistence":
		return c.persistence(h)
	case "stats":
		return h.infoStats(&c.stats)
	case "replication":
		return h.infoReplication(c.mode, c.secure)
	case "cpu":
		return infoCPU()
	case "cluster":
		return h.infoCluster(c.mode)
	case "sentinel":
		return infoSentinel(c.sentinel)
	case "keyspace":
		var f fields
		if c.stats.Queues > 0 {
			f.text("db0", "keys="+strconv.FormatInt(c.stats.Queues, 10)+",expires=0,avg_ttl=0")
		}
		return f
	default:
		return c.fila(h)
	}
}

func (h *Handler) infoServer(mode resp.Mode) fields {
	var f fields
	now := h.cfg.Now()
	up := max(now.Sub(h.started), 0)
	f.text("redis_version", RedisVersion)
	f.text("redis_mode", modeName(mode))
	f.text("fila_version", h.cfg.Version)
	f.text("os", runtime.GOOS+" "+runtime.GOARCH)
	f.number("arch_bits", strconv.IntSize)
	f.text("go_version", runtime.Version())
	f.number("process_id", int64(os.Getpid()))
	f.text("run_id", h.runID)
	f.number("tcp_port", int64(h.cfg.port()))
	f.number("server_time_usec", now.UnixMicro())
	f.number("uptime_in_seconds", int64(up/time.Second))
	f.number("uptime_in_days", int64(up/(24*time.Hour)))
	return f
}

// port returns the port of the address that the server listens on, or 0 if it has none.
func (c *Config) port() int {
	_, text, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return port
}

// counters returns the totals since the start of the server.
func (h *Handler) counters() Counters {
	if h.cfg.Counters == nil {
		return Counters{}
	}
	return h.cfg.Counters()
}

// countersSinceReset returns the totals since the last CONFIG RESETSTAT, or since the start.
func (h *Handler) countersSinceReset() Counters {
	n := h.counters()
	if z := h.zero.Load(); z != nil {
		n.Accepted -= z.Accepted
		n.Rejected -= z.Rejected
		n.Commands -= z.Commands
		n.BytesIn -= z.BytesIn
		n.BytesOut -= z.BytesOut
	}
	return n
}

// rates are averages per second over the most recent interval.
type rates struct {
	at                time.Time // end of the interval, and start of the next one
	then              Counters  // totals at that time
	commands          uint64
	bytesIn, bytesOut float64 // kilobytes
}

// rates returns the averages between two calls of INFO that are at least a second apart. They
// are computed on request, so they need no timer.
func (h *Handler) rates() rates {
	now, counters := h.cfg.Now(), h.counters()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lastRates.at.IsZero() {
		h.lastRates.at = h.started
	}
	elapsed := now.Sub(h.lastRates.at)
	if elapsed < time.Second {
		return h.lastRates
	}
	perSecond := func(now, then uint64) float64 { return float64(now-then) / elapsed.Seconds() }
	h.lastRates = rates{
		at: now, then: counters, commands: uint64(perSecond(counters.Commands, h.lastRates.then.Commands)),
		bytesIn:  perSecond(counters.BytesIn, h.lastRates.then.BytesIn) / 1024,
		bytesOut: perSecond(counters.BytesOut, h.lastRates.then.BytesOut) / 1024,
	}
	return h.lastRates
}

func (h *Handler) infoClients(s *engine.Stats) fields {
	var f fields
	h.mu.Lock()
	connected := len(h.sessions)
	h.mu.Unlock()
	f.number("connected_clients", int64(connected))
	f.number("cluster_connections", 0)
	f.number("maxclients", int64(h.cfg.MaxClients))
	f.number("blocked_clients", s.Blocked)
	f.number("tracking_clients", 0)
	return f
}

func (c *infoCall) persistence(h *Handler) fields {
	status := "ok"
	if !c.stats.Writable && !c.blank {
		status = "err"
	}
	var f fields
	f.flag("loading", c.loading)
	f.flag("async_loading", false)
	f.backups(&c.stats)
	f.number("aof_enabled", 1)
	f.number("aof_rewrite_in_progress", 0)
	f.text("aof_last_write_status", status)
	f.number("rdb_changes_since_last_save", 0) // an acknowledged change is durable
	f.number("aof_rewrite_scheduled", 0)
	f.number("aof_last_rewrite_time_sec", -1)
	f.number("aof_current_rewrite_time_sec", -1)
	f.text("aof_last_bgrewrite_status", "ok")
	if h.cfg.Disk == nil {
		return f
	}
	if size, free := h.cfg.Disk(); size > 0 {
		f.bytes("store_bytes", size)
		f.bytes("store_free_bytes", free)
	}
	return f
}

func (h *Handler) infoStats(s *engine.Stats) fields {
	n, lastRates := h.countersSinceReset(), h.rates()
	_, errors := h.calls.Errors()
	channels, patterns := h.hub.Size()
	refused := uint64(0)
	for _, count := range errors {
		refused += count
	}
	var f fields
	f.count("total_connections_received", n.Accepted)
	f.count("total_commands_processed", n.Commands)
	f.count("instantaneous_ops_per_sec", lastRates.commands)
	f.count("total_net_input_bytes", n.BytesIn)
	f.count("total_net_output_bytes", n.BytesOut)
	f.text("instantaneous_input_kbps", strconv.FormatFloat(lastRates.bytesIn, 'f', 2, 64))
	f.text("instantaneous_output_kbps", strconv.FormatFloat(lastRates.bytesOut, 'f', 2, 64))
	f.count("rejected_connections", n.Rejected)
	f.count("expired_keys", s.Expired)
	f.number("evicted_keys", 0)
	f.number("pubsub_channels", int64(channels))
	f.number("pubsub_patterns", int64(patterns))
	f.number("keyspace_hits", 0)
	f.number("keyspace_misses", 0)
	f.number("latest_fork_usec", 0)
	f.number("sync_full", 0)
	f.number("sync_partial_ok", 0)
	f.number("sync_partial_err", 0)
	f.count("total_error_replies", refused)
	if t := h.cfg.Tracer; t != nil {
		n := t.Counts()
		f.count("tracing_spans_exported", n.Exported)
		f.count("tracing_spans_dropped", n.Dropped)
		f.count("tracing_spans_failed", n.Failed)
	}
	return f
}

// infoCommands reports each command that has been called or rejected.
func (h *Handler) infoCommands() fields {
	var f fields
	for _, c := range h.table.All {
		t := h.calls.Totals(c.Index)
		if t.Calls+t.Rejected == 0 {
			continue
		}
		us := t.Took.Sum().Microseconds()
		f.text("cmdstat_"+c.Name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			t.Calls, us, float64(us)/float64(max(t.Calls, 1)), t.Rejected, t.Failed))
	}
	return f
}

// infoErrors reports how often each error code has been sent.
func (h *Handler) infoErrors() fields {
	var f fields
	codes, counts := h.calls.Errors()
	for _, code := range codes {
		f.text("errorstat_"+code, "count="+strconv.FormatUint(counts[code], 10))
	}
	return f
}

// infoLatency reports the median, the 99th and the 99.9th percentile of each command's latency.
func (h *Handler) infoLatency() fields {
	var f fields
	for _, c := range h.table.All {
		t := h.calls.Totals(c.Index)
		if t.Calls == 0 {
			continue
		}
		f.text("latency_percentiles_usec_"+c.Name, "p50="+usec(t.Took.Quantile(0.5))+",p99="+usec(t.Took.Quantile(0.99))+",p99.9="+usec(t.Took.Quantile(0.999)))
	}
	return f
}

func infoCPU() fields {
	var f fields
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return f // the operating system does not report it
	}
	seconds := func(t syscall.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }
	f.text("used_cpu_sys", seconds(used.Stime))
	f.text("used_cpu_user", seconds(used.Utime))
	f.text("used_cpu_sys_children", "0.000000")
	f.text("used_cpu_user_children", "0.000000")
	return f
}

func (c *infoCall) fila(h *Handler) fields {
	var f fields
	f.text("fila_version", h.cfg.Version)
	f.engine(&c.stats)
	f.number("clock_behind_ms", c.stats.ClockBehind.Milliseconds())
	return f
}

// runID returns forty hexadecimal digits that identify this start of the server.
func runID(started time.Time) string {
	sum := sha1.Sum([]byte(strconv.FormatInt(started.UnixNano(), 10) + "/" + strconv.Itoa(os.Getpid()))) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// sectionsOf returns the sections of INFO on ports of a mode.
func sectionsOf(m resp.Mode) []string {
	if m == ModeSentinel {
		return []string{"server", "clients", "stats", "cpu", "sentinel"}
	}
	return infoSections()
}

// infoSentinel is the section sentinel of INFO; "" means that there is no master yet.
func infoSentinel(master string) fields {
	var f fields
	f.flag("sentinel_masters", master != "")
	f.number("sentinel_tilt", 0)
	f.number("sentinel_tilt_since_seconds", -1)
	f.number("sentinel_running_scripts", 0)
	f.number("sentinel_scripts_queue_length", 0)
	f.number("sentinel_simulate_failure_flags", 0)
	if master != "" {
		f.text("master0", master)
	}
	return f
}
