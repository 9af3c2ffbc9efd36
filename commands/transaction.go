package commands

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
)

// sessionTransaction is the transaction that a session is in.
type sessionTransaction struct {
	open   *transaction // nil: none
	queued atomic.Int32 // commands queued since MULTI, -1 outside a transaction
}

func multi() Spec {
	return Spec{
		Name: "MULTI", Group: "transactions", Since: "1.2.0", Complexity: "O(1)", Returns: "status",
		Summary: "Starts a transaction: the following commands are queued, and EXEC executes them as one atomic write.",
		Differs: "An invalid argument is refused when its command is queued, and makes EXEC discard the transaction, as an unknown command does in Redis.",
		Flags:   []string{"noscript", "fast"},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"MULTI", "OK"},
			{"FILA.ENQUEUE orders hello", "QUEUED"},
			{"FILA.LEASE orders", "QUEUED"},
			{"EXEC", "..."},
		},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if s.tx.open != nil {
				return command.Refuse("ERR", "MULTI calls can not be nested")
			}
			s.begin()
			w.OK()
			return nil
		},
	}
}

func exec() Spec {
	return Spec{
		Name: "EXEC", Group: "transactions", Since: "1.2.0", Complexity: "Depends on the commands of the transaction, at most 100,000; they are one write, without slices. What they look at beyond their arguments, such as all keys of a queue, is bounded: 2048 units of work, and one for each command",
		Returns: "array of any",
		Summary: "Executes the commands queued since MULTI in one turn and one write: no other command runs in between, and a crash keeps all or none. " +
			"One that is refused answers its own error and changes nothing, the others apply. A lease does not wait in it.",
		Reply: "An array with the replies, in order.",
		Differs: "A hook of a queue, and the limits of a message, are applied to all of its messages before the first command: " +
			"what they refuse discards the transaction. FILA.BROWSE, FILA.REDRIVE, FILA.SCRIPT HISTORY, FILA.EXPLAIN of a message and FILA.PURGE of a key " +
			"read too much to be a part of one write: they answer an error in it. So does a command with which the transaction would look at too many keys, queues or leases, " +
			"such as FILA.STATS of a queue with very many keys, with TOOBIG; it changes nothing. In SLOWLOG, INFO and the metrics each of its commands has taken as long as " +
			"the transaction, and of one transaction SLOWLOG has " + strconv.Itoa(slowOfOne) + " at most.",
		Flags: []string{"noscript", "write"},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"MULTI", "OK"},
			{"FILA.ENQUEUE orders hello", "QUEUED"},
			{"PING", "QUEUED"},
			{"EXEC", `1) "<id>"
2) PONG`},
		},
		Immediate: true,
		Room:      execRoom,
		Memory: "that of its commands together, at most `limits.reply_bytes`, and as much for the messages that `FILA.GET` returns, and those that it leases and then removes; " +
			"more is refused",
		Parse: func(s *Session, in *input) (call, error) { return s.exec() },
	}
}

// execRoom is the memory of a transaction's arguments and replies.
func execRoom(s *Session, in *input) int {
	t := s.tx.open
	if t == nil {
		return tinyRoom
	}
	n := t.room + argumentCopies*t.bytes
	if t.shows {
		n += s.handler.cfg.Limits.ReplyBytes
	}
	return n
}

func discard() Spec {
	return Spec{
		Name: "DISCARD", Group: "transactions", Since: "2.0.0", Complexity: "O(N) where N is the number of queued commands", Returns: "status",
		Summary: "Forgets the commands since MULTI.",
		Flags:   []string{"noscript", "loading", "stale", "fast"},
		Examples: []Example{
			{"MULTI", "OK"},
			{"PING", "QUEUED"},
			{"DISCARD", "OK"},
		},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if s.tx.open == nil {
				return command.Refuse("ERR", "DISCARD without MULTI")
			}
			s.end()
			w.OK()
			return nil
		},
	}
}

// transaction holds the commands that a client has queued since MULTI.
type transaction struct {
	queued []queued
	bytes  int
	held   int64 // the part of bytes that is taken from Limits.QueuedTotal
	room   int   // memory of the replies, without the messages they show
	leases bool  // a command leases messages
	shows  bool  // a reply shows messages that the engine keeps or reads, bounded by Limits.ReplyBytes
	failed bool  // a command was refused: EXEC discards the transaction
	slot   int   // of the first queue that a command names, see Session.slot; -1: none
}

// queued is a command of an open transaction.
type queued struct {
	command *entry
	args    [][]byte
	shown   []string // what the slow log shows, when args are not retained any more
	call    call     // nil for a local command
}

