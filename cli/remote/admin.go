package remote

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

func adminRows() []row {
	return slices.Concat(cronRows(), userRows(), clientRows(), varRows(), brokerRows())
}

func cronRows() []row {
	const columns = "name queue expression tz? next_at paused_at? last_at? fired?? missed?? last_error?"
	return []row{
		{
			name: "crons list", short: "List recurring messages",
			wire: "FILA.CRON LIST", shape: pages, columns: columns, none: "no recurring messages",
			options:  []option{{"match", "MATCH", text, "only names that match a `pattern`"}, limit()},
			examples: []string{"fila crons list", "fila crons list --match 'm*' -o json"},
		},
		{
			name: "crons show", args: "CRON", short: "Show a recurring message, and when it comes next",
			wire: "FILA.CRON GET", shape: fields, missing: "no recurring message is named $CRON",
			options:  []option{{"content", "CONTENT", yes, "with its payload and headers"}},
			examples: []string{"fila crons show morning", "fila crons show morning --content -o json"},
		},
		{
			name: "crons set", args: "CRON QUEUE EXPRESSION PAYLOAD", short: "Enqueue a message at each tick of a cron expression",
			wire: "FILA.CRON SET", done: "set $CRON",
			options: []option{
				{"tz", "TZ", text, "by the clock of a `zone`, such as Europe/Berlin; UTC"},
				{"catchup", "CATCHUP", text, "`which` ticks that were missed are made up for: none, last or all"},
				{"key", "KEY", text, "the fairness `key`"},
				{"throttle", "THROTTLE", texts, "a `throttle`; may be repeated"},
				{"budget", "BUDGET", texts, "a `budget` that pays for each message; may be repeated"},
				{"charge", "CHARGE", number, "`n` credits that each message takes of each budget; its cost"},
				{"max-attempts", "MAXATTEMPTS", number, "a message is dead after `n` failures, whatever its queue says; 0: never"},
				{"backoff", "BACKOFF", millis, "`duration` of the delay before its first retry, whatever its queue says"},
				{"max-backoff", "MAXBACKOFF", millis, "`duration` of the longest delay before a retry, whatever its queue says"},
				{"header", "HEADER", pairs, "a header, `name=value`; may be repeated"},
				{"priority", "PRIORITY", number, "`n` from 0 to 9; 9 comes first"},
				{"ttl", "TTL", millis, "a message is dead if not delivered within a `duration`"},
			},
			examples: []string{"fila crons set daily orders '30 6 * * mon-fri' report --tz Europe/Berlin", "fila crons set sync orders '@every 5m' poll --catchup none"},
		},
		{
			name: "crons run", args: "CRON", short: "Enqueue the message of a recurring message now; its ticks stay",
			wire: "FILA.CRON RUN", shape: value, missing: "no recurring message is named $CRON", run: (*call).runCron,
			examples: []string{"fila crons run morning", "fila crons run morning -o json"},
		},
		{
			name: "crons pause", args: "CRON", short: "Stop the ticks of a recurring message",
			wire: "FILA.CRON PAUSE", shape: count, done: "paused $CRON", missing: "no recurring message is named $CRON",
			examples: []string{"fila crons pause morning", "fila crons pause morning -o json"},
		},
		{
			name: "crons resume", args: "CRON", short: "Let a paused recurring message tick again",
			wire: "FILA.CRON RESUME", shape: count, done: "resumed $CRON", missing: "no recurring message is named $CRON",
			examples: []string{"fila crons resume morning", "fila crons resume morning -o json"},
		},
		{
			name: "crons delete", args: "CRON", short: "End a recurring message; what it has enqueued stays",
			wire: "FILA.CRON DEL", shape: count, done: "deleted $CRON", missing: "no recurring message is named $CRON",
			ask:      "End the recurring message $CRON?",
			examples: []string{"fila crons delete morning --yes", "fila crons delete morning -y -o json"},
		},
	}
}

func userRows() []row {
	return []row{
		{
			name: "users list", short: "List users with their rights",
			run: (*call).listUsers, columns: "user flags commands keys channels", none: "no users",
			examples: []string{"fila users list", "fila users list -o json"},
		},
		{
			name: "users show", args: "USER", short: "Show the rights of a user",
			wire: "ACL GETUSER", shape: fields, missing: "no user is named $USER",
			examples: []string{"fila users show deploy", "fila users show default -o json"},
		},
		{
			name: "users set", args: "USER [RULE...]", short: "Make a user, or change one, by rules of the ACL",
			long: `docs/how-to/security.md describes the rules. A password does not belong there: other users of
the machine can read arguments. --password asks for it on the terminal, or takes the
first line of standard input.`,
			run: (*call).setUser, wire: "ACL SETUSER", done: "set $USER",
			options:  []option{{"password", "", yes, "give the user a password"}},
			examples: []string{"fila users set worker on '%R~orders' +@consume nopass", "echo s3cret | fila users set worker on '%W~orders' +@produce --password"},
		},
		{
			name: "users delete", args: "USER", short: "Remove a user and close its connections",
			wire: "ACL DELUSER", shape: count, done: "deleted $USER", missing: "no user is named $USER",
			ask:      "Remove the user $USER and close its connections?",
			examples: []string{"fila users delete deploy --yes", "fila users delete deploy -y -o json"},
		},
	}
}

