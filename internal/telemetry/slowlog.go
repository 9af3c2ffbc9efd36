package telemetry

import (
	"sync"
	"sync/atomic"
	"time"
)

// SlowLog keeps the newest commands that took long: at most Max of them. The caller
// clips what it adds, so the memory of an entry is bounded.
type SlowLog struct {
	Threshold atomic.Int64 // microseconds: a command that takes as long is kept; negative: none is
	Max       atomic.Int64 // entries

	mu      sync.Mutex
	entries []SlowCommand // the newest last
	next    int64         // number of the next one; numbers are not used twice
}

// SlowCommand is an entry of the slow log.
type SlowCommand struct {
	ID         int64 // given by Add
	At         time.Time
	Took       time.Duration
	Args       []string // with the name
	Addr, Name string   // of the client
}

// IsSlow reports whether a command that took so long is to be kept.
func (l *SlowLog) IsSlow(took time.Duration) bool {
	threshold := l.Threshold.Load()
	return threshold >= 0 && took.Microseconds() >= threshold
}

// Add keeps a command and numbers it.
func (l *SlowLog) Add(e *SlowCommand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	l.next++
	l.entries = append(l.entries, *e)
	l.trim()
}

// trim drops what is too old. It moves entries only when as many have been
// dropped as are kept, so that adding takes the same time however long the log.
func (l *SlowLog) trim() {
	if over := len(l.entries) - int(l.Max.Load()); over > 0 {
		clear(l.entries[:over])
		l.entries = l.entries[over:]
	}
}

// Newest returns the n newest entries, all where n is negative, the newest first.
func (l *SlowLog) Newest(n int64) []SlowCommand {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	out := make([]SlowCommand, 0, n)
	for i := range n {
		out = append(out, l.entries[int64(len(l.entries))-1-i])
	}
	return out
}

// Len returns how many entries there are.
func (l *SlowLog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	return len(l.entries)
}

// Reset empties the log.
func (l *SlowLog) Reset() {
	l.mu.Lock()
	l.entries = nil
	l.mu.Unlock()
}
