package engine

import "time"

// brokenHook stands in for a script that was accepted once and does not load any
// more: it makes the safe decisions, and says why.
type brokenHook struct {
	kind   HookKind
	source string
	err    error
}

func (h brokenHook) Kind() HookKind  { return h.kind }
func (h brokenHook) Source() string  { return h.source }
func (h brokenHook) Version() string { return "" }

func (h brokenHook) OnEnqueue(time.Time, *HookMessage, Settings) (EnqueueDecision, error) {
	return SafeEnqueue(), h.err
}

func (h brokenHook) OnFailure(time.Time, *HookMessage, Settings) (FailureDecision, error) {
	return FailureDecision{}, h.err
}

func (h brokenHook) NotKept(time.Time, string) {} // its decisions are the safe ones

func (h brokenHook) Stats(time.Time) HookStats {
	return HookStats{State: BreakerOpen, LastError: h.err.Error()}
}

func (h brokenHook) Try(*HookMessage, Settings) HookTrial { return HookTrial{Err: h.err} }
