package scripts

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/hook"
)

var errNoScripts = errors.New("this broker was built without scripts")

// Compile compiles a source to a hook; most is how many bytes it may have. It may have to wait for other loads, see
// hook.Loader. A loader that is nil refuses all.
//
// Errors: ErrTooBig, ErrScript with the line if the source does not compile
// or define its function; ErrBusy if too many scripts wait to be loaded, ErrClientGone if by.Gone
// was closed meanwhile.
func Compile(l hook.Loader, by hook.Caller, kind hook.Kind, source string, most int) (hook.Hook, error) {
	return compile(l, source, most, func() (hook.Hook, error) { return l.Load(by, kind, source) })
}

// Restore compiles a source that was accepted before, at a start. If it does not compile any more, the hook makes
// safe decisions, and the error says why.
func Restore(l hook.Loader, kind hook.Kind, source string, most int) (hook.Hook, error) {
	h, err := compile(l, source, most, func() (hook.Hook, error) { return l.Restore(kind, source) })
	if err != nil {
		return broken{kind: kind, source: source, err: err}, err
	}
	return h, nil
}

// compile compiles a source by a method of a loader.
func compile(l hook.Loader, source string, most int, load func() (hook.Hook, error)) (hook.Hook, error) {
	if l == nil {
		return nil, errNoScripts
	}
	if len(source) > most {
		return nil, fmt.Errorf("%w: script of %d bytes, the limit is %d", refusals.ErrTooBig, len(source), most)
	}
	h, err := load()
	switch {
	case errors.Is(err, hook.ErrGone):
		return nil, refusals.ErrClientGone
	case errors.Is(err, hook.ErrBusy):
		return nil, refusals.ErrBusy
	case err != nil:
		return nil, fmt.Errorf("%w: %w", refusals.ErrScript, err)
	}
	return h, nil
}

// broken replaces a hook whose script was accepted once and does not load any more. It
// makes the safe decisions and reports why.
type broken struct {
	kind   hook.Kind
	source string
	err    error
}

func (h broken) Kind() hook.Kind { return h.kind }
func (h broken) Source() string  { return h.source }
func (h broken) Version() string { return "" }

func (h broken) OnEnqueue(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.EnqueueDecision, error) {
	return hook.SafeEnqueue(), h.err
}

func (h broken) OnFailure(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.FailureDecision, error) {
	return hook.FailureDecision{}, h.err
}

func (h broken) Rejected(time.Time, string) {} // safe decisions have no delay to reject
func (h broken) Failing() bool              { return true }

func (h broken) Stats(time.Time) hook.Stats {
	return hook.Stats{State: hook.BreakerOpen, LastError: h.err.Error()}
}

func (h broken) Try(*hook.Message, hook.View, hook.Bounds) hook.Trial {
	return hook.Trial{Err: h.err}
}

// Rejection is a field of a hook's decision that the queue cannot follow: a delay that ends after
// the message's time to live, or a delay or priority in an ordered queue.
type Rejection struct {
	Hook  hook.Hook
	At    int64  // Unix nanoseconds
	Field string // of the result
	Value int64
	TTL   time.Duration // of the message; 0: the queue is ordered
}

// Report has the hook count an error, for which it takes a lock.
func (r *Rejection) Report() { r.Hook.Rejected(time.Unix(0, r.At), r.why()) }

func (r *Rejection) why() string {
	if r.TTL == 0 {
		return fmt.Sprintf("result field '%s' is %d, the queue is ordered and ignores it", r.Field, r.Value)
	}
	return fmt.Sprintf("result field '%s' is %d, it must be less than the time to live of the message, %d ms", r.Field, r.Value, r.TTL.Milliseconds())
}
