package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func queuesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queues.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestQueuesOfAFile(t *testing.T) {
	path := queuesFile(t, `
[[queues]]
name = "orders"
visibility_ms = 60_000
on_enqueue = "orders.lua"

[[queues]]
name = "logs"
dlq = false

[[topics]]
name = "order.placed"
queue = "logs"

[[topics]]
name = "order.placed"
queue = "orders"
[topics.headers]
kind = ["a*", "*b"]
"x.y" = "1"

[[throttles]]
name = "tenant:*"
rate = 2.5
burst = 10
concurrency = 4
adaptive = true
min = 2

[[throttles]]
name = "tokens"
rate = 1500
by_cost = true
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "orders.lua"), []byte("-- a script"), 0o600); err != nil {
		t.Fatal(err)
	}
	tables, err := loadTables(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tables.Definition()
	if want := `{"queues":[{"name":"orders","on_enqueue":"-- a script","visibility_ms":60000},{"dlq":false,"name":"logs"}],` +
		`"throttles":[{"adaptive":true,"burst":10,"concurrency":4,"min":2,"name":"tenant:*","rate":2.5},{"by_cost":true,"name":"tokens","rate":1500}],` +
		`"topics":[{"name":"order.placed","queue":"logs"},{"headers":{"kind":["a*","*b"],"x.y":"1"},"name":"order.placed","queue":"orders"}]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestWhatIsWrongWithAQueueIsSaidInOneLine(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, x := range []struct{ text, want string }{
		{"[[queues]]\nname = \"a\"\n\n[[queues]]\nname = \"b\"\nvisibility = 3\n", ":6: a queue has no visibility; did you mean visibility_ms?"},
		{"[[queues]]\nname = \"a\"\nvisibility_ms = \"long\"\n", `:3: visibility_ms must be a whole number of at least 1, not "long"`},
		{"[[queues]]\nname = \"a\"\nvisibility_ms = 0\n", ":3: visibility_ms must be a whole number of at least 1, not 0"},
		{"[[queues]]\nname = \"a\"\nmax_attempts = 1.5\n", ":3: max_attempts must be a whole number of at least 0, not 1.5"},
		{"[[queues]]\nname = \"a\"\ndlq = true\n", ":3: dlq must be the name of a queue, or false for none, not true"},
		{"[[queues]]\nname = \"a\"\ndlq = \"a\"\n", `:3: dlq of "a" is the queue itself`},
		{"[[queues]]\nmax_attempts = 1\n", ":1: a queue needs a name"},
		{"[[queues]]\nname = 7\n", ":2: name must be text in quotes, not 7"},
		{"[[queues]]\nname = \"a\"\n[[queues]]\nname = \"a\"\n", `:3: queue "a" is defined already at `},
		{"[[queues]]\nname = \"a\"\non_failure = \"nowhere.lua\"\n", ":3: on_failure: open "},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\nheader = 1\n", ":4: a topic has no header; did you mean headers?"},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\npriority = 1\n", ":4: a topic has no priority; its fields are name queue headers"},
		{"[[queues]]\nname = \"a\"\n[[topics]]\nqueue = \"a\"\n", ":3: a topic needs a name"},
		{"[[topics]]\nname = \"t\"\n", ":1: a topic needs a queue"},
		{"[[topics]]\nname = \"t\"\nqueue = \"\"\n", `:3: queue must be text in quotes, not ""`},
		{"[[topics]]\nname = 1\nqueue = \"a\"\n", ":2: name must be text in quotes, not 1"},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\nheaders = \"kind\"\n", `:4: headers must be names and patterns, such as { kind = "goods" }, not "kind"`},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\nheaders = { kind = 1 }\n", `:4: the pattern of header "kind" must be text in quotes, or a list of such texts, not 1`},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\nheaders = { kind = [] }\n", `:4: header "kind" needs a pattern, "*" for any value`},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\nheaders = { kind = [\"ok\", \"[a\"] }\n", `:4: the pattern "[a" of header "kind" has a [ without its ]`},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\nheaders = { \"\" = \"x\" }\n", ":4: the name of a header has at least one byte"},
		{"[[topics]]\nname = \"t\"\nqueue = \"a\"\n\n[[topics]]\nname = \"t\"\nqueue = \"a\"\n", `:5: topic "t" has queue "a" already at `},
		{"[[throttles]]\nname = \"t\"\nrates = 1\n", ":3: a throttle has no rates; did you mean rate?"},
		{"[[throttles]]\nname = \"t\"\nrate = 0\n", ":3: rate must be a number above 0, not 0"},
		{"[[throttles]]\nname = \"t\"\nrate = \"5\"\n", `:3: rate must be a number above 0, not "5"`},
		{"[[throttles]]\nname = \"t\"\nconcurrency = 1.5\n", ":3: concurrency must be a whole number of at least 1, not 1.5"},
		{"[[throttles]]\nname = \"t\"\nconcurrency = 1\nadaptive = 1\n", ":4: adaptive must be true or false, not 1"},
		{"[[throttles]]\nrate = 1\n", ":1: a throttle needs a name"},
		{"[[throttles]]\nname = \"t\"\nburst = 1\n", `:1: throttle "t" needs a rate or a concurrency`},
		{"[[throttles]]\nname = \"t\"\nrate = 1\n\n[[throttles]]\nname = \"t\"\nrate = 1\n", `:5: throttle "t" is defined already at `},
		{"topics = 3\n", ": topics must be written as [[topics]], once for each"},
		{"queues = 3\n", ": queues must be written as [[queues]], once for each"},
		{"queues = [1]\n", ": queues must be written as [[queues]], once for each"},
		{"[[queues]\n", ":1:"},
	} {
		path := queuesFile(t, x.text)
		for _, args := range [][]string{{"queues", "apply", path}, {"--queues", path}, {"--server.queues_file", path}, {"--config", path}} {
			code, out, stderr := run(t, never(t), args...)
			if code != 2 || out != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "fila: "+path+x.want) {
				t.Errorf("%q: exit %d, said %q, want %q", args, code, stderr, x.want)
			}
		}
	}
	path := queuesFile(t, "[log]\nlevel = \"debug\"\n")
	if code, _, stderr := run(t, never(t), "queues", "apply", path); code != 2 || !strings.Contains(stderr, "only [[queues]], [[topics]] and [[throttles]] are allowed here, not log") {
		t.Errorf("exit %d, said %q", code, stderr)
	}
	for _, args := range [][]string{{"queues", "apply"}, {"queues", "apply", "a", "b"}, {"queues", "apply", "nowhere.toml"}, {"queues", "apply", queuesFile(t, ""), "--force"}, {"queues", "drop"}} {
		if code, _, stderr := run(t, never(t), args...); code != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, said %q", args, code, stderr)
		}
	}
}

