package tracing

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/how-to/tracing.md") //nolint:gochecknoglobals // a flag of this test

// The tables of the document are those of the code. `make docs` writes them.
func TestTheDocumentHasTheTablesOfTheCode(t *testing.T) {
	const file, begin, end = "../../../docs/how-to/tracing.md", "from internal/ops/tracing/markdown_test.go. -->\n", "<!-- End of the generated part. -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	tables, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatal("docs/how-to/tracing.md has no generated part")
	}
	want := "\n" + Markdown() + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if tables != want {
		t.Error("docs/how-to/tracing.md does not have the tables of internal/ops/tracing/markdown_test.go: run `make docs`")
	}
}
