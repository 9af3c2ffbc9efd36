package commands

import (
	"errors"
	"strings"

	"github.com/faisca/fila/resp"
)

func commandTable() Spec {
	return Spec{
		Name: "COMMAND", Group: "server", Since: "2.8.13", Complexity: "O(N) where N is the number of commands",
		Summary:     "Describes all commands.",
		Flags:       []string{"loading", "stale"},
		ACL:         []string{"connection"},
		Tips:        []string{"nondeterministic_output_order"},
		Subcommands: []Spec{commandCount(), commandDocs(), commandGetKeys(), commandGetKeysAndFlags(), help("COMMAND"), commandInfo(), commandList()},
		Examples:    []Example{{"COMMAND", "..."}},
		Room:        tableRoom("", (*command).infoBytes),
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Raw(s.handler.table.infos[s.proto]())
			return nil
		},
	}
}

// aboutFlags are those of every subcommand of COMMAND, which lie in the group of
// the server and the category of the connection.
func aboutFlags() []string { return []string{"loading", "stale"} }

func commandCount() Spec {
	return Spec{
		Name: "COUNT", Group: "server", Since: "2.8.13", Complexity: "O(1)",
		Summary: "Returns the number of commands, containers counting once.",
		Flags:   aboutFlags(), ACL: []string{"connection"},
		Examples: []Example{{"COMMAND COUNT", "..."}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Int(int64(len(s.handler.table.order)))
			return nil
		},
	}
}

func commandInfo() Spec {
	return Spec{
		Name: "INFO", Group: "server", Since: "2.8.13", Complexity: "O(N) where N is the number of commands asked for",
		Summary: "Describes the commands named, or all: arity, flags, keys, categories.",
		Flags:   aboutFlags(), ACL: []string{"connection"}, Tips: []string{"nondeterministic_output_order"},
		Args:     []Arg{{Name: "command-name", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{{"COMMAND INFO nosuch", "1) (nil)"}, {"COMMAND INFO fila.lease", "..."}},
		Room:     tableRoom("command-name", (*command).infoBytes),
		Local: func(s *Session, in *input, w *resp.Writer) error {
			names := in.list("command-name")
			if len(names) == 0 {
				return commandTable().Local(s, in, w)
			}
			w.Array(len(names))
			for _, name := range names {
				if c := s.handler.table.resolve(name); c != nil {
					writeCommand(w, c)
				} else {
					w.Null()
				}
			}
			return nil
		},
	}
}

func commandList() Spec {
	return Spec{
		Name: "LIST", Group: "server", Since: "7.0.0", Complexity: "O(N) where N is the number of commands",
		Summary: "Returns the names of the commands and subcommands.",
		Flags:   aboutFlags(), ACL: []string{"connection"}, Tips: []string{"nondeterministic_output_order"},
		Args: []Arg{{Name: "filterby", Type: OneOf, Token: "FILTERBY", Optional: true, Args: []Arg{
			{Name: "module-name", Type: String, Token: "MODULE"},
			{Name: "category", Type: String, Token: "ACLCAT"},
			{Name: "pattern", Type: Pattern, Token: "PATTERN"},
		}}},
		Examples: []Example{{"COMMAND LIST FILTERBY PATTERN pin*", `1) "ping"`}},
		Room:     tableRoom("", (*command).nameBytes),
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var names []string
			for _, c := range s.handler.table.order {
				for _, each := range append([]*command{c}, c.subOrder...) {
					if listed(each, in) {
						names = append(names, each.name)
					}
				}
			}
			w.Array(len(names))
			for _, n := range names {
				w.BulkString(n)
			}
			return nil
		},
	}
}

// listed reports whether COMMAND LIST shows the command under its filter.
func listed(c *command, in *input) bool {
	switch {
	case in.has("module"):
		return false // no command comes from a module
	case in.has("aclcat"):
		for _, category := range c.spec.categories() {
			if category == string(in.bytes("aclcat")) {
				return true
			}
		}
		return false
	case in.has("pattern"):
		return globMatch(string(in.bytes("pattern")), c.name)
	default:
		return true
	}
}

func commandGetKeys() Spec {
	return Spec{
		Name: "GETKEYS", Group: "server", Since: "2.8.13", Complexity: "O(N) where N is the number of arguments",
		Summary: "Returns the queues that a command names.",
		Flags:   aboutFlags(), ACL: []string{"connection"},
		Args: []Arg{
			{Name: "command", Type: String},
			{Name: "arg", Type: String},
			{Name: "more", Type: String, Optional: true, Multiple: true},
		},
		Examples: []Example{{"COMMAND GETKEYS FILA.ENQUEUE orders hello", `1) "orders"`}},
		Room:     words("more", 2*perWord),
		Local: func(s *Session, in *input, w *resp.Writer) error {
			_, keys, err := s.keysOf(in)
			if err != nil {
				return err
			}
			w.Array(len(keys))
			for _, k := range keys {
				w.Bulk(k.name)
			}
			return nil
		},
	}
}

func commandGetKeysAndFlags() Spec {
	s := commandGetKeys()
	s.Name, s.Since = "GETKEYSANDFLAGS", "7.0.0"
	s.Summary = "Returns the queues that a command names, each with what the command does to it."
	s.Reply = "An array of pairs: name, array of flags as in COMMAND INFO."
	s.Examples = []Example{{"COMMAND GETKEYSANDFLAGS FILA.STATS orders", "1) 1) \"orders\"\n   2) 1) RO"}}
	s.Local = func(s *Session, in *input, w *resp.Writer) error {
		c, keys, err := s.keysOf(in)
		if err != nil {
			return err
		}
		w.Array(len(keys))
		for _, k := range keys {
			w.Array(2)
			w.Bulk(k.name)
			writeStatusSet(w, "", c.keyFlags(k.arg))
		}
		return nil
	}
	return s
}

// keysOf finds the queues in the command line that in holds.
func (s *Session) keysOf(in *input) (*command, []namedKey, error) {
	c, rest, err := s.find(in.args)
	if err != nil {
		return nil, nil, &refusal{"ERR", "Invalid command specified"}
	}
	if !c.hasKeys() {
		return nil, nil, &refusal{"ERR", "The command has no key arguments"}
	}
	other := input{limits: in.limits}
	if err := other.scan(c, rest); err != nil {
		var r *refusal
		if errors.As(err, &r) && strings.HasPrefix(r.text, wrongArityText) {
			return nil, nil, &refusal{"ERR", "Invalid number of arguments specified for command"}
		}
		return nil, nil, &refusal{"ERR", "Invalid arguments specified for command"}
	}
	return c, other.keys(), nil
}

// namedKey is a queue in a command line, and the argument it stands for.
type namedKey struct {
	name []byte
	arg  *Arg
}

// keys returns the queues that the command line names.
func (in *input) keys() []namedKey {
	var keys []namedKey
	for _, elements := range [][]element{in.cmd.positional, in.cmd.options} {
		for i := range elements {
			e := &elements[i]
			v := in.values[e.slot]
			if e.arg.Type != Key || !v.set {
				continue
			}
			for _, name := range in.args[v.first : v.first+v.count] {
				keys = append(keys, namedKey{name, e.arg})
			}
		}
	}
	return keys
}
