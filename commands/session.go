package commands

import (
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/telemetry"
	"github.com/faisca/fila/resp"
)

// connection is the part of *resp.Conn that a session uses.
type connection interface {
	ID() uint64
	RemoteAddr() net.Addr
	LocalAddr() net.Addr
	CreatedAt() time.Time
	LastActive() time.Time
	SetProto(proto int)
	SetAuthenticated(ok bool)
	CertificateName() string
	LocalUser() string
	Relayed() bool
	Mode() resp.Mode
	Secure() bool
	Pending() int
	QueuedBytes() int64
	Push(replies ...resp.Reply)
	Wake()
	Answer()
	Close()
	CloseAfterFlush()
	PushAsync(b []byte) bool
	Reserve(need resp.Need, wait bool) (resp.Reservation, bool)
	Shrink(room resp.Reservation, n int64) resp.Reservation
	Watch() (lost <-chan struct{}, end func())
}

// Session is the state of one client's connection. Only the goroutine that reads the connection
// accesses it, except for the atomics, which CLIENT LIST reads from other sessions.
type Session struct {
	handler *Handler
	conn    connection
	client  *engine.Client
	mode    resp.Mode // of the port, see mode.go
	secure  bool      // with TLS

	login  login              // see rights.go
	prefs  preferences        // see client.go
	subs   subscriber         // see subscribe.go
	tx     sessionTransaction // see transaction.go
	memory sessionMemory      // see room.go
	nodes  sessionNodes       // see relay.go
	out    output

	in      input
	later   resp.Reply            // of the current local command, if it has to be rendered in order with earlier replies
	closing bool                  // further commands are ignored; the connection is closed after the pending replies
	current atomic.Pointer[entry] // the newest command
	// recovering is true while the engine recovers: calls are rendered without being applied.
	recovering bool
	// clock is a reading of Engine.Elapsed: when the commands were read, then when the last
	// local command was done.
	clock time.Duration
}

// output is what the commands of one call of Handle have given rise to, in order.
type output struct {
	replies []resp.Reply
	tasks   []*engine.Task
	slab    []pending   // preallocated for the rest of the same call
	writer  resp.Writer // for replies that are rendered immediately
}

// Handle executes the commands of one read. When it returns, local commands are done and the
// others have been submitted to the engine.
//
// Replies enter the reply queue before their tasks are submitted. A task that is done at once
// finds its reply in place, and a full queue delays new work rather than replies.
func (s *Session) Handle(cmds []resp.Command) {
	s.clock = s.handler.engine.Elapsed()
	s.memory.sharesBuffer = shareLargeBuffer(cmds)
	for i := range cmds {
		if s.closing {
			break
		}
		s.memory.large = s.memory.sharesBuffer
		s.handle(cmds[i].Args, len(cmds)-i)
		if s.memory.large {
			cmds[i].Args = nil // not retained while Submit waits for the inbox
		}
	}
	s.out.slab = nil
	s.in.Release()
	s.flush()
	if s.closing {
		s.conn.CloseAfterFlush()
	}
}

// flush pushes the replies to the connection and submits their tasks.
func (s *Session) flush() {
	s.conn.Push(s.out.replies...)
	clear(s.out.replies)
	s.out.replies = s.out.replies[:0]
	if len(s.out.tasks) > 0 {
		s.engine().Submit(s.out.tasks)
		clear(s.out.tasks)
		s.out.tasks = s.out.tasks[:0]
	}
	s.exit()
	s.sendForwards()
}

// settle waits until what the client has sent before is done, or the client is lost.
func (s *Session) settle() error {
	s.flush()
	lost, end := s.conn.Watch()
	defer end()
	return s.handler.engine.Settle(s.client, lost)
}

// Gone is called when the connection has ended and its replies are dropped.
func (s *Session) Gone() {
	s.exit() // after a panic
	s.end()
	s.stopAwaiting()
	if remote := s.nodes.remote.Load(); remote != nil {
		remote.Close()
	}
	s.handler.leave(s)
	s.handler.engine.Leave(s.client)
}

