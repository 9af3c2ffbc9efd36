package cmdline_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestAValueThatCannotBeIsExitCode2: each flag of each command whose value is a number, a duration or a word of a few, with one
// that it cannot have.
func TestAValueThatCannotBeIsExitCode2(t *testing.T) {
	impossible := map[string]string{ // by the name of the value in docs/reference/cli.md
		"n": "-1", "percent": "101", "bytes": "-1", "weight": "0", "messages": "-1", "connections": "0", "keys": "-1", "times": "-1", "credits": "-1",
		"duration": "-1s", "time": "soon", "rate": "fast", "on": "maybe", "status": "lost", "which": "some", "order": "alphabet", "column": "height", "state": "odd",
		"trouble": "deep", "lease": "never", "list": "poem", "markdown": "poem",
	}
	given := map[string]string{ // arguments that commands need
		"QUEUE": "orders", "GROUP": "g", "NAME": "n", "CRON": "c", "THROTTLE": "x", "BUDGET": "b", "DLQ": "orders.dlq", "KEY": "k", "ID": "01a22741-8bcf-797a-b23b-59925ff4ae39",
		"EXPRESSION": "'* * * * *'", "PAYLOAD": "p", "TOPIC": "t", "CREDITS": "1", "AFTER": "1s", "HOOK": "on_enqueue", "URL": "http://127.0.0.1:9/", "PROGRAM": "true",
	}
	text, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	b := serve(t, "--storage.engine", "memory")
	b.do("FILA.QUEUE", "CREATE", "orders")
	tried := 0
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+) ([a-z]+) `).FindAllStringSubmatch(section, -1) {
			flag, value := m[1], impossible[m[2]]
			if value == "" || name == "fila serve" || name == "fila slowlog" && flag == "--count" { // -1 means all
				continue
			}
			line := name
			_, usage, _ := strings.Cut(section, "```text\n"+name)
			usage, _, _ = strings.Cut(usage, "\n")
			for word := range strings.FieldsSeq(usage) {
				if arg := given[strings.TrimSuffix(word, "...")]; arg != "" {
					line += " " + arg
				}
			}
			tried++
			if _, stderr, code := b.typed(line + " " + flag + "=" + value + " < /dev/null"); code != 2 || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s %s=%s: exit code %d, %s", line, flag, value, code, stderr)
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d flags were tried", tried)
	}
}
