package commands

import (
	"errors"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

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
		Name: "STATS", Group: "server", Since: "4.0.0", Complexity: "O(N) where N is the number of queues", Returns: "map",
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
	f.number("keys.bytes-per-key", int64(m.objects)/max(c.stats.Queues, 1)) //nolint:gosec // a size of memory
	f.count("dataset.bytes", m.objects)
	f.double("dataset.percentage", 100*float64(m.objects)/float64(max(m.held, 1)))
	f.double("peak.percentage", 100*float64(m.held)/float64(max(peak, m.held, 1)))
	f.count("allocator.allocated", m.objects)
	f.count("allocator.active", m.held)
	f.count("allocator.resident", resident)
	f.double("fragmentation", float64(resident)/float64(max(m.held, 1)))
	f.number("fragmentation.bytes", int64(resident)-int64(m.held)) //nolint:gosec // sizes of memory
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
