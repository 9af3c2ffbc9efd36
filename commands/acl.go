package commands

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func aclCommands() Spec {
	return container("ACL", "server", "6.0.0", "the commands that manage users and their rights",
		aclCat(), aclDelUser(), aclDryRun(), aclGenPass(), aclGetUser(), aclList(), aclLoad(), aclLog(), aclSave(),
		aclSetUser(), aclUsers(), aclWhoAmI(),
	)
}

// aclFlags are the flags of every subcommand of ACL except HELP.
func aclFlags(more ...string) []string { return append(more, "noscript", "loading", "stale") }

func aclCat() Spec {
	return Spec{
		Name: "CAT", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of commands", Returns: "array of string",
		Summary: "Lists the categories of commands, or the commands of one.",
		Differs: "Has the categories " + strings.Join(command.AllCategories(), ", ") + "; the last three are Fila's own.",
		Flags:   aclFlags(),
		Args:    []Arg{{Name: "category", Type: String, Optional: true}},
		Examples: []Example{
			{"ACL CAT produce", `1) "fila.enqueue"
2) "fila.group|cancel"
3) "fila.group|open"
4) "fila.group|seal"
5) "fila.publish"
6) "fila.result"`},
			{"ACL CAT nosuch", "(error) ERR Unknown category 'nosuch'"},
		},
		Room:   tableRoom("", nameBytes),
		Memory: "the names of all commands",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			names := command.AllCategories()
			if in.Has("category") {
				category := strings.ToLower(in.Text("category"))
				if !slices.Contains(names, category) {
					return command.Refuse("ERR", "Unknown category '"+command.Clip(in.Bytes("category"))+"'")
				}
				names = nil
				for _, c := range s.handler.table.All {
					if slices.Contains(c.Spec.Categories(), category) {
						names = append(names, c.Name)
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
		Name: "WHOAMI", Group: "server", Since: "6.0.0", Complexity: "O(1)", Returns: "string",
		Summary: "Returns the name of the connection's user.",
		Flags:   aclFlags(), Examples: []Example{{"ACL WHOAMI", `"default"`}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.BulkString(s.userName())
			return nil
		},
	}
}

func whoAmI() Spec {
	return Spec{
		Name: "FILA.WHOAMI", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of commands", Returns: "map",
		Summary: "Returns the connection's user and its rights. Every user may run it.",
		Reply: "A map: user, commands (a map of each command and subcommand: 1 if the user may run it, else 0), " +
			"queues and channels (patterns, as in ACL GETUSER).",
		Flags: []string{"loading", "stale", "fast"}, Unasked: true,
		Examples: []Example{{"FILA.WHOAMI", "..."}},
		Memory:   "the names of all commands and the rules of the user",
		Room: func(s *Session, in *input) int {
			n := tableRoom("", nameBytes)(s, in)
			if u := s.login.account.Load().User(); u != nil {
				n += len(u.Queues()) + len(u.Channels())
			}
			return n
		},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			u := s.login.account.Load().User()
			if u == nil {
				return command.Refuse("NOAUTH", "the user of this connection was deleted")
			}
			var may, f fields
			for _, c := range s.handler.table.All {
				may.flag(c.Name, u.MayRun(c.Index))
			}
			f.text("user", u.Name())
			f.group("commands", may)
			f.text("queues", u.Queues())
			f.text("channels", u.Channels())
			f.write(w)
			return nil
		},
	}
}

func aclGenPass() Spec {
	return Spec{
		Name: "GENPASS", Group: "server", Since: "6.0.0", Complexity: "O(1)", Returns: "string",
		Summary: "Returns a password of 256 random bits, or of as many as asked for, in hexadecimal.",
		Flags:   aclFlags(),
		Args:    []Arg{{Name: "bits", Type: Integer, Optional: true, Min: math.MinInt64}},
		Examples: []Example{
			{"ACL GENPASS", "..."},
			{"ACL GENPASS 128", "..."},
		},
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			const bitsMax = 4096
			bits := in.Integer("bits", 256)
			if bits < 1 || bits > bitsMax {
				return command.Refuse("ERR", "ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096")
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
		Name: "DRYRUN", Secret: true, Group: "server", Since: "7.0.0", Complexity: "O(N) where N is the number of arguments", Returns: "status or string",
		Summary: "Reports whether a user may run a command, without running it.",
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
	name := string(in.Bytes("username"))
	a := s.handler.users.Account(name)
	if a == nil {
		return command.Refuse("ERR", "User '"+command.Clip(in.Bytes("username"))+"' not found")
	}
	c, rest, err := s.handler.table.Lookup(in.Args[1:])
	if err != nil {
		return command.Refuse("ERR", "Command '"+command.Clip(in.Bytes("command"))+"' not found")
	}
	u := a.User()
	if !u.MayRun(c.Index) {
		w.BulkString("This user has no permissions to run the '" + c.Name + "' command")
		return nil
	}
	other := input{CountMax: in.CountMax}
	if err := other.Scan(&c.Syntax, rest); err != nil {
		return err
	}
	if !u.Unrestricted() {
		other.User = u
	}
	switch reason, object := other.Forbidden(u); reason {
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
		Name: "LOG", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of entries shown", Returns: "array of map or status",
		Summary: "Returns the most recent denials, ten unless COUNT is given, or clears them.",
		Differs: "Keeps the newest 128 entries. A queue is a key.",
		Flags:   aclFlags("admin"), Quiet: true,
		Args: []Arg{{Name: "operation", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "reset", Type: PureToken, Token: "RESET"}, {Name: "count", Type: Integer, Min: math.MinInt64},
		}}},
		Examples: []Example{{"ACL LOG", "(empty array)"}, {"ACL LOG RESET", "OK"}},
		Loose:    true, // a value that is not a number is refused with Redis' text
		Room:     deniedRoom,
		Memory:   "what the log has: at most 128 entries",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			n := int64(10)
			if len(in.Args) > 1 {
				return command.WrongArity(in.Cmd)
			}
			if len(in.Args) == 1 {
				if command.IsToken(in.Args[0], "RESET") {
					s.handler.denied.Reset()
					w.OK()
					return nil
				}
				var ok bool
				if n, ok = command.ParseInt(in.Args[0]); !ok {
					return command.Refuse("ERR", "value is not an integer or out of range")
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

func aclSetUser() Spec {
	return Spec{
		Name: "SETUSER", Secret: true, Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of rules and connections", Returns: "status",
		Summary: "Creates or changes a user, by all of the rules or none. Changes apply at once, also to existing connections.",
		Differs: "Patterns match queues: %R~ allows to consume, %W~ to produce. There are no selectors, and no rules for a first argument, as +select|0. Connections of the user that wait for messages " +
			"are answered that there are none. Users of a cluster are the same on all of its nodes: a change applies on the others within a second.",
		Flags: aclFlags("admin"),
		Args:  []Arg{{Name: "username", Type: String}, {Name: "rule", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{
			{"ACL SETUSER producer on >secret %W~orders* +@produce +@connection", "OK"},
			{"ACL SETUSER worker on >secret %R~orders* +@consume +@connection", "OK"},
		},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			rules := make([]string, 0, len(in.Args))
			for _, word := range in.List("rule") {
				rules = append(rules, string(word))
			}
			a, err := s.handler.users.Set(string(in.Bytes("username")), rules)
			if err != nil {
				return refuseRule(err)
			}
			s.handler.changed([]*acl.Account{a}, s, s.close)
			w.OK()
			return nil
		},
	}
}

func aclGetUser() Spec {
	return Spec{
		Name: "GETUSER", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of the user's rules", Returns: "map or nil",
		Summary: "Returns a user's rights, and the digests of its passwords; nil if there is no such user.",
		Differs: "Rules for commands stay as they were given, without those that others cover.",
		Flags:   aclFlags("admin"), Quiet: true,
		Args: []Arg{{Name: "username", Type: String}},
		Examples: []Example{
			{"ACL GETUSER unknown", "(nil)"},
			{"ACL GETUSER default", "..."},
		},
		Room:   usersRoom,
		Memory: "the rules of all users",
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var u *acl.User
			if a := s.handler.users.Account(string(in.Bytes("username"))); a != nil {
				u = a.User()
			}
			if u == nil {
				w.Null()
				return nil
			}
			w.Map(6)
			w.BulkString("flags")
			w.Set(len(u.Flags()))
			for _, f := range u.Flags() {
				w.BulkString(f)
			}
			w.BulkString("passwords")
			writeTexts(w, u.Passwords())
			for _, f := range []struct{ name, text string }{{"commands", u.Commands()}, {"keys", u.Queues()}, {"channels", u.Channels()}} {
				w.BulkString(f.name)
				w.BulkString(f.text)
			}
			w.BulkString("selectors")
			w.Array(0)
			return nil
		},
	}
}

func aclDelUser() Spec {
	return Spec{
		Name: "DELUSER", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of connections", Returns: "integer",
		Summary: "Deletes users and closes their connections. Returns the number of deleted users.",
		Flags:   aclFlags("admin"),
		Args:    []Arg{{Name: "username", Type: String, Multiple: true}},
		Examples: []Example{
			{"ACL SETUSER worker", "OK"},
			{"ACL DELUSER worker unknown", "(integer) 1"},
		},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var names []string
			for _, word := range in.List("username") {
				names = append(names, string(word))
			}
			gone, err := s.handler.users.Delete(names)
			if err != nil {
				return command.Refuse("ERR", err.Error())
			}
			s.handler.changed(gone, s, s.close)
			w.Int(int64(len(gone)))
			return nil
		},
	}
}

func aclList() Spec {
	return usersSpec("LIST", "Returns the users as rules that recreate them.", `1) "user default on nopass ~* &* +@all"`, (*acl.User).String)
}

func aclUsers() Spec {
	return usersSpec("USERS", "Returns the names of the users.", `1) "default"`, (*acl.User).Name)
}

// usersSpec describes a command that shows a text of each user.
func usersSpec(name, summary, example string, show func(*acl.User) string) Spec {
	return Spec{
		Name: name, Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users", Returns: "array of string",
		Summary: summary,
		Flags:   aclFlags("admin"), Quiet: true,
		Examples: []Example{{"ACL " + name, example}},
		Room:     usersRoom,
		Memory:   "the rules of all users",
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			users := s.handler.users.List()
			w.Array(len(users))
			for _, u := range users {
				w.BulkString(show(u))
			}
			return nil
		},
	}
}

func aclSave() Spec {
	return Spec{
		Name: "SAVE", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users", Returns: "status",
		Summary:  "Writes the users to auth.acl_file, atomically.",
		Differs:  "In a cluster, where users need not be saved, it writes the file of the node to which the client is connected, with the users that are in force there.",
		Flags:    aclFlags("admin"),
		Examples: []Example{{"ACL SAVE", "(error) ERR no file for users is set: see auth.acl_file"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if err := s.handler.users.Save(); err != nil {
				return command.Refuse("ERR", err.Error())
			}
			w.OK()
			return nil
		},
	}
}

func aclLoad() Spec {
	return Spec{
		Name: "LOAD", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users and connections", Returns: "status",
		Summary:  "Replaces the users by those in auth.acl_file, all or none. Connections of users that are not in it are closed.",
		Differs:  "In a cluster it is refused by nodes that do not lead: the file is that of the leader.",
		Flags:    aclFlags("admin"),
		Examples: []Example{{"ACL LOAD", "(error) ERR no file for users is set: see auth.acl_file"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			changed, err := s.handler.users.Load()
			if err != nil {
				return command.Refuse("ERR", err.Error())
			}
			s.handler.changed(changed, s, s.close)
			w.OK()
			return nil
		},
	}
}

// ReloadUsers reloads auth.acl_file as ACL LOAD does. Without such a file, and where the users are in the
// store of a cluster, it does nothing.
func (h *Handler) ReloadUsers() error {
	if h.cfg.ACLFile == "" || h.shared.version.Load() > 0 {
		return nil
	}
	changed, err := h.users.Load()
	if err != nil {
		return err
	}
	h.changed(changed, nil, nil)
	return nil
}
