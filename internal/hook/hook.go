// Package hook is the contract between the engine and scripts: the values that go in and
// come out, and the interface behind which scripts run. No hook runs in a turn of the
// engine. on_enqueue runs on the goroutine of the connection, before the command reaches
// the inbox; on_failure runs as an off-loop job. So a slow script delays only the client
// that it works for.
package hook

import (
	"errors"
	"time"

	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// DefaultKey is the fairness key of messages that are enqueued without KEY.
const DefaultKey = "default"

// Kind is the decision that a script makes.
type Kind uint8

const (
	// OnEnqueue decides how a message is scheduled, before it is stored.
	OnEnqueue Kind = iota
	// OnFailure decides what becomes of a message that was nacked or whose lease has
	// expired.
	OnFailure
)

// String returns the name of the function that the script must define. It is also the name
// in the protocol.
func (k Kind) String() string {
	if k == OnFailure {
		return "on_failure"
	}
	return "on_enqueue"
}

// ParseKind returns the hook of a name, and whether there is one.
func ParseKind(name string) (Kind, bool) {
	for _, k := range []Kind{OnEnqueue, OnFailure} {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// Message is what a script sees of a message, which excludes the payload. A hook must not
// keep any part of it after it has returned.
type Message struct {
	Queue       string
	Headers     []storage.Header
	PayloadSize int    // bytes
	Key         string // fairness key, as given by the producer or DefaultKey
	// As given, except for the weight, which is 1 if none was given and of a failed message that
	// of its key, and for the charge, which is the cost if none was given, and of a stored message
	// without budgets 0.
	storage.Meta

	// Set for OnFailure only.
	ID       string // of the message
	Attempts uint32 // failures so far, this one included
	Error    string // as given to NACK; empty when the lease expired
}

// EnqueueDecision is the decision of an on_enqueue script. The zero value decides nothing:
// the values of the producer hold. Its values are within Limits. Slices and pointers are
// shared with other decisions and must not be changed.
type EnqueueDecision struct {
	Key       string           // "": not decided
	Weight    uint32           // 0: not decided
	Cost      uint32           // 0: not decided
	Throttles []string         // nil: not decided; empty: none
	Priority  *uint8           // 0 to 9
	Delay     *time.Duration   // not negative; whole milliseconds
	Budgets   []string         // nil: not decided; empty: none
	Charge    *int64           // 0 to credit.ChargeMax; nil: the producer's, else the cost
	Retry     queueset.Retries // what is given of it takes the place of what the producer gives
}

// SafeEnqueue returns the decision that stands in for a failed script. No rule of the
// script can be assumed, so the message gets the default key, without weight and throttles. What
// pays for it is left to the producer: a script that fails makes no work free.
func SafeEnqueue() EnqueueDecision {
	return EnqueueDecision{Key: DefaultKey, Weight: 1, Throttles: []string{}}
}

// Limits bound the decisions of a hook and the size of its source.
type Limits struct {
	Key       int // bytes of a fairness key, and of the name of a budget
	Throttle  int // bytes of a throttle key
	Throttles int // throttle keys of a message
	Weight    uint32
	Cost      uint32
	Script    int // bytes of a hook's source
}

// DefaultLimits returns the limits that hold without configuration.
func DefaultLimits() Limits {
	return Limits{Key: 512, Throttle: 512, Throttles: 16, Weight: 1_000_000, Cost: 1_000_000, Script: 64 << 10}
}

// Some reports whether the limits leave something that a hook, or a message, may have.
func (l *Limits) Some() bool {
	return min(l.Key, l.Throttle, l.Script) > 0 && l.Weight > 0 && l.Cost > 0
}

// FailureAction is what becomes of a failed message.
type FailureAction uint8

const (
	// FailureDefault follows the settings of the queue: retry until the attempts are used
	// up.
	FailureDefault FailureAction = iota
	// FailureRetry makes the message ready again after the delay.
	FailureRetry
	// FailureDead dead-letters the message at once.
	FailureDead
)

// FailureDecision is the decision of an on_failure script. The zero value is the safe one:
// attempts and backoff of the message, else of the queue.
type FailureDecision struct {
	Action FailureAction
	Delay  *time.Duration // not negative, whole milliseconds; nil: the backoff of the message, else of the queue
	Cause  string         // a name for the cause, of at most CauseBytes; empty: the error says it
	Holds  []HoldFor      // of throttle keys that the message names, in their order
}

// Holding returns the holds of a decision; nil: there is no decision, or it has none.
func (d *FailureDecision) Holding() []HoldFor {
	if d == nil {
		return nil
	}
	return d.Holds
}

// Named returns the cause that a decision names; "": there is no decision, or it names none.
func (d *FailureDecision) Named() string {
	if d == nil {
		return ""
	}
	return d.Cause
}

// HoldFor is for how long a throttle key is held.
type HoldFor struct {
	Key string
	For time.Duration // not negative, whole milliseconds
}

// CauseBytes bounds the name of a cause.
const CauseBytes = 256

// View is what a script may look up besides its message. It is safe for concurrent use.
type View interface {
	// Get looks up the runtime configuration, for fila.get. One run of a hook sees one state
	// of it.
	Get(key string) (value string, ok bool)
	// Signal returns the sum of a signal in the window of a name, the first window if it is
	// empty, for fila.signal; 0 if there is no such signal. The error names the windows that
	// there are. Signals go on while a hook runs: equal calls may return different sums.
	Signal(subject, name, window string) (float64, error)
	// Budget returns what is available of a budget, for fila.budget, and whether there is one of
	// that name. Budgets go on while a hook runs, as signals do.
	Budget(name string) (available int64, ok bool)
}

// Hook is a compiled script with its statistics and its circuit breaker. It is safe for
// concurrent use and never panics. The states of the breaker:
//
//	closed ──errors in a row──▶ open ──cooldown──▶ trial ──success──▶ closed
//	                             ▲                   └─error─┐
//	                             └───────────────────────────┘
//
// While the breaker is open the script is not run, and the safe decision is used.
type Hook interface {
	Kind() Kind
	Source() string
	Version() string // SHA-1 of the source, 40 hexadecimal digits

	// OnEnqueue and OnFailure decide, within the bounds of the queue. With an error they
	// return the safe decision; the error has already been counted and is only for display.
	// Each is valid for hooks of its kind, and an error for the other kind.
	OnEnqueue(now time.Time, msg *Message, view View, within Bounds) (EnqueueDecision, error)
	OnFailure(now time.Time, msg *Message, view View, within Bounds) (FailureDecision, error)

	// Rejected counts an error: the decision of OnEnqueue was within Limits but could not be
	// applied to its message. The breaker ignores it, as the script itself ran well.
	Rejected(now time.Time, why string)

	// Stats returns the statistics since the script was loaded.
	Stats(now time.Time) Stats
	// Failing reports whether the breaker is not closed, without waiting for a call that runs.
	Failing() bool
	// Try runs the script regardless of the breaker and counts nothing.
	Try(msg *Message, view View, within Bounds) Trial
}

// Bounds limit the calls of a queue's hooks. A field that is 0 stands for the limit of the
// configuration. They belong to the queue and not to the hook, so that a change of them
// applies to the next call.
type Bounds struct {
	Timeout time.Duration // of one call, by the clock; whole milliseconds
	Memory  int           // bytes that one call may allocate, garbage included
	Errors  uint32        // consecutive errors that open the breaker
}

// Caller is the client for which a source is loaded.
type Caller struct {
	Name  string          // loads of callers with different names take turns
	Trial bool            // the hook is tried and belongs to no queue: those of queues come first
	Queue Bounds          // of the queue that the hook is for: the source has to run within them
	Gone  <-chan struct{} // closed when the client is lost, which ends its wait; nil: never
}

var (
	// ErrBusy refuses a load because too many others wait.
	ErrBusy = errors.New("too many scripts wait to be loaded, try again later")
	// ErrGone ends the wait of a load whose caller has gone.
	ErrGone = errors.New("the caller of the load is gone")
)

// Loader compiles hooks. Package scripting implements it.
type Loader interface {
	// Load compiles a source. It refuses a source that does not compile, that does not run
	// within the limits, or that lacks the function of its kind. The error is one line and
	// names the line of the script. Load may wait, for its turn and because loads are limited
	// in their share of the processor; ErrBusy and ErrGone end that wait.
	Load(by Caller, kind Kind, source string) (Hook, error)
	// Restore compiles a source that was accepted before, at a start. It may use all
	// processors, since no client is served meanwhile. It does not run the source: if the
	// limits have become too low for that since, calls fail until they are raised.
	Restore(kind Kind, source string) (Hook, error)
}

// BreakerState is the state of a circuit breaker, see Hook.
type BreakerState uint8

const (
	// BreakerClosed means that the hook runs.
	BreakerClosed BreakerState = iota
	// BreakerOpen means that the hook has failed too often in a row and is skipped.
	BreakerOpen
	// BreakerTrial means that the cooldown is over, and the result of the next call, or of the one
	// under way, closes or opens the breaker.
	BreakerTrial
)

// String returns the word shown in statistics: closed, open or trial.
func (s BreakerState) String() string {
	switch s {
	case BreakerOpen:
		return "open"
	case BreakerTrial:
		return "trial"
	default:
		return "closed"
	}
}

// Stats are the statistics of a hook since it was loaded.
type Stats struct {
	Calls    uint64 // calls that the script answered, with a decision or an error
	Recalled uint64 // of the calls, those answered from the decision cache
	Errors   uint64 // failed calls, timeouts and wrong results included, and the Rejected
	Limits   uint64 // of the errors, those that hit the time or memory limit
	Rejected uint64 // of the errors, decisions that could not be applied; their calls succeeded
	Skipped  uint64 // calls answered with the safe decision while the breaker was open
	Row      uint32 // errors since the last success

	State   BreakerState
	Opened  uint64    // times the breaker has opened
	TrialAt time.Time // earliest time of the next trial; zero while closed

	LastError string    // one line, with the line of the script; "": none
	LastLine  int       // line of the script; 0: unknown
	LastAt    time.Time // of the error

	// Latency counts calls by duration, those answered from the decision cache as 0. Its sum
	// is therefore that of the runs.
	Latency    histogram.Histogram
	LatencyMax time.Duration
}

// Percentile returns a duration that the share p (0 to 1) of the calls does not exceed, as
// Histogram.Quantile does, but at most the longest; 0 without calls.
func (s *Stats) Percentile(p float64) time.Duration { return min(s.Latency.Quantile(p), s.LatencyMax) }

// Outcomes are the calls of a hook by what became of them. No number decreases while the hook
// is loaded, and each call is in one of them.
type Outcomes struct {
	OK       uint64 // the script ran and decided
	Error    uint64 // it failed, or returned what is no decision
	Limit    uint64 // it reached the limit of time or memory
	Recalled uint64 // answered from the decision cache
	Skipped  uint64 // not run, as the breaker was open
}

// Outcomes returns the calls by their outcomes.
func (s *Stats) Outcomes() Outcomes {
	failed := s.Errors - s.Rejected
	return Outcomes{OK: s.Calls - s.Recalled - failed, Error: failed - s.Limits, Limit: s.Limits, Recalled: s.Recalled, Skipped: s.Skipped}
}

// Trial is the outcome of a run that counts nothing, see Hook.Try.
type Trial struct {
	Enqueue EnqueueDecision // of an on_enqueue script
	Failure FailureDecision // of an on_failure script
	Err     error           // one line, with the line of the script

	Duration     time.Duration
	Instructions int64 // of the Lua machine and of its library
	Memory       int64 // bytes allocated, as the limit counts them
}
