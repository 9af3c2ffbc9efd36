package command

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

// Scan checks the arguments of a command against its syntax and assigns them to values.
func (in *Input) Scan(c *Syntax, args [][]byte) error {
	in.Cmd, in.Args, in.uses = c, args, in.uses[:0]
	if cap(in.values) < len(c.slots) {
		in.values = make([]value, len(c.slots))
	}
	in.values = in.values[:len(c.slots)]
	clear(in.values)
	words := len(args) + c.Words
	if words != c.Arity && (c.Arity > 0 || words < -c.Arity) || c.most >= 0 && words > c.most {
		return WrongArity(c)
	}
	if c.loose {
		return nil
	}
	at, err := in.scanPositional()
	for err == nil && at < len(args) {
		at, err = in.scanOption(at)
	}
	return err
}

func (in *Input) scanPositional() (at int, err error) {
	for i := range in.Cmd.positional {
		e := &in.Cmd.positional[i]
		left := len(in.Args) - at
		if e.arg.Optional && (left <= e.after || e.arg.numeric() && !e.arg.leads && in.isOption(in.Args[at]) || e.arg.Type == Key && in.isOnlyOption(in.Args[at:])) {
			continue
		}
		if left <= 0 {
			return at, WrongArity(in.Cmd)
		}
		n := 1
		switch {
		case e.counted >= 0:
			if most := int64(left); in.values[e.counted].num > most {
				return at, in.refuseCount(e.counted, most)
			}
			n = int(in.values[e.counted].num)
		case e.arg.Multiple:
			n = in.wordsBeforeOption(at, left-e.after)
		}
		if at, err = in.takeWords(e, at, n); err != nil {
			return at, err
		}
	}
	return at, nil
}

// wordsBeforeOption returns how many of the next words, at most n and at least one, belong to an
// argument with one or more values: it ends at the first word that is the token of an option.
func (in *Input) wordsBeforeOption(at, n int) int {
	if len(in.Cmd.options) > 0 {
		for i := 1; i < n; i++ {
			if in.isOption(in.Args[at+i]) {
				return i
			}
		}
	}
	return n
}

// isOption reports whether a word is the token of an option. A number never is.
func (in *Input) isOption(word []byte) bool {
	for i := range in.Cmd.options {
		if IsToken(word, in.Cmd.options[i].arg.Token) {
			return true
		}
	}
	return false
}

// isOnlyOption reports whether words are one option and its value. Two words cannot be a queue and an option with a value, so
// a queue may have the name of an option.
func (in *Input) isOnlyOption(words [][]byte) bool {
	return len(words) == 2 && in.isOption(words[0]) && !in.isOption(words[1])
}

// takeWords assigns the next n words to a positional argument.
func (in *Input) takeWords(e *element, at, n int) (int, error) {
	v := &in.values[e.slot]
	v.set, v.first, v.count = true, at, n
	if e.arg.Type == OneOf {
		return in.takeOneOf(e, at)
	}
	return at + n, in.number(e.arg, v)
}

// takeOneOf assigns the word at at to the member of a choice that has it as its token, or else to the
// member without a token.
func (in *Input) takeOneOf(e *element, at int) (int, error) {
	for i := range e.members {
		m := &e.members[i]
		if m.arg.Token == "" || IsToken(in.Args[at], m.arg.Token) {
			if m.arg.Token == "" || m.arg.Type == PureToken {
				in.values[m.slot] = value{set: true, first: at, count: 1}
				return at + 1, nil
			}
			return in.takeOption(m, at)
		}
	}
	return at, in.Refuse(in.Args[at], "")
}

func (in *Input) scanOption(at int) (int, error) {
	word := in.Args[at]
	for i := range in.Cmd.options {
		e := &in.Cmd.options[i]
		if !IsToken(word, e.arg.Token) {
			continue
		}
		if in.values[e.slot].set && !e.arg.Multiple {
			return at, in.Refuse(word, "is given twice")
		}
		if e.group != 0 {
			for j := range in.Cmd.options {
				o := &in.Cmd.options[j]
				if o.group == e.group && o.slot != e.slot && in.values[o.slot].set {
					return at, in.Refuse(word, "does not go with "+o.arg.Token)
				}
			}
		}
		return in.takeOption(e, at)
	}
	return at, in.Refuse(word, "")
}

// takeOption scans the option whose token is at at.
func (in *Input) takeOption(e *element, at int) (int, error) {
	v := &in.values[e.slot]
	v.set, v.first = true, at+1
	token := in.Args[at]
	switch e.arg.Type {
	case PureToken:
		v.first = at
		return at + 1, nil
	case Block:
		v.count = len(e.members)
	case OneOf:
		if at+1 >= len(in.Args) {
			return at, in.Refuse(token, "needs a value")
		}
		for i := range e.members {
			if m := &e.members[i]; IsToken(in.Args[at+1], m.arg.Token) {
				return in.takeOption(m, at+1)
			}
		}
		return at, in.Refuse(in.Args[at+1], "")
	default:
		v.count = 1
	}
	next := at + 1 + v.count
	if next > len(in.Args) {
		return at, in.Refuse(token, "needs a value")
	}
	if e.arg.Multiple {
		in.uses = append(in.uses, use{e.slot, v.first})
	}
	for i := range e.members { // of a block, each of one word
		m := &in.values[e.members[i].slot]
		*m = value{set: true, first: v.first + i, count: 1}
		if err := in.number(e.members[i].arg, m); err != nil {
			return at, err
		}
	}
	return next, in.number(e.arg, v)
}

// number parses the word at v.first if the argument is numeric, and checks the bounds of an integer.
func (in *Input) number(a *Arg, v *value) error {
	switch a.Type {
	case Integer:
	case Double:
		f, ok := parseDouble(in.Args[v.first])
		if !ok {
			return in.refuseNumber(a, in.Args[v.first])
		}
		v.float = f
		return nil
	default:
		return nil
	}
	n, ok := ParseInt(in.Args[v.first])
	if !ok || n < a.Min || n > in.most(a) {
		return in.refuseNumber(a, in.Args[v.first])
	}
	v.num = n
	return nil
}

// most returns the upper bound of an integer argument.
func (in *Input) most(a *Arg) int64 {
	switch a.Max {
	case 0:
		return math.MaxInt64
	case CountLimit:
		return in.CountMax
	default:
		return a.Max
	}
}

// IsToken reports whether a word equals token, which is in upper case, ignoring case.
func IsToken(word []byte, token string) bool {
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

// ParseInt parses a decimal integer as Redis does, without plus sign, leading zeros and blanks, so that
// a number has only one form.
func ParseInt(b []byte) (int64, bool) {
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

// parseDouble parses a decimal number with an optional exponent, NaN or infinity. The caller decides
// whether it accepts the latter.
func parseDouble(b []byte) (float64, bool) {
	const longest = 64
	if len(b) > longest || bytes.ContainsAny(b, "xXpP_") { // decimal only
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}
