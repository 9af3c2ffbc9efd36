package commands

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/acl"
)

// input is what a command was called with, once it has been found to agree with
// the command's Spec. It belongs to one session and is used again for every
// command: whoever keeps an argument keeps the bytes, which are the command's
// own, but not the input.
type input struct {
	cmd    *command
	args   [][]byte // behind the name
	values []value  // by slot
	occurs []occurrence
	names  nameCache
	// throttled are the throttles of the last command that named a few.
	throttled []string
	limits    Limits
	// account is whose rights count, user what they were when the command was
	// read; nil: unrestricted.
	account *acl.Account
	user    *acl.User
	// session is whose command it is: for EXEC, which makes a call of what the
	// session has kept.
	session *Session
	// loading says that the engine still recovers: what is parsed now is
	// rendered at once, without having been applied.
	loading bool
}

// value is what was given for one argument.
type value struct {
	set   bool
	first int     // in args; of an option the word behind the token
	count int     // words
	num   int64   // of an integer
	float float64 // of a double; also not a number or infinite, which is for the engine to refuse
}

// occurrence is one use of an option that may be repeated.
type occurrence struct{ slot, first int }

// release lets go of the arguments, which may be large, while nothing is parsed.
func (in *input) release() { in.cmd, in.args, in.user = nil, nil, nil }

// scan checks args against the command's Spec and sorts them into values.
func (in *input) scan(c *command, args [][]byte) error {
	in.cmd, in.args, in.occurs = c, args, in.occurs[:0]
	if cap(in.values) < len(c.slots) {
		in.values = make([]value, len(c.slots))
	}
	in.values = in.values[:len(c.slots)]
	clear(in.values)
	words := len(args) + c.words
	if words != c.arity && (c.arity > 0 || words < -c.arity) || c.most >= 0 && words > c.most {
		return wrongArity(c)
	}
	if c.spec.Loose {
		return nil
	}
	at, err := in.scanPositional()
	for err == nil && at < len(args) {
		at, err = in.scanOption(at)
	}
	return err
}

func (in *input) scanPositional() (at int, err error) {
	for i := range in.cmd.positional {
		e := &in.cmd.positional[i]
		left := len(in.args) - at
		if e.arg.Optional && left <= e.after {
			continue
		}
		if left <= 0 {
			return at, wrongArity(in.cmd)
		}
		n := 1
		switch {
		case e.counted >= 0:
			if most := int64(left); in.values[e.counted].num > most {
				return at, in.refuseCount(e.counted, most)
			}
			n = int(in.values[e.counted].num)
		case e.arg.Multiple:
			n = left - e.after
		}
		if at, err = in.takeWords(e, at, n); err != nil {
			return at, err
		}
	}
	return at, nil
}

// takeWords gives the next n words to a positional argument.
func (in *input) takeWords(e *element, at, n int) (int, error) {
	v := &in.values[e.slot]
	v.set, v.first, v.count = true, at, n
	if e.arg.Type == OneOf {
		return in.takeOneOf(e, at)
	}
	return at + n, in.number(e.arg, v)
}

// takeOneOf gives the word at at to the member of a positional argument that
// begins with it, or else to the one that has no token.
func (in *input) takeOneOf(e *element, at int) (int, error) {
	for i := range e.members {
		m := &e.members[i]
		if m.arg.Token == "" || isToken(in.args[at], m.arg.Token) {
			if m.arg.Token == "" || m.arg.Type == PureToken {
				in.values[m.slot] = value{set: true, first: at, count: 1}
				return at + 1, nil
			}
			return in.takeOption(m, at)
		}
	}
	return at, in.refuse(in.args[at], "")
}

func (in *input) scanOption(at int) (int, error) {
	word := in.args[at]
	for i := range in.cmd.options {
		e := &in.cmd.options[i]
		if !isToken(word, e.arg.Token) {
			continue
		}
		if in.values[e.slot].set && !e.arg.Multiple {
			return at, in.refuse(word, "is given twice")
		}
		if e.group != 0 {
			for j := range in.cmd.options {
				o := &in.cmd.options[j]
				if o.group == e.group && o.slot != e.slot && in.values[o.slot].set {
					return at, in.refuse(word, "does not go with "+o.arg.Token)
				}
			}
		}
		return in.takeOption(e, at)
	}
	return at, in.refuse(word, "")
}

