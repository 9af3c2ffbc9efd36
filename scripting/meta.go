package scripting

import (
	"fmt"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// attribute returns a part of storage.Meta as a script sees it in a field of its message, nil if there
// is none of that name.
func (m *machine) attribute(l *lua.LState, field string) lua.LValue {
	meta := &m.msg.Meta
	switch field {
	case "throttle_keys":
		return m.list(l, meta.Throttles)
	case "budgets":
		return m.list(l, meta.Budgets)
	}
	a, ok := attributeAnswer(meta, field)
	if !ok {
		return lua.LNil
	}
	m.trace.ask(askAttribute, field)
	if !a.is {
		return lua.LNil
	}
	return lua.LNumber(a.number)
}

// attributeAnswer returns an attribute that the memo models.
func attributeAnswer(meta *storage.Meta, field string) (a answer, ok bool) {
	var retries queueset.Retries
	if meta.Retries != nil {
		retries = *meta.Retries
	}
	switch field {
	case "weight":
		a.number, a.is = int64(meta.Weight), true
	case "charge":
		a.number, a.is = meta.Charge, true
	case "max_attempts":
		a.given(retries.MaxAttempts)
	case "backoff_ms":
		a.given(retries.Backoff)
	case "max_backoff_ms":
		a.given(retries.MaxBackoff)
	default:
		return a, false
	}
	return a, true
}

// given answers with a number that need not be given.
func (a *answer) given(g queueset.Optional) {
	if n, ok := g.Value(); ok {
		a.number, a.is = int64(n), true
	}
}

// decideAttribute reads a field of a result that decides an attribute.
func decideAttribute(d *hook.EnqueueDecision, v lua.LValue, field string, limits *hook.Limits) error {
	switch field {
	case "weight":
		return decode(&d.Weight, v, field, wholeUpTo(1, limits.Weight))
	case "cost":
		return decode(&d.Cost, v, field, wholeUpTo(1, limits.Cost))
	case "throttle_keys":
		return decode(&d.Throttles, v, field, func(v lua.LValue) ([]string, string) {
			return keysOf(v, "key", limits.Throttle, limits.Throttles)
		})
	case "budgets":
		return decode(&d.Budgets, v, field, func(v lua.LValue) ([]string, string) {
			return keysOf(v, "budget", limits.Key, credit.BudgetsMax)
		})
	case "charge":
		return decode(&d.Charge, v, field, pointer(wholeUpTo[int64](0, credit.ChargeMax)))
	case "max_attempts":
		return decideGiven(&d.Retry.MaxAttempts, v, field, queueset.MaxAttempts)
	case "backoff_ms":
		return decideGiven(&d.Retry.Backoff, v, field, queueset.Backoff)
	case "max_backoff_ms":
		return decideGiven(&d.Retry.MaxBackoff, v, field, queueset.MaxBackoff)
	default:
		return unknown(field)
	}
}

// decideGiven reads a number that takes the place of a setting of the queue, within the bounds of that.
func decideGiven(dst *queueset.Optional, v lua.LValue, field string, s queueset.Setting) error {
	row := queueset.Rows()[s]
	return decode(dst, v, field, func(v lua.LValue) (queueset.Optional, string) {
		n, bad := wholeUpTo(row.Min, row.Max)(v)
		return queueset.Some(uint64(n)), bad
	})
}

// holdsOf reads for how long throttle keys are held, of those that a message names.
func holdsOf(v lua.LValue, meta *storage.Meta) (holds []hook.HoldFor, complaint string) {
	throttles := meta.Throttles
	t, ok := v.(*lua.LTable)
	if !ok {
		return nil, "must be a table of throttle keys and milliseconds, not a " + kindOf(v)
	}
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		key, _ := k.(lua.LString)
		i := slices.Index(throttles, string(key))
		if i < 0 {
			return nil, fmt.Sprintf("has %.80q, a throttle key that the message does not name", k.String())
		}
		d, bad := delayOf(v)
		if bad != "" {
			return nil, fmt.Sprintf("of %.80q %s", throttles[i], bad)
		}
		holds = append(holds, hook.HoldFor{Key: throttles[i], For: *d})
	}
	slices.SortFunc(holds, func(a, b hook.HoldFor) int { return strings.Compare(a.Key, b.Key) }) // not by chance
	return holds, ""
}