func TestTheQueuesOfBothFilesAreApplied(t *testing.T) {
	t.Chdir(t.TempDir())
	own := queuesFile(t, "[[queues]]\nname = \"a\"\n\n[log]\nlevel = \"warn\"\n\n[[topics]]\nname = \"t\"\nqueue = \"a\"\n")
	more := queuesFile(t, "[[queues]]\nname = \"b\"\n[[topics]]\nname = \"t\"\nqueue = \"b\"\n")
	var got Config
	code, _, stderr := run(t, func(c Config) error { got = c; return nil }, "--config", own, "--queues", more)
	if q := got.Queues; code != 0 || len(q) != 2 || q[0].Fields["name"] != "a" || q[1].Fields["name"] != "b" {
		t.Errorf("exit %d, %v, said %q", code, q, stderr)
	}
	if b := got.Topics; len(b) != 2 || b[0].Fields["queue"] != "a" || b[1].Fields["queue"] != "b" {
		t.Errorf("bindings %v", b)
	}
	again := queuesFile(t, "[[topics]]\nname = \"t\"\nqueue = \"a\"\n")
	code, _, stderr = run(t, never(t), "--config", own, "--queues", again)
	if code != 2 || !strings.HasPrefix(stderr, "fila: "+again+`:1: topic "t" has queue "a" already at `+own+":7") {
		t.Errorf("exit %d, said %q", code, stderr)
	}
}
