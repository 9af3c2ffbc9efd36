package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func explain() Spec {
	return Spec{
		Name: "FILA.EXPLAIN", Group: "fila", Since: "0.1.0", Complexity: "O(1), or O(L) where a throttle is full, with L leases; O(L+N) for a ready message, with N messages of its key before it",
		Summary: "Says why a message, or the next one of a fairness key, is not with a consumer: what it waits for, until when, and who is in the way.",
		Flags:   []string{"readonly"},
		Access:  Look,
		Reply: "A map, of a key: " + explainFields(&engine.Explanation{}, time.Time{}).names() + "; of a message: " +
			explainFields(&engine.Explanation{Message: &engine.MessageInfo{}}, time.Time{}).names() +
			". state is as in FILA.KEYS, reason says it in a sentence. holders are leases that fill a throttle, at most ten of holder_count, " +
			"each a map: " + holderFields(&engine.Holder{}).names() + ". blocked_by are the throttles that do not admit the next message of the key " +
			"now, each a map: " + blockerFields(&engine.Blocker{}).names() + "; concurrency is nil where places are free, rate and next_token_at are nil " +
			"where there is a token, kept is 1 where what is free is kept for a message that needs several throttles. position counts the ready messages of the key that come first, -1 where that is not known.",
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "what", Type: OneOf, Args: []Arg{
				{Name: "fairness-key", Type: String, Token: "KEY"},
				{Name: "id", Type: String},
			}},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.EXPLAIN orders KEY tenant-1", "..."},
			{"FILA.LEASE orders", "..."},
			{"FILA.EXPLAIN orders <receipt>", "..."},
		},
		Room:  always(aloneRoom),
		Parse: parseExplain,
	}
}

func parseExplain(in *input) (call, error) {
	if in.has("key") {
		return &explainKey{req: engine.ExplainKey{Queue: in.text("queue"), Key: in.text("key")}}, nil
	}
	r, err := engine.ParseReceipt(in.bytes("id"))
	if err != nil {
		return nil, err
	}
	return &explainMessage{req: engine.Explain{Queue: in.text("queue"), ID: r.ID}}, nil
}

// explanation renders why something waits.
type explanation struct {
	now    time.Time
	result engine.Explanation
}

// Render writes a map.
func (c *explanation) Render(_ *Handler, w *resp.Writer) error {
	explainFields(&c.result, c.now).write(w)
	return nil
}

type explainKey struct {
	explanation
	req engine.ExplainKey
}

// Apply implements engine.Call.
func (c *explainKey) Apply(tx *engine.Tx) (err error) {
	c.now = tx.Now()
	c.result, err = tx.ExplainKey(&c.req)
	return err
}

type explainMessage struct {
	explanation
	req engine.Explain
}

// Apply implements engine.Call.
func (c *explainMessage) Apply(tx *engine.Tx) (err error) {
	c.now = tx.Now()
	c.result, err = tx.Explain(&c.req)
	return err
}

// explainFields are in the order in which one asks: what is it waiting for, how
// is it with the message, how is it with its key.
func explainFields(e *engine.Explanation, now time.Time) *fields {
	var f fields
	f.text("state", e.State)
	f.optional("reason", e.Reason)
	f.optional("throttle", e.Throttle)
	readyAt := e.ReadyAt
	if m := e.Message; m != nil && readyAt.IsZero() {
		readyAt = m.ReadyAt
	}
	f.due("ready_at", readyAt)
	holders := make([]fields, len(e.Holders))
	for i := range e.Holders {
		holders[i] = *holderFields(&e.Holders[i])
	}
	f.groups("holders", holders)
	f.number("holder_count", e.HolderCount)
	m := e.Message
	if m != nil {
		f.text("id", m.ID.String())
		f.text("status", m.Status)
		f.number("attempt", int64(m.Attempt))
		f.number("deliveries", int64(m.Deliveries))
		f.at("enqueued_at", m.EnqueuedAt)
		f.at("lease_until", m.LeaseUntil)
		f.optional("consumer", m.Consumer)
		f.number("position", m.Position)
	}
	f.text("key", e.Key)
	f.keyFigures(&e.KeyInfo)
	f.age("oldest_ms", now, e.OldestAt)
	f.keyCounters(&e.KeyInfo)
	f.text("queue", e.Queue)
	if m != nil {
		f.number("cost", int64(m.Cost))
		f.texts("throttles", m.Throttles)
	}
	blockers := make([]fields, len(e.BlockedBy))
	for i := range e.BlockedBy {
		blockers[i] = *blockerFields(&e.BlockedBy[i])
	}
	f.groups("blocked_by", blockers)
	if m != nil {
		f.at("expires_at", m.ExpiresAt)
	}
	return &f
}

func blockerFields(b *engine.Blocker) *fields {
	var f fields
	f.text("throttle", b.Throttle)
	f.number("in_use", b.InUse)
	f.limit("concurrency", b.Concurrency)
	f.rate("rate", b.Rate)
	f.due("next_token_at", b.NextAt)
	f.flag("kept", b.Kept)
	return &f
}

func holderFields(h *engine.Holder) *fields {
	var f fields
	f.text("id", h.ID.String())
	f.text("queue", h.Queue)
	f.text("key", h.Key)
	f.optional("consumer", h.Consumer)
	f.at("lease_until", h.Until)
	return &f
}