func clientRows() []row {
	return []row{
		{
			name: "clients list", short: "List connected clients",
			run: (*call).listClients, columns: "id addr user name age idle cmd", none: "no clients",
			examples: []string{"fila clients list", "fila clients list -o jsonl"},
		},
		{
			name: "clients kill", args: "CLIENT", short: "Close the connection of a client, by its id",
			wire: "CLIENT KILL ID", shape: count, done: "closed the connection of $CLIENT", missing: "no client has the id $CLIENT",
			examples: []string{"fila clients kill 7", "fila clients list | awk '$4 == \"stuck\" {print $1}' | xargs -r -n 1 fila clients kill"},
		},
	}
}

func varRows() []row {
	return []row{
		{
			name: "vars list", short: "List the runtime configuration",
			run: (*call).listVars, columns: "name value", none: "no values",
			options:  []option{{"prefix", "PREFIX", text, "only names that begin with a `prefix`"}, limit()},
			examples: []string{"fila vars list", "fila vars list --prefix weight: -o json"},
		},
		{
			name: "vars get", args: "NAME", short: "Show a value of the runtime configuration",
			wire: "FILA.CONFIG GET", shape: value, missing: "no value is named $NAME",
			examples: []string{"fila vars get weight:gold", "fila vars get weight:gold -o json"},
		},
		{
			name: "vars set", args: "NAME VALUE", short: "Set a value of the runtime configuration",
			wire: "FILA.CONFIG SET", done: "set $NAME",
			examples: []string{"fila vars set weight:gold 5", "fila vars set maintenance on"},
		},
		{
			name: "vars delete", args: "NAME...", short: "Remove values of the runtime configuration",
			wire: "FILA.CONFIG DEL", shape: count, done: "deleted %d values", missing: "no value is named $NAME",
			ask:      "Remove $NAME?",
			examples: []string{"fila vars delete weight:gold --yes", "fila vars delete weight:gold maintenance -y"},
		},
	}
}

func brokerRows() []row {
	return []row{
		{
			name: "backup", args: "[NAME]", short: "Make a backup of the store while it serves",
			long: `The broker writes it into a directory of that name below its storage.backup_path; without
a NAME it is the time. fila restore makes a data directory of it.`,
			run: (*call).backup, wire: "FILA.BACKUP", shape: fields,
			examples: []string{"fila backup monday", "fila backup -o json"},
		},
		{
			name: "audit", short: "Show what administrators have changed, the newest first",
			long: `The broker keeps the last 1,000 changes: who made them, from where, and the setting before
and after. It takes the right to FILA.AUDIT.`,
			wire: "FILA.AUDIT", shape: pages, columns: "at user?? addr?? command object before? after", none: "no changes",
			options:  []option{limit()},
			examples: []string{"fila audit --limit 20", "fila audit -o jsonl"},
		},
		{
			name: "slowlog", short: "Show the commands that took long, the newest first",
			run: (*call).slowlog, columns: "id at duration_us command client", none: "no slow commands",
			options: []option{
				{"count", "", signed, "the newest `n`, 20 unless it is given; -1: all"},
				{"reset", "", yes, "forget them"},
			},
			examples: []string{"fila slowlog", "fila slowlog --count 5 -o json"},
		},
		{
			name: "metrics", short: "Write the metrics, in Prometheus' text format",
			long: "Writes what the path /metrics of the admin listener answers. docs/reference/metrics.md describes them.",
			wire: "FILA.METRICS", shape: raw,
			examples: []string{"fila metrics", "fila metrics | grep ^fila_queue_messages"},
		},
		{
			name: "call", args: "COMMAND [ARG...]", short: "Send any command, and show the reply",
			long: "Flags come before COMMAND; what follows it is sent as it is.",
			run:  (*call).any, shape: value, bare: true,
			examples: []string{"fila call FILA.STATS orders", "fila call -o json FILA.LEASE orders COUNT 2 BLOCK 100"},
		},
	}
}

// listUsers shows all users, as ACL GETUSER has them.
func (c *call) listUsers() error {
	reply, err := c.do("ACL", "USERS")
	if err != nil {
		return err
	}
	rows := c.rows()
	err = c.each(client.Texts(reply), func(name string) []string { return []string{"ACL", "GETUSER", name} }, func(name string, v any) error {
		if m, ok := v.(client.Map); ok {
			rows.Add(append(client.Map{{Name: "user", Value: name}}, m...))
		}
		return nil
	})
	rows.Close(c.none)
	return err
}

