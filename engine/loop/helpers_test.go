package loop_test

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
)

type callFunc func(tx *engine.Tx) error

func (f callFunc) Apply(tx *engine.Tx) error { return f(tx) }

// textHook is a script that does nothing.
type textHook struct {
	kind   hook.Kind
	source string
}

func (h textHook) Kind() hook.Kind            { return h.kind }
func (h textHook) Source() string             { return h.source }
func (h textHook) Version() string            { return "v-" + h.source }
func (h textHook) Stats(time.Time) hook.Stats { return hook.Stats{} }

func (h textHook) Rejected(time.Time, string) {}
func (h textHook) Failing() bool              { return false }

func (h textHook) Try(*hook.Message, hook.View, hook.Bounds) hook.Trial { return hook.Trial{} }

func (h textHook) OnEnqueue(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.EnqueueDecision, error) {
	return hook.EnqueueDecision{}, nil
}

func (h textHook) OnFailure(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.FailureDecision, error) {
	return hook.FailureDecision{}, nil
}

// slowVerdict is an on_failure hook that the test holds as long as it needs.
type slowVerdict struct {
	textHook
	gate chan struct{}
}

func slow(gate chan struct{}) slowVerdict {
	return slowVerdict{textHook{hook.OnFailure, "slow"}, gate}
}

func (h slowVerdict) OnFailure(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.FailureDecision, error) {
	<-h.gate
	return hook.FailureDecision{Action: hook.FailureRetry, Delay: new(time.Hour)}, nil
}

// scripts compiles sources to a textHook.
type scripts struct{}

func (scripts) Load(_ hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return textHook{kind, source}, nil
}

func (scripts) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return textHook{kind, source}, nil
}

func recording() engine.QueueOptions {
	return engine.QueueOptions{Given: queueset.Given{queueset.Signals: 1}}
}
