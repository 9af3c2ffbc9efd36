package cmdline_test

import (
	"crypto/sha1"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// exampleID is the id in examples; the test puts one in its place that is there.
const exampleID = "019b7748-d600-7000-8000-02d1a3a5b0c1"

// exampleVersion is the version of a script in examples.
const exampleVersion = "58d5e1f0c2a4b6987d3c1e5f7a9b0c2d4e6f8a10"

// version is that of the script that the broker has.
func version() string { return fmt.Sprintf("%x", sha1.Sum([]byte(hookSource))) }

// notRun are commands whose examples other tests cover, as they need no broker, stop one, or write
// where packages do.
func notRun() map[string]bool {
	return map[string]bool{
		"fila serve": true, "fila config": true, "fila bench": true, "fila check": true, "fila repair": true, "fila restore": true, "fila completion": true, "fila man": true,
		// of several nodes: integration/cluster_members_test.go
		"fila cluster status": true, "fila cluster transfer": true, "fila cluster remove": true, "fila cluster verify": true, "fila cluster learner": true, "fila cluster voter": true, "fila cluster detach": true, "fila cluster recover": true,
	}
}

// endless are commands that run until they are interrupted.
func endless(example string) bool {
	return regexp.MustCompile(`^fila (tail|web|push|scripts watch)\b`).MatchString(example)
}

// examples are the lines of docs/reference/cli.md that are typed, by command.
func examples(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		_, block, ok := strings.Cut(section, "\n```sh\n")
		if !ok {
			t.Errorf("%s has no examples", name)
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			all[name] = append(all[name], strings.TrimSpace(line))
		}
	}
	return all
}

// furnish gives the broker what the examples speak of, and returns the id of a message.
func (b *broker) furnish() string {
	b.t.Helper()
	b.clear()
	for _, words := range [][]string{
		{"FILA.QUEUE", "CREATE", "orders", "MAXATTEMPTS", "1"},
		{"FILA.QUEUE", "CREATE", "mails"},
		{"FILA.QUEUE", "CREATE", "thumbnails"},
		{"FILA.ENQUEUE", "orders", "dies", "KEY", "tenant-9"},
		{"FILA.KEY", "SET", "orders", "gold", "WEIGHT", "5"},
		{"FILA.THROTTLE", "SET", "provider:x", "RATE", "2.5"},
		{"FILA.BUDGET", "SET", "acme"},
		{"FILA.BUDGET", "CREDIT", "acme", "1000"},
		{"FILA.CRON", "SET", "morning", "mails", "30 6 * * *", "daily"},
		{"FILA.CONFIG", "SET", "weight:gold", "5", "maintenance", "off"},
		{"ACL", "SETUSER", "deploy", "on", "nopass", "~*", "&*", "+@all"},
		{"ACL", "SETUSER", "monitor", "on", "nopass", "+info"},
		{"FILA.TOPIC", "BIND", "order.placed", "thumbnails"},
		{"FILA.SIGNAL", "ADD", "provider:x", "refused"},
		{"FILA.SIGNAL", "ADD", "tenant-1", "failed"},
		{"FILA.SIGNAL", "ADD", "tenant-1", "pages"},
		{"FILA.GROUP", "OPEN", "import-7", "mails", "summary"},
		{"FILA.GROUP", "OPEN", "import-8", "mails", "summary"},
		{"FILA.GROUP", "OPEN", "import-9", "mails", "summary"},
		{"FILA.GROUP", "OPEN", "import-8", "mails", "summary"},
	} {
		b.do(words...)
	}
	dead := b.do("FILA.LEASE", "orders").([]any)[0].([]any)
	b.do("FILA.NACK", "orders", client.Text(dead[0]), "ERROR", "no such customer 17", "DEAD")
	b.do("FILA.SCRIPT", "LOAD", "orders", "ON_ENQUEUE", hookSource)
	return client.Text(b.do("FILA.ENQUEUE", "orders", `{"order": 16}`, "KEY", "tenant-7", "HEADER", "kind", "new", "DELAY", "3600000"))
}

