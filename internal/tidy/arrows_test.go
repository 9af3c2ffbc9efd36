package tidy

import (
	"cmp"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// engineFiles lists the files of the engine from what others rest on to what uses them. The order is that which has the
// fewest arrows back up.
func engineFiles() []string {
	return []string{
		"snapshot.go", "queue_set.go", "config.go", "key.go", "core.go", "message.go", "health.go", "queue.go",
		"meta.go", "tasks.go", "wait.go", "outbox.go", "lease_table.go", "read.go", "work.go", "transaction.go",
		"reading.go", "due.go", "gather.go", "ids.go", "unique.go", "consumers.go", "signals.go", "bodies.go",
		"ordered.go", "removal.go", "time.go", "group_end.go", "topic.go", "preparer.go", "accounts.go",
		"operations.go", "replace.go", "charges.go", "counts.go", "budget_gate.go", "settings.go", "done.go",
		"holds.go", "history.go", "serve.go", "order.go", "enqueue_hook.go", "hooks.go", "lease.go", "throttles.go",
		"states.go", "groups.go", "dedup.go", "queue_apply.go", "figures.go", "keys.go", "enqueue.go", "prefetch.go",
		"cron.go", "result.go", "nack.go", "publish.go", "cron_tick.go", "jobs.go", "inspect.go", "browse.go",
		"redrive.go", "leases.go", "cancel.go", "recover.go", "machine.go", "stepper.go", "invariants.go",
	}
}

// arrowsUpMost is how many arrows of the engine run back up: from a file to one that is listed after it. It may only
// fall. Those of core.go lead to the types of its components.
const arrowsUpMost = 100

// An arrow leads from a file of a package to another that declares something the first one uses.
type arrow struct{ from, to string }

// arrowsOf returns the arrows between the files of a package, without tests, each once.
func arrowsOf(t *testing.T, dir string) map[arrow]bool {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	uses := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	check := types.Config{Importer: importer.ForCompiler(set, "gc", exports(t, dir))}
	pkg, err := check.Check(module+"/"+dir, set, files, uses)
	if err != nil {
		t.Fatal(err)
	}
	arrows := map[arrow]bool{}
	in := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
	for id, used := range uses.Uses {
		if used.Pkg() == pkg && in(id.Pos()) != in(used.Pos()) {
			arrows[arrow{in(id.Pos()), in(used.Pos())}] = true
		}
	}
	return arrows
}

// exports finds the compiled declarations of what a package imports.
func exports(t *testing.T, dir string) importer.Lookup {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "./"+dir)
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if p, file, found := strings.Cut(strings.TrimSpace(line), "\t"); found {
			where[p] = file
		}
	}
	return func(p string) (io.ReadCloser, error) { return os.Open(where[p]) }
}

// backUp returns the arrows that run back up in an order of files, and complains about files that it does not list.
func backUp(arrows map[arrow]bool, order []string) (up []arrow, complaints []string) {
	at := func(file string) int {
		i := slices.Index(order, file)
		if i < 0 {
			complaints = append(complaints, file+" is not in the order of files of internal/tidy/arrows_test.go: put it above what it uses")
		}
		return i
	}
	for a := range arrows {
		if from, to := at(a.from), at(a.to); from >= 0 && to >= 0 && from < to {
			up = append(up, a)
		}
	}
	slices.Sort(complaints)
	return up, slices.Compact(complaints)
}

func TestFewArrowsOfTheEngineRunBackUp(t *testing.T) {
	up, complaints := backUp(arrowsOf(t, "engine"), engineFiles())
	report(t, complaints)
	if len(up) > arrowsUpMost {
		slices.SortFunc(up, func(a, b arrow) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		t.Errorf("%d arrows run back up, at most %d: move what is used to where it belongs, of %v", len(up), arrowsUpMost, up)
	}
	if len(up) < arrowsUpMost {
		t.Errorf("%d arrows run back up: arrowsUpMost falls to that", len(up))
	}
}

func TestArrowsAreCounted(t *testing.T) {
	arrows := map[arrow]bool{{"b.go", "a.go"}: true, {"a.go", "c.go"}: true, {"c.go", "a.go"}: true, {"d.go", "a.go"}: true}
	up, complaints := backUp(arrows, []string{"a.go", "b.go", "c.go"})
	if !slices.Equal(up, []arrow{{"a.go", "c.go"}}) {
		t.Errorf("arrows back up are %v", up)
	}
	wantBreach(t, complaints, "d.go is not in the order")
}
