package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

// call is a command on its way through the engine: everything it needs to be
// applied on the loop, and what came of it.
//
// Apply keeps the result in the call; Render writes it, on the connection, after
// the turn is durable and only if it was not refused.
type call interface {
	engine.Call
	Render(h *Handler, w *resp.Writer) error
}

// preparer is a call with work that is done on the connection before it is
// submitted, so that the loop does not have to.
type preparer interface {
	Prepare(e Engine) error
}

// undoer is a call whose result must be taken back if its reply never reached
// the client. Undo returns the call that does it, nil if there is nothing to do.
type undoer interface {
	Undo() engine.Call
}

// retainer is a call whose result keeps what is counted beside the room of its command.
type retainer interface {
	release()
}

// weigher is a call that holds more of the client's bytes than a few words.
type weigher interface {
	Bytes() int
}

// pending is a reply of the engine's in the reply queue of a connection.
type pending struct {
	session *Session
	cmd     *entry
	args    [][]byte // of the command with its name, until it is answered
	shown   []string // what of args the slow log shows, where they are too much to keep
	call    call
	task    engine.Task
	began   time.Duration
	proto   int  // of the connection when the command came
	silent  bool // the client has switched replies off
}

// Ready reports whether the turn of the command is durable.
func (p *pending) Ready() bool { return p.task.Done() }

// Append writes the reply. It runs on the writer's goroutine, after Ready.
func (p *pending) Append(w *resp.Writer) {
	if p.silent {
		p.count("")
		// The client does not learn of the leases, so it has none.
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
		code = writeError(w, err)
	}
	p.count(code)
	if !p.Perishable() {
		p.call, p.task.Call = nil, nil // the message it held; the reply may stay in the queue for long
	}
}

// count adds the command to the figures. One whose client has left is not in them.
func (p *pending) count(code string) {
	p.session.called(p.cmd, p.args, p.shown, p.task.Took(p.began), code)
	p.args, p.shown = nil, nil
}

// Drop is called, after Ready, when the client did not get the reply: instead of
// Append, or after it when the write failed.
func (p *pending) Drop() { p.undo() }

// Perishable reports whether the reply delivers messages: where the client has
// ended its side they go to another one.
func (p *pending) Perishable() bool {
	_, ok := p.call.(undoer)
	return ok
}

// undo takes back what the reply would have delivered. Taking back twice does
// nothing: the leases are over by then.
func (p *pending) undo() {
	u, ok := p.call.(undoer)
	if !ok {
		return
	}
	if p.task.Err() != nil {
		p.release()
		return
	}
	if c := u.Undo(); c != nil {
		p.session.handler.submitUndo(c)
	}
}

// release forgets a result that is not to be written: of a task that was applied, but
// whose commit has failed.
func (p *pending) release() {
	if k, ok := p.call.(retainer); ok {
		k.release()
	}
}

// loading counts what one reply reads of messages into memory, of what all connections
// may have there at the same time (Limits.LoadTotal). How large a message is shows when it
// has been read, so room for the largest is taken first.
//
// A reply waits for room only while it has next to nothing, and takes what it has anew
// with it: two of them never wait for each other, and what a connection holds while it
// waits for its client is bounded.
type loadBudget struct {
	h    *Handler
	took int64 // of the budget
	has  int64 // bytes of what was read
}

// loadFree is how much a reply may have and still wait for more; one that has more is
// ended instead.
const loadFree = 1 << 20

// begin makes room for the next message. False: the reply is to end before it.
func (l *loadBudget) begin() bool {
	most := int64(l.h.cfg.Limits.Message)
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

// loaded keeps of the room for a message what it needs.
func (l *loadBudget) loaded(d *engine.Delivery) {
	if l.took <= l.has {
		return // it was in memory
	}
	l.has += int64(d.Held())
	l.h.loads.Give(l.took - l.has)
	l.took = l.has
}

// end gives all of it back: the messages were written, or are not to be.
func (l *loadBudget) end() {
	if l.took > 0 {
		l.h.loads.Give(l.took)
	}
	l.took = 0
}
