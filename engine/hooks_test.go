package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
func (h simHook) Failing() bool              { return false }

func (h simHook) Try(*hook.Message, hook.View, hook.Bounds) hook.Trial { return hook.Trial{} }

func (h simHook) OnEnqueue(_ time.Time, msg *hook.Message, _ hook.View, _ hook.Bounds) (hook.EnqueueDecision, error) {
	d := hook.EnqueueDecision{Weight: 1 + uint32(msg.PayloadSize%3), Cost: 2}
	hookPays(msg, &d)
	return d, nil
}

func (h simHook) OnFailure(_ time.Time, msg *hook.Message, _ hook.View, _ hook.Bounds) (hook.FailureDecision, error) {
	var d hook.FailureDecision
	if msg.Headers == nil && msg.Attempts%2 == 0 {
		d.Delay = new(30 * time.Millisecond)
	}
	d.Holds = hookHolds(msg.Throttles, msg.Attempts)
	return d, nil
}

// hookHolds are the throttle keys that simHook holds when a message that names some has failed for the nth time.
func hookHolds(throttles []string, n uint32) []hook.HoldFor {
	if len(throttles) == 0 || n%3 != 0 {
		return nil
	}
	return []hook.HoldFor{{Key: throttles[0], For: 120 * time.Millisecond}}
}

type simScripts struct{}

func (simScripts) Load(_ hook.Caller, kind hook.Kind, _ string) (hook.Hook, error) {
	return simHook{kind}, nil
}
func (simScripts) Restore(kind hook.Kind, _ string) (hook.Hook, error) { return simHook{kind}, nil }

// textHook is a hook whose version is its source.
type textHook struct {
	simHook
	source string
}

func (h textHook) Source() string  { return h.source }
func (h textHook) Version() string { return "v-" + h.source[:min(len(h.source), 20)] }

// textScripts compiles sources that do not begin with "bad".
type textScripts struct{}

func (textScripts) Load(_ hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	if strings.HasPrefix(source, "bad") {
		return nil, errors.New("line 1")
	}
	return textHook{simHook{kind}, source}, nil
}

func (s textScripts) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return s.Load(hook.Caller{}, kind, source)
}

func withScripts(c *Config) { c.Scripts = textScripts{} }

const (
	simGate  = "gate"  // named by the hook; it may refuse
	simTicks = "ticks" // of recurring messages
	simPays  = "pays"  // the header by which the hook decides
)

// hookPays is what the hook decides by a header.
func hookPays(msg *hook.Message, d *hook.EnqueueDecision) {
	for _, h := range msg.Headers {
		if string(h.Name) != simPays {
			continue
		}
		switch string(h.Value) {
		case "gate":
			d.Budgets = append(slices.Clone(msg.Budgets), simGate)
		case "none":
			d.Budgets = []string{}
		case "both":
			d.Budgets, d.Charge = []string{budgetName(0), budgetName(1)}, new(int64(3))
		}
	}
}

func budgetName(i int) string { return fmt.Sprint("m", i) }
