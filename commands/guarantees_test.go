package commands

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The table of what a command may cost, in docs/guarantees.md, has each command once, and
// says of it what its Spec says: whether it takes more than what is small, and whether the
// loop has anything to do with it.
func TestTheTableOfCostsHasEachCommandAsItIs(t *testing.T) {
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	r := newRegistry(table())
	for _, row := range costRows(string(text)) {
		small := strings.HasPrefix(row[1], "4 KiB")
		for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(row[0], -1) {
			name := strings.Trim(quoted, "`")
			c := r.resolve([]byte(strings.ReplaceAll(strings.ToLower(name), " ", "|")))
			if c == nil || c.display != name {
				t.Errorf("there is no command %q", name)
				continue
			}
			seen[name]++
			if small != (c.spec.Room == nil) {
				t.Errorf("%s: the table has %q of its memory, and its Spec says otherwise", name, row[1])
			}
			if local := c.spec.Local != nil; local != (row[2] == "none") {
				t.Errorf("%s: the table has %q of the loop, and the connection answers it: %v", name, row[2], local)
			}
		}
	}
	for _, c := range everyCommand() {
		if c.spec.Local == nil && c.spec.Parse == nil || c.spec.Name == "HELP" {
			continue
		}
		if n := seen[c.display]; n != 1 {
			t.Errorf("%s stands in %d rows", c.display, n)
		}
	}
}

// costRows returns the cells of the table's rows.
func costRows(text string) (rows [][]string) {
	_, table, _ := strings.Cut(text, "| command | memory |")
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 4 && strings.HasPrefix(line, "| `") {
			rows = append(rows, cells)
		}
	}
	return rows
}