// clear deletes all queues, those that are the dead-letter queues of others last.
func (b *broker) clear() {
	b.t.Helper()
	for _, last := range []bool{false, true} {
		for _, name := range client.Texts(b.do("FILA.QUEUE", "LIST")) {
			if last || b.info(name, "is_dlq") == 0 {
				b.do("FILA.QUEUE", "DELETE", name, "FORCE")
			}
		}
	}
}

const hookSource = "function on_enqueue(msg) return { weight = msg.headers.tier == 'gold' and 5 or 1 } end\n"

// files are those that the examples name.
func (b *broker) files() {
	b.t.Helper()
	for name, text := range map[string]string{
		"hooks/orders.on_enqueue.lua":     hookSource,
		"hooks/orders.on_enqueue.samples": `{"name": "gold", "headers": {"tier": "gold"}, "expect": {"weight": 5}}` + "\n",
		"queues.toml":                     "[[queues]]\nname = \"orders\"\nmax_attempts = 7\n",
		"resize.sh":                       "#!/bin/sh\ncat > /dev/null\n",
	} {
		path := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestEveryExampleWorks(t *testing.T) {
	b := serve(t)
	ran := 0
	for name, lines := range examples(t) {
		if notRun()[name] {
			continue
		}
		if len(lines) < 2 {
			t.Errorf("%s has %d examples, and should have two", name, len(lines))
		}
		if testing.Short() {
			lines = lines[:1]
		}
		for _, line := range lines {
			id := b.furnish()
			b.files()
			b.enough(name)
			typed := strings.NewReplacer(exampleID, id, exampleVersion, version(), "10.0.0.7:5555", b.Addr(), "clients kill 7", "clients kill "+b.victim()).Replace(line)
			if name == "fila health" {
				typed += " --timeout " + testkit.Patience().String() // in place of two seconds
			}
			ran++
			if endless(typed) {
				b.endsWhenInterrupted(typed)
				continue
			}
			_, stderr, code := b.typed("set -o pipefail; " + typed)
			found := strings.Contains(typed, "queues plan") || name == "fila doctor"
			if wanted := map[bool]int{true: 3}[found]; code != wanted {
				t.Errorf("%s: exit code %d, said %s", typed, code, stderr)
			}
		}
	}
	if enough := map[bool]int{false: 100, true: 50}[testing.Short()]; ran < enough {
		t.Errorf("only %d examples were run", ran)
	}
}

// enough gives the commands that wait for something what they wait for.
func (b *broker) enough(name string) {
	if name == "fila work" || name == "fila peek" {
		b.do("FILA.ENQUEUE", "orders", "work", "KEY", "tenant-7")
	}
	if name == "fila queues delete" {
		b.do("FILA.CRON", "DEL", "morning")
	}
	if name == "fila throttles release" {
		b.do("FILA.THROTTLE", "HOLD", "provider:x", "60000")
	}
}

// victim connects a client and returns its id.
func (b *broker) victim() string {
	conn, err := client.Dial(b.t.Context(), b.Addr(), client.Options{Name: "stuck"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return conn.Hello().Text("id")
}

// endsWhenInterrupted runs a command until it is connected, and interrupts it.
func (b *broker) endsWhenInterrupted(line string) {
	b.t.Helper()
	ids := regexp.MustCompile(`\bid=(\d+)`)
	clients := func() []string { return ids.FindAllString(client.Text(b.do("CLIENT", "LIST")), -1) }
	before := clients()
	cmd := b.shell("exec " + line)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	testkit.Eventually(b.t, line+" has connected", func() bool {
		return slices.ContainsFunc(clients(), func(id string) bool { return !slices.Contains(before, id) })
	})
	if code := interrupt(b.t, cmd, syscall.SIGINT); code != 0 {
		b.t.Errorf("%s: exit code %d after an interrupt", line, code)
	}
}
