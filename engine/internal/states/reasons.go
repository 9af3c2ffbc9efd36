package states

import (
	"fmt"
	"strings"
	"time"

	"github.com/faisca/fila/internal/errtext"
)

// pollTime is for how long a consumer counts that has asked for messages and waits no more: those that ask again and
// again do so more often.
const pollTime = int64(time.Minute)

// Queue is what the state of a queue depends on beside its keys, at one time. Times are Unix nanoseconds.
type Queue struct {
	Now     int64
	Paused  bool  // its deliveries
	Counted bool  // else Total is a part of its messages
	Total   int64 // messages
	Leased  int64 // of these, those that are leased or retrying
	Retry   int64 // retrying
	Delayed int64
	Waiting int   // consumers that wait
	Asked   int64 // when a consumer asked for messages last; 0: none has
	Holding int   // consumers that hold leases
	Newest  int64 // when the newest of these leases began
}

// Free returns the state of a message that nothing stops. The next turn delivers it if a consumer waits.
func (q *Queue) Free() State {
	switch {
	case q.Waiting > 0:
		return Ready
	case q.Leased > q.Retry:
		return Busy
	case q.Asked != 0 && q.Now-q.Asked < pollTime:
		return Ready
	default:
		return NoConsumer
	}
}

// Facts returns the states of a queue whose keys are by state as given; nil: that is not known. They may be of a
// moment ago: a pause, consumers, and that no message is ready, are of now.
func (q *Queue) Facts(by *ByState) (f Facts) {
	known := int64(0)
	if by != nil {
		_, known = by.Stopped()
	}
	switch {
	case q.Counted && q.Total <= q.Leased+q.Delayed: // none is ready
	case known > 0:
		f = by.Facts(q.Free())
	case q.Total > q.Leased+q.Delayed:
		f.Set(q.Free(), true)
	}
	f.Set(Paused, q.Paused)
	f.Set(Leased, q.Leased > q.Retry)
	f.Set(Delayed, q.Delayed+q.Retry > 0)
	return f
}

// freeReason says why a message that nothing stops is where it is.
func (q *Queue) freeReason() string {
	switch q.Free() {
	case Busy:
		hold := "hold"
		if q.Holding == 1 {
			hold = "holds"
		}
		return fmt.Sprintf("%s %s %s of the queue, and none waits; the shortest is out for %s",
			errtext.Amount(q.Holding, "consumer"), hold, errtext.Amount(q.Leased-q.Retry, "lease"), q.since(q.Newest))
	case NoConsumer:
		return "no consumer holds a lease of the queue, waits, or has asked within a minute"
	default:
		return "consumers ask"
	}
}

// KeyReason says why a key of the queue with so many leases is in a state that has no cause of its own.
func (q *Queue) KeyReason(s State, leased int64) string {
	switch s {
	case Paused:
		if q.Paused {
			return "the deliveries of its queue are paused, FILA.QUEUE RESUME lets them go on"
		}
		return "the key is paused, FILA.KEY RESUME lets it go on"
	case Busy, NoConsumer:
		return "it could deliver: " + q.freeReason()
	case Ready:
		return "it delivers when its turn comes"
	case Loading:
		return "its next messages are being read from disk"
	case Leased:
		return fmt.Sprintf("consumers hold %d of its messages, and there are no others to deliver", leased)
	case Delayed:
		return "its messages wait for their time"
	default:
		return EmptyReason
	}
}

// EmptyReason says why a key or a queue is in the state Empty.
const EmptyReason = "it has no messages"

// Longest returns the key that waits longest among those that the reason of a state is about, and the state that it waits
// in; ok is false if the reason names none.
func (q *Queue) Longest(by *ByState, s State) (key string, in State, ok bool) {
	if !q.ofReady(s) || by == nil {
		return "", 0, false
	}
	if stopped, _ := by.Stopped(); stopped == 0 {
		return "", 0, false
	}
	in = by.longest(s)
	return by[in].Key, in, by[in].Since != 0
}

// ofReady reports whether a state of the queue is one of its ready messages.
func (q *Queue) ofReady(s State) bool {
	switch s {
	case Loading, Leased, Delayed, Empty:
		return false
	default:
		return s != Paused || !q.Paused
	}
}

// longest returns the state that a reason gives an example of: the state itself, or else the first one that stops messages.
func (b *ByState) longest(s State) State {
	if s.Stops() != "" {
		return s
	}
	for at := range b {
		if b[at].Ready > 0 && State(at).Stops() != "" {
			return State(at)
		}
	}
	return s
}

// Reason says why a queue is in a state: what share of its ready messages is stopped, by what and how long, and why the others are
// where they are. of is the reason of the key that waits longest; "": it is not in that state any more.
func (q *Queue) Reason(by *ByState, s State, of string) string {
	if !q.ofReady(s) {
		return q.KeyReason(s, q.Leased-q.Retry)
	}
	stopped, ready := int64(0), int64(0)
	if by != nil {
		stopped, ready = by.Stopped()
	}
	if stopped == 0 {
		return q.freeReason()
	}
	var parts []string
	for at := range by {
		if in, what := &by[at], State(at).Stops(); what != "" && in.Ready > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s (%s)", in.Ready, what, errtext.Amount(in.Keys, "key")))
		}
	}
	reason := fmt.Sprintf("%s of %s are stopped: %s", share(stopped, ready), errtext.Amount(ready, "ready message"), strings.Join(parts, ", "))
	if key, in, ok := q.Longest(by, s); ok {
		reason += fmt.Sprintf("; key %.80q waits longest, for %s", key, q.since(by[in].Since))
		if of != "" {
			reason += ": " + of
		}
	}
	if stopped < ready {
		reason += "; of the others, " + q.freeReason()
	}
	return reason
}

// share says which part of a number of messages, at least one, is stopped.
func share(stopped, of int64) string {
	switch percent := 100 * stopped / of; {
	case stopped == of:
		return "all"
	case percent == 0:
		return "less than 1 %"
	default:
		return fmt.Sprintf("%d %%", percent)
	}
}

// since says for how long something holds that began at a time.
func (q *Queue) since(at int64) string {
	if d := time.Duration(q.Now - at).Truncate(time.Second); d > 0 {
		return d.String()
	}
	return "less than a second"
}
