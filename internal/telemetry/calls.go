package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/histogram"
)

// Spread over a few shards, by connection, the counters of busy commands do not
// wander between processors.
const shardCount = 8

// Calls counts the calls of commands, and the errors that were answered. A
// command is known by its number in the table.
//
// What a command takes is the time from its bytes having been read until its
// reply may leave: its turn, its commit, and standing in line for both. Waiting
// for messages is not in it, nor is what the client takes to read the reply.
type Calls struct {
	shards [shardCount][]atomic.Pointer[counters] // by command; nil: never called

	mu     sync.Mutex
	errors map[string]uint64 // by code; there are as many as the code names
}

// counters are those of one command in one shard.
type counters struct {
	took     histogram.Shared
	failed   atomic.Uint64 // answered an error
	rejected atomic.Uint64 // refused before they began; not among the calls
}

// NewCalls returns counters for so many commands.
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

// Called counts a command that was executed; code is that of its error, or empty.
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

// Refused counts an error that was answered, where no command is known to which it belongs.
func (m *Calls) Refused(code string) {
	m.mu.Lock()
	m.errors[code]++
	m.mu.Unlock()
}

// Reset sets all counters to 0. A call that is counted at this moment may be lost.
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

// Totals are one command's counters of all shards.
type Totals struct {
	Calls, Failed, Rejected uint64
	Took                    histogram.Histogram // of the calls, also of those that failed
}

// Totals adds up what was counted of a command.
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

// Errors returns the codes that were answered, sorted, and how often.
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

// Step is how many calls took less than so many microseconds.
type Step struct{ Below, Calls uint64 }

// StepsMax is how many steps a histogram has at most.
const StepsMax = 44

// Steps returns a step for each power of two microseconds, from the first that counts any call
// to the one that counts all. The buckets are powers of two of a second, and so the greatest
// bound below a power of two microseconds counts for that: it is 5 % less.
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
