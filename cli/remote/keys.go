package remote

import "github.com/faisca/fila/internal/client"

const keyColumns = "key depth leased delayed? weight? share fair_share? state oldest_ms delivered?"

func keyRows() []row {
	return []row{
		{
			name: "keys list", args: "QUEUE", short: "List the fairness keys of a queue with their shares",
			wire: "FILA.KEYS", shape: pages, columns: keyColumns, none: "no fairness key of $QUEUE has messages",
			options:  []option{{"match", "MATCH", text, "only keys that match a `pattern`"}, {"by", "BY", text, "the first hundred in an `order`: depth, age, delivered, or behind their fair share"}, limit()},
			examples: []string{"fila keys list orders --by age", "fila keys list orders --match 'tenant-*' --limit 20"},
		},
		{
			name: "keys show", args: "QUEUE KEY", short: "Show the settings and figures of a fairness key",
			wire: "FILA.KEY GET", shape: fields, run: (*call).showKey, missing: "$QUEUE has no key $KEY: it has neither messages nor settings, and had no deliveries",
			examples: []string{"fila keys show orders tenant-7", "fila keys show orders tenant-7 -o json"},
		},
		{
			name: "keys set", args: "QUEUE KEY", short: "Set the weight of a fairness key, or how many messages it may have",
			wire: "FILA.KEY SET", done: "set $KEY of $QUEUE",
			options: []option{
				{"weight", "WEIGHT", number, "its `weight`, 1 to 1000000"},
				{"max-depth", "MAXDEPTH", number, "the queue refuses messages of the key beyond `n`; 0: as the queue says"},
			},
			examples: []string{"fila keys set orders tenant-7 --weight 3", "fila keys set orders tenant-7 --max-depth 50000"},
		},
		{
			name: "keys reset", args: "QUEUE KEY", short: "Remove the settings of a fairness key, never its messages",
			wire: "FILA.KEY DEL", shape: count, done: "reset $KEY of $QUEUE", missing: "$KEY of $QUEUE has no settings",
			examples: []string{"fila keys reset orders gold", "fila keys reset orders gold -o json"},
		},
		{
			name: "keys pause", args: "QUEUE KEY", short: "Stop the deliveries of a fairness key",
			wire: "FILA.KEY PAUSE", done: "paused $KEY of $QUEUE",
			examples: []string{"fila keys pause orders tenant-7", "fila keys pause orders default"},
		},
		{
			name: "keys resume", args: "QUEUE KEY", short: "Let a paused fairness key deliver again",
			wire: "FILA.KEY RESUME", done: "resumed $KEY of $QUEUE",
			examples: []string{"fila keys resume orders tenant-7", "fila keys resume orders default"},
		},
		{
			name: "keys purge", args: "QUEUE KEY", short: "Remove all messages of a fairness key, leased ones too",
			wire: "FILA.PURGE $QUEUE KEY $KEY", shape: count, done: "removed %d messages of $KEY of $QUEUE", missing: "$QUEUE has no messages of $KEY",
			ask:      "Remove all messages of $KEY of $QUEUE?",
			examples: []string{"fila keys purge orders tenant-7 --yes", "fila keys purge orders tenant-7 -y -o json"},
		},
	}
}

