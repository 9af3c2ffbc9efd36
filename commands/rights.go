package commands

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
)

// This file is the one place where rights are asked for: every command passes
// check between being found and being parsed, executed or queued.

// catalog is the table as rules see it.
func (r *registry) catalog() *acl.Catalog {
	commands := make([]acl.Command, len(r.all))
	for i, c := range r.all {
		commands[i] = acl.Command{Name: c.name, Categories: c.spec.categories(), Always: c.noAuth}
	}
	return acl.NewCatalog(commands, categoryOrder(), globMatch)
}

// check reads the arguments of a command, and refuses what the user has no right
// to. Whether the command is allowed at all is asked before its syntax is looked
// at, what it may be used on after that.
func (s *Session) check(c *command, rest [][]byte) error {
	in := &s.in
	in.account = s.account.Load()
	u := in.account.User()
	if u == nil {
		s.closing = true // whoever deleted it is about to close the connection
		return &refusal{"NOAUTH", "the user of this connection was deleted"}
	}
	in.user = nil
	if !u.Unrestricted() {
		in.user = u
	}
	if !in.user.MayRun(c.index) {
		s.deny(acl.DeniedCommand, c.name, u.Name())
		return &refusal{"NOPERM", "this user has no permissions to run the '" + c.name + "' command"}
	}
	if err := in.scan(c, rest); err != nil {
		return err
	}
	if reason, object := in.forbidden(u); reason != "" {
		s.deny(reason, object, u.Name())
		if reason == acl.DeniedChannel {
			return &refusal{"NOPERM", "this user has no permissions to access one of the channels used as arguments"}
		}
		return errKeys()
	}
	if c.audited && s.multi == nil { // else it is when EXEC checks it again
		s.audit(c, u)
	}
	return nil
}

// errKeys refuses a command for a queue that the user has no right to.
func errKeys() error {
	return &refusal{"NOPERM", "this user has no permissions to access one of the keys used as arguments"}
}

// forbidden returns the first queue or channel among the arguments that the user
// has no right to, and why; else nothing.
func (in *input) forbidden(u *acl.User) (reason, object string) {
	for _, g := range in.cmd.guarded {
		v, channel := in.values[g.slot], g.access == Listen || g.access == ListenPattern
		if !v.set || in.user == nil && !channel {
			continue
		}
		for _, word := range in.args[v.first : v.first+v.count] {
			if channel {
				if !u.MayListen(string(word), g.access == ListenPattern) {
					return acl.DeniedChannel, string(word)
				}
				continue
			}
			if !in.user.May(g.access.need(), in.names.get(word)) {
				return acl.DeniedQueue, string(word)
			}
		}
	}
	if in.user == nil || in.cmd.spec.Fills == nil {
		return "", ""
	}
	for _, name := range in.cmd.spec.Fills(in) {
		if !in.user.May(acl.Produce, name) {
			return acl.DeniedQueue, name
		}
	}
	return "", ""
}

// String is the access as redis-compat.md says it, behind "to".
func (a Access) String() string {
	switch a {
	case Consume:
		return "consume from"
	case Produce:
		return "produce to"
	case Look:
		return "consume from or produce to"
	case Listen, ListenPattern:
		return "listen to"
	case ByFlags, Manage:
	}
	return "consume from and produce to"
}

// need is the access in the words of rules.
func (a Access) need() acl.Need {
	switch a {
	case Consume:
		return acl.Consume
	case Produce:
		return acl.Produce
	case Look:
		return acl.Look
	case ByFlags, Manage, Listen, ListenPattern:
	}
	return acl.Manage
}

// deny notes what was refused, for ACL LOG.
func (s *Session) deny(reason, object, user string) {
	var line strings.Builder
	now := s.handler.cfg.Now()
	context := "toplevel"
	if s.multi != nil {
		context = "multi"
	}
	s.describe(&line, now)
	s.handler.denied.Add(acl.Entry{
		Reason: reason, Context: context, Object: object[:min(len(object), echoMax)], User: user,
		Client: strings.TrimSuffix(line.String(), "\n"), At: now,
	})
}

// audit logs who uses an administrative command on what. Arguments besides the
// queue stay out of the log: they may be passwords or payloads.
func (s *Session) audit(c *command, u *acl.User) {
	e := s.handler.cfg.Log.Info().Str("command", c.display).Str("user", u.Name()).
		Str("addr", s.conn.RemoteAddr().String()).Uint64("conn", s.conn.ID())
	if keys := s.in.keys(); len(keys) > 0 {
		e = e.Str("queue", clip(keys[0].name))
	}
	e.Msg("audit")
}

// failures logs that clients fail to authenticate, now and then: the log must not
// become the attack.
type failures struct {
	mu     sync.Mutex
	since  int // not logged yet
	logged time.Time
}

const failuresEvery = 10 * time.Second

func (f *failures) note(s *Session) {
	now := s.handler.cfg.Now()
	f.mu.Lock()
	f.since++
	n := f.since
	due := f.logged.IsZero() || now.Sub(f.logged) >= failuresEvery
	if due {
		f.since, f.logged = 0, now
	}
	f.mu.Unlock()
	if due {
		s.handler.cfg.Log.Warn().Str("addr", s.conn.RemoteAddr().String()).Int("times", n).Msg("a client failed to authenticate")
	}
}

// changed acts on the connections of users whose rules are others now. The
// leases they wait in end empty-handed, so that no message goes where it may not
// go any more; one that listens to what it may not is closed, as it cannot be
// told otherwise. A deleted user's connections are closed, but for by, whose last
// reply is on its way.
func (h *Handler) changed(accounts []*acl.Account, by *Session) {
	monitor := h.table.find([]byte("monitor")).index
	for _, s := range h.list() {
		a := s.account.Load()
		if !slices.Contains(accounts, a) {
			continue
		}
		u := a.User()
		if u != nil {
			h.engine.Submit([]*engine.Task{{Call: &unblock{client: s.conn.ID()}}})
		}
		switch {
		case u != nil && h.hub.mayHear(s, u, monitor):
		case s == by:
			s.closing = true
		default:
			s.conn.Close()
		}
	}
}
