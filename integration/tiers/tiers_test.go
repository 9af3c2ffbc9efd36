package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// execute runs phases in a directory of the test.
func execute(ctx context.Context, t *testing.T, lanes int, phases ...phase) (ok bool, results map[string]result, text string) {
	t.Helper()
	root := t.TempDir()
	var out bytes.Buffer
	r := &run{root: root, tier: "tier", logs: filepath.Join(root, "logs"), out: &out}
	ok, err := r.phases(ctx, phases, lanes)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return ok, r.results, out.String()
}

func shell(name, script string, needs ...string) phase {
	return phase{name: name, args: []string{"sh", "-c", script}, needs: needs}
}

func TestAFailureLeavesOutWhatNeedsIt(t *testing.T) {
	ok, results, text := execute(t.Context(), t, 2,
		shell("bad", "echo what was wrong; exit 3"), shell("after", "true", "bad"), shell("behind", "true", "after"), shell("good", "echo fine"))
	if ok {
		t.Error("a run with a failure has passed")
	}
	for name, want := range map[string]state{"bad": failed, "after": left, "behind": left, "good": passed} {
		if got := results[name].state; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if !strings.Contains(text, "what was wrong") || strings.Contains(text, "fine\n") {
		t.Errorf("it has printed\n%s", text)
	}
	if !strings.HasSuffix(text, "\nfailed: bad\n\n0 passed, 0 failed, 0 skipped\n") {
		t.Errorf("its last lines are not what has failed and the sum\n%s", text)
	}
}

// tools/env chooses a go.mod for the runner where RocksDB needs another binding. It is none of other modules.
func TestPhasesDoNotGetTheBindingOfTheRunner(t *testing.T) {
	t.Setenv("GOFLAGS", "-buildvcs=false '-modfile=/a b/.cache/bindings/v1.10.1.mod'")
	if ok, _, text := execute(t.Context(), t, 1, shell("flags", `echo "$GOFLAGS"; [ "$GOFLAGS" = -buildvcs=false ]`)); !ok {
		t.Error(text)
	}
}

// Two phases can wait for each other only if they run at the same time.
func TestLanesRunAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	await := func(own, other string) string {
		return "cd " + dir + " && mkfifo " + own + " 2>/dev/null; touch " + own + ".here; while ! [ -e " + other + ".here ]; do sleep 0.01; done"
	}
	if ok, _, text := execute(t.Context(), t, 2, shell("a", await("a", "b")), shell("b", await("b", "a"))); !ok {
		t.Error(text)
	}
}

func TestAPhaseAloneHasNothingBesideIt(t *testing.T) {
	dir := t.TempDir()
	mark := "cd " + dir + " && mkdir busy && rmdir busy"
	alone := shell("alone", mark)
	alone.alone = true
	phases := []phase{alone}
	for _, name := range []string{"a", "b", "c"} {
		x := shell(name, mark)
		x.alone = true
		phases = append(phases, x)
	}
	if ok, _, text := execute(t.Context(), t, 4, phases...); !ok {
		t.Error(text)
	}
}

func TestAnInterruptEndsWhatRuns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "begun")
	go func() {
		for {
			if _, err := os.Stat(file); err == nil {
				cancel()
				return
			}
		}
	}()
	ok, results, _ := execute(ctx, t, 1, shell("long", "touch "+file+"; sleep 3600"), shell("next", "true"))
	if ok || results["long"].state != left || results["next"].state != left {
		t.Errorf("ok %v, %v", ok, results)
	}
}