// takeOption reads what follows the token at at.
func (in *input) takeOption(e *element, at int) (int, error) {
	v := &in.values[e.slot]
	v.set, v.first = true, at+1
	token := in.args[at]
	switch e.arg.Type {
	case PureToken:
		v.first = at
		return at + 1, nil
	case Block:
		v.count = len(e.members)
	case OneOf:
		if at+1 >= len(in.args) {
			return at, in.refuse(token, "needs a value")
		}
		for i := range e.members {
			if m := &e.members[i]; isToken(in.args[at+1], m.arg.Token) {
				return in.takeOption(m, at+1)
			}
		}
		return at, in.refuse(in.args[at+1], "")
	default:
		v.count = 1
	}
	next := at + 1 + v.count
	if next > len(in.args) {
		return at, in.refuse(token, "needs a value")
	}
	if e.arg.Multiple {
		in.occurs = append(in.occurs, occurrence{e.slot, v.first})
	}
	for i := range e.members { // of a block; each is one word
		m := &in.values[e.members[i].slot]
		*m = value{set: true, first: v.first + i, count: 1}
		if err := in.number(e.members[i].arg, m); err != nil {
			return at, err
		}
	}
	return next, in.number(e.arg, v)
}

// number reads the number at v.first, if it is one by its type, and holds an
// integer to the argument's bounds.
func (in *input) number(a *Arg, v *value) error {
	switch a.Type {
	case Integer:
	case Double:
		f, ok := parseDouble(in.args[v.first])
		if !ok {
			return in.refuseNumber(a, in.args[v.first])
		}
		v.float = f
		return nil
	default:
		return nil
	}
	n, ok := parseInt(in.args[v.first])
	if !ok || n < a.Min || n > in.most(a) {
		return in.refuseNumber(a, in.args[v.first])
	}
	v.num = n
	return nil
}

// most returns an integer argument's upper bound.
func (in *input) most(a *Arg) int64 {
	switch a.Max {
	case 0:
		return math.MaxInt64
	case countLimit:
		return int64(in.limits.Count)
	default:
		return a.Max
	}
}

// slot returns where the named argument's value is. A name the Spec does not
// have is a mistake in the code, and every command's test meets it at once.
func (in *input) slot(name string) *value {
	for i, s := range in.cmd.slots {
		if s == name {
			return &in.values[i]
		}
	}
	panic("commands: " + in.cmd.name + " has no argument " + name)
}

// has reports whether the argument was given.
func (in *input) has(name string) bool { return in.slot(name).set }

// bytes returns a one-word argument, nil when it was not given.
func (in *input) bytes(name string) []byte {
	v := in.slot(name)
	if !v.set {
		return nil
	}
	return in.args[v.first]
}

// text returns a one-word argument as a string of its own, which repeated names
// share.
func (in *input) text(name string) string { return in.names.get(in.bytes(name)) }

// filled refuses an option that is given with nothing in it, where that would pass
// for one that is not given; without says what leaving it out means.
func (in *input) filled(name, token, without string) error {
	if in.has(name) && len(in.bytes(name)) == 0 {
		return &refusal{"INVALID", token + " must not be empty; " + without}
	}
	return nil
}

// list returns the words of an argument that may stand for several.
func (in *input) list(name string) [][]byte {
	v := in.slot(name)
	if !v.set {
		return nil
	}
	return in.args[v.first : v.first+v.count]
}

// uses counts how often a repeatable option was given.
func (in *input) uses(name string) int {
	slot, n := in.slotIndex(name), 0
	for _, o := range in.occurs {
		if o.slot == slot {
			n++
		}
	}
	return n
}

func (in *input) slotIndex(name string) int {
	for i, s := range in.cmd.slots {
		if s == name {
			return i
		}
	}
	panic("commands: " + in.cmd.name + " has no argument " + name)
}

// integer returns an integer argument, or otherwise when it was not given.
func (in *input) integer(name string, otherwise int64) int64 {
	if v := in.slot(name); v.set {
		return v.num
	}
	return otherwise
}

