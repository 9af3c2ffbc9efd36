package clients_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

//nolint:gochecknoglobals // flags of the test binary are global
var update = flag.Bool("update", false, "write the matrix into docs/reference/clients.md")

// The values of a cell: it works, or it is impossible for a reason given in the document.
const (
	works = "✓"
	none  = "–"
)

// columns returns the names of the columns.
func columns() []string {
	names := []string{"connect"}
	for _, each := range rows() {
		names = append(names, each.name)
	}
	return append(names, "reconnect", "RESP2", "RESP3")
}

// matrix returns the results as a table.
func matrix(all []client, seen []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| client | version | language | %s |\n|---|---|---|%s\n", strings.Join(columns(), " | "), strings.Repeat("---|", len(columns())))
	for i, c := range all {
		cells := []string{c.name, seen[i].version, c.language}
		for _, name := range columns() {
			cells = append(cells, seen[i].cells[name])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// document compares docs/reference/clients.md with the results, if all clients were tested. The versions in
// it are those of the last update.
func document(t *testing.T, all []client, seen []*result) {
	t.Helper()
	for i, c := range all {
		if seen[i] == nil {
			t.Logf("%s was not tried, so the matrix is not compared", c.name)
			return
		}
	}
	made := matrix(all, seen)
	t.Logf("\n%s", made)
	if t.Failed() {
		return
	}
	path := filepath.Join("..", "..", "docs", "reference", "clients.md")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- The matrix: `make clients` writes it. -->\n\n", "\n<!-- End of the matrix. -->"
	before, rest, found := strings.Cut(string(old), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the matrix", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+made+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	versions := regexp.MustCompile(`(?m)^(\| [^|]+ \|) [^|]+ \|`)
	if strip := func(s string) string { return versions.ReplaceAllString(s, "$1") }; strip(shown) != strip(made) {
		t.Errorf("%s shows another matrix; make clients writes it", path)
	}
}
