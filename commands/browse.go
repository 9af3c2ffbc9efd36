package commands

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

func browse() Spec {
	return Spec{
		Name: "FILA.BROWSE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT, read off-loop; in the loop the messages of the page, at most 4,000: of a search those found, of GROUP ERROR none", Returns: pageOfMaps,
		Summary: "Shows the messages of a queue, a page at a time: by fairness key, within a key in the order of delivery. " +
			"HEADER, PAYLOAD, ERROR, CAUSE, SINCE and UNTIL search: they select messages by what they contain, see docs/explanation/messages.md. GROUP ERROR shows the failures of messages by cause instead. " +
			"DONE shows what is known of the messages that are done, for the KEEPDONE of the queue: those with the newest records first, in groups of about KEEPDONE, and within a group those that were enqueued last.",
		Flags: []string{"readonly"},
		Reply: pageReply + "A message is a map as FILA.GET returns it. COUNT is how many messages are looked at, so a page that selects may be empty " +
			"without being the last; one with large messages, or with much to look at, ends early. A message that exists during the whole iteration is shown exactly once. " +
			"With GROUP ERROR a map is a group of failures of one cause, that which FILA.NACK or a hook has named, or of errors that differ only in numbers, ids, quoted strings, hosts, addresses and paths: " + errorFields(&engine.ErrorGroup{}).names() + ". " +
			"cause is the value of CAUSE that selects the group, here and in FILA.REDRIVE; several CAUSE select messages of any of these. error is a pattern that its errors match, id a message of the last failure, queues a map of how many messages failed where. " +
			"A page has at most 100 groups: the same group of several pages is to be added up. " +
			"DONE goes with KEY, HEADER, SINCE and UNTIL, which are times of acks; COUNT is then how many messages of the key are looked at.",
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "status", Type: String, Token: "STATUS", Optional: true},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "header", Type: Block, Token: "HEADER", Optional: true, Args: []Arg{{Name: "name", Type: String}, {Name: "pattern", Type: Pattern}}},
			{Name: "text", Type: String, Token: "PAYLOAD", Optional: true},
			{Name: "pattern", Type: Pattern, Token: "ERROR", Optional: true},
			{Name: "cause", Type: String, Token: "CAUSE", Optional: true, Multiple: true},
			{Name: "ms", Type: Integer, Token: "SINCE", Optional: true},
			{Name: "ms", Type: Integer, Token: "UNTIL", Optional: true},
			{Name: "c", Type: String, Token: "CURSOR", Optional: true},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: countLimit},
			{Name: "by", Type: OneOf, Token: "GROUP", Optional: true, Args: []Arg{{Name: "error", Type: PureToken, Token: "ERROR"}}},
			{Name: "done", Type: PureToken, Token: "DONE", Optional: true},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.BROWSE orders", "1) \"0\"\n2) (empty array)"},
			{"FILA.ENQUEUE orders hello KEY tenant-1 HEADER kind greeting", `"<id>"`},
			{"FILA.BROWSE orders STATUS ready KEY tenant-1 CURSOR 0 COUNT 100", "..."},
			{"FILA.BROWSE orders HEADER kind greet* PAYLOAD ell COUNT 1000", "..."},
			{"FILA.BROWSE orders.dlq ERROR *timeout* SINCE 1767225600000 COUNT 1000", "1) \"0\"\n2) (empty array)"},
			{"FILA.BROWSE orders.dlq COUNT 1000 GROUP ERROR", "1) \"0\"\n2) (empty array)"},
			{"FILA.BROWSE orders DONE KEY tenant-1 SINCE 1767225600000 COUNT 100", "1) \"0\"\n2) (empty array)"},
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
	if in.Has("done") {
		if slices.ContainsFunc([]string{"status", "payload", "error", "cause", "group.error"}, in.Has) {
			return nil, command.Refuse("ERR", "DONE does not go with STATUS, PAYLOAD, ERROR, CAUSE and GROUP: messages that are done have no payload and no error")
		}
		return &browseCall{req: req, page: (*engine.Tx).BrowseDone}, nil
	}
	if !in.Has("group.error") {
		return &browseCall{req: req, page: (*engine.Tx).Browse}, nil
	}
	if in.Has("status") {
		return nil, command.Refuse("ERR", "GROUP does not go with STATUS: the errors of messages of any status are counted")
	}
	next := ""
	return &answered[[]engine.ErrorGroup]{take: func(tx *engine.Tx) (list []engine.ErrorGroup, err error) {
		next, list, err = tx.BrowseErrors(&req)
		return list, err
	}, write: func(w *resp.Writer, list []engine.ErrorGroup) {
		writeCursor(w, next)
		writeEach(w, len(list), func(i int) *fields { return errorFields(&list[i]) })
	}}, nil
}

