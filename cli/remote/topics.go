package remote

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

func topicRows() []row {
	return []row{
		{
			name: "topics list", short: "List topics with what was published to them",
			long: `A topic is there while queues are bound to it. BINDINGS is how many; PUBLISHED counts the
messages since the start of the broker, UNMATCHED those of them that went to no queue.`,
			wire: "FILA.TOPIC LIST", shape: pages, columns: "name bindings published unmatched", none: "no topics",
			options:  []option{{"match", "MATCH", text, "only topics that match a `pattern`, such as 'order.*'"}, limit()},
			examples: []string{"fila topics list", "fila topics list --match 'order.*' -o json"},
		},
		{
			name: "topics show", args: "TOPIC", short: "Show the queues that are bound to a topic, and the headers that each asks for",
			wire: "FILA.TOPIC INFO", columns: "queue headers", missing: "no queue is bound to $TOPIC", run: (*call).showTopic,
			examples: []string{"fila topics show order.placed", "fila topics show order.placed -o json"},
		},
		{
			name: "topics bind", args: "TOPIC QUEUE", short: "Have a queue get the messages of a topic",
			long: `With --header it gets those that have a header of this name whose value matches the pattern,
and several must all match. Binding again replaces the patterns, so a deployment may repeat it.
[[topics]] in the file of fila queues apply does the same for many at once.

  fila topics bind order.placed billing                          every message
  fila topics bind order.placed shipping --header kind=goods     those with this header
  fila publish order.placed '{"order": 17}' --header kind=goods  goes to both`,
			wire: "FILA.TOPIC BIND", done: "bound $QUEUE to $TOPIC",
			options:  []option{{"header", "HEADER", pairs, "only messages with a header, `name=pattern`; may be repeated"}},
			examples: []string{"fila topics bind order.placed orders", "fila topics bind order.placed mails --header kind=goods --header 'country=d?'"},
		},
		{
			name: "topics unbind", args: "TOPIC QUEUE", short: "End the binding of a queue to a topic; the messages that it has got stay",
			wire: "FILA.TOPIC UNBIND", done: "unbound $QUEUE from $TOPIC", missing: "$QUEUE is not bound to $TOPIC",
			ask:      "End the binding of $QUEUE to $TOPIC? It gets nothing that is published until it is bound again.",
			examples: []string{"fila topics unbind order.placed thumbnails --yes", "fila topics unbind order.placed thumbnails -y -o json"},
		},
	}
}

func publishRow() row {
	return row{
		name: "publish", args: "TOPIC [PAYLOAD]", short: "Publish a message to a topic, or one for each line of standard input",
		long: `Each queue that is bound to the topic and whose headers it matches stores the message, in one
write: all of them, or none. Prints the queues and the ids of the message there, and
nothing if it matches no binding. fila topics bind binds queues.

A queue that refuses the message, as it is full or paused, refuses it for all; with
--best-effort it is left out. PAYLOAD - is read from standard input, whole; with --lines
each line of it is a message, and its number is the first column. If it ends early, the
messages whose ids were printed are stored.`,
		wire: "FILA.PUBLISH $TOPIC", columns: "queue id", none: "no queue has got it: it matches no binding of $TOPIC", run: (*call).publish,
		options: append(messageOptions(), option{"best-effort", "BESTEFFORT", yes, "leave out queues that refuse it"}),
		examples: []string{
			`fila publish order.placed '{"order": 17}' --key tenant-7 --header kind=goods --dedup order-17`,
			"seq 3 | fila publish order.placed --lines --best-effort",
		},
	}
}

// showTopic lists the bindings of a topic.
func (c *call) showTopic() error {
	reply, err := c.do(must(c.command())...)
	if err != nil {
		return err
	}
	m, ok := reply.(client.Map)
	if !ok {
		return MissingError{c.filled(c.missing)}
	}
	if c.out.Form == output.JSON || c.out.Form == output.JSONL {
		c.out.Fields(m)
		return nil
	}
	rows := c.rows()
	for _, b := range client.Maps(m.Get("bindings")) {
		var headers []string
		for pair := range slices.Chunk(client.Texts(b.Get("headers")), 2) {
			headers = append(headers, strings.Join(pair, "="))
		}
		rows.Add(client.Map{{Name: "queue", Value: b.Text("queue")}, {Name: "headers", Value: strings.Join(headers, " ")}})
	}
	rows.Close(c.filled(c.missing))
	return nil
}

// publish sends what the arguments or standard input have, and lists where it is stored.
func (c *call) publish() error {
	columns := strings.Fields(c.columns)
	if c.is("lines") {
		columns = slices.Insert(columns, 0, "line")
	}
	rows := c.out.Rows(columns...)
	published, nowhere := 0, 0
	err := c.send(func(reply any) {
		published++
		list, _ := reply.([]any)
		if len(list) == 0 {
			nowhere++
		}
		for _, item := range list {
			pair := client.Texts(item)
			if len(pair) != 2 {
				continue
			}
			m := client.Map{{Name: "queue", Value: pair[0]}, {Name: "id", Value: pair[1]}}
			if c.is("lines") {
				m = slices.Insert(m, 0, client.Field{Name: "line", Value: int64(published)})
			}
			rows.Add(m)
		}
	})
	if err == nil || published > 0 {
		rows.Close("")
	}
	if err == nil && nowhere > 0 {
		return c.unmatched(nowhere, published)
	}
	return err
}

// unmatched says that messages are stored nowhere: no queue is bound to the topic, or none asks for messages like these.
func (c *call) unmatched(nowhere, published int) error {
	topic := output.Escape(c.arg("TOPIC"))
	reply, err := c.do("FILA.TOPIC", "INFO", c.arg("TOPIC"))
	if err == nil && reply == nil {
		return MissingError{fmt.Sprintf("no queue is bound to %s, so nothing was stored; `fila topics bind %s QUEUE` binds one", topic, topic)}
	}
	what := "the message was stored in no queue"
	if published > 1 {
		what = fmt.Sprintf("%d of %d messages were stored in no queue", nowhere, published)
	}
	fmt.Fprintf(c.env.Stderr, "fila: %s: no binding of %s matches its headers; `fila topics show %s` lists what each asks for\n", what, topic, topic)
	return nil
}
