package telemetry

import (
	"sync"
	"sync/atomic"
	"time"
)

// SlowLog keeps the newest slow commands, at most Max. The caller truncates the entries that it
// adds, which bounds their memory.
type SlowLog struct {
	Threshold atomic.Int64 // minimum duration in microseconds; negative: none are kept
	Max       atomic.Int64 // maximum number of entries

	mu      sync.Mutex
	entries []SlowCommand // the newest last
	next    int64         // number of the next entry; numbers are not reused
}

// SlowCommand is an entry of the slow log.
type SlowCommand struct {
	ID         int64 // set by Add
	At         time.Time
	Took       time.Duration
	Args       []string // including the name
	Addr, Name string   // of the client
}

// IsSlow reports whether a command of that duration is to be kept.
func (l *SlowLog) IsSlow(took time.Duration) bool {
	threshold := l.Threshold.Load()
	return threshold >= 0 && took.Microseconds() >= threshold
}

// Add adds a command and numbers it.
func (l *SlowLog) Add(e *SlowCommand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	l.next++
	l.entries = append(l.entries, *e)
	l.trim()
}

// trim drops the oldest entries. It moves entries only when as many have been dropped as are kept,
// so Add takes amortized constant time.
func (l *SlowLog) trim() {
	if over := len(l.entries) - int(l.Max.Load()); over > 0 {
		clear(l.entries[:over])
		l.entries = l.entries[over:]
	}
}

// Newest returns the n newest entries, newest first; all of them if n is negative.
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

// Len returns the number of entries.
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
