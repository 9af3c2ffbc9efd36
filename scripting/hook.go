package scripting

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// The path of a call (OnEnqueue; OnFailure is the same without the memo):
//
//	OnEnqueue ──recall, a hit──────────────────────────────▶ decision
//	    └─no hit──▶ breaker ──open──▶ safe defaults, ErrBreakerOpen
//	                   └─closed, or a trial──▶ machine.run ──error──▶ safe defaults, the error
//	                                              └──▶ result ──validated──▶ decision, remembered
//
// The breaker sees every run and no hit. A hit counts as a success, and only while the breaker is
// closed: a hook that is paused stays paused for messages whose decision is known.

// Sandbox compiles hooks and owns the machines that run them. Machines are shared by all
// hooks: their number follows the concurrent calls, not the queues with scripts. It is
// safe for concurrent use.
type Sandbox struct {
	cfg   Config
	lib   *library
	memo  *memo
	slots slots
	loads loadQueue
	idle  chan *machine
}

var _ hook.Loader = (*Sandbox)(nil)

// machinesIdle bounds the idle machines that are kept, of about 40 KiB each.
const machinesIdle = 32

// New validates the configuration and returns a sandbox for the current GOMAXPROCS.
func New(cfg Config) (*Sandbox, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	slots, err := newSlots()
	if err != nil {
		return nil, err
	}
	return &Sandbox{
		cfg: cfg, lib: newLibrary(), memo: newMemo(cfg.Memo), slots: slots, idle: make(chan *machine, machinesIdle),
	}, nil
}

// take returns an idle machine or a new one.
func (s *Sandbox) take() *machine {
	select {
	case m := <-s.idle:
		return m
	default:
		m := newMachine(s.lib)
		m.slots = s.slots
		return m
	}
}

// give returns a machine for reuse. One that has seen an error is left to the garbage
// collector together with everything that the script stored in it.
func (s *Sandbox) give(m *machine) {
	if m.failed {
		return
	}
	select {
	case s.idle <- m:
	default:
	}
}

// Load compiles a source and runs its top level once, so that errors are reported now and
// not with the first message. Loads queue up and are limited in their share of the CPU, see
// loadQueue.
func (s *Sandbox) Load(by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	if err := s.loads.enter(by); err != nil {
		return nil, err
	}
	var work effort
	sc, err := compile(s.lib, kind, source, s.cfg.Source, &work)
	s.loads.leave(by, work)
	if err == nil {
		err = s.start(sc, by.Queue)
	}
	if err != nil {
		return nil, err
	}
	return s.newHook(sc), nil
}

// Restore compiles a source without waiting for others: at startup no client is served until
// it returns.
func (s *Sandbox) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	sc, err := compile(s.lib, kind, source, s.cfg.Source, &effort{})
	if err != nil {
		return nil, err
	}
	return s.newHook(sc), nil
}

// start runs the top level of a script.
func (s *Sandbox) start(sc *script, within hook.Bounds) error {
	within = s.cfg.bounds(within)
	m := s.take()
	_, err := m.run(sc, &within, nil, nil)
	s.give(m)
	return err
}

// newHook returns a hook that runs a script.
func (s *Sandbox) newHook(sc *script) *Hook {
	return &Hook{sandbox: s, script: sc, breaker: breaker{cooldown: s.cfg.Cooldown}, hitScore: hitScoreMax}
}

// Hook is a loaded script with its breaker and statistics. It is safe for concurrent use.
type Hook struct {
	sandbox *Sandbox
	script  *script
	root    atomic.Pointer[node] // decision tree in the memo; nil: empty
	failing atomic.Bool          // the breaker is not closed

	mu       sync.Mutex // guards the fields below; never held while the script runs
	breaker  breaker
	stats    hook.Stats // except for the breaker's
	hitScore hitScore
}

var _ hook.Hook = (*Hook)(nil)

// ErrBreakerOpen is the error of a call that the open breaker has skipped.
var ErrBreakerOpen = errors.New("breaker open: the script has failed repeatedly and is paused")

var errKind = errors.New("the script implements another hook")

// Kind returns which decision the script makes.
func (h *Hook) Kind() hook.Kind { return h.script.kind }

// Source returns the source as loaded.
func (h *Hook) Source() string { return h.script.source }

// Version returns the SHA-1 of the source in hexadecimal.
func (h *Hook) Version() string { return h.script.version }

// OnEnqueue returns the decision for a message, from the memo if an earlier run has made
// the same queries with the same answers. On any error it returns safe defaults together
// with the error.
func (h *Hook) OnEnqueue(now time.Time, msg *hook.Message, view hook.View, within hook.Bounds) (hook.EnqueueDecision, error) {
	if root := h.root.Load(); root != nil && msg.ID == "" {
		if d, ok := h.sandbox.memo.recall(root, msg, view); ok && h.recalled() {
			return d, nil
		}
	}
	trial := h.runGuarded(now, hook.OnEnqueue, msg, view, within)
	return trial.Enqueue, trial.Err
}

