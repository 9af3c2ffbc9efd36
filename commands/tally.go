package commands

import (
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// This file counts: how often each command was called, how long it took, and
// which errors were answered. A call costs two additions; who asks for the
// figures pays for adding them up.
//
// What a command takes is the time from its bytes having been read until its
// reply may leave: its turn, its commit, and standing in line for both. Waiting
// for messages is not in it, nor is what the client takes to read the reply.

// Spread over a few shards, by connection, the counters of busy commands do not
// wander between processors.
const shardCount = 8

type tally struct {
	shards [shardCount][]atomic.Pointer[figures] // by command.index; nil: never called

	mu     sync.Mutex
	errors map[string]uint64 // by code; there are as many as the code names
}

// figures are one command's in one shard.
type figures struct {
	took     [bucketCount]atomic.Uint64
	nanos    atomic.Uint64 // all calls together
	failed   atomic.Uint64 // answered an error
	rejected atomic.Uint64 // refused before they began; not among the calls
}

func newTally(commands int) *tally {
	m := &tally{errors: make(map[string]uint64)}
	for i := range m.shards {
		m.shards[i] = make([]atomic.Pointer[figures], commands)
	}
	return m
}

// of returns the figures of a command for a connection.
func (m *tally) of(conn uint64, c *command) *figures {
	p := &m.shards[conn%shardCount][c.index]
	if f := p.Load(); f != nil {
		return f
	}
	p.CompareAndSwap(nil, new(figures))
	return p.Load()
}

// called counts a command that was executed; code is that of its error, or empty.
func (m *tally) called(conn uint64, c *command, took time.Duration, code string) {
	f := m.of(conn, c)
	f.took[bucketOf(took)].Add(1)
	f.nanos.Add(uint64(took)) //nolint:gosec // not negative
	if code != "" {
		f.failed.Add(1)
		m.refused(code)
	}
}

// rejected counts a command that was not executed; c is nil if it is not known.
func (m *tally) rejected(conn uint64, c *command, code string) {
	if c != nil {
		m.of(conn, c).rejected.Add(1)
	}
	m.refused(code)
}

func (m *tally) refused(code string) {
	m.mu.Lock()
	m.errors[code]++
	m.mu.Unlock()
}

// reset forgets everything. What is being counted at this moment may be lost.
func (m *tally) reset() {
	for i := range m.shards {
		for j := range m.shards[i] {
			m.shards[i][j].Store(nil)
		}
	}
	m.mu.Lock()
	clear(m.errors)
	m.mu.Unlock()
}

// totals are one command's figures of all shards.
type totals struct {
	took                    [bucketCount]uint64
	calls, failed, rejected uint64
	spent                   time.Duration
}

func (m *tally) totals(c *command) (t totals) {
	for i := range m.shards {
		f := m.shards[i][c.index].Load()
		if f == nil {
			continue
		}
		for b := range f.took {
			n := f.took[b].Load()
			t.took[b] += n
			t.calls += n
		}
		t.spent += time.Duration(f.nanos.Load()) //nolint:gosec // a sum of durations
		t.failed += f.failed.Load()
		t.rejected += f.rejected.Load()
	}
	return t
}

// errorCounts returns the codes that were answered, in their order, and how often.
func (m *tally) errorCounts() (codes []string, counts map[string]uint64) {
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

// percentile returns the microseconds that a share of the calls, 0 to 1, stayed
// below.
func (t *totals) percentile(share float64) uint64 {
	rank, seen := share*float64(t.calls), uint64(0)
	for i, n := range &t.took {
		if seen += n; n > 0 && float64(seen) >= rank {
			return bucketEnd(i)
		}
	}
	return 0
}
