package commands

import (
	"math"

	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// RedisVersion is what Fila says it is compatible with. It is the release whose
// replies the tests compare with: clients read it to choose what to send, and
// a newer one would promise commands that are not here.
const RedisVersion = "7.0.15"

func hello() Spec {
	return Spec{
		Name: "HELLO", Secret: true, Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Summary: "Greets the server, choosing a protocol version and optionally authenticating.",
		Flags:   []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Args: []Arg{{Name: "arguments", Type: Block, Optional: true, Args: []Arg{
			{Name: "protover", Type: Integer, Min: math.MinInt64},
			{Name: "username_password", Type: Block, Token: "AUTH", Optional: true, Args: []Arg{
				{Name: "username", Type: String}, {Name: "password", Type: String},
			}},
			{Name: "clientname", Type: String, Token: "SETNAME", Optional: true},
		}}},
		Examples: []Example{{"HELLO 3", "..."}},
		Refuse: func(near []byte, integer bool) error {
			if integer {
				return command.Refuse("ERR", "Protocol version is not an integer or out of range")
			}
			return command.Refuse("ERR", "Syntax error in HELLO option '"+command.Clip(near)+"'")
		},
		Local: runHello,
	}
}

// runHello checks everything before it changes anything, so that a refused HELLO
// leaves the connection as it was.
func runHello(s *Session, in *input, w *resp.Writer) error {
	proto := int(in.Integer("protover", int64(s.proto)))
	if proto != 2 && proto != 3 {
		return command.Refuse("NOPROTO", "unsupported protocol version")
	}
	if in.Has("setname") && !validName(in.Bytes("setname")) {
		return errClientName()
	}
	if in.Has("auth") {
		if err := s.authenticate(in.Bytes("username"), in.Bytes("password")); err != nil {
			return err
		}
	}
	if !s.authed {
		return command.Refuse("NOAUTH", "HELLO must be called with the client already authenticated, otherwise the HELLO AUTH "+
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if in.Has("setname") {
		s.updateIdentity(func(i *identity) { i.name = string(in.Bytes("setname")) })
	}
	s.setProto(proto)
	w.Proto = proto // the reply speaks the new one already
	var f fields
	f.text("server", "redis")
	f.text("version", RedisVersion)
	f.number("proto", int64(proto))
	f.count("id", s.conn.ID())
	f.text("mode", "standalone")
	f.text("role", "master")
	w.Map(len(f) + 1)
	f.writeEach(w)
	w.BulkString("modules")
	w.Array(0)
	return nil
}

// defaultUser is the user of a connection that has not authenticated as another.
const defaultUser = acl.DefaultUser

// authFailuresMax is how often a connection may fail to authenticate before it is
// closed, so that guessing passwords takes a new connection now and then.
const authFailuresMax = 8

func auth() Spec {
	return Spec{
		Name: "AUTH", Secret: true, Group: "connection", Since: "1.0.0", Complexity: "O(N) where N is the number of the user's passwords",
		Summary:  "Authenticates the connection.",
		Differs:  "The eighth failure on one connection closes it.",
		Flags:    []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Args:     []Arg{{Name: "username", Type: String, Optional: true}, {Name: "password", Type: String}},
		Examples: []Example{{"AUTH default anything", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !in.Has("username") && s.handler.OpenToAll() {
				return command.Refuse("ERR", "AUTH <password> called without any password configured for the default user. "+
					"Are you sure your configuration is correct?")
			}
			user := in.Bytes("username")
			if user == nil {
				user = []byte(defaultUser)
			}
			if err := s.authenticate(user, in.Bytes("password")); err != nil {
				return err
			}
			w.OK()
			return nil
		},
	}
}

// authenticate makes the session speak for the user. A failure leaves it as it
// was.
func (s *Session) authenticate(user, password []byte) error {
	a := s.handler.users.Authenticate(string(user), password)
	if a == nil {
		s.deny(acl.DeniedAuth, "AUTH", command.Clip(user))
		s.handler.failures.note(s)
		if s.authFailures++; s.authFailures >= authFailuresMax {
			s.closing = true
		}
		return command.Refuse("WRONGPASS", "invalid username-password pair or user is disabled.")
	}
	s.become(a)
	return nil
}

// become makes the account's user the user of the session.
func (s *Session) become(a *acl.Account) {
	s.account.Store(a)
	s.setAuthed(true)
}

// arrive makes the session that of a client which has just connected: it speaks
// for the user its certificate names, else for the default one.
func (s *Session) arrive() {
	if s.handler.cfg.CertificateUsers {
		if a := s.handler.users.Account(s.conn.CertificateName()); a != nil {
			if u := a.User(); u != nil && u.Enabled() {
				s.become(a)
				return
			}
		}
	}
	s.account.Store(s.handler.defaultAccount)
	s.setAuthed(s.handler.OpenToAll())
}

func (s *Session) setAuthed(ok bool) {
	s.authed = ok
	s.conn.SetAuthenticated(ok)
}

// userName returns the user of the session. It may be called for another's session.
func (s *Session) userName() string {
	if u := s.account.Load().User(); u != nil {
		return u.Name()
	}
	return "(deleted)"
}

// OpenToAll reports whether a client need not authenticate: the default user is on
// and has no password.
func (h *Handler) OpenToAll() bool { return h.defaultAccount.User().Open() }

func ping() Spec {
	return Spec{
		Name: "PING", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Answers PONG, or the message given.",
		Flags:    []string{"fast"},
		Tips:     []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Args:     []Arg{{Name: "message", Type: String, Optional: true}},
		Examples: []Example{{"PING", "PONG"}, {"PING hello", `"hello"`}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if s.proto == 2 && len(s.subs.topics) > 0 { // such a client reads arrays only
				w.Array(2)
				w.BulkString("pong")
				w.Bulk(in.Bytes("message"))
				return nil
			}
			if in.Has("message") {
				w.Bulk(in.Bytes("message"))
				return nil
			}
			w.Status("PONG")
			return nil
		},
	}
}

func echo() Spec {
	return Spec{
		Name: "ECHO", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Returns the message, byte for byte.",
		Flags:    []string{"loading", "stale", "fast"},
		Args:     []Arg{{Name: "message", Type: String}},
		Examples: []Example{{"ECHO hi", `"hi"`}},
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			w.Bulk(in.Bytes("message"))
			return nil
		},
	}
}

func selectDB() Spec {
	return Spec{
		Name: "SELECT", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Accepts database 0.",
		Differs:  "There is one database, 0; any other is out of range.",
		Flags:    []string{"loading", "stale", "fast"},
		Args:     []Arg{{Name: "index", Type: Integer, Min: math.MinInt64}},
		Examples: []Example{{"SELECT 0", "OK"}},
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			if in.Integer("index", 0) != 0 {
				return command.Refuse("ERR", "DB index is out of range")
			}
			w.OK()
			return nil
		},
	}
}

func reset() Spec {
	return Spec{
		Name: "RESET", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
		Summary:   "Makes the connection as new: RESP2, no name, not authenticated.",
		Flags:     []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples:  []Example{{"RESET", "RESET"}},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if len(s.subs.topics) > 0 || s.subs.monitor {
				s.later = resetReply{s}
			}
			s.reset()
			w.Proto = s.proto
			w.Status("RESET")
			return nil
		},
	}
}

// resetReply answers the RESET of a client with subscriptions: their end is in
// force, and behind every event that was delivered, when it is rendered.
type resetReply struct{ session *Session }

// Ready implements resp.Reply.
func (resetReply) Ready() bool { return true }

// Append ends the subscriptions.
func (r resetReply) Append(w *resp.Writer) {
	r.session.handler.hub.Reset(&r.session.subscriber)
	w.Pushes()
	w.Status("RESET")
}

// Drop has nothing to take back: the session leaves the hub with its connection.
func (resetReply) Drop() {}

func quit() Spec {
	return Spec{
		Name: "QUIT", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:   "Ends the connection after everything before it was answered.",
		Flags:     []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples:  []Example{{"QUIT", "OK"}},
		Immediate: true,
		Loose:     true, // Redis takes any arguments here
		Args:      []Arg{{Name: "ignored", Type: String, Optional: true, Multiple: true}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			s.closing = true
			w.OK()
			return nil
		},
	}
}
