package commands

import (
	"slices"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/ops/tracing"
	"github.com/faisca/fila/resp"
)

func topic() Spec {
	return container("FILA.TOPIC", "fila", "0.1.0", "the commands that bind queues to topics", topicBind(), topicInfo(), topicList(), topicUnbind())
}

func topicBind() Spec {
	return Spec{
		Name: "BIND", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of bindings of the topic, at most 1,000", Returns: "integer",
		Summary: "Has a queue get the messages that are published to a topic, see FILA.PUBLISH. With HEADER it gets those that have a header of this name whose value matches the pattern; several HEADERs must all match. " +
			"Returns 1, or 0 if the queue was bound before: the new HEADERs replace those of that binding. A topic exists while it has a binding. A queue that is deleted leaves its topics.",
		Flags: []string{"write", "denyoom"}, ACL: []string{"admin"},
		Args: []Arg{
			{Name: "topic", Type: Key},
			{Name: "queue", Type: Key, Access: Produce},
			headerPatterns(),
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE billing", "OK"},
			{"FILA.TOPIC BIND order.placed billing", "(integer) 1"},
			{"FILA.TOPIC BIND order.placed billing HEADER country d?", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			topic, binding := in.Text("topic"), engine.Binding{Queue: in.Text("queue")}
			in.Each("header", func(words [][]byte) {
				binding.Conditions = append(binding.Conditions, engine.Condition{Header: string(words[0]), Pattern: string(words[1])})
			})
			return answerBool(func(tx *engine.Tx) (bool, error) { return tx.Bind(topic, binding) }), nil
		},
	}
}

// headerPatterns is the option for the conditions of a binding.
func headerPatterns() Arg {
	return Arg{Name: "header", Type: Block, Token: "HEADER", Optional: true, Multiple: true, Args: []Arg{
		{Name: "name", Type: String}, {Name: "pattern", Type: Pattern},
	}}
}

func topicUnbind() Spec {
	return Spec{
		Name: "UNBIND", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of bindings of the topic, at most 1,000", Returns: "integer",
		Summary: "Ends the binding of a queue to a topic; messages that the queue has got stay. Returns 1, or 0 if it was not bound.",
		Flags:   []string{"write"}, ACL: []string{"admin"},
		Args: []Arg{
			{Name: "topic", Type: Key},
			{Name: "queue", Type: Key, Access: Produce},
		},
		Examples: []Example{
			{"FILA.TOPIC UNBIND order.placed billing", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			topic, queue := in.Text("topic"), in.Text("queue")
			return answerBool(func(tx *engine.Tx) (bool, error) { return tx.Unbind(topic, queue) }), nil
		},
	}
}

func topicInfo() Spec {
	return Spec{
		Name: "INFO", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of bindings of the topic, at most 1,000", Returns: "map or nil",
		Summary: "Returns a topic with its bindings, or nil if no queue is bound to it.",
		Flags:   []string{"readonly"}, Access: Look,
		Reply: "A map: " + topicFields(&engine.TopicInfo{}, true).names() + ". bindings are maps of queue and headers, pairs of a name and a pattern; " +
			"without those of queues that the user has no right to; published counts the messages since the start of the broker, unmatched those of them that met no binding.",
		Args: []Arg{{Name: "topic", Type: Key}},
		Examples: []Example{
			{"FILA.TOPIC INFO order.placed", "(nil)"},
			{"FILA.QUEUE CREATE billing", "OK"},
			{"FILA.TOPIC BIND order.placed billing", "(integer) 1"},
			{"FILA.TOPIC INFO order.placed", "..."},
		},
		Room:   topicRoom,
		Memory: "4 KiB, and 128 bytes for each binding; their patterns are shared",
		Parse: func(_ *Session, in *input) (call, error) {
			user, name := in.User, in.Text("topic")
			return answerMapOrNil(func(tx *engine.Tx) (engine.TopicInfo, bool) { return tx.Topic(name) }, func(i *engine.TopicInfo) *fields {
				i.Bindings = slices.DeleteFunc(slices.Clone(i.Bindings), func(b engine.Binding) bool { return !user.May(acl.Look, b.Queue) })
				return topicFields(i, true)
			}), nil
		},
	}
}

// topicRoom is the memory of what is shown of a topic, or of the ids of what is published to it.
func topicRoom(s *Session, in *input) int {
	const binding = 128
	return smallRoom + binding*s.engine().Snapshot().Bindings(in.Text("topic"))
}

// topicFields are the fields of a topic, with its bindings or their number.
func topicFields(i *engine.TopicInfo, whole bool) *fields {
	f := newFields()
	f.text("name", i.Name)
	if whole {
		all := make([]fields, len(i.Bindings))
		for n := range i.Bindings {
			b := &i.Bindings[n]
			var words []string
			for _, c := range b.Conditions {
				words = append(words, c.Header, c.Pattern)
			}
			all[n].text("queue", b.Queue)
			all[n].texts("headers", words)
		}
		f.groups("bindings", all)
	} else {
		f.number("bindings", int64(len(i.Bindings)))
	}
	f.count("published", i.Published)
	f.count("unmatched", i.Unmatched)
	return f
}

func topicList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is COUNT", Returns: pageOfMaps,
		Summary: "Returns the topics that the user has a right to, a page at a time. With QUEUE only those that the queue is bound to.",
		Flags:   []string{"readonly"}, Access: Look,
		Reply: pageReply + "A topic is a map: " + topicFields(&engine.TopicInfo{}, false).names() + ". bindings is their number, the others are as in FILA.TOPIC INFO.",
		Args:  append([]Arg{{Name: "name", Type: Key, Token: "QUEUE", Optional: true}}, pageOptions()...),
		Examples: []Example{
			{"FILA.TOPIC LIST", "1) \"0\"\n2) (empty array)"},
			{"FILA.QUEUE CREATE billing", "OK"},
			{"FILA.TOPIC BIND order.placed billing", "(integer) 1"},
			{"FILA.TOPIC LIST MATCH order.* COUNT 100", "..."},
			{"FILA.TOPIC LIST QUEUE billing", "..."},
		},
		Room:   pageOf[engine.TopicInfo](1, tinyRoom),
		Memory: "600 bytes for each of COUNT",
		Parse: func(_ *Session, in *input) (call, error) {
			p, user, queue := parsePage(in), in.User, in.Text("queue")
			return answerPage(func(tx *engine.Tx) (uint64, []engine.TopicInfo, error) {
				next, list := tx.Topics(p.cursor, p.count, func(name string) bool {
					return p.match(name) && (queue == "" || tx.Bound(name, queue))
				})
				return next, slices.DeleteFunc(list, func(i engine.TopicInfo) bool { return !user.May(acl.Look, i.Name) }), nil
			}, func(i *engine.TopicInfo) *fields { return topicFields(i, false) }), in.Filled("queue", "QUEUE", "without it all topics are listed")
		},
	}
}

