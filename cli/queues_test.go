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
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "orders.lua"), []byte("-- a script"), 0o600); err != nil {
		t.Fatal(err)
	}
	queues, err := loadQueues(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Definition(queues)
	if want := `{"queues":[{"name":"orders","on_enqueue":"-- a script","visibility_ms":60000},{"dlq":false,"name":"logs"}]}`; err != nil || string(got) != want {
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
	if code, _, stderr := run(t, never(t), "queues", "apply", path); code != 2 || !strings.Contains(stderr, "only [[queues]] are allowed here, not log") {
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
	own := queuesFile(t, "[[queues]]\nname = \"a\"\n\n[log]\nlevel = \"warn\"\n")
	more := queuesFile(t, "[[queues]]\nname = \"b\"\n")
	var got []Queue
	code, _, stderr := run(t, func(c Config) error { got = c.Queues; return nil }, "--config", own, "--queues", more)
	if code != 0 || len(got) != 2 || got[0].Fields["name"] != "a" || got[1].Fields["name"] != "b" {
		t.Errorf("exit %d, %v, said %q", code, got, stderr)
	}
}
