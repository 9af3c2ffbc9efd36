package compat

import (
	"slices"
	"strings"

	"github.com/faisca/fila/internal/command"
)

// task is what a reader wants to do, and the commands for it in the order of their use.
type task struct {
	name     string
	commands []string
}

// tasks has each of Fila's own commands once.
func tasks() []task {
	return []task{
		{"Create and change queues", []string{"FILA.QUEUE CREATE", "FILA.QUEUE ALTER", "FILA.QUEUE APPLY", "FILA.QUEUE DELETE", "FILA.QUEUE LIST", "FILA.QUEUE INFO", "FILA.QUEUE PAUSE", "FILA.QUEUE RESUME", "FILA.PURGE"}},
		{"Produce", []string{"FILA.ENQUEUE", "FILA.RESULT", "FILA.RESCHEDULE", "FILA.CANCEL"}},
		{"Publish to several queues", []string{"FILA.PUBLISH", "FILA.TOPIC BIND", "FILA.TOPIC UNBIND", "FILA.TOPIC LIST", "FILA.TOPIC INFO"}},
		{"Wait for several messages", []string{"FILA.GROUP OPEN", "FILA.GROUP SEAL", "FILA.GROUP GET", "FILA.GROUP LIST", "FILA.GROUP CANCEL"}},
		{"Enqueue on a schedule", []string{"FILA.CRON SET", "FILA.CRON DEL", "FILA.CRON GET", "FILA.CRON LIST", "FILA.CRON PAUSE", "FILA.CRON RESUME", "FILA.CRON RUN"}},
		{"Consume", []string{"FILA.LEASE", "FILA.MLEASE", "FILA.ACK", "FILA.NACK", "FILA.EXTEND", "FILA.RELEASE"}},
		{"Share among tenants", []string{"FILA.KEYS", "FILA.KEY SET", "FILA.KEY GET", "FILA.KEY DEL", "FILA.KEY PAUSE", "FILA.KEY RESUME"}},
		{"Limit rates and concurrency", []string{"FILA.THROTTLE SET", "FILA.THROTTLE HOLD", "FILA.THROTTLE GET", "FILA.THROTTLE HISTORY", "FILA.THROTTLE LIST", "FILA.THROTTLE DEL"}},
		{"Charge for work", []string{"FILA.BUDGET SET", "FILA.BUDGET GET", "FILA.BUDGET LIST", "FILA.BUDGET CREDIT", "FILA.BUDGET CHARGE", "FILA.BUDGET HISTORY", "FILA.BUDGET DEL"}},
		{"Decide by script", []string{"FILA.SCRIPT LOAD", "FILA.SCRIPT TEST", "FILA.SCRIPT GET", "FILA.SCRIPT LIST", "FILA.SCRIPT STATS", "FILA.SCRIPT HISTORY", "FILA.SCRIPT ROLLBACK", "FILA.SCRIPT DEL", "FILA.CONFIG SET", "FILA.CONFIG GET", "FILA.CONFIG LIST", "FILA.CONFIG DEL", "FILA.SIGNAL ADD", "FILA.SIGNAL GET", "FILA.SIGNAL LIST", "FILA.SIGNAL DEL"}},
		{"Find out what happens", []string{"FILA.STATS", "FILA.EXPLAIN", "FILA.BROWSE", "FILA.GET", "FILA.WAITERS", "FILA.HISTORY", "FILA.FIGURES", "FILA.METRICS", "FILA.AUDIT", "FILA.WHOAMI"}},
		{"Handle dead letters", []string{"FILA.REDRIVE"}},
		{"Back up, and run several nodes", []string{"FILA.BACKUP", "FILA.CLUSTER STATUS", "FILA.CLUSTER VERIFY", "FILA.CLUSTER TRANSFER", "FILA.CLUSTER VOTER", "FILA.CLUSTER LEARNER", "FILA.CLUSTER REMOVE"}},
	}
}

// unsorted returns Fila's own commands that no task names, and names in tasks that are none.
func unsorted(commands []command.Description) []string {
	var named, wrong []string
	for _, t := range tasks() {
		named = append(named, t.commands...)
	}
	for i := range commands {
		if c := &commands[i]; c.Native && !strings.HasSuffix(c.Display, " HELP") {
			at := slices.Index(named, c.Display)
			if at < 0 {
				wrong = append(wrong, c.Display)
				continue
			}
			named = slices.Delete(named, at, at+1)
		}
	}
	return append(wrong, named...)
}

// tasksPage returns docs/reference/commands.md: Fila's own commands by what they are for.
func tasksPage(commands []command.Description) string {
	p := &page{commands: commands}
	p.WriteString("# Commands by task\n\n<!-- Generated from the command table by `make docs`. Do not edit. -->\n\n" +
		"Each command links to its arguments, reply, rights and an example. `COMMAND DOCS` and `fila help` say the same at run time.\n" +
		"Of Redis' own commands Fila has [these](../../redis-compat.md#redis-commands-that-fila-has), such as `AUTH`, `MULTI`, `SUBSCRIBE` and `INFO`.\n")
	for _, t := range tasks() {
		p.WriteString("\n## " + t.name + "\n\n| command | what it does |\n|---|---|\n")
		for _, name := range t.commands {
			at := slices.IndexFunc(commands, func(c command.Description) bool { return c.Display == name })
			if at < 0 {
				continue // unsorted reports it
			}
			first, _, _ := strings.Cut(commands[at].Summary, ". ")
			p.writeRow("[`"+name+"`](../../redis-compat.md#"+fragment(name)+")", strings.ReplaceAll(strings.TrimSuffix(first, "."), "<", "&lt;")+".")
		}
	}
	return p.String()
}

// errorsPage returns docs/reference/errors.md: each code, when it comes, and what to do.
func errorsPage() string {
	p := &page{}
	p.WriteString("# Errors\n\n<!-- Generated from internal/broker/compat/codes.go by `make docs`. Do not edit. -->\n\n" +
		"The first word of an error is its code. Match errors by the code: it keeps its meaning, and the text after it may change.\n" +
		"Some client libraries drop the code `ERR`, or put it elsewhere: [client libraries](clients.md).\n\n" +
		"A command without a reply, because the connection broke, may have been executed or not. To send an enqueue again without\n" +
		"storing it twice, give it a `DEDUP` id: [make jobs idempotent](../how-to/idempotency.md).\n\n| code | when | what to do |\n|---|---|---|\n")
	for _, e := range ErrorCodes() {
		p.writeRow("`"+e.Code+"`", e.When, e.Do)
	}
	p.WriteString("\n`INFO errorstats` and the metric `fila_error_replies_total` count errors by code.\n")
	return p.String()
}
