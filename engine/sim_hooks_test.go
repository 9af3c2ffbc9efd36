package engine

import (
	"time"

	"github.com/faisca/fila/internal/hook"
)

// simHook is a script of the simulation, whose decisions affect no promise.
type simHook struct{ kind hook.Kind }

func (h simHook) Kind() hook.Kind            { return h.kind }
func (h simHook) Source() string             { return "-- " + h.kind.String() }
func (h simHook) Version() string            { return "1" }
func (h simHook) Stats(time.Time) hook.Stats { return hook.Stats{} }

func (h simHook) Rejected(time.Time, string) {}

func (h simHook) Try(*hook.Message, hook.View, hook.Bounds) hook.Trial { return hook.Trial{} }

func (h simHook) OnEnqueue(_ time.Time, msg *hook.Message, _ hook.View, _ hook.Bounds) (hook.EnqueueDecision, error) {
	d := hook.EnqueueDecision{Weight: 1 + uint32(msg.PayloadSize%3), Cost: 2} //nolint:gosec // small
	hookPays(msg, &d)
	return d, nil
}

func (h simHook) OnFailure(_ time.Time, msg *hook.Message, _ hook.View, _ hook.Bounds) (hook.FailureDecision, error) {
	if msg.Headers == nil && msg.Attempts%2 == 0 {
		return hook.FailureDecision{Delay: new(30 * time.Millisecond)}, nil
	}
	return hook.FailureDecision{}, nil
}

type simScripts struct{}

func (simScripts) Load(_ hook.Caller, kind hook.Kind, _ string) (hook.Hook, error) {
	return simHook{kind}, nil
}
func (simScripts) Restore(kind hook.Kind, _ string) (hook.Hook, error) { return simHook{kind}, nil }
