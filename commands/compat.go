package commands

import (
	"slices"
	"strings"
)

// CompatDocument returns redis-compat.md: what Fila understands and what of
// Redis it does not, made of the same table that answers clients. With the flag
// -update the package's test writes it.
func CompatDocument() []byte {
	var own, shared []*command
	for _, c := range newRegistry(table()).order {
		if c.spec.native() {
			own = append(own, c)
		} else {
			shared = append(shared, c)
		}
	}
	var b strings.Builder
	b.WriteString("# Commands and Redis compatibility\n\n" +
		"<!-- Generated from the command table by `make docs`. Do not edit. -->\n\n" +
		"Fila speaks RESP2 and RESP3, so any Redis client can talk to it. It names itself Redis " + redisVersion +
		" to them, the release its replies are compared with.\nCommand names and options are case-insensitive; " +
		"options follow the other arguments in any order; times are milliseconds.\n" +
		"[docs/clients.md](docs/clients.md) shows the client libraries that it is tried with, in which versions, and what to know of each.\n\n" +
		"- [Fila's commands](#filas-commands)\n- [Redis commands that Fila has](#redis-commands-that-fila-has)\n" +
		"- [Redis commands that Fila does not have](#redis-commands-that-fila-does-not-have)\n\n" +
		"## Fila's commands\n")
	for _, c := range own {
		for _, each := range leaves(c) {
			each.document(&b)
		}
	}
	b.WriteString("\n## Redis commands that Fila has\n\n| command | what it does | what differs from Redis |\n|---|---|---|\n")
	for _, c := range shared {
		for _, each := range leaves(c) {
			cells := []string{"`" + strings.ToUpper(each.usageLine()) + "`", each.spec.Summary, each.spec.Differs}
			if u := each.spec.usage(); u != "" {
				cells[0] = "`" + each.display + " " + u + "`"
			}
			b.WriteString(tableRow(cells))
		}
	}
	b.WriteString("\n## Redis commands that Fila does not have\n\nThey answer `ERR unknown command` or `ERR unknown subcommand`. " +
		"Those marked *not yet* are planned.\n\n| commands | reason |\n|---|---|\n")
	for _, a := range absent() {
		names := slices.Clone(a.commands)
		for i, n := range names {
			names[i] = "`" + strings.ToUpper(strings.ReplaceAll(n, "|", " ")) + "`"
		}
		reason := a.reason
		if a.later {
			reason = "*Not yet.* " + reason
		}
		b.WriteString(tableRow([]string{strings.Join(names, " "), reason}))
	}
	return []byte(b.String())
}

// leaves returns what can be executed: the command, or its subcommands, or both.
func leaves(c *command) []*command {
	if c.spec.Local == nil && c.spec.Parse == nil {
		return c.subOrder
	}
	return append([]*command{c}, c.subOrder...)
}

// document writes a command's section.
func (c *command) document(b *strings.Builder) {
	b.WriteString("\n### " + c.display + "\n\n```\n" + c.usageLine() + "\n```\n\n" + c.spec.Summary + "\n\n")
	if c.spec.Reply != "" {
		b.WriteString(c.spec.Reply + "\n\n")
	}
	b.WriteString("Since " + c.spec.Since + ". " + strings.TrimSuffix(c.spec.Complexity, ".") + ".")
	if len(c.spec.Flags) > 0 {
		b.WriteString(" Flags: " + strings.Join(c.spec.Flags, ", ") + ".")
	}
	b.WriteString(" Categories: @" + strings.Join(c.spec.categories(), ", @") + ".")
	if len(c.guarded) > 0 {
		needs := make([]string, len(c.guarded))
		for i, g := range c.guarded {
			needs[i] = "to " + g.access.String() + " " + c.slots[g.slot]
		}
		b.WriteString(" Needs the right " + strings.Join(needs, ", ") + ".")
	}
	b.WriteString("\n")
	if len(c.spec.Examples) == 0 {
		return
	}
	b.WriteString("\n```\n")
	for _, e := range c.spec.Examples {
		b.WriteString("> " + e.Command + "\n" + e.Reply + "\n")
	}
	b.WriteString("```\n")
}

func tableRow(cells []string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", "\\|")
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