// parseFilter returns what a search selects, nil if it is none.
func parseFilter(in *input) *engine.Filter {
	if !slices.ContainsFunc([]string{"header", "payload", "error", "cause", "since", "until"}, in.Has) {
		return nil
	}
	f := &engine.Filter{Payload: in.Bytes("payload"), Error: in.Given("error"), Causes: in.Texts("cause"), Since: in.Integer("since", 0), Until: in.Integer("until", 0)}
	if words := in.List("header"); words != nil {
		f.Header, f.Value = string(words[0]), string(words[1])
	}
	return f
}

type browseCall struct {
	req  engine.Browse
	page func(tx *engine.Tx, req *engine.Browse) (next string, list []*engine.View, err error)
	next string
	list []*engine.View
}

// Apply implements engine.Call.
func (c *browseCall) Apply(tx *engine.Tx) (err error) {
	c.next, c.list, err = c.page(tx, &c.req)
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
	f.text("cause", g.Cause)
	return &f
}

// The commands of this file show queues as the keys of a Redis database, read-only, for tools that
// browse one. A queue is a key of type queueType.

const queueType = "fila-queue"

func scanQueues() Spec {
	return Spec{
		Name: "SCAN", Group: "generic", Since: "2.8.0", Complexity: "O(N) where N is COUNT", Returns: "array (string, array of string)",
		Summary: "Returns the names of queues, a page at a time.",
		Differs: "The keys are the queues. A queue that exists during the whole iteration is returned exactly once.",
		Reply:   "An array: the next cursor, 0 at the end, and an array of names.",
		Flags:   []string{"readonly"}, ACL: []string{"keyspace"},
		Tips: []string{"nondeterministic_output", "request_policy:special"},
		Args: []Arg{
			{Name: "cursor", Type: String},
			{Name: "pattern", Type: Pattern, Token: "MATCH", Optional: true},
			{Name: "count", Type: Integer, Token: "COUNT", Optional: true, Min: 1},
			{Name: "type", Type: String, Token: "TYPE", Optional: true},
		},
		Examples: []Example{{"FILA.QUEUE CREATE orders NODLQ", "OK"}, {"SCAN 0 MATCH o*", "1) \"0\"\n2) 1) \"orders\""}},
		Refuse:   refuseBelow,
		Room:     pageOf[string](1, 0),
		Memory:   "600 bytes for each of COUNT",
		Parse: func(s *Session, in *input) (call, error) {
			cursor, err := strconv.ParseUint(string(in.Bytes("cursor")), 10, 64)
			if err != nil {
				return nil, command.Refuse("ERR", "invalid cursor")
			}
			p := page{cursor: cursor, pattern: string(in.Bytes("match")), all: !in.Has("match")}
			p.count = int(min(in.Integer("count", pageCount), int64(s.handler.cfg.Limits.Count)))
			user, next := in.User, uint64(0)
			nothing := in.Has("type") && string(in.Bytes("type")) != queueType // keys of another type were requested
			return &answered[[]string]{take: func(tx *engine.Tx) (names []string, err error) {
				next, names, err = tx.ScanQueues(p.cursor, p.count, func(name string) bool { return !nothing && p.match(name) && user.May(acl.Look, name) })
				return names, err
			}, write: func(w *resp.Writer, names []string) {
				w.Array(2)
				w.BulkString(strconv.FormatUint(next, 10))
				writeTexts(w, names)
			}}, nil
		},
	}
}

// refuseBelow refuses a count that is too low with another text than one that is not a number, as
// Redis does.
func refuseBelow(near []byte, integer bool) error {
	if _, ok := command.ParseInt(near); integer && ok {
		return command.Refuse("ERR", "syntax error")
	}
	return nil
}

func matchingQueues() Spec {
	return Spec{
		Name: "KEYS", Group: "generic", Since: "1.0.0", Complexity: "O(N) where N is the number of queues; in the loop only after a queue was created or deleted", Returns: "array of string",
		Summary: "Returns the names of all queues that match a pattern.",
		Differs: "The keys are the queues. FILA.QUEUE LIST does the same, FILA.KEYS lists the fairness keys of a queue.",
		Flags:   []string{"readonly"}, ACL: []string{"keyspace", "dangerous"},
		Tips:     []string{"request_policy:all_shards", "nondeterministic_output_order"},
		Args:     []Arg{{Name: "pattern", Type: Pattern}},
		Examples: []Example{{"KEYS *", "(empty array)"}},
		Parse: func(_ *Session, in *input) (call, error) {
			return listQueues(in.User, string(in.Bytes("pattern")), false), nil
		},
	}
}

