package commands

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

func aclCommands() Spec {
	return Spec{
		Name: "ACL", Group: "server", Since: "6.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for the commands that manage users and their rights.",
		Subcommands: []Spec{
			aclCat(), aclDelUser(), aclDryRun(), aclGenPass(), aclGetUser(), help("ACL"), aclList(), aclLoad(), aclLog(), aclSave(),
			aclSetUser(), aclUsers(), aclWhoAmI(),
		},
	}
}

// aclFlags are those of every subcommand of ACL but HELP.
func aclFlags(more ...string) []string { return append(more, "noscript", "loading", "stale") }

func aclCat() Spec {
	return Spec{
		Name: "CAT", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of commands",
		Summary: "Lists the categories of commands, or the commands of one.",
		Differs: "Has the categories " + strings.Join(categoryOrder(), ", ") + "; the last three are Fila's own.",
		Flags:   aclFlags(),
		Args:    []Arg{{Name: "category", Type: String, Optional: true}},
		Examples: []Example{
			{"ACL CAT produce", `1) "fila.enqueue"`},
			{"ACL CAT nosuch", "(error) ERR Unknown category 'nosuch'"},
		},
		Room: tableRoom("", (*command).nameBytes),
		Local: func(s *Session, in *input, w *resp.Writer) error {
			names := categoryOrder()
			if in.has("category") {
				category := strings.ToLower(in.text("category"))
				if !slices.Contains(names, category) {
					return &refusal{"ERR", "Unknown category '" + clip(in.bytes("category")) + "'"}
				}
				names = nil
				for _, c := range s.handler.table.all {
					if slices.Contains(c.spec.categories(), category) {
						names = append(names, c.name)
					}
				}
			}
			writeTexts(w, names)
			return nil
		},
	}
}

// writeTexts writes an array of strings.
func writeTexts(w *resp.Writer, texts []string) {
	w.Array(len(texts))
	for _, t := range texts {
		w.BulkString(t)
	}
}

func aclWhoAmI() Spec {
	return Spec{
		Name: "WHOAMI", Group: "server", Since: "6.0.0", Complexity: "O(1)",
		Summary: "Returns the name of the connection's user.",
		Flags:   aclFlags(), Examples: []Example{{"ACL WHOAMI", `"default"`}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.BulkString(s.userName())
			return nil
		},
	}
}

func aclGenPass() Spec {
	return Spec{
		Name: "GENPASS", Group: "server", Since: "6.0.0", Complexity: "O(1)",
		Summary: "Returns a password of 256 random bits, or of as many as asked for, in hexadecimal.",
		Flags:   aclFlags(),
		Args:    []Arg{{Name: "bits", Type: Integer, Optional: true, Min: math.MinInt64}},
		Examples: []Example{
			{"ACL GENPASS", "..."},
			{"ACL GENPASS 128", "..."},
		},
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			const bitsMax = 4096
			bits := in.integer("bits", 256)
			if bits < 1 || bits > bitsMax {
				return &refusal{"ERR", "ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"}
			}
			digits := int(bits+3) / 4
			random := make([]byte, (digits+1)/2)
			rand.Read(random)
			w.BulkString(hex.EncodeToString(random)[:digits])
			return nil
		},
	}
}

func aclDryRun() Spec {
	return Spec{
		Name: "DRYRUN", Secret: true, Group: "server", Since: "7.0.0", Complexity: "O(N) where N is the number of arguments",
		Summary: "Says whether a user may run a command, without running it.",
		Flags:   aclFlags("admin"), Quiet: true,
		Args: []Arg{
			{Name: "username", Type: String}, {Name: "command", Type: String}, {Name: "arg", Type: String, Optional: true, Multiple: true},
		},
		Examples: []Example{
			{"ACL SETUSER worker on >secret ~jobs* +@consume", "OK"},
			{"ACL DRYRUN worker FILA.LEASE jobs", "OK"},
			{"ACL DRYRUN worker FILA.LEASE mails", `"This user has no permissions to access the 'mails' key"`},
			{"ACL DRYRUN worker FILA.ENQUEUE jobs hello", `"This user has no permissions to run the 'fila.enqueue' command"`},
		},
		Local: runDryRun,
	}
}

func runDryRun(s *Session, in *input, w *resp.Writer) error {
	name := string(in.bytes("username"))
	a := s.handler.users.Account(name)
	if a == nil {
		return &refusal{"ERR", "User '" + clip(in.bytes("username")) + "' not found"}
	}
	c, rest, err := s.find(in.args[1:])
	if err != nil {
		return &refusal{"ERR", "Command '" + clip(in.bytes("command")) + "' not found"}
	}
	u := a.User()
	if !u.MayRun(c.index) {
		w.BulkString("This user has no permissions to run the '" + c.name + "' command")
		return nil
	}
	other := input{limits: in.limits}
	if err := other.scan(c, rest); err != nil {
		return err
	}
	if !u.Unrestricted() {
		other.user = u
	}
	switch reason, object := other.forbidden(u); reason {
	case "":
		w.OK()
	case acl.DeniedChannel:
		w.BulkString("This user has no permissions to access the '" + object + "' channel")
	default:
		w.BulkString("This user has no permissions to access the '" + object + "' key")
	}
	return nil
}

func aclLog() Spec {
	return Spec{
		Name: "LOG", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of entries shown",
		Summary: "Lists what was denied lately, at most ten entries unless COUNT says more, or forgets it.",
		Differs: "Keeps the newest 128 entries. A queue is a key.",
		Flags:   aclFlags("admin"), Quiet: true,
		Args: []Arg{{Name: "operation", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "reset", Type: PureToken, Token: "RESET"}, {Name: "count", Type: Integer, Min: math.MinInt64},
		}}},
		Examples: []Example{{"ACL LOG", "(empty array)"}, {"ACL LOG RESET", "OK"}},
		Loose:    true, // what is no number is refused in Redis' words
		Room:     deniedRoom,
		Local: func(s *Session, in *input, w *resp.Writer) error {
			n := int64(10)
			if len(in.args) > 1 {
				return wrongArity(in.cmd)
			}
			if len(in.args) == 1 {
				if isToken(in.args[0], "RESET") {
					s.handler.denied.Reset()
					w.OK()
					return nil
				}
				var ok bool
				if n, ok = parseInt(in.args[0]); !ok {
					return &refusal{"ERR", "value is not an integer or out of range"}
				}
			}
			writeDenied(w, s.handler.denied.Newest(int(max(n, 0))), s)
			return nil
		},
	}
}

func writeDenied(w *resp.Writer, entries []acl.Entry, s *Session) {
	now := s.handler.cfg.Now()
	maps := make([]fields, len(entries))
	for i := range entries {
		e, f := &entries[i], &maps[i]
		f.number("count", int64(e.Count))
		f.text("reason", e.Reason)
		f.text("context", e.Context)
		f.text("object", e.Object)
		f.text("username", e.User)
		f.double("age-seconds", max(now.Sub(e.At).Seconds(), 0))
		f.text("client-info", e.Client)
	}
	writeMaps(w, maps)
}
