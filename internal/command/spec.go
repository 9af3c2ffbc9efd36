package command

import (
	"slices"
	"strings"

	"github.com/faisca/fila/resp"
)

// ArgType is the type of an argument, in the words of COMMAND DOCS.
type ArgType string

// The types of arguments. A key is a queue: what a cluster routes by.
const (
	Key       ArgType = "key"
	String    ArgType = "string"
	Integer   ArgType = "integer"
	Double    ArgType = "double"
	Pattern   ArgType = "pattern"
	PureToken ArgType = "pure-token"
	OneOf     ArgType = "oneof"
	Block     ArgType = "block"
)

// Access is what a command needs to be allowed on a queue or channel that an
// argument names. ACL rules grant it: %R~pattern lets a user consume, %W~pattern
// produce, ~pattern both, &pattern listen.
type Access uint8

// What an argument may need.
const (
	// ByFlags is for arguments that say nothing: a Key of a command that only
	// reads needs Consume, of any other Manage; what is no Key needs nothing.
	ByFlags       Access = iota
	Consume              // take messages, see what is in them
	Produce              // put messages in
	Manage               // both of these: change the queue, or messages that are not leased
	Look                 // one of them: figures and settings, no message
	Listen               // subscribe to a channel
	ListenPattern        // subscribe to a pattern of channels
)

// Arg is one argument of a command, or a group of them. Arguments with a token
// are options: they follow all others and come in any order.
type Arg struct {
	Name     string
	Type     ArgType
	Token    string // upper case; what an option starts with
	Optional bool
	Multiple bool // without a token: one or more of it; with one: the option may be repeated
	// CountedBy names the integer argument that says how many of this one follow.
	CountedBy string
	// Access is what the queue or channel needs; an argument with one need not be a
	// Key.
	Access   Access
	Min, Max int64 // of an integer; Max 0 stands for no bound but int64's, CountLimit for a setting
	Args     []Arg // of a block or oneof
}

// Example is a command as a user would type it into redis-cli, and the reply it
// prints. Words in angle brackets stand for what an earlier reply held.
type Example [2]string

// Command is what the user types.
func (e Example) Command() string { return e[0] }

// Reply is what redis-cli prints; "..." stands for any reply.
func (e Example) Reply() string { return e[1] }

// Spec describes a command. Exactly one of Local and Parse is set, or neither
// for a container, which has Subcommands; COMMAND alone has both.
//
// S is the session that executes commands, C the call that a command becomes.
type Spec[S, C any] struct {
	Name       string // upper case; of a subcommand only its own word
	Group      string
	Since      string // the version that brought it: Fila's for FILA.*, else Redis'
	Complexity string
	Summary    string
	// Reply says what it answers, where the summary does not; of a map, its fields
	// in their order.
	Reply string
	// Differs says what is not as in Redis; it goes into redis-compat.md.
	Differs string
	Flags   []string // as in COMMAND INFO
	ACL     []string // categories beyond those that follow from flags and group, without "@"
	Tips    []string // for clients, as in COMMAND INFO
	Secret  bool     // its arguments hold passwords: they are never shown
	// Access is what its Keys need that do not say so themselves.
	Access Access
	// Quiet keeps an administrative command that changes nothing out of the audit
	// log.
	Quiet bool
	// Fills names the queues that the command may put messages into without its
	// arguments saying so: they need Produce.
	Fills       func(in *Input) []string
	Args        []Arg
	Examples    []Example // executed in order, on a server of their own
	Subcommands []Spec[S, C]

	// Room returns how many bytes of memory the result takes at most, from the
	// execution until the reply is written: of a Local command the reply, of another
	// what its call keeps. Nil: few.
	Room func(s S, in *Input) int
	// Tiny says that the result is a number, an id or less.
	Tiny bool

	// Loose leaves all but the arity of the arguments to Local: for the few
	// commands of Redis whose syntax no table can say.
	Loose bool
	// Immediate commands are executed between MULTI and EXEC too, not queued.
	Immediate bool
	// Refuse words the refusal of an argument, where Redis has words of its own
	// for it. near is the argument; a nil result means the usual words.
	Refuse func(near []byte, integer bool) error
	// Local executes the command on the connection and writes its reply. After
	// an error nothing it has written counts.
	Local func(s S, in *Input, w *resp.Writer) error
	// Parse makes the call that goes to the engine.
	Parse func(s S, in *Input) (C, error)
}

// NativeGroup is the group of Fila's own commands.
const NativeGroup = "fila"

// Native reports whether the command is Fila's own. Redis' commands refuse in
// Redis' words, Fila's say what to do instead.
func (s *Spec[S, C]) Native() bool { return s.Group == NativeGroup }

// Executable reports whether the command does something itself: a container does not.
func (s *Spec[S, C]) Executable() bool { return s.Local != nil || s.Parse != nil }

// Has reports whether the command has a flag.
func (s *Spec[S, C]) Has(flag string) bool { return slices.Contains(s.Flags, flag) }

// Categories returns the ACL categories of the command, without "@", in the
// order in which Redis lists them; those it does not know come last.
func (s *Spec[S, C]) Categories() []string {
	set := map[string]bool{}
	for flag, categories := range impliedCategories() {
		for _, c := range categories {
			set[c] = set[c] || s.Has(flag)
		}
	}
	set["slow"] = !s.Has("fast")
	set[s.Group] = set[s.Group] || s.Group == "connection" || s.Native()
	set["transaction"] = s.Group == "transactions"
	for _, c := range s.ACL {
		set[c] = true
		set["dangerous"] = set["dangerous"] || c == "admin"
	}
	out := make([]string, 0, len(set))
	for _, c := range AllCategories() {
		if set[c] {
			out = append(out, c)
		}
	}
	return out
}

// impliedCategories says which flags put a command into which categories.
func impliedCategories() map[string][]string {
	return map[string][]string{
		"write": {"write"}, "readonly": {"read"}, "admin": {"admin", "dangerous"}, "fast": {"fast"}, "blocking": {"blocking"}, "pubsub": {"pubsub"},
	}
}

// AllCategories returns the categories there are, in the order in which Redis lists them.
func AllCategories() []string {
	return []string{"keyspace", "read", "write", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", NativeGroup, "produce", "consume"}
}

// CountLimit as an argument's Max stands for the most that a command may ask for, see Input.
const CountLimit = -1

// slot is the name by which Parse and Local ask for the argument: its token in
// lower case, else its name. The members of a choice with a token are named behind
// it, as in "group.error", so that a word of a choice may be used elsewhere, too.
func (a *Arg) slot(choice *Arg) string {
	name := a.Name
	if a.Token != "" {
		name = strings.ToLower(a.Token)
	}
	if choice != nil && choice.Type == OneOf && choice.Token != "" {
		return strings.ToLower(choice.Token) + "." + name
	}
	return name
}

// isOption reports whether the argument stands among the options.
func (a *Arg) isOption() bool {
	if a.Token != "" {
		return true
	}
	if a.Type != OneOf || !a.Optional {
		return false
	}
	for i := range a.Args {
		if a.Args[i].Token == "" {
			return false
		}
	}
	return true
}

// splits reports whether the argument is only a bracket around others: an
// optional block without a token, as in HELLO [protover [AUTH ...]].
func (a *Arg) splits() bool { return a.Type == Block && a.Token == "" && !a.Multiple }
