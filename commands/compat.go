package commands

import (
	"fmt"
	"slices"
	"strings"
)

// shape is what the reply of a command looks like, in RESP2 and in RESP3.
type shape struct{ two, three string }

func (s shape) String() string {
	if s.two == s.three {
		return s.two
	}
	return s.two + "; RESP3: " + s.three
}

// compatDocument returns redis-compat.md: what Fila understands and what of
// Redis it does not, made of the same table that answers clients. redis are the
// commands of Redis. With the flag -update the package's test writes it.
func compatDocument(redis []string) []byte {
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
		"- [Redis commands that Fila does not have](#redis-commands-that-fila-does-not-have)\n- [Errors](#errors)\n\n" +
		"## Fila's commands\n")
	var index []string
	for _, c := range own {
		for _, each := range leaves(c) {
			if strings.HasSuffix(each.display, " HELP") {
				continue
			}
			index = append(index, "["+each.display+"](#"+strings.NewReplacer(".", "", " ", "-").Replace(strings.ToLower(each.display))+")")
		}
	}
	b.WriteString("\n" + strings.Join(index, ",\n") + "\n")
	for _, c := range own {
		for _, each := range leaves(c) {
			each.document(&b, shapeOf(replyType(each.name)))
		}
	}
	writeShared(&b, shared, redis)
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
	b.WriteString("\n## Errors\n\nThe first word of an error is its code: clients may go by it, and never by the text behind it. " +
		"A code keeps its meaning.\n\n| code | when |\n|---|---|\n")
	for _, e := range errorCodes() {
		b.WriteString(tableRow([]string{"`" + e.code + "`", e.when}))
	}
	return []byte(b.String())
}

// writeShared writes what Fila has of Redis' commands, each with how it compares.
func writeShared(b *strings.Builder, shared []*command, redis []string) {
	var rows strings.Builder
	same, different := 0, 0
	for _, c := range shared {
		for _, each := range leaves(c) {
			name := each.display
			if u := each.spec.usage(); u != "" {
				name += " " + u
			}
			mark := "supported"
			switch {
			case !slices.Contains(redis, each.name):
				mark = "newer than Redis " + redisVersion + ". " + each.spec.Differs
			case each.spec.Differs != "":
				mark = "different: " + each.spec.Differs
				different++
			default:
				same++
			}
			rows.WriteString(tableRow([]string{"`" + name + "`", each.spec.Summary, strings.TrimSpace(mark), shapeOf(replyType(each.name)).String()}))
		}
	}
	all := 0
	for i, name := range redis { // a container is no command of its own, unless it can be called
		if i+1 == len(redis) || !strings.HasPrefix(redis[i+1], name+"|") {
			all++
		}
	}
	fmt.Fprintf(b, "\n## Redis commands that Fila has\n\nOf the %d commands and subcommands of Redis %s, %d are supported and %d are different in what the "+
		"table says; the others are [below](#redis-commands-that-fila-does-not-have).\nWhat the two answer is compared byte for byte by a test, "+
		"whose list of differences is `integration/differences_test.go`.\n\n"+
		"| command | what it does | compared with Redis | reply |\n|---|---|---|---|\n", all, redisVersion, same, different)
	b.WriteString(rows.String())
}

// leaves returns what can be executed: the command, or its subcommands, or both.
func leaves(c *command) []*command {
	if c.spec.Local == nil && c.spec.Parse == nil {
		return c.subOrder
	}
	return append([]*command{c}, c.subOrder...)
}

// document writes a command's section.
func (c *command) document(b *strings.Builder, reply shape) {
	b.WriteString("\n### " + c.display + "\n\n```\n" + c.usageLine() + "\n```\n\n" + c.spec.Summary + "\n\n")
	if c.spec.Reply != "" {
		b.WriteString(c.spec.Reply + "\n\n")
	}
	if reply.two != "" {
		b.WriteString("Reply: " + reply.String() + ".\n\n")
	}
	b.WriteString("Since " + c.spec.Since + ". " + strings.TrimSuffix(c.spec.Complexity, ".") + ".")
	if len(c.spec.Flags) > 0 {
		b.WriteString(" Flags: " + strings.Join(c.spec.Flags, ", ") + ".")
	}
	b.WriteString(" Categories: @" + strings.Join(c.spec.categories(), ", @") + ".")
	if len(c.guarded) > 0 {
		needs := make([]string, len(c.guarded))
		for i, g := range c.guarded {
			needs[i] = "to " + g.access.String() + " `" + c.slots[g.slot] + "`"
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
