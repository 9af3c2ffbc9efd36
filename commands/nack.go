package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func nack() Spec {
	return Spec{
		Name: "FILA.NACK", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Reports that a delivery has failed: the message is retried after a pause, or dead once its attempts are used up. " +
			"DELAY (a retry after so long) or DEAD decides; without them the queue's ON_FAILURE hook, which sees the ERROR, or else the queue's settings. " +
			"When its TTL is over it is dead, whatever is asked for; a retry whose ready_at is not before that does not come: the message dies waiting.",
		Reply: "A map: action (retry or dlq), attempt (of the next delivery, or the last one), ready_at (nil for a dead message), " +
			"dlq (nil for a retry, and for a dead message that no queue took).",
		Flags:  []string{"write", "fast"},
		Access: Consume, ACL: []string{"consume"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "receipt", Type: String},
			{Name: "text", Type: String, Token: "ERROR", Optional: true},
			{Name: "fate", Type: OneOf, Optional: true, Args: []Arg{
				{Name: "ms", Type: Integer, Token: "DELAY", Max: millisMax},
				{Name: "dead", Type: PureToken, Token: "DEAD"},
			}},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.NACK orders <receipt> ERROR timeout DELAY 1000", `1) "action"
2) "retry"
3) "attempt"
4) (integer) 2
5) "ready_at"
6) (integer) <time>
7) "dlq"
8) (nil)`},
		},
		Tiny:  true,
		Parse: parseNack,
	}
}

type nackCall struct {
	req    engine.Nack
	result engine.NackResult
}

func parseNack(in *input) (call, error) {
	r, err := engine.ParseReceipt(in.bytes("receipt"))
	if err != nil {
		return nil, err
	}
	return &nackCall{req: engine.Nack{
		Queue: in.text("queue"), Receipt: r, Error: string(in.bytes("error")), Delay: in.millis("delay", -1), Dead: in.has("dead"),
	}}, nil
}

// Bytes is what waits for the loop.
func (c *nackCall) Bytes() int { return len(c.req.Error) }

// Preflight implements engine.Preflighter.
func (c *nackCall) Preflight(tx *engine.Tx) error { return tx.PreflightNack(&c.req) }

// Apply implements engine.Call.
func (c *nackCall) Apply(tx *engine.Tx) (err error) {
	c.result, err = tx.Nack(&c.req)
	return err
}

// Render writes a map. ready_at is nil for a dead message; dlq is nil for a
// retry, and for a dead message that no queue took.
func (c *nackCall) Render(_ *Handler, w *resp.Writer) error {
	w.Map(4)
	w.BulkString("action")
	w.BulkString(c.result.Action)
	w.BulkString("attempt")
	w.Int(int64(c.result.Attempt))
	w.BulkString("ready_at")
	writeTime(w, c.result.ReadyAt)
	w.BulkString("dlq")
	writeName(w, c.result.DLQ)
	return nil
}

// writeName writes a name, or nil where there is none.
func writeName(w *resp.Writer, name string) {
	if name == "" {
		w.Null()
		return
	}
	w.BulkString(name)
}
