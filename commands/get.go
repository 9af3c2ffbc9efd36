package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func get() Spec {
	return Spec{
		Name: "FILA.GET", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Shows a message, whatever its status, and changes nothing about it.",
		Reply: "A map, nil if the queue has no such message: " + viewFields(&engine.View{}).names() + ". status is ready, delayed, leased or dead; " +
			"throttle is an array, headers a map. What does not apply is nil. error and the times of failures are those of a message that has failed, or of its life before it died; " +
			"reason, origin, died_at, dead_attempts and dead_deliveries say how it died.",
		Flags: []string{"readonly"},
		Args:  []Arg{{Name: "queue", Type: Key}, {Name: "id", Type: String}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.GET orders <id>", "..."},
			{"FILA.CANCEL orders <id>", "(integer) 1"},
			{"FILA.GET orders <id>", "(nil)"},
		},
		Room: message,
		Parse: func(in *input) (call, error) {
			r, err := engine.ParseReceipt(in.bytes("id"))
			if err != nil {
				return nil, err
			}
			return &getCall{req: engine.Get{Queue: in.text("queue"), ID: r.ID}}, nil
		},
	}
}

type getCall struct {
	req  engine.Get
	view *engine.View
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
	viewFields(c.view).write(w)
	return nil
}

// viewFields are a message as one looks at it.
func viewFields(v *engine.View) *fields {
	var f fields
	f.text("id", v.ID.String())
	f.text("queue", v.Queue)
	f.text("status", v.Status)
	f.text("key", v.Key)
	f.number("weight", int64(v.Weight))
	f.number("priority", int64(v.Priority))
	f.texts("throttle", v.Throttles)
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
	f.blob("payload", v.Payload())
	d := v.Dead
	if d == nil {
		d = &engine.Death{}
	}
	f.optional("reason", d.Reason)
	f.optional("error", v.Error)
	f.optional("origin", d.Origin)
	f.at("died_at", d.At)
	f.at("first_failed_at", v.FirstFailedAt)
	f.at("last_failed_at", v.LastFailed)
	f.limit("dead_attempts", uint64(d.Attempts))
	f.limit("dead_deliveries", uint64(d.Deliveries))
	f.number("cost", int64(v.Cost))
	f.at("expires_at", v.ExpiresAt)
	return &f
}
