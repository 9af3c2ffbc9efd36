package commands

import (
	"slices"
	"strings"
	"sync"

	"github.com/faisca/fila/resp"
)

// command is a Spec made ready for use: what a lookup needs to know and what
// scan goes by, worked out once.
type command struct {
	spec     *Spec
	name     string // lower case with its container: "fila.queue|create"
	display  string // as a user types it: "FILA.QUEUE CREATE"
	words    int    // that name it: 1, or 2 for a subcommand
	arity    int    // as Redis counts: with the name, negative when there may be more
	most     int    // words at most, -1: no bound
	noAuth   bool   // may be used before AUTH
	looks    bool   // changes nothing: it is answered also while a commit does not end
	audited  bool   // its use is logged
	waits    bool   // may wait for messages
	loading  bool   // may be used while the engine recovers
	index    int    // its place among all commands and subcommands; their number in the rights of users
	parent   *command
	subs     map[string]*command // by lower case word; nil unless a container
	subOrder []*command          // by name

	positional []element
	options    []element
	slots      []string // names of the values, by their place in input.values
	guarded    []guard  // the values that need a right

	shown func() shownBytes
}

// guard is a value that names queues or channels, and what it needs.
type guard struct {
	slot   int
	access Access
}

// element is an argument with its place among the values.
type element struct {
	arg     *Arg
	slot    int
	counted int       // slot of the argument that counts this one, -1: none
	group   int       // elements of one group exclude each other; 0: no group
	after   int       // words that the arguments behind it require
	members []element // of a block or oneof
}

// registry is the compiled table.
type registry struct {
	byName map[string]*command
	order  []*command // by name
	all    []*command // by index: with the subcommands, in the order of their names
	// What COMMAND and COMMAND DOCS answer about all, by protocol: made once, as some
	// clients ask whenever they connect.
	infos, docs map[int]func() []byte
}

func newRegistry(specs []Spec) *registry {
	r := &registry{byName: make(map[string]*command, len(specs))}
	for i := range specs {
		c := compile(&specs[i], nil)
		r.byName[c.name] = c
		r.order = append(r.order, c)
	}
	slices.SortFunc(r.order, func(a, b *command) int { return strings.Compare(a.name, b.name) })
	r.infos, r.docs = map[int]func() []byte{}, map[int]func() []byte{}
	for _, proto := range []int{2, 3} {
		r.infos[proto] = sync.OnceValue(func() []byte { return r.render(proto, (*resp.Writer).Array, writeCommand) })
		r.docs[proto] = sync.OnceValue(func() []byte { return r.render(proto, (*resp.Writer).Map, writeDocs) })
	}
	for _, c := range r.order {
		for _, each := range append([]*command{c}, c.subOrder...) {
			each.index = len(r.all)
			r.all = append(r.all, each)
		}
	}
	return r
}

// render renders something about all commands.
func (r *registry) render(proto int, begin func(*resp.Writer, int), one func(*resp.Writer, *command)) []byte {
	w := resp.Writer{Proto: proto}
	begin(&w, len(r.order))
	for _, c := range r.order {
		one(&w, c)
	}
	return w.Take()
}

// find returns the command of that name in any case, or nil. It allocates nothing.
func (r *registry) find(name []byte) *command { return lookup(r.byName, name) }

