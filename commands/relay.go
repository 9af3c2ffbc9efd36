package commands

import (
	"bytes"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// This file is about the nodes of a cluster, of which one has the engine.
//
// A session at another node does everything up to the check of rights and syntax, and executes local
// commands. It passes on the rest to the leader (package relay): the reply of such a command is a
// relayed in the reply queue. Where a command goes is decided for each command, when it is executed:
// to the engine of this node, if this node leads and no earlier command of the client is on its way to
// another, else to the leader.
//
// The session that serves a client of another node has the rights of that client's user, which a command
// of the nodes names (relayAs). It belongs to one leadership: in a later one of the same node it
// refuses everything with LOADING, so that commands are not executed before an earlier one that was
// refused and is sent again.

// Cluster is the node that this process is. It is safe for concurrent use.
type Cluster interface {
	// Enter returns the engine if this node leads, and keeps it in force until Exit; else nil, and
	// Exit must not be called. leadership is a number that only grows.
	Enter() (e Engine, leadership uint64)
	Exit()
}

const (
	// tellMax bounds the commands of this node that the leader has not answered. Leases that could not
	// be returned because of it end by their timeout.
	tellMax = 1024
	// returnsMax bounds the receipts of one command.
	returnsMax = 1000
)

// sessionNodes is what a session knows of other nodes. Without a cluster it stays empty.
type sessionNodes struct {
	awaits     atomic.Pointer[nodeReply]  // the last command that has begun to wait for other nodes
	left       atomic.Bool                // Gone was called
	relayed    bool                       // serves a client of another node
	readsHere  bool                       // READONLY is in force
	inside     Engine                     // that of this node, kept in force; nil: it is not
	leadership uint64                     // of the last inside
	remote     atomic.Pointer[relay.Conn] // to the leader; nil: nothing was passed on yet
	forwards   []*relay.Command           // of one call of Handle, for the leader
	wire       []byte                     // of forwards
	wired      int                        // bytes of it that belong to forwards
	who        *relay.Identity            // made of whoIs and whoUses; nil: not yet
	whoIs      *identity
	whoUses    *acl.Account
}

// nodes is what a handler needs of the cluster.
type nodes struct {
	cluster       Cluster // nil: there is none, and the rest is unused
	relay         *relay.Router
	house         *relay.Conn // for what this node itself tells the leader
	self          *relay.Identity
	listener      *relay.Conn // brings events of the leader
	info, metrics *entry
	unblock       *entry
	wait          *entry // which is local, but about what the leader has
	forwarded     atomic.Uint64
}

// joinCluster makes the connections of the node itself.
func (h *Handler) joinCluster() {
	n := &h.nodes
	if n.cluster = h.cfg.Cluster; n.cluster == nil {
		return
	}
	n.relay = h.cfg.Relay
	n.info, n.unblock, n.wait = h.table.Find([]byte("info")), h.table.Resolve([]byte("client|unblock")), h.table.Find([]byte("wait"))
	n.metrics, n.self = h.table.Find([]byte("fila.metrics")), nodeIdentity(0)
	quiet := func() {}
	n.house = n.relay.Open(relay.Client{Wake: quiet})
	n.listener = n.relay.Open(relay.Client{Wake: quiet, Push: h.forwarded, Joined: func() {
		h.hub.Publish([]engine.Event{{Kind: engine.EventLost, Time: h.cfg.Now()}}) // between two leaders, events were missed
	}})
}

// Close ends what this node itself has with the leader. Sessions end with their connections.
func (h *Handler) Close() {
	if n := &h.nodes; n.cluster != nil {
		n.house.Close()
		n.listener.Close()
	}
}

// Want implements events.Source: the engine of this node makes events, or else the leader passes on
// those that have subscribers here.
func (h *Handler) Want(kinds, subscribed engine.EventKind) {
	h.engine.Want(kinds)
	if h.nodes.cluster == nil {
		return
	}
	if subscribed == 0 {
		h.nodes.listener.Keep(nil)
		return
	}
	h.nodes.listener.Keep(nodeIdentity(subscribed))
}

// nodeIdentity is that of this node itself, which is no user.
func nodeIdentity(kinds engine.EventKind) *relay.Identity {
	return &relay.Identity{Wire: commandOf(relayAs, "", "", "", "", "3", strconv.FormatUint(uint64(kinds), 10))}
}

// forwarded delivers an event that the leader has passed on: a push of message, channel and payload.
func (h *Handler) forwarded(push []byte) {
	var words [][]byte
	s := relay.Scanner{Note: func(_ []int, text []byte) { words = append(words, bytes.Clone(text)) }}
	if _, _, err := s.Next(push); err == nil && len(words) == 3 {
		h.hub.Deliver(h.cfg.Now(), words[1], words[2])
	}
}

// place decides where a command that is not local is executed. It returns true if it has been passed on
// or refused, and false if it is to be executed here.
func (s *Session) place(c *entry, args [][]byte, silent bool) bool {
	n := &s.handler.nodes
	s.recovering = false
	busy := len(s.nodes.forwards) > 0
	if remote := s.nodes.remote.Load(); remote != nil && remote.Busy() {
		busy = true
	}
	if (!busy || s.nodes.relayed) && s.enter() {
		return false
	}
	switch {
	case s.nodes.relayed:
		s.failTransaction(c, 0)
		s.reject(c, silent, command.Refuse("LOADING", "another node is taking over, try again in a moment"))
	case s.redirected(c, silent):
	case c == n.info || c == n.metrics: // about this node, without what an engine counts
		s.recovering = true
		return false
	case c == n.unblock:
		s.forwardUnblock(c, args, silent)
	case c.Name == "exec":
		s.forwardExec(c, silent)
	default:
		s.forward(s.forwardable(c, args), c, args, silent)
	}
	return true
}

// enter reports whether the engine of this node takes commands of this session, and keeps it in force
// until flush.
func (s *Session) enter() bool {
	if s.nodes.inside != nil {
		return true
	}
	e, leadership := s.handler.nodes.cluster.Enter()
	if e == nil {
		return false
	}
	if s.nodes.relayed && s.nodes.leadership != 0 && s.nodes.leadership != leadership {
		s.handler.nodes.cluster.Exit()
		return false
	}
	s.nodes.inside, s.nodes.leadership = e, leadership
	return true
}

// exit ends enter: the tasks have been submitted.
func (s *Session) exit() {
	if s.nodes.inside != nil {
		s.nodes.inside = nil
		s.handler.nodes.cluster.Exit()
	}
}

// engine returns the engine for what a session does itself.
func (s *Session) engine() Engine {
	if s.nodes.inside != nil {
		return s.nodes.inside
	}
	return s.handler.engine
}

// relayed is the reply of a command that the leader executes.
type relayed struct {
	relay.Command

	session *Session
	cmd     *entry
	args    [][]byte // for the slow log, until the reply is rendered
	shown   []string // instead of them, if they are too large to retain
	silent  bool
	waits   bool           // it may wait for messages
	exec    *execCall      // of a transaction, whose local replies are known
	leases  func(int) bool // which replies of a transaction deliver messages; nil: this one does, or none
	lost    []returned     // what the reply delivers, noted when it does not reach the client
	users   *usersReached  // of a change of users; nil: it is none
}

// returned are deliveries of one message.
type returned struct{ queue, receipt string }

// forwardable makes the reply of a command that is passed on as it is.
func (s *Session) forwardable(c *entry, args [][]byte) *relayed {
	r := &relayed{users: s.handler.awaitUsers(c)}
	s.nodes.wire = relay.AppendCommand(s.nodes.wire, args...)
	if c.Spec.Has("readonly") || c == s.handler.nodes.wait {
		r.Again = relay.Always
	}
	if c.Blocking {
		if r.Again = relay.Always; !c.Spec.Has("readonly") {
			r.Note, r.Lost = r.note, r.returnAll
		}
		if s.in.Has("block") {
			r.waits, r.Rest = true, restOf(cloneWords(args), len(args)-len(s.in.Args), &s.in)
		}
	}
	return r
}

// forward puts the reply into the reply queue, and what s.wire has got for it into what flush sends.
func (s *Session) forward(r *relayed, c *entry, args [][]byte, silent bool) {
	r.session, r.cmd, r.silent = s, c, silent
	s.handler.nodes.forwarded.Add(1)
	if s.memory.large {
		r.shown = clipArgs(c, args)
	} else {
		r.args = args
	}
	r.Who = s.introduction()
	r.Wire = s.nodes.wire[s.nodes.wired:len(s.nodes.wire):len(s.nodes.wire)]
	s.nodes.wired = len(s.nodes.wire)
	if r.waits {
		s.memory.waiting = r
	}
	s.answer(r, int64(2*len(r.Wire))+smallRoom)
	s.nodes.forwards = r.appendTo(s.nodes.forwards)
}

// sendForwards sends what the commands of a read have left for the leader.
func (s *Session) sendForwards() {
	if len(s.nodes.forwards) == 0 {
		return
	}
	remote := s.nodes.remote.Load()
	if remote == nil {
		remote = s.handler.nodes.relay.Open(relay.Client{Addr: s.conn.RemoteAddr().String(), Wake: s.conn.Wake})
		s.nodes.remote.Store(remote)
	}
	remote.Send(s.nodes.forwards)
	clear(s.nodes.forwards)
	s.nodes.forwards, s.nodes.wire, s.nodes.wired = s.nodes.forwards[:0], nil, 0
}

// introduction tells the leader who the client is. It is the same value until that changes.
func (s *Session) introduction() *relay.Identity {
	id, account := s.prefs.identity.Load(), s.login.account.Load()
	if s.nodes.who == nil || s.nodes.whoIs != id || s.nodes.whoUses != account {
		s.nodes.whoIs, s.nodes.whoUses = id, account
		s.nodes.who = &relay.Identity{Wire: commandOf(relayAs, s.userName(), id.name, id.libName, id.libVersion, strconv.Itoa(s.prefs.proto))}
	}
	return s.nodes.who
}

// restOf returns a function that makes a blocking command with what is left of its BLOCK. first is
// where the arguments begin in words, behind the name.
func restOf(words [][]byte, first int, in *input) func(time.Duration) []byte {
	at := first + 1
	switch in.Cmd.Name {
	case "fila.mlease":
		at += int(in.Integer("numqueues", 0))
	case "fila.result":
		at++ // the id
	}
	for at < len(words) && !command.IsToken(words[at], "BLOCK") {
		if !command.IsToken(words[at], "SAMEKEY") {
			at++ // every other option has one value
		}
		at++
	}
	block := in.Millis("block", 0)
	return func(waited time.Duration) []byte {
		rest := slices.Clone(words)
		if block > 0 { // 0 waits without end
			rest[at+1] = strconv.AppendInt(nil, max((block-waited).Milliseconds(), 1), 10)
		}
		return relay.AppendCommand(nil, rest...)
	}
}

// forwardUnblock passes on CLIENT UNBLOCK for a client of this node, which the leader knows by the id of
// its stream.
func (s *Session) forwardUnblock(c *entry, args [][]byte, silent bool) {
	h := s.handler
	h.mu.Lock()
	other := h.sessions[uint64(s.in.Integer("client-id", 0))]
	h.mu.Unlock()
	id := uint64(0)
	if other != nil {
		if remote := other.nodes.remote.Load(); remote != nil {
			id = remote.ID()
		}
	}
	words := slices.Clone(args)
	words[2] = strconv.AppendUint(nil, id, 10) // 0 is no client
	s.forward(s.forwardable(c, words), c, args, silent)
}

// forwardExec passes on a transaction as one piece: the leader queues and executes it.
func (s *Session) forwardExec(c *entry, silent bool) {
	parsed, err := c.Spec.Parse(s, &s.in)
	if err != nil {
		s.reject(c, silent, err)
		return
	}
	r := &relayed{}
	if undoable, ok := parsed.(*undoableExec); ok {
		r.exec, r.Note, r.Lost = undoable.execCall, r.note, r.returnAll
	} else {
		r.exec, _ = parsed.(*execCall)
	}
	s.nodes.wire = append(s.nodes.wire, commandOf("MULTI")...)
	var delivers []bool
	var changes []*entry
	for i := range r.exec.queued {
		if q := &r.exec.queued[i]; q.call != nil {
			words := q.words()
			s.nodes.wire = relay.AppendCommand(s.nodes.wire, words...)
			if len(delivers) < slowOfOne {
				q.shown = clipArgs(q.command, words)
			}
			delivers, changes = append(delivers, q.command.Blocking), append(changes, q.command)
		}
		r.exec.queued[i].args = nil // the leader has them
	}
	r.users = s.handler.awaitUsers(changes...)
	s.nodes.wire = append(s.nodes.wire, commandOf("EXEC")...)
	r.Skip, r.leases = 1+len(delivers), func(i int) bool { return i < len(delivers) && delivers[i] }
	s.forward(r, c, [][]byte{[]byte("EXEC")}, silent)
}

// Append passes the reply on.
func (r *relayed) Append(w *resp.Writer) {
	code := errorCode(r.Reply())
	var err error
	switch as := r.session.code(code); {
	case r.silent:
		r.Command.Drop()
	case as != code:
		w.Raw(append([]byte("-"+as), r.Reply()[1+len(code):]...))
		code = as
	case r.exec != nil:
		err = r.Copy((&splice{w: w, exec: r.exec}).take)
	default:
		err = r.Copy(w.Raw)
	}
	if err != nil {
		r.session.conn.Close() // the client has a part of the reply
	}
	took := r.Took()
	if r.waits {
		took = 0 // what it has waited for messages is no latency, and is not known here
	}
	if r.exec != nil && code == "" && !r.silent {
		r.exec.count(took)
	}
	r.session.called(r.cmd, r.args, r.shown, took, code)
	r.args, r.shown = nil, nil
}

// Perishable reports whether the reply delivers messages.
func (r *relayed) Perishable() bool { return r.Note != nil }

// Retain implements resp.Recallable: a short reply can be returned to the leader.
func (r *relayed) Retain() bool { return r.Note != nil && !r.silent && r.Short() }

// note notes what the reply delivers: the first and the last string of each message.
func (r *relayed) note(path []int, text []byte) {
	if r.leases != nil {
		if !r.leases(path[0]) {
			return
		}
		path = path[1:]
	}
	const receipt, queue = 0, 8
	switch {
	case len(path) != 2:
	case path[1] == receipt:
		r.lost = append(r.lost, returned{receipt: string(text)})
	case path[1] == queue && len(r.lost) > 0:
		r.lost[len(r.lost)-1].queue = string(text)
	}
}

// returnAll returns the messages that have not reached the client to the leader.
func (r *relayed) returnAll() {
	h := r.session.handler
	for len(r.lost) > 0 {
		words := []string{relayReturn, r.lost[0].queue}
		n := 0
		for n < len(r.lost) && n < returnsMax && r.lost[n].queue == words[1] {
			words = append(words, r.lost[n].receipt)
			n++
		}
		r.lost = r.lost[n:]
		h.tell(commandOf(words...))
	}
	r.lost = nil
}

// splice puts the local replies of a transaction between those of the leader.
type splice struct {
	w     *resp.Writer
	exec  *execCall
	scan  relay.Scanner
	begun bool
	// within is true within the reply to a command.
	within bool
	plain  bool // the leader has refused the transaction
	next   int  // the next command
}

// take takes a piece of the leader's reply. It is empty if the client has gone before there was one.
func (x *splice) take(b []byte) {
	if len(b) == 0 {
		return
	}
	if !x.begun {
		x.begun = true
		if x.plain = b[0] != '*'; !x.plain {
			x.w.Array(len(x.exec.queued))
			b = b[bytes.IndexByte(b, '\n')+1:]
			x.local()
		}
	}
	if x.plain {
		x.w.Raw(b)
		return
	}
	for len(b) > 0 {
		n, done, err := x.scan.Next(b)
		if err != nil {
			return // it was scanned before
		}
		if !x.within {
			if code := errorCode(b[:n]); code != "" {
				x.exec.failed(x.next, code)
			}
		}
		x.w.Raw(b[:n])
		if b, x.within = b[n:], !done; done {
			x.next++
			x.local()
		}
	}
}

// local writes the local replies that come next.
func (x *splice) local() {
	for x.next < len(x.exec.queued) && x.exec.queued[x.next].call == nil {
		x.w.Raw(x.exec.local[x.next])
		x.next++
	}
}

// unblockAtLeader ends the wait of a session for messages at the leader.
func (h *Handler) unblockAtLeader(s *Session) {
	if remote := s.nodes.remote.Load(); remote != nil && remote.Waits() {
		h.tell(commandOf(relayUnblock, strconv.FormatUint(remote.ID(), 10)))
	}
}

// tell sends a command of this node to the leader. It may be lost.
func (h *Handler) tell(wire []byte) {
	if n := &h.nodes; n.house.Unanswered() < tellMax {
		n.house.Send([]*relay.Command{{Who: n.self, Wire: wire, Again: relay.Always}})
	}
}