// handle executes or submits one command. left is the number of commands that remain in this
// read, including this one.
func (s *Session) handle(args [][]byte, left int) {
	silent := s.prefs.mute == muteAll || s.prefs.mute == muteThis
	if s.prefs.mute == muteThis {
		s.prefs.mute = muteNone
	}
	if s.nodes.relayed && s.fromNode(args) {
		return
	}
	c, rest, err := s.table().Lookup(args)
	if denied := s.admit(c); denied != nil {
		err = denied
	}
	queue := err == nil && s.tx.open != nil && !c.Spec.Immediate
	if err == nil {
		if queue {
			rest = cloneWords(rest)
		}
		s.current.Store(c)
		err = s.check(c, rest)
	}
	if err == nil {
		err = s.checkSubscribed(c)
	}
	if err == nil {
		err = s.checkPort(c)
	}
	if err == nil && queue {
		if err = s.queue(c, rest); err == nil {
			w := s.scratch()
			w.Status("QUEUED")
			s.keep(w, silent)
			return
		}
	}
	if err != nil {
		s.failTransaction(c, len(rest))
		s.reject(c, silent, err)
		return
	}
	if !s.makeRoom(c) {
		s.closing = true
		return
	}
	if s.handler.hub.Monitored() {
		if c.Name == "exec" {
			s.monitorTransaction()
		}
		s.monitored(c, args)
	}
	if s.elsewhere(c, args, silent) {
		return
	}
	call, err := s.parse(c)
	if p, ok := call.(preparer); ok && err == nil {
		err = p.Prepare(s)
	}
	if err != nil {
		s.reject(c, silent, err)
		return
	}
	if s.recovering {
		s.unapplied(c, call, silent)
		return
	}
	p := s.submit(call, silent, left)
	p.cmd, p.task.ReadOnly = c, c.ReadOnly
	if s.memory.large {
		p.shown = clipArgs(c, args)
	} else {
		p.args = args
	}
}

// elsewhere executes a command that needs no engine, or passes it on if another node leads, and
// reports whether it has done one of them.
func (s *Session) elsewhere(c *entry, args [][]byte, silent bool) bool {
	switch nodes := &s.handler.nodes; {
	case c.Spec.Local != nil:
		if c != nodes.wait || !s.place(c, args, silent) {
			s.local(c, args, silent)
		}
		return true
	case s.mode == ModeSentinel && c == nodes.info:
		s.recovering = true // there are no queues on this port
		return false
	case nodes.cluster == nil:
		s.recovering = !s.handler.ready.Load() && s.handler.loading()
		return false
	default:
		return s.place(c, args, silent)
	}
}

// admit reports whether the command may be used now; c is nil for an unknown name. A client that
// has not authenticated cannot find out which commands exist.
func (s *Session) admit(c *entry) error {
	if !s.login.authed && (c == nil || !c.NoAuth) {
		return command.Refuse("NOAUTH", "Authentication required.")
	}
	if c != nil && !c.Loading && s.handler.loading() {
		return command.Refuse("LOADING", "Fila is reading its queues from disk, try again in a moment")
	}
	return nil
}

// local executes a command that does not involve the engine and pushes its reply.
func (s *Session) local(c *entry, args [][]byte, silent bool) {
	w := s.scratch()
	before := s.prefs.mute
	code := ""
	if err := s.act(c, w); err != nil {
		w.Take()
		code = s.writeError(w, err)
	}
	began := s.clock
	s.clock = s.handler.engine.Elapsed()
	s.called(c, args, nil, s.clock-began, code)
	if r, waits := s.later.(*nodeReply); waits {
		r.silent = silent
	}
	if s.later != nil { // subscriptions are confirmed even when replies are off
		s.answer(s.later, math.MaxInt64)
		s.later = nil
		return
	}
	switch { // CLIENT REPLY replies only to ON, and always to that
	case s.prefs.unmuted:
		silent, s.prefs.unmuted = false, false
	case s.prefs.mute != before:
		silent = true
	}
	if s.prefs.mute == muteNext {
		s.prefs.mute = muteThis
	}
	s.keep(w, silent)
}

