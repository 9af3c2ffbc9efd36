package acl

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Reasons of an entry in the log, in Redis' words.
const (
	DeniedAuth    = "auth"
	DeniedCommand = "command"
	DeniedQueue   = "key"
	DeniedChannel = "channel"
)

const (
	logMax  = 128              // entries
	logSame = 60 * time.Second // denials of one kind within this are one entry
)

// Entry is a denial with the number of its repetitions.
type Entry struct {
	Reason  string // one of the Denied constants
	Context string // toplevel or multi
	Object  string // the command, queue or channel
	User    string
	Client  string // as CLIENT LIST describes it, of the newest time
	Count   int
	At      time.Time // the newest time
}

// Log holds a bounded number of the newest denials. The zero value is ready; it is safe
// for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []Entry // the newest first
	counts  map[string]uint64
}

// Add records a denial.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]uint64{}
	}
	l.counts[e.Reason]++
	e.Count = 1
	i := slices.IndexFunc(l.entries, func(o Entry) bool {
		return o.Reason == e.Reason && o.Context == e.Context && o.Object == e.Object && o.User == e.User && e.At.Sub(o.At) <= logSame
	})
	if i >= 0 {
		e.Count += l.entries[i].Count
		l.entries = slices.Delete(l.entries, i, i+1)
	}
	l.entries = slices.Insert(l.entries, 0, e)
	l.entries = l.entries[:min(len(l.entries), logMax)]
}

// Newest returns at most n entries, the newest first.
func (l *Log) Newest(n int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[:min(len(l.entries), n)])
}

// Counts returns how many denials there were by reason, also those that the log has dropped.
func (l *Log) Counts() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]uint64{}
	maps.Copy(counts, l.counts)
	return counts
}

// Reset removes all entries.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}
