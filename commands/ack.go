package commands

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
)

func ack() Spec {
	return Spec{
		Name: "FILA.ACK", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of receipts and M the number of leased messages, in slices",
		Returns: "integer",
		Summary: "Acknowledges messages, which removes them. Returns the number of leases that were still live. " +
			"Thousands of receipts are handled in slices: after a crash before the reply, part of them may have been acknowledged. In a transaction they are one atomic write. " +
			"The budgets of a message are settled with its charge, or with what USED says, which settles its throttles BY COST as well, unless its charge is another amount than its cost. " +
			"RESULT is what FILA.RESULT answers to the client that waits for the message, and to others for the RESULTTTL of the queue. Both go with one receipt.",
		Flags:  []string{"write", "fast"},
		Access: Consume, ACL: []string{"consume"},
		Args: append(receiptArgs(), usedOption(), Arg{Name: "value", Type: String, Token: "RESULT", Optional: true}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.ACK orders <receipt> USED 150", "(integer) 1"},
			{"FILA.ACK orders <receipt>", "(integer) 0"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.ACK orders <receipt> RESULT shipped", "(integer) 1"},
		},
		Tiny:  true,
		Parse: parseAck,
	}
}

// usedOption is what the budgets and the throttles by cost of a message are settled with.
func usedOption() Arg {
	return Arg{Name: "n", Type: Integer, Token: "USED", Optional: true, Max: credit.ChargeMax}
}

type ackCall struct {
	receipts
	options engine.AckOptions
}

func parseAck(_ *Session, in *input) (call, error) {
	c := &ackCall{options: engine.AckOptions{Used: in.Amount("used")}}
	if err := c.parse(in); err != nil {
		return nil, err
	}
	if in.Has("result") {
		c.options.Result = append([]byte{}, in.Bytes("result")...) // also an empty one is one
	}
	if len(c.list) != 1 {
		for _, option := range []string{"used", "result"} {
			if in.Has(option) {
				return nil, command.Refuse("INVALID", strings.ToUpper(option)+" goes with exactly one receipt; send a FILA.ACK for each")
			}
		}
	}
	return c, nil
}

// Bytes implements weigher.
func (c *ackCall) Bytes() int { return c.receipts.Bytes() + len(c.options.Result) }

// Apply implements engine.Call.
func (c *ackCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.AckWith(c.queue, c.list, c.options)
	return err
}

// trace implements traced.
func (c *ackCall) trace(t *tracing.Tracer, p *pending, err error) {
	c.ended(t, p, tracing.Acked, err)
}

func nack() Spec {
	return Spec{
		Name: "FILA.NACK", Group: "fila", Since: "0.1.0", Complexity: "O(1); the hook runs off-loop", Returns: "map",
		Summary: "Reports that a delivery has failed: the message is retried after a delay, or dead once its attempts are used up. " +
			"DELAY (retry after that time) or DEAD decides; without them the queue's ON_FAILURE hook, which receives the ERROR, or else the settings of the queue. " +
			"The first 8 KiB of the ERROR are kept with the message, up to a whole character. " +
			"A message whose TTL is over becomes dead in any case. A retry is not delivered if its ready_at is not before the end of the TTL. " +
			"CAUSE names the group that the failure belongs to in FILA.BROWSE GROUP ERROR, in at most 256 bytes; without it the cause is that which the hook names, else what the ERROR has in common with others. " +
			"USED settles the budgets and the throttles BY COST of the message as in FILA.ACK; without it a nack costs no credits. " +
			"HOLD holds a throttle that the message names, as FILA.THROTTLE HOLD does, in the same write: what a provider says in Retry-After. For an adaptive one it is a failure, also with DEAD. It opens none: of two holds the later end counts.",
		Reply: "A map: action (retry, or dlq for a message that is not tried again), attempt (of the next delivery, or the last one), ready_at (nil but for a retry), " +
			"dlq (the queue of a dead message; nil for a retry, for a dead message that was dropped, and for one whose group is cancelled, which is removed).",
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
			usedOption(),
			{Name: "name", Type: String, Token: "CAUSE", Optional: true},
			{Name: "hold", Type: Block, Token: "HOLD", Optional: true, Multiple: true, Args: []Arg{
				{Name: "throttle-key", Type: String}, {Name: "ms", Type: Integer, Max: millisMax},
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

func parseNack(_ *Session, in *input) (call, error) {
	r, err := engine.ParseReceipt(in.Bytes("receipt"))
	if err != nil {
		return nil, err
	}
	holds, err := holdsOf(in)
	if err != nil {
		return nil, err
	}
	return &nackCall{req: engine.Nack{
		Queue: in.Text("queue"), Receipt: r, Error: string(in.Bytes("error")), Delay: in.Millis("delay", -1), Dead: in.Has("dead"), Used: in.Amount("used"), Holds: holds, Cause: string(in.Bytes("cause")),
	}}, nil
}

// holdsOf returns the holds of a nack.
func holdsOf(in *input) (holds []engine.HoldFor, err error) {
	if n := in.Uses("hold"); n > holdsMax {
		return nil, fmt.Errorf("%w: %d times HOLD, at most %d in a command", engine.ErrTooBig, n, holdsMax)
	}
	in.Each("hold", func(words [][]byte) {
		ms, _ := strconv.ParseInt(string(words[1]), 10, 64) // the table of commands has checked it
		holds = append(holds, engine.HoldFor{Key: string(words[0]), For: time.Duration(ms) * time.Millisecond})
	})
	return holds, nil
}

// holdsMax is how many holds a nack may have: a message has at most as many throttle keys.
const holdsMax = 1024

// Bytes implements weigher.
func (c *nackCall) Bytes() int { return len(c.req.Error) }

// Preflight implements engine.Preflighter.
func (c *nackCall) Preflight(tx *engine.Tx) error { return tx.PreflightNack(&c.req) }

// Apply implements engine.Call.
func (c *nackCall) Apply(tx *engine.Tx) (err error) {
	c.result, err = tx.Nack(&c.req)
	return err
}

// Render writes a map. ready_at is nil but for a retry; dlq is nil but for a dead message that was not
// dropped.
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

// writeName writes a name, or nil if it is empty.
func writeName(w *resp.Writer, name string) {
	if name == "" {
		w.Null()
		return
	}
	w.BulkString(name)
}

func extend() Spec {
	return Spec{
		Name: "FILA.EXTEND", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of leased messages", Returns: "integer",
		Summary: "Sets the end of a lease to a number of milliseconds from now, and returns that time. " +
			"PROGRESS says how far the work is, in at most 1 KiB: FILA.GET, FILA.BROWSE and FILA.RESULT show it, and the event progress has it. An empty text takes it back. " +
			"It ends with the lease, and a restart or a failover forgets it; the texts of all leases have 64 MiB, then the oldest are forgotten.",
		Flags:  []string{"write", "fast"},
		Access: Consume, ACL: []string{"consume"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "receipt", Type: String},
			{Name: "ms", Type: Integer, Min: 1, Max: millisMax},
			{Name: "text", Type: String, Token: "PROGRESS", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.EXTEND orders <receipt> 60000", "(integer) <time>"},
			{"FILA.EXTEND orders <receipt> 60000 PROGRESS \"3 of 7 pages\"", "(integer) <time>"},
		},
		Tiny:  true,
		Parse: parseExtend,
	}
}

type extendCall struct {
	queue   string
	receipt engine.Receipt
	by      time.Duration
	options engine.ExtendOptions
	until   time.Time
}

func parseExtend(_ *Session, in *input) (call, error) {
	r, err := engine.ParseReceipt(in.Bytes("receipt"))
	if err != nil {
		return nil, err
	}
	c := &extendCall{queue: in.Text("queue"), receipt: r, by: in.Millis("ms", 0)}
	if in.Has("progress") {
		c.options.Progress = new(string(in.Bytes("progress")))
	}
	return c, nil
}

// Bytes implements weigher.
func (c *extendCall) Bytes() int {
	if c.options.Progress == nil {
		return 0
	}
	return len(*c.options.Progress)
}

// Apply implements engine.Call.
func (c *extendCall) Apply(tx *engine.Tx) (err error) {
	c.until, err = tx.ExtendWith(c.queue, c.receipt, c.by, c.options)
	return err
}

// trace implements traced.
func (c *extendCall) trace(t *tracing.Tracer, _ *pending, err error) {
	if err == nil {
		t.Extended(c.receipt, c.until)
	}
}

// Render writes the new end of the lease.
func (c *extendCall) Render(_ *Handler, w *resp.Writer) error {
	writeTime(w, c.until)
	return nil
}

func release() Spec {
	return Spec{
		Name: "FILA.RELEASE", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of receipts and M the number of leased messages, in slices",
		Returns: "integer",
		Summary: "Returns leased messages: they are ready again at once, and no failure is counted. Returns the number of leases that were still live. " +
			"Thousands of receipts are handled in slices, as with FILA.ACK.",
		Flags:  []string{"write", "fast"},
		Access: Consume, ACL: []string{"consume"},
		Args: receiptArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.RELEASE orders <receipt>", "(integer) 1"},
		},
		Tiny:  true,
		Parse: receiptsOf[releaseCall],
	}
}

type releaseCall struct{ receipts }

// Apply implements engine.Call.
func (c *releaseCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Release(c.queue, c.list)
	return err
}

// trace implements traced.
func (c *releaseCall) trace(t *tracing.Tracer, p *pending, err error) {
	c.ended(t, p, tracing.Released, err)
}

func receiptArgs() []Arg {
	return []Arg{{Name: "queue", Type: Key}, {Name: "receipt", Type: String, Multiple: true, NeverToken: true}}
}

// receipts are the leases that a command names, and the number of those that were live.
type receipts struct {
	queue string
	list  []engine.Receipt
	one   [1]engine.Receipt // most commands name one receipt
	counted
}

// receiptsOf parses a command whose call T embeds receipts.
func receiptsOf[T any, C interface {
	*T
	call
	parse(in *input) error
}](_ *Session, in *input) (call, error) {
	c := C(new(T))
	err := c.parse(in)
	return c, err
}

func (b *receipts) parse(in *input) error {
	b.queue = in.Text("queue")
	words := in.List("receipt")
	b.list = b.one[:0]
	if len(words) > 1 {
		b.list = make([]engine.Receipt, 0, len(words))
	}
	for _, word := range words {
		r, err := engine.ParseReceipt(word)
		if err != nil {
			return err
		}
		b.list = append(b.list, r)
	}
	return nil
}

// ended makes the spans of the deliveries that have ended.
func (b *receipts) ended(t *tracing.Tracer, p *pending, outcome string, err error) {
	if err != nil {
		return
	}
	for i := range b.list {
		if d := t.Take(&b.list[i]); d != nil {
			_, at := p.times()
			t.Ended(d, outcome, at)
		}
	}
}

// Bytes implements weigher.
func (b *receipts) Bytes() int { return 32 * len(b.list) }
