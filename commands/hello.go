package commands

import (
	"math"

	"github.com/faisca/fila/resp"
)

// redisVersion is what Fila says it is compatible with. It is the release whose
// replies the tests compare with: clients read it to choose what to send, and
// a newer one would promise commands that are not here.
const redisVersion = "7.0.15"

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
				return &refusal{"ERR", "Protocol version is not an integer or out of range"}
			}
			return &refusal{"ERR", "Syntax error in HELLO option '" + clip(near) + "'"}
		},
		Local: runHello,
	}
}

// runHello checks everything before it changes anything, so that a refused HELLO
// leaves the connection as it was.
func runHello(s *Session, in *input, w *resp.Writer) error {
	proto := int(in.integer("protover", int64(s.proto)))
	if proto != 2 && proto != 3 {
		return &refusal{"NOPROTO", "unsupported protocol version"}
	}
	if in.has("setname") && !validName(in.bytes("setname")) {
		return errClientName()
	}
	if in.has("auth") {
		if err := s.authenticate(in.bytes("username"), in.bytes("password")); err != nil {
			return err
		}
	}
	if !s.authed {
		return &refusal{"NOAUTH", "HELLO must be called with the client already authenticated, otherwise the HELLO AUTH " +
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"}
	}
	if in.has("setname") {
		s.introduce(func(i *identity) { i.name = string(in.bytes("setname")) })
	}
	s.setProto(proto)
	w.Proto = proto // the reply speaks the new one already
	var f fields
	f.text("server", "redis")
	f.text("version", redisVersion)
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
