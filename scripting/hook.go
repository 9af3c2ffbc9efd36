package scripting

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
)

// Sandbox compiles hooks and has the machines that run them. All hooks share the
// machines: there are as many as calls run at the same time, however many queues
// have scripts.
type Sandbox struct {
	cfg   Config
	lib   *library
	memo  *memo
	lanes lanes
	idle  chan *machine
}

var _ engine.Scripts = (*Sandbox)(nil)

// machinesIdle is how many machines are kept for the next call, some 40 KiB each.
const machinesIdle = 32

// New checks the configuration and makes a sandbox, for as many processors as Go uses now.
func New(cfg Config) (*Sandbox, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	lanes, err := newLanes()
	if err != nil {
		return nil, err
	}
	return &Sandbox{cfg: cfg, lib: newLibrary(), memo: newMemo(cfg.Memo), lanes: lanes, idle: make(chan *machine, machinesIdle)}, nil
}

// take hands out a machine, give takes it back. One that has seen an error is
// left to the garbage collector with all that the script has put into it.
func (s *Sandbox) take() *machine {
	select {
	case m := <-s.idle:
		return m
	default:
		m := newMachine(&s.cfg, s.lib)
		m.lanes = s.lanes
		return m
	}
}

func (s *Sandbox) give(m *machine) {
	if m.failed {
		return
	}
	select {
	case s.idle <- m:
	default:
	}
}

// Load compiles a source and runs its top level once, so that what is wrong with
// it is said now and not with the first message.
func (s *Sandbox) Load(kind engine.HookKind, source string) (engine.Hook, error) {
	return s.load(kind, source, newPacer(s.lanes))
}

// Restore is Load without making way for anybody: at a start nobody is served yet, and
// everybody waits for it to end.
func (s *Sandbox) Restore(kind engine.HookKind, source string) (engine.Hook, error) {
	return s.load(kind, source, nil)
}

func (s *Sandbox) load(kind engine.HookKind, source string, pace *pacer) (engine.Hook, error) {
	sc, err := compile(s.lib, kind, source, s.cfg.Source, pace)
	pace.leave()
	if err != nil {
		return nil, err
	}
	m := s.take()
	_, err = m.run(sc, s.cfg.instructions(), nil, nil)
	s.give(m)
	if err != nil {
		return nil, err
	}
	return &Hook{
		sandbox: s, script: sc,
		breaker: breaker{failures: s.cfg.Failures, cooldown: s.cfg.Cooldown}, luck: luckMost,
	}, nil
}

// Hook is a loaded script and the record of how it has fared. It is safe for
// concurrent use.
type Hook struct {
	sandbox *Sandbox
	script  *script
	root    atomic.Pointer[node] // of what it has decided before; nil: nothing yet

	mu      sync.Mutex // held for counting only, never while the script runs
	breaker breaker
	stats   engine.HookStats // without what the breaker knows
	luck    luck
}

var _ engine.Hook = (*Hook)(nil)

// ErrBreakerOpen says that the script was not run.
var ErrBreakerOpen = errors.New("the script has failed too often in a row and is paused")

var errKind = errors.New("the script is for another hook")

// Kind is the decision the script makes.
func (h *Hook) Kind() engine.HookKind { return h.script.kind }

// Source is what was loaded.
func (h *Hook) Source() string { return h.script.source }

// Version is the SHA-1 of the source in hexadecimal.
func (h *Hook) Version() string { return h.script.version }

// OnEnqueue runs an on_enqueue script, unless its decision is known from a message
// with which it would do the same.
func (h *Hook) OnEnqueue(now time.Time, msg *engine.HookMessage, get engine.Settings) (engine.EnqueueDecision, error) {
	if root := h.root.Load(); root != nil && msg.ID == "" {
		if d, ok := h.sandbox.memo.recall(root, msg, get); ok && h.recalled() {
			return d, nil
		}
	}
	trial := h.guarded(now, engine.HookEnqueue, msg, get)
	return trial.Enqueue, trial.Err
}

// OnFailure runs an on_failure script.
func (h *Hook) OnFailure(now time.Time, msg *engine.HookMessage, get engine.Settings) (engine.FailureDecision, error) {
	trial := h.guarded(now, engine.HookFailure, msg, get)
	return trial.Failure, trial.Err
}