// probe returns the Parse function of a command that depends only on which queues exist.
func probe(write func(w *resp.Writer, found int)) func(*Session, *input) (call, error) {
	return func(_ *Session, in *input) (call, error) {
		names := cloneWords(in.List("key"))
		return &answered[int]{take: func(tx *engine.Tx) (found int, err error) {
			for _, name := range names {
				if tx.HasQueue(string(name)) {
					found++
				}
			}
			return found, nil
		}, write: write}, nil
	}
}

func keyType() Spec {
	return Spec{
		Name: "TYPE", Group: "generic", Since: "1.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Returns the type of a key: " + queueType + ", or none if there is no such queue.",
		Flags:   []string{"readonly", "fast"}, Access: Look, ACL: []string{"keyspace"},
		Args:     []Arg{{Name: "key", Type: Key}},
		Examples: []Example{{"TYPE orders", "none"}, {"FILA.QUEUE CREATE orders", "OK"}, {"TYPE orders", queueType}},
		Parse: probe(func(w *resp.Writer, found int) {
			if found == 0 {
				w.Status("none")
				return
			}
			w.Status(queueType)
		}),
	}
}

func exists() Spec {
	return Spec{
		Name: "EXISTS", Group: "generic", Since: "1.0.0", Complexity: "O(N) where N is the number of names", Returns: "integer",
		Summary: "Returns how many of the named queues exist; a queue that is named twice counts twice.",
		Flags:   []string{"readonly", "fast"}, Access: Look, ACL: []string{"keyspace"},
		Tips:     []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Args:     []Arg{{Name: "key", Type: Key, Multiple: true}},
		Examples: []Example{{"EXISTS orders", "(integer) 0"}},
		Parse:    probe(func(w *resp.Writer, found int) { w.Int(int64(found)) }),
	}
}

// timeToLive describes TTL and PTTL.
func timeToLive(name, since string) Spec {
	return Spec{
		Name: name, Group: "generic", Since: since, Complexity: "O(1)", Returns: "integer",
		Summary: "Returns -1 for a queue, which never expires, or -2 if there is none of that name.",
		Differs: "Messages expire instead: FILA.QUEUE INFO shows the TTL.",
		Flags:   []string{"readonly", "fast"}, Access: Look, ACL: []string{"keyspace"},
		Tips:     []string{"nondeterministic_output"},
		Args:     []Arg{{Name: "key", Type: Key}},
		Examples: []Example{{name + " orders", "(integer) -2"}, {"FILA.QUEUE CREATE orders", "OK"}, {name + " orders", "(integer) -1"}},
		Parse:    probe(func(w *resp.Writer, found int) { w.Int(int64(found) - 2) }),
	}
}

func object() Spec {
	return container("OBJECT", "generic", "2.2.3", "object introspection commands", Spec{
		Name: "ENCODING", Group: "generic", Since: "2.2.3", Complexity: "O(1)", Returns: "string or nil",
		Summary: "Returns the encoding of a queue, of which there is one.",
		Flags:   []string{"readonly"}, Access: Look, ACL: []string{"keyspace"}, Tips: []string{"nondeterministic_output"},
		Args:     []Arg{{Name: "key", Type: Key}},
		Examples: []Example{{"OBJECT ENCODING orders", "(nil)"}, {"FILA.QUEUE CREATE orders", "OK"}, {"OBJECT ENCODING orders", `"` + queueType + `"`}},
		Parse: probe(func(w *resp.Writer, found int) {
			if found == 0 {
				w.Null()
				return
			}
			w.BulkString(queueType)
		}),
	})
}

func dbsize() Spec {
	return Spec{
		Name: "DBSIZE", Group: "server", Since: "1.0.0", Complexity: "O(1)", Returns: "integer",
		Summary:  "Returns the number of queues.",
		Differs:  "Counts queues, including dead-letter queues.",
		Flags:    []string{"readonly", "fast"},
		ACL:      []string{"keyspace"},
		Tips:     []string{"request_policy:all_shards", "response_policy:agg_sum"},
		Examples: []Example{{"FILA.QUEUE CREATE orders", "OK"}, {"DBSIZE", "(integer) 2"}},
		Parse: func(*Session, *input) (call, error) {
			return answerInt(func(tx *engine.Tx) (int64, error) { return tx.Stats().Queues, nil }), nil
		},
	}
}
