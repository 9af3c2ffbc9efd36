package commands

import "github.com/faisca/fila/resp"

func clientKill() Spec {
	option := func(name, token string, t ArgType) Arg { return Arg{Name: name, Type: t, Token: token} }
	kind := clientType()
	kind.Optional = false
	return Spec{
		Name: "KILL", Group: "connection", Since: "2.4.0", Complexity: "O(N) where N is the number of connections",
		Summary: "Closes connections: one by its address, or all that pass the filters.",
		Flags:   connectionFlags("admin"),
		Args: []Arg{{Name: "filter", Type: OneOf, Args: []Arg{
			{Name: "ip:port", Type: String},
			{Name: "new-format", Type: OneOf, Multiple: true, Args: []Arg{
				option("client-id", "ID", Integer), kind, option("username", "USER", String),
				option("ip:port", "ADDR", String), option("ip:port", "LADDR", String), option("yes/no", "SKIPME", String),
			}},
		}}},
		Examples: []Example{{"CLIENT KILL ID 9999", "(integer) 0"}},
		Loose:    true, // an address may look like a filter's name
		Local:    runClientKill,
	}
}

// killFilter is what a connection must agree with to be closed.
type killFilter struct {
	id                uint64
	addr, laddr, user string
	clientType        string
	skipMe            bool
}

func runClientKill(s *Session, in *input, w *resp.Writer) error {
	if len(in.args) == 1 {
		if s.handler.kill(s, &killFilter{addr: string(in.args[0])}) == 0 {
			return &refusal{"ERR", "No such client"}
		}
		w.OK()
		return nil
	}
	f := killFilter{skipMe: true}
	if len(in.args)%2 != 0 {
		return &refusal{"ERR", "syntax error"}
	}
	for i := 0; i < len(in.args); i += 2 {
		if err := f.read(s.handler, in.args[i], in.args[i+1]); err != nil {
			return err
		}
	}
	w.Int(int64(s.handler.kill(s, &f)))
	return nil
}

func (f *killFilter) read(h *Handler, option, value []byte) error {
	switch {
	case isToken(option, "ID"):
		id, ok := parseInt(value)
		if !ok || id < 1 {
			return &refusal{"ERR", "client-id should be greater than 0"}
		}
		f.id = uint64(id)
	case isToken(option, "TYPE"):
		name, err := isClientType(value)
		f.clientType = name
		return err
	case isToken(option, "ADDR"):
		f.addr = string(value)
	case isToken(option, "LADDR"):
		f.laddr = string(value)
	case isToken(option, "USER"):
		f.user = string(value)
		if h.users.Account(f.user) == nil {
			return &refusal{"ERR", "No such user '" + clip(value) + "'"}
		}
	case isToken(option, "SKIPME") && isToken(value, "YES"):
		f.skipMe = true
	case isToken(option, "SKIPME") && isToken(value, "NO"):
		f.skipMe = false
	default:
		return &refusal{"ERR", "syntax error"}
	}
	return nil
}

// kill closes the connections that f names and returns how many. The one that
// asks is closed after its answer.
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