// guarded runs the script if the breaker lets it, and counts how it went.
func (h *Hook) guarded(now time.Time, kind engine.HookKind, msg *engine.HookMessage, get engine.Settings) engine.HookTrial {
	if kind != h.script.kind {
		return engine.HookTrial{Enqueue: engine.SafeEnqueue(), Err: errKind}
	}
	h.mu.Lock()
	trial, ok := h.breaker.enter(now)
	if !ok {
		h.stats.Skipped++
	}
	// What only a failure has is not among the questions.
	remember := h.sandbox.memo != nil && kind == engine.HookEnqueue && msg.ID == "" && h.luck.miss()
	h.mu.Unlock()
	if !ok {
		return engine.HookTrial{Enqueue: engine.SafeEnqueue(), Err: ErrBreakerOpen}
	}
	t := h.try(msg, get, remember)
	h.mu.Lock()
	before := h.breaker.openedAt.IsZero()
	h.breaker.leave(now.Add(t.Duration), trial, t.Err != nil)
	closed := h.breaker.openedAt.IsZero()
	h.count(now, &t)
	h.mu.Unlock()
	if turned := h.sandbox.cfg.Turned; turned != nil && closed != before {
		state := engine.BreakerOpen
		if closed {
			state = engine.BreakerClosed
		}
		turned(h, state)
	}
	return t
}

// recalled counts a decision that needed no run as a call that went well, which it
// would have been, and took less than a microsecond. It reports false if the breaker
// is not closed: then such a call would not be made, or has to show that it goes well.
func (h *Hook) recalled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.breaker.openedAt.IsZero() {
		return false
	}
	h.breaker.row = 0
	h.stats.Calls++
	h.stats.Recalled++
	h.stats.Latency[0]++
	h.luck.hit()
	return true
}

// count is called with the lock held.
func (h *Hook) count(now time.Time, t *engine.HookTrial) {
	s := &h.stats
	s.Calls++
	s.LatencyTotal += t.Duration
	s.LatencyMax = max(s.LatencyMax, t.Duration)
	s.Latency[bucket(t.Duration)]++
	if t.Err == nil {
		return
	}
	s.Errors++
	s.LastError, s.LastAt, s.LastLine = t.Err.Error(), now, 0
	if e, ok := errors.AsType[*Error](t.Err); ok {
		s.LastLine = e.Line
		if e.Limit {
			s.Limits++
		}
	}
}

// NotKept counts a decision that could not be kept as an error of the script, but not of
// its run: that went well, and the breaker takes no notice.
func (h *Hook) NotKept(now time.Time, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Errors++
	h.stats.LastError, h.stats.LastAt, h.stats.LastLine = located(h.script.kind.String(), 0, why).Text, now, 0
}

// bucket is the index of a duration in HookStats.Latency.
func bucket(d time.Duration) int {
	if d < 0 {
		return 0
	}
	return min(bits.Len64(uint64(d/time.Microsecond)), engine.LatencyBuckets-1)
}

// Stats is how the hook has fared. now decides whether an open breaker would let
// a call try.
func (h *Hook) Stats(now time.Time) engine.HookStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.State, s.Row, s.Opened = h.breaker.state(now), h.breaker.row, h.breaker.opened
	if s.State != engine.BreakerClosed {
		s.TrialAt = h.breaker.openedAt.Add(h.breaker.cooldown)
	}
	return s
}

// Try runs the script once, whatever the breaker says, and counts nothing.
func (h *Hook) Try(msg *engine.HookMessage, get engine.Settings) engine.HookTrial {
	return h.try(msg, get, false)
}

// try runs the script, and remembers what it has decided if that is wanted.
func (h *Hook) try(msg *engine.HookMessage, get engine.Settings, remember bool) engine.HookTrial {
	t := engine.HookTrial{Enqueue: engine.SafeEnqueue()}
	m := h.sandbox.take()
	instructions := h.sandbox.cfg.instructions()
	m.trace.start(remember)
	result, err := m.run(h.script, instructions, msg, get)
	if err == nil {
		if h.script.kind == engine.HookFailure {
			t.Failure, err = failureDecision(result)
		} else {
			t.Enqueue, err = enqueueDecision(result, &h.sandbox.cfg.Limits)
		}
		if err != nil {
			err = located(h.script.kind.String(), 0, err.Error())
		}
	}
	t.Err = err
	t.Duration, t.Instructions, t.Memory = time.Since(m.start), m.used(instructions), m.memory
	if err == nil && !m.trace.off {
		h.sandbox.memo.remember(&h.root, m.trace.asked[:m.trace.n], msg, get, &t.Enqueue)
	}
	h.sandbox.give(m)
	return t
}
