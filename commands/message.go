package commands

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func get() Spec {
	return Spec{
		Name: "FILA.GET", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "map or nil",
		Summary: "Returns a message in any status, without changing it. In a queue with KEEPDONE that includes messages that are done, without their payloads.",
		Reply: "A map, nil if the queue has no such message: " + viewFields(&engine.View{}).names() + ". status is ready, delayed, leased, dead or done; " +
			"throttle is an array, headers a map. What does not apply is nil. error and the times of failures are those of a message that has failed, or of its life before it died, and so is cause, where it was named; " +
			"reason, origin, died_at, dead_attempts and dead_deliveries say how it died. " +
			"progress is what the consumer of a leased message has said last with FILA.EXTEND. " +
			"first_leased_at is known in a queue with KEEPDONE only; acked_at and result are those of a done message, of which payload, weight, throttle, cost, budgets and charge are nil, and the first 1 KiB of its headers are known unless a restart came between its last delivery and the ack. " +
			"With ATTEMPTS the last field is attempts: the last ten attempts that have failed, the oldest first, also those before the message died or was redriven, as maps: " +
			attemptFields(&engine.Failure{}).names() + ". outcome is nacked or expired, error has at most 256 bytes and consumer 64; attempt begins at 1 again where the message has died or was redriven.",
		Flags: []string{"readonly"},
		Args:  []Arg{{Name: "queue", Type: Key}, {Name: "id", Type: String}, {Name: "attempts", Type: PureToken, Token: "ATTEMPTS", Optional: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.GET orders <id>", "..."},
			{"FILA.GET orders <id> ATTEMPTS", "..."},
			{"FILA.CANCEL orders <id>", "(integer) 1"},
			{"FILA.GET orders <id>", "(nil)"},
		},
		Room:   func(s *Session, in *input) int { return messageOrEnd(s, in) + 2*smallRoom },
		Memory: "one message, or the result of one that is done, read off-loop, and 8 KiB",
		Parse: func(_ *Session, in *input) (call, error) {
			r, err := engine.ParseReceipt(in.Bytes("id"))
			if err != nil {
				return nil, err
			}
			return &getCall{req: engine.Get{Queue: in.Text("queue"), ID: r.ID}, attempts: in.Has("attempts")}, nil
		},
	}
}

type getCall struct {
	req      engine.Get
	attempts bool
	view     *engine.View
}

// Preflight implements engine.Preflighter.
func (c *getCall) Preflight(tx *engine.Tx) error { return tx.PreflightGet(&c.req) }

// Apply implements engine.Call.
func (c *getCall) Apply(tx *engine.Tx) (err error) {
	c.view, err = tx.Get(&c.req)
	return err
}

// Render writes a map, or nil.
func (c *getCall) Render(_ *Handler, w *resp.Writer) error {
	if c.view == nil {
		w.Null()
		return nil
	}
	if err := c.view.Open(); err != nil {
		return err
	}
	f := viewFields(c.view)
	if c.attempts {
		list := make([]fields, len(c.view.Failures))
		for i := range list {
			list[i] = *attemptFields(&c.view.Failures[i])
		}
		f.groups("attempts", list)
	}
	f.write(w)
	return nil
}

// attemptFields are an attempt that has failed.
func attemptFields(a *engine.Failure) *fields {
	var f fields
	f.number("attempt", int64(a.Attempt))
	f.optional("consumer", a.Consumer)
	f.at("from", time.Unix(0, a.LeasedAt))
	f.at("to", time.Unix(0, a.At))
	if a.Expired {
		f.text("outcome", "expired")
	} else {
		f.text("outcome", "nacked")
	}
	f.optional("error", a.Error)
	return &f
}

// viewFields are a message as FILA.GET shows it.
func viewFields(v *engine.View) *fields {
	var f fields
	f.text("id", v.ID.String())
	f.text("queue", v.Queue)
	f.text("status", v.Status)
	f.text("key", v.Key)
	meta := &v.Meta
	if v.Status == engine.StatusDone {
		meta = nil // a record of what is done has none of it
	}
	f.attributes(meta, "weight")
	f.number("priority", int64(v.Priority))
	f.attributes(meta, "throttle")
	f.number("attempt", int64(v.Attempt))
	f.number("deliveries", int64(v.Deliveries))
	f.at("enqueued_at", v.EnqueuedAt)
	f.due("ready_at", v.ReadyAt)
	f.at("lease_until", v.LeaseUntil)
	f.optional("consumer", v.Consumer)
	headers := make(fields, 0, len(v.Headers()))
	for _, h := range v.Headers() {
		headers.blob(string(h.Name), h.Value)
	}
	f.group("headers", headers)
	if v.Status == engine.StatusDone {
		f.optional("payload", "")
	} else {
		f.blob("payload", v.Payload())
	}
	d := cmp.Or(v.Dead, &engine.Death{})
	f.optional("reason", d.Reason)
	f.optional("error", v.Error)
	f.optional("origin", d.Origin)
	f.at("died_at", d.At)
	f.at("first_failed_at", v.FirstFailedAt)
	f.at("last_failed_at", v.LastFailed)
	f.limit("dead_attempts", uint64(d.Attempts))
	f.limit("dead_deliveries", uint64(d.Deliveries))
	f.attributes(meta, "cost", "expires_at", "budgets", "charge", "unique", "max_attempts", "backoff_ms", "max_backoff_ms", "until_lease")
	f.optional("progress", v.Progress)
	f.at("first_leased_at", v.FirstLeasedAt)
	f.at("acked_at", v.AckedAt)
	f.maybe("result", v.Result)
	f.optional("group", v.Group)
	f.optional("cause", v.Cause)
	f.attributes(meta, later)
	return &f
}

func cancel() Spec {
	return Spec{
		Name: "FILA.CANCEL", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of ids, in slices; the messages are read off-loop", Returns: "integer",
		Summary: "Removes messages in any status and returns the number of removed messages. The receipt of a leased one becomes invalid. " +
			"Thousands of ids are handled in slices, as with FILA.ACK.",
		Flags: []string{"write"},
		Args:  []Arg{{Name: "queue", Type: Key}, {Name: "id", Type: String, Multiple: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello DELAY 3600000", `"<id>"`},
			{"FILA.CANCEL orders <id>", "(integer) 1"},
			{"FILA.CANCEL orders <id>", "(integer) 0"},
		},
		Room:   words("id", cancelRoom),
		Memory: "512 bytes for each id, no payloads",
		Parse: func(_ *Session, in *input) (call, error) {
			ids, err := messageIDs(in.List("id"))
			return &cancelCall{req: engine.Cancel{Queue: in.Text("queue"), IDs: ids}}, err
		},
	}
}

type cancelCall struct {
	req engine.Cancel
	counted
}

// Preflight implements engine.Preflighter.
func (c *cancelCall) Preflight(tx *engine.Tx) error { return tx.PreflightCancel(&c.req) }

// Apply implements engine.Call.
func (c *cancelCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Cancel(&c.req)
	return err
}

// Bytes is what waits for the loop.
func (c *cancelCall) Bytes() int { return 16 * len(c.req.IDs) }

// counted renders how many messages there were.
type counted struct{ n int }

// Render writes the number.
func (c *counted) Render(_ *Handler, w *resp.Writer) error {
	w.Int(int64(c.n))
	return nil
}

func reschedule() Spec {
	return Spec{
		Name: "FILA.RESCHEDULE", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of delayed messages in memory; the message is read off-loop",
		Returns: "integer",
		Summary: "Makes a message ready in a number of milliseconds, 0 for at once, and returns that time. Its attempts and its place are kept. " +
			"Refused for a leased message, which its consumer decides about, and for a time after the end of the message's TTL.",
		Flags: []string{"write"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "id", Type: String},
			{Name: "ms", Type: Integer, Max: millisMax},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello DELAY 3600000", `"<id>"`},
			{"FILA.RESCHEDULE orders <id> 0", "(integer) <time>"},
		},
		Tiny: true,
		Parse: func(_ *Session, in *input) (call, error) {
			r, err := engine.ParseReceipt(in.Bytes("id"))
			if err != nil {
				return nil, err
			}
			return &rescheduleCall{req: engine.Reschedule{Queue: in.Text("queue"), ID: r.ID, Delay: in.Millis("ms", 0)}}, nil
		},
	}
}

type rescheduleCall struct {
	req     engine.Reschedule
	readyAt time.Time
}

// Preflight implements engine.Preflighter.
func (c *rescheduleCall) Preflight(tx *engine.Tx) error { return tx.PreflightReschedule(&c.req) }

// Apply implements engine.Call.
func (c *rescheduleCall) Apply(tx *engine.Tx) (err error) {
	c.readyAt, err = tx.Reschedule(&c.req)
	return err
}

// Render writes when the message is ready.
func (c *rescheduleCall) Render(_ *Handler, w *resp.Writer) error {
	writeTime(w, c.readyAt)
	return nil
}

func redrive() Spec {
	return Spec{
		Name: "FILA.REDRIVE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of messages moved, in slices; pages of 4 MiB are read off-loop, one after the other, each message once",
		Returns: "integer",
		Summary: "Moves dead messages back to where each came from; their attempts start again. Returns how many. " +
			"RATE limits how many are moved in any second. A redrive that takes longer than a second returns how many it has moved so far and goes on in the background; " +
			"FILA.STATS of the queue shows its progress, and STOP ends it. CAUSE moves only messages of a cause, such as that of a group of FILA.BROWSE GROUP ERROR, several CAUSE those of any of them; ERROR only those whose error matches, " +
			"FROM only those that died in that queue, ID, which may be repeated, only those messages, and HEADER, PAYLOAD, SINCE and UNTIL those that a search of FILA.BROWSE finds with them; of dead messages the times are those of their death, so that UNTIL keeps out what dies meanwhile.",
		Reply: "How many messages were moved, with STOP by the redrive that was running. Each message moves atomically; those that are leased or wait for their time, " +
			"and those whose queue is missing, full or paused, or has another message with their UNIQUE id, stay. One redrive of a queue runs at a time; a restart ends it, so run it again.",
		Flags:  []string{"write"},
		Access: Consume, ACL: []string{"admin"},
		Args: []Arg{
			{Name: "dlq", Type: Key},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: math.MaxInt32},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "queue", Type: Key, Token: "TO", Optional: true, Access: Produce},
			{Name: "n", Type: Integer, Token: "RATE", Optional: true, Min: 1, Max: 1_000_000},
			{Name: "pattern", Type: Pattern, Token: "ERROR", Optional: true},
			{Name: "cause", Type: String, Token: "CAUSE", Optional: true, Multiple: true},
			{Name: "origin", Type: String, Token: "FROM", Optional: true},
			{Name: "header", Type: Block, Token: "HEADER", Optional: true, Args: []Arg{{Name: "name", Type: String}, {Name: "pattern", Type: Pattern}}},
			{Name: "text", Type: String, Token: "PAYLOAD", Optional: true},
			{Name: "ms", Type: Integer, Token: "SINCE", Optional: true},
			{Name: "ms", Type: Integer, Token: "UNTIL", Optional: true},
			{Name: "id", Type: String, Token: "ID", Optional: true, Multiple: true},
			{Name: "stop", Type: PureToken, Token: "STOP", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.NACK orders <receipt> DEAD ERROR \"timeout after 30 s\"", "..."},
			{"FILA.REDRIVE orders.dlq ERROR \"disk full\"", "(integer) 0"},
			{"FILA.REDRIVE orders.dlq CAUSE \"timeout after # s\" FROM orders COUNT 100 RATE 50", "(integer) 1"},
			{"FILA.REDRIVE orders.dlq STOP", "(integer) 0"},
		},
		Parse: parseRedrive,
	}
}