func publishMessage() Spec {
	e := enqueue()
	return Spec{
		Name: "FILA.PUBLISH", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of bindings of the topic, at most 1,000", Returns: "array of array",
		Summary: "Stores a message in each queue that is bound to the topic and whose HEADERs it matches, see FILA.TOPIC BIND, in one write: all of them get it, or none. " +
			"The options are those of FILA.ENQUEUE. Each queue's own ON_ENQUEUE hook, limits, time to live, deduplication and unique ids apply. " +
			"A queue that refuses the message refuses the publish, with its code and its name; with BESTEFFORT it is left out.",
		Reply:  "An array of arrays: the queue and the id of the message there, by queue; empty if the message matches no binding.",
		Flags:  []string{"write", "denyoom"},
		Access: Produce, ACL: []string{"produce"},
		Args: append(append([]Arg{{Name: "topic", Type: Key}}, e.Args[1:]...), Arg{Name: "besteffort", Type: PureToken, Token: "BESTEFFORT", Optional: true}),
		Examples: []Example{
			{"FILA.PUBLISH order.placed o-17", "(empty array)"},
			{"FILA.QUEUE CREATE billing", "OK"},
			{"FILA.QUEUE CREATE shipping", "OK"},
			{"FILA.TOPIC BIND order.placed billing", "(integer) 1"},
			{"FILA.TOPIC BIND order.placed shipping HEADER kind goods", "(integer) 1"},
			{"FILA.PUBLISH order.placed o-17 KEY customer-9 HEADER kind goods", "1) 1) \"billing\"\n   2) \"<id>\"\n2) 1) \"shipping\"\n   2) \"<id>\""},
		},
		Room:   topicRoom,
		Memory: "4 KiB, and 128 bytes for each binding of the topic",
		Parse:  parsePublish,
	}
}

type publishCall struct {
	req  engine.Publish
	list []engine.Published
	size int

	// For its spans:
	span     *tracing.Enqueue // nil: it has none
	key      string
	priority *uint8
}

func parsePublish(s *Session, in *input) (call, error) {
	c := &publishCall{}
	c.req.Topic, c.req.BestEffort, c.req.BytesMax = in.Text("topic"), in.Has("besteffort"), s.handler.cfg.Limits.TransactionBytes
	if err := parseEnqueued(s, in, &c.req.Message); err != nil {
		return nil, err
	}
	if t := s.handler.cfg.Tracer; t != nil {
		c.span, c.key, c.priority = t.Enqueue(&c.req.Message), c.req.Message.Key, c.req.Message.Priority
	}
	c.size = in.Size()
	return c, nil
}

// Prepare matches the bindings, runs the hooks of their queues and encodes the message on the
// connection.
func (c *publishCall) Prepare(s *Session) error {
	if err := s.engine().PreparePublish(&c.req); err != nil {
		return err
	}
	c.size += c.req.Bytes()
	return nil
}

// Bytes implements weigher.
func (c *publishCall) Bytes() int { return c.size }

// Preflight implements engine.Preflighter.
func (c *publishCall) Preflight(tx *engine.Tx) error { return tx.PreflightPublish(&c.req) }

// Apply implements engine.Call.
func (c *publishCall) Apply(tx *engine.Tx) (err error) {
	c.list, err = tx.Publish(&c.req)
	return err
}

// Render writes the queues and ids.
func (c *publishCall) Render(_ *Handler, w *resp.Writer) error {
	writePublished(w, c.list)
	return nil
}

// trace implements traced: a span for each queue that got the message, or one for the topic that
// refused it.
func (c *publishCall) trace(t *tracing.Tracer, p *pending, err error) {
	if c.span == nil {
		return
	}
	began, ended := p.times()
	if err != nil {
		t.Enqueued(c.span, &engine.Enqueue{Queue: c.req.Topic, Key: c.key, Priority: c.priority}, engine.ID{}, began, ended, err)
	}
	for i := range c.list {
		t.Enqueued(c.span, &engine.Enqueue{Queue: c.list[i].Queue, Key: c.key, Priority: c.priority}, c.list[i].ID, began, ended, nil)
	}
}

// writePublished writes pairs of a queue and an id.
func writePublished(w *resp.Writer, list []engine.Published) {
	var text [36]byte
	w.Array(len(list))
	for i := range list {
		w.Array(2)
		w.BulkString(list[i].Queue)
		w.Bulk(engine.AppendID(text[:0], list[i].ID))
	}
}
