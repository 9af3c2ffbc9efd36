package commands

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
	"github.com/faisca/fila/resp"
)

// login is how the client has authenticated.
type login struct {
	authed   bool
	failures int                         // failed attempts
	account  atomic.Pointer[acl.Account] // whose rights apply; set by the reading goroutine only
}

// All rights are checked in this file: each command passes check after its lookup in the table
// and before it is parsed, executed or queued.

// check scans the arguments of a command and refuses it if the user lacks a right. The right to
// run the command is checked before its syntax; rights to queues and channels after it.
func (s *Session) check(c *entry, rest [][]byte) error {
	in := &s.in
	u := s.login.account.Load().User()
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
	if c.Audited && s.tx.open == nil { // commands of a transaction are audited when EXEC checks them again
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
	if s.tx.open != nil {
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
		e = e.Str("queue", command.Clip(keys[0]))
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
// tell. The connection of the command itself, by, is closed by end: after its reply.
func (h *Handler) changed(accounts []*acl.Account, by *Session, end func()) {
	monitor := h.table.Find([]byte("monitor")).Index
	for _, s := range h.list() {
		a := s.login.account.Load()
		if !slices.Contains(accounts, a) {
			continue
		}
		u := a.User()
		if u != nil {
			h.engine.Submit([]*engine.Task{{Call: unblock(s.conn.ID(), false)}})
			h.unblockAtLeader(s)
		}
		switch {
		case u != nil && h.mayListen(s, u, monitor):
		case s == by:
			end()
		default:
			s.conn.Close()
		}
	}
}

// mayListen reports whether the user has the right to everything that the session has subscribed to.
// monitor is the number of MONITOR in the table.
func (h *Handler) mayListen(s *Session, u *acl.User, monitor int) bool {
	if s.hub().Monitors(&s.subs.at) && !u.MayRun(monitor) {
		return false
	}
	return s.hub().Every(&s.subs.at, func(t events.Topic) bool { return u.MayListen(t.Name, t.Pattern) })
}

// The users of a cluster are records of its store and the same on all nodes. Without a cluster, users
// belong to the process, and nothing of what follows is used.
//
//   - ACL SETUSER, DELUSER and LOAD are calls of the engine, so the leader executes them, and they are
//     entries of the replicated log.
//   - A node reads the users from its own store when their version has changed (RefreshUsers): the leader
//     before it replies to a change, every node at short intervals, and a node that takes over before it
//     leads. What has changed applies to connections as that of a single broker does (Handler.changed).
//   - The node that has passed a change on to the leader replies when it has the change itself, so that a
//     client finds the user that it has made also where it is.
//
// Users that lose a right at another node use it at this one for no longer than an interval, and only for
// what a node does by itself: the leader checks every command that is passed on.

// UserStore reads the users of a cluster from the store of this node: their version, 0 if there are none
// yet, and unless the caller knows that version their lines by name.
type UserStore func(known uint64) (version uint64, lines map[string]string, err error)

// sharedUsers is what a handler knows of the users of the cluster.
type sharedUsers struct {
	mu        sync.Mutex // one refresh at a time
	version   atomic.Uint64
	refreshes atomic.Uint64
	awaited   atomic.Uint64 // refreshes up to which replies wait for a version
	ended     atomic.Bool   // no refresh follows: replies wait for none
	changes   []*entry      // commands that change users
}

// usersPatience is for how many refreshes a reply waits for this node to have a change of users: ten
// seconds of a node's refreshes. A node that is behind for longer replies without it.
const usersPatience = 40

// inStore makes the commands that change users calls of the engine.
func inStore(table []Spec) {
	of := map[string]func(s *Session, in *input) (call, error){"SETUSER": parseSetUser, "DELUSER": parseDelUser, "LOAD": parseLoadUsers}
	for i := range table {
		if table[i].Name != "ACL" {
			continue
		}
		for j := range table[i].Subcommands {
			if sub := &table[i].Subcommands[j]; of[sub.Name] != nil {
				sub.Local, sub.Parse = nil, of[sub.Name]
			}
		}
	}
}

// shareUsers prepares a handler whose users are in the store of a cluster.
func (h *Handler) shareUsers() error {
	if h.cfg.UserStore == nil {
		return nil
	}
	for _, name := range []string{"acl|setuser", "acl|deluser", "acl|load"} {
		h.shared.changes = append(h.shared.changes, h.table.Resolve([]byte(name)))
	}
	return h.RefreshUsers()
}

// RefreshUsers brings the users into force that the store of this node has, if they have changed. After an
// error, those of before stay in force.
func (h *Handler) RefreshUsers() error { return h.refreshUsers(nil) }

// refreshUsers is RefreshUsers for a reply to by, whose connection is closed after it.
func (h *Handler) refreshUsers(by *Session) error {
	u := &h.shared
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.version.Load()
	version, lines, err := h.cfg.UserStore(known)
	if err == nil && version != known && version > 0 {
		changed, unknown := h.users.Adopt(lines)
		if unknown != nil {
			h.cfg.Log.Error().Err(unknown).Msg("users that a newer version has changed, and this one cannot read, have no rights on this node")
		}
		u.version.Store(version)
		h.changed(changed, by, func() { by.conn.CloseAfterFlush() })
	}
	if u.refreshes.Add(1) <= u.awaited.Load() {
		h.wakeRelayed()
	}
	return err
}

// EndRefreshes says that no refresh follows, as the node stops: replies no longer wait for one, so that
// they leave before the connections are closed.
func (h *Handler) EndRefreshes() {
	h.shared.ended.Store(true)
	h.wakeRelayed()
}

// wakeRelayed wakes the writers of sessions that have passed on commands.
func (h *Handler) wakeRelayed() {
	for _, s := range h.list() {
		if s.nodes.remote.Load() != nil {
			s.conn.Wake()
		}
	}
}

// UserLines returns the lines of all users in force by name, as ACL LIST shows them.
func (h *Handler) UserLines() map[string]string { return h.users.Lines() }

// usersChange is the part of a call that changes users of a cluster which all of them have.
type usersChange struct{ by *Session }

// inForce brings the change into force on this node, before its reply leaves.
func (c *usersChange) inForce(h *Handler) {
	if err := h.refreshUsers(c.by); err != nil {
		h.cfg.Log.Error().Err(err).Msg("users of the store")
	}
}

type setUserCall struct {
	usersChange

	name  string
	rules []string
}

func parseSetUser(s *Session, in *input) (call, error) {
	c := &setUserCall{usersChange: usersChange{s}, name: string(in.Bytes("username"))}
	for _, word := range in.List("rule") {
		c.rules = append(c.rules, string(word))
	}
	return c, nil
}

// Apply implements engine.Call.
func (c *setUserCall) Apply(tx *engine.Tx) error {
	line, err := c.by.handler.users.Change(c.name, tx.User(c.name), c.rules)
	if err != nil {
		return refuseRule(err)
	}
	return tx.SetUsers(map[string]string{c.name: line})
}

// Render writes OK.
func (c *setUserCall) Render(h *Handler, w *resp.Writer) error {
	c.inForce(h)
	w.OK()
	return nil
}

// refuseRule is the error of ACL SETUSER.
func refuseRule(err error) error {
	if r, ok := errors.AsType[*acl.RuleError](err); ok {
		return command.Refuse("ERR", "Error in ACL SETUSER modifier '"+command.Clip([]byte(r.Rule))+"': "+r.Reason)
	}
	return command.Refuse("ERR", err.Error())
}

type delUserCall struct {
	usersChange

	names []string
	gone  int
}

func parseDelUser(s *Session, in *input) (call, error) {
	c := &delUserCall{usersChange: usersChange{by: s}}
	for _, word := range in.List("username") {
		c.names = append(c.names, string(word))
	}
	if err := acl.CheckDelete(c.names); err != nil {
		return nil, command.Refuse("ERR", err.Error())
	}
	return c, nil
}

// Apply implements engine.Call.
func (c *delUserCall) Apply(tx *engine.Tx) error {
	gone := map[string]string{}
	for _, name := range c.names {
		if tx.User(name) != "" {
			gone[name] = ""
		}
	}
	if c.gone = len(gone); c.gone == 0 {
		return nil
	}
	return tx.SetUsers(gone)
}

// Render writes the number of deleted users.
func (c *delUserCall) Render(h *Handler, w *resp.Writer) error {
	c.inForce(h)
	w.Int(int64(c.gone))
	return nil
}

type loadUsersCall struct {
	usersChange

	lines map[string]string
}

// parseLoadUsers reads the file of this node, which leads: a client of another node would not know whose
// file it loads.
func parseLoadUsers(s *Session, _ *input) (call, error) {
	if s.nodes.relayed {
		return nil, command.Refuse("ERR", "the users are in the store of the cluster: ACL LOAD replaces them by those in the file of the node that leads, connect to that one")
	}
	lines, err := s.handler.users.FileLines()
	if err != nil {
		return nil, command.Refuse("ERR", err.Error())
	}
	return &loadUsersCall{usersChange{s}, lines}, nil
}

// Apply implements engine.Call.
func (c *loadUsersCall) Apply(tx *engine.Tx) error {
	for _, name := range tx.Users() {
		if c.lines[name] == "" {
			c.lines[name] = ""
		}
	}
	return tx.SetUsers(c.lines)
}

// Render writes OK.
func (c *loadUsersCall) Render(h *Handler, w *resp.Writer) error {
	c.inForce(h)
	w.OK()
	return nil
}

// usersReached is sent behind a change of users that is passed on to the leader: it asks for the version
// of the users after the change. The reply to the change waits until this node has that version.
type usersReached struct {
	relay.Command

	h     *Handler
	until atomic.Uint64 // refreshes after which it waits no longer; 0: it does not wait yet
}

// awaitUsers returns what is sent behind a command, nil if that changes no users.
func (h *Handler) awaitUsers(changes ...*entry) *usersReached {
	if !slices.ContainsFunc(changes, func(c *entry) bool { return slices.Contains(h.shared.changes, c) }) {
		return nil
	}
	return &usersReached{h: h, Command: relay.Command{Wire: commandOf(relayUsers), Again: relay.Always}}
}

// appendTo appends what is sent to the leader for a reply.
func (r *relayed) appendTo(all []*relay.Command) []*relay.Command {
	if all = append(all, &r.Command); r.users != nil {
		r.users.Who = r.Who
		all = append(all, &r.users.Command)
	}
	return all
}

// Ready reports whether the reply may be passed on.
func (r *relayed) Ready() bool { return r.Command.Ready() && (r.users == nil || r.users.reached()) }

// reached reports whether this node has the change, or has waited for it for long enough.
func (r *usersReached) reached() bool {
	if !r.Ready() {
		return false
	}
	u := &r.h.shared
	version := uint64(0) // of a leader that does not answer
	if text, ok := bytes.CutPrefix(r.Reply(), []byte(":")); ok {
		n, _ := command.ParseInt(bytes.TrimSpace(text))
		version = uint64(n)
	}
	if u.ended.Load() || u.version.Load() >= version {
		return true
	}
	until := u.refreshes.Load() + usersPatience
	if !r.until.CompareAndSwap(0, until) {
		return u.refreshes.Load() >= r.until.Load()
	}
	for was := u.awaited.Load(); was < until && !u.awaited.CompareAndSwap(was, until); was = u.awaited.Load() {
	}
	return u.version.Load() >= version // it may have been refreshed before it was awaited
}
