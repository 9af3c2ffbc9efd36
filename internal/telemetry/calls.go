package telemetry

import (
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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
	took     [bucketCount]atomic.Uint64
	nanos    atomic.Uint64 // all calls together
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
	f.took[bucketOf(took)].Add(1)
	f.nanos.Add(uint64(took)) //nolint:gosec // not negative
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
	Spent                   time.Duration // by all calls together

	took [bucketCount]uint64
}

// Totals adds up what was counted of a command.
func (m *Calls) Totals(command int) (t Totals) {
	for i := range m.shards {
		f := m.shards[i][command].Load()
		if f == nil {
			continue
		}
		for b := range f.took {
			n := f.took[b].Load()
			t.took[b] += n
			t.Calls += n
		}
		t.Spent += time.Duration(f.nanos.Load()) //nolint:gosec // a sum of durations
		t.Failed += f.failed.Load()
		t.Rejected += f.rejected.Load()
	}
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

// The buckets of the histogram divide each power of two microseconds into four:
// a figure read from them is at most a quarter too high. The last takes all that
// is longer than half an hour.
const bucketCount = 120

func bucketOf(d time.Duration) int {
	v := uint64(max(d.Microseconds(), 0))
	if v < 4 {
		return int(v)
	}
	e := bits.Len64(v) - 3
	return min(4*(e+1)+int(v>>e&3), bucketCount-1)
}

// bucketEnd returns the first whole microsecond beyond the bucket.
func bucketEnd(i int) uint64 {
	if i < 4 {
		return uint64(i) + 1 //nolint:gosec // small
	}
	return uint64(4+i%4+1) << (i/4 - 1)
}

// Percentile returns the microseconds that a share of the calls, 0 to 1, stayed
// below.
func (t *Totals) Percentile(share float64) uint64 {
	rank, seen := share*float64(t.Calls), uint64(0)
	for i, n := range &t.took {
		if seen += n; n > 0 && float64(seen) >= rank {
			return bucketEnd(i)
		}
	}
	return 0
}

// Step is how many calls took less than so many microseconds.
type Step struct{ Below, Calls uint64 }

// StepsMax is how many steps a histogram has at most.
const StepsMax = bucketCount / 4

// Histogram returns a step for each power of two microseconds, from the first that counts
// any call to the one that counts all.
func (t *Totals) Histogram() []Step {
	var steps []Step
	seen, below := uint64(0), uint64(1)
	for i, n := range &t.took {
		seen += n
		if bucketEnd(i) != below {
			continue
		}
		if seen > 0 {
			steps = append(steps, Step{below, seen})
		}
		if seen == t.Calls {
			break
		}
		below *= 2
	}
	return steps
}
