package commands

import (
	"crypto/sha1" //nolint:gosec // an identifier, not a secret
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faisca/fila/engine"
)

func (c *infoCall) section(h *Handler, name string) fields {
	switch name {
	case "server":
		return h.infoServer()
	case "clients":
		return h.infoClients(&c.stats)
	case "memory":
		return infoMemory()
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
		return h.infoReplication()
	case "cpu":
		return infoCPU()
	case "cluster":
		var f fields
		f.number("cluster_enabled", 0)
		return f
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

func (h *Handler) infoServer() fields {
	var f fields
	now := h.cfg.Now()
	up := max(now.Sub(h.started), 0)
	f.text("redis_version", RedisVersion)
	f.text("redis_mode", "standalone")
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

// infoMemory reports the memory of the Go runtime as used. RocksDB's memory is outside the
// runtime and appears only in the resident set.
func infoMemory() fields {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	held, objects := samples[0].Value.Uint64()-samples[1].Value.Uint64(), samples[2].Value.Uint64()
	resident, peak := residentBytes()
	var f fields
	f.bytes("used_memory", held)
	f.bytes("used_memory_rss", resident)
	f.bytes("used_memory_peak", max(peak, held))
	f.text("used_memory_peak_perc", percent(held, max(peak, held)))
	f.count("used_memory_overhead", held-min(objects, held))
	f.number("used_memory_startup", 0)
	f.count("used_memory_dataset", objects)
	f.text("used_memory_dataset_perc", percent(objects, held))
	if total := systemBytes(); total > 0 {
		f.bytes("total_system_memory", total)
	}
	f.number("used_memory_lua", 0)
	f.bytes("maxmemory", 0)
	f.text("maxmemory_policy", "noeviction")
	f.text("mem_fragmentation_ratio", strconv.FormatFloat(float64(resident)/float64(max(held, 1)), 'f', 2, 64))
	f.text("mem_allocator", "go")
	f.number("lazyfree_pending_objects", 0)
	return f
}

// bytes adds a size twice: as a number, and in a readable unit under name_human.
func (f *fields) bytes(name string, n uint64) {
	f.count(name, n)
	f.text(name+"_human", humanBytes(n))
}

func percent(part, whole uint64) string {
	return strconv.FormatFloat(100*float64(part)/float64(max(whole, 1)), 'f', 2, 64) + "%"
}

// residentBytes returns the resident set of the process and its peak, 0 where the operating
// system does not report them.
func residentBytes() (now, peak uint64) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err == nil && used.Maxrss > 0 {
		peak = uint64(used.Maxrss)
		if runtime.GOOS == "linux" {
			peak *= 1024
		}
	}
	text, err := os.ReadFile("/proc/self/statm") // Linux: total pages, resident pages, ...
	if words := strings.Fields(string(text)); err == nil && len(words) > 1 {
		if pages, err := strconv.ParseUint(words[1], 10, 64); err == nil {
			now = pages * uint64(os.Getpagesize()) //nolint:gosec // not negative
		}
	}
	return now, max(peak, now)
}

// systemBytes returns the memory of the machine, 0 where the operating system does not report it.
func systemBytes() uint64 {
	text, err := os.ReadFile("/proc/meminfo") // Linux: the first line is "MemTotal: 1 kB"
	words := strings.Fields(string(text))
	if err != nil || len(words) < 2 {
		return 0
	}
	kilobytes, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes * 1024
}

func humanBytes(n uint64) string {
	units := "KMGT"
	if n < 1024 {
		return strconv.FormatUint(n, 10) + "B"
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatFloat(value, 'f', 2, 64) + units[unit:unit+1]
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

func (h *Handler) infoReplication() fields {
	var f fields
	r := h.replication()
	f.text("role", r.name("slave"))
	if !r.Leading {
		f.text("master_host", r.Host)
		f.number("master_port", int64(r.Port))
		f.text("master_link_status", map[bool]string{true: "up", false: "down"}[r.LinkUp])
		f.number("master_last_io_seconds_ago", int64(r.Heard/time.Second))
		f.number("master_sync_in_progress", 0)
		f.count("slave_read_repl_offset", r.Applied)
		f.count("slave_repl_offset", r.Applied)
		f.number("slave_priority", 100)
		f.number("slave_read_only", 0) // it passes writes on
		f.number("replica_announced", 1)
	}
	f.number("connected_slaves", int64(len(r.Replicas)))
	for i, o := range r.Replicas {
		state := map[bool]string{true: "online", false: "wait_bgsave"}[o.Online]
		f.text("slave"+strconv.Itoa(i), fmt.Sprintf("ip=%s,port=%d,state=%s,offset=%d,lag=%d", o.Host, o.Port, state, o.Applied, int64(o.Heard/time.Second)))
	}
	f.text("master_failover_state", "no-failover")
	f.text("master_replid", h.runID)
	f.text("master_replid2", strings.Repeat("0", len(h.runID)))
	f.count("master_repl_offset", r.Applied)
	f.number("second_repl_offset", -1)
	f.number("repl_backlog_active", 0)
	f.number("repl_backlog_size", 0)
	f.number("repl_backlog_first_byte_offset", 0)
	f.number("repl_backlog_histlen", 0)
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
	return f
}

// runID returns forty hexadecimal digits that identify this start of the server.
func runID(started time.Time) string {
	sum := sha1.Sum([]byte(strconv.FormatInt(started.UnixNano(), 10) + "/" + strconv.Itoa(os.Getpid()))) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}