func parseRedrive(_ *Session, in *input) (call, error) {
	if err := in.Filled("key", "KEY", "FILA.REDRIVE without KEY moves the messages of all keys"); err != nil {
		return nil, err
	}
	if err := in.Filled("to", "TO", "FILA.REDRIVE without TO moves messages back to where each came from"); err != nil {
		return nil, err
	}
	if err := in.Filled("from", "FROM", "FILA.REDRIVE without FROM moves messages of all queues"); err != nil {
		return nil, err
	}
	if !in.Has("stop") {
		req := engine.Redrive{DLQ: in.Text("dlq"), Count: int(in.Integer("count", 0)), Key: in.Text("key"), To: in.Text("to"), Rate: int(in.Integer("rate", 0))}
		if req.Filter = parseFilter(in); in.Has("from") || in.Has("id") {
			req.Filter = cmp.Or(req.Filter, new(engine.Filter))
			req.Filter.Origin = string(in.Bytes("from"))
		}
		var words [][]byte
		in.Each("id", func(id [][]byte) { words = append(words, id[0]) })
		if ids, err := messageIDs(words); err != nil {
			return nil, err
		} else if ids != nil {
			slices.SortFunc(ids, func(a, b engine.ID) int { return bytes.Compare(a[:], b[:]) })
			req.Filter.IDs, req.Count = ids, min(cmp.Or(req.Count, len(ids)), len(ids)) // the rest of the queue need not be read
		}
		return answerInt(func(tx *engine.Tx) (int, error) { return tx.Redrive(&req) }), nil
	}
	if slices.ContainsFunc([]string{"count", "key", "to", "rate", "error", "cause", "from", "header", "payload", "since", "until", "id"}, in.Has) {
		return nil, command.Refuse("ERR", "STOP stands alone, usage: "+in.Cmd.UsageLine())
	}
	dlq := in.Text("dlq")
	return answerInt(func(tx *engine.Tx) (int, error) { return tx.StopRedrive(dlq) }), nil
}

// messageIDs reads ids of messages.
func messageIDs(words [][]byte) (ids []engine.ID, err error) {
	for _, word := range words {
		r, err := engine.ParseReceipt(word)
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
}
