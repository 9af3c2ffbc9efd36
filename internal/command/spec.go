package command

import (
	"slices"
	"strings"

	"github.com/faisca/fila/resp"
)

// ArgType is the type of an argument, as in COMMAND DOCS.
type ArgType string

// The types of arguments. A key is a queue.
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

// Access is the right that a command requires to a queue or channel named by an argument. ACL rules
// grant it: %R~pattern to consume, %W~pattern to produce, ~pattern both, &pattern to listen.
type Access uint8

// The rights that an argument may require.
const (
	// ByFlags is the default: a Key requires Consume if the command is readonly, else Manage;
	// other arguments require nothing.
	ByFlags       Access = iota
	Consume              // take and read messages
	Produce              // enqueue messages
	Manage               // both: change the queue, or messages that are not leased
	Look                 // either of them: statistics and settings, but no messages
	Listen               // subscribe to a channel
	ListenPattern        // subscribe to a pattern of channels
)

// Arg is one argument of a command, or a group of them. Arguments with a token
// are options: they follow all others and come in any order.
type Arg struct {
	Name     string
	Type     ArgType
	Token    string // upper case; starts an option
	Optional bool
	leads    bool // of an optional block: its options must follow this argument
	Multiple bool // without a token: one or more values, up to the first word that is the token of an option; with a token: the option may be repeated
	// NeverToken promises of a Multiple argument that none of its values is the token of an option.
	NeverToken bool
	// CountedBy names the integer argument that states the number of values.
	CountedBy string
	// Access is the required right to the queue or channel. The argument need not be a Key.
	Access   Access
	Min, Max int64 // of an integer; Max 0 means no bound, CountLimit the one of Input.CountMax
	Args     []Arg // of a block or oneof
}

// Example is a command as typed into redis-cli, and the output. Words in angle brackets stand for parts
// of an earlier reply.
type Example [2]string

// Command returns the command.
func (e Example) Command() string { return e[0] }

// Reply returns the output of redis-cli; "..." stands for any output.
func (e Example) Reply() string { return e[1] }

// Spec describes a command. Exactly one of Local and Parse is set; a container has Subcommands and
// neither, except for COMMAND, which has Subcommands and Local.
//
// S is the session that executes commands, C the call that a command is parsed into.
type Spec[S, C any] struct {
	Name  string // upper case; of a subcommand without the container
	Group string
	Since string // first version with the command: of Fila for FILA.*, else of Redis
	// Complexity is the work of the command, in the notation of Redis. Of a command with Parse it is the
	// work in the loop; what is done elsewhere is marked as such ("read off-loop").
	Complexity string
	Summary    string
	// Returns is the type of the reply in RESP3. It has one of these forms:
	//
	//	status integer string text nil error any     text is a string to be read by people
	//	map set push array                           optionally with the types of the elements
	//	array of T, array (T, T), T or T             (T or T) if nested
	//
	// In RESP2 a map or set is an array, a text a string, and a push an array. A test of package commands
	// verifies that the replies in the examples match.
	Returns string
	// Reply describes the reply if the summary does not; of a map, its fields in order.
	Reply string
	// Differs describes differences from Redis, for redis-compat.md.
	Differs string
	Flags   []string // as in COMMAND INFO
	ACL     []string // categories in addition to those implied by flags and group, without "@"
	Tips    []string // as in COMMAND INFO
	Secret  bool     // the arguments contain passwords and are never shown
	// Access is the default of the Access of Key arguments.
	Access Access
	// Quiet excludes an administrative command without effect from the audit log.
	Quiet bool
	// Unasked lets every user run the command: no right is checked.
	Unasked bool
	// Fills returns queues that the command may put messages into although no argument names
	// them: they require Produce.
	Fills       func(in *Input) []string
	Args        []Arg
	Examples    []Example // executed in order on a new server
	Subcommands []Spec[S, C]

	// Room returns an upper bound of the memory in bytes that the result takes from the execution
	// until the reply is written: the reply of a Local command, or what the call retains. Nil
	// means a small default.
	Room func(s S, in *Input) int
	// Memory describes Room, for docs/explanation/guarantees.md: "350 bytes for each message of COUNT".
	Memory string
	// Tiny means that the result is at most a number or an id.
	Tiny bool

	// Loose leaves the check of all arguments except their number to Local, for commands of Redis
	// whose syntax a Spec cannot express.
	Loose bool
	// Immediate commands are executed even within a transaction, instead of being queued.
	Immediate bool
	// Refuse returns the error for an invalid argument near, if Redis has a special text for it; nil
	// means the usual text.
	Refuse func(near []byte, integer bool) error
	// Local executes the command on the connection and writes its reply, which is discarded if it
	// returns an error.
	Local func(s S, in *Input, w *resp.Writer) error
	// Parse returns the call for the engine.
	Parse func(s S, in *Input) (C, error)
}

// NativeGroup is the group of Fila's own commands.
const NativeGroup = "fila"

// Native reports whether the command is Fila's own. Errors of Redis' commands have Redis' texts; those
// of Fila's commands say what to do instead.
func (s *Spec[S, C]) Native() bool { return s.Group == NativeGroup }

// Executable reports whether the command can be executed itself; a container cannot.
func (s *Spec[S, C]) Executable() bool { return s.Local != nil || s.Parse != nil }

// Has reports whether the command has a flag.
func (s *Spec[S, C]) Has(flag string) bool { return slices.Contains(s.Flags, flag) }

// Categories returns the ACL categories of the command, without "@", in Redis' order; Fila's own come
// last.
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

// impliedCategories maps flags to the categories that they imply.
func impliedCategories() map[string][]string {
	return map[string][]string{
		"write": {"write"}, "readonly": {"read"}, "admin": {"admin", "dangerous"}, "fast": {"fast"}, "blocking": {"blocking"}, "pubsub": {"pubsub"},
	}
}

// AllCategories returns all categories in Redis' order.
func AllCategories() []string {
	return []string{"keyspace", "read", "write", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", NativeGroup, "produce", "consume"}
}

// CountLimit as the Max of an argument stands for Input.CountMax.
const CountLimit = -1

// slot returns the name of the argument for Parse and Local: its token in lower case, or else its name.
// A member of a choice with a token is qualified by it, as in "group.error", so that two choices may
// share a word.
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

// numeric reports whether the argument is a number.
func (a *Arg) numeric() bool { return a.Type == Integer || a.Type == Double }

// isOption reports whether the argument is an option.
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

// splits reports whether the argument only groups others: an optional block without a token, as in
// HELLO [protover [AUTH ...]].
func (a *Arg) splits() bool { return a.Type == Block && a.Token == "" && !a.Multiple }
