package command

import "slices"

// Syntax is how a command is written: what Scan goes by, worked out once.
type Syntax struct {
	Name    string // lower case with its container: "fila.queue|create"
	Display string // as a user types it: "FILA.QUEUE CREATE"
	Words   int    // that name it: 1, or 2 for a subcommand
	Arity   int    // as Redis counts: with the name, negative when there may be more

	most       int // words at most, -1: no bound
	positional []element
	options    []element
	slots      []string // names of the values, by their place in Input.values
	guarded    []guard  // the values that need a right

	// Of the Spec.
	usage  string
	refuse func(near []byte, integer bool) error
	fills  func(in *Input) []string
	loose  bool
	native bool
	reads  bool // has the flag readonly
	needs  Access
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

// guard is a value that names queues or channels, and what it needs.
type guard struct {
	slot   int
	access Access
}

// UsageLine returns how the whole command is written, as refusals show it.
func (x *Syntax) UsageLine() string {
	if x.usage != "" {
		return x.Display + " " + x.usage
	}
	return x.Display
}

// Usage returns the arguments as one line, such as
// "queue receipt [ERROR text] [DELAY ms] [DEAD]".
func (x *Syntax) Usage() string { return x.usage }

// compile places the arguments of a command that is no container.
func (x *Syntax) compile(args []Arg) {
	x.place(args)
	x.most = x.Words
	for i := range x.positional {
		if x.positional[i].arg.Multiple {
			x.most = -1
			break
		}
		x.most += x.positional[i].arg.longest()
	}
	if len(x.options) > 0 || x.loose {
		x.most = -1
	}
	after := 0
	for i := len(x.positional) - 1; i >= 0; i-- {
		x.positional[i].after = after
		after += x.positional[i].arg.required()
	}
}

// place sorts the arguments into those that have a position and those that have
// a token, and gives each value a slot.
func (x *Syntax) place(args []Arg) {
	for i := range args {
		a := &args[i]
		switch {
		case a.splits():
			inner := slices.Clone(a.Args)
			for j := range inner {
				inner[j].Optional = inner[j].Optional || a.Optional
			}
			x.place(inner)
		case a.isOption() && a.Type == OneOf && a.Token == "":
			group := len(x.options) + 1
			for j := range a.Args {
				e := x.element(&a.Args[j], nil)
				e.group = group
				x.options = append(x.options, e)
			}
		case a.isOption():
			x.options = append(x.options, x.element(a, nil))
		default:
			x.positional = append(x.positional, x.element(a, nil))
		}
	}
}

// element gives an argument a slot, and its members behind it. choice is the argument
// that it is a member of, nil for one that stands by itself.
func (x *Syntax) element(a, choice *Arg) element {
	e := element{arg: a, slot: len(x.slots), counted: -1}
	if a.CountedBy != "" {
		e.counted = slices.Index(x.slots, a.CountedBy)
	}
	x.slots = append(x.slots, a.slot(choice))
	if access := x.access(a); access != ByFlags {
		x.guarded = append(x.guarded, guard{e.slot, access})
	}
	for i := range a.Args {
		e.members = append(e.members, x.element(&a.Args[i], a))
	}
	return e
}

// keySpec says where a command names queues, counted from its own name: in the
// words first to last, behind the number at first, or behind a word.
type keySpec struct {
	arg         *Arg
	first, last int
	counted     bool
	keyword     string // "" for a position
}

// keySpecs works out where the keys of a command are, those with a position
// first.
func (x *Syntax) keySpecs() []keySpec {
	var specs []keySpec
	at := x.Words
	for i := range x.positional {
		a := x.positional[i].arg
		switch {
		case a.Type != Key:
		case a.CountedBy != "":
			specs = append(specs, keySpec{arg: a, first: at - 1, counted: true})
		case a.Multiple:
			specs = append(specs, keySpec{arg: a, first: at, last: -1})
		default:
			specs = append(specs, keySpec{arg: a, first: at, last: at})
		}
		at++
	}
	for i := range x.options {
		if a := x.options[i].arg; a.Type == Key {
			specs = append(specs, keySpec{arg: a, first: x.Words + 1, keyword: a.Token})
		}
	}
	return specs
}

// HasKeys reports whether the command names queues.
func (x *Syntax) HasKeys() bool { return len(x.keySpecs()) > 0 }
