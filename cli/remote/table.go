package remote

import (
	"slices"
	"strings"
)

// row is a command.
type row struct {
	// name are the words that are typed behind fila, such as "queues list".
	name string
	// args name the arguments: "QUEUE [KEY]", "QUEUE ID...". Those in brackets may be missing, and
	// dots follow one that may be there several times.
	args  string
	short string // a sentence without a full stop
	long  string
	// examples are lines as they are typed. A test runs each.
	examples []string
	options  []option

	// wire is the command of the broker: its words, and $NAME for arguments. Without a $NAME, all
	// arguments follow in their order. Options follow them in the order of the table.
	wire    string
	shape   shape
	columns string // of a table, and of plain
	missing string // what is said of a reply that is nil, 0 or empty, with $NAME for arguments: exit code 3
	done    string // what people are told of a success, with $NAME for arguments
	none    string // what people are told of an empty list

	// ask is the question before something is done that cannot be undone, with $NAME for
	// arguments.
	ask string

	// run is in place of wire, for what is not one command of the broker.
	run func(*call) error

	// bare: the command has flags of its own meaning and takes all arguments as they are.
	bare bool
}

// shape is what a reply looks like.
type shape int

const (
	status shape = iota // OK, or a value that is not worth showing to people
	count               // a number: how many
	fields              // a map
	list                // an array of maps
	pages               // a cursor and an array of maps
	value               // anything
	moment              // a time in milliseconds
	raw                 // a text that is written as it is
)

// kind is what an option takes.
type kind int

const (
	text   kind = iota // one word
	texts              // one word, several times: the token is sent before each
	pairs              // name=value, several times: token, name, value
	number             // a whole number; one that is not sent is not negative
	signed             // a whole number, which is not sent
	millis             // a duration such as 90s, sent in milliseconds
	yes                // nothing: the token alone is sent
	when               // a time or an age, sent in Unix milliseconds
)

// option is a flag of a command.
type option struct {
	name  string
	token string // what is sent; empty: run reads the flag
	kind  kind
	usage string // the word in backquotes is the name of the value
}

// groups are the words that commands begin with, and their descriptions.
func groups() map[string]string {
	return map[string]string{
		"queues":    "Show, create, change and delete queues",
		"topics":    "Show topics, and bind queues to them",
		"keys":      "Show and steer the fairness keys of a queue",
		"throttles": "Show and set throttles",
		"groups":    "Show, open, seal and cancel groups of messages, which are done together",
		"budgets":   "Show, set, credit and charge budgets",
		"signals":   "Show, add to and delete signals, sums that fade with time",
		"scripts":   "Show, try and load the Lua hooks of queues",
		"crons":     "Show and set recurring messages",
		"users":     "Show and set users and their rights",
		"clients":   "Show and disconnect clients",
		"cluster":   "Show and operate the nodes of a cluster",
		"vars":      "Show and set the runtime configuration that hooks read",
	}
}

// table is all commands, in the order of the help.
func table() []row {
	return slices.Concat(queueRows(), topicRows(), keyRows(), throttleRows(), budgetRows(), signalRows(), messageRows(), groupRows(), workRows(), pushRows(), deadRows(), watchRows(), []row{webRow()}, scriptRows(), adminRows(), clusterRows(), checkRows())
}

// argument is one of a row's args.
type argument struct {
	name     string
	optional bool
	several  bool
}

func (r *row) arguments() []argument {
	var all []argument
	for word := range strings.FieldsSeq(r.args) {
		if word == "--" { // what follows it are no flags
			continue
		}
		a := argument{name: word}
		if inner, ok := strings.CutPrefix(word, "["); ok {
			a.name, a.optional = strings.TrimSuffix(inner, "]"), true
		}
		if bare, ok := strings.CutSuffix(a.name, "..."); ok {
			a.name, a.several = bare, true
		}
		all = append(all, a)
	}
	return all
}

// has says whether the row has an option of that name.
func (r *row) has(name string) bool {
	return slices.ContainsFunc(r.options, func(o option) bool { return o.name == name })
}

// limit is the option of lists that may be long.
func limit() option {
	return option{name: "limit", kind: number, usage: "show at most `n`; 0: all"}
}
