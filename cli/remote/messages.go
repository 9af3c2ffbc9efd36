package remote

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

const messageColumns = "id status key attempt? enqueued_at?? ready_at?? error? payload"

func messageRows() []row {
	return []row{
		{
			name: "enqueue", args: "QUEUE [PAYLOAD]", short: "Enqueue a message, or one for each line of standard input",
			long: `Prints the id of each message. PAYLOAD - is read from standard input, whole; with
--lines each line of it is a message. If it ends early, the messages whose ids were
printed are stored.`,
			wire: "FILA.ENQUEUE $QUEUE", run: (*call).enqueue,
			options:  messageOptions(),
			examples: []string{"fila enqueue orders '{\"order\": 17}' --key tenant-7 --header kind=new", "seq 3 | fila enqueue orders --lines --delay 10s", "fila enqueue orders hello --key acme --budget acme --charge 800"},
		},
		publishRow(),
		{
			name: "browse", args: "QUEUE", short: "Look through the messages of a queue; nothing changes",
			wire: "FILA.BROWSE", shape: pages, columns: messageColumns, none: "no such messages in $QUEUE",
			options: []option{
				{"status", "STATUS", text, "only those with a `status`: ready, delayed, leased or dead"},
				{"done", "DONE", yes, "those that are done, of a queue with KEEPDONE; the times are those of acks"},
				{"key", "KEY", text, "only those of a fairness `key`"},
				{"header", "HEADER", pairs, "only those with a header, `name=pattern`"},
				{"payload", "PAYLOAD", text, "only those whose payload contains a `text`"},
				{"error", "ERROR", text, "only those whose error matches a `pattern`"},
				{"cause", "CAUSE", texts, "only those that have failed by a `cause` of fila errors; may be repeated"},
				{"since", "SINCE", when, "only those enqueued since a `time`, or an age such as 90m"},
				{"until", "UNTIL", when, "only those enqueued until a `time`, or an age"},
				limit(),
			},
			examples: []string{"fila browse orders --status ready --limit 10", "fila browse orders --done --since 24h", "fila browse orders.dlq --error '*customer*' --since 24h -o jsonl"},
		},
		{
			name: "peek", args: "QUEUE", short: "Look at the next messages of a queue; nothing changes",
			long: `Shows ready messages by fairness key, within a key in the order of delivery. Those of keys
that cannot deliver now, such as a paused or throttled one, are left out, and standard
error says why.`,
			wire: "FILA.BROWSE $QUEUE STATUS ready", columns: messageColumns, none: "no message of $QUEUE can go next", run: (*call).peek,
			options: []option{
				{"key", "KEY", text, "only those of a fairness `key`"},
				{"count", "", number, "`n` messages, 10 unless it is given"},
			},
			examples: []string{"fila peek orders", "fila peek orders --key tenant-7 --count 1 -o json"},
		},
		{
			name: "get", args: "QUEUE ID", short: "Show a message, whatever its status",
			wire: "FILA.GET", missing: "$QUEUE has no message $ID", run: (*call).get,
			options: []option{
				{"attempts", "ATTEMPTS", yes, "also its last ten attempts that have failed"},
				{"payload", "", yes, "write the payload alone, as it is"},
			},
			examples: []string{"fila get orders 019b7748-d600-7000-8000-02d1a3a5b0c1 --attempts", "fila get orders 019b7748-d600-7000-8000-02d1a3a5b0c1 --payload > payload.json"},
		},
		{
			name: "cancel", args: "QUEUE ID...", short: "Remove messages, whatever their status",
			wire: "FILA.CANCEL", shape: count, done: "removed %d messages of $QUEUE", missing: "$QUEUE has no message $ID",
			examples: []string{"fila cancel orders 019b7748-d600-7000-8000-02d1a3a5b0c1", "fila browse orders --key tenant-7 | cut -f 1 | xargs fila cancel orders"},
		},
		{
			name: "reschedule", args: "QUEUE ID DELAY", short: "Make a message ready after a delay; 0s is at once",
			wire: "FILA.RESCHEDULE", shape: moment, done: "ready at", run: (*call).delayed,
			examples: []string{"fila reschedule orders 019b7748-d600-7000-8000-02d1a3a5b0c1 0s", "fila reschedule orders 019b7748-d600-7000-8000-02d1a3a5b0c1 15m"},
		},
		explainRow(),
	}
}

// messageOptions are those of a message that is enqueued, and where it comes from.
func messageOptions() []option {
	return slices.Concat([]option{{"lines", "", yes, "each line of standard input is a message"}}, contentOptions(), []option{
		{"dedup", "DEDUP", text, "deduplication `id`; * takes the content"},
		{"unique", "UNIQUE", text, "unique `id`, which one message of the queue has at a time"},
		{"until", "UNTIL", text, "`lease`: the unique id is free from the lease of the message on"},
		{"replace", "REPLACE", yes, "take the place of the message with the unique id while it waits"},
		{"max-delay", "MAXDELAY", millis, "with --replace, ready at the latest a `duration` after the first"},
		{"trace", "", yes, "add a traceparent header, and print its trace id on standard error"},
	})
}

