package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func dbsize() Spec {
	return Spec{
		Name: "DBSIZE", Group: "server", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Returns the number of queues.",
		Differs:  "Counts queues, dead-letter queues among them: they are what a key is here.",
		Flags:    []string{"readonly", "fast"},
		ACL:      []string{"keyspace"},
		Tips:     []string{"request_policy:all_shards", "response_policy:agg_sum"},
		Examples: []Example{{"FILA.QUEUE CREATE orders", "OK"}, {"DBSIZE", "(integer) 2"}},
		Parse:    func(*input) (call, error) { return &queueCount{}, nil },
	}
}

type queueCount struct{ n int }

// Apply implements engine.Call.
func (c *queueCount) Apply(tx *engine.Tx) error {
	c.n = len(tx.Queues())
	return nil
}

// Render writes the number.
func (c *queueCount) Render(_ *Handler, w *resp.Writer) error {
	w.Int(int64(c.n))
	return nil
}
