package remote

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/progress"
)

func deadRows() []row {
	return []row{
		{
			name: "errors", args: "DLQ", short: "Group the messages of a dead-letter queue by what has caused their failures",
			long: `Errors that differ only in numbers, ids, quoted strings, hosts, addresses and paths have one
cause, unless the worker or a hook has named another. What is shown as the cause is what
fila browse --cause and fila redrive --cause take.`,
			wire: "FILA.BROWSE $DLQ GROUP ERROR", run: (*call).errors, columns: "count cause first_at?? last_at? id?? queues?", none: "no errors in $DLQ",
			options:  []option{{"key", "KEY", text, "only messages of a fairness `key`"}, {"since", "SINCE", when, "only those enqueued since a `time`, or an age such as 24h"}},
			examples: []string{"fila errors orders.dlq", "fila errors orders.dlq --since 24h -o json"},
		},
		{
			name: "redrive", args: "DLQ", short: "Move dead messages back to the queues that they came from",
			long: `Prints how many were moved. A redrive that takes longer than a second goes on in the
broker; --follow waits for its end and shows how far it is. It goes on when fila is
interrupted; --stop ends it.`,
			wire: "FILA.REDRIVE", run: (*call).redrive, shape: count, done: "moved %d messages of $DLQ",
			options: []option{
				{"count", "COUNT", number, "at most `n` messages"},
				{"key", "KEY", text, "only those of a fairness `key`"},
				{"id", "ID", texts, "only the message with this `id`; may be repeated"},
				{"cause", "CAUSE", texts, "only those of a `cause`, such as that of a group of fila errors; may be repeated"},
				{"error", "ERROR", text, "only those whose error matches a `pattern`"},
				{"from", "FROM", text, "only those that died in this `queue`"},
				{"header", "HEADER", pairs, "only those with a header, `name=pattern`"},
				{"payload", "PAYLOAD", text, "only those whose payload contains a `text`"},
				{"since", "SINCE", when, "only those that died since a `time`, or an age such as 90m"},
				{"until", "UNTIL", when, "only those that died until a `time`, or an age"},
				{"to", "TO", text, "to this `queue`, wherever they came from"},
				{"rate", "RATE", number, "at most `n` a second"},
				{"follow", "", yes, "wait until it has ended"},
				{"stop", "STOP", yes, "end the redrive that is running"},
			},
			examples: []string{"fila redrive orders.dlq --rate 50 --follow", "fila redrive orders.dlq --cause 'no such customer #' --to mails"},
		},
	}
}

// groupsMax bounds the groups of errors in memory.
const groupsMax = 10_000

// errors adds up the groups of all pages and shows them, the largest first.
func (c *call) errors() error {
	words, err := c.command()
	if err != nil {
		return err
	}
	groups := map[string]client.Map{}
	more := false
	err = c.pages(words, func(m client.Map) bool {
		name := m.Text("cause")
		old, ok := groups[name]
		if more = !ok && len(groups) == groupsMax; more {
			return false
		}
		if ok {
			m = merged(old, m)
		}
		groups[name] = m
		return true
	})
	if err != nil {
		return err
	}
	all := slices.SortedFunc(maps.Values(groups), func(a, b client.Map) int {
		return cmp.Or(cmp.Compare(b.Int("count"), a.Int("count")), cmp.Compare(a.Text("cause"), b.Text("cause")))
	})
	rows := c.rows()
	for _, m := range all {
		rows.Add(m)
	}
	rows.Close(c.filled(c.none))
	if more {
		fmt.Fprintf(c.env.Stderr, "fila: there are more than %d groups; the rest was not looked at\n", groupsMax)
	}
	return nil
}

// merged is the same group of two pages: its id is that of the last failure.
func merged(a, b client.Map) client.Map {
	if b.Int("last_at") < a.Int("last_at") {
		a, b = b, a
	}
	sum := slices.Clone(b)
	for i, f := range sum {
		switch f.Name {
		case "count":
			sum[i].Value = a.Int("count") + b.Int("count")
		case "first_at":
			sum[i].Value = min(a.Int("first_at"), b.Int("first_at"))
		case "queues":
			sum[i].Value = mergedQueues(a.Get("queues"), b.Get("queues"))
		}
	}
	return sum
}

func mergedQueues(a, b any) client.Map {
	first, _ := a.(client.Map)
	second, _ := b.(client.Map)
	sum := slices.Clone(first)
	for _, f := range second {
		i := slices.IndexFunc(sum, func(old client.Field) bool { return old.Name == f.Name })
		if i < 0 {
			sum = append(sum, f)
		} else {
			sum[i].Value = client.Int(sum[i].Value) + client.Int(f.Value)
		}
	}
	return sum
}

// redrive moves messages, and with --follow shows how far it is until it has ended.
func (c *call) redrive() error {
	words, err := c.command()
	if err != nil {
		return err
	}
	if c.is("stop") && c.is("follow") {
		return usagef("--stop ends a redrive and --follow waits for its end: give one of them")
	}
	reply, err := c.do(words...)
	if err != nil || !c.is("follow") {
		if err == nil {
			err = c.show(reply)
		}
		return err
	}
	moved, err := c.follow(client.Int(reply))
	if err != nil {
		return err
	}
	return c.show(moved)
}

// followEvery is how often a redrive is looked at.
const followEvery = 500 * time.Millisecond

// follow waits for the end of a redrive and returns how many messages it has moved.
func (c *call) follow(moved int64) (int64, error) {
	var bar *progress.Bar
	for tick := time.NewTicker(followEvery); ; {
		reply, err := c.do("FILA.STATS", c.arg("DLQ"))
		if err != nil {
			return 0, err
		}
		stats, _ := reply.(client.Map)
		if stats.Int("redrive_running") == 0 {
			if bar != nil {
				bar.Done()
			}
			return max(moved, stats.Int("redrive_moved")), nil
		}
		moved = stats.Int("redrive_moved")
		if err, ok := c.env.Stderr.(*os.File); ok && bar == nil {
			bar = progress.New(err, "moving", moved+stats.Int("ready"))
		}
		if bar != nil {
			bar.Set(moved)
		}
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return 0, fmt.Errorf("%w; the redrive goes on, `fila redrive %s --stop` ends it", c.ctx.Err(), c.arg("DLQ"))
		}
	}
}