// contentOptions are those of any message.
func contentOptions() []option {
	return []option{
		{"key", "KEY", text, "its fairness `key`"},
		{"weight", "WEIGHT", number, "the `weight` of that key, for its whole backlog"},
		{"cost", "COST", number, "`n` that its delivery takes of the key's share"},
		{"throttle", "THROTTLE", texts, "a `throttle` that it is subject to; may be repeated"},
		{"budget", "BUDGET", texts, "a `budget` that pays for it; may be repeated"},
		{"charge", "CHARGE", number, "`n` credits that it takes of each budget; its cost"},
		{"max-attempts", "MAXATTEMPTS", number, "it is dead after `n` failures, whatever its queue says; 0: never"},
		{"backoff", "BACKOFF", millis, "`duration` of the delay before its first retry, whatever its queue says"},
		{"max-backoff", "MAXBACKOFF", millis, "`duration` of the longest delay before a retry, whatever its queue says"},
		{"header", "HEADER", pairs, "a header, `name=value`; may be repeated"},
		{"priority", "PRIORITY", number, "`n` from 0 to 9; 9 comes first"},
		{"delay", "DELAY", millis, "deliver it after a `duration`"},
		{"at", "AT", when, "deliver it from a `time` on"},
		{"ttl", "TTL", millis, "it is dead if not delivered within a `duration`"},
		{"group", "GROUP", text, "a `group` of messages that it is a member of"},
	}
}

func explainRow() row {
	return row{
		name: "explain", args: "QUEUE [ID]", short: "Say why a message, or the next of a fairness key, is not with a consumer",
		wire: "FILA.EXPLAIN", shape: fields, run: (*call).explain,
		options:  []option{{"key", "KEY", text, "a fairness `key` in place of an id"}},
		examples: []string{"fila explain orders 019b7748-d600-7000-8000-02d1a3a5b0c1", "fila explain orders --key tenant-7"},
	}
}

// enqueue prints the ids of what send sends.
func (c *call) enqueue() error { return c.send(c.out.Value) }

// send sends what the arguments or standard input have, and shows each reply.
func (c *call) send(show func(reply any)) error {
	words, err := c.command()
	if err != nil {
		return err
	}
	payload, given := c.arg("PAYLOAD"), len(c.args["PAYLOAD"]) > 0
	switch {
	case c.is("lines") && given:
		return usagef("--lines takes the payloads from standard input, and %q is one", payload)
	case c.is("trace"):
		trace, header := traceparent()
		words = append(words, "HEADER", "traceparent", header)
		fmt.Fprintln(c.env.Stderr, "trace "+trace)
	}
	if c.is("lines") {
		return c.sendLines(words, show)
	}
	if !given {
		return usagef("give the payload, - to read it from standard input, or --lines")
	}
	if payload == "-" {
		body, err := io.ReadAll(io.LimitReader(c.env.Stdin, payloadMax+1))
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		if len(body) > payloadMax {
			return usagef("standard input has more than %d bytes", payloadMax)
		}
		payload = string(body)
	}
	reply, err := c.do(slices.Insert(words, 2, payload)...)
	if err == nil {
		show(reply)
	}
	return err
}

// payloadMax bounds what is read into memory; the broker's limit is lower.
const payloadMax = 256 << 20

// sendLines sends the lines of standard input. A hundred are on their way at a time, or less
// where they are long or come slowly.
func (c *call) sendLines(words []string, show func(reply any)) error {
	if err := c.dial(); err != nil {
		return err
	}
	in := bufio.NewReaderSize(c.env.Stdin, 64<<10)
	stored := 0
	for ended := false; !ended; {
		var batch [][]string
		for size := 0; len(batch) < 100 && size < 1<<20 && (len(batch) == 0 || in.Buffered() > 0); {
			line, err := in.ReadString('\n')
			if ended = errors.Is(err, io.EOF); err != nil && !ended {
				return fmt.Errorf("standard input: %w", err)
			}
			if ended && line == "" {
				break
			}
			size += len(line)
			batch = append(batch, slices.Insert(slices.Clone(words), 2, strings.TrimSuffix(line, "\n")))
		}
		replies, err := c.conn.Pipeline(c.ctx, batch...)
		if err == nil {
			stored, err = c.showStored(replies, stored, show)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", stored+1, err)
		}
	}
	return nil
}

// showStored shows the replies to what was stored, up to the first refusal.
func (c *call) showStored(replies []any, stored int, show func(reply any)) (int, error) {
	for _, v := range replies {
		if refusal, refused := v.(client.RefusalError); refused {
			return stored, errors.Join(refusal, c.out.Flush())
		}
		show(v)
		stored++
	}
	return stored, c.out.Flush()
}

