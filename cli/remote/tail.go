package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/client"
)

// eventKinds are those that a broker of this version sends; `fila tail` shows others as well.
func eventKinds() []string {
	return []string{"enqueued", "ready", "empty", "acked", "progress", "failed", "dead", "created", "altered", "deleted", "breaker", "budget_low", "budget_empty", "lost"}
}

func tailRow() row {
	return row{
		name: "tail", args: "[QUEUE]", short: "Show events as they happen",
		long: `Shows what happens in a queue, or in all, until it is interrupted. Events are not
stored: those of the time before are lost. docs/reference/events.md describes each kind.`,
		run: (*call).tail, columns: "at event queue key id error budget",
		options: []option{
			{"kind", "", text, "only these `kinds`, separated by commas: " + strings.Join(eventKinds(), ", ")},
			{"count", "", number, "end after `n` events"},
			{"for", "", millis, "end after a `duration`"},
		},
		examples: []string{"fila tail --kind dead,failed", "fila tail orders -o jsonl"},
	}
}

// tail prints events until there were enough, or the time is over, or it is interrupted.
func (c *call) tail() error {
	ctx := c.ctx
	if c.given("for") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.duration("for"))
		defer cancel()
	}
	if err := c.dial(); err != nil {
		return ended(err)
	}
	var kinds []string
	if c.given("kind") {
		kinds = strings.Split(c.text("kind"), ",")
	}
	if err := c.conn.Subscribe(ctx, "PSUBSCRIBE", channels(c.arg("QUEUE"), kinds)...); err != nil {
		return ended(err)
	}
	rows := c.rows()
	for left := c.number("count"); ; {
		push, err := c.conn.Next(ctx)
		if c.given("for") && errors.Is(err, context.DeadlineExceeded) {
			err = context.Canceled // its time is over
		}
		if err != nil {
			rows.Close("")
			return ended(err)
		}
		if len(push) != 4 || push[0] != "pmessage" {
			continue
		}
		event, err := decodeMap(client.Text(push[3]))
		if err != nil {
			return fmt.Errorf("an event that is not JSON: %w", err)
		}
		if queue := c.arg("QUEUE"); queue != "" && event.Text("queue") != queue {
			continue // the pattern of a queue also matches names that continue with a colon
		}
		rows.Add(event)
		rows.Show()
		if err := c.out.Flush(); err != nil {
			return err
		}
		if left--; left == 0 {
			rows.Close("")
			return nil
		}
	}
}

// ended is the error of something that runs until it is interrupted: an interrupt is none.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// channels are the patterns of the events of a queue, or of all, of some kinds, or of all.
func channels(queue string, kinds []string) []string {
	name := "*"
	if queue != "" {
		name = escapePattern(queue)
	}
	if len(kinds) == 0 {
		kinds = []string{"*"}
	}
	all := make([]string, len(kinds))
	for i, kind := range kinds {
		all[i] = "fila:" + name + ":" + strings.TrimSpace(kind)
	}
	return all
}

// escapePattern makes a pattern that only the name matches.
func escapePattern(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(name)
}

// decodeMap reads a JSON object and keeps the order of its fields.
func decodeMap(text string) (client.Map, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(err, errors.New("want a JSON object"))
	}
	var m client.Map
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		m = append(m, client.Field{Name: fmt.Sprint(name), Value: fromJSON(v)})
	}
	return m, nil
}

// fromJSON makes the value of a reply of what the decoder makes.
func fromJSON(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		return client.Float(v.String())
	case []any:
		for i := range v {
			v[i] = fromJSON(v[i])
		}
		return v
	case map[string]any:
		var m client.Map
		for name, value := range v {
			m = append(m, client.Field{Name: name, Value: fromJSON(value)})
		}
		slices.SortFunc(m, func(a, b client.Field) int { return strings.Compare(a.Name, b.Name) })
		return m
	}
	return v
}