// The output of a failing test is repeated, that of others is not; parts of tests are not counted.
func TestEventsOfTestsAreTakenApart(t *testing.T) {
	r := newReader(&bytes.Buffer{})
	for _, line := range []string{
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"bad.go:7: broken\n"}`,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"chatter\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood/part","Elapsed":1}`,
		`{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":2}`,
		`{"Action":"skip","Package":"p","Test":"TestLater","Elapsed":0}`,
		`{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":3}`,
		`{"Action":"output","Package":"q","Test":"TestDied","Output":"panic: boom\n"}`,
		`{"Action":"build-output","ImportPath":"r","Output":"r.go:1: syntax error\n"}`,
		`a line of another program`,
	} {
		if _, err := r.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	c, slowest, failure := r.close()
	if c != (counts{1, 1, 1}) {
		t.Errorf("counted %+v", c)
	}
	if len(slowest) != 3 || slowest[0].name != "TestBad" {
		t.Errorf("the slowest are %v", slowest)
	}
	for _, want := range []string{"bad.go:7: broken", "panic: boom", "syntax error", "a line of another program"} {
		if !strings.Contains(string(failure), want) {
			t.Errorf("%q is not in\n%s", want, failure)
		}
	}
	if strings.Contains(string(failure), "chatter") {
		t.Errorf("the output of a test that has passed is in\n%s", failure)
	}
}

func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeIsWhatDiffersFromItsBase(t *testing.T) {
	t.Setenv(baseVariable, "") // it is put back, whatever this run is compared with
	if err := os.Unsetenv(baseVariable); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	commit := func(name, text string) {
		write(t, dir, name, text)
		gitIn(t, dir, "add", "--all")
		gitIn(t, dir, "commit", "-qm", name)
	}
	want := func(what string, files ...string) {
		t.Helper()
		got, err := changes(t.Context(), dir)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, files) {
			t.Errorf("%s: %v, want %v (%v)", what, got, files, err)
		}
	}
	want("no repository")
	gitIn(t, dir, "init", "-q")
	commit("a", "1")
	want("the first commit")
	commit("b", "1")
	want("the newest commit, without origin/main", "b")
	gitIn(t, dir, "update-ref", "refs/remotes/origin/main", "HEAD")
	want("on main, the newest commit", "b")
	commit("c", "1")
	commit("d", "1")
	want("the commits since origin/main", "c", "d")
	write(t, dir, "a", "2")
	want("what is not committed as well", "a", "c", "d")
	t.Setenv(baseVariable, "HEAD~3")
	want("since a base that is named", "a", "b", "c", "d")
	t.Setenv(baseVariable, "nothing")
	if _, err := changes(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "BASE=nothing") {
		t.Errorf("a base that does not exist: %v", err)
	}
}

