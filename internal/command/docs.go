package command

import (
	"slices"
	"strings"

	"github.com/faisca/fila/resp"
)

// WriteDocs writes the name of a command and the map that describes it in COMMAND DOCS. redis-cli
// shows it as hints and help.
func (c *Command[S, C]) WriteDocs(w *resp.Writer) {
	w.BulkString(c.Name)
	n := 4
	if len(c.Spec.Args) > 0 {
		n++
	}
	if len(c.Subs) > 0 {
		n++
	}
	w.Map(n)
	for _, f := range [][2]string{
		{"summary", c.Spec.Summary}, {"since", c.Spec.Since}, {"group", c.Spec.Group}, {"complexity", c.Spec.Complexity},
	} {
		w.BulkString(f[0])
		w.BulkString(f[1])
	}
	if len(c.Spec.Args) > 0 {
		w.BulkString("arguments")
		c.writeArgs(w, c.Spec.Args)
	}
	if len(c.Subs) > 0 {
		w.BulkString("subcommands")
		w.Map(len(c.Subs))
		for _, sub := range c.Subs {
			sub.WriteDocs(w)
		}
	}
}

func (x *Syntax) writeArgs(w *resp.Writer, args []Arg) {
	w.Array(len(args))
	for i := range args {
		x.writeArg(w, &args[i])
	}
}

func (x *Syntax) writeArg(w *resp.Writer, a *Arg) {
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
		w.Int(int64(slices.IndexFunc(x.keySpecs(), func(k keySpec) bool { return k.arg == a })))
	}
	if a.Token != "" {
		w.BulkString("token")
		w.BulkString(a.Token)
	}
	if len(flags) > 0 {
		w.BulkString("flags")
		WriteStatusSet(w, "", flags)
	}
	if len(a.Args) > 0 {
		w.BulkString("arguments")
		x.writeArgs(w, a.Args)
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
