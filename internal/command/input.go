package command

import (
	"slices"
	"time"

	"github.com/faisca/fila/internal/acl"
)

// Input gives access to the arguments of a command line that matches the command's Syntax. Each
// session has one and reuses it: a call may retain the bytes of an argument, but not the Input.
type Input struct {
	Cmd  *Syntax
	Args [][]byte // after the name
	// CountMax is the maximum of arguments with the bound CountLimit.
	CountMax int64
	// User is a snapshot of the user's rights when the command was read; nil if unrestricted.
	User *acl.User

	values []value // by slot
	uses   []use
	names  nameCache
	texts  []string // last result of Texts, if short
}

// value is the value of one argument.
type value struct {
	set   bool
	first int     // index in Args; of an option that of the word after the token
	count int     // number of words
	num   int64   // of an integer
	float float64 // of a double; may be NaN or infinite, which the engine refuses
}

// use is one use of an option that may be repeated.
type use struct{ slot, first int }

// Release drops the arguments, which may be large.
func (in *Input) Release() { in.Cmd, in.Args, in.User = nil, nil, nil }

// Size returns the bytes of all arguments.
func (in *Input) Size() (n int) {
	for _, a := range in.Args {
		n += len(a)
	}
	return n
}

// slot returns the index of the named argument's value. An unknown name is a programming error that
// every test of the command finds.
func (in *Input) slot(name string) int {
	for i, s := range in.Cmd.slots {
		if s == name {
			return i
		}
	}
	panic("commands: " + in.Cmd.Name + " has no argument " + name)
}

func (in *Input) value(name string) *value { return &in.values[in.slot(name)] }

// Has reports whether the argument is present. An argument is named by its token in lower case, or by
// its name if it has none; a member of a choice with a token by both, as in "group.error".
func (in *Input) Has(name string) bool { return in.value(name).set }

// Bytes returns a one-word argument, or nil if it is absent.
func (in *Input) Bytes(name string) []byte {
	v := in.value(name)
	if !v.set {
		return nil
	}
	return in.Args[v.first]
}

// Text returns a one-word argument as a string. Repeated names share one string.
func (in *Input) Text(name string) string { return in.names.get(in.Bytes(name)) }

// Intern returns bytes as a string. Repeated names share one string.
func (in *Input) Intern(b []byte) string { return in.names.get(b) }

// Filled refuses an option with an empty value. without explains what omitting the option means.
func (in *Input) Filled(name, token, without string) error {
	if in.Has(name) && len(in.Bytes(name)) == 0 {
		return Refuse("INVALID", token+" must not be empty; "+without)
	}
	return nil
}

// List returns the words of an argument that may consist of several.
func (in *Input) List(name string) [][]byte {
	v := in.value(name)
	if !v.set {
		return nil
	}
	return in.Args[v.first : v.first+v.count]
}

// Uses returns how often a repeatable option is present.
func (in *Input) Uses(name string) int {
	slot, n := in.slot(name), 0
	for _, u := range in.uses {
		if u.slot == slot {
			n++
		}
	}
	return n
}

// Each calls fn for each use of a repeatable option, with the arguments from its value on.
func (in *Input) Each(name string, fn func(words [][]byte)) {
	slot := in.slot(name)
	for _, u := range in.uses {
		if u.slot == slot {
			fn(in.Args[u.first:])
		}
	}
}

// Texts returns the values of a repeatable option. Consecutive commands with the same values share
// the list, which must not be modified.
func (in *Input) Texts(name string) []string {
	n := in.Uses(name)
	if n == 0 {
		return nil
	}
	var few [4]string
	list, slot := few[:0], in.slot(name)
	for _, u := range in.uses {
		if u.slot == slot {
			list = append(list, in.names.get(in.Args[u.first]))
		}
	}
	if n > len(few) || slices.ContainsFunc(list, func(text string) bool { return len(text) > nameCacheMax }) {
		return slices.Clone(list) // too large to cache for a connection
	}
	if !slices.Equal(list, in.texts) {
		in.texts = slices.Clone(list)
	}
	return in.texts
}

// Integer returns an integer argument, or otherwise if it is absent.
func (in *Input) Integer(name string, otherwise int64) int64 {
	if v := in.value(name); v.set {
		return v.num
	}
	return otherwise
}

// Amount returns the value of an integer, nil if it is absent.
func (in *Input) Amount(name string) *int64 {
	if !in.Has(name) {
		return nil
	}
	n := in.Integer(name, 0)
	return &n
}

// Given returns a text that may be empty, nil if it is absent.
func (in *Input) Given(name string) *string {
	if !in.Has(name) {
		return nil
	}
	s := string(in.Bytes(name))
	return &s
}

// Double returns a floating-point argument, or nil if it is absent.
func (in *Input) Double(name string) *float64 {
	v := in.value(name)
	if !v.set {
		return nil
	}
	f := v.float // a copy, since the input is reused
	return &f
}

// Natural returns a non-negative integer argument, or nil if it is absent.
func (in *Input) Natural(name string) *uint64 {
	if !in.Has(name) {
		return nil
	}
	n := uint64(in.Integer(name, 0))
	return &n
}

// Millis returns an argument in milliseconds as a duration, or otherwise if it is absent.
func (in *Input) Millis(name string, otherwise time.Duration) time.Duration {
	if v := in.value(name); v.set {
		return time.Duration(v.num) * time.Millisecond
	}
	return otherwise
}

// Keys returns the queues named in the command line.
func (in *Input) Keys() [][]byte {
	var keys [][]byte
	for _, elements := range [][]element{in.Cmd.positional, in.Cmd.options} {
		for i := range elements {
			e := &elements[i]
			v := in.values[e.slot]
			if e.arg.Type != Key || !v.set {
				continue
			}
			keys = append(keys, in.Args[v.first:v.first+v.count]...)
		}
	}
	return keys
}
