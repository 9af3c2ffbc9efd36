package commands

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// differences lists where Fila answers otherwise than Redis, by protocol and
// command, with the reason.
func differences() map[string]string {
	const (
		newer   = "newer clients send it; Redis has it since 7.2"
		oneDB   = "there is one database"
		ours    = "the value is Fila's own"
		allowed = "harmless here, and cluster clients send it to every server"
		arity   = "arity is computed from the arguments: too many of them are too many"
	)
	return map[string]string{
		"SELECT 1": oneDB, "CLIENT NO-TOUCH ON": newer, "READONLY": allowed, "READWRITE": allowed, "CONFIG GET appendonly": ours,
		"CONFIG GET databases": ours, "AUTH a b c": arity,
		"COMMAND DOCS ping":   "the words are Fila's own",
		"COMMAND DOCS select": "the words are Fila's own",
	}
}

// TestRepliesAreThoseOfRedis compares with what a real redis-server answered.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	text, err := os.ReadFile("testdata/redis-7.0.15.txt")
	if err != nil {
		t.Fatal(err)
	}
	unused := differences()
	proto, command := "2", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "proto "):
			proto = line[len("proto "):]
		case strings.HasPrefix(line, "> "):
			command = line[2:]
		default:
			reason, differs := differences()[command]
			delete(unused, command)
			got := askAlone(t, proto, command)
			if same := got == line; same == differs {
				t.Errorf("RESP%s %s\ngot   %s\nredis %s\nlisted as different: %q", proto, command, got, line, reason)
			}
		}
	}
	for command := range unused {
		t.Errorf("%s is listed as different but not among Redis' replies", command)
	}
}

// askAlone sends the command over a connection of its own and shows the reply as
// the recording does.
func askAlone(t *testing.T, proto, command string) string {
	t.Helper()
	args, err := splitLine(command)
	if err != nil {
		t.Fatal(err)
	}
	c := newServer(t, nil).connect("")
	if proto == "3" {
		c.do("HELLO", "3")
	}
	got := c.do(args...)
	got = regexp.MustCompile(`(\$2\r\nid\r\n):\d+`).ReplaceAllString(got, "$1:<n>")
	if command == "CLIENT ID" {
		got = regexp.MustCompile(`\d+`).ReplaceAllString(got, "<n>")
	}
	got = strings.ReplaceAll(strings.ReplaceAll(got, "\r\n", `\r\n`), "\n", `\n`)
	if c.closed {
		got += "<EOF>"
	}
	return got
}
