package commands

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func memory() Spec {
	return Spec{
		Name: "MEMORY", Group: "server", Since: "4.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for memory diagnostics commands.",
		Subcommands: []Spec{
			memorySpec("DOCTOR", "Says what the memory is used for.", "A report on what holds Fila's memory.", func(w *resp.Writer) error {
				w.Verbatim(memoryReport())
				return nil
			}),
			help("MEMORY"),
			memorySpec("MALLOC-STATS", "Shows figures of the allocator.", "The allocator is Go's.", func(w *resp.Writer) error {
				w.Verbatim(mallocStats())
				return nil
			}),
			memoryPurge(), memoryStats(), memoryUsage(),
		},
	}
}

func memorySpec(name, summary, differs string, do func(w *resp.Writer) error) Spec {
	return Spec{
		Name: name, Group: "server", Since: "4.0.0", Complexity: "O(1)", Returns: "text", Summary: summary, Differs: differs,
		Tips:     []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		Examples: []Example{{"MEMORY " + name, "..."}},
		Local:    func(_ *Session, _ *input, w *resp.Writer) error { return do(w) },
	}
}

// goMemory holds the memory statistics of the Go runtime.
type goMemory struct{ held, objects, free, stacks, other uint64 }

func readGoMemory() goMemory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(samples)
	at := func(i int) uint64 { return samples[i].Value.Uint64() }
	m := goMemory{held: at(0) - at(1), objects: at(2), free: at(3) + at(4), stacks: at(5)}
	m.other = m.held - min(m.objects+m.free+m.stacks, m.held)
	return m
}

func memoryReport() string {
	m := readGoMemory()
	resident, peak := residentBytes()
	text := "The Go runtime holds " + humanBytes(m.held) + ": " + humanBytes(m.objects) + " of objects, " + humanBytes(m.free) +
		" free for new ones, " + humanBytes(m.stacks) + " of stacks."
	if resident > 0 {
		text += " The process occupies " + humanBytes(resident) + ", at most it was " + humanBytes(peak) + "; what the Go runtime does not hold is the store's."
	}
	return text + " scheduler.body_bytes and scheduler.window bound what messages take, storage.block_cache_bytes what the store keeps of the disk.\n"
}

func mallocStats() string {
	m := readGoMemory()
	return "allocator: " + runtime.Version() + "\nheld: " + humanBytes(m.held) + "\nobjects: " + humanBytes(m.objects) +
		"\nfree: " + humanBytes(m.free) + "\nstacks: " + humanBytes(m.stacks) + "\nother: " + humanBytes(m.other) + "\n"
}

func memoryPurge() Spec {
	s := memorySpec("PURGE", "Gives memory that is not used back to the system.", "", func(w *resp.Writer) error {
		debug.FreeOSMemory()
		w.OK()
		return nil
	})
	s.Returns, s.Tips = "status", []string{"request_policy:all_shards", "response_policy:all_succeeded"}
	s.ACL = []string{"admin", "dangerous"}
	s.Differs = "Collects garbage before, which takes processor time from all clients; hence among the admin commands."
	s.Examples = []Example{{"MEMORY PURGE", "OK"}}
	return s
}

func memoryStats() Spec {
	return Spec{
		Name: "STATS", Group: "server", Since: "4.0.0", Complexity: "O(1)", Returns: "map",
		Summary: "Returns how the memory is used.",
		Differs: "Has those of Redis' fields that apply to Fila, with the same meaning.",
		Reply:   "A map: " + (&memoryStatsCall{}).fields().names() + ".",
		Tips:    []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		Examples: []Example{
			{"MEMORY STATS", "..."},
		},
		Parse: func(*Session, *input) (call, error) { return &memoryStatsCall{}, nil },
	}
}

type memoryStatsCall struct{ stats engine.Stats }

// Apply implements engine.Call.
func (c *memoryStatsCall) Apply(tx *engine.Tx) error {
	c.stats = tx.Stats()
	return nil
}

// Render writes a map.
func (c *memoryStatsCall) Render(_ *Handler, w *resp.Writer) error {
	c.fields().write(w)
	return nil
}