// cloneWords copies arguments, so that a queued command does not retain the read buffer.
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
	s.tx.open = &transaction{slot: -1}
	s.tx.queued.Store(0)
}

// end drops the open transaction, if there is one.
func (s *Session) end() {
	if t := s.tx.open; t != nil && t.held > 0 {
		s.handler.queued.Give(t.held)
	}
	s.tx.open = nil
	s.tx.queued.Store(-1)
}

// queuedFree is the allowance of a transaction that does not count for Limits.QueuedTotal.
const queuedFree = 256 << 10

// failTransaction marks a transaction with a refused command, so that EXEC discards it. An EXEC that is
// refused ends it, unless it has arguments: what the client sends next is no part of it.
func (s *Session) failTransaction(c *entry, arguments int) {
	switch {
	case s.tx.open == nil:
		return
	case c != nil && c.Name == "exec" && arguments == 0:
		s.end()
		return
	}
	s.tx.open.failed = true
	s.tx.open.queued = nil
}

// queue adds a scanned command to the transaction. Wrong arguments are refused here, before
// anything is applied.
func (s *Session) queue(c *entry, args [][]byte) error {
	t, l := s.tx.open, &s.handler.cfg.Limits
	if c.Spec.Has("no_multi") {
		return command.Refuse("ERR", "Command not allowed inside a transaction")
	}
	if err := s.redirect(c); err != nil {
		return err
	}
	if s.mode == ModeCluster && t.slot < 0 {
		t.slot = s.slot(c)
	}
	for _, a := range args {
		t.bytes += len(a)
	}
	if more := int64(t.bytes) - t.held; t.bytes > queuedFree && more > 0 {
		if !s.handler.queued.Try(more) {
			return command.Refuse("OOM", "too many long transactions are being queued at the same time: send it again, or raise server.input_bytes_max")
		}
		t.held += more
	}
	if len(t.queued) >= l.Transaction || t.bytes > l.TransactionBytes {
		return command.Refuse("TOOBIG", "the transaction has more than "+strconv.Itoa(l.Transaction)+" commands or "+
			strconv.Itoa(l.TransactionBytes)+" bytes, make it several")
	}
	t.add(s, c)
	if t.room > l.ReplyBytes {
		return command.Refuse("TOOBIG", "the replies of the transaction may have more than "+strconv.Itoa(l.ReplyBytes)+" bytes, make it several")
	}
	s.recovering = false // MULTI is refused while the engine recovers
	q := queued{command: c, args: args}
	if c.Spec.Local == nil {
		var err error
		if q.call, err = s.parse(c); err != nil {
			return err
		}
	}
	if !t.failed {
		t.queued = append(t.queued, q)
		s.tx.queued.Store(int32(len(t.queued)))
	}
	return nil
}

// add adds the memory that the reply of a command takes.
func (t *transaction) add(s *Session, c *entry) {
	t.room += tinyRoom
	switch c.Name {
	case "fila.lease", "fila.mlease":
		t.leases = true
	case "fila.ack", "fila.nack", "fila.cancel", "fila.purge", "fila.queue|delete", "fila.queue|apply":
		t.shows = t.shows || t.leases // the messages that it may remove are kept until they are written
	}
	switch {
	case c.Spec.Tiny:
	case c.Spec.Room == nil:
		t.room += smallRoom
	case c.Name == "fila.get":
		t.shows = true // the engine bounds them when it has read them
	default:
		t.room += max(c.Spec.Room(s, &s.in), 0)
	}
}

// exec ends the transaction and turns it into one call. Its local commands are executed now.
func (s *Session) exec() (call, error) {
	t := s.tx.open
	if t == nil {
		return nil, command.Refuse("ERR", "EXEC without MULTI")
	}
	s.end()
	if t.failed {
		return nil, command.Refuse("EXECABORT", "Transaction discarded because of previous errors.")
	}
	c := &execCall{session: s, queued: t.queued, bytes: t.bytes, local: make([][]byte, len(t.queued))}
	delivers := false
	for i := range t.queued {
		q := &t.queued[i]
		err := s.check(q.command, q.args) // rights may have changed since it was queued
		if q.call == nil || err != nil {
			q.call = nil
			c.local[i] = s.inTransaction(q, err)
			continue
		}
		c.calls = append(c.calls, q.call)
		_, undoable := q.call.(undoer)
		delivers = delivers || undoable
	}
	c.errs = make([]error, len(c.calls))
	if delivers {
		return &undoableExec{c}, nil
	}
	return c, nil
}

