package command

import (
	"slices"
	"time"

	"github.com/faisca/fila/internal/acl"
)

// Input is what a command was called with, once it has been found to agree with
// the command's Syntax. It belongs to one session and is used again for every
// command: a call may keep the bytes of an argument, which are the command's own,
// but not the Input.
type Input struct {
	Cmd  *Syntax
	Args [][]byte // behind the name
	// CountMax is the most that an argument with the bound CountLimit may ask for.
	CountMax int64
	// User is what the user's rights were when the command was read; nil:
	// unrestricted.
	User *acl.User

	values []value // by slot
	uses   []use
	names  nameCache
	texts  []string // the last list that Texts has returned, if it was short
}

// value is what was given for one argument.
type value struct {
	set   bool
	first int     // in Args; of an option the word behind the token
	count int     // words
	num   int64   // of an integer
	float float64 // of a double; also not a number or infinite, which is for the engine to refuse
}

// use is one use of an option that may be repeated.
type use struct{ slot, first int }

// Release drops the arguments, which may be large, until the next Scan.
func (in *Input) Release() { in.Cmd, in.Args, in.User = nil, nil, nil }

// slot returns the place of the named argument among the values. A name that the
// Spec does not have is a mistake in the code, which each test of the command meets.
func (in *Input) slot(name string) int {
	for i, s := range in.Cmd.slots {
		if s == name {
			return i
		}
	}
	panic("commands: " + in.Cmd.Name + " has no argument " + name)
}

func (in *Input) value(name string) *value { return &in.values[in.slot(name)] }

// Has reports whether the argument was given. Arguments are asked for by their
// token in lower case, else by their name; the members of a choice that has a token
// by both, as in "group.error".
func (in *Input) Has(name string) bool { return in.value(name).set }

// Bytes returns a one-word argument, nil when it was not given.
func (in *Input) Bytes(name string) []byte {
	v := in.value(name)
	if !v.set {
		return nil
	}
	return in.Args[v.first]
}

// Text returns a one-word argument as a string of its own, which repeated names
// share.
func (in *Input) Text(name string) string { return in.names.get(in.Bytes(name)) }

// Intern returns bytes as a string that repeated names share.
func (in *Input) Intern(b []byte) string { return in.names.get(b) }

// Filled refuses an option that is given with nothing in it, where that would pass
// for one that is not given; without says what leaving it out means.
func (in *Input) Filled(name, token, without string) error {
	if in.Has(name) && len(in.Bytes(name)) == 0 {
		return Refuse("INVALID", token+" must not be empty; "+without)
	}
	return nil
}

// List returns the words of an argument that may stand for several.
func (in *Input) List(name string) [][]byte {
	v := in.value(name)
	if !v.set {
		return nil
	}
	return in.Args[v.first : v.first+v.count]
}

// Uses counts how often a repeatable option was given.
func (in *Input) Uses(name string) int {
	slot, n := in.slot(name), 0
	for _, u := range in.uses {
		if u.slot == slot {
			n++
		}
	}
	return n
}

// Each calls fn for each use of a repeatable option, with the words from its value on.
func (in *Input) Each(name string, fn func(words [][]byte)) {
	slot := in.slot(name)
	for _, u := range in.uses {
		if u.slot == slot {
			fn(in.Args[u.first:])
		}
	}
}

// Texts returns the values of a repeatable option. Commands that give the same ones
// in a row share the list: it must not be changed.
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
		return slices.Clone(list) // too much for a connection to keep
	}
	if !slices.Equal(list, in.texts) {
		in.texts = slices.Clone(list)
	}
	return in.texts
}

// Integer returns an integer argument, or otherwise when it was not given.
func (in *Input) Integer(name string, otherwise int64) int64 {
	if v := in.value(name); v.set {
		return v.num
	}
	return otherwise
}

// Double returns an argument that is a number, nil when it was not given.
func (in *Input) Double(name string) *float64 {
	v := in.value(name)
	if !v.set {
		return nil
	}
	f := v.float // a copy: the input is used again
	return &f
}

// Natural returns an integer argument that is not negative, nil when it was not
// given.
func (in *Input) Natural(name string) *uint64 {
	if !in.Has(name) {
		return nil
	}
	n := uint64(in.Integer(name, 0)) //nolint:gosec // the Spec bounds it
	return &n
}

// Millis returns an argument in milliseconds, or otherwise when it was not given.
func (in *Input) Millis(name string, otherwise time.Duration) time.Duration {
	if v := in.value(name); v.set {
		return time.Duration(v.num) * time.Millisecond
	}
	return otherwise
}

// NamedKey is a queue in a command line, and what the command does to it, in the
// words of COMMAND INFO.
type NamedKey struct {
	Name  []byte
	Flags []string
}

// Keys returns the queues that the command line names.
func (in *Input) Keys() []NamedKey {
	var keys []NamedKey
	for _, elements := range [][]element{in.Cmd.positional, in.Cmd.options} {
		for i := range elements {
			e := &elements[i]
			v := in.values[e.slot]
			if e.arg.Type != Key || !v.set {
				continue
			}
			for _, name := range in.Args[v.first : v.first+v.count] {
				keys = append(keys, NamedKey{name, in.Cmd.keyFlags(e.arg)})
			}
		}
	}
	return keys
}
