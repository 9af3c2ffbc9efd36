//go:build !race

package commands

import (
	"os"
	"testing"

	"github.com/faisca/fila/internal/broker/compat"
)

// The pages of commands by task and of errors follow from the tables. `make docs` writes them.
func TestThePagesOfCommandsAndErrorsAreFresh(t *testing.T) {
	if wrong := compat.Unsorted(Describe()); len(wrong) > 0 {
		t.Errorf("internal/broker/compat/tasks.go has to name each command once, not so: %q", wrong)
	}
	for _, e := range compat.ErrorCodes() {
		if e.When == "" || e.Do == "" {
			t.Errorf("internal/broker/compat/codes.go: say when %s comes, and what to do", e.Code)
		}
	}
	for file, want := range map[string]string{
		"../docs/reference/commands.md": compat.Tasks(Describe()),
		"../docs/reference/errors.md":   compat.Errors(),
	} {
		if *rewrite {
			if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is stale (%v), write it anew: make docs", file, err)
		}
	}
}
