// Package compat writes redis-compat.md: what Fila understands, and what of
// Redis it has and does not have. The page is made of the command table that
// answers clients; what only the page needs is here.
package compat

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/command"
)

// redisCommands is what Redis 7.0.15 answers to COMMAND LIST, a name a line.
//
//go:embed redis-7.0.15-commands.txt
var redisCommands string

// RedisCommands are the commands and subcommands of Redis.
func RedisCommands() []string { return strings.Fields(redisCommands) }

// page is the page while it is written.
type page struct {
	strings.Builder

	commands []command.Description
	version  string // of Redis
}

// Markdown returns the page about commands, which are compared with those of a
// version of Redis.
func Markdown(commands []command.Description, redisVersion string) string {
	p := &page{commands: commands, version: redisVersion}
	p.WriteString("# Commands and Redis compatibility\n\n" +
		"<!-- Generated from the command table by `make docs`. Do not edit. -->\n\n" +
		"Fila speaks RESP2 and RESP3, so any Redis client can talk to it. It names itself Redis " + p.version +
		" to them, the release its replies are compared with.\nCommand names and options are case-insensitive; " +
		"options follow the other arguments in any order; times are milliseconds.\n" +
		"[docs/clients.md](docs/clients.md) shows the client libraries that it is tried with, in which versions, and what to know of each.\n\n" +
		"- [Fila's commands](#filas-commands)\n- [Redis commands that Fila has](#redis-commands-that-fila-has)\n" +
		"- [Redis commands that Fila does not have](#redis-commands-that-fila-does-not-have)\n- [Errors](#errors)\n\n")
	p.writeNative()
	p.writeShared()
	p.writeAbsent()
	p.WriteString("\n## Errors\n\nThe first word of an error is its code: clients may go by it, and never by the text behind it. " +
		"A code keeps its meaning.\n\n| code | when |\n|---|---|\n")
	for _, e := range ErrorCodes() {
		p.writeRow("`"+e.Code+"`", e.When)
	}
	return p.String()
}

// writeNative writes a section for each of Fila's own commands, behind an index.
func (p *page) writeNative() {
	p.WriteString("## Fila's commands\n")
	var index []string
	for i := range p.commands {
		if c := &p.commands[i]; c.Native && !strings.HasSuffix(c.Display, " HELP") {
			index = append(index, "["+c.Display+"](#"+strings.NewReplacer(".", "", " ", "-").Replace(strings.ToLower(c.Display))+")")
		}
	}
	p.WriteString("\n" + strings.Join(index, ",\n") + "\n")
	for i := range p.commands {
		if c := &p.commands[i]; c.Native {
			p.writeSection(c)
		}
	}
}

// writeAbsent writes what Fila does not have of Redis' commands, with the reasons.
func (p *page) writeAbsent() {
	p.WriteString("\n## Redis commands that Fila does not have\n\nThey answer `ERR unknown command` or `ERR unknown subcommand`. " +
		"Those marked *not yet* are planned.\n\n| commands | reason |\n|---|---|\n")
	for _, a := range Absent() {
		names := slices.Clone(a.Commands)
		for i, n := range names {
			names[i] = "`" + strings.ToUpper(strings.ReplaceAll(n, "|", " ")) + "`"
		}
		reason := a.Reason
		if a.Later {
			reason = "*Not yet.* " + reason
		}
		p.writeRow(strings.Join(names, " "), reason)
	}
}

// writeShared writes what Fila has of Redis' commands, each with how it compares.
func (p *page) writeShared() {
	redis := RedisCommands()
	var rows page
	same, different := 0, 0
	for i := range p.commands {
		c := &p.commands[i]
		if c.Native {
			continue
		}
		mark := "supported"
		switch {
		case !slices.Contains(redis, c.Name):
			mark = "newer than Redis " + p.version + ". " + c.Differs
		case c.Differs != "":
			mark = "different: " + c.Differs
			different++
		default:
			same++
		}
		rows.writeRow("`"+c.UsageLine()+"`", c.Summary, strings.TrimSpace(mark), shapeOf(ReplyType(c.Name)).String())
	}
	all := 0
	for i, name := range redis { // a container is no command of its own, unless it can be called
		if i+1 == len(redis) || !strings.HasPrefix(redis[i+1], name+"|") {
			all++
		}
	}
	fmt.Fprintf(p, "\n## Redis commands that Fila has\n\nOf the %d commands and subcommands of Redis %s, %d are supported and %d are different in what the "+
		"table says; the others are [below](#redis-commands-that-fila-does-not-have).\nWhat the two answer is compared byte for byte by a test, "+
		"whose list of differences is `integration/differences_test.go`.\n\n"+
		"| command | what it does | compared with Redis | reply |\n|---|---|---|---|\n", all, p.version, same, different)
	p.WriteString(rows.String())
}

// writeSection writes what there is to know of a command.
func (p *page) writeSection(c *command.Description) {
	p.WriteString("\n### " + c.Display + "\n\n```\n" + c.UsageLine() + "\n```\n\n" + c.Summary + "\n\n")
	if c.Reply != "" {
		p.WriteString(c.Reply + "\n\n")
	}
	if reply := shapeOf(ReplyType(c.Name)); reply.two != "" {
		p.WriteString("Reply: " + reply.String() + ".\n\n")
	}
	p.WriteString("Since " + c.Since + ". " + strings.TrimSuffix(c.Complexity, ".") + ".")
	if len(c.Flags) > 0 {
		p.WriteString(" Flags: " + strings.Join(c.Flags, ", ") + ".")
	}
	p.WriteString(" Categories: @" + strings.Join(c.Categories, ", @") + ".")
	if len(c.Needs) > 0 {
		needs := make([]string, len(c.Needs))
		for i, n := range c.Needs {
			needs[i] = "to " + n.Access.String() + " `" + n.Arg + "`"
		}
		p.WriteString(" Needs the right " + strings.Join(needs, ", ") + ".")
	}
	p.WriteString("\n")
	if len(c.Examples) == 0 {
		return
	}
	p.WriteString("\n```\n")
	for _, e := range c.Examples {
		p.WriteString("> " + e.Command() + "\n" + e.Reply() + "\n")
	}
	p.WriteString("```\n")
}

// writeRow writes a row of a table.
func (p *page) writeRow(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", "\\|")
	}
	p.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}
