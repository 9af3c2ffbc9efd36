package commands

import (
	"bytes"
	"errors"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
)

// call is a parsed command that the engine applies. Apply runs on the loop and stores the result
// in the call. Render writes the result on the connection once it is durable; it is not called if
// Apply has returned an error.
type call interface {
	engine.Call
	Render(h *Handler, w *resp.Writer) error
}

// preparer is a call with work that the connection does before it submits the call, to relieve
// the loop.
type preparer interface {
	Prepare(s *Session) error
}

// undoer is a call whose effect must be undone if its reply has not reached the client. Undo
// returns the call that undoes it, or nil if there is nothing to undo.
type undoer interface {
	Undo() engine.Call
}

// retainer is a call whose result holds memory that is not part of the room of its command.
type retainer interface {
	release()
}

// weigher is a call that holds many bytes of the client's input.
type weigher interface {
	Bytes() int
}

// traced is a call of which spans may be made. trace is called once the call is done, whether the
// client gets its reply or not. err is the error of the call or of its task.
type traced interface {
	trace(t *tracing.Tracer, p *pending, err error)
}

// transacted is a call of several commands, which count adds to the statistics.
type transacted interface {
	count(took time.Duration)
}

// inTurn is a reply that is rendered after those to the commands before it, and waits for nothing else.
type inTurn func(w *resp.Writer)

// Ready implements resp.Reply.
func (inTurn) Ready() bool { return true }

// Append implements resp.Reply.
func (r inTurn) Append(w *resp.Writer) { r(w) }

// Drop does nothing: a session leaves the hub when its connection ends.
func (inTurn) Drop() {}

// pending is a reply in the reply queue whose call is with the engine.
type pending struct {
	session *Session
	cmd     *entry
	args    [][]byte // of the command, including its name, until the reply is rendered
	shown   []string // what the slow log shows, if args are too large to retain
	call    call
	task    engine.Task
	began   time.Duration
	proto   int  // protocol version when the command arrived
	silent  bool // the client has turned replies off
	traced  bool // its spans are made
}

// Ready reports whether the result may be sent: see engine.Task.Done.
func (p *pending) Ready() bool { return p.task.Done() }

// Brief implements resp.Brief: a number, an id or few messages, which nothing has to be read, undone or traced for.
func (p *pending) Brief() bool {
	c, leases := p.call.(*leaseCall)
	return !p.silent && p.session.handler.cfg.Tracer == nil && (p.cmd.Spec.Tiny || leases && c.clear())
}

// Append writes the reply. It runs on the writer's goroutine, or that of Conn.Answer, after Ready.
func (p *pending) Append(w *resp.Writer) {
	if p.silent {
		p.count("")
		p.trace()
		// A client that gets no reply does not know of its leases: take them back.
		p.undo()
		return
	}
	w.Proto = p.proto
	err := p.task.Err()
	if err == nil {
		err = p.call.Render(p.session.handler, w)
	} else {
		p.release()
	}
	code := ""
	if err != nil {
		code = p.session.writeError(w, err)
	}
	p.count(code)
	p.trace()
	if !p.Perishable() {
		p.call, p.task.Call = nil, nil // release the message: the reply may remain in the queue
	}
}

// count adds the command to the statistics, unless its client has disconnected.
func (p *pending) count(code string) {
	took := p.task.Took(p.began)
	if t, ok := p.call.(transacted); ok && p.task.Err() == nil {
		t.count(took)
	}
	p.session.called(p.cmd, p.args, p.shown, took, code)
	p.args, p.shown = nil, nil
}

// Drop is called after Ready if the client does not get the reply: instead of Append, or after it
// if the write has failed.
func (p *pending) Drop() {
	p.trace()
	p.undo()
}

// trace makes the spans of the command, if tracing is on.
func (p *pending) trace() {
	if t := p.session.handler.cfg.Tracer; t != nil && !p.traced {
		p.traced = true
		if c, ok := p.call.(traced); ok {
			c.trace(t, p, p.task.Err())
		}
	}
}

// times returns when the command was read and when its result became public.
func (p *pending) times() (began, ended time.Time) {
	h := p.session.handler
	now, reading := h.cfg.Now(), h.engine.Elapsed()
	return now.Add(p.began - reading), now.Add(p.task.Ended() - reading)
}

// Perishable reports whether the reply delivers messages, which go to another consumer if the
// client has closed its side of the connection.
func (p *pending) Perishable() bool {
	_, ok := p.call.(undoer)
	return ok
}

// retainMax bounds the messages of a reply that is kept after it was written.
const retainMax = 32

// Retain implements resp.Recallable: a lease of a few messages can be taken back, of which only the
// receipts are kept.
func (p *pending) Retain() bool {
	c, ok := p.call.(*leaseCall)
	if !ok || p.silent || len(c.deliveries) == 0 || len(c.deliveries) > retainMax {
		return false
	}
	releaseRecords(c.deliveries)
	return true
}

