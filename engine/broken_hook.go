package engine

import (
	"time"

	"github.com/faisca/fila/internal/hook"
)

// brokenHook stands in for a script that was accepted once and does not load any
// more: it makes the safe decisions, and says why.
type brokenHook struct {
	kind   hook.Kind
	source string
	err    error
}

func (h brokenHook) Kind() hook.Kind { return h.kind }
func (h brokenHook) Source() string  { return h.source }
func (h brokenHook) Version() string { return "" }

func (h brokenHook) OnEnqueue(time.Time, *hook.Message, hook.Settings) (hook.EnqueueDecision, error) {
	return hook.SafeEnqueue(), h.err
}

func (h brokenHook) OnFailure(time.Time, *hook.Message, hook.Settings) (hook.FailureDecision, error) {
	return hook.FailureDecision{}, h.err
}

func (h brokenHook) NotKept(time.Time, string) {} // its decisions are the safe ones

func (h brokenHook) Stats(time.Time) hook.Stats {
	return hook.Stats{State: hook.BreakerOpen, LastError: h.err.Error()}
}

func (h brokenHook) Try(*hook.Message, hook.Settings) hook.Trial { return hook.Trial{Err: h.err} }
