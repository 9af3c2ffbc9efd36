package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func client() Spec {
	return Spec{
		Name: "CLIENT", Group: "connection", Since: "2.4.0", Complexity: "Depends on subcommand.",
		Summary: "A container for client connection commands.",
		Subcommands: []Spec{
			clientCaching(), clientCapa(), clientGetName(), clientGetRedir(), help("CLIENT"), clientID(), clientInfo(), clientKill(), clientList(),
			clientSwitch("NO-EVICT", "7.0.0", "Accepted: Fila never closes a connection for want of memory.", "admin"),
			clientSwitch("NO-TOUCH", "7.2.0", "Accepted: reading changes nothing in Fila."),
			clientReply(), clientSetInfo(), clientSetName(), clientTracking(), clientTrackingInfo(), clientUnblock(),
		},
	}
}

// connectionFlags are those of every subcommand of CLIENT.
func connectionFlags(more ...string) []string { return append(more, "noscript", "loading", "stale") }

func onOff() Arg {
	return Arg{Name: "enabled", Type: OneOf, Args: []Arg{
		{Name: "on", Type: PureToken, Token: "ON"}, {Name: "off", Type: PureToken, Token: "OFF"},
	}}
}

// clientSwitch is a mode that has no effect here and is accepted so that clients
// which set it when they connect go on.
func clientSwitch(name, since, summary string, flags ...string) Spec {
	return Spec{
		Name: name, Group: "connection", Since: since, Complexity: "O(1)", Summary: summary,
		Flags: connectionFlags(flags...), Quiet: true, Args: []Arg{onOff()},
		Examples: []Example{{"CLIENT " + name + " ON", "OK"}}, Local: answerOK,
	}
}

// clientCapa takes note of what libraries for Valkey can do. There is nothing that
// would be answered another way for it.
func clientCapa() Spec {
	return Spec{
		Name: "CAPA", Group: "connection", Since: "8.0.0", Complexity: "O(1)",
		Summary: "Accepted: no capability of a client changes what Fila answers.",
		Differs: "It is Valkey's, whose libraries send it.",
		Flags:   connectionFlags(), Quiet: true,
		Args:     []Arg{{Name: "capability", Type: String, Multiple: true}},
		Examples: []Example{{"CLIENT CAPA redirect", "OK"}}, Local: answerOK,
	}
}

func clientID() Spec {
	return Spec{
		Name: "ID", Group: "connection", Since: "5.0.0", Complexity: "O(1)",
		Summary: "Returns the number of the connection, which no other ever has.",
		Flags:   connectionFlags(), Examples: []Example{{"CLIENT ID", "(integer) 1"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			w.Int(int64(s.conn.ID())) //nolint:gosec // counts connections
			return nil
		},
	}
}

func clientGetName() Spec {
	return Spec{
		Name: "GETNAME", Group: "connection", Since: "2.6.9", Complexity: "O(1)",
		Summary: "Returns the name of the connection.",
		Flags:   connectionFlags(), Examples: []Example{{"CLIENT GETNAME", "(nil)"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			writeName(w, s.identity.Load().name)
			return nil
		},
	}
}

func clientSetName() Spec {
	return Spec{
		Name: "SETNAME", Group: "connection", Since: "2.6.9", Complexity: "O(1)",
		Summary: "Names the connection; an empty name removes it.",
		Flags:   connectionFlags(), Args: []Arg{{Name: "connection-name", Type: String}},
		Examples: []Example{{"CLIENT SETNAME worker-7", "OK"}, {"CLIENT GETNAME", `"worker-7"`}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if !validName(in.bytes("connection-name")) {
				return errClientName()
			}
			s.introduce(func(i *identity) { i.name = string(in.bytes("connection-name")) })
			w.OK()
			return nil
		},
	}
}

func clientSetInfo() Spec {
	return Spec{
		Name: "SETINFO", Group: "connection", Since: "7.2.0", Complexity: "O(1)",
		Summary: "Notes the client library's name or version, for CLIENT LIST.",
		Flags:   connectionFlags(),
		Args: []Arg{{Name: "attr", Type: OneOf, Args: []Arg{
			{Name: "lib-name", Type: PureToken, Token: "LIB-NAME"}, {Name: "lib-ver", Type: PureToken, Token: "LIB-VER"},
		}}, {Name: "value", Type: String}},
		Examples: []Example{{"CLIENT SETINFO LIB-NAME example", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			value := in.bytes("value")
			if !validName(value) {
				return &refusal{"ERR", string(in.args[0]) + " cannot contain spaces, newlines or special characters."}
			}
			s.introduce(func(i *identity) {
				if in.has("lib-name") {
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

// nameBytesMax bounds what a client may have kept about itself.
const nameBytesMax = 1024

// validName reports whether a name can stand in a line of CLIENT LIST.
func validName(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return len(name) <= nameBytesMax
}

func errClientName() error {
	return &refusal{"ERR", "Client names cannot contain spaces, newlines or special characters."}
}

// introduce changes what the client has said about itself.
func (s *Session) introduce(change func(*identity)) {
	changed := *s.identity.Load()
	change(&changed)
	s.identity.Store(&changed)
}

func clientReply() Spec {
	return Spec{
		Name: "REPLY", Group: "connection", Since: "3.2.0", Complexity: "O(1)",
		Summary: "Switches replies off, on, or off for the next command.",
		Differs: "A lease whose reply is switched off is given back: nobody was told.",
		Flags:   connectionFlags(),
		Args: []Arg{{Name: "action", Type: OneOf, Args: []Arg{
			{Name: "on", Type: PureToken, Token: "ON"}, {Name: "off", Type: PureToken, Token: "OFF"}, {Name: "skip", Type: PureToken, Token: "SKIP"},
		}}},
		Examples: []Example{{"CLIENT REPLY ON", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			switch {
			case in.has("on"):
				s.mute = muteNone
			case in.has("off"):
				s.mute = muteAll
			case s.mute == muteNone:
				s.mute = muteNext
			}
			w.OK()
			return nil
		},
	}
}

func clientUnblock() Spec {
	return Spec{
		Name: "UNBLOCK", Group: "connection", Since: "5.0.0", Complexity: "O(1)",
		Summary: "Ends the wait of another connection for messages: with none, or with an error.",
		Flags:   connectionFlags("admin"),
		Args: []Arg{{Name: "client-id", Type: Integer, Min: 0}, {Name: "timeout_error", Type: OneOf, Optional: true, Args: []Arg{
			{Name: "timeout", Type: PureToken, Token: "TIMEOUT"}, {Name: "error", Type: PureToken, Token: "ERROR"},
		}}},
		Examples: []Example{{"CLIENT UNBLOCK 99", "(integer) 0"}},
		Refuse: func(_ []byte, integer bool) error {
			if integer {
				return nil
			}
			return &refusal{"ERR", "CLIENT UNBLOCK reason should be TIMEOUT or ERROR"}
		},
		Parse: func(in *input) (call, error) {
			return &unblock{client: uint64(in.integer("client-id", 0)), withError: in.has("error")}, nil //nolint:gosec // not negative
		},
	}
}

type unblock struct {
	client    uint64
	withError bool
	done      bool
}

// Apply implements engine.Call.
func (c *unblock) Apply(tx *engine.Tx) error {
	c.done = tx.Unblock(c.client, c.withError)
	return nil
}

// Render writes 1 if that client was blocked.
func (c *unblock) Render(_ *Handler, w *resp.Writer) error {
	if c.done {
		w.Int(1)
		return nil
	}
	w.Int(0)
	return nil
}
