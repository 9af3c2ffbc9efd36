package engine

import "time"

// simHook is a script of the simulation: it decides what changes no promise.
type simHook struct{ kind HookKind }

func (h simHook) Kind() HookKind            { return h.kind }
func (h simHook) Source() string            { return "-- " + h.kind.String() }
func (h simHook) Version() string           { return "1" }
func (h simHook) Stats(time.Time) HookStats { return HookStats{} }

func (h simHook) NotKept(time.Time, string) {}

func (h simHook) Try(*HookMessage, Settings) HookTrial { return HookTrial{} }

func (h simHook) OnEnqueue(_ time.Time, msg *HookMessage, _ Settings) (EnqueueDecision, error) {
	return EnqueueDecision{Weight: 1 + uint32(msg.PayloadSize%3), Cost: 2}, nil //nolint:gosec // small
}

func (h simHook) OnFailure(_ time.Time, msg *HookMessage, _ Settings) (FailureDecision, error) {
	if msg.Headers == nil && msg.Attempts%2 == 0 {
		return FailureDecision{Delay: new(30 * time.Millisecond)}, nil
	}
	return FailureDecision{}, nil
}

type simScripts struct{}

func (simScripts) Load(kind HookKind, _ string) (Hook, error)    { return simHook{kind}, nil }
func (simScripts) Restore(kind HookKind, _ string) (Hook, error) { return simHook{kind}, nil }
