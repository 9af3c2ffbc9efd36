package commands

import (
	"strconv"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

// transaction is what a client has queued since MULTI.
type transaction struct {
	queued []queued
	bytes  int
	held   int64 // of bytes, what counts among those of all connections
	room   int   // that the replies take, but for messages that are shown
	shows  bool  // messages
	failed bool  // a command was refused: EXEC discards the rest
}

// queued is a command that waits for EXEC.
type queued struct {
	command *command
	args    [][]byte
	call    call // what the engine is to do; nil: the session executes it itself
}

// cloneWords copies words out of what was read with them, which is not to be kept
// until EXEC.
func cloneWords(words [][]byte) [][]byte {
	size := 0
	for _, w := range words {
		size += len(w)
	}
	room := make([]byte, 0, size)
	out := make([][]byte, len(words))
	for i, w := range words {
		at := len(room)
		room = append(room, w...)
		out[i] = room[at:len(room):len(room)]
	}
	return out
}

// begin starts a transaction.
func (s *Session) begin() {
	s.multi = &transaction{}
	s.queued.Store(0)
}

// end forgets the transaction, if there is one.
func (s *Session) end() {
	if t := s.multi; t != nil && t.held > 0 {
		s.handler.queued.Give(t.held)
	}
	s.multi = nil
	s.queued.Store(-1)
}

// queuedFree is what a transaction may hold however much the others do.
const queuedFree = 256 << 10

// spoil makes EXEC discard a transaction one of whose commands was refused.
func (s *Session) spoil() {
	if s.multi == nil {
		return
	}
	s.multi.failed = true
	s.multi.queued = nil
}

// queue keeps a command that has been scanned for EXEC. An argument that cannot be
// is refused here, before anything has happened.
func (s *Session) queue(c *command, args [][]byte) error {
	t, l := s.multi, &s.handler.cfg.Limits
	if c.spec.has("no_multi") || c.spec.Group == pubsubGroup || c.name == "monitor" { // the latter two answer later, and then go on
		return &refusal{"ERR", "Command not allowed inside a transaction"}
	}
	for _, a := range args {
		t.bytes += len(a)
	}
	if more := int64(t.bytes) - t.held; t.bytes > queuedFree && more > 0 {
		if !s.handler.queued.Try(more) {
			return &refusal{"OOM", "too many long transactions are being queued at the same time: send it again, or raise server.input_bytes_max"}
		}
		t.held += more
	}
	if len(t.queued) >= l.Transaction || t.bytes > l.TransactionBytes {
		return &refusal{"TOOBIG", "the transaction has more than " + strconv.Itoa(l.Transaction) + " commands or " +
			strconv.Itoa(l.TransactionBytes) + " bytes, make it several"}
	}
	t.add(c, &s.in)
	if t.room > l.ReplyBytes {
		return &refusal{"TOOBIG", "the replies of the transaction may have more than " + strconv.Itoa(l.ReplyBytes) + " bytes, make it several"}
	}
	s.in.loading = false // MULTI is refused while the engine recovers
	q := queued{command: c, args: args}
	if c.spec.Local == nil {
		var err error
		if q.call, err = c.spec.Parse(&s.in); err != nil {
			return err
		}
	}
	if !t.failed {
		t.queued = append(t.queued, q)
		s.queued.Store(int32(len(t.queued))) //nolint:gosec // bounded above
	}
	return nil
}

// add counts what the reply of a command takes.
func (t *transaction) add(c *command, in *input) {
	t.room += tinyRoom
	switch {
	case c.spec.Tiny:
	case c.spec.Room == nil:
		t.room += smallRoom
	case c.name == "fila.get":
		t.shows = true // the engine counts them, when it has read them
	default:
		t.room += max(c.spec.Room(in), 0)
	}
}

// exec ends the transaction and makes a call of it. What is local happens now.
func (s *Session) exec() (call, error) {
	t := s.multi
	if t == nil {
		return nil, &refusal{"ERR", "EXEC without MULTI"}
	}
	s.end()
	if t.failed {
		return nil, &refusal{"EXECABORT", "Transaction discarded because of previous errors."}
	}
	c := &execCall{queued: t.queued, bytes: t.bytes, local: make([][]byte, len(t.queued))}
	hands := false
	for i := range t.queued {
		q := &t.queued[i]
		err := s.check(q.command, q.args) // rights may have changed since
		if q.call == nil || err != nil {
			q.call = nil
			c.local[i] = s.inTransaction(q, err)
			continue
		}
		c.calls = append(c.calls, q.call)
		_, undoable := q.call.(undoer)
		hands = hands || undoable
	}
	c.errs = make([]error, len(c.calls))
	if hands {
		return &handingExec{c}, nil
	}
	return c, nil
}

// inTransaction executes a local command of a transaction, unless it was refused,
// and returns its reply.
func (s *Session) inTransaction(q *queued, err error) []byte {
	w := s.scratch()
	if err == nil {
		err = q.command.spec.Local(s, &s.in, w)
	}
	if err != nil {
		w.Take()
		writeError(w, err)
	}
	return w.Take()
}

// execCall is a transaction on its way through the engine.
type execCall struct {
	queued []queued
	local  [][]byte // replies of the local ones, by their place in queued
	calls  []engine.Call
	errs   []error // of calls
	bytes  int
}

// Prepare prepares all messages of the transaction. If one is refused, nothing
// has happened yet, and nothing will.
func (c *execCall) Prepare(e Engine) error {
	for _, call := range c.calls {
		if p, ok := call.(preparer); ok {
			if err := p.Prepare(e); err != nil {
				code, text := wireError(err)
				return &refusal{"EXECABORT", "Transaction discarded because of: " + code + " " + text}
			}
		}
	}
	return nil
}

// Bytes is what waits for the loop.
func (c *execCall) Bytes() int { return c.bytes }

// Apply implements engine.Call.
func (c *execCall) Apply(tx *engine.Tx) error { return tx.Exec(c.calls, c.errs) }

// Render writes the replies in the order of the commands.
func (c *execCall) Render(h *Handler, w *resp.Writer) error {
	w.Array(len(c.queued))
	n := 0
	for i := range c.queued {
		if c.queued[i].call == nil {
			w.Raw(c.local[i])
			continue
		}
		err := c.errs[n]
		if err == nil {
			err = c.queued[i].call.Render(h, w)
		}
		if err != nil {
			writeError(w, err)
		}
		n++
	}
	return nil
}

// handingExec is a transaction that hands something out.
type handingExec struct{ *execCall }

// Undo takes back all that was handed out.
func (c *handingExec) Undo() engine.Call {
	var all undoAll
	for i, call := range c.calls {
		if u, ok := call.(undoer); ok && c.errs[i] == nil {
			if undo := u.Undo(); undo != nil {
				all = append(all, undo)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// letGo forgets what its calls keep.
func (c *handingExec) letGo() {
	for _, call := range c.calls {
		if k, ok := call.(keeper); ok {
			k.letGo()
		}
	}
}

// undoAll undoes several calls.
type undoAll []engine.Call

// Apply implements engine.Call. None of them waits or is refused.
func (u undoAll) Apply(tx *engine.Tx) error {
	for _, call := range u {
		if err := call.Apply(tx); err != nil {
			return err
		}
	}
	return nil
}