// inTransaction executes a local command of a transaction, unless it was refused,
// and returns its reply.
func (s *Session) inTransaction(q *queued, err error) []byte {
	w := s.scratch()
	denied := err != nil
	began := s.handler.engine.Elapsed()
	if !denied {
		err = s.act(q.command, w)
	}
	if r, waits := s.later.(*nodeReply); waits { // not in a transaction
		state := s.handler.replication()
		r.atOnce(&state, w)
	}
	s.later = nil
	code := ""
	if err != nil {
		w.Take()
		code = s.writeError(w, err)
	}
	if denied {
		s.handler.calls.Rejected(s.conn.ID(), q.command.Index, code)
	} else {
		s.called(q.command, q.words(), nil, s.handler.engine.Elapsed()-began, code)
	}
	return w.Take()
}

// words returns the command as the client has sent it.
func (q *queued) words() [][]byte { return append(bytes.Fields([]byte(q.command.Display)), q.args...) }

// monitorTransaction sends the commands that an EXEC is about to execute to the clients that monitor.
func (s *Session) monitorTransaction() {
	if s.tx.open == nil {
		return
	}
	for i := range s.tx.open.queued {
		q := &s.tx.open.queued[i]
		s.monitored(q.command, q.words())
	}
}

// slowOfOne is how many commands of one transaction the slow log has at most: all of them have taken as
// long as the transaction, and are not to displace what else was slow.
const slowOfOne = 16

// count adds the commands of a transaction that was executed to the statistics, but the local ones, which
// are counted when they are executed. took is the time of the transaction: none of them is done before.
func (c *execCall) count(took time.Duration) {
	shown := 0
	for i := range c.queued {
		q := &c.queued[i]
		switch {
		case q.call == nil:
		case shown < slowOfOne && c.session.handler.slow.IsSlow(took):
			shown++
			c.session.called(q.command, q.words(), q.shown, took, c.codes[i])
		default:
			c.session.counted(q.command, took, c.codes[i])
		}
	}
}

// failed notes that a command was answered an error.
func (c *execCall) failed(i int, code string) {
	if c.codes == nil {
		c.codes = map[int]string{}
	}
	c.codes[i] = code
}

// execCall is the call of a transaction.
type execCall struct {
	session *Session
	queued  []queued
	local   [][]byte // replies of the local commands, by index in queued
	calls   []engine.Call
	errs    []error        // of calls
	codes   map[int]string // of the errors that were answered, by index in queued, without local commands
	bytes   int
}

// Prepare prepares the calls of the transaction. If one is refused, the transaction is refused
// as a whole and nothing is applied.
func (c *execCall) Prepare(s *Session) error {
	published := 0
	for _, call := range c.calls {
		p, ok := call.(preparer)
		if !ok {
			continue
		}
		err := p.Prepare(s)
		if one, ok := call.(*publishCall); ok && err == nil {
			c.bytes += one.req.Bytes()
			if published += one.req.Stored(); published > s.handler.cfg.Limits.TransactionBytes {
				err = tooLong(s.handler.cfg.Limits.TransactionBytes)
			}
		}
		if err != nil {
			code, text := wireError(err)
			return command.Refuse("EXECABORT", "Transaction discarded because of: "+code+" "+text)
		}
	}
	return nil
}

// tooLong is the error of a transaction whose publishes store too much in one write.
func tooLong(most int) error {
	return fmt.Errorf("%w: the messages that the transaction publishes have more than %d bytes in all queues, make it several", engine.ErrTooBig, most)
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
			c.failed(i, c.session.writeError(w, err))
		}
		n++
	}
	return nil
}

// trace implements traced for those of its calls that do.
func (c *execCall) trace(t *tracing.Tracer, p *pending, err error) {
	for i, call := range c.calls {
		if one, ok := call.(traced); ok {
			one.trace(t, p, cmp.Or(err, c.errs[i]))
		}
	}
}

// undoableExec is a transaction whose replies deliver messages.
type undoableExec struct{ *execCall }

// Undo takes back all deliveries.
func (c *undoableExec) Undo() engine.Call {
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

// release drops the results that the calls retain.
func (c *undoableExec) release() {
	for _, call := range c.calls {
		if k, ok := call.(retainer); ok {
			k.release()
		}
	}
}

// undoAll undoes several calls.
type undoAll []engine.Call

// Apply implements engine.Call. No undo waits or is refused.
func (u undoAll) Apply(tx *engine.Tx) error {
	for _, call := range u {
		if err := call.Apply(tx); err != nil {
			return err
		}
	}
	return nil
}
