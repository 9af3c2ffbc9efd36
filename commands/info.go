package commands

import (
	"crypto/sha1" //nolint:gosec // makes an identifier, hides nothing
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func info() Spec {
	return Spec{
		Name: "INFO", Group: "server", Since: "1.0.0", Complexity: "O(1)",
		Summary: "Returns figures of the server, in sections.",
		Differs: "Has the sections " + strings.Join(infoSections(), ", ") + "; the last one is Fila's own.",
		Flags:   []string{"loading", "stale"},
		ACL:     []string{"dangerous"},
		Tips:    []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		Args:    []Arg{{Name: "section", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{
			{"INFO nosuch", `""`},
			{"INFO server", "..."},
		},
		Parse: func(in *input) (call, error) {
			c := &infoCall{loading: in.loading}
			for _, s := range in.list("section") {
				c.sections = append(c.sections, strings.ToLower(clip(s)))
			}
			return c, nil
		},
	}
}

func infoSections() []string {
	return []string{"server", "clients", "memory", "persistence", "stats", "replication", "cpu", "cluster", "keyspace", "fila"}
}

type infoCall struct {
	sections []string // empty: all
	loading  bool     // the engine recovers: its figures are zeros
	stats    engine.Stats
}

// Apply implements engine.Call.
func (c *infoCall) Apply(tx *engine.Tx) error {
	c.stats = tx.Stats()
	return nil
}

// Render writes the sections asked for, in their order here.
func (c *infoCall) Render(h *Handler, w *resp.Writer) error {
	all := len(c.sections) == 0
	for _, everything := range []string{"all", "default", "everything"} {
		all = all || slices.Contains(c.sections, everything)
	}
	var b strings.Builder
	for _, name := range infoSections() {
		if !all && !slices.Contains(c.sections, name) {
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

func infoTitle(section string) string {
	if section == "cpu" {
		return "CPU"
	}
	return strings.ToUpper(section[:1]) + section[1:]
}

func (c *infoCall) section(h *Handler, name string) fields {
	switch name {
	case "server":
		return h.infoServer()
	case "clients":
		return h.infoClients(&c.stats)
	case "memory":
		return infoMemory()
	case "persistence":
		return c.persistence()
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
	f.text("redis_version", redisVersion)
	f.text("redis_mode", "standalone")
	f.text("fila_version", h.cfg.Version)
	f.text("os", runtime.GOOS+" "+runtime.GOARCH)
	f.number("arch_bits", strconv.IntSize)
	f.text("go_version", runtime.Version())
	f.number("process_id", int64(os.Getpid()))
	f.text("run_id", h.runID)
	f.number("tcp_port", int64(h.port()))
	f.number("server_time_usec", now.UnixMicro())
	f.number("uptime_in_seconds", int64(up/time.Second))
	f.number("uptime_in_days", int64(up/(24*time.Hour)))
	return f
}

// port returns the number in the address the server listens on, 0 if it has none.
func (h *Handler) port() int {
	_, text, err := net.SplitHostPort(h.cfg.Addr)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return port
}

func (h *Handler) counters() Counters {
	if h.cfg.Counters == nil {
		return Counters{}
	}
	return h.cfg.Counters()
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

func infoMemory() fields {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	held := samples[0].Value.Uint64() - samples[1].Value.Uint64()
	var f fields
	f.count("used_memory", held)
	f.text("used_memory_human", humanBytes(held))
	f.count("used_memory_dataset", samples[2].Value.Uint64())
	f.number("maxmemory", 0)
	f.text("maxmemory_human", "0B")
	f.text("maxmemory_policy", "noeviction")
	f.text("mem_allocator", "go")
	return f
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

func (c *infoCall) persistence() fields {
	status := "ok"
	if !c.stats.Writable && !c.loading {
		status = "err"
	}
	var f fields
	f.flag("loading", c.loading)
	f.flag("async_loading", false)
	f.number("rdb_bgsave_in_progress", 0)
	f.number("aof_enabled", 1)
	f.number("aof_rewrite_in_progress", 0)
	f.text("aof_last_write_status", status)
	return f
}

func (h *Handler) infoStats(s *engine.Stats) fields {
	n := h.counters()
	var f fields
	f.count("total_connections_received", n.Accepted)
	f.count("total_commands_processed", n.Commands)
	f.count("total_net_input_bytes", n.BytesIn)
	f.count("total_net_output_bytes", n.BytesOut)
	f.count("rejected_connections", n.Rejected)
	f.count("expired_keys", s.Expired)
	f.number("evicted_keys", 0)
	f.number("pubsub_channels", 0)
	f.number("pubsub_patterns", 0)
	return f
}

func (h *Handler) infoReplication() fields {
	var f fields
	f.text("role", "master")
	f.number("connected_slaves", 0)
	f.text("master_failover_state", "no-failover")
	f.text("master_replid", h.runID)
	f.text("master_replid2", strings.Repeat("0", len(h.runID)))
	f.number("master_repl_offset", 0)
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
		return f // a system without the figure has no figure to show
	}
	seconds := func(t syscall.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }
	f.text("used_cpu_sys", seconds(used.Stime))
	f.text("used_cpu_user", seconds(used.Utime))
	return f
}

func (c *infoCall) fila(h *Handler) fields {
	var f fields
	f.text("fila_version", h.cfg.Version)
	f.engine(&c.stats)
	return f
}

// runID makes the forty hexadecimal digits by which tools tell one start of a
// server from the next.
func runID(started time.Time) string {
	sum := sha1.Sum([]byte(strconv.FormatInt(started.UnixNano(), 10) + "/" + strconv.Itoa(os.Getpid()))) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}
