package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is the place of a setting in a Config. Its errors continue a sentence that begins with the
// setting's name: "must be ...".
type value interface {
	reset()               // sets the default
	set(raw any) error    // from a file: the type must match
	parse(s string) error // from the environment or a flag
	String() string       // in the format of parse
	kind() string         // for the help: ms, bytes, a|b
	bounds() string       // the valid values, as a phrase
	literal() string      // in the syntax of a file
}

// text is a string setting.
type text struct {
	to      *string
	def     string
	choices []string           // if not nil, the only valid values
	check   func(string) error // if not nil, validates the value
	of      string             // kind
	says    string             // bounds, if there are no choices
}

func (t text) reset() { *t.to = t.def }

func (t text) set(raw any) error {
	s, ok := raw.(string)
	if !ok {
		return fmt.Errorf("must be text in quotes, not %v", raw)
	}
	return t.parse(s)
}

func (t text) parse(s string) error {
	if t.choices != nil && !slices.Contains(t.choices, s) {
		return fmt.Errorf("must be %s, not %q", t.bounds(), s)
	}
	if t.check != nil {
		if err := t.check(s); err != nil {
			return err
		}
	}
	*t.to = s
	return nil
}

func (t text) String() string  { return *t.to }
func (t text) literal() string { return strconv.Quote(*t.to) }

func (t text) kind() string {
	switch {
	case t.choices != nil:
		return strings.Join(t.choices, "|")
	case t.of != "":
		return t.of
	default:
		return "text"
	}
}

func (t text) bounds() string {
	if t.choices != nil {
		return "one of " + strings.Join(t.choices, ", ")
	}
	return t.says
}

// lines is a setting that consists of a list of lines.
type lines struct {
	to    *[]string
	check func(string) error // of each line; nil: any will do
}

func (l lines) reset() { *l.to = nil }

func (l lines) set(raw any) error {
	list, ok := raw.([]any)
	if !ok {
		return errors.New("must be a list of texts in quotes")
	}
	all := make([]string, 0, len(list))
	for _, each := range list {
		line, ok := each.(string)
		if !ok {
			return errors.New("must be a list of texts in quotes")
		}
		all = append(all, line)
	}
	return l.take(all)
}

func (l lines) take(all []string) error {
	for _, line := range all {
		if l.check == nil {
			break
		}
		if err := l.check(line); err != nil {
			return err
		}
	}
	*l.to = all
	return nil
}

func (l lines) parse(s string) error {
	var all []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return l.take(all)
}

func (l lines) String() string { return strings.Join(*l.to, "\n") }
func (l lines) kind() string   { return "lines" }
func (l lines) bounds() string { return "a list of lines, separated by newlines in text form" }

func (l lines) literal() string {
	quoted := make([]string, len(*l.to))
	for i, line := range *l.to {
		quoted[i] = strconv.Quote(line)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// boolean is a setting that is true or false; false is the default.
type boolean struct{ to *bool }

func (b boolean) reset() { *b.to = false }

func (b boolean) set(raw any) error {
	v, ok := raw.(bool)
	if !ok {
		return fmt.Errorf("must be true or false, not %#v", raw)
	}
	*b.to = v
	return nil
}

func (b boolean) parse(s string) error {
	if s != "true" && s != "false" {
		return fmt.Errorf("must be true or false, not %q", s)
	}
	*b.to = s == "true"
	return nil
}

func (b boolean) String() string  { return strconv.FormatBool(*b.to) }
func (b boolean) kind() string    { return "true|false" }
func (b boolean) bounds() string  { return "true or false" }
func (b boolean) literal() string { return b.String() }

// whole is the type of a number's field.
type whole interface {
	~int | ~int64 | ~uint32
}

// number is an integer setting. For a time.Duration, scale converts the external milliseconds to
// nanoseconds.
type number[T whole] struct {
	to       *T
	def      int64
	min, max int64
	unit     string // ms, us, bytes or empty for a plain count
	scale    int64  // value of one unit in the field
}

// count returns a number without a unit.
func count[T whole](to *T, def, least, most int64) number[T] {
	return number[T]{to: to, def: def, min: least, max: most, scale: 1}
}

// sized returns a number of bytes.
func sized[T whole](to *T, def, least, most int64) number[T] {
	return number[T]{to: to, def: def, min: least, max: most, unit: "bytes", scale: 1}
}

// millis returns a time in milliseconds.
func millis(to *time.Duration, def, least, most int64) number[time.Duration] {
	return number[time.Duration]{to: to, def: def, min: least, max: most, unit: "ms", scale: int64(time.Millisecond)}
}

func (n number[T]) reset() { n.put(n.def) }

func (n number[T]) put(v int64) { *n.to = T(v * n.scale) }

func (n number[T]) set(raw any) error {
	v, ok := raw.(int64)
	if !ok {
		return fmt.Errorf("must be %s, not %#v", n.bounds(), raw)
	}
	return n.take(v, strconv.FormatInt(v, 10))
}

func (n number[T]) parse(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("must be %s, not %q", n.bounds(), s)
	}
	return n.take(v, s)
}

func (n number[T]) take(v int64, said string) error {
	if v < n.min || v > n.max {
		return fmt.Errorf("must be %s, not %s", n.bounds(), said)
	}
	n.put(v)
	return nil
}

func (n number[T]) String() string  { return strconv.FormatInt(int64(*n.to)/n.scale, 10) }
func (n number[T]) literal() string { return n.String() }

func (n number[T]) kind() string {
	if n.unit != "" {
		return n.unit
	}
	return "number"
}

func (n number[T]) bounds() string {
	what := map[string]string{"": "a whole number", "ms": "a whole number of milliseconds", "us": "a whole number of microseconds", "bytes": "a whole number of bytes"}[n.unit]
	return fmt.Sprintf("%s from %d to %d", what, n.min, n.max)
}
