package telemetry

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/histogram"
)

// Latency counts the durations of the engine's turns and commits, and keeps the slow ones and the
// slow commands. It is created before the engine, which reports to it.
type Latency struct {
	// Threshold is the minimum duration of kept events in milliseconds; 0: none are kept.
	Threshold atomic.Int64

	now            func() time.Time
	turns, commits histogram.Shared // since the start

	confirms, applies histogram.Shared // the same, of a node of a cluster

	mu     sync.Mutex
	events map[string]*event
}

// event is the history of one kind of event: the longest of each second in which it occurred, the
// newest last.
type event struct {
	samples []Sample
	longest time.Duration // since the start
}

// Sample is the longest event of one kind in one second.
type Sample struct {
	At   int64 // Unix seconds
	Took time.Duration
}

// SamplesMax is the maximum number of samples of one event, as in Redis.
const SamplesMax = 160

// The events.
const (
	EventTurn    = "turn"
	EventCommit  = "commit"
	EventCommand = "command"
	EventConfirm = "confirm" // of a leader by the other nodes
	EventApply   = "apply"   // of a batch of the replicated log
)

// NewLatency returns a Latency that keeps events of at least after; 0: none. now is the clock.
func NewLatency(now func() time.Time, after time.Duration) *Latency {
	l := &Latency{now: now, events: make(map[string]*event)}
	l.Threshold.Store(after.Milliseconds())
	return l
}

// Observe records the duration of a turn or a commit: it is engine.Config.Observe.
func (l *Latency) Observe(what engine.Activity, took time.Duration) {
	name, all := EventTurn, &l.turns
	if what == engine.ActivityCommit {
		name, all = EventCommit, &l.commits
	}
	all.Observe(took)
	l.observe(name, took)
}

// Durations returns the durations of all turns and commits since the start of the broker.
func (l *Latency) Durations() (turns, commits histogram.Histogram) {
	l.turns.AddTo(&turns)
	l.commits.AddTo(&commits)
	return turns, commits
}

// Confirm records how long the confirmation of a leader took.
func (l *Latency) Confirm(took time.Duration) {
	l.confirms.Observe(took)
	l.observe(EventConfirm, took)
}

// Apply records how long writing a batch of the replicated log to the store took.
func (l *Latency) Apply(took time.Duration) {
	l.applies.Observe(took)
	l.observe(EventApply, took)
}

// Replication returns the durations of all confirmations and batches since the start of the node.
func (l *Latency) Replication() (confirms, applies histogram.Histogram) {
	l.confirms.AddTo(&confirms)
	l.applies.AddTo(&applies)
	return confirms, applies
}

// Command records the duration of a command.
func (l *Latency) Command(took time.Duration) { l.observe(EventCommand, took) }

// observe runs for every command: unless the event is kept, it costs one comparison.
func (l *Latency) observe(name string, took time.Duration) {
	if after := l.Threshold.Load(); after <= 0 || took < time.Duration(after)*time.Millisecond {
		return
	}
	second := l.now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		e = new(event)
		l.events[name] = e
	}
	e.longest = max(e.longest, took)
	if n := len(e.samples); n > 0 && e.samples[n-1].At == second {
		e.samples[n-1].Took = max(e.samples[n-1].Took, took)
		return
	}
	if len(e.samples) == SamplesMax {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, Sample{second, took})
}

// History returns the samples of an event, oldest first, and the longest duration.
func (l *Latency) History(name string) ([]Sample, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		return nil, 0
	}
	return slices.Clone(e.samples), e.longest
}

// Names returns the events that have occurred, sorted.
func (l *Latency) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.events))
	for name := range l.events {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}

// Reset removes the named events, or all, and returns how many it removed.
func (l *Latency) Reset(names [][]byte) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(names) == 0 {
		n = int64(len(l.events))
		clear(l.events)
		return n
	}
	for _, name := range names {
		if l.events[string(name)] != nil {
			delete(l.events, string(name))
			n++
		}
	}
	return n
}
