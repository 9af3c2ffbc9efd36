package scripting

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// A hook returns nil, which decides nothing, or a table of fields. If every return of the hook
// is a table constructor with constant names, the rewriter has replaced the table by the names
// and values themselves, behind a mark (rewriter.direct): most hooks then allocate nothing for
// their result. Both forms mean the same and are validated by the same functions.
//
// A result is accepted or rejected as a whole: half of a decision would be one that the script
// has not made. Values are not converted: what looks like a number in a text is most often a
// header that was forgotten to be converted, and "" or "0x10" would be accepted with it. Texts are
// copied, because a part of a long string would keep all of it in memory with the message.

// delayMax is the longest delay that a script may return, the same as for commands.
const delayMax = 100 * 365 * 24 * time.Hour

// enqueueDecision validates the result of on_enqueue. An unknown field, a wrong type or a
// value out of range rejects the whole result.
func enqueueDecision(res result, limits *hook.Limits) (hook.EnqueueDecision, error) {
	var d hook.EnqueueDecision
	err := res.fields(func(name string, v lua.LValue) error {
		switch name {
		case "fairness_key":
			return decode(&d.Key, v, name, func(v lua.LValue) (string, string) { return keyOf(v, limits.Key) })
		case "priority":
			return decode(&d.Priority, v, name, pointer(wholeUpTo[uint8](0, 9)))
		case "delay_ms":
			return decode(&d.Delay, v, name, delayOf)
		default:
			return decideAttribute(&d, v, name, limits)
		}
	})
	if most, ok := d.Retry.MaxBackoff.Value(); ok && err == nil && most < d.Retry.Backoff.Or(0) {
		err = complain("max_backoff_ms", fmt.Sprintf("is %d, it must not be below backoff_ms, %d", most, d.Retry.Backoff.Or(0)))
	}
	if err != nil {
		return hook.SafeEnqueue(), err
	}
	return d, nil
}

// failureDecision validates the result of on_failure in the same way. meta is that of the message.
func failureDecision(res result, meta *storage.Meta) (hook.FailureDecision, error) {
	var d hook.FailureDecision
	err := res.fields(func(name string, v lua.LValue) error {
		switch name {
		case "action":
			switch s, _ := v.(lua.LString); s {
			case "retry":
				d.Action = hook.FailureRetry
			case "dlq":
				d.Action = hook.FailureDead
			default:
				return complain(name, `must be "retry" or "dlq"`)
			}
			return nil
		case "delay_ms":
			return decode(&d.Delay, v, name, delayOf)
		case "hold":
			return decode(&d.Holds, v, name, func(v lua.LValue) ([]hook.HoldFor, string) { return holdsOf(v, meta) })
		case "cause":
			return decode(&d.Cause, v, name, causeOf)
		default:
			return unknown(name)
		}
	})
	if err != nil {
		return hook.FailureDecision{}, err
	}
	return d, nil
}

// fields calls fn for each field of a result, in order of assignment. A nil result has no
// fields.
func (r result) fields(fn func(name string, v lua.LValue) error) error {
	if r.direct {
		for i, n := 2, r.l.GetTop(); i < n; i += 2 {
			name, v := r.l.Get(i).(lua.LString), r.l.Get(i+1)
			if v == lua.LNil {
				continue // as in a table
			}
			if err := fn(string(name), v); err != nil {
				return err
			}
		}
		return nil
	}
	v := r.value()
	if v == lua.LNil {
		return nil
	}
	t, ok := v.(*lua.LTable)
	if !ok {
		return fmt.Errorf("must return a table or nil, not a %s", kindOf(v))
	}
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		name, ok := k.(lua.LString)
		if !ok {
			return fmt.Errorf("the result has a key of type %s, field names are strings", kindOf(k))
		}
		if err := fn(string(name), v); err != nil {
			return err
		}
	}
	return nil
}

// decode reads one field into dst, or returns what is wrong with it.
func decode[T any](dst *T, v lua.LValue, name string, read func(lua.LValue) (T, string)) error {
	value, bad := read(v)
	if bad != "" {
		return complain(name, bad)
	}
	*dst = value
	return nil
}

