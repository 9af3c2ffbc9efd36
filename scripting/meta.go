package scripting

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/hook"
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
	return lua.LNumber(a.number)
}

// attributeAnswer returns an attribute that the memo models.
func attributeAnswer(meta *storage.Meta, field string) (a answer, ok bool) {
	switch field {
	case "weight":
		a.number = int64(meta.Weight)
	case "charge":
		a.number = meta.Charge
	default:
		return a, false
	}
	return a, true
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
	default:
		return unknown(field)
	}
}
