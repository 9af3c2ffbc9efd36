package commands

import (
	"slices"
	"strings"

	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/glob"
	"github.com/faisca/fila/resp"
)

// commandReply is the type of the description of a command in COMMAND and COMMAND INFO.
const commandReply = "array (string, integer, set of status, integer, integer, integer, set of status, set of string, set of map, (array of array or set))"

func commandTable() Spec {
	return Spec{
		Name: "COMMAND", Group: "server", Since: "2.8.13", Complexity: "O(N) where N is the number of commands", Returns: "array of " + commandReply,
		Summary:     "Describes all commands.",
		Flags:       []string{"loading", "stale"},
		ACL:         []string{"connection"},
		Tips:        []string{"nondeterministic_output_order"},
		Subcommands: []Spec{commandCount(), commandDocs(), commandGetKeys(), help("COMMAND", "server"), commandInfo(), commandList()},
		Examples:    []Example{{"COMMAND", "..."}},
		Room:        tableRoom("", (*entry).InfoBytes),
		Memory:      "the description of each command named, or of all",
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Raw(s.table().Infos(s.prefs.proto))
			return nil
		},
	}
}

// aboutFlags are the flags of every subcommand of COMMAND.
func aboutFlags() []string { return []string{"loading", "stale"} }

func commandCount() Spec {
	return Spec{
		Name: "COUNT", Group: "server", Since: "2.8.13", Complexity: "O(1)", Returns: "integer",
		Summary: "Returns the number of commands, containers counting once.",
		Flags:   aboutFlags(), ACL: []string{"connection"},
		Examples: []Example{{"COMMAND COUNT", "..."}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Int(int64(len(s.table().Commands)))
			return nil
		},
	}
}

