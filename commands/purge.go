package commands

import "github.com/faisca/fila/engine"

func purge() Spec {
	return Spec{
		Name: "FILA.PURGE", Group: "fila", Since: "0.1.0", Complexity: "O(K) where K is the number of fairness keys with settings of their own, and what the queue held is given back in slices; O(N) of a key where N is its messages, in slices",
		Summary: "Removes all messages of a queue, or of one of its fairness keys, and returns how many there were. The receipts of leased ones are lost; " +
			"settings stay, and so does the dead-letter queue. With the whole queue, its deduplication ids are forgotten.",
		Flags: []string{"write"},
		ACL:   []string{"admin"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.PURGE orders KEY tenant-1", "(integer) 1"},
			{"FILA.PURGE orders", "(integer) 0"},
		},
		Parse: func(in *input) (call, error) {
			if err := in.filled("key", "KEY", "FILA.PURGE without KEY removes all messages of the queue"); err != nil {
				return nil, err
			}
			return &purgeCall{req: engine.Purge{Queue: in.text("queue"), Key: in.text("key")}}, nil
		},
	}
}

type purgeCall struct {
	req engine.Purge
	counted
}

// Apply implements engine.Call.
func (c *purgeCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Purge(&c.req)
	return err
}
