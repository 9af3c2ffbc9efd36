package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
)

func enqueue() Spec {
	return Spec{
		Name: "FILA.ENQUEUE", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "string",
		Summary: "Stores a message in a queue and returns its id. KEY is its fairness key (default). WEIGHT sets the weight of that key, for its whole backlog; " +
			"COST is what the delivery takes of the key's share (1). THROTTLE names a throttle that the message is subject to, see FILA.THROTTLE. " +
			"BUDGET names a budget that pays for the message, which goes out when each budget covers CHARGE (COST); see FILA.BUDGET. " +
			"PRIORITY orders messages within their key, 9 before 0 (4). The message is delivered after DELAY or, by the broker's clock, from AT on, which may be past. " +
			"After TTL an undelivered message is dead, or dropped where there is no dead-letter queue; a lease that has begun lasts. " +
			"DEDUP gives the message a deduplication id: a second one with it within the queue's DEDUPWINDOW changes nothing and answers the id of the first; " +
			"DEDUP * derives it from the content (queue, key, headers, payload). " +
			"UNIQUE gives it a unique id: while a message with this id is in the queue, be it ready, delayed or leased, a second one changes nothing and answers the id of the first. " +
			"The id is free again once that message is acked, dead, cancelled, purged or past its TTL. UNIQUE is asked before DEDUP. " +
			"With UNTIL LEASE the id is free from the moment the message is leased, and a message that has been leased does not get it back before a redrive. " +
			"With REPLACE the message takes the place of the one with the id while that is ready or delayed and has not failed: it gets its id, its priority and its place, and all else is its own; " +
			"KEY, and a PRIORITY that is given, must be the same. DELAY or AT starts again with each, but the message is ready at the latest MAXDELAY after the first. A full queue takes a replacement. " +
			"With REPLACE, DEDUP is asked first: a request that is sent again replaces nothing newer. " +
			"With GROUP the message is a member of a group, see FILA.GROUP: its end counts there. A message that UNIQUE or DEDUP answers adds no member. GROUP does not go with REPLACE. " +
			"An ON_ENQUEUE hook of the queue sees all but the payload and has the last word, see FILA.SCRIPT.",
		Flags:  []string{"write", "denyoom", "fast"},
		Access: Produce, ACL: []string{"produce"},
		Args: append([]Arg{{Name: "queue", Type: Key}, {Name: "payload", Type: String}}, messageArgs(
			dueArg(),
			Arg{Name: "id", Type: String, Token: "DEDUP", Optional: true},
			groupArg(),
		)...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.ENQUEUE orders hello KEY tenant-1 WEIGHT 3 HEADER trace 7f3a", `"<id>"`},
			{"FILA.ENQUEUE orders hello KEY tenant-1 COST 10 THROTTLE provider:x THROTTLE tenant:1", `"<id>"`},
			{"FILA.BUDGET SET acme", "OK"},
			{"FILA.ENQUEUE orders hello KEY acme BUDGET acme CHARGE 800", `"<id>"`},
			{"FILA.ENQUEUE orders hello PRIORITY 9 DELAY 60000", `"<id>"`},
			{"FILA.ENQUEUE orders hello TTL 60000", `"<id>"`},
			{"FILA.ENQUEUE orders hello DEDUP order-17", `"<id>"`},
			{"FILA.ENQUEUE orders reindex KEY tenant-1 UNIQUE reindex-1", `"<id>"`},
			{"FILA.ENQUEUE orders state KEY tenant-1 UNIQUE state-1 UNTIL LEASE REPLACE DELAY 200 MAXDELAY 1000", `"<id>"`},
		},
		Tiny:  true,
		Parse: parseEnqueue,
	}
}

// dueArg is when a message is ready.
func dueArg() Arg {
	return Arg{Name: "due", Type: OneOf, Optional: true, Args: []Arg{
		{Name: "ms", Type: Integer, Token: "DELAY", Max: millisMax},
		{Name: "unix-ms", Type: Integer, Token: "AT", Max: 2 * millisMax},
	}}
}

type enqueueCall struct {
	req  engine.Enqueue
	id   engine.ID
	size int
	span *tracing.Enqueue // nil: it has none
	text [36]byte         // of the id; here, so that Render does not allocate
}

func parseEnqueue(s *Session, in *input) (call, error) {
	c := &enqueueCall{}
	c.req.Queue = in.Text("queue")
	if err := parseEnqueued(s, in, &c.req); err != nil {
		return nil, err
	}
	if t := s.handler.cfg.Tracer; t != nil {
		c.span = t.Enqueue(&c.req)
	}
	c.size = in.Size()
	return c, nil
}

// parseEnqueued parses the options of FILA.ENQUEUE.
func parseEnqueued(s *Session, in *input, req *engine.Enqueue) error {
	if err := parseMessage(s, in, req); err != nil {
		return err
	}
	if req.Dedup = string(in.Bytes("dedup")); in.Has("dedup") && req.Dedup == "" {
		return command.Refuse("INVALID", "DEDUP has at least one byte")
	}
	req.At = int64(in.Millis("at", 0)) // Unix time in nanoseconds
	if err := parseGroup(in, req); err != nil {
		return err
	}
	return parseLast(in, req)
}

// parseMessage parses the options of a message, except for its time and the last ones.
func parseMessage(s *Session, in *input, req *engine.Enqueue) error {
	req.Key, req.Payload = in.Text("key"), in.Bytes("payload")
	if in.Has("key") && req.Key == "" {
		return command.Refuse("INVALID", "KEY has at least one byte; leave it out to use '"+engine.DefaultKey+"'")
	}
	if in.Has("priority") {
		req.Priority = new(uint8(in.Integer("priority", 0)))
	}
	req.Delay, req.TTL = in.Millis("delay", 0), in.Millis("ttl", 0)
	parseHooked(in, req)
	return parseFirst(s, in, req)
}

// headers returns the values of HEADER.
func headers(in *input) []engine.Header {
	n := in.Uses("header")
	if n == 0 {
		return nil
	}
	list := make([]engine.Header, 0, n)
	in.Each("header", func(words [][]byte) { list = append(list, engine.Header{Name: words[0], Value: words[1]}) })
	return list
}

// Prepare runs the queue's hook and encodes the message on the connection.
func (c *enqueueCall) Prepare(s *Session) error { return s.engine().Prepare(&c.req) }

// Bytes implements weigher.
func (c *enqueueCall) Bytes() int { return c.size }

// Announce implements engine.Announcer.
func (c *enqueueCall) Announce() *engine.Enqueue { return &c.req }

// Preflight implements engine.Preflighter.
func (c *enqueueCall) Preflight(tx *engine.Tx) error { return tx.PreflightEnqueue(&c.req) }

// Apply implements engine.Call.
func (c *enqueueCall) Apply(tx *engine.Tx) (err error) {
	c.id, err = tx.Enqueue(&c.req)
	return err
}

// trace implements traced.
func (c *enqueueCall) trace(t *tracing.Tracer, p *pending, err error) {
	if c.span != nil {
		began, ended := p.times()
		t.Enqueued(c.span, &c.req, c.id, began, ended, err)
	}
}

// Render writes the id.
func (c *enqueueCall) Render(_ *Handler, w *resp.Writer) error {
	w.Bulk(engine.AppendID(c.text[:0], c.id))
	return nil
}
