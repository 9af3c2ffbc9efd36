package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func stats() Spec {
	return Spec{
		Name: "FILA.STATS", Group: "fila", Since: "0.1.0",
		Complexity: "O(N) where N is the number of the queue's fairness keys with messages, in slices; without a queue, that of queues",
		Summary:    "Returns counters and gauges of a queue, or of all of them and the engine.",
		Flags:      []string{"readonly"},
		Access:     Look,
		Reply: "A map. Of a queue: " + (&queueStats{}).fields().names() + ". Of all: " + (&engineStats{}).fields().names() +
			". What counts events starts at 0 with the broker. busiest_keys are at most ten fairness keys, each a map: " + busyFields(&engine.BusyKey{}).names() +
			"; other_keys is the sum of all others, a map of the same without the key. " +
			"redrive_... tell of the FILA.REDRIVE of a dead-letter queue that runs or was the last; redrive_to is nil for back to where each came from.",
		Args: []Arg{{Name: "queue", Type: Key, Optional: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.STATS orders", "..."},
			{"FILA.STATS", "..."},
		},
		Parse: func(in *input) (call, error) {
			if in.has("queue") {
				return &queueStats{name: in.text("queue")}, nil
			}
			return &engineStats{}, nil
		},
	}
}

type queueStats struct {
	name   string
	counts engine.Counts
	now    time.Time
	look   engine.Oldest
	looked bool
	oldest time.Time
	busy   engine.Busiest
	top    []engine.BusyKey
	rest   engine.BusyKey
	moving engine.RedriveInfo
}

// busiest is how many keys are shown by name.
const busiest = 10

// Preflight implements engine.Preflighter: what is told is exact.
func (c *queueStats) Preflight(tx *engine.Tx) error { return tx.AwaitCounts() }

// Apply implements engine.Call.
func (c *queueStats) Apply(tx *engine.Tx) (err error) {
	if err := c.Preflight(tx); err != nil {
		return err
	}
	c.now, c.look.Queue = tx.Now(), c.name
	if !c.looked { // else a later step has waited for its next turn
		if c.oldest, err = tx.Oldest(&c.look); err != nil {
			return err
		}
		c.looked = true
	}
	c.busy.Queue, c.busy.N = c.name, busiest
	if c.top, c.rest, err = tx.BusiestKeys(&c.busy); err != nil {
		return err
	}
	if c.counts, err = tx.QueueStats(c.name); err != nil {
		return err
	}
	c.moving, err = tx.RedriveInfo(c.name)
	return err
}

// Render writes a map.
func (c *queueStats) Render(_ *Handler, w *resp.Writer) error {
	c.fields().write(w)
	return nil
}

func (c *queueStats) fields() *fields {
	var f fields
	f.text("name", c.name)
	f.counts(&c.counts)
	top := make([]fields, len(c.top))
	for i := range c.top {
		top[i] = *busyFields(&c.top[i])
	}
	f.groups("busiest_keys", top)
	f.group("other_keys", (*busyFields(&c.rest))[1:]) // a sum has no name
	f.removed(&c.counts)
	f.flag("redrive_running", c.moving.Running)
	f.number("redrive_moved", c.moving.Moved)
	f.number("redrive_skipped", c.moving.Skipped)
	f.optional("redrive_to", c.moving.To)
	f.limit("redrive_rate", uint64(c.moving.Rate)) //nolint:gosec // the Spec bounds it
	f.at("redrive_started_at", c.moving.StartedAt)
	f.age("oldest_ms", c.now, c.oldest)
	return &f
}

func busyFields(k *engine.BusyKey) *fields {
	var f fields
	f.text("key", k.Key)
	f.count("delivered", k.Delivered)
	f.count("passed", k.Admitted)
	f.count("refused", k.Refused)
	f.millis("waited_ms", k.Waited)
	return &f
}

type engineStats struct{ stats engine.Stats }

// Apply implements engine.Call.
func (c *engineStats) Apply(tx *engine.Tx) error {
	c.stats = tx.Stats()
	return nil
}

// Render writes a map.
func (c *engineStats) Render(_ *Handler, w *resp.Writer) error {
	c.fields().write(w)
	return nil
}

// fields are the counts of all queues together, then the engine's own figures.
func (c *engineStats) fields() *fields {
	var f fields
	f.engine(&c.stats)
	f.removed(&c.stats.Counts)
	return &f
}