func (c *memoryStatsCall) fields() *fields {
	m := readGoMemory()
	resident, peak := residentBytes()
	var f fields
	f.count("peak.allocated", max(peak, m.held))
	f.count("total.allocated", m.held)
	f.number("startup.allocated", 0)
	f.number("replication.backlog", 0)
	f.count("overhead.total", m.held-min(m.objects, m.held))
	f.number("keys.count", c.stats.Queues)
	f.number("keys.bytes-per-key", int64(m.objects)/max(c.stats.Queues, 1))
	f.count("dataset.bytes", m.objects)
	f.double("dataset.percentage", 100*float64(m.objects)/float64(max(m.held, 1)))
	f.double("peak.percentage", 100*float64(m.held)/float64(max(peak, m.held, 1)))
	f.count("allocator.allocated", m.objects)
	f.count("allocator.active", m.held)
	f.count("allocator.resident", resident)
	f.double("fragmentation", float64(resident)/float64(max(m.held, 1)))
	f.number("fragmentation.bytes", int64(resident)-int64(m.held))
	f.number("messages", c.stats.InMemory)
	f.number("message.bytes", c.stats.BodyBytes)
	return &f
}

func memoryUsage() Spec {
	return Spec{
		Name: "USAGE", Group: "server", Since: "4.0.0", Complexity: "O(N) where N is the number of fairness keys, plus the messages in memory of SAMPLES of them, in slices",
		Returns: "integer or nil",
		Summary: "Estimates the memory of a queue; nil if there is none of that name.",
		Differs: "What is only on disk is not counted. SAMPLES (5) is the number of fairness keys whose payloads are measured, 0 for all.",
		Flags:   []string{"readonly"}, Access: Look,
		Args: []Arg{
			{Name: "key", Type: Key},
			{Name: "count", Type: Integer, Token: "SAMPLES", Optional: true, Min: 0, Max: 1 << 30},
		},
		Examples: []Example{{"MEMORY USAGE orders", "(nil)"}, {"FILA.QUEUE CREATE orders", "OK"}, {"MEMORY USAGE orders", "..."}},
		Refuse:   refuseBelow,
		Parse: func(_ *Session, in *input) (call, error) {
			const samples = 5
			return &memoryUsageCall{req: engine.QueueMemory{Queue: in.Text("key"), Samples: int(in.Integer("samples", samples))}}, nil
		},
	}
}

type memoryUsageCall struct {
	req   engine.QueueMemory
	found bool
	bytes int64
}

// Apply implements engine.Call.
func (c *memoryUsageCall) Apply(tx *engine.Tx) (err error) {
	c.bytes, err = tx.QueueMemory(&c.req)
	c.found = err == nil
	if errors.Is(err, engine.ErrNoQueue) {
		return nil
	}
	return err
}

// Render writes the bytes, or nil if there is no such queue.
func (c *memoryUsageCall) Render(_ *Handler, w *resp.Writer) error {
	if !c.found {
		w.Null()
		return nil
	}
	w.Int(c.bytes)
	return nil
}

// infoMemory reports the memory of the Go runtime as used, and its limit. RocksDB's memory is outside the
// runtime and appears only in the resident set.
func infoMemory(s *engine.Stats) fields {
	m := readGoMemory()
	resident, peak := residentBytes()
	var f fields
	f.bytes("used_memory", m.held)
	f.bytes("used_memory_rss", resident)
	f.bytes("used_memory_peak", max(peak, m.held))
	f.text("used_memory_peak_perc", percent(m.held, max(peak, m.held)))
	f.count("used_memory_overhead", m.held-min(m.objects, m.held))
	f.number("used_memory_startup", 0)
	f.count("used_memory_dataset", m.objects)
	f.text("used_memory_dataset_perc", percent(m.objects, m.held))
	if total := systemBytes(); total > 0 {
		f.bytes("total_system_memory", total)
	}
	f.number("used_memory_lua", 0)
	f.bytes("maxmemory", uint64(s.Memory.Limit))
	f.text("maxmemory_policy", "noeviction")
	f.text("mem_fragmentation_ratio", strconv.FormatFloat(float64(resident)/float64(max(m.held, 1)), 'f', 2, 64))
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
			now = pages * uint64(os.Getpagesize())
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