// double returns an argument that is a number, nil when it was not given.
func (in *input) double(name string) *float64 {
	v := in.slot(name)
	if !v.set {
		return nil
	}
	f := v.float // a copy: the input is used again
	return &f
}

// natural returns an integer argument that is not negative, nil when it was not
// given.
func (in *input) natural(name string) *uint64 {
	if !in.has(name) {
		return nil
	}
	n := uint64(in.integer(name, 0)) //nolint:gosec // the Spec bounds it
	return &n
}

// millis returns an argument in milliseconds, or otherwise when it was not given.
func (in *input) millis(name string, otherwise time.Duration) time.Duration {
	if v := in.slot(name); v.set {
		return time.Duration(v.num) * time.Millisecond
	}
	return otherwise
}

// millisMax bounds every time a client may give: about a hundred years, so that
// no sum with the present time runs over.
const millisMax = 100 * 365 * 24 * 3600 * 1000

// isToken compares without regard to case; token is in upper case.
func isToken(word []byte, token string) bool {
	if len(word) != len(token) || len(token) == 0 {
		return false
	}
	for i, b := range word {
		if 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != token[i] {
			return false
		}
	}
	return true
}

// parseInt reads a decimal integer as Redis does: no plus sign, no leading
// zero, no blank, so that one number has one form.
func parseInt(b []byte) (int64, bool) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var n uint64
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + uint64(d-'0') // 19 digits fit
	}
	if len(digits) != len(b) {
		return -int64(n), n <= 1<<63
	}
	return int64(n), n <= math.MaxInt64
}

// parseDouble reads a decimal number, with or without an exponent. What is not a
// number or has no end comes back as such: it is well-formed, if not allowed.
func parseDouble(b []byte) (float64, bool) {
	const longest = 64
	if len(b) > longest || bytes.ContainsAny(b, "xXpP_") { // no other base than ten
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

const wrongArityText = "wrong number of arguments for '"

func wrongArity(c *command) error {
	return &refusal{"ERR", wrongArityText + c.name + "' command"}
}

// refuse is a syntax error at near. why continues the sentence; empty means that
// near is nothing the command knows.
func (in *input) refuse(near []byte, why string) error {
	if r := in.cmd.spec.Refuse; r != nil {
		if err := r(near, false); err != nil {
			return err
		}
	}
	if !in.cmd.spec.native() {
		return &refusal{"ERR", "syntax error"}
	}
	text := "syntax error near '" + clip(near) + "'"
	if why != "" {
		text += ", which " + why
	}
	return &refusal{"ERR", text + ", usage: " + in.cmd.usageLine()}
}

func (in *input) refuseNumber(a *Arg, got []byte) error {
	if r := in.cmd.spec.Refuse; r != nil {
		if err := r(got, true); err != nil {
			return err
		}
	}
	if !in.cmd.spec.native() {
		return &refusal{"ERR", "value is not an integer or out of range"}
	}
	name := a.Token
	if name == "" {
		name = a.Name
	}
	if a.Type == Double {
		return &refusal{"ERR", name + " must be a number, not '" + clip(got) + "'"}
	}
	bounds := " must be an integer"
	if a.Min > math.MinInt64 {
		bounds += " from " + strconv.FormatInt(a.Min, 10)
	}
	if most := in.most(a); most == math.MaxInt64 && a.Min > math.MinInt64 {
		bounds += " up"
	} else if most < math.MaxInt64 {
		bounds += " to " + strconv.FormatInt(most, 10)
	}
	return &refusal{"ERR", name + bounds + ", not '" + clip(got) + "'"}
}

func (in *input) refuseCount(slot int, most int64) error {
	v := in.values[slot]
	return &refusal{"ERR", in.cmd.slots[slot] + " is " + strconv.FormatInt(v.num, 10) + " but only " +
		strconv.FormatInt(most, 10) + " arguments follow, usage: " + in.cmd.usageLine()}
}

// echoMax bounds what a refusal repeats of a client's input, as in Redis.
const echoMax = 128

func clip(b []byte) string { return string(b[:min(len(b), echoMax)]) }
