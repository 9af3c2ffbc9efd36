package commands

import (
	"sync/atomic"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// preferences are what the client has chosen for its connection, with CLIENT, HELLO and the like.
type preferences struct {
	proto    int
	mute     muteMode
	unmuted  bool // the command being handled is CLIENT REPLY ON
	tracking *tracking
	identity atomic.Pointer[identity]
}

// identity is what a client has declared about itself. It is immutable and replaced as a whole.
type identity struct {
	name, libName, libVersion string
	proto                     int
	redirect                  int64 // of CLIENT TRACKING; -1 if it is off
	bcast                     bool
}

// muteMode is the mode set by CLIENT REPLY.
type muteMode uint8

const (
	muteNone muteMode = iota
	muteAll           // OFF
	muteNext          // CLIENT REPLY SKIP itself
	muteThis          // the command after SKIP
)

func client() Spec {
	return container("CLIENT", "connection", "2.4.0", "client connection commands",
		clientCaching(), clientCapa(), clientGetName(), clientID(), clientInfo(), clientKill(), clientList(),
		clientSwitch("NO-EVICT", "7.0.0", "Accepted: Fila never closes a connection for lack of memory.", "admin"),
		clientSwitch("NO-TOUCH", "7.2.0", "Accepted: reading changes nothing in Fila."),
		clientReply(), clientSetInfo(), clientSetName(), clientTracking(), clientUnblock(),
	)
}

// connectionFlags are the flags of every subcommand of CLIENT.
func connectionFlags(more ...string) []string { return append(more, "noscript", "loading", "stale") }

func onOff() Arg {
	return Arg{Name: "enabled", Type: OneOf, Args: []Arg{
		{Name: "on", Type: PureToken, Token: "ON"}, {Name: "off", Type: PureToken, Token: "OFF"},
	}}
}

// clientSwitch describes a mode without effect, which is accepted because clients set it when they
// connect.
func clientSwitch(name, since, summary string, flags ...string) Spec {
	return Spec{
		Name: name, Group: "connection", Since: since, Complexity: "O(1)", Returns: "status", Summary: summary,
		Flags: connectionFlags(flags...), Quiet: true, Args: []Arg{onOff()},
		Examples: []Example{{"CLIENT " + name + " ON", "OK"}}, Local: noEffect,
	}
}

// clientCapa accepts the capabilities that libraries for Valkey declare. None of them changes a
// reply.
func clientCapa() Spec {
	return Spec{
		Name: "CAPA", Group: "connection", Since: "8.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Accepted: no capability of a client changes what Fila answers.",
		Differs: "It is Valkey's, whose libraries send it.",
		Flags:   connectionFlags(), Quiet: true,
		Args:     []Arg{{Name: "capability", Type: String, Multiple: true}},
		Examples: []Example{{"CLIENT CAPA redirect", "OK"}}, Local: noEffect,
	}
}

func clientID() Spec {
	return Spec{
		Name: "ID", Group: "connection", Since: "5.0.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Returns the id of the connection, which is never reused.",
		Flags:   connectionFlags(), Examples: []Example{{"CLIENT ID", "(integer) 1"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Int(int64(s.conn.ID()))
			return nil
		},
	}
}

func clientGetName() Spec {
	return Spec{
		Name: "GETNAME", Group: "connection", Since: "2.6.9", Complexity: "O(1)", Returns: "string or nil",
		Summary: "Returns the name of the connection.",
		Flags:   connectionFlags(), Examples: []Example{{"CLIENT GETNAME", "(nil)"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			writeName(w, s.prefs.identity.Load().name)
			return nil
		},
	}
}

func clientSetName() Spec {
	return Spec{
		Name: "SETNAME", Group: "connection", Since: "2.6.9", Complexity: "O(1)", Returns: "status",
		Summary: "Names the connection; an empty name removes it.",
		Flags:   connectionFlags(), Args: []Arg{{Name: "connection-name", Type: String}},
		Examples: []Example{{"CLIENT SETNAME worker-7", "OK"}, {"CLIENT GETNAME", `"worker-7"`}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !validName(in.Bytes("connection-name")) {
				return errClientName()
			}
			s.updateIdentity(func(i *identity) { i.name = string(in.Bytes("connection-name")) })
			w.OK()
			return nil
		},
	}
}

func clientSetInfo() Spec {
	return Spec{
		Name: "SETINFO", Group: "connection", Since: "7.2.0", Complexity: "O(1)", Returns: "status",
		Summary: "Sets the client library's name or version, for CLIENT LIST.",
		Flags:   connectionFlags(),
		Args: []Arg{{Name: "attr", Type: OneOf, Args: []Arg{
			{Name: "lib-name", Type: PureToken, Token: "LIB-NAME"}, {Name: "lib-ver", Type: PureToken, Token: "LIB-VER"},
		}}, {Name: "value", Type: String}},
		Examples: []Example{{"CLIENT SETINFO LIB-NAME example", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			value := in.Bytes("value")
			if !validName(value) {
				return command.Refuse("ERR", string(in.Args[0])+" cannot contain spaces, newlines or special characters.")
			}
			s.updateIdentity(func(i *identity) {
				if in.Has("lib-name") {
					i.libName = string(value)
				} else {
					i.libVersion = string(value)
				}
			})
			w.OK()
			return nil
		},
	}
}

// nameBytesMax bounds the texts that a client declares about itself.
const nameBytesMax = 1024

// validName reports whether a name is allowed in a line of CLIENT LIST.
func validName(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return len(name) <= nameBytesMax
}

func errClientName() error {
	return command.Refuse("ERR", "Client names cannot contain spaces, newlines or special characters.")
}

// updateIdentity replaces what the client has declared about itself.
func (s *Session) updateIdentity(change func(*identity)) {
	changed := *s.prefs.identity.Load()
	change(&changed)
	s.prefs.identity.Store(&changed)
}

func clientReply() Spec {
	return Spec{
		Name: "REPLY", Group: "connection", Since: "3.2.0", Complexity: "O(1)", Returns: "status",
		Summary: "Turns replies off, on, or off for the next command.",
		Differs: "If the reply of a lease is turned off, its messages are ready again at once.",
		Flags:   connectionFlags(),
		Args: []Arg{{Name: "action", Type: OneOf, Args: []Arg{
			{Name: "on", Type: PureToken, Token: "ON"}, {Name: "off", Type: PureToken, Token: "OFF"}, {Name: "skip", Type: PureToken, Token: "SKIP"},
		}}},
		Examples: []Example{{"CLIENT REPLY ON", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			switch {
			case in.Has("on"):
				s.prefs.mute, s.prefs.unmuted = muteNone, true
			case in.Has("off"):
				s.prefs.mute = muteAll
			case s.prefs.mute == muteNone:
				s.prefs.mute = muteNext
			}
			w.OK()
			return nil
		},
	}
}

func clientUnblock() Spec {
	return Spec{
		Name: "UNBLOCK", Group: "connection", Since: "5.0.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Ends another connection's wait for messages: without messages, or with an error.",
		Flags:   connectionFlags("admin"),
		Args: []Arg{{Name: "client-id", Type: Integer, Min: 0}, {Name: "timeout_error", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "timeout", Type: PureToken, Token: "TIMEOUT"}, {Name: "error", Type: PureToken, Token: "ERROR"},
		}}},
		Examples: []Example{{"CLIENT UNBLOCK 99", "(integer) 0"}},
		Refuse: func(_ []byte, integer bool) error {
			if integer {
				return nil
			}
			return command.Refuse("ERR", "CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		},
		Parse: func(_ *Session, in *input) (call, error) {
			return unblock(uint64(in.Integer("client-id", 0)), in.Has("error")), nil
		},
	}
}

// unblock returns the call that ends the wait of a client, which answers whether it waited.
func unblock(client uint64, withError bool) call {
	return answerBool(func(tx *engine.Tx) (bool, error) { return tx.Unblock(client, withError), nil })
}

func clientKill() Spec {
	option := func(name, token string, t command.ArgType) Arg { return Arg{Name: name, Type: t, Token: token} }
	kind := clientType()
	kind.Optional = false
	return Spec{
		Name: "KILL", Group: "connection", Since: "2.4.0", Complexity: "O(N) where N is the number of connections", Returns: "status or integer",
		Summary: "Closes connections: one by its address, or all that match the filters.",
		Flags:   connectionFlags("admin"),
		Args: []Arg{{Name: "filter", Type: OneOf, Args: []Arg{
			{Name: "ip:port", Type: String},
			{Name: "new-format", Type: OneOf, Multiple: true, Args: []Arg{
				option("client-id", "ID", Integer), kind, option("username", "USER", String),
				option("ip:port", "ADDR", String), option("ip:port", "LADDR", String), option("yes/no", "SKIPME", String),
			}},
		}}},
		Examples: []Example{{"CLIENT KILL ID 9999", "(integer) 0"}},
		Loose:    true, // an address may look like the name of a filter
		Local:    runClientKill,
	}
}

// killFilter selects the connections to close.
type killFilter struct {
	id                uint64
	addr, laddr, user string
	clientType        string
	skipMe            bool
}

func runClientKill(s *Session, in *input, w *resp.Writer) error {
	if len(in.Args) == 1 {
		if s.handler.kill(s, &killFilter{addr: string(in.Args[0])}) == 0 {
			return command.Refuse("ERR", "No such client")
		}
		w.OK()
		return nil
	}
	f := killFilter{skipMe: true}
	if len(in.Args)%2 != 0 {
		return command.Refuse("ERR", "syntax error")
	}
	for i := 0; i < len(in.Args); i += 2 {
		if err := f.read(s.handler, in.Args[i], in.Args[i+1]); err != nil {
			return err
		}
	}
	w.Int(int64(s.handler.kill(s, &f)))
	return nil
}

func (f *killFilter) read(h *Handler, option, value []byte) error {
	switch {
	case command.IsToken(option, "ID"):
		id, ok := command.ParseInt(value)
		if !ok || id < 1 {
			return command.Refuse("ERR", "client-id should be greater than 0")
		}
		f.id = uint64(id)
	case command.IsToken(option, "TYPE"):
		name, err := isClientType(value)
		f.clientType = name
		return err
	case command.IsToken(option, "ADDR"):
		f.addr = string(value)
	case command.IsToken(option, "LADDR"):
		f.laddr = string(value)
	case command.IsToken(option, "USER"):
		f.user = string(value)
		if h.users.Account(f.user) == nil {
			return command.Refuse("ERR", "No such user '"+command.Clip(value)+"'")
		}
	case command.IsToken(option, "SKIPME") && command.IsToken(value, "YES"):
		f.skipMe = true
	case command.IsToken(option, "SKIPME") && command.IsToken(value, "NO"):
		f.skipMe = false
	default:
		return command.Refuse("ERR", "syntax error")
	}
	return nil
}

// kill closes the connections that f selects and returns their number. The caller's own connection
// is closed after its reply.
func (h *Handler) kill(by *Session, f *killFilter) (n int) {
	for _, s := range h.list() {
		switch {
		case f.clientType != "" && !s.isOf(f.clientType),
			s == by && f.skipMe,
			f.id != 0 && s.conn.ID() != f.id,
			f.user != "" && s.userName() != f.user,
			f.addr != "" && s.conn.RemoteAddr().String() != f.addr,
			f.laddr != "" && s.conn.LocalAddr().String() != f.laddr:
			continue
		}
		n++
		if s == by {
			s.closing = true
			continue
		}
		s.conn.Close()
	}
	return n
}

// noEffect replies OK: the command has no effect on this server.
func noEffect(_ *Session, _ *input, w *resp.Writer) error {
	w.OK()
	return nil
}
