package remote

import (
	"slices"
	"strings"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/queueset"
)

func queueRows() []row {
	return []row{
		{
			name: "queues list", short: "List queues with what they hold, and what is wrong with them",
			long: `A dead-letter queue is shown with its queue, as dead_letters; --all lists it by itself as
well. Troubles are why an operator should look at a queue, the most urgent first.`,
			wire: "FILA.FIGURES", run: (*call).listQueues,
			columns: "name ready delayed? leased? dead_letters? keys? waiters?? paused_in?? paused_out?? dlq?? state troubles? reason?", none: "no such queues",
			options:  listOptions(),
			examples: []string{"fila queues list --trouble any --by trouble --limit 20", "fila queues list --match 'ord*' -o json"},
		},
		{
			name: "queues show", args: "QUEUE", short: "Show the settings of a queue, and what it holds and has done",
			wire: "FILA.QUEUE INFO", shape: fields,
			examples: []string{"fila queues show orders", "fila queues show orders -o json"},
		},
		{
			name: "queues create", args: "QUEUE", short: "Create a queue",
			long: "It gets a dead-letter queue of its own, QUEUE.dlq, unless --dlq or --no-dlq is given.",
			wire: "FILA.QUEUE CREATE", done: "created $QUEUE",
			options: append(queueOptions(),
				option{"if-not-exists", "IFNOTEXISTS", yes, "leave a queue of that name as it is"}),
			examples: []string{"fila queues create jobs --visibility 60s --max-attempts 5", "fila queues create logs --no-dlq --max-depth 100000"},
		},
		{
			name: "queues alter", args: "QUEUE", short: "Change settings of a queue, and leave the others",
			wire: "FILA.QUEUE ALTER", done: "altered $QUEUE",
			options:  queueOptions(),
			examples: []string{"fila queues alter orders --max-attempts 3", "fila queues alter orders --backoff 500ms --max-backoff 1m"},
		},
		{
			name: "queues pause", args: "QUEUE", short: "Stop what goes into a queue, out of it, or both",
			wire: "FILA.QUEUE PAUSE", done: "paused $QUEUE",
			options:  sideOptions(),
			examples: []string{"fila queues pause orders --out", "fila queues pause orders"},
		},
		{
			name: "queues resume", args: "QUEUE", short: "Let a paused queue go on",
			wire: "FILA.QUEUE RESUME", done: "resumed $QUEUE",
			options:  sideOptions(),
			examples: []string{"fila queues resume orders --out", "fila queues resume orders"},
		},
		{
			name: "queues purge", args: "QUEUE", short: "Remove all messages of a queue, leased ones too",
			wire: "FILA.PURGE", shape: count, done: "removed %d messages of $QUEUE",
			ask:      "Remove all messages of $QUEUE?",
			examples: []string{"fila queues purge orders --yes", "fila queues purge orders -y -o json"},
		},
		{
			name: "queues delete", args: "QUEUE", short: "Delete a queue; its dead-letter queue stays",
			wire: "FILA.QUEUE DELETE", done: "deleted $QUEUE",
			ask:      "Delete the queue $QUEUE?",
			options:  []option{{"force", "FORCE", yes, "also with messages inside"}},
			examples: []string{"fila queues delete mails --yes", "fila queues delete orders --force --yes"},
		},
		{
			name: "queues export", args: "[QUEUE...]", short: "Write queues, topics and throttles as the file that fila queues apply reads",
			long: `Writes the queues that are named, or all, in TOML with all of their settings, and
their bindings to topics; if none is named, the throttles and patterns as well. With --scripts the hooks
are written into a directory, and the file names them; without it they are left out, and applying the
file leaves them as they are.`,
			run:      (*call).export,
			options:  []option{{"scripts", "", text, "write the hooks into this `directory`"}},
			examples: []string{"fila queues export > queues.toml", "fila queues export orders --scripts hooks"},
		},
	}
}

// listOptions select and sort queues.
func listOptions() []option {
	return []option{
		{"match", "MATCH", text, "only names that match a `pattern`, such as 'ord*'"},
		{"state", "STATE", text, "only queues in a `state`, such as throttled"},
		{"trouble", "TROUBLE", text, "only queues that have a `trouble`, such as no_consumer; any: whichever"},
		{"by", "BY", text, "sort by a `column`, the greatest first: trouble, ready, leased, delayed, dead, age, in, out, wait, keys, waiters, dropped; name is the default"},
		{"reverse", "REV", yes, "the other way round; with --by"},
		{"all", "", yes, "also dead-letter queues that are shown with their queues"},
		limit(),
	}
}

// queueOptions are the settings of a queue, from their table.
func queueOptions() []option {
	var all []option
	for _, r := range queueset.All() {
		o := option{name: strings.ReplaceAll(strings.TrimSuffix(r.Name, "_ms"), "_", "-"), token: r.Token, kind: number, usage: r.Doc}
		switch r.Unit {
		case queueset.Millis:
			o.kind = millis
		case queueset.Switch:
			o.kind = text
		default:
		}
		all = append(all, o)
	}
	return append(all,
		option{"dlq", "DLQ", text, "the `queue` for messages that have used up their attempts"},
		option{"no-dlq", "NODLQ", yes, "drop such messages"})
}

func sideOptions() []option {
	return []option{{"in", "IN", yes, "only what goes in"}, {"out", "OUT", yes, "only what goes out"}}
}

// listQueues shows queues. The broker sorts what --limit cuts; all of them are sorted by name here, as it looks at all
// queues for each sorted page.
func (c *call) listQueues() error {
	words, err := c.command()
	if err != nil {
		return err
	}
	if !c.is("all") {
		words = append(words, "FOLD")
	}
	if c.given("by") || c.number("limit") > 0 {
		if !c.given("by") {
			words = append(words, "BY", "NAME")
		}
		return c.showPages(words)
	}
	var all []client.Map
	err = c.pages(words, func(m client.Map) bool {
		all = append(all, m)
		return true
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b client.Map) int { return strings.Compare(a.Text("name"), b.Text("name")) })
	rows := c.rows()
	for _, m := range all {
		rows.Add(m)
	}
	rows.Close(c.none)
	return nil
}

// each sends a command for each name, a hundred at a time, and hands on the replies. What was
// deleted meanwhile is left out.
func (c *call) each(names []string, command func(name string) []string, use func(name string, reply any) error) error {
	if err := c.dial(); err != nil {
		return err
	}
	const atOnce = 100
	for some := range slices.Chunk(names, atOnce) {
		commands := make([][]string, len(some))
		for i, name := range some {
			commands[i] = command(name)
		}
		replies, err := c.conn.Pipeline(c.ctx, commands...)
		if err != nil {
			return err
		}
		for i, v := range replies {
			refusal, refused := v.(client.RefusalError)
			if refused && refusal.Code == "NOQUEUE" {
				continue
			}
			if refused {
				return refusal
			}
			if err := use(some[i], v); err != nil {
				return err
			}
		}
	}
	return nil
}
