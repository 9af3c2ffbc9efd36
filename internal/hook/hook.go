// Package hook is the contract between the engine and scripts: plain values that go in and
// come out, and the interface behind which they run. No hook runs in a turn of the engine:
// on_enqueue is called on a connection, before its command reaches the inbox, and
// on_failure on a goroutine of its own, so a slow script delays only the client it works
// for.
package hook

import (
	"time"

	"github.com/faisca/fila/storage"
)

// DefaultKey is the fairness key of messages that name none.
const DefaultKey = "default"

// Kind says which decision a script makes.
type Kind uint8

const (
	// OnEnqueue decides how a message is scheduled, before it is stored.
	OnEnqueue Kind = iota
	// OnFailure decides what becomes of a message that was nacked or whose
	// lease expired.
	OnFailure
)

// String is the name of the function a script has to define, also used on the
// wire.
func (k Kind) String() string {
	if k == OnFailure {
		return "on_failure"
	}
	return "on_enqueue"
}

// Message is what a script may see of a message. The payload is not part of
// it. A hook keeps nothing of it, slices included, when it has returned.
type Message struct {
	Queue       string
	Headers     []storage.Header
	PayloadSize int      // bytes
	Key         string   // fairness key, as given by the producer or DefaultKey
	Weight      uint32   // as given, or 1
	Throttles   []string // as given

	// Only a failure has these.
	ID       string // of the message
	Attempts uint32 // failures so far, this one included
	Error    string // as given to NACK; empty when the lease expired
}

// EnqueueDecision is what an on_enqueue script has decided. Its zero value
// decides nothing: what the producer gave then holds. What is in it keeps to
// Limits. What it points to is shared with other decisions: it must not be changed.
type EnqueueDecision struct {
	Key       string         // "": not decided
	Weight    uint32         // 0: not decided
	Cost      uint32         // 0: not decided
	Throttles []string       // nil: not decided; empty: none
	Priority  *uint8         // 0 to 9
	Delay     *time.Duration // not negative; whole milliseconds
}

// SafeEnqueue is the decision where a script should have made one but could
// not: no rule of the script's is known to hold, so the message goes where
// nothing is assumed of it.
func SafeEnqueue() EnqueueDecision {
	return EnqueueDecision{Key: DefaultKey, Weight: 1, Throttles: []string{}}
}

// Limits bound what a hook may decide, and its source.
type Limits struct {
	Key       int // bytes of a fairness key
	Throttle  int // bytes of a throttle key
	Throttles int // throttle keys a message
	Weight    uint32
	Cost      uint32
	Script    int // bytes of a hook's source
}

// DefaultLimits returns the limits where the configuration sets none.
func DefaultLimits() Limits {
	return Limits{Key: 512, Throttle: 512, Throttles: 16, Weight: 1_000_000, Cost: 1_000_000, Script: 64 << 10}
}

// FailureAction is what becomes of a message that failed.
type FailureAction uint8

const (
	// FailureDefault leaves it to the queue: retry until its attempts are used up.
	FailureDefault FailureAction = iota
	// FailureRetry makes the message ready again after the delay.
	FailureRetry
	// FailureDead moves the message to the dead-letter queue at once.
	FailureDead
)

// FailureDecision is what an on_failure script has decided. Its zero value is
// the safe one: the queue's own attempts and backoff.
type FailureDecision struct {
	Action FailureAction
	Delay  *time.Duration // not negative, whole milliseconds; nil: the queue's backoff
}

// Settings looks up runtime configuration for fila.get. It is a snapshot: one
// call of a hook sees one state of it, whatever is set meanwhile.
type Settings func(key string) (value string, ok bool)

// Hook is a compiled script together with the record of how it has fared. It is
// safe for concurrent use and never panics.
type Hook interface {
	Kind() Kind
	Source() string
	Version() string // SHA-1 of the source, 40 hexadecimal digits

	// OnEnqueue and OnFailure decide. With an error they return the safe decision,
	// so the error is only for telling: it has been counted and kept already.
	// Each belongs to its kind; calling the other is an error.
	OnEnqueue(now time.Time, msg *Message, get Settings) (EnqueueDecision, error)
	OnFailure(now time.Time, msg *Message, get Settings) (FailureDecision, error)

	// NotKept counts as an error that a decision of OnEnqueue, which keeps to Limits,
	// could not be kept for its message. It says nothing of how the script runs, so the
	// breaker takes no notice.
	NotKept(now time.Time, why string)

	Stats(now time.Time) Stats
	// Try runs the script whatever the breaker says, and counts nothing.
	Try(msg *Message, get Settings) Trial
}

// Scripts compiles hooks. Package scripting implements it.
type Loader interface {
	// Load refuses a source that does not compile, does not run within the limits
	// or lacks its function. The error is one line and names the script's line.
	Load(kind Kind, source string) (Hook, error)
	// Restore is Load of a source that was accepted before, for a start: it takes all
	// processors it can get, since no client is served meanwhile.
	Restore(kind Kind, source string) (Hook, error)
}

// BreakerState says whether a hook is being run.
type BreakerState uint8

const (
	// BreakerClosed is a hook at work.
	BreakerClosed BreakerState = iota
	// BreakerOpen is a hook that has failed too often in a row: it is not run.
	BreakerOpen
	// BreakerTrial is a hook whose pause is over: the next call, or the one
	// under way, decides.
	BreakerTrial
)

// String is the word shown in statistics.
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

// Stats is how a hook has fared since it was loaded.
type Stats struct {
	Calls    uint64 // that got a decision of the script's, or its error
	Recalled uint64 // of them, those whose decision was known without a run
	Errors   uint64 // of the calls, timeouts and wrong results included
	Limits   uint64 // of the errors, those that hit the time or memory limit
	Skipped  uint64 // calls answered with the safe decision while the breaker was open
	Row      uint32 // errors since the last success

	State   BreakerState
	Opened  uint64    // times the breaker has opened
	TrialAt time.Time // when the next trial may run; zero while closed

	LastError string    // one line, with the script's line; "" if there was none
	LastLine  int       // of the script, 0 if it is not known
	LastAt    time.Time // of the error

	// Latency of the calls, recalled ones in bucket 0. Its bucket i counts those that took less than
	// LatencyBound(i) and at least the bound before it.
	Latency      [LatencyBuckets]uint64
	LatencyTotal time.Duration // of those that ran
	LatencyMax   time.Duration
}

// LatencyBuckets is the number of buckets in Stats.Latency.
const LatencyBuckets = 20

// LatencyBound is the upper bound of a bucket: 1 µs doubled i times. The last
// bucket takes whatever is above and has none.
func LatencyBound(i int) time.Duration { return time.Microsecond << i }

// Percentile is the upper bound of the bucket below which the fraction p of the
// calls (0 to 1) lies, or the slowest call where that is less. 0 without calls.
func (s *Stats) Percentile(p float64) time.Duration {
	var calls, seen uint64
	for _, n := range s.Latency {
		calls += n
	}
	for i, n := range s.Latency {
		if seen += n; n > 0 && float64(seen) >= p*float64(calls) {
			if i == LatencyBuckets-1 {
				return s.LatencyMax
			}
			return min(LatencyBound(i), s.LatencyMax)
		}
	}
	return 0
}

// Trial is the outcome of a dry run.
type Trial struct {
	Enqueue EnqueueDecision // of an on_enqueue script
	Failure FailureDecision // of an on_failure script
	Err     error           // one line, with the script's line

	Duration     time.Duration
	Instructions int64 // of the Lua machine, and steps of its library
	Memory       int64 // bytes allocated, as the limit counts them
}
