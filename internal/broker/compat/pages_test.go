package compat

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/faisca/fila/commands"
)

// rewrite is a flag of the test binary.
var rewrite = flag.Bool("rewrite", false, "write the documents anew") //nolint:gochecknoglobals // flags have to be known before tests run

// The pages of commands by task and of errors follow from the tables. `make docs` writes them.
func TestThePagesOfCommandsAndErrorsAreFresh(t *testing.T) {
	if wrong := unsorted(commands.Describe()); len(wrong) > 0 {
		t.Errorf("internal/broker/compat/tasks_test.go has to name each command once, not so: %q", wrong)
	}
	for _, e := range ErrorCodes() {
		if e.When == "" || e.Do == "" {
			t.Errorf("internal/broker/compat/codes.go: say when %s comes, and what to do", e.Code)
		}
	}
	for file, want := range map[string]string{
		"../../../docs/reference/commands.md": tasksPage(commands.Describe()),
		"../../../docs/reference/errors.md":   errorsPage(),
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

// The table of costs in docs/explanation/guarantees.md follows from the Specs. `make docs` writes it.
func TestTheTableOfCostsIsThatOfTheSpecs(t *testing.T) {
	const file, begin, end = "../../../docs/explanation/guarantees.md", "<!-- Generated from the command table by `make docs`. -->\n", "<!-- End of the generated part. -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	costs, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatal("docs/explanation/guarantees.md has no generated part")
	}
	want := "\n" + costsTable(commands.Describe()) + "\n"
	if *rewrite {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if costs != want {
		t.Error("the table of costs in docs/explanation/guarantees.md is stale, write it anew: make docs")
	}
}
