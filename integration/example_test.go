package integration_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// TestExampleFairnessPrintsWhatTheDocumentShows runs the example against the broker. Its output is
// that of the document, except for the time at which the noisy tenant is admitted again.
func TestExampleFairnessPrintsWhatTheDocumentShows(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "explanation", "fairness.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```text\n$ examples/fairness/run.sh\n")
	want, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/explanation/fairness.md does not show examples/fairness/run.sh")
	}
	host, port, err := net.SplitHostPort(kit.Serve(t, "--storage.engine", "memory").Addr())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second run finds no data of the first
		out, err := exec.CommandContext(t.Context(), filepath.Join("..", "examples", "fairness", "run.sh"), port, host).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := string(out)
		for _, line := range []string{
			"noisy 1, quiet 1, noisy 2, quiet 2, noisy 3, quiet 3,", // alternately, although a thousand of noisy are queued
			"noisy 15, quiet 11, quiet 12, quiet 13, (nothing)",     // one of noisy, all of quiet
			"state throttled", "throttle example:tenant:noisy", "ready_at 1",
		} {
			if !strings.Contains(got, line) {
				t.Errorf("%q is missing", line)
			}
		}
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		shown := strings.Split(strings.TrimSuffix(want, "\n"), "\n")
		for i := range max(len(lines), len(shown)) {
			if i >= len(lines) || i >= len(shown) || !sameLine(shown[i], lines[i], nil) {
				t.Fatalf("it prints:\n%s\nthe document shows:\n%s", got, want)
			}
		}
	}
}