// OnFailure returns the decision for a failed message. On an error the decision is to be
// ignored.
func (h *Hook) OnFailure(now time.Time, msg *hook.Message, view hook.View, within hook.Bounds) (hook.FailureDecision, error) {
	trial := h.runGuarded(now, hook.OnFailure, msg, view, within)
	return trial.Failure, trial.Err
}

// runGuarded runs the script if the breaker admits it, and updates breaker and
// statistics.
func (h *Hook) runGuarded(now time.Time, kind hook.Kind, msg *hook.Message, view hook.View, within hook.Bounds) hook.Trial {
	if kind != h.script.kind {
		return hook.Trial{Enqueue: hook.SafeEnqueue(), Err: errKind}
	}
	h.mu.Lock()
	trial, ok := h.breaker.enter(now)
	if !ok {
		h.stats.Skipped++
	}
	// Messages with an id carry failure fields, which are no memo queries.
	remember := h.sandbox.memo != nil && kind == hook.OnEnqueue && msg.ID == "" && h.hitScore.miss()
	h.mu.Unlock()
	if !ok {
		return hook.Trial{Enqueue: hook.SafeEnqueue(), Err: ErrBreakerOpen}
	}
	within = h.sandbox.cfg.bounds(within)
	t := h.run(msg, view, &within, remember)
	h.mu.Lock()
	before := h.breaker.openedAt.IsZero()
	h.breaker.leave(now.Add(t.Duration), trial, t.Err != nil, within.Errors)
	closed := h.breaker.openedAt.IsZero()
	h.failing.Store(!closed)
	h.count(now, &t)
	h.mu.Unlock()
	if changed := h.sandbox.cfg.BreakerChanged; changed != nil && closed != before {
		state := hook.BreakerOpen
		if closed {
			state = hook.BreakerClosed
		}
		changed(h, state)
	}
	return t
}

// recalled counts a memo hit as a successful call of under a microsecond. It returns
// false while the breaker is not closed: then the call must be skipped, or serve as a
// trial.
func (h *Hook) recalled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.breaker.openedAt.IsZero() {
		return false
	}
	h.breaker.row = 0
	h.stats.Calls++
	h.stats.Recalled++
	h.stats.Latency.Observe(0)
	h.hitScore.hit()
	return true
}

// count updates the statistics. The caller holds mu.
func (h *Hook) count(now time.Time, t *hook.Trial) {
	s := &h.stats
	s.Calls++
	s.LatencyMax = max(s.LatencyMax, t.Duration)
	s.Latency.Observe(t.Duration)
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

// Rejected counts a decision that the engine could not apply as an error of the script.
// The run itself succeeded, so the breaker is not affected.
func (h *Hook) Rejected(now time.Time, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Errors++
	h.stats.Rejected++
	h.stats.LastError, h.stats.LastAt, h.stats.LastLine = located(h.script.kind.String(), 0, why).Text, now, 0
}

// Stats returns the statistics. now determines whether an open breaker would admit a
// trial call.
func (h *Hook) Stats(now time.Time) hook.Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.State, s.Row, s.Opened = h.breaker.state(now), h.breaker.row, h.breaker.opened
	if s.State != hook.BreakerClosed {
		s.TrialAt = h.breaker.openedAt.Add(h.breaker.cooldown)
	}
	return s
}

// Failing reports whether the breaker is not closed.
func (h *Hook) Failing() bool { return h.failing.Load() }

// Try runs the script regardless of the breaker and without counting.
func (h *Hook) Try(msg *hook.Message, view hook.View, within hook.Bounds) hook.Trial {
	within = h.sandbox.cfg.bounds(within)
	return h.run(msg, view, &within, false)
}

// run executes the script once and, if remember is set, adds the decision to the memo.
func (h *Hook) run(msg *hook.Message, view hook.View, within *hook.Bounds, remember bool) hook.Trial {
	t := hook.Trial{Enqueue: hook.SafeEnqueue()}
	m := h.sandbox.take()
	m.trace.start(remember)
	result, err := m.run(h.script, within, msg, view)
	if err == nil {
		if h.script.kind == hook.OnFailure {
			t.Failure, err = failureDecision(result, &msg.Meta)
		} else {
			t.Enqueue, err = enqueueDecision(result, &h.sandbox.cfg.Limits)
		}
		if err != nil {
			err = located(h.script.kind.String(), 0, err.Error())
		}
	}
	t.Err = err
	t.Duration, t.Instructions, t.Memory = time.Since(m.start), m.used(), m.memory
	if err == nil && !m.trace.off {
		h.sandbox.memo.remember(&h.root, m.trace.asked[:m.trace.n], msg, view, &t.Enqueue)
	}
	h.sandbox.give(m)
	return t
}
