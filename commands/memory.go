package commands

import (
	"errors"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func memory() Spec {
	return container("MEMORY", "server", "4.0.0", "memory diagnostics commands", memoryUsage())
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
			req := engine.QueueMemory{Queue: in.Text("key"), Samples: int(in.Integer("samples", samples))}
			return &answered[*int64]{take: func(tx *engine.Tx) (*int64, error) {
				bytes, err := tx.QueueMemory(&req)
				if errors.Is(err, engine.ErrNoQueue) {
					return nil, nil
				}
				return &bytes, err
			}, write: writeIntOrNil}, nil
		},
	}
}

// writeIntOrNil writes a number, or nil if there is none.
func writeIntOrNil(w *resp.Writer, n *int64) {
	if n == nil {
		w.Null()
		return
	}
	w.Int(*n)
}

// infoMemory reports the memory of the Go runtime as used, and its limit. RocksDB's memory is outside the
// runtime and appears only in the resident set.
func infoMemory(s *engine.Stats) fields {
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
	f.bytes("maxmemory", uint64(s.Memory.Limit))
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