// complain returns the error of a field, or nil if the text is empty.
func complain(name, text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("result field '%s' %s", name, text)
}

// unknown is the error of a field that no hook of the kind has. It is an error, not ignored: a
// misspelled field would otherwise decide nothing and never be noticed.
func unknown(name string) error {
	return fmt.Errorf("unknown result field '%s'", name)
}

// keyOf reads a key of at most bytesMax bytes. It copies the key, which may be a part of
// a long string that would stay in memory with the message.
func keyOf(v lua.LValue, bytesMax int) (value, complaint string) {
	s, ok := v.(lua.LString)
	switch {
	case !ok:
		return "", "must be a string, not a " + kindOf(v)
	case s == "":
		return "", "must not be empty"
	case len(s) > bytesMax:
		return "", fmt.Sprintf("has %d bytes, at most %d", len(s), bytesMax)
	}
	return strings.Clone(string(s)), ""
}

// keysOf reads a list of at most most different keys of at most bytesMax bytes, without duplicates.
func keysOf(v lua.LValue, what string, bytesMax, most int) (values []string, complaint string) {
	t, ok := v.(*lua.LTable)
	if !ok {
		return nil, "must be a list, not a " + kindOf(v)
	}
	n := t.MaxN()
	keys := make([]string, 0, min(n, most))
	for i := 1; i <= n; i++ {
		key, bad := keyOf(t.RawGetInt(i), bytesMax)
		switch {
		case bad != "":
			return nil, fmt.Sprintf("[%d] %s", i, bad)
		case slices.Contains(keys, key):
		case len(keys) == most:
			return nil, fmt.Sprintf("has %d %ss, at most %d different ones", n, what, most)
		default:
			keys = append(keys, key)
		}
	}
	if k, _ := t.Next(lua.LNumber(n)); n > 0 && k != lua.LNil || n == 0 && hasFields(t) {
		return nil, "must be a list, it has a field that is not in its sequence"
	}
	return keys, ""
}

// hasFields reports whether a table has any element or field.
func hasFields(t *lua.LTable) bool {
	k, _ := t.Next(lua.LNil)
	return k != lua.LNil
}

// wholeUpTo returns a reader of whole numbers in [least, most].
func wholeUpTo[T uint8 | uint32 | int64](least, most T) func(lua.LValue) (T, string) {
	return func(v lua.LValue) (T, string) {
		n, ok := v.(lua.LNumber)
		if !ok {
			return 0, "must be a number, not a " + kindOf(v)
		}
		i, ok := whole(n)
		if !ok {
			return 0, "must be a whole number"
		}
		if int64(i) < int64(least) || int64(i) > int64(most) {
			return 0, fmt.Sprintf("is %d, it must be between %d and %d", i, least, most)
		}
		return T(i), ""
	}
}

// pointer has a reader return a pointer to its value.
func pointer[T any](read func(lua.LValue) (T, string)) func(lua.LValue) (*T, string) {
	return func(v lua.LValue) (*T, string) {
		value, bad := read(v)
		return &value, bad
	}
}

// causeOf reads the name of a cause.
func causeOf(v lua.LValue) (name, complaint string) {
	s, ok := v.(lua.LString)
	if !ok {
		return "", "must be a string, not a " + kindOf(v)
	}
	if len(s) == 0 || len(s) > hook.CauseBytes {
		return "", fmt.Sprintf("must have 1 to %d bytes", hook.CauseBytes)
	}
	return string(s), ""
}

// delayOf reads a delay in milliseconds; fractions, which computed delays often have, are
// dropped.
func delayOf(v lua.LValue) (delay *time.Duration, complaint string) {
	n, ok := v.(lua.LNumber)
	if !ok {
		return nil, "must be a number of milliseconds, not a " + kindOf(v)
	}
	ms := math.Floor(float64(n))
	if !(ms >= 0 && ms <= float64(delayMax/time.Millisecond)) { // also NaN
		return nil, "must be between 0 and 100 years"
	}
	d := time.Duration(ms) * time.Millisecond
	return &d, ""
}
