package commands

import (
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
	"github.com/faisca/fila/internal/telemetry"
	"github.com/faisca/fila/resp"
)

// connection is what a session needs of a connection. *resp.Conn is one.
type connection interface {
	ID() uint64
	RemoteAddr() net.Addr
	LocalAddr() net.Addr
	CreatedAt() time.Time
	LastActive() time.Time
	SetProto(proto int)
	SetAuthenticated(ok bool)
	CertificateName() string
	Pending() int
	QueuedBytes() int64
	Push(replies ...resp.Reply)
	Wake()
	Close()
	CloseAfterFlush()
	PushAsync(b []byte) bool
	Reserve(need resp.Need, wait bool) (resp.Room, bool)
	Shrink(room resp.Room, n int64) resp.Room
}

// Session is the conversation with one client. Its state belongs to the
// goroutine that reads the connection; what CLIENT LIST shows of it to others is
// published through atomics.
type Session struct {
	handler *Handler
	conn    connection
	client  *engine.Client

	proto        int
	authed       bool
	authFailures int                         // times that authenticating has failed
	account      atomic.Pointer[acl.Account] // whose rights count; changed on the reading goroutine alone
	mute         muteMode
	tracking     *tracking
	subs         subscriptions
	subscriber   events.Subscriber
	later        resp.Reply // of the current local command, if it is to be rendered in its turn
	closing      bool       // nothing more is handled, the connection ends after what was answered
	in           input
	multi        *transaction // since MULTI, else nil
	// recovering says that the engine still recovers: what is parsed now is rendered at
	// once, without having been applied.
	recovering bool
	// clock is a reading of the engine's stopwatch: of when the commands were read,
	// then of when the last local one was done.
	clock time.Duration

	reserved resp.Room // set aside for the current command, if holds
	holds    bool
	retained atomic.Int64 // bytes of messages that leases keep until they are written
	pins     bool         // the arguments of one read share more memory than is small for each
	large    bool         // those of the current command are not to be kept
	waiting  *pending     // the newest lease that may wait for messages; nil: none does

	replies []resp.Reply   // of one Handle, in order
	tasks   []*engine.Task // of the same
	slab    []pending      // room for the rest of the same
	writer  resp.Writer    // of replies that are rendered at once

	identity  atomic.Pointer[identity]
	current   atomic.Pointer[entry]              // the newest
	subCounts atomic.Pointer[subscriptionCounts] // nil: it never has
	queued    atomic.Int32                       // commands since MULTI, -1 without
}

// identity is what a client has said about itself. It is never changed, only
// replaced.
type identity struct {
	name, libName, libVersion string
	proto                     int
	redirect                  int64 // of CLIENT TRACKING; -1: it is off
	bcast                     bool
}

// muteMode is what CLIENT REPLY has set.
type muteMode uint8

const (
	muteNone muteMode = iota
	muteAll           // OFF
	muteNext          // SKIP, while it is handled itself
	muteThis          // the command after SKIP
)

// Handle executes the commands of one read. Local ones are done when it returns;
// the rest are with the engine.
//
// The replies go into the reply queue before the tasks are submitted: a task that is
// done at once then finds its reply in its place, and a full queue holds back
// work rather than replies.
func (s *Session) Handle(cmds []resp.Command) {
	s.clock = s.handler.engine.Elapsed()
	s.pins = pins(cmds)
	for i := range cmds {
		if s.closing {
			break
		}
		s.large = s.pins
		s.handle(cmds[i].Args, len(cmds)-i)
		if s.large {
			cmds[i].Args = nil // not to be kept while this waits for the engine's inbox
		}
	}
	s.slab = nil
	s.in.Release()
	s.flush()
	if s.closing {
		s.conn.CloseAfterFlush()
	}
}

// flush gives the replies of what was executed to the connection, and their tasks to
// the engine.
func (s *Session) flush() {
	s.conn.Push(s.replies...)
	clear(s.replies)
	s.replies = s.replies[:0]
	if len(s.tasks) > 0 {
		s.handler.engine.Submit(s.tasks)
		clear(s.tasks)
		s.tasks = s.tasks[:0]
	}
}

// Gone says that the connection has ended: its replies are dropped.
func (s *Session) Gone() {
	s.end()
	s.handler.leave(s)
	s.handler.engine.Leave(s.client)
}