// traceparent makes the header of a new trace, sampled.
func traceparent() (trace, header string) {
	var b [24]byte
	rand.Read(b[:])
	trace = hex.EncodeToString(b[:16])
	return trace, "00-" + trace + "-" + hex.EncodeToString(b[16:]) + "-01"
}

// peek shows the first ready messages that can go next, one page after the other until there are enough. Messages of keys
// that cannot deliver now are left out, and named.
func (c *call) peek() error {
	words, err := c.command()
	if err != nil {
		return err
	}
	most := c.number("count")
	if !c.given("count") {
		most = 10
	}
	if most < 1 {
		return usagef("--count must be at least 1, not %d", most)
	}
	rows := c.rows()
	stopped := map[string]string{} // why each key does not deliver; empty: it does
	var left []string
	var failed error
	err = c.pages(words, func(m client.Map) bool {
		key := m.Text("key")
		why, known := stopped[key]
		if !known {
			if why, failed = c.stops(key); failed != nil {
				return false
			}
			if stopped[key] = why; why != "" {
				left = append(left, key)
			}
		}
		if why == "" {
			rows.Add(m)
		}
		return int64(rows.Written()) < most && len(left) < stoppedMost
	})
	err = errors.Join(err, failed)
	if err == nil || rows.Written() > 0 {
		rows.Close(c.filled(c.none))
	}
	const named = 3
	for i, key := range left {
		if i == named {
			fmt.Fprintf(c.env.Stderr, "fila: and those of %d more keys; `fila keys list %s` shows why\n", len(left)-named, output.Escape(c.arg("QUEUE")))
			break
		}
		fmt.Fprintf(c.env.Stderr, "fila: messages of %s are left out, as none of them can go next: %s\n", output.Escape(key), output.Escape(stopped[key]))
	}
	return err
}

// stoppedMost is after how many keys that do not deliver peek looks no further.
const stoppedMost = 100

// stops says why the next message of a fairness key cannot be delivered, even to a consumer that asks now; "": it can.
func (c *call) stops(key string) (string, error) {
	reply, err := c.do("FILA.EXPLAIN", c.arg("QUEUE"), "KEY", key)
	if err != nil {
		return "", err
	}
	k, _ := reply.(client.Map)
	switch k.Text("state") {
	case "ready", "busy", "no_consumer", "loading", "empty":
		return "", nil
	}
	return typedCommands().Replace(k.Text("reason")), nil
}

func (c *call) get() error {
	reply, err := c.do(must(c.command())...)
	if err != nil {
		return err
	}
	m, ok := reply.(client.Map)
	if !ok {
		return MissingError{c.filled(c.missing)}
	}
	if !c.is("payload") {
		c.out.Fields(m)
		return nil
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	_, err = io.WriteString(c.env.Stdout, m.Text("payload"))
	return err
}

// delayed sends a row whose argument DELAY is a duration.
func (c *call) delayed() error {
	ms, err := asMillis(c.arg("DELAY"))
	if err != nil {
		return usagef("DELAY %w", err)
	}
	c.args["DELAY"] = []string{ms}
	return c.sendRow()
}

// explain says the reason in a sentence, and then what there is to say beside it. In the forms for programs it has all
// fields.
func (c *call) explain() error {
	if (c.arg("ID") == "") == !c.given("key") {
		return usagef("fila explain takes an id or --key, one of them")
	}
	reply, err := c.do(must(c.command())...)
	if err != nil {
		return err
	}
	m, _ := reply.(client.Map)
	if c.given("key") && m.Text("state") == "empty" && !keyThere(m) {
		return MissingError{fmt.Sprintf("%s has no key %s: it has neither messages nor settings, and had no deliveries", output.Escape(c.arg("QUEUE")), output.Escape(c.text("key")))}
	}
	if c.out.People() {
		c.out.Say("%s", explanation(m))
		m = slices.DeleteFunc(slices.Clone(m), func(f client.Field) bool { return f.Name == "reason" || !matters(f) })
	}
	c.out.Fields(m)
	return nil
}

// explanation is the reason as a sentence.
func explanation(m client.Map) string {
	text := typedCommands().Replace(cmp.Or(m.Text("reason"), "it is "+m.Text("state")))
	if first, size := utf8.DecodeRuneInString(text); size > 0 {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	return output.Escape(text) + "."
}

// matters says whether a field says something: it is neither nil nor 0 nor empty, nor what it is of every other message.
func matters(f client.Field) bool {
	switch v := f.Value.(type) {
	case nil:
		return false
	case int64:
		return v != 0 && (v != 1 || f.Name != "weight" && f.Name != "cost" && f.Name != "attempt")
	case string:
		return v != "" && v != "0"
	case []any:
		return len(v) > 0
	case client.Map:
		return len(v) > 0
	}
	return true
}
