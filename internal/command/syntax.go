package command

import "slices"

// Syntax is the compiled syntax of a command, which Scan checks against.
type Syntax struct {
	Name    string // lower case, with the container: "fila.queue|create"
	Display string // as a user types it: "FILA.QUEUE CREATE"
	Words   int    // words of the name: 1, or 2 for a subcommand
	Arity   int    // as in Redis: with the name; negative if it is a minimum

	most       int // greatest number of words, -1 for no bound
	positional []element
	options    []element
	slots      []string // names of the values, by index in Input.values
	guarded    []guard  // the values that require a right

	// Of the Spec.
	usage  string
	refuse func(near []byte, integer bool) error
	fills  func(in *Input) []string
	loose  bool
	native bool
	reads  bool // has the flag readonly
	needs  Access
}

// element is a compiled argument.
type element struct {
	arg     *Arg
	slot    int
	counted int       // slot of the argument that counts this one, or -1
	group   int       // elements of a group exclude each other; 0: no group
	after   int       // words that later arguments require
	members []element // of a block or oneof
}

// guard is a value that names queues or channels, with the required right.
type guard struct {
	slot   int
	access Access
}

// UsageLine returns the usage of the whole command, as shown in errors.
func (x *Syntax) UsageLine() string {
	if x.usage != "" {
		return x.Display + " " + x.usage
	}
	return x.Display
}

// Usage returns the arguments on one line, such as
// "queue receipt [ERROR text] [DELAY ms] [DEAD]".
func (x *Syntax) Usage() string { return x.usage }

// compile compiles the arguments of a command that is not a container.
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

// place divides the arguments into positional ones and options, and assigns a slot to each value.
func (x *Syntax) place(args []Arg) {
	for i := range args {
		a := &args[i]
		switch {
		case a.splits():
			inner := slices.Clone(a.Args)
			for j := range inner {
				inner[j].leads = !inner[j].Optional && a.Optional
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

// element assigns slots to an argument and its members. choice is the argument that it is a member of,
// or nil.
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

// keySpec is a key specification of COMMAND INFO: the words first to last, relative to the name; those
// after the number at first; or the word after a keyword.
type keySpec struct {
	arg         *Arg
	first, last int
	counted     bool
	keyword     string // "" for a position
}

// keySpecs returns the key specifications of a command, positional ones first.
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
