package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func queueInfo() Spec {
	return Spec{
		Name: "INFO", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Returns a queue's settings, what it holds, and what it has done since the broker started.",
		Flags:   []string{"readonly", "fast"},
		Access:  Look,
		Reply: "A map, always with the same fields in the same order: " + (&queueLook{}).fields().names() +
			". A limit of 0 is none; dlq is nil where dead messages are dropped; counting is 1 while what the store held at start is still being counted.",
		Args: []Arg{{Name: "name", Type: Key}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE INFO orders", "..."},
		},
		Parse: func(in *input) (call, error) { return &queueLook{name: in.text("name")}, nil },
	}
}

type queueLook struct {
	name string
	info engine.QueueInfo
}

// Preflight implements engine.Preflighter: what is told is exact.
func (c *queueLook) Preflight(tx *engine.Tx) error { return tx.AwaitCounts() }

// Apply implements engine.Call.
func (c *queueLook) Apply(tx *engine.Tx) (err error) {
	if err := c.Preflight(tx); err != nil {
		return err
	}
	c.info, err = tx.QueueInfo(c.name)
	return err
}

// Render writes a map.
func (c *queueLook) Render(_ *Handler, w *resp.Writer) error {
	c.fields().write(w)
	return nil
}

func (c *queueLook) fields() *fields {
	q := &c.info
	var f fields
	f.text("name", q.Name)
	f.millis("visibility_ms", q.Visibility)
	f.number("max_attempts", int64(q.MaxAttempts))
	f.millis("backoff_ms", q.Backoff)
	f.millis("max_backoff_ms", q.MaxBackoff)
	f.millis("ttl_ms", q.TTL)
	f.count("max_depth", q.MaxDepth)
	f.count("key_max_depth", q.KeyMaxDepth)
	f.millis("dedup_window_ms", q.DedupWindow)
	f.optional("dlq", q.DLQ)
	f.flag("is_dlq", q.DeadLetter)
	f.flag("paused_in", q.PausedIn)
	f.flag("paused_out", q.PausedOut)
	f.number("created_at", q.CreatedAt.UnixMilli())
	f.counts(&q.Counts)
	f.number("backoff_jitter_percent", int64(q.BackoffJitter))
	return &f
}