func commandInfo() Spec {
	return Spec{
		Name: "INFO", Group: "server", Since: "2.8.13", Complexity: "O(N) where N is the number of commands asked for",
		Returns: "array of (" + commandReply + " or nil)",
		Summary: "Describes the commands named, or all: arity, flags, keys, categories.",
		Flags:   aboutFlags(), ACL: []string{"connection"}, Tips: []string{"nondeterministic_output_order"},
		Args:     []Arg{{Name: "command-name", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{{"COMMAND INFO nosuch", "1) (nil)"}, {"COMMAND INFO fila.lease", "..."}},
		Room:     tableRoom("command-name", (*entry).InfoBytes),
		Memory:   "the description of each command named, or of all",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			names := in.List("command-name")
			if len(names) == 0 {
				return commandTable().Local(s, in, w)
			}
			w.Array(len(names))
			for _, name := range names {
				if c := s.table().Resolve(name); c != nil {
					c.WriteInfo(w)
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
		Name: "LIST", Group: "server", Since: "7.0.0", Complexity: "O(N) where N is the number of commands", Returns: "array of string",
		Summary: "Returns the names of the commands and subcommands.",
		Flags:   aboutFlags(), ACL: []string{"connection"}, Tips: []string{"nondeterministic_output_order"},
		Args: []Arg{{Name: "filterby", Type: OneOf, Token: "FILTERBY", Optional: true, Args: []Arg{
			{Name: "module-name", Type: String, Token: "MODULE"},
			{Name: "category", Type: String, Token: "ACLCAT"},
			{Name: "pattern", Type: Pattern, Token: "PATTERN"},
		}}},
		Examples: []Example{{"COMMAND LIST FILTERBY PATTERN pin*", `1) "ping"`}},
		Room:     tableRoom("", nameBytes),
		Memory:   "the names of all commands",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var names []string
			for _, c := range s.table().Commands {
				for _, each := range append([]*entry{c}, c.Subs...) {
					if listed(each, in) {
						names = append(names, each.Name)
					}
				}
			}
			writeTexts(w, names)
			return nil
		},
	}
}

// listed reports whether the command passes the filter of COMMAND LIST.
func listed(c *entry, in *input) bool {
	switch {
	case in.Has("filterby.module"):
		return false // there are no modules
	case in.Has("filterby.aclcat"):
		for _, category := range c.Spec.Categories() {
			if category == string(in.Bytes("filterby.aclcat")) {
				return true
			}
		}
		return false
	case in.Has("filterby.pattern"):
		return glob.Match(string(in.Bytes("filterby.pattern")), c.Name)
	default:
		return true
	}
}

func commandGetKeys() Spec {
	return Spec{
		Name: "GETKEYS", Group: "server", Since: "2.8.13", Complexity: "O(N) where N is the number of arguments", Returns: "array of string",
		Summary: "Returns the queues that a command names.",
		Flags:   aboutFlags(), ACL: []string{"connection"},
		Args: []Arg{
			{Name: "command", Type: String},
			{Name: "arg", Type: String},
			{Name: "more", Type: String, Optional: true, Multiple: true},
		},
		Examples: []Example{{"COMMAND GETKEYS FILA.ENQUEUE orders hello", `1) "orders"`}},
		Room:     words("more", 2*perWord),
		Memory:   "128 bytes for each argument",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			keys, err := s.keysOf(in)
			if err != nil {
				return err
			}
			w.Array(len(keys))
			for _, k := range keys {
				w.Bulk(k)
			}
			return nil
		},
	}
}

// keysOf returns the queues named in the command line that in holds.
func (s *Session) keysOf(in *input) ([][]byte, error) {
	c, rest, err := s.table().Lookup(in.Args)
	if err != nil {
		return nil, command.Refuse("ERR", "Invalid command specified")
	}
	if !c.HasKeys() {
		return nil, command.Refuse("ERR", "The command has no key arguments")
	}
	other := input{CountMax: in.CountMax}
	if err := other.Scan(&c.Syntax, rest); err != nil {
		if command.IsWrongArity(err) {
			return nil, command.Refuse("ERR", "Invalid number of arguments specified for command")
		}
		return nil, command.Refuse("ERR", "Invalid arguments specified for command")
	}
	return other.Keys(), nil
}

func commandDocs() Spec {
	return Spec{
		Name: "DOCS", Group: "server", Since: "7.0.0", Complexity: "O(N) where N is the number of commands asked for", Returns: "map",
		Summary: "Returns the documentation of the commands named, or of all.",
		Flags:   aboutFlags(), ACL: []string{"connection"}, Tips: []string{"nondeterministic_output_order"},
		Args:     []Arg{{Name: "command-name", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{{"COMMAND DOCS nosuch", "(empty array)"}, {"COMMAND DOCS fila.lease", "..."}},
		Room:     tableRoom("command-name", (*entry).DocsBytes),
		Memory:   "the description of each command named, or of all",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !in.Has("command-name") {
				w.Raw(s.table().Docs(s.prefs.proto))
				return nil
			}
			var found []*entry
			for _, name := range in.List("command-name") {
				if c := s.table().Resolve(name); c != nil {
					found = append(found, c)
				}
			}
			w.Map(len(found))
			for _, c := range found {
				c.WriteDocs(w)
			}
			return nil
		},
	}
}

// container describes a command of subcommands, and adds a HELP to them.
func container(name, group, since, about string, subcommands ...Spec) Spec {
	subcommands = append(subcommands, help(name, group))
	slices.SortFunc(subcommands, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return Spec{
		Name: name, Group: group, Since: since, Complexity: "Depends on subcommand.",
		Summary: "A container for " + about + ".", Subcommands: subcommands,
	}
}

// help describes the HELP of a container, whose text follows from the container's Spec.
func help(container, group string) Spec {
	since := "5.0.0"
	if group == command.NativeGroup {
		since = "0.1.0"
	}
	return Spec{
		Name: "HELP", Group: group, Since: since, Complexity: "O(1)", Returns: "array of status",
		Summary: "Lists the subcommands.",
		Flags:   []string{"loading", "stale"},
		ACL:     map[string][]string{"COMMAND": {"connection"}, "OBJECT": {"keyspace"}}[container],
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			writeHelp(w, s.table().Find([]byte(container)))
			return nil
		},
	}
}

func writeHelp(w *resp.Writer, c *entry) {
	w.Array(1 + 2*len(c.Subs))
	w.Status(c.Display + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, sub := range c.Subs {
		line := sub.Spec.Name
		if u := sub.Usage(); u != "" {
			line += " " + u
		}
		w.Status(line)
		w.Status("    " + sub.Spec.Summary)
	}
}
