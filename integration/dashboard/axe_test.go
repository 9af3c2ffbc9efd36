package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/proto"
)

// axe is the source of axe-core, which looks for barriers.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("%v (make setup-dashboard fetches it)", err)
	}
	return string(text)
}

// accessible fails for each barrier that axe finds on the page as it is now. axe comes in through
// the debugger, as the policy lets no script in.
func (x *tab) accessible(source, where string) {
	x.t.Helper()
	if _, err := (proto.RuntimeEvaluate{Expression: source}).Call(x); err != nil {
		x.t.Fatal(err)
	}
	r, err := x.Eval(`async () => {
		const result = await axe.run(document, { resultTypes: ["violations"] });
		return result.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replaceAll("\n", " ") + " in " + n.html.slice(0, 160)));
	}`)
	if err != nil {
		x.t.Fatal(err)
	}
	var found []string
	for _, v := range r.Value.Arr() {
		found = append(found, v.Str())
	}
	if len(found) > 0 {
		x.t.Error(fmt.Sprintf("%s: axe finds %d barriers:\n", where, len(found)) + strings.Join(found[:min(6, len(found))], "\n"))
	}
}

// narrow fails if the page is wider than its window.
func (x *tab) narrow(where string) {
	x.t.Helper()
	r, err := x.Eval(`() => [document.documentElement.scrollWidth, innerWidth]`)
	if err != nil {
		x.t.Fatal(err)
	}
	if sizes := r.Value.Arr(); sizes[0].Int() > sizes[1].Int() {
		x.t.Errorf("%s: the page is %d wide in a window of %d", where, sizes[0].Int(), sizes[1].Int())
	}
}

// fits fails if a table stays wider than its place in a window of a usual size.
func (x *tab) fits(where string) {
	x.t.Helper()
	x.until(where+": every table has room", `() => [...document.querySelectorAll(".table")].every((t) => t.scrollWidth <= t.clientWidth)`)
}
