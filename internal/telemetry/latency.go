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

// Latency counts how long the engine's turns and commits take, and keeps which of them, and
// which commands, took long. It is made before the engine, which reports to it.
type Latency struct {
	// Threshold is in milliseconds: what takes as long is kept; 0: nothing is.
	Threshold atomic.Int64

	now            func() time.Time
	turns, commits histogram.Shared // all of them, since the start

	mu     sync.Mutex
	events map[string]*event
}

// event is the history of one kind of event: the longest of each second
// in which there was one, the newest last.
type event struct {
	samples []Sample
	longest time.Duration // of all time
}

// Sample is the longest of an event in one second.
type Sample struct {
	At   int64 // Unix seconds
	Took time.Duration
}

// SamplesMax is how many samples of one event are kept, as in Redis.
const SamplesMax = 160

// The events there are.
const (
	EventTurn    = "turn"
	EventCommit  = "commit"
	EventCommand = "command"
)

// NewLatency keeps what takes as long as after, 0 for nothing. now is the clock.
func NewLatency(now func() time.Time, after time.Duration) *Latency {
	l := &Latency{now: now, events: make(map[string]*event)}
	l.Threshold.Store(after.Milliseconds())
	return l
}

// Observe takes note of how long a turn or a commit took: it is engine.Config.Observe.
func (l *Latency) Observe(what engine.Activity, took time.Duration) {
	name, all := EventTurn, &l.turns
	if what == engine.ActivityCommit {
		name, all = EventCommit, &l.commits
	}
	all.Observe(took)
	l.observe(name, took)
}

// Durations returns how long all turns and all commits took since the start of the broker.
func (l *Latency) Durations() (turns, commits histogram.Histogram) {
	l.turns.AddTo(&turns)
	l.commits.AddTo(&commits)
	return turns, commits
}

// Command takes note of how long a command took.
func (l *Latency) Command(took time.Duration) { l.observe(EventCommand, took) }

// observe is on the path of every command: it costs a comparison unless the event
// is to be kept.
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

// History returns the samples of an event, the oldest first, and its longest.
func (l *Latency) History(name string) ([]Sample, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		return nil, 0
	}
	return slices.Clone(e.samples), e.longest
}

// Names returns the events that have happened, in their order.
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

// Reset forgets the events of those names, or all, and returns how many there
// were.
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
