package command

import (
	"slices"
	"strings"
	"sync"

	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

// Command is a compiled Spec.
type Command[S, C any] struct {
	Syntax

	Spec     *Spec[S, C]
	NoAuth   bool // may be used before AUTH
	ReadOnly bool // answered even while a commit stalls
	Audited  bool // its use is logged
	Blocking bool // may wait for messages
	Loading  bool // may be used while the engine recovers
	Index    int  // index among all commands and subcommands, which the rights of users refer to
	Parent   *Command[S, C]
	Subs     []*Command[S, C] // sorted by name; empty unless it is a container

	subs map[string]*Command[S, C] // by lower case word
	size func() shownBytes
}

// Table is a compiled table of commands.
type Table[S, C any] struct {
	Commands []*Command[S, C] // sorted by name
	All      []*Command[S, C] // by Index: all commands and subcommands, sorted by name

	byName map[string]*Command[S, C]
	// Replies of COMMAND and COMMAND DOCS about all commands, by protocol. They are rendered once,
	// because some clients request them on each connection.
	infos, docs map[int]func() []byte
}

// New compiles a table.
func New[S, C any](specs []Spec[S, C]) *Table[S, C] {
	t := &Table[S, C]{byName: make(map[string]*Command[S, C], len(specs))}
	for i := range specs {
		c := compile(&specs[i], nil)
		t.byName[c.Name] = c
		t.Commands = append(t.Commands, c)
	}
	sortByName(t.Commands)
	t.rendering()
	for _, c := range t.Commands {
		for _, each := range append([]*Command[S, C]{c}, c.Subs...) {
			each.Index = len(t.All)
			t.All = append(t.All, each)
		}
	}
	return t
}

// Only returns a table of those commands that keep accepts, with their subcommands. They are the same
// values, and have the indexes that they have in t: All is that of t.
func (t *Table[S, C]) Only(keep func(*Command[S, C]) bool) *Table[S, C] {
	some := &Table[S, C]{byName: map[string]*Command[S, C]{}, All: t.All}
	for _, c := range t.Commands {
		if keep(c) {
			some.byName[c.Name] = c
			some.Commands = append(some.Commands, c)
		}
	}
	some.rendering()
	return some
}

// rendering prepares the replies about all commands.
func (t *Table[S, C]) rendering() {
	t.infos, t.docs = map[int]func() []byte{}, map[int]func() []byte{}
	for _, proto := range []int{2, 3} {
		t.infos[proto] = sync.OnceValue(func() []byte { return t.render(proto, (*resp.Writer).Array, (*Command[S, C]).WriteInfo) })
		t.docs[proto] = sync.OnceValue(func() []byte { return t.render(proto, (*resp.Writer).Map, (*Command[S, C]).WriteDocs) })
	}
}

func sortByName[S, C any](list []*Command[S, C]) {
	slices.SortFunc(list, func(a, b *Command[S, C]) int { return strings.Compare(a.Name, b.Name) })
}

func compile[S, C any](s *Spec[S, C], parent *Command[S, C]) *Command[S, C] {
	c := &Command[S, C]{Spec: s, Parent: parent}
	c.size = sync.OnceValue(c.measure)
	c.Name, c.Display, c.Words = strings.ToLower(s.Name), s.Name, 1
	if parent != nil {
		c.Name, c.Display, c.Words = parent.Name+"|"+c.Name, parent.Display+" "+s.Name, 2
	}
	c.Blocking, c.NoAuth, c.Loading = s.Has("blocking"), s.Has("no_auth"), s.Has("loading")
	c.ReadOnly = s.Has("readonly") || s.Has("stale") && !s.Has("admin")
	c.Audited = !s.Quiet && slices.Contains(s.Categories(), "admin")
	c.Arity = s.arity(c.Words)
	c.usage, c.refuse, c.fills, c.loose = s.usage(), s.Refuse, s.Fills, s.Loose
	c.native, c.reads, c.needs = s.Native(), s.Has("readonly"), s.Access
	if len(s.Subcommands) == 0 {
		c.compile(s.Args)
		return c
	}
	c.most, c.subs = -1, make(map[string]*Command[S, C], len(s.Subcommands))
	for i := range s.Subcommands {
		sub := compile(&s.Subcommands[i], c)
		c.subs[strings.ToLower(s.Subcommands[i].Name)] = sub
		c.Subs = append(c.Subs, sub)
	}
	sortByName(c.Subs)
	return c
}

// Executable returns the command, its subcommands, or both: those that can be executed.
func (c *Command[S, C]) Executable() []*Command[S, C] {
	if !c.Spec.Executable() {
		return c.Subs
	}
	return append([]*Command[S, C]{c}, c.Subs...)
}

// Find returns the command with a name, ignoring case, or nil. It does not allocate.
func (t *Table[S, C]) Find(name []byte) *Command[S, C] { return find(t.byName, name) }

// find looks a name up, ignoring case. A test ensures that no name is longer than the buffer.
func find[S, C any](table map[string]*Command[S, C], name []byte) *Command[S, C] {
	var buf [NameMax]byte
	if len(name) > len(buf) {
		return nil
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		buf[i] = b
	}
	return table[string(buf[:len(name)])]
}

// NameMax is the greatest length in bytes of the name of a command or subcommand.
const NameMax = 32

// Resolve returns the command with a name in the form of COMMAND INFO and ACL rules: "client" or
// "client|id".
func (t *Table[S, C]) Resolve(name []byte) *Command[S, C] {
	for i, b := range name {
		if b != '|' {
			continue
		}
		if c := t.Find(name[:i]); c != nil {
			return find(c.subs, name[i+1:])
		}
		return nil
	}
	return t.Find(name)
}

// Lookup returns the command or subcommand at the beginning of a command line, and its arguments.
func (t *Table[S, C]) Lookup(words [][]byte) (*Command[S, C], [][]byte, error) {
	c := t.Find(words[0])
	if c == nil {
		return nil, nil, unknownCommand(words)
	}
	if c.subs == nil {
		return c, words[1:], nil
	}
	if len(words) < 2 {
		if c.Spec.Executable() {
			return c, nil, nil // COMMAND without a subcommand
		}
		return nil, nil, WrongArity(&c.Syntax)
	}
	sub := find(c.subs, words[1])
	if sub == nil {
		return nil, nil, Refuse("ERR", "unknown subcommand '"+Clip(words[1])+"'. Try "+c.Display+" HELP.")
	}
	return sub, words[2:], nil
}

// unknownCommand returns Redis' error, whose text client libraries look for.
func unknownCommand(words [][]byte) error {
	text := []byte("unknown command '")
	text = append(append(text, words[0][:min(len(words[0]), ClipMax)]...), "', with args beginning with: "...)
	for start := len(text); len(words) > 1 && len(text)-start < ClipMax; words = words[1:] {
		room := ClipMax - (len(text) - start)
		text = append(append(append(text, '\''), words[1][:min(len(words[1]), room)]...), "' "...)
	}
	return Refuse("ERR", string(text))
}

// Catalog returns the names and categories of commands that the rules of users refer to.
func (t *Table[S, C]) Catalog(match func(pattern, name string) bool) *acl.Catalog {
	commands := make([]acl.Command, len(t.All))
	for i, c := range t.All {
		commands[i] = acl.Command{Name: c.Name, Categories: c.Spec.Categories(), Always: c.NoAuth || c.Spec.Unasked}
	}
	return acl.NewCatalog(commands, AllCategories(), match)
}

// Infos returns the reply of COMMAND in protocol 2 or 3.
func (t *Table[S, C]) Infos(proto int) []byte { return t.infos[proto]() }

// Docs returns the reply of COMMAND DOCS in protocol 2 or 3.
func (t *Table[S, C]) Docs(proto int) []byte { return t.docs[proto]() }

// render renders a reply about all commands.
func (t *Table[S, C]) render(proto int, begin func(*resp.Writer, int), one func(*Command[S, C], *resp.Writer)) []byte {
	w := resp.Writer{Proto: proto}
	begin(&w, len(t.Commands))
	for _, c := range t.Commands {
		one(c, &w)
	}
	return w.Take()
}

// shownBytes are the sizes of the descriptions of a command with its subcommands.
type shownBytes struct{ info, docs int }

// InfoBytes returns the size of COMMAND INFO for the command with its subcommands.
func (c *Command[S, C]) InfoBytes() int { return c.size().info }

// DocsBytes returns the same for COMMAND DOCS.
func (c *Command[S, C]) DocsBytes() int { return c.size().docs }

// measure computes the sizes by rendering.
func (c *Command[S, C]) measure() shownBytes {
	size := func(write func(*Command[S, C], *resp.Writer)) int {
		w := resp.Writer{Proto: 3}
		write(c, &w)
		return len(w.Take())
	}
	return shownBytes{info: size((*Command[S, C]).WriteInfo), docs: size((*Command[S, C]).WriteDocs)}
}
