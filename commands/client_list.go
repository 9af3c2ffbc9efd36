package commands

import (
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/resp"
)

func clientInfo() Spec {
	return Spec{
		Name: "INFO", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
		Summary:  "Describes this connection in the form of CLIENT LIST.",
		Flags:    connectionFlags(),
		Tips:     []string{"nondeterministic_output"},
		Examples: []Example{{"CLIENT INFO", "..."}},
		Room:     func(in *input) int { return 2 * in.session.lineBytes() },
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			var b strings.Builder
			s.describe(&b, s.handler.cfg.Now())
			w.Verbatim(b.String())
			return nil
		},
	}
}

func clientList() Spec {
	return Spec{
		Name: "LIST", Group: "connection", Since: "2.4.0", Complexity: "O(N) where N is the number of connections",
		Summary: "Describes the connections, a line for each.",
		Differs: "Shows of Redis' fields those that mean something here.",
		Flags:   connectionFlags("admin"), Quiet: true,
		Tips: []string{"nondeterministic_output"},
		Args: []Arg{clientType(), {Name: "id", Type: Block, Token: "ID", Optional: true, Args: []Arg{
			{Name: "client-id", Type: Integer, Multiple: true},
		}}},
		Examples: []Example{{"CLIENT LIST", "..."}},
		Loose:    true, // ID takes all that follows
		Room:     linesRoom,
		Local:    runClientList,
	}
}

func clientType() Arg {
	return Arg{Name: "client-type", Type: OneOf, Token: "TYPE", Optional: true, Args: []Arg{
		{Name: "normal", Type: PureToken, Token: "NORMAL"}, {Name: "master", Type: PureToken, Token: "MASTER"},
		{Name: "replica", Type: PureToken, Token: "REPLICA"}, {Name: "pubsub", Type: PureToken, Token: "PUBSUB"},
	}}
}

// isClientType reads a type of client.
func isClientType(word []byte) (name string, err error) {
	for _, t := range []string{"normal", "pubsub", "master", "replica", "slave"} {
		if isToken(word, strings.ToUpper(t)) {
			return t, nil
		}
	}
	return "", &refusal{"ERR", "Unknown client type '" + clip(word) + "'"}
}

func runClientList(s *Session, in *input, w *resp.Writer) error {
	include := func(*Session) bool { return true }
	switch {
	case len(in.args) == 2 && isToken(in.args[0], "TYPE"):
		wanted, err := isClientType(in.args[1])
		if err != nil {
			return err
		}
		include = func(o *Session) bool { return o.isOf(wanted) }
	case len(in.args) >= 2 && isToken(in.args[0], "ID"):
		wanted := make(map[uint64]bool, len(in.args))
		for _, a := range in.args[1:] {
			id, ok := parseInt(a)
			if !ok {
				return &refusal{"ERR", "Invalid client ID"}
			}
			wanted[uint64(id)] = true //nolint:gosec // what is below 0 is nobody's
		}
		include = func(o *Session) bool { return wanted[o.conn.ID()] }
	case len(in.args) > 0:
		return &refusal{"ERR", "syntax error"}
	}
	var b strings.Builder
	now := s.handler.cfg.Now()
	for _, o := range s.handler.list() {
		if include(o) {
			o.describe(&b, now)
		}
	}
	w.Verbatim(b.String())
	return nil
}

// isOf reports whether the client is of a type.
func (s *Session) isOf(clientType string) bool {
	name, _ := s.listening().clientType()
	return name == clientType
}

// describe writes a connection's line. It may be called for another's session.
func (s *Session) describe(b *strings.Builder, now time.Time) {
	who, cmd := s.identity.Load(), "NULL"
	listens := s.listening()
	_, flags := listens.clientType()
	state := who.trackingFlags()
	if s.client.Waits() {
		state = "b" + state
	}
	if s.queued.Load() >= 0 {
		state = "x" + state
	}
	if state != "" {
		flags = strings.TrimPrefix(flags, "N") + state
	}
	if c := s.current.Load(); c != nil {
		cmd = c.name
	}
	seconds := func(since time.Time) string { return strconv.FormatInt(max(int64(now.Sub(since).Seconds()), 0), 10) }
	for _, f := range []struct{ name, value string }{
		{"id", strconv.FormatUint(s.conn.ID(), 10)},
		{"addr", s.conn.RemoteAddr().String()}, {"laddr", s.conn.LocalAddr().String()},
		{"name", who.name}, {"age", seconds(s.conn.CreatedAt())}, {"idle", seconds(s.conn.LastActive())},
		{"flags", flags}, {"db", "0"}, {"sub", strconv.Itoa(listens.channels)}, {"psub", strconv.Itoa(listens.patterns)}, {"multi", strconv.Itoa(int(s.queued.Load()))},
		{"oll", strconv.Itoa(s.conn.Pending())}, {"omem", strconv.FormatInt(s.conn.QueuedBytes(), 10)},
		{"cmd", cmd}, {"user", s.userName()}, {"redir", strconv.FormatInt(who.redirect, 10)}, {"resp", strconv.Itoa(who.proto)},
		{"lib-name", who.libName}, {"lib-ver", who.libVersion},
	} {
		if f.name != "id" {
			b.WriteByte(' ')
		}
		b.WriteString(f.name)
		b.WriteByte('=')
		b.WriteString(f.value)
	}
	b.WriteByte('\n')
}