// undo takes back the deliveries of the reply. A second call has no effect, since the leases have
// ended.
func (p *pending) undo() {
	u, ok := p.call.(undoer)
	if !ok || p.task.Err() != nil {
		p.release()
		return
	}
	if c := u.Undo(); c != nil {
		p.session.handler.submitUndo(c)
	}
}

// release drops the result of a task that was applied but whose commit has failed.
func (p *pending) release() {
	if k, ok := p.call.(retainer); ok {
		k.release()
	}
}

// loading accounts for the messages that one reply reads from disk, out of the budget of all
// connections (Limits.LoadTotal). The size of a message is known only after reading, so memory for
// the largest possible message is reserved first.
//
// A reply waits for memory only while it holds at most loadFree, so two replies never wait for
// each other.
type loadBudget struct {
	h    *Handler
	took int64 // bytes reserved
	has  int64 // bytes read
}

// loadFree is the number of bytes up to which a reply may wait for more memory. A reply that holds
// more ends early instead.
const loadFree = 1 << 20

// begin reserves memory for the next message. It returns false if the reply must end before it.
func (l *loadBudget) begin() bool {
	most := int64(max(l.h.cfg.Limits.Message, engine.LoadBytes))
	if l.h.loads.Try(most) {
		l.took += most
		return true
	}
	if l.has > loadFree {
		return false
	}
	l.end()
	l.took = l.has + most
	l.h.loads.Take(l.took)
	return true
}

// loaded returns the part of a message's reservation that is not needed: n bytes were read for it,
// and for messages after it.
func (l *loadBudget) loaded(size int) {
	if l.took <= l.has {
		return // it was in memory
	}
	l.has += int64(size)
	l.h.loads.Give(l.took - l.has)
	l.took = l.has
}

// end returns all reservations: the messages have been written or dropped.
func (l *loadBudget) end() {
	if l.took > 0 {
		l.h.loads.Give(l.took)
	}
	l.took = 0
}

// wireCode maps an error of the engine to its code on the wire.
type wireCode struct {
	err  error
	code string
}

// wireCodes maps the errors of the engine to codes. A released code keeps its meaning. The first
// match applies.
func wireCodes() []wireCode {
	return []wireCode{
		{engine.ErrNoQueue, "NOQUEUE"},
		{engine.ErrQueueExists, "QUEUEEXISTS"},
		{engine.ErrQueueNotEmpty, "INVALID"},
		{engine.ErrNoMessage, "NOMSG"},
		{engine.ErrLeaseLost, "LEASELOST"},
		{engine.ErrBadReceipt, "BADRECEIPT"},
		{engine.ErrInvalid, "INVALID"},
		{engine.ErrTooBig, "TOOBIG"},
		{engine.ErrNoRoom, "OOM"},
		{engine.ErrScript, "LUA"},
		{engine.ErrBusy, "ERR"},
		{engine.ErrMaxDepth, "MAXDEPTH"},
		{engine.ErrPaused, "PAUSED"},
		{engine.ErrNoBudget, "NOBUDGET"},
		{engine.ErrCredit, "CREDIT"},
		{engine.ErrNoGroup, "NOGROUP"},
		{engine.ErrSealed, "SEALED"},
		{engine.ErrCancelled, "CANCELLED"},
		{engine.ErrMemory, "OOM"},
		{engine.ErrMisconf, "MISCONF"},
		{engine.ErrUnreadable, "MISCONF"},
		{engine.ErrDeposed, "MISCONF"},
		{engine.ErrBackupRunning, "ERR"},
		// Client libraries retry after LOADING, as when Redis restarts.
		{engine.ErrStopped, "LOADING"},
		{engine.ErrTakeover, "LOADING"},
		{engine.ErrUnblocked, "UNBLOCKED"},
		{engine.ErrClientGone, "UNBLOCKED"},
	}
}

// wireError returns the code and the text of an error reply.
func wireError(err error) (code, text string) {
	if r, isRefusal := errors.AsType[*command.Error](err); isRefusal {
		return r.Code, r.Text
	}
	for _, c := range wireCodes() {
		if errors.Is(err, c.err) {
			return c.code, err.Error()
		}
	}
	return "ERR", err.Error()
}

// writeError writes an error reply, as the session's port has it, and returns its code.
func (s *Session) writeError(w *resp.Writer, err error) (code string) {
	code, text := wireError(err)
	code = s.code(code)
	w.Error(code, text)
	return code
}

// errorCode returns the code of a reply that is an error, else "".
func errorCode(reply []byte) string {
	if len(reply) == 0 || reply[0] != '-' {
		return ""
	}
	code, _, _ := bytes.Cut(bytes.TrimSpace(reply[1:]), []byte(" "))
	return string(code)
}