func throttleRows() []row {
	const columns = "key pattern?? instances?? rate burst? concurrency? limit?? tokens held waiting held_until? passed? refused? waited_ms?"
	return []row{
		{
			name: "throttles list", short: "List throttles with their limits and what they hold back",
			wire: "FILA.THROTTLE LIST", shape: pages, columns: columns, none: "no throttles",
			long: `A throttle whose name ends in * is a pattern: INSTANCES is how many throttles have its limits, each for itself, and
its other figures are their sums. With --match the throttles of patterns are listed as well.`,
			options:  []option{{"match", "MATCH", text, "only throttles whose names match a `glob`, also those of patterns"}, limit()},
			examples: []string{"fila throttles list", "fila throttles list --match 'tenant:*' -o jsonl"},
		},
		{
			name: "throttles show", args: "THROTTLE", short: "Show the limits of a throttle and what it holds back",
			wire: "FILA.THROTTLE GET", shape: fields, missing: "no throttle is named $THROTTLE",
			examples: []string{"fila throttles show provider:x", "fila throttles show provider:x -o json"},
		},
		{
			name: "throttles history", args: "THROTTLE", short: "Show what a throttle did in the last hour",
			long: "It is drawn as fila history draws queues.",
			wire: "FILA.THROTTLE HISTORY", run: (*call).throttleHistory, columns: "at passed refused held waiting",
			none:     "there is no history of $THROTTLE yet: a moment is kept every ten seconds from now on",
			options:  []option{{"range", "", millis, "how far it goes back: a `duration` of up to 1h; 1h unless it is given"}},
			examples: []string{"fila throttles history provider:x", "fila throttles history provider:x --range 15m -o json"},
		},
		{
			name: "throttles set", args: "THROTTLE", short: "Set the limits of a throttle, in place of those that it had",
			long: `A name that ends in * is a pattern: each throttle that begins with what precedes the * has these limits, for itself,
unless it has others of its own.`,
			wire: "FILA.THROTTLE SET", done: "set $THROTTLE",
			options: []option{
				{"rate", "RATE", text, "deliveries a `second`, such as 2.5"},
				{"burst", "BURST", number, "`n` deliveries that may go out at once after a pause; the rate, rounded up"},
				{"by", "BY", text, "`what` a delivery takes in tokens: cost, that of its message; else one"},
				{"concurrency", "CONCURRENCY", number, "`n` messages that may be leased at the same time"},
				{"adaptive", "ADAPTIVE", yes, "allow fewer of them while work fails"},
				{"min", "MIN", number, "the fewest that --adaptive leaves, `m`; 1"},
			},
			examples: []string{"fila throttles set provider:x --rate 2.5 --burst 10", "fila throttles set 'tenant:*' --rate 5 --concurrency 4", "fila throttles set provider:x --concurrency 50 --adaptive --min 2"},
		},
		{
			name: "throttles hold", args: "THROTTLE DELAY", short: "Deliver nothing that names a throttle for some time",
			long: `It may have limits or not. A hold that ends later than DELAY stays; fila throttles release ends it. It outlives a
restart.`,
			run: (*call).delayed, wire: "FILA.THROTTLE HOLD", done: "held $THROTTLE",
			examples: []string{"fila throttles hold provider:x 30s", "fila throttles hold provider:x 2h"},
		},
		{
			name: "throttles release", args: "THROTTLE", short: "End the hold of a throttle",
			wire: "FILA.THROTTLE HOLD $THROTTLE 0", done: "released $THROTTLE", missing: "$THROTTLE is not held", run: (*call).releaseThrottle,
			examples: []string{"fila throttles release provider:x", "fila throttles release provider:x -o json"},
		},
		{
			name: "throttles delete", args: "THROTTLE", short: "Remove the limits of a throttle",
			wire: "FILA.THROTTLE DEL", shape: count, done: "deleted $THROTTLE", missing: "no throttle is named $THROTTLE",
			ask:      "Remove the limits of $THROTTLE?",
			examples: []string{"fila throttles delete provider:x --yes", "fila throttles delete provider:x -y -o json"},
		},
	}
}

func signalRows() []row {
	const columns = "subject name 1m 5m 1h 24h all velocity? updated_at?"
	return []row{
		{
			name: "signals list", short: "List signals, sums that fade with time",
			long: `1M is about what the last minute brought, ALL the sum that never fades. VELOCITY is the rate
a second of the first window less that of the second: above 0 it rises.`,
			wire: "FILA.SIGNAL LIST", shape: pages, columns: columns, none: "no signals",
			options:  []option{{"match", "MATCH", text, "only subjects that match a `pattern`"}, limit()},
			examples: []string{"fila signals list", "fila signals list --match 'provider:*' -o jsonl"},
		},
		{
			name: "signals show", args: "SUBJECT [NAME]", short: "Show the signals of a subject, or one of them",
			wire: "FILA.SIGNAL GET", shape: list, columns: columns, missing: "$SUBJECT has no such signals",
			examples: []string{"fila signals show provider:x", "fila signals show tenant-1 pages -o json"},
		},
		{
			name: "signals add", args: "SUBJECT NAME [VALUE]", short: "Add a value to a signal; 1 unless it is given",
			long: `There is nothing to define before: the first value makes the signal. Hooks read it with
fila.signal.`,
			wire: "FILA.SIGNAL ADD", done: "added to $NAME of $SUBJECT",
			options:  []option{{"at", "AT", when, "the `time` of the value, which is past"}},
			examples: []string{"fila signals add provider:x refused", "fila signals add tenant-1 pages 12.5 --at 1h"},
		},
		{
			name: "signals delete", args: "SUBJECT [NAME]", short: "Delete all signals of a subject, or one of them",
			wire: "FILA.SIGNAL DEL", shape: count, done: "deleted %d signals of $SUBJECT", missing: "$SUBJECT has no such signals",
			ask:      "Delete signals of $SUBJECT?",
			examples: []string{"fila signals delete provider:x refused --yes", "fila signals delete tenant-1 -y -o json"},
		},
	}
}

// keyThere says whether there is something of a fairness key: messages, settings or counts.
func keyThere(k client.Map) bool {
	for _, name := range []string{"depth", "pinned", "paused", "max_depth", "delivered", "passed", "refused"} {
		if k.Int(name) > 0 {
			return true
		}
	}
	return false
}

func (c *call) showKey() error {
	reply, err := c.do(must(c.command())...)
	if err != nil {
		return err
	}
	if k, ok := reply.(client.Map); ok && !keyThere(k) {
		return MissingError{c.filled(c.missing)}
	}
	return c.show(reply)
}

// releaseThrottle ends a hold, if there is one.
func (c *call) releaseThrottle() error {
	reply, err := c.do("FILA.THROTTLE", "GET", c.arg("THROTTLE"))
	if err != nil {
		return err
	}
	if t, _ := reply.(client.Map); t.Get("held_until") == nil {
		return MissingError{c.filled(c.missing)}
	}
	return c.sendRow()
}