func TestAdaptersAreTestedAtLengthWhenWhatTheyDependOnHasChanged(t *testing.T) {
	for file, want := range map[string]bool{
		"adapters/celery/celery_fila/transport.py": true,
		"commands/lease.go":                        true,
		"adapters/README.md":                       false,
		"docs/commands/lease.go":                   false,
		"engine/lease.go":                          false,
	} {
		if got := touchesAdapters([]string{"LICENSE", file}); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
	if touchesAdapters(nil) {
		t.Error("nothing has changed")
	}
}

func TestPackagesAreInstalledWhenOneHasChanged(t *testing.T) {
	for file, want := range map[string]bool{
		"adapters/go/README.md": true, "adapters/node/index.js": true, "tools/packages/pack.go": true,
		"commands/lease.go": false, "docs/README.md": false,
	} {
		if got := touchesPackages([]string{"LICENSE", file}); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

func TestTheChartIsRenderedWhenItHasChanged(t *testing.T) {
	for file, want := range map[string]bool{
		"deploy/chart/values.yaml": true, "deploy/Dockerfile": true, "cli/settings.go": true, "cli/show.go": false, "commands/lease.go": false,
	} {
		if got := touchesChart([]string{"LICENSE", file}); got != want {
			t.Errorf("%s: %v", file, got)
		}
		if whole := len((&project{}).lint([]string{file}).args) == 3; whole != want {
			t.Errorf("%s: all modules are linted: %v", file, whole)
		}
	}
	if whole := len((&project{}).lint([]string{".golangci.yml"}).args) == 3; !whole {
		t.Error("other rules do not have all modules linted")
	}
}

// Each change of a file, also of one that git does not know yet, has the phases run again.
func TestAPhaseIsRecalledForTheSameSourcesOnly(t *testing.T) {
	dir := t.TempDir()
	gitIn(t, dir, "init", "-q")
	write(t, dir, ".gitignore", "/.cache/\n")
	write(t, dir, "a", "1")
	gitIn(t, dir, "add", "--all")
	gitIn(t, dir, "commit", "-qm", "a")
	remembers := func() bool {
		t.Helper()
		m, err := recall(t.Context(), dir, false)
		if err != nil {
			t.Fatal(err)
		}
		res, ok := m.passed("p")
		if ok && (res.state != earlier || res.counts.Passed != 5) {
			t.Errorf("recalled %+v", res)
		}
		if err := m.keep(result{phase: "p", counts: counts{Passed: 5}}); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if remembers() {
		t.Error("a phase that has never run is recalled")
	}
	if !remembers() {
		t.Error("a phase with the same sources is not recalled")
	}
	for _, change := range [][2]string{{"a", "2"}, {"new", "1"}, {"new", "2"}} {
		write(t, dir, change[0], change[1])
		if remembers() {
			t.Errorf("a phase is recalled after %s became %s", change[0], change[1])
		}
	}
	m, err := recall(t.Context(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.passed("p"); ok {
		t.Error("a phase is recalled although it shall run again")
	}
}

func TestPhasesAreChosenWithWhatTheyNeed(t *testing.T) {
	all := []phase{{name: "build"}, {name: "site"}, {name: "dashboard", needs: []string{"build", "site"}}, {name: "race"}}
	got, err := choose(all, []string{"dashboard"})
	if err != nil || !slices.Equal(namesOf(got), []string{"build", "site", "dashboard"}) {
		t.Errorf("%v, %v", namesOf(got), err)
	}
	if _, err := choose(all, []string{"rase"}); err == nil || !strings.Contains(err.Error(), "build, site, dashboard, race") {
		t.Error(err)
	}
}

// Every package is tested by one phase of `make test`: no test is left out, and none runs twice.
func TestEveryPackageIsInOnePhase(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProject(t.Context(), root, 1)
	if err != nil {
		t.Fatal(err)
	}
	short, err := p.test(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string][]string{}
	for _, x := range short {
		if x.name == "fault" || x.name == "notrace" || slices.Contains(x.args, "-run") {
			continue // other builds, and parts of packages
		}
		for _, arg := range x.args {
			if slices.Contains(p.pkgs, arg) {
				seen[arg] = append(seen[arg], x.name)
			}
		}
	}
	for _, pkg := range p.pkgs {
		if len(seen[pkg]) != 1 {
			t.Errorf("%s is tested by %v", pkg, seen[pkg])
		}
	}
	for _, tier := range [][]phase{p.quick(), short, p.prove()} {
		names := namesOf(tier)
		if slices.Sort(names); len(slices.Compact(names)) != len(tier) {
			t.Errorf("two phases have one name: %v", names)
		}
		for _, x := range tier {
			for _, needed := range x.needs {
				if !slices.Contains(names, needed) {
					t.Errorf("%s needs %s, which is no phase", x.name, needed)
				}
			}
		}
	}
}

func TestTestsWithoutTheRaceDetectorAreFoundByTheConstraintOfTheirFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a_test.go", "//go:build !race\n\npackage a\n\nfunc TestOne(t *testing.T) {}\nfunc FuzzTwo(f *testing.F) {}\nfunc BenchmarkThree(b *testing.B) {}\nfunc TestMain(m *testing.M) {}\n")
	write(t, dir, "b_test.go", "package a\n\nfunc TestFour(t *testing.T) {}\n")
	if got, err := unraced(dir); err != nil || !slices.Equal(got, []string{"TestOne", "FuzzTwo"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// A test of the store in which goroutines meet is run under the race detector.
func TestTestsOfTheStoreWithGoroutinesRunUnderTheDetector(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, store, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	racing, starts := regexp.MustCompile(storeRacing), regexp.MustCompile(`\bgo func|\bgo [a-z]\w*\(|\.Go\(`)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\nfunc ") {
			name, body, _ := strings.Cut(part, "(")
			if !strings.HasPrefix(name, "Test") || !starts.MatchString(body) {
				continue
			}
			if found++; !racing.MatchString(name) {
				t.Errorf("%s starts goroutines, and the names of integration/tiers/phases.go do not match it", name)
			}
		}
	}
	if found == 0 {
		t.Error("none was found")
	}
}
