package commands

import (
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func clientInfo() Spec {
	return Spec{
		Name: "INFO", Group: "connection", Since: "6.2.0", Complexity: "O(1)", Returns: "text",
		Summary:  "Returns the line of this connection in CLIENT LIST.",
		Flags:    connectionFlags(),
		Tips:     []string{"nondeterministic_output"},
		Examples: []Example{{"CLIENT INFO", "..."}},
		Room:     func(s *Session, in *input) int { return 2 * s.lineBytes() },
		Memory:   "1 KiB for each connection shown, and the names that clients have set",
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
		Name: "LIST", Group: "connection", Since: "2.4.0", Complexity: "O(N) where N is the number of connections", Returns: "text",
		Summary: "Describes the connections, a line for each.",
		Differs: "Has those of Redis' fields that apply to Fila.",
		Flags:   connectionFlags("admin"), Quiet: true,
		Tips: []string{"nondeterministic_output"},
		Args: []Arg{clientType(), {Name: "id", Type: Block, Token: "ID", Optional: true, Args: []Arg{
			{Name: "client-id", Type: Integer, Multiple: true},
		}}},
		Examples: []Example{{"CLIENT LIST", "..."}},
		Loose:    true, // ID takes all arguments that follow
		Room:     linesRoom,
		Memory:   "1 KiB for each connection shown, and the names that clients have set",
		Local:    runClientList,
	}
}

func clientType() Arg {
	return Arg{Name: "client-type", Type: OneOf, Token: "TYPE", Optional: true, Args: []Arg{
		{Name: "normal", Type: PureToken, Token: "NORMAL"}, {Name: "master", Type: PureToken, Token: "MASTER"},
		{Name: "replica", Type: PureToken, Token: "REPLICA"}, {Name: "pubsub", Type: PureToken, Token: "PUBSUB"},
	}}
}

// isClientType reports whether a word is a type of client.
func isClientType(word []byte) (name string, err error) {
	for _, t := range []string{"normal", "pubsub", "master", "replica", "slave"} {
		if command.IsToken(word, strings.ToUpper(t)) {
			return t, nil
		}
	}
	return "", command.Refuse("ERR", "Unknown client type '"+command.Clip(word)+"'")
}

func runClientList(s *Session, in *input, w *resp.Writer) error {
	include := func(*Session) bool { return true }
	switch {
	case len(in.Args) == 2 && command.IsToken(in.Args[0], "TYPE"):
		wanted, err := isClientType(in.Args[1])
		if err != nil {
			return err
		}
		include = func(o *Session) bool { return o.isOf(wanted) }
	case len(in.Args) >= 2 && command.IsToken(in.Args[0], "ID"):
		wanted := make(map[uint64]bool, len(in.Args))
		for _, a := range in.Args[1:] {
			id, ok := command.ParseInt(a)
			if !ok {
				return command.Refuse("ERR", "Invalid client ID")
			}
			wanted[uint64(id)] = true
		}
		include = func(o *Session) bool { return wanted[o.conn.ID()] }
	case len(in.Args) > 0:
		return command.Refuse("ERR", "syntax error")
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

// isOf reports whether the client has a type.
func (s *Session) isOf(clientType string) bool {
	name, _ := s.subscriptionCounts().clientType()
	return name == clientType
}

// describe writes the line of a connection. It may be called from other sessions.
func (s *Session) describe(b *strings.Builder, now time.Time) {
	id, cmd := s.prefs.identity.Load(), "NULL"
	subs := s.subscriptionCounts()
	_, flags := subs.clientType()
	state := id.trackingFlags()
	if remote := s.nodes.remote.Load(); s.client.Waits() || remote != nil && remote.Waits() {
		state = "b" + state
	}
	if s.tx.queued.Load() >= 0 {
		state = "x" + state
	}
	if state != "" {
		flags = strings.TrimPrefix(flags, "N") + state
	}
	if c := s.current.Load(); c != nil {
		cmd = c.Name
	}
	seconds := func(since time.Time) string { return strconv.FormatInt(max(int64(now.Sub(since).Seconds()), 0), 10) }
	for _, f := range []struct{ name, value string }{
		{"id", strconv.FormatUint(s.conn.ID(), 10)},
		{"addr", s.conn.RemoteAddr().String()}, {"laddr", s.conn.LocalAddr().String()},
		{"name", id.name}, {"age", seconds(s.conn.CreatedAt())}, {"idle", seconds(s.conn.LastActive())},
		{"flags", flags}, {"db", "0"}, {"sub", strconv.Itoa(subs.channels)}, {"psub", strconv.Itoa(subs.patterns)}, {"multi", strconv.Itoa(int(s.tx.queued.Load()))},
		{"oll", strconv.Itoa(s.conn.Pending())}, {"omem", strconv.FormatInt(s.conn.QueuedBytes(), 10)},
		{"cmd", cmd}, {"user", s.userName()}, {"redir", strconv.FormatInt(id.redirect, 10)}, {"resp", strconv.Itoa(id.proto)},
		{"lib-name", id.libName}, {"lib-ver", id.libVersion},
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

// tracking is the mode set by CLIENT TRACKING; nil if it is off. It has no effect: no reply is
// cacheable, so no invalidations are sent. Some clients depend on the OK, and on Redis' refusals of
// modes that do not go together.
type tracking struct{ bcast, optin, optout bool }

func clientTracking() Spec {
	return Spec{
		Name: "TRACKING", Group: "connection", Since: "6.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Accepted without effect: no reply is cacheable, so no invalidation is ever sent.",
		Differs: "Never sends an invalidation.",
		Flags:   connectionFlags(),
		Args: []Arg{
			onOff(),
			{Name: "client-id", Type: Integer, Token: "REDIRECT", Optional: true},
			{Name: "prefix", Type: String, Token: "PREFIX", Optional: true, Multiple: true},
			{Name: "bcast", Type: PureToken, Token: "BCAST", Optional: true},
			{Name: "optin", Type: PureToken, Token: "OPTIN", Optional: true},
			{Name: "optout", Type: PureToken, Token: "OPTOUT", Optional: true},
			{Name: "noloop", Type: PureToken, Token: "NOLOOP", Optional: true},
		},
		Examples: []Example{{"CLIENT TRACKING ON OPTIN", "OK"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			var t *tracking
			redirect := int64(-1)
			if !in.Has("off") {
				redirect = in.Integer("redirect", 0)
				t = &tracking{bcast: in.Has("bcast"), optin: in.Has("optin"), optout: in.Has("optout")}
				if err := s.checkTracking(in, t); err != nil {
					return err
				}
			}
			s.prefs.tracking = t
			s.updateIdentity(func(i *identity) { i.redirect, i.bcast = redirect, t != nil && t.bcast })
			w.OK()
			return nil
		},
	}
}

// trackingFlags returns the flags of tracking in CLIENT LIST.
func (i *identity) trackingFlags() string {
	switch {
	case i.bcast:
		return "tB"
	case i.redirect >= 0:
		return "t"
	default:
		return ""
	}
}

// checkTracking refuses the combinations of options that Redis refuses, and changes of the mode.
func (s *Session) checkTracking(in *input, t *tracking) error {
	old := s.prefs.tracking
	switch {
	case in.Has("redirect") && !s.handler.connected(in.Integer("redirect", 0)):
		return command.Refuse("ERR", "The client ID you want redirect to does not exist")
	case in.Has("prefix") && !t.bcast:
		return command.Refuse("ERR", "PREFIX option requires BCAST mode to be enabled")
	case old != nil && old.bcast != t.bcast:
		return errSwitch("BCAST mode on/off")
	case t.bcast && (t.optin || t.optout):
		return command.Refuse("ERR", "OPTIN and OPTOUT are not compatible with BCAST")
	case t.optin && t.optout:
		return command.Refuse("ERR", "You can't specify both OPTIN mode and OPTOUT mode")
	case old != nil && (t.optin && old.optout || t.optout && old.optin):
		return errSwitch("OPTIN/OPTOUT mode")
	}
	return nil
}

func errSwitch(what string) error {
	return command.Refuse("ERR", "You can't switch "+what+" before disabling tracking for this client, and then re-enabling it with a different mode.")
}

// connected reports whether a connection with this id exists.
func (h *Handler) connected(id int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return id > 0 && h.sessions[uint64(id)] != nil
}

func clientCaching() Spec {
	return Spec{
		Name: "CACHING", Group: "connection", Since: "6.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Accepted without effect: no reply is cacheable.",
		Flags:   connectionFlags(),
		Args: []Arg{{Name: "mode", Type: OneOf, Args: []Arg{
			{Name: "yes", Type: PureToken, Token: "YES"}, {Name: "no", Type: PureToken, Token: "NO"},
		}}},
		Examples: []Example{{"CLIENT TRACKING ON OPTIN", "OK"}, {"CLIENT CACHING YES", "OK"}},
		Loose:    true, // the mode is checked before the word
		Local: func(s *Session, in *input, w *resp.Writer) error {
			t, yes, no := s.prefs.tracking, command.IsToken(in.Args[0], "YES"), command.IsToken(in.Args[0], "NO")
			switch {
			case t == nil || *t == tracking{}:
				return command.Refuse("ERR", "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
			case yes && !t.optin:
				return command.Refuse("ERR", "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
			case no && !t.optout:
				return command.Refuse("ERR", "CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
			case !yes && !no:
				return command.Refuse("ERR", "syntax error")
			}
			w.OK()
			return nil
		},
	}
}
