package commands

import (
	"math"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// RedisVersion is the version of Redis that Fila reports. Clients use it to choose commands. It is the
// release that the tests compare replies with; a newer one would promise commands that Fila lacks.
const RedisVersion = "7.0.15"

func hello() Spec {
	return Spec{
		Name: "HELLO", Secret: true, Group: "connection", Since: "6.0.0", Complexity: "O(1)", Returns: "map",
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

// runHello checks all arguments before it changes anything, so a refused HELLO has no effect.
func runHello(s *Session, in *input, w *resp.Writer) error {
	proto := int(in.Integer("protover", int64(s.prefs.proto)))
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
	if !s.login.authed {
		return command.Refuse("NOAUTH", "HELLO must be called with the client already authenticated, otherwise the HELLO AUTH "+
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if in.Has("setname") {
		s.updateIdentity(func(i *identity) { i.name = string(in.Bytes("setname")) })
	}
	s.setProto(proto)
	w.Proto = proto // the reply is in the new protocol
	var f fields
	f.text("server", "redis")
	f.text("version", RedisVersion)
	f.number("proto", int64(proto))
	f.count("id", s.conn.ID())
	f.text("mode", modeName(s.mode))
	if state := s.handler.replication(); s.mode != ModeSentinel {
		f.text("role", state.role("replica"))
	}
	w.Map(len(f) + 1)
	f.writeEach(w)
	w.BulkString("modules")
	w.Array(0)
	return nil
}

// defaultUser is the user of connections that have not authenticated.
const defaultUser = acl.DefaultUser

// authFailuresMax is the number of failed authentications after which a connection is closed, which
// slows down the guessing of passwords.
const authFailuresMax = 8

func auth() Spec {
	return Spec{
		Name: "AUTH", Secret: true, Group: "connection", Since: "1.0.0", Complexity: "O(N) where N is the number of the user's passwords", Returns: "status",
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

// authenticate makes user the user of the session. After a failure the session is unchanged.
func (s *Session) authenticate(user, password []byte) error {
	a := s.handler.users.Authenticate(string(user), password)
	if a == nil {
		s.deny(acl.DeniedAuth, "AUTH", command.Clip(user))
		s.handler.failures.note(s)
		if s.login.failures++; s.login.failures >= authFailuresMax {
			s.closing = true
		}
		return command.Refuse("WRONGPASS", "invalid username-password pair or user is disabled.")
	}
	s.become(a)
	return nil
}

// become makes the user of the account the user of the session.
func (s *Session) become(a *acl.Account) {
	s.login.account.Store(a)
	s.setAuthed(true)
}

// arrive sets the user of a new connection: the user of a local connection, or the user that
// its certificate names, or the default user. A local user that is gone or off is not replaced
// by the default user, which may need no password: the connection has to authenticate.
func (s *Session) arrive() {
	local := s.conn.LocalUser()
	name := local
	if name == "" && s.handler.cfg.CertificateUsers {
		name = s.conn.CertificateName()
	}
	if a := s.handler.users.Account(name); a != nil {
		if u := a.User(); u != nil && u.Enabled() {
			s.become(a)
			return
		}
	}
	s.login.account.Store(s.handler.defaultAccount)
	s.setAuthed(local == "" && s.handler.OpenToAll())
}

func (s *Session) setAuthed(ok bool) {
	s.login.authed = ok
	s.conn.SetAuthenticated(ok)
}

// userName returns the name of the session's user. It may be called from other sessions.
func (s *Session) userName() string {
	if u := s.login.account.Load().User(); u != nil {
		return u.Name()
	}
	return "(deleted)"
}

// OpenToAll reports whether clients need not authenticate: the default user is enabled and has no
// password.
func (h *Handler) OpenToAll() bool { return h.defaultAccount.User().Open() }

func ping() Spec {
	return Spec{
		Name: "PING", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Returns: "status or string",
		Summary:  "Answers PONG, or the message given.",
		Flags:    []string{"fast"},
		Tips:     []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Args:     []Arg{{Name: "message", Type: String, Optional: true}},
		Examples: []Example{{"PING", "PONG"}, {"PING hello", `"hello"`}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if s.prefs.proto == 2 && len(s.subs.now.topics) > 0 { // such a client expects arrays only
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
		Name: "ECHO", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Returns: "string",
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
		Name: "SELECT", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Returns: "status",
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
		Name: "RESET", Group: "connection", Since: "6.2.0", Complexity: "O(1)", Returns: "status",
		Summary:   "Resets the connection: RESP2, no name, not authenticated.",
		Flags:     []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples:  []Example{{"RESET", "RESET"}},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if len(s.subs.now.topics) > 0 || s.subs.now.monitor {
				s.later = inTurn(func(w *resp.Writer) {
					s.hub().Reset(&s.subs.at) // after all events delivered before
					w.Pushes()
					w.Status("RESET")
				})
			}
			s.reset()
			w.Proto = s.prefs.proto
			w.Status("RESET")
			return nil
		},
	}
}

func quit() Spec {
	return Spec{
		Name: "QUIT", Group: "connection", Since: "1.0.0", Complexity: "O(1)", Returns: "status",
		Summary:   "Closes the connection after the replies to all earlier commands.",
		Flags:     []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples:  []Example{{"QUIT", "OK"}},
		Immediate: true,
		Loose:     true, // Redis accepts any arguments here
		Args:      []Arg{{Name: "ignored", Type: String, Optional: true, Multiple: true}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			s.closing = true
			w.OK()
			return nil
		},
	}
}

// Commands that only nodes send, to each other. They are in no table, since no client may send them.
const (
	relayAs      = "RELAY.AS"      // user, name, library, its version, protocol, kinds of events of the client whose commands follow
	relayReturn  = "RELAY.RETURN"  // queue, receipts: these deliveries did not reach their client
	relayUnblock = "RELAY.UNBLOCK" // id of a connection: its wait for messages ends
	relayAct     = "RELAY.ACT"     // user, address, command, object, before, after: what a client has changed on this node
	relayUsers   = "RELAY.USERS"   // what version of the users this node has, after the commands before
)

// fromNode executes a command that only nodes send. It returns false for any other.
func (s *Session) fromNode(args [][]byte) bool {
	w := s.scratch()
	switch {
	case string(args[0]) == relayAs && len(args) >= 6:
		s.takeIdentity(args[1:], w)
	case string(args[0]) == relayReturn && len(args) >= 2 && s.login.authed:
		u := &undeliverCall{}
		for _, word := range args[2:] {
			if r, err := engine.ParseReceipt(word); err == nil {
				u.deliveries = append(u.deliveries, &engine.Delivery{Queue: string(args[1]), Receipt: r})
			}
		}
		s.handler.submitUndo(u)
		w.OK()
	case string(args[0]) == relayUnblock && len(args) == 2 && s.login.authed:
		id, _ := command.ParseInt(args[1])
		s.handler.submitUndo(unblock(uint64(id), false))
		w.OK()
	case string(args[0]) == relayAct && len(args) == 7 && s.login.authed:
		s.handler.submitUndo(actOf(args[1:]))
		w.OK()
	case string(args[0]) == relayUsers && s.login.authed:
		s.answer(inTurn(func(w *resp.Writer) { w.Int(int64(s.handler.shared.version.Load())) }), smallRoom)
		return true
	default:
		return false
	}
	s.keep(w, false)
	return true
}

// takeIdentity makes the session one of a user of another node, or of that node itself.
func (s *Session) takeIdentity(words [][]byte, w *resp.Writer) {
	if user := string(words[0]); user != "" {
		a := s.handler.users.Account(user)
		if a == nil || a.User() == nil || !a.User().Enabled() {
			w.Error("NOAUTH", "the leader does not know the user of this connection, or the user is off")
			s.closing = true
			return
		}
		s.become(a)
	} else {
		s.setAuthed(true)
	}
	proto, _ := command.ParseInt(words[4])
	s.setProto(int(proto))
	s.updateIdentity(func(i *identity) {
		i.name, i.libName, i.libVersion = strings.Clone(string(words[1])), string(words[2]), string(words[3])
	})
	if len(words) > 5 {
		kinds, _ := command.ParseInt(words[5])
		s.handler.hub.Forward(&s.subs.at, engine.EventKind(kinds))
	}
	w.Int(int64(s.conn.ID()))
}
