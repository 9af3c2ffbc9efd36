package commands

import (
	"slices"
	"strings"

	"github.com/faisca/fila/resp"
)

func commandDocs() Spec {
	return Spec{
		Name: "DOCS", Group: "server", Since: "7.0.0", Complexity: "O(N) where N is the number of commands asked for",
		Summary: "Returns the documentation of the commands named, or of all.",
		Flags:   aboutFlags(), ACL: []string{"connection"}, Tips: []string{"nondeterministic_output_order"},
		Args:     []Arg{{Name: "command-name", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{{"COMMAND DOCS nosuch", "(empty array)"}, {"COMMAND DOCS fila.lease", "..."}},
		Room:     tableRoom("command-name", (*command).docsBytes),
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !in.has("command-name") {
				w.Raw(s.handler.table.docs[s.proto]())
				return nil
			}
			var found []*command
			for _, name := range in.list("command-name") {
				if c := s.handler.table.resolve(name); c != nil {
					found = append(found, c)
				}
			}
			w.Map(len(found))
			for _, c := range found {
				writeDocs(w, c)
			}
			return nil
		},
	}
}

// writeDocs writes a command's name and the map that describes it, from which
// redis-cli makes its hints and its HELP.
func writeDocs(w *resp.Writer, c *command) {
	w.BulkString(c.name)
	n := 4
	if len(c.spec.Args) > 0 {
		n++
	}
	if len(c.subOrder) > 0 {
		n++
	}
	w.Map(n)
	for _, f := range [][2]string{
		{"summary", c.spec.Summary}, {"since", c.spec.Since}, {"group", c.spec.Group}, {"complexity", c.spec.Complexity},
	} {
		w.BulkString(f[0])
		w.BulkString(f[1])
	}
	if len(c.spec.Args) > 0 {
		w.BulkString("arguments")
		writeArgs(w, c, c.spec.Args)
	}
	if len(c.subOrder) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.subOrder))
		for _, sub := range c.subOrder {
			writeDocs(w, sub)
		}
	}
}

func writeArgs(w *resp.Writer, c *command, args []Arg) {
	w.Array(len(args))
	for i := range args {
		writeArg(w, c, &args[i])
	}
}

func writeArg(w *resp.Writer, c *command, a *Arg) {
	flags := a.docFlags()
	n := 2
	for _, there := range []bool{a.Type == Key, a.Token != "", len(flags) > 0, len(a.Args) > 0} {
		if there {
			n++
		}
	}
	w.Map(n)
	w.BulkString("name")
	w.BulkString(strings.ToLower(a.Name))
	w.BulkString("type")
	w.BulkString(string(a.Type))
	if a.Type == Key {
		w.BulkString("key_spec_index")
		w.Int(int64(slices.IndexFunc(c.keySpecs(), func(k keySpec) bool { return k.arg == a })))
	}
	if a.Token != "" {
		w.BulkString("token")
		w.BulkString(a.Token)
	}
	if len(flags) > 0 {
		w.BulkString("flags")
		writeStatusSet(w, "", flags)
	}
	if len(a.Args) > 0 {
		w.BulkString("arguments")
		writeArgs(w, c, a.Args)
	}
}

func (a *Arg) docFlags() []string {
	var flags []string
	if a.Optional {
		flags = append(flags, "optional")
	}
	if a.Multiple {
		flags = append(flags, "multiple")
	}
	if a.Multiple && a.Token != "" {
		flags = append(flags, "multiple_token")
	}
	return flags
}