func (c *call) setUser() error {
	words, err := c.command()
	if err != nil {
		return err
	}
	if c.is("password") {
		password, err := c.secret("password of " + c.arg("USER") + ": ")
		if err != nil {
			return err
		}
		words = append(words, ">"+password)
	}
	if len(words) == len([]string{"ACL", "SETUSER", "USER"}) {
		return usagef("give at least one rule, as in `%s`, or --password", c.examples[0])
	}
	reply, err := c.do(words...)
	if err != nil {
		return err
	}
	return c.show(reply)
}

// secret asks on the terminal, or takes the first line of standard input.
func (c *call) secret(question string) (string, error) {
	if c.env.Password != nil {
		return c.env.Password(question)
	}
	line, err := bufio.NewReader(c.env.Stdin).ReadString('\n')
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usagef("standard input has no password in its first line (%w)", err)
	}
	return line, nil
}

// listClients shows what CLIENT LIST says, a line of name=value for each client.
func (c *call) listClients() error {
	reply, err := c.do("CLIENT", "LIST")
	if err != nil {
		return err
	}
	rows := c.rows()
	for line := range strings.Lines(client.Text(reply)) {
		var m client.Map
		for word := range strings.FieldsSeq(line) {
			name, text, _ := strings.Cut(word, "=")
			var v any = text
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				v = n
			}
			if n, seconds := v.(int64); seconds && c.out.People() && (name == "age" || name == "idle") {
				v = output.Duration(time.Duration(n) * time.Second)
			}
			m = append(m, client.Field{Name: name, Value: v})
		}
		rows.Add(m)
	}
	rows.Close(c.none)
	return nil
}

// listVars shows pages that are flat: a name, its value, and so on.
func (c *call) listVars() error {
	words := []string{"FILA.CONFIG", "LIST"}
	if c.given("prefix") {
		words = append(words, "PREFIX", c.text("prefix"))
	}
	most := c.number("limit")
	rows := c.rows()
	for cursor := "0"; ; {
		reply, err := c.do(append(words, "CURSOR", cursor, "COUNT", strconv.Itoa(pageSize))...)
		if err != nil {
			return err
		}
		page, _ := reply.([]any)
		if len(page) != 2 {
			return fmt.Errorf("the broker answered with something else than a page")
		}
		flat := client.Texts(page[1])
		for i := 0; i+1 < len(flat); i += 2 {
			if most > 0 && int64(rows.Written()) == most {
				break
			}
			rows.Add(client.Map{{Name: "name", Value: flat[i]}, {Name: "value", Value: flat[i+1]}})
		}
		if cursor = client.Text(page[0]); cursor == "0" || most > 0 && int64(rows.Written()) == most {
			rows.Close(c.none)
			return nil
		}
	}
}

func (c *call) backup() error {
	if c.arg("NAME") == "" {
		c.args["NAME"] = []string{c.now().UTC().Format("20060102-150405")}
	}
	return c.sendRow()
}

// slowlog shows the entries of SLOWLOG GET: id, time, duration, words, address, name.
func (c *call) slowlog() error {
	if c.is("reset") {
		_, err := c.do("SLOWLOG", "RESET")
		return err
	}
	count := int64(20)
	if c.given("count") {
		count = c.number("count")
	}
	reply, err := c.do("SLOWLOG", "GET", strconv.FormatInt(count, 10))
	if err != nil {
		return err
	}
	entries, _ := reply.([]any)
	rows := c.rows()
	for _, e := range entries {
		entry, _ := e.([]any)
		if len(entry) < 6 {
			continue
		}
		rows.Add(client.Map{
			{Name: "id", Value: entry[0]}, {Name: "at", Value: client.Int(entry[1]) * time.Second.Milliseconds()}, {Name: "duration_us", Value: entry[2]},
			{Name: "command", Value: strings.Join(client.Texts(entry[3]), " ")}, {Name: "client", Value: entry[4]}, {Name: "name", Value: entry[5]},
		})
	}
	rows.Close(c.none)
	return nil
}

// any sends what the arguments say.
func (c *call) any() error {
	switch strings.ToUpper(c.arg("COMMAND")) {
	case "SUBSCRIBE", "PSUBSCRIBE", "MONITOR":
		return usagef("%s does not end: `fila tail` shows events, `redis-cli monitor` commands", c.arg("COMMAND"))
	}
	reply, err := c.do(append(c.args["COMMAND"], c.args["ARG"]...)...)
	if err != nil {
		return err
	}
	return c.show(reply)
}

// runCron runs a recurring message. Its refusal does not say whether there is one.
func (c *call) runCron() error {
	err := c.sendRow()
	if client.Refused(err, "INVALID") {
		if reply, asked := c.do("FILA.CRON", "GET", c.arg("CRON")); asked == nil && reply == nil {
			return MissingError{c.filled(c.missing)}
		}
	}
	return err
}
