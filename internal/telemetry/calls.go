package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/histogram"
)

// shardCount is the number of shards, selected by connection, among which the counters are spread
// so that processors do not contend for their cache lines.
const shardCount = 8

// Calls counts the calls of commands and the error replies. A command is identified by its index in
// the table.
//
// The duration of a call is the time from when its bytes were read until its reply may be sent: its
// turn, its commit, and queueing for both. It excludes waiting for messages, and the time that the
// client takes to read the reply.
type Calls struct {
	shards [shardCount][]atomic.Pointer[counters] // by command; nil if never called

	mu     sync.Mutex
	errors map[string]uint64 // by code; the number of codes is bounded
}

// counters are those of one command in one shard.
type counters struct {
	took     histogram.Shared
	failed   atomic.Uint64 // calls with an error reply
	rejected atomic.Uint64 // refused before execution; not among the calls
}

// NewCalls returns counters for the given number of commands.
func NewCalls(commands int) *Calls {
	m := &Calls{errors: make(map[string]uint64)}
	for i := range m.shards {
		m.shards[i] = make([]atomic.Pointer[counters], commands)
	}
	return m
}

// of returns the counters of a command for a connection.
func (m *Calls) of(conn uint64, command int) *counters {
	p := &m.shards[conn%shardCount][command]
	if f := p.Load(); f != nil {
		return f
	}
	p.CompareAndSwap(nil, new(counters))
	return p.Load()
}

// Called counts an executed command; code is its error code, or empty.
func (m *Calls) Called(conn uint64, command int, took time.Duration, code string) {
	f := m.of(conn, command)
	f.took.Observe(took)
	if code != "" {
		f.failed.Add(1)
		m.Refused(code)
	}
}

// Rejected counts a command that was not executed.
func (m *Calls) Rejected(conn uint64, command int, code string) {
	m.of(conn, command).rejected.Add(1)
	m.Refused(code)
}

// Refused counts an error reply that belongs to no known command.
func (m *Calls) Refused(code string) {
	m.mu.Lock()
	m.errors[code]++
	m.mu.Unlock()
}

// Reset sets all counters to 0. Calls counted concurrently may be lost.
func (m *Calls) Reset() {
	for i := range m.shards {
		for j := range m.shards[i] {
			m.shards[i][j].Store(nil)
		}
	}
	m.mu.Lock()
	clear(m.errors)
	m.mu.Unlock()
}

// Totals are the sums of one command's counters over all shards.
type Totals struct {
	Calls, Failed, Rejected uint64
	Took                    histogram.Histogram // of all calls, including failed ones
}

// Totals returns the sums for a command.
func (m *Calls) Totals(command int) (t Totals) {
	for i := range m.shards {
		f := m.shards[i][command].Load()
		if f == nil {
			continue
		}
		f.took.AddTo(&t.Took)
		t.Failed += f.failed.Load()
		t.Rejected += f.rejected.Load()
	}
	t.Calls = t.Took.Count()
	return t
}

// Errors returns the error codes that occurred, sorted, and their counts.
func (m *Calls) Errors() (codes []string, counts map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts = make(map[string]uint64, len(m.errors))
	for code, n := range m.errors {
		codes = append(codes, code)
		counts[code] = n
	}
	slices.SortFunc(codes, strings.Compare)
	return codes, counts
}

// Step is the number of calls that took less than Below microseconds.
type Step struct{ Below, Calls uint64 }

// StepsMax is the maximum number of steps of a histogram.
const StepsMax = 44

// Steps returns a step for each power of two microseconds, from the first that counts any call to
// the first that counts all. The bounds of the buckets are powers of two of a second, so the
// largest bound below a power of two microseconds stands for it; it is 5 % smaller.
func (t *Totals) Steps() []Step {
	const micros = 20 // 2^-20 s is the bound for 1 µs
	var steps []Step
	below := uint64(0)
	for exponent, seen := range t.Took.Powers() {
		below = 1 << (exponent + micros)
		if seen > 0 {
			steps = append(steps, Step{below, seen})
		}
		if seen == t.Calls {
			return steps
		}
	}
	return append(steps, Step{2 * below, t.Calls})
}
