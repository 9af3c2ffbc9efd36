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

// keeper is a call whose result keeps what is counted beside the room of its command.
type keeper interface {
	letGo()
}

// weigher is a call that holds more of the client's bytes than a few words.
type weigher interface {
	Bytes() int
}

// pending is a reply of the engine's in the window of a connection.
type pending struct {
	session *Session
	cmd     *command
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
		// Nobody is told what was handed out, so nothing was.
		p.undo()
		return
	}
	w.Proto = p.proto
	err := p.task.Err()
	if err == nil {
		err = p.call.Render(p.session.handler, w)
	} else {
		p.letGo()
	}
	code := ""
	if err != nil {
		code = writeError(w, err)
	}
	p.count(code)
	if !p.Perishable() {
		p.call, p.task.Call = nil, nil // the message it held; the window may hold the reply for long
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

// Perishable says that the reply hands something out: a client that has ended
// its side may be dead, and another one would be glad of it.
func (p *pending) Perishable() bool {
	_, ok := p.call.(undoer)
	return ok
}

// undo takes back what the reply would have handed out. Taking back twice does
// nothing: the leases are over by then.
func (p *pending) undo() {
	u, ok := p.call.(undoer)
	if !ok {
		return
	}
	if p.task.Err() != nil {
		p.letGo()
		return
	}
	if c := u.Undo(); c != nil {
		p.session.handler.submitUndo(c)
	}
}

// letGo forgets a result that is not to be written: of a task that was applied, but
// whose commit has failed.
func (p *pending) letGo() {
	if k, ok := p.call.(keeper); ok {
		k.letGo()
	}
}
