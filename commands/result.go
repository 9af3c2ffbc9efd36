package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func result() Spec {
	return Spec{
		Name: "FILA.RESULT", Group: "fila", Since: "0.1.0", Complexity: "O(1); what is not in memory is read off-loop", Returns: "map or nil",
		Summary: "Returns what has become of a message: whether it was acked, with the RESULT of that FILA.ACK, is dead, or is still in the queue. " +
			"BLOCK is the time in milliseconds to wait for its end, 0 without end; server.max_block_ms bounds it. " +
			"A result is known for the RESULTTTL of the queue, and each ack for its KEEPDONE. Without that an ack without RESULT, and a death without a dead-letter queue, are known only to clients that wait.",
		Reply: "A map, nil for a message that is not known, or not any more, also because it was cancelled: " + resultFields(&engine.Result{}).names() + ". " +
			"status is done, dead or pending; value is the RESULT of the ack, nil without one; error is that of a dead message: of its last failure, or else the reason of its death; " +
			"at is when it was acked or died; progress is what the consumer of a pending message has said last with FILA.EXTEND. With BLOCK, pending means that the time is over.",
		Flags:  []string{"readonly", "blocking"},
		Access: Produce, ACL: []string{"produce"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "id", Type: String},
			{Name: "ms", Type: Integer, Token: "BLOCK", Optional: true, Max: millisMax},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE reports", "OK"},
			{"FILA.ENQUEUE reports 2026-11", `"<id>"`},
			{"FILA.RESULT reports <id>", ` 1) "status"
 2) "pending"
 3) "value"
 4) (nil)
 5) "error"
 6) (nil)
 7) "at"
 8) (nil)
 9) "progress"
10) (nil)`},
			{"FILA.LEASE reports", "..."},
			{"FILA.ACK reports <receipt> RESULT s3://reports/11.pdf", "(integer) 1"},
			{"FILA.RESULT reports <id> BLOCK 10000", ` 1) "status"
 2) "done"
 3) "value"
 4) "s3://reports/11.pdf"
 5) "error"
 6) (nil)
 7) "at"
 8) (integer) <time>
 9) "progress"
10) (nil)`},
		},
		Room:   resultRoom,
		Memory: "`limits.result_bytes`, read off-loop. With BLOCK a value is kept like a message of FILA.LEASE, or else read again while the reply is written",
		Parse: func(s *Session, in *input) (call, error) {
			r, err := engine.ParseReceipt(in.Bytes("id"))
			if err != nil {
				return nil, err
			}
			c := &resultCall{session: s, req: engine.ResultRequest{Queue: in.Text("queue"), ID: r.ID, Block: in.Millis("block", -1)}}
			if s.waitsForResult(in) {
				c.req.Retain = c.retain
			}
			return c, nil
		},
	}
}

// waitsForResult reports whether the command may wait without end, so that it must not hold the
// room of a value meanwhile.
func (s *Session) waitsForResult(in *input) bool { return s.tx.open == nil && in.Has("block") }

// resultRoom is the room of a value, or of the error of a dead message. A request that waits
// reserves none for the value.
func resultRoom(s *Session, in *input) int {
	if s.waitsForResult(in) {
		return engine.ErrorBytes + smallRoom
	}
	return max(s.handler.cfg.Limits.Result, engine.ErrorBytes) + smallRoom
}

type resultCall struct {
	session  *Session // of the client
	req      engine.ResultRequest
	retained int64 // bytes of the value, out of Limits.Retained
}

// Preflight implements engine.Preflighter.
func (c *resultCall) Preflight(tx *engine.Tx) error { return tx.PreflightResult(&c.req) }

// Apply implements engine.Call.
func (c *resultCall) Apply(tx *engine.Tx) error { return tx.Result(&c.req) }

// retain decides whether the answer keeps its value until it is written. Small values are not
// counted, as in other replies.
func (c *resultCall) retain(bytes int) bool {
	c.release()
	if bytes <= smallRoom {
		return true
	}
	if !c.session.retain(int64(bytes)) {
		return false
	}
	c.retained = int64(bytes)
	return true
}

// release implements retainer.
func (c *resultCall) release() {
	c.session.unretain(c.retained)
	c.retained = 0
}

// Render writes a map, or nil. A value that is not in memory is read first, within what all
// connections may read at a time.
func (c *resultCall) Render(h *Handler, w *resp.Writer) error {
	defer c.release()
	if c.req.Result.Absent {
		most := int64(h.cfg.Limits.Result)
		h.loads.Take(most)
		defer h.loads.Give(most)
		if err := h.engine.LoadResult(&c.req.Result); err != nil {
			return err
		}
	}
	if c.req.Result.Status == "" {
		w.Null()
		return nil
	}
	resultFields(&c.req.Result).write(w)
	c.req.Result = engine.Result{} // free the memory: the reply may remain in the queue
	return nil
}

// resultFields are what has become of a message.
func resultFields(r *engine.Result) *fields {
	var f fields
	f.text("status", r.Status)
	f.maybe("value", r.Value)
	f.optional("error", r.Error)
	f.at("at", r.At)
	f.optional("progress", r.Progress)
	return &f
}
