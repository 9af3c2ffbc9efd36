package commands

import (
	"fmt"
	"strconv"

	"github.com/faisca/fila/resp"
)

func monitor() Spec {
	return Spec{
		Name: "MONITOR", Group: "server", Since: "1.0.0", Complexity: "O(1)",
		Summary: "Shows every command that clients send, as it is read.",
		Differs: fmt.Sprintf("An argument is cut after %d bytes; a command is shown when it is read, which for one behind a waiting lease is before it runs.",
			monitorBytesMax),
		Flags:    []string{"admin", "noscript", "loading", "stale"},
		Examples: []Example{{"MONITOR", "OK"}},
		Local: func(s *Session, _ *input, _ *resp.Writer) error {
			s.subs.monitor = true
			s.showSubscriptions()
			s.later = monitorReply{s}
			return nil
		},
	}
}

// monitorReply answers MONITOR; the lines follow it.
type monitorReply struct{ session *Session }

// Ready implements resp.Reply.
func (monitorReply) Ready() bool { return true }

// Append begins to show commands.
func (r monitorReply) Append(w *resp.Writer) {
	r.session.handler.hub.monitor(r.session)
	w.OK()
}

// Drop has nothing to take back: the session leaves the hub with its connection.
func (monitorReply) Drop() {}

// monitorBytesMax bounds what is shown of an argument: payloads may have
// megabytes, and whoever watches wants to see commands.
const monitorBytesMax = 1 << 10

// monitored shows a command to those who monitor. As in Redis, those of
// administrators are not shown, and never a password.
func (s *Session) monitored(c *command, args [][]byte) {
	if c.spec.has("admin") {
		return
	}
	now := s.handler.cfg.Now()
	b := make([]byte, 0, 128)
	b = append(b, '+')
	b = strconv.AppendInt(b, now.Unix(), 10)
	b = fmt.Appendf(b, ".%06d [0 %s]", now.Nanosecond()/1000, s.conn.RemoteAddr())
	for i, a := range args {
		b = append(b, ' ')
		if secret(c, args, i) {
			b = append(b, `"(redacted)"`...)
			continue
		}
		b = appendRepr(b, a[:min(len(a), monitorBytesMax)])
		if more := len(a) - monitorBytesMax; more > 0 {
			b = fmt.Appendf(b, "... (%d more bytes)", more)
		}
	}
	s.handler.hub.feed(append(b, '\r', '\n'))
}

// secret reports whether the argument may be a password: any of a command that has
// some, but of HELLO only what follows AUTH.
func secret(c *command, args [][]byte, i int) bool {
	if c.spec.Name == "HELLO" {
		return i >= 2 && isToken(args[i-1], "AUTH") || i >= 3 && isToken(args[i-2], "AUTH")
	}
	return c.spec.Secret && i >= c.words
}

// appendRepr appends bytes in quotes, as redis-cli prints them.
func appendRepr(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		switch c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\a':
			b = append(b, '\\', 'a')
		case '\b':
			b = append(b, '\\', 'b')
		default:
			if c < ' ' || c > '~' {
				b = fmt.Appendf(b, `\x%02x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}
