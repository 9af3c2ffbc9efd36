package commands

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
)

// This file is the one place where rights are asked for: every command passes
// check between being found and being parsed, executed or queued.

// check reads the arguments of a command, and refuses what the user has no right
// to. Whether the command is allowed at all is asked before its syntax is looked
// at, what it may be used on after that.
func (s *Session) check(c *entry, rest [][]byte) error {
	in := &s.in
	u := s.account.Load().User()
	if u == nil {
		s.closing = true // the command that deleted it closes the connection
		return command.Refuse("NOAUTH", "the user of this connection was deleted")
	}
	in.User = nil
	if !u.Unrestricted() {
		in.User = u
	}
	if !in.User.MayRun(c.Index) {
		s.deny(acl.DeniedCommand, c.Name, u.Name())
		return command.Refuse("NOPERM", "this user has no permissions to run the '"+c.Name+"' command")
	}
	if err := in.Scan(&c.Syntax, rest); err != nil {
		return err
	}
	if reason, object := in.Forbidden(u); reason != "" {
		s.deny(reason, object, u.Name())
		if reason == acl.DeniedChannel {
			return command.Refuse("NOPERM", "this user has no permissions to access one of the channels used as arguments")
		}
		return errKeys()
	}
	if c.Audited && s.multi == nil { // else it is when EXEC checks it again
		s.audit(c, u)
	}
	return nil
}

// errKeys refuses a command for a queue that the user has no right to.
func errKeys() error {
	return command.Refuse("NOPERM", "this user has no permissions to access one of the keys used as arguments")
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
		Reason: reason, Context: context, Object: object[:min(len(object), command.ClipMax)], User: user,
		Client: strings.TrimSuffix(line.String(), "\n"), At: now,
	})
}

// audit logs that a user has used an administrative command, and on which queue. Arguments besides the
// queue stay out of the log: they may be passwords or payloads.
func (s *Session) audit(c *entry, u *acl.User) {
	e := s.handler.cfg.Log.Info().Str("command", c.Display).Str("user", u.Name()).
		Str("addr", s.conn.RemoteAddr().String()).Uint64("conn", s.conn.ID())
	if keys := s.in.Keys(); len(keys) > 0 {
		e = e.Str("queue", command.Clip(keys[0].Name))
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

// changed acts on the connections of users whose rules have changed. Leases that
// wait end without messages, so that none goes to a user that has lost the right to
// it. A connection with a subscription that its user has no right to any more is
// closed, as there is no reply that could say so. The connections of a deleted user
// are closed, but for by, whose last reply is on its way.
func (h *Handler) changed(accounts []*acl.Account, by *Session) {
	monitor := h.table.Find([]byte("monitor")).Index
	for _, s := range h.list() {
		a := s.account.Load()
		if !slices.Contains(accounts, a) {
			continue
		}
		u := a.User()
		if u != nil {
			h.engine.Submit([]*engine.Task{{Call: &unblockCall{client: s.conn.ID()}}})
		}
		switch {
		case u != nil && h.mayListen(s, u, monitor):
		case s == by:
			s.closing = true
		default:
			s.conn.Close()
		}
	}
}

// mayListen reports whether the user has the right to everything that the session has subscribed to.
// monitor is the number of MONITOR in the table.
func (h *Handler) mayListen(s *Session, u *acl.User, monitor int) bool {
	if h.hub.Monitors(&s.subscriber) && !u.MayRun(monitor) {
		return false
	}
	return h.hub.Every(&s.subscriber, func(t events.Topic) bool { return u.MayListen(t.Name, t.Pattern) })
}