// lookup finds a name in any case. No name is longer than the buffer, so what
// does not fit into it is not there; a test holds the table to this.
func lookup(table map[string]*command, name []byte) *command {
	var buf [nameMax]byte
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

const nameMax = 32 // bytes of a command's or subcommand's name

// resolve finds a command by the form in which COMMAND INFO and ACLs write it:
// "client" or "client|id".
func (r *registry) resolve(name []byte) *command {
	for i, b := range name {
		if b != '|' {
			continue
		}
		if c := r.find(name[:i]); c != nil {
			return lookup(c.subs, name[i+1:])
		}
		return nil
	}
	return r.find(name)
}

func compile(s *Spec, parent *command) *command {
	c := &command{spec: s, name: strings.ToLower(s.Name), display: s.Name, words: 1, parent: parent}
	c.shown = sync.OnceValue(c.measure)
	if parent != nil {
		c.name, c.display, c.words = parent.name+"|"+c.name, parent.display+" "+s.Name, 2
	}
	c.waits = s.has("blocking")
	c.noAuth, c.loading = s.has("no_auth"), s.has("loading")
	c.looks = s.has("readonly") || s.has("stale") && !s.has("admin")
	c.audited = !s.Quiet && slices.Contains(s.categories(), "admin")
	c.arity = s.arity(c.words)
	if len(s.Subcommands) > 0 {
		c.most, c.subs = -1, make(map[string]*command, len(s.Subcommands))
		for i := range s.Subcommands {
			sub := compile(&s.Subcommands[i], c)
			c.subs[strings.ToLower(s.Subcommands[i].Name)] = sub
			c.subOrder = append(c.subOrder, sub)
		}
		slices.SortFunc(c.subOrder, func(a, b *command) int { return strings.Compare(a.name, b.name) })
		return c
	}
	c.place(s.Args)
	c.most = c.words
	for i := range c.positional {
		if c.positional[i].arg.Multiple {
			c.most = -1
			break
		}
		c.most += c.positional[i].arg.longest()
	}
	if len(c.options) > 0 || s.Loose {
		c.most = -1
	}
	after := 0
	for i := len(c.positional) - 1; i >= 0; i-- {
		c.positional[i].after = after
		after += c.positional[i].arg.required()
	}
	return c
}

// place sorts the arguments into those that have a position and those that have
// a token, and gives each value a slot.
func (c *command) place(args []Arg) {
	for i := range args {
		a := &args[i]
		switch {
		case a.splits():
			inner := slices.Clone(a.Args)
			for j := range inner {
				inner[j].Optional = inner[j].Optional || a.Optional
			}
			c.place(inner)
		case a.isOption() && a.Type == OneOf && a.Token == "":
			group := len(c.options) + 1
			for j := range a.Args {
				e := c.element(&a.Args[j])
				e.group = group
				c.options = append(c.options, e)
			}
		case a.isOption():
			c.options = append(c.options, c.element(a))
		default:
			c.positional = append(c.positional, c.element(a))
		}
	}
}

func (c *command) element(a *Arg) element {
	e := element{arg: a, slot: len(c.slots), counted: -1}
	if a.CountedBy != "" {
		e.counted = slices.Index(c.slots, a.CountedBy)
	}
	c.slots = append(c.slots, a.slot())
	if access := a.access(c.spec); access != ByFlags {
		c.guarded = append(c.guarded, guard{e.slot, access})
	}
	for i := range a.Args {
		e.members = append(e.members, c.element(&a.Args[i]))
	}
	return e
}

// access returns what the argument needs in that command.
func (a *Arg) access(s *Spec) Access {
	switch {
	case a.Access != ByFlags || a.Type != Key:
		return a.Access
	case s.Access != ByFlags:
		return s.Access
	case s.has("readonly"):
		return Consume
	default:
		return Manage
	}
}

// usageLine returns how the whole command is written, as refusals show it.
func (c *command) usageLine() string {
	if u := c.spec.usage(); u != "" {
		return c.display + " " + u
	}
	return c.display
}

// shownBytes is how many bytes of replies describe a command, with its subcommands.
type shownBytes struct{ info, docs, name int }

func (c *command) infoBytes() int { return c.shown().info }
func (c *command) docsBytes() int { return c.shown().docs }
func (c *command) nameBytes() int { return c.shown().name }

// measure renders what is shown of a command.
func (c *command) measure() shownBytes {
	size := func(write func(*resp.Writer, *command)) int {
		w := resp.Writer{Proto: 3}
		write(&w, c)
		return len(w.Take())
	}
	n := shownBytes{info: size(writeCommand), docs: size(writeDocs), name: len(c.name) + perWord}
	for _, sub := range c.subOrder {
		n.name += len(sub.name) + perWord
	}
	return n
}

// histogramBytes is what LATENCY HISTOGRAM shows of a command, with its subcommands.
func (c *command) histogramBytes() int {
	const steps, each = bucketCount / 4, 48
	return (1 + len(c.subOrder)) * (nameMax*2 + perWord + steps*each)
}
