package command

import (
	"slices"
	"strings"
	"sync"

	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

// Command is a Spec made ready for use: what a lookup needs to know, worked out
// once.
type Command[S, C any] struct {
	Syntax

	Spec     *Spec[S, C]
	NoAuth   bool // may be used before AUTH
	ReadOnly bool // changes nothing: it is answered also while a commit does not end
	Audited  bool // its use is logged
	Blocking bool // may wait for messages
	Loading  bool // may be used while the engine recovers
	Index    int  // its place among all commands and subcommands; their number in the rights of users
	Parent   *Command[S, C]
	Subs     []*Command[S, C] // by name; empty unless a container

	subs map[string]*Command[S, C] // by lower case word
	size func() shownBytes
}

// Table is the commands there are.
type Table[S, C any] struct {
	Commands []*Command[S, C] // by name
	All      []*Command[S, C] // by Index: with the subcommands, in the order of their names

	byName map[string]*Command[S, C]
	// What COMMAND and COMMAND DOCS answer about all, by protocol: made once, as some
	// clients ask whenever they connect.
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
	t.infos, t.docs = map[int]func() []byte{}, map[int]func() []byte{}
	for _, proto := range []int{2, 3} {
		t.infos[proto] = sync.OnceValue(func() []byte { return t.render(proto, (*resp.Writer).Array, (*Command[S, C]).WriteInfo) })
		t.docs[proto] = sync.OnceValue(func() []byte { return t.render(proto, (*resp.Writer).Map, (*Command[S, C]).WriteDocs) })
	}
	for _, c := range t.Commands {
		for _, each := range append([]*Command[S, C]{c}, c.Subs...) {
			each.Index = len(t.All)
			t.All = append(t.All, each)
		}
	}
	return t
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

// Executable returns what can be executed: the command, or its subcommands, or both.
func (c *Command[S, C]) Executable() []*Command[S, C] {
	if !c.Spec.Executable() {
		return c.Subs
	}
	return append([]*Command[S, C]{c}, c.Subs...)
}

// Find returns the command of that name in any case, or nil. It allocates nothing.
func (t *Table[S, C]) Find(name []byte) *Command[S, C] { return find(t.byName, name) }

// find finds a name in any case. No name is longer than the buffer, so what
// does not fit into it is not there; a test holds the table to this.
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

// NameMax is how many bytes the name of a command or subcommand has at most.
const NameMax = 32

// Resolve finds a command by the form in which COMMAND INFO and ACLs write it:
// "client" or "client|id".
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

// Lookup finds the command, or the subcommand, with which a line of words begins, and
// returns it with the words behind it.
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
			return c, nil, nil // COMMAND on its own
		}
		return nil, nil, WrongArity(&c.Syntax)
	}
	sub := find(c.subs, words[1])
	if sub == nil {
		return nil, nil, Refuse("ERR", "unknown subcommand '"+Clip(words[1])+"'. Try "+c.Display+" HELP.")
	}
	return sub, words[2:], nil
}

// unknownCommand answers in Redis' own words: client libraries look for them.
func unknownCommand(words [][]byte) error {
	text := []byte("unknown command '")
	text = append(append(text, words[0][:min(len(words[0]), ClipMax)]...), "', with args beginning with: "...)
	for start := len(text); len(words) > 1 && len(text)-start < ClipMax; words = words[1:] {
		room := ClipMax - (len(text) - start)
		text = append(append(append(text, '\''), words[1][:min(len(words[1]), room)]...), "' "...)
	}
	return Refuse("ERR", string(text))
}

// Catalog is the table as the rules of users see it.
func (t *Table[S, C]) Catalog(match func(pattern, name string) bool) *acl.Catalog {
	commands := make([]acl.Command, len(t.All))
	for i, c := range t.All {
		commands[i] = acl.Command{Name: c.Name, Categories: c.Spec.Categories(), Always: c.NoAuth}
	}
	return acl.NewCatalog(commands, AllCategories(), match)
}

// Infos returns what COMMAND answers in a protocol, 2 or 3.
func (t *Table[S, C]) Infos(proto int) []byte { return t.infos[proto]() }

// Docs returns what COMMAND DOCS answers in a protocol, 2 or 3.
func (t *Table[S, C]) Docs(proto int) []byte { return t.docs[proto]() }

// render renders something about all commands.
func (t *Table[S, C]) render(proto int, begin func(*resp.Writer, int), one func(*Command[S, C], *resp.Writer)) []byte {
	w := resp.Writer{Proto: proto}
	begin(&w, len(t.Commands))
	for _, c := range t.Commands {
		one(c, &w)
	}
	return w.Take()
}

// shownBytes is how many bytes of replies describe a command, with its subcommands.
type shownBytes struct{ info, docs int }

// InfoBytes is how many bytes COMMAND INFO takes of the command, with its subcommands.
func (c *Command[S, C]) InfoBytes() int { return c.size().info }

// DocsBytes is the same of COMMAND DOCS.
func (c *Command[S, C]) DocsBytes() int { return c.size().docs }

// measure renders what is shown of a command.
func (c *Command[S, C]) measure() shownBytes {
	size := func(write func(*Command[S, C], *resp.Writer)) int {
		w := resp.Writer{Proto: 3}
		write(c, &w)
		return len(w.Take())
	}
	return shownBytes{info: size((*Command[S, C]).WriteInfo), docs: size((*Command[S, C]).WriteDocs)}
}