// unapplied renders a call without applying it, for commands that are allowed while the engine
// recovers.
func (s *Session) unapplied(c *entry, call call, silent bool) {
	w := s.scratch()
	code := ""
	if err := call.Render(s.handler, w); err != nil {
		w.Take()
		code = s.writeError(w, err)
	}
	s.handler.calls.Called(s.conn.ID(), c.Index, 0, code)
	s.keep(w, silent)
}

// reject replies with the error of a command that is not executed; c is nil for an unknown name.
func (s *Session) reject(c *entry, silent bool, err error) {
	w := s.scratch()
	if code := s.writeError(w, err); c == nil {
		s.handler.calls.Refused(code)
	} else {
		s.handler.calls.Rejected(s.conn.ID(), c.Index, code)
	}
	s.keep(w, silent)
}

// called counts an executed command and records it in the slow log if it took long: as shown, or
// its arguments if shown is nil. It runs on the reader's or the writer's goroutine.
func (s *Session) called(c *entry, args [][]byte, shown []string, took time.Duration, code string) {
	h := s.handler
	if s.counted(c, took, code) {
		if shown == nil {
			shown = clipArgs(c, args)
		}
		h.slow.Add(&telemetry.SlowCommand{
			At: h.cfg.Now(), Took: took, Args: shown, Addr: s.conn.RemoteAddr().String(), Name: s.prefs.identity.Load().name,
		})
	}
}

// counted counts an executed command and reports whether it took long.
func (s *Session) counted(c *entry, took time.Duration, code string) (slow bool) {
	h := s.handler
	h.calls.Called(s.conn.ID(), c.Index, took, code)
	h.latency.Command(took)
	if slow = h.slow.IsSlow(took); slow {
		h.calls.Slow(s.conn.ID(), c.Index)
	}
	return slow
}

// submit adds the reply of a call and its task to those that flush passes on.
func (s *Session) submit(c call, silent bool, left int) *pending {
	p := s.room(c, left)
	p.began = s.clock
	p.session, p.call, p.proto, p.silent = s, c, s.prefs.proto, silent
	p.task.Call, p.task.Client = c, s.client
	if w, ok := c.(weigher); ok {
		p.task.Bytes = w.Bytes()
	}
	if l, ok := c.(*leaseCall); ok && l.req.Block >= 0 {
		s.memory.waiting = p
	}
	s.answer(p, math.MaxInt64)
	s.out.tasks = append(s.out.tasks, &p.task)
	return p
}

// room returns memory for a pending reply. Replies of one read share one allocation, except for
// replies that retain messages until they are written: these would keep all of it alive.
func (s *Session) room(c call, left int) *pending {
	if _, keeps := c.(undoer); keeps {
		return new(pending)
	}
	if len(s.out.slab) == 0 {
		s.out.slab = make([]pending, left)
	}
	p := &s.out.slab[0]
	s.out.slab = s.out.slab[1:]
	return p
}

// close ignores further commands, and closes the connection after the pending replies.
func (s *Session) close() { s.closing = true }

// scratch returns an empty writer for a reply that is rendered immediately.
func (s *Session) scratch() *resp.Writer {
	s.out.writer.Take()
	s.out.writer.Proto = s.prefs.proto
	return &s.out.writer
}

// keep adds the rendered reply to the reply queue, unless the client has turned replies off.
func (s *Session) keep(w *resp.Writer, silent bool) {
	b := w.Take()
	if silent {
		b = nil
	}
	s.answer(resp.Bytes(b), int64(len(b)))
}

// reset restores the state of a new connection.
func (s *Session) reset() {
	s.setProto(2)
	s.prefs.mute = muteNone
	s.prefs.tracking = nil
	s.nodes.readsHere = false
	s.end()
	s.arrive()
	if len(s.subs.now.topics) > 0 || s.subs.now.monitor {
		s.subs.now = subscriptions{}
		s.showSubscriptions()
	}
	s.prefs.identity.Store(&identity{proto: 2, redirect: -1})
}

func (s *Session) setProto(proto int) {
	s.prefs.proto = proto
	s.conn.SetProto(proto)
	if old := s.prefs.identity.Load(); old != nil && old.proto != proto {
		s.updateIdentity(func(i *identity) { i.proto = proto })
	}
}