// handle executes one command or submits it. left counts the commands that
// may still come in this read, this one included.
func (s *Session) handle(args [][]byte, left int) {
	silent := s.mute == muteAll || s.mute == muteThis
	if s.mute == muteThis {
		s.mute = muteNone
	}
	c, rest, err := s.handler.table.Lookup(args)
	if denied := s.admit(c); denied != nil {
		err = denied
	}
	queue := err == nil && s.multi != nil && !c.Spec.Immediate
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
	if err == nil && queue {
		if err = s.queue(c, rest); err == nil {
			w := s.scratch()
			w.Status("QUEUED")
			s.keep(w, silent)
			return
		}
	}
	if err != nil {
		s.failTransaction()
		s.reject(c, silent, err)
		return
	}
	if !s.makeRoom(c) {
		s.closing = true
		return
	}
	if s.handler.hub.Monitored() {
		s.monitored(c, args)
	}
	if c.Spec.Local != nil {
		s.local(c, args, silent)
		return
	}
	s.recovering = !s.handler.ready.Load() && s.handler.loading()
	call, err := c.Spec.Parse(s, &s.in)
	if p, ok := call.(preparer); ok && err == nil {
		err = p.Prepare(s.handler.engine)
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
	p.cmd = c
	if s.large {
		p.shown = clipArgs(c, args)
	} else {
		p.args = args
	}
	p.task.ReadOnly = c.ReadOnly
}

// admit asks whether the command, nil if there is none of that name, may be used
// now. An unauthenticated client learns nothing, not even which commands there are.
func (s *Session) admit(c *entry) error {
	if !s.authed && (c == nil || !c.NoAuth) {
		return command.Refuse("NOAUTH", "Authentication required.")
	}
	if c != nil && !c.Loading && s.handler.loading() {
		return command.Refuse("LOADING", "Fila is reading its queues from disk, try again in a moment")
	}
	return nil
}

// local executes a command that needs no engine and pushes its reply.
func (s *Session) local(c *entry, args [][]byte, silent bool) {
	w := s.scratch()
	before := s.mute
	code := ""
	if err := c.Spec.Local(s, &s.in, w); err != nil {
		w.Take()
		code = writeError(w, err)
	}
	began := s.clock
	s.clock = s.handler.engine.Elapsed()
	s.called(c, args, nil, s.clock-began, code)
	if s.later != nil { // a subscription is confirmed also with replies switched off
		s.answer(s.later, math.MaxInt64)
		s.later = nil
		return
	}
	if s.mute != before { // CLIENT REPLY answers only ON
		silent = s.mute != muteNone
	}
	if s.mute == muteNext {
		s.mute = muteThis
	}
	s.keep(w, silent)
}

// unapplied answers a call that may be answered before the engine has anything
// to say, from what is known without it.
func (s *Session) unapplied(c *entry, call call, silent bool) {
	w := s.scratch()
	code := ""
	if err := call.Render(s.handler, w); err != nil {
		w.Take()
		code = writeError(w, err)
	}
	s.handler.calls.Called(s.conn.ID(), c.Index, 0, code)
	s.keep(w, silent)
}

// reject answers a command, nil if it is none, that was not executed.
func (s *Session) reject(c *entry, silent bool, err error) {
	w := s.scratch()
	if code := writeError(w, err); c == nil {
		s.handler.calls.Refused(code)
	} else {
		s.handler.calls.Rejected(s.conn.ID(), c.Index, code)
	}
	s.keep(w, silent)
}

// called counts a command that was executed, and keeps it if it took long: as shown, if
// that is known, else its arguments. It runs on the reader's goroutine or on the writer's.
func (s *Session) called(c *entry, args [][]byte, shown []string, took time.Duration, code string) {
	h := s.handler
	h.calls.Called(s.conn.ID(), c.Index, took, code)
	h.latency.Command(took)
	if h.slow.IsSlow(took) {
		if shown == nil {
			shown = clipArgs(c, args)
		}
		h.slow.Add(&telemetry.SlowCommand{
			At: h.cfg.Now(), Took: took, Args: shown, Addr: s.conn.RemoteAddr().String(), Name: s.identity.Load().name,
		})
	}
}

// submit puts the reply of a call into the reply queue and its task with those that
// go to the engine at the end of Handle.
func (s *Session) submit(c call, silent bool, left int) *pending {
	p := s.room(c, left)
	p.began = s.clock
	p.session, p.call, p.proto, p.silent = s, c, s.proto, silent
	p.task.Call, p.task.Client = c, s.client
	if w, ok := c.(weigher); ok {
		p.task.Bytes = w.Bytes()
	}
	if l, ok := c.(*leaseCall); ok && l.req.Block >= 0 {
		s.waiting = p
	}
	s.answer(p, math.MaxInt64)
	s.tasks = append(s.tasks, &p.task)
	return p
}

// room returns a place for a reply. Those of one read share their memory, but not
// with one that keeps what it delivers until it is written: it would keep the
// memory of all.
func (s *Session) room(c call, left int) *pending {
	if _, keeps := c.(undoer); keeps {
		return new(pending)
	}
	if len(s.slab) == 0 {
		s.slab = make([]pending, left)
	}
	p := &s.slab[0]
	s.slab = s.slab[1:]
	return p
}

// scratch returns an empty writer for a reply that is rendered now.
func (s *Session) scratch() *resp.Writer {
	s.writer.Take()
	s.writer.Proto = s.proto
	return &s.writer
}

// keep puts what was rendered into the reply queue, or nothing where the client has
// switched replies off.
func (s *Session) keep(w *resp.Writer, silent bool) {
	b := w.Take()
	if silent {
		b = nil
	}
	s.answer(resp.Bytes(b), int64(len(b)))
}

// reset makes the session one of a client that has just connected.
func (s *Session) reset() {
	s.setProto(2)
	s.mute = muteNone
	s.tracking = nil
	s.end()
	s.arrive()
	if len(s.subs.topics) > 0 || s.subs.monitor {
		s.subs = subscriptions{}
		s.showSubscriptions()
	}
	s.identity.Store(&identity{proto: 2, redirect: -1})
}

func (s *Session) setProto(proto int) {
	s.proto = proto
	s.conn.SetProto(proto)
	if old := s.identity.Load(); old != nil && old.proto != proto {
		s.updateIdentity(func(i *identity) { i.proto = proto })
	}
}
