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

// All rights are checked in this file: each command passes check after its lookup in the table
// and before it is parsed, executed or queued.

// check scans the arguments of a command and refuses it if the user lacks a right. The right to
// run the command is checked before its syntax; rights to queues and channels after it.
func (s *Session) check(c *entry, rest [][]byte) error {
	in := &s.in
	u := s.account.Load().User()
	if u == nil {
		s.closing = true // as ACL DELUSER does for idle connections
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
	if c.Audited && s.multi == nil { // commands of a transaction are audited when EXEC checks them again
		s.audit(c, u)
	}
	return nil
}

// errKeys is the error for a queue that the user has no right to.
func errKeys() error {
	return command.Refuse("NOPERM", "this user has no permissions to access one of the keys used as arguments")
}

// deny records a refusal for ACL LOG.
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

// audit logs the use of an administrative command with its user and queue. Other arguments are
// not logged, since they may contain passwords or payloads.
func (s *Session) audit(c *entry, u *acl.User) {
	e := s.handler.cfg.Log.Info().Str("command", c.Display).Str("user", u.Name()).
		Str("addr", s.conn.RemoteAddr().String()).Uint64("conn", s.conn.ID())
	if keys := s.in.Keys(); len(keys) > 0 {
		e = e.Str("queue", command.Clip(keys[0].Name))
	}
	e.Msg("audit")
}

// failures logs failed authentications at most once in failuresEvery, so that an attacker
// cannot fill the log.
type failures struct {
	mu     sync.Mutex
	since  int // failures that are not logged yet
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

// changed applies a change of users to their connections. Waiting leases end without messages,
// so that no message is delivered to a user that has lost the right to it. A connection is closed
// if its user was deleted or may no longer receive one of its subscriptions, since no reply could
// tell. by, the connection of the command itself, is closed after its reply.
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
			h.unblockAtLeader(s)
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
