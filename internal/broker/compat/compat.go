// Package compat writes redis-compat.md: Fila's commands, and a comparison with those of Redis. It also
// writes the pages of commands by task and of errors. The
// page is generated from the command table that serves clients; this package contains only what the
// page needs in addition.
package compat

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/internal/command"
)

// redisCommands is the reply of Redis 7.0.15 to COMMAND LIST, one name per line.
//
//go:embed redis-7.0.15-commands.txt
var redisCommands string

// RedisCommands returns the commands and subcommands of Redis.
func RedisCommands() []string { return strings.Fields(redisCommands) }

// page is the page being written.
type page struct {
	strings.Builder

	commands []command.Description
	version  string // of Redis
}

// Markdown returns the page, which compares the commands with those of a version of Redis.
func Markdown(commands []command.Description, redisVersion string) string {
	p := &page{commands: commands, version: redisVersion}
	p.WriteString("# Commands and Redis compatibility\n\n" +
		"<!-- Generated from the command table by `make docs`. Do not edit. -->\n\n" +
		"Fila speaks RESP2 and RESP3, so any Redis client can talk to it. It presents itself as Redis " + p.version +
		", the release with which its replies are compared.\nCommand names and options are case-insensitive; " +
		"options follow the other arguments in any order; times are milliseconds.\n" +
		"[docs/reference/clients.md](docs/reference/clients.md) lists the tested client libraries with their versions and peculiarities.\n\n" +
		"- [Fila's commands](#filas-commands)\n- [Redis commands that Fila has](#redis-commands-that-fila-has)\n" +
		"- [Redis commands that Fila does not have](#redis-commands-that-fila-does-not-have)\n- [Errors](#errors)\n\n")
	p.writeNative()
	p.writeShared()
	p.writeAbsent()
	p.WriteString("\n## Errors\n\nThe first word of an error is its code. Clients may rely on the code, but not on the text after it. " +
		"Codes keep their meaning.\n\n| code | when |\n|---|---|\n")
	for _, e := range ErrorCodes() {
		p.writeRow("`"+e.Code+"`", e.When)
	}
	return p.String()
}

// writeNative writes a section for each of Fila's own commands, after an index.
func (p *page) writeNative() {
	p.WriteString("## Fila's commands\n")
	var index []string
	for i := range p.commands {
		if c := &p.commands[i]; c.Native && !strings.HasSuffix(c.Display, " HELP") {
			index = append(index, "["+c.Display+"](#"+fragment(c.Display)+")")
		}
	}
	p.WriteString("\n" + strings.Join(index, ",\n") + "\n")
	for i := range p.commands {
		if c := &p.commands[i]; c.Native {
			p.writeSection(c)
		}
	}
}

// writeAbsent writes the commands of Redis that Fila lacks, with the reasons.
func (p *page) writeAbsent() {
	p.WriteString("\n## Redis commands that Fila does not have\n\nThey return `ERR unknown command` or `ERR unknown subcommand`. " +
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

// writeShared writes the commands that Fila shares with Redis, and their differences.
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
		case strings.HasPrefix(c.Name, "sentinel|"):
			mark = c.Differs
		case !slices.Contains(redis, c.Name):
			mark = "newer than Redis " + p.version + ". " + c.Differs
		case c.Differs != "":
			mark = "different: " + c.Differs
			different++
		default:
			same++
		}
		rows.writeRow("`"+c.UsageLine()+"`", c.Summary, strings.TrimSpace(mark), shapeOf(c.Returns).String())
	}
	all := 0
	for i, name := range redis { // a container counts only if it can be called itself
		if i+1 == len(redis) || !strings.HasPrefix(redis[i+1], name+"|") {
			all++
		}
	}
	fmt.Fprintf(p, "\n## Redis commands that Fila has\n\nOf the %d commands and subcommands of Redis %s, %d are supported and %d differ as the "+
		"table states; the others are [below](#redis-commands-that-fila-does-not-have).\nA test compares the replies of the two byte for byte; "+
		"its list of differences is `integration/differences_test.go`.\n\n"+
		"| command | what it does | compared with Redis | reply |\n|---|---|---|---|\n", all, p.version, same, different)
	p.WriteString(rows.String())
}

// writeSection writes the reference of a command.
func (p *page) writeSection(c *command.Description) {
	p.WriteString("\n### " + c.Display + "\n\n```\n" + c.UsageLine() + "\n```\n\n" + c.Summary + "\n\n")
	if c.Reply != "" {
		p.WriteString(c.Reply + "\n\n")
	}
	if reply := shapeOf(c.Returns); reply.two != "" {
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
		p.WriteString(" Requires the right " + strings.Join(needs, ", ") + ".")
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

// shape describes a reply in RESP2 and in RESP3.
type shape struct{ two, three string }

func (s shape) String() string {
	if s.two == s.three {
		return s.two
	}
	return s.two + "; RESP3: " + s.three
}

// shapeOf returns the shape of a type, which is written as Returns of command.Spec.
func shapeOf(kind string) shape {
	const pairs = "array of field, value, ..."
	return shape{three: kind, two: strings.NewReplacer("map", pairs, "set", "array", "push", "array", "text", "string").Replace(kind)}
}

// fragment returns the fragment of a command's section in redis-compat.md.
func fragment(display string) string {
	return strings.NewReplacer(".", "", " ", "-").Replace(strings.ToLower(display))
}
