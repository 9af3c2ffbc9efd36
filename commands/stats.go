package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func stats() Spec {
	return Spec{
		Name: "FILA.STATS", Group: "fila", Since: "0.1.0",
		Complexity: "O(1) for a queue, else O(N) where N is the number of queues",
		Summary:    "Returns counters and gauges of a queue, or of all of them and the engine.",
		Flags:      []string{"readonly"},
		Reply: "A map. Of a queue: " + (&queueStats{}).fields().names() + ". Of all: " + (&engineStats{}).fields().names() +
			". What counts events starts at 0 with the broker.",
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
}

// Apply implements engine.Call.
func (c *queueStats) Apply(tx *engine.Tx) (err error) {
	c.counts, err = tx.QueueStats(c.name)
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
	return &f
}
