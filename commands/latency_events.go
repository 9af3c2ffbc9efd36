package commands

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
)

// Latency remembers what took long: the engine's turns and commits, and
// commands. It is made before the engine, which reports to it.
type Latency struct {
	now   func() time.Time
	after atomic.Int64 // milliseconds; 0: nothing is kept

	mu     sync.Mutex
	events map[string]*latencyEvent
}

// latencyEvent is the history of one kind of event: the longest of each second
// in which there was one, the newest last.
type latencyEvent struct {
	samples []latencySample
	longest time.Duration // of all time
}

type latencySample struct {
	at   int64 // Unix seconds
	took time.Duration
}

// latencySamples is how many samples of one event are kept, as in Redis.
const latencySamples = 160

// The events there are.
const (
	latencyTurn    = "turn"
	latencyCommit  = "commit"
	latencyCommand = "command"
)

// NewLatency keeps what takes as long as after, 0 for nothing. now is the clock.
func NewLatency(now func() time.Time, after time.Duration) *Latency {
	l := &Latency{now: now, events: make(map[string]*latencyEvent)}
	l.after.Store(after.Milliseconds())
	return l
}

// Observe is engine.Config.Observe.
func (l *Latency) Observe(what engine.Activity, took time.Duration) {
	name := latencyTurn
	if what == engine.ActivityCommit {
		name = latencyCommit
	}
	l.observe(name, took)
}

// observe is called all the time: it costs a comparison unless there is
// something to keep.
func (l *Latency) observe(name string, took time.Duration) {
	if after := l.after.Load(); after <= 0 || took < time.Duration(after)*time.Millisecond {
		return
	}
	second := l.now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		e = new(latencyEvent)
		l.events[name] = e
	}
	e.longest = max(e.longest, took)
	if n := len(e.samples); n > 0 && e.samples[n-1].at == second {
		e.samples[n-1].took = max(e.samples[n-1].took, took)
		return
	}
	if len(e.samples) == latencySamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, latencySample{second, took})
}

// history returns the samples of an event, the oldest first, and its longest.
func (l *Latency) history(name string) ([]latencySample, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		return nil, 0
	}
	return slices.Clone(e.samples), e.longest
}

// names returns the events that have happened, in their order.
func (l *Latency) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.events))
	for name := range l.events {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}

// reset forgets the events of those names, or all, and returns how many there
// were.
func (l *Latency) reset(names [][]byte) (n int64) {
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
