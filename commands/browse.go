package commands

import (
	"maps"
	"slices"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func browse() Spec {
	return Spec{
		Name: "FILA.BROWSE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT, read off-loop; in the loop the messages of the page, at most 4,000: of a search those found, of GROUP ERROR none", Returns: pageOfMaps,
		Summary: "Shows the messages of a queue, a page at a time: by fairness key, within a key in the order of delivery. " +
			"HEADER, PAYLOAD, ERROR, SINCE and UNTIL search: they select messages by what they contain, see docs/messages.md. GROUP ERROR shows the errors of messages instead.",
		Flags: []string{"readonly"},
		Reply: pageReply + "A message is a map as FILA.GET returns it. COUNT is how many messages are looked at, so a page that selects may be empty " +
			"without being the last; one with large messages, or with much to look at, ends early. A message that exists during the whole iteration is shown exactly once. " +
			"With GROUP ERROR a map is a group of errors that differ only in numbers, ids and quoted strings: " + errorFields(&engine.ErrorGroup{}).names() + ". " +
			"error is the pattern of the group for ERROR of FILA.BROWSE and FILA.REDRIVE, id a message of the last failure, queues a map of how many messages failed where. " +
			"A page has at most 100 groups: the same group of several pages is to be added up.",
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "status", Type: String, Token: "STATUS", Optional: true},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "header", Type: Block, Token: "HEADER", Optional: true, Args: []Arg{{Name: "name", Type: String}, {Name: "pattern", Type: Pattern}}},
			{Name: "text", Type: String, Token: "PAYLOAD", Optional: true},
			{Name: "pattern", Type: Pattern, Token: "ERROR", Optional: true},
			{Name: "ms", Type: Integer, Token: "SINCE", Optional: true},
			{Name: "ms", Type: Integer, Token: "UNTIL", Optional: true},
			{Name: "c", Type: String, Token: "CURSOR", Optional: true},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
			{Name: "by", Type: OneOf, Token: "GROUP", Optional: true, Args: []Arg{{Name: "error", Type: PureToken, Token: "ERROR"}}},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.BROWSE orders", "1) \"0\"\n2) (empty array)"},
			{"FILA.ENQUEUE orders hello KEY tenant-1 HEADER kind greeting", `"<id>"`},
			{"FILA.BROWSE orders STATUS ready KEY tenant-1 CURSOR 0 COUNT 100", "..."},
			{"FILA.BROWSE orders HEADER kind greet* PAYLOAD ell COUNT 1000", "..."},
			{"FILA.BROWSE orders.dlq ERROR *timeout* SINCE 1767225600000 COUNT 1000", "1) \"0\"\n2) (empty array)"},
			{"FILA.BROWSE orders.dlq COUNT 1000 GROUP ERROR", "1) \"0\"\n2) (empty array)"},
		},
		Room:   browseRoom,
		Memory: "4 MiB and one message: the page ends early. A search looks at COUNT messages, and at no more than 64 MiB of records and comparisons in one page; one search runs at a time",
		Parse:  parseBrowse,
	}
}

func parseBrowse(_ *Session, in *input) (call, error) {
	for _, o := range [][3]string{
		{"key", "KEY", "FILA.BROWSE without KEY shows the messages of all keys"}, {"cursor", "CURSOR", "start with 0"},
		{"header", "the name of HEADER", "give the name of a header, or leave HEADER out"},
		{"payload", "PAYLOAD", "FILA.BROWSE without PAYLOAD shows messages of any payload"},
	} {
		if err := in.Filled(o[0], o[1], o[2]); err != nil {
			return nil, err
		}
	}
	req := engine.Browse{
		Queue: in.Text("queue"), Status: strings.ToLower(string(in.Bytes("status"))), Key: in.Text("key"), Cursor: string(in.Bytes("cursor")),
		Count: int(in.Integer("count", pageCount)), Filter: parseFilter(in),
	}
	if all := engine.Statuses(); in.Has("status") && !slices.Contains(all, req.Status) {
		return nil, command.Refuse("ERR", "STATUS must be one of "+strings.Join(all, ", ")+", not '"+command.Clip(in.Bytes("status"))+"'")
	}
	if req.Cursor == "0" {
		req.Cursor = ""
	}
	if !in.Has("group.error") {
		return &browseCall{req: req}, nil
	}
	if in.Has("status") {
		return nil, command.Refuse("ERR", "GROUP does not go with STATUS: the errors of messages of any status are counted")
	}
	return &browseErrorsCall{req: req}, nil
}

// parseFilter returns what a search selects, nil if it is none.
func parseFilter(in *input) *engine.Filter {
	if !slices.ContainsFunc([]string{"header", "payload", "error", "since", "until"}, in.Has) {
		return nil
	}
	f := &engine.Filter{Payload: in.Bytes("payload"), Error: pattern(in, "error"), Since: in.Integer("since", 0), Until: in.Integer("until", 0)}
	if words := in.List("header"); words != nil {
		f.Header, f.Value = string(words[0]), string(words[1])
	}
	return f
}

// pattern returns a pattern that may be empty, nil when it was not given.
func pattern(in *input, name string) *string {
	if !in.Has(name) {
		return nil
	}
	p := string(in.Bytes(name))
	return &p
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
	writeCursor(w, c.next)
	w.Array(len(c.list))
	for _, v := range c.list {
		viewFields(v).write(w)
	}
	return nil
}

// writeCursor begins a page of FILA.BROWSE: an array of two.
func writeCursor(w *resp.Writer, next string) {
	if next == "" {
		next = "0"
	}
	w.Array(2)
	w.BulkString(next)
}

type browseErrorsCall struct {
	req  engine.Browse
	next string
	list []engine.ErrorGroup
}

// Apply implements engine.Call.
func (c *browseErrorsCall) Apply(tx *engine.Tx) (err error) {
	c.next, c.list, err = tx.BrowseErrors(&c.req)
	return err
}

// Render writes the next cursor and the groups.
func (c *browseErrorsCall) Render(_ *Handler, w *resp.Writer) error {
	writeCursor(w, c.next)
	w.Array(len(c.list))
	for i := range c.list {
		errorFields(&c.list[i]).write(w)
	}
	return nil
}

func errorFields(g *engine.ErrorGroup) *fields {
	var f fields
	f.text("error", g.Error)
	f.number("count", g.Count)
	f.at("first_at", g.First)
	f.at("last_at", g.Last)
	f.text("id", g.Example.String())
	queues := make(fields, 0, len(g.Queues))
	for _, q := range slices.Sorted(maps.Keys(g.Queues)) {
		queues.number(q, g.Queues[q])
	}
	f.group("queues", queues)
	return &f
}
