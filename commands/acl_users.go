package commands

import (
	"errors"

	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"
)

func aclSetUser() Spec {
	return Spec{
		Name: "SETUSER", Secret: true, Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of rules and of connections",
		Summary: "Makes a user, or changes one: by all of the rules or by none. Changes count at once, for existing connections too.",
		Differs: "Patterns are of queues: %R~ is to consume, %W~ to produce. There are no selectors. Connections of the user that wait for messages " +
			"are answered that there are none.",
		Flags: aclFlags("admin"),
		Args:  []Arg{{Name: "username", Type: String}, {Name: "rule", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{
			{"ACL SETUSER producer on >secret %W~orders* +@produce +@connection", "OK"},
			{"ACL SETUSER worker on >secret %R~orders* +@consume +@connection", "OK"},
		},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			rules := make([]string, 0, len(in.args))
			for _, word := range in.list("rule") {
				rules = append(rules, string(word))
			}
			a, err := s.handler.users.Set(string(in.bytes("username")), rules)
			if err != nil {
				if r, ok := errors.AsType[*acl.RuleError](err); ok {
					return &refusal{"ERR", "Error in ACL SETUSER modifier '" + clip([]byte(r.Rule)) + "': " + r.Reason}
				}
				return &refusal{"ERR", err.Error()}
			}
			s.handler.changed([]*acl.Account{a}, s)
			w.OK()
			return nil
		},
	}
}

func aclGetUser() Spec {
	return Spec{
		Name: "GETUSER", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of the user's rules",
		Summary: "Returns a user's rights, and the digests of its passwords; nil if there is no such user.",
		Flags:   aclFlags("admin"), Quiet: true,
		Args: []Arg{{Name: "username", Type: String}},
		Examples: []Example{
			{"ACL GETUSER nobody", "(nil)"},
			{"ACL GETUSER default", "..."},
		},
		Room: usersRoom,
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var u *acl.User
			if a := s.handler.users.Account(string(in.bytes("username"))); a != nil {
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
		Name: "DELUSER", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of connections",
		Summary: "Removes users and closes their connections. Returns how many there were.",
		Flags:   aclFlags("admin"),
		Args:    []Arg{{Name: "username", Type: String, Multiple: true}},
		Examples: []Example{
			{"ACL SETUSER worker", "OK"},
			{"ACL DELUSER worker nobody", "(integer) 1"},
		},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var names []string
			for _, word := range in.list("username") {
				names = append(names, string(word))
			}
			gone, err := s.handler.users.Delete(names)
			if err != nil {
				return &refusal{"ERR", err.Error()}
			}
			s.handler.changed(gone, s)
			w.Int(int64(len(gone)))
			return nil
		},
	}
}

func aclList() Spec {
	return Spec{
		Name: "LIST", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users",
		Summary: "Returns the users as lines from which they can be made again.",
		Flags:   aclFlags("admin"), Quiet: true,
		Examples: []Example{{"ACL LIST", `1) "user default on nopass ~* &* +@all"`}},
		Room:     usersRoom,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			users := s.handler.users.List()
			w.Array(len(users))
			for _, u := range users {
				w.BulkString(u.String())
			}
			return nil
		},
	}
}

func aclUsers() Spec {
	return Spec{
		Name: "USERS", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users",
		Summary: "Returns the names of the users.",
		Flags:   aclFlags("admin"), Quiet: true,
		Examples: []Example{{"ACL USERS", `1) "default"`}},
		Room:     usersRoom,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			users := s.handler.users.List()
			w.Array(len(users))
			for _, u := range users {
				w.BulkString(u.Name())
			}
			return nil
		},
	}
}

func aclSave() Spec {
	return Spec{
		Name: "SAVE", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users",
		Summary:  "Writes the users to the file of auth.acl_file, whole or not at all.",
		Flags:    aclFlags("admin"),
		Examples: []Example{{"ACL SAVE", "(error) ERR no file for users is set: see auth.acl_file"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if err := s.handler.users.Save(); err != nil {
				return &refusal{"ERR", err.Error()}
			}
			w.OK()
			return nil
		},
	}
}

func aclLoad() Spec {
	return Spec{
		Name: "LOAD", Group: "server", Since: "6.0.0", Complexity: "O(N) where N is the number of users and connections",
		Summary:  "Replaces the users by those in the file of auth.acl_file, all or none. Connections of users that are not in it are closed.",
		Flags:    aclFlags("admin"),
		Examples: []Example{{"ACL LOAD", "(error) ERR no file for users is set: see auth.acl_file"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			changed, err := s.handler.users.Load()
			if err != nil {
				return &refusal{"ERR", err.Error()}
			}
			s.handler.changed(changed, s)
			w.OK()
			return nil
		},
	}
}
