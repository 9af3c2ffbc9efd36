package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// TestQueuesAreAppliedFromAFile: the plan is printed, a dry run changes nothing, applied settings
// are visible to redis-cli and survive kill -9, and a refused file changes nothing.
func TestQueuesAreAppliedFromAFile(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	file := filepath.Join(t.TempDir(), "queues.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(want string, code int, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), kit.Binary(t), append([]string{"queues", "apply", file, "--addr", b.Addr()}, args...)...)
		out, _ := cmd.CombinedOutput()
		if string(out) != want || cmd.ProcessState.ExitCode() != code {
			t.Errorf("%q: exit %d, said\n%swant\n%s", args, cmd.ProcessState.ExitCode(), out, want)
		}
	}
	names := func(want string) {
		t.Helper()
		if out, _ := cli(t, b.Addr(), "", "FILA.QUEUE", "LIST"); strings.Join(strings.Fields(out), " ") != want {
			t.Errorf("there are %q, want %q", out, want)
		}
	}
	write("[[queues]]\nname = \"orders\"\nvisibility_ms = 60000\n\n[[queues]]\nname = \"logs\"\ndlq = false\nmax_depth = 10\n")
	plan := "+ create logs max_depth 10\n+ create orders visibility_ms 60000, dlq orders.dlq\n+ create orders.dlq visibility_ms 60000, is_dlq 1\n"
	apply(plan, 3, "--dry-run")
	names("")
	apply(plan+"applied\n", 0)
	kit.Kill(t, b)
	kit.Start(t, b)
	names("logs orders orders.dlq")
	wantShown(t, shown(t, b.Addr(), "FILA.QUEUE", "INFO", "orders"), map[string]any{"visibility_ms": 60000, "dlq": "orders.dlq"})
	apply("nothing to do\n", 0)
	apply("nothing to do\n", 0, "--dry-run")

	if out, code := cli(t, b.Addr(), "", "-e", "FILA.ENQUEUE", "logs", "x"); code != 0 {
		t.Fatal(out)
	}
	write("[[queues]]\nname = \"orders\"\nmax_attempts = 3\n\n[[queues]]\nname = \"new\"\ndlq = \"orders.dlq\"\n")
	alter := "+ create new dlq orders.dlq\n~ alter orders visibility_ms 60000 → 30000, max_attempts 10 → 3\n"
	apply(alter, 3, "--dry-run")
	apply("fila: INVALID \"logs\": the queue still holds messages, use FORCE to delete them with it\n", 1, "--prune")
	names("logs orders orders.dlq")
	apply(alter+"- delete logs with 1 message\napplied\n", 0, "--prune", "--force")
	names("new orders orders.dlq")

	// Queues are applied at start only, without deletions.
	kit.Kill(t, b)
	write("[[queues]]\nname = \"started\"\n")
	dir := t.TempDir()
	c := kit.Connect(t, kit.Serve(t, "--queues", file).Addr(), 2)
	if got := fmt.Sprint(kit.Do(t, c, "FILA.QUEUE", "LIST")); got != "[started started.dlq]" {
		t.Errorf("started with %s", got)
	}
	for text, want := range map[string]string{
		"[[queues]]\nname = \"good\"\n\n[[queues]]\nname = \"bad\"\ndlq = \"other\"\n\n[[queues]]\nname = \"other\"\ndlq = \"third\"\n": "queue \"other\"",
		"[[queues]]\nname = \"good\"\nvisibility_ms = -1\n":                                                                             "visibility_ms must be",
	} {
		write(text)
		cmd := exec.CommandContext(t.Context(), kit.Binary(t), "--server.listen_addr", "127.0.0.1:0", "--storage.path", filepath.Join(dir, "other"), "--queues", file)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), want) {
			t.Errorf("exit %d, said %s", code, out)
		}
	}
	kit.Start(t, b)
	names("new orders orders.dlq")
}
