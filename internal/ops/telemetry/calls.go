package telemetry

import (
	"maps"
	"slices"
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
	errors map[string]uint64 // by code; there are as many as the code names
	reset  *reset            // nil: Reset was not called
}

// reset is what had been counted at the last Reset. It is never changed.
type reset struct {
	totals []*Totals // by command; nil: it had not been called
	errors map[string]uint64
}

// counters are those of one command in one shard.
type counters struct {
	took     histogram.Shared
	failed   atomic.Uint64 // answered an error
	rejected atomic.Uint64 // refused before they began; not among the calls
	slow     atomic.Uint64 // of the calls
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

// Slow counts a command that was executed as one that took long.
func (m *Calls) Slow(conn uint64, command int) { m.of(conn, command).slow.Add(1) }

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

// Reset makes Totals and Errors begin at 0. All and AllErrors go on.
func (m *Calls) Reset() {
	r := &reset{totals: make([]*Totals, len(m.shards[0]))}
	for command := range r.totals {
		if t := m.All(command); t.Calls+t.Rejected > 0 {
			r.totals[command] = &t
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.errors = maps.Clone(m.errors)
	m.reset = r
}

// sinceReset returns what had been counted at the last Reset, nil if there was none.
func (m *Calls) sinceReset() *reset {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reset
}

// Totals are the sums of one command's counters over all shards.
type Totals struct {
	Calls, Failed, Rejected, Slow uint64
	Took                          histogram.Histogram // of the calls, also of those that failed
}

// All adds up what was counted of a command since the start.
func (m *Calls) All(command int) (t Totals) {
	for i := range m.shards {
		f := m.shards[i][command].Load()
		if f == nil {
			continue
		}
		f.took.AddTo(&t.Took)
		t.Failed += f.failed.Load()
		t.Rejected += f.rejected.Load()
		t.Slow += f.slow.Load()
	}
	t.Calls = t.Took.Count()
	return t
}

// Totals adds up what was counted of a command since the last Reset.
func (m *Calls) Totals(command int) Totals {
	r := m.sinceReset()
	t := m.All(command)
	if r == nil || r.totals[command] == nil {
		return t
	}
	z := r.totals[command]
	t.Took.Sub(&z.Took)
	t.Calls, t.Failed, t.Rejected, t.Slow = t.Calls-z.Calls, t.Failed-z.Failed, t.Rejected-z.Rejected, t.Slow-z.Slow
	return t
}

// AllErrors returns the codes that were answered since the start, and how often.
func (m *Calls) AllErrors() map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.errors)
}

// Errors returns the codes that were answered since the last Reset, sorted, and how often.
func (m *Calls) Errors() (codes []string, counts map[string]uint64) {
	counts = m.AllErrors()
	if r := m.sinceReset(); r != nil {
		for code, n := range r.errors {
			if counts[code] -= n; counts[code] == 0 {
				delete(counts, code)
			}
		}
	}
	return slices.Sorted(maps.Keys(counts)), counts
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
