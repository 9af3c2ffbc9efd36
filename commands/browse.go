package commands

import (
	"slices"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func browse() Spec {
	return Spec{
		Name: "FILA.BROWSE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT",
		Summary: "Shows the messages of a queue, a page at a time: by fairness key, within a key in the order of delivery.",
		Flags:   []string{"readonly"},
		Reply: pageReply + "A message is a map as FILA.GET returns it. COUNT is how many messages are looked at, so a page of one STATUS may be empty " +
			"without being the last; one with large messages ends early. A message that is there during the whole walk is shown exactly once.",
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "status", Type: String, Token: "STATUS", Optional: true},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "c", Type: String, Token: "CURSOR", Optional: true},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.BROWSE orders", "1) \"0\"\n2) (empty array)"},
			{"FILA.ENQUEUE orders hello KEY tenant-1", `"<id>"`},
			{"FILA.BROWSE orders STATUS ready KEY tenant-1 CURSOR 0 COUNT 100", "..."},
		},
		Room:  browseRoom,
		Parse: parseBrowse,
	}
}

func parseBrowse(in *input) (call, error) {
	if err := in.filled("key", "KEY", "FILA.BROWSE without KEY shows the messages of all keys"); err != nil {
		return nil, err
	}
	if err := in.filled("cursor", "CURSOR", "0 starts anew"); err != nil {
		return nil, err
	}
	c := &browseCall{req: engine.Browse{
		Queue: in.text("queue"), Status: strings.ToLower(string(in.bytes("status"))), Key: in.text("key"), Cursor: string(in.bytes("cursor")),
		Count: int(in.integer("count", pageCount)),
	}}
	if all := engine.Statuses(); in.has("status") && !slices.Contains(all, c.req.Status) {
		return nil, &refusal{"ERR", "STATUS must be one of " + strings.Join(all, ", ") + ", not '" + clip(in.bytes("status")) + "'"}
	}
	if c.req.Cursor == "0" {
		c.req.Cursor = ""
	}
	return c, nil
}

type browseCall struct {
	req  engine.Browse
	next string
	list []*engine.View
}

// Apply implements engine.Call.
func (c *browseCall) Apply(tx *engine.Tx) (err error) {
	c.next, c.list, err = tx.Browse(&c.req)
	return err
}

// Render writes the next cursor and the messages.
func (c *browseCall) Render(_ *Handler, w *resp.Writer) error {
	for _, v := range c.list {
		if err := v.Open(); err != nil {
			return err
		}
	}
	if c.next == "" {
		c.next = "0"
	}
	w.Array(2)
	w.BulkString(c.next)
	w.Array(len(c.list))
	for _, v := range c.list {
		viewFields(v).write(w)
	}
	return nil
}
