package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/faisca/fila"

// hangs is when the tests of a package are taken to hang: far beyond what they take on a small and busy
// machine.
const hangs = "1h"

// racing lists the packages in whose tests goroutines meet. They run under the race detector, all others
// without.
func racing() []string {
	return []string{
		"resp", "commands", "engine/loop", "storage", "cli/remote", "cli/top", "cli/worker", "internal/ops/admin",
		"internal/broker", "internal/cluster", "internal/events", "engine/internal/mailbox", "internal/cluster/relay", "engine/signals",
		"internal/ops/telemetry",
	}
}

// store is the package of the store, whose tests take long under the detector. Only those in which goroutines
// meet run under it.
const (
	store       = "storage/rocks"
	storeRacing = "ThreadsOfTheStore|DeletionsGoOnWhileSpaceIsMade|ACheckpointIsTheStore|ACopyOfALogThatIsBeing|AProbeMayBeRemoved|LanesBesideReaders|WhileEverybodyReads|RocksIsAStore|AForgottenFlush|AFlushBesideAnother"
)

// driving lists the packages whose tests start processes, above all the broker; the folder integration is another.
func driving() []string {
	return []string{
		"integration/clients", "integration/cmdline", "integration/damage", "integration/demo",
		"integration/metrics", "integration/systems", "integration/torture",
	}
}

// goAdapters lists the adapters in Go, each a module of its own.
func goAdapters() []string { return []string{"go", "watermill", "gocloud", "sqs", "postgres"} }

// frameworks lists the adapters that have a script which runs their tests.
func frameworks() []string {
	return []string{"celery", "python", "activejob", "node", "symfony", "nestjs"}
}

// project is what the commands of phases are made from.
type project struct {
	root string
	p    string // for go test -p: packages at a time beside another lane
	pkgs []string
}

func newProject(ctx context.Context, root string, lanes int) (*project, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "./...")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	p := &project{root: root, p: strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/lanes))}
	for pkg := range strings.FieldsSeq(string(out)) {
		p.pkgs = append(p.pkgs, "./"+strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"))
	}
	for _, pkg := range paths(slices.Concat(racing(), driving(), slow())) {
		if !slices.Contains(p.pkgs, pkg) {
			return nil, fmt.Errorf("%s is in a list of integration/tiers/phases.go and does not exist", pkg)
		}
	}
	return p, nil
}

// paths returns the arguments of the Go command for packages.
func paths(pkgs []string) []string {
	var all []string
	for _, pkg := range pkgs {
		all = append(all, "./"+pkg)
	}
	return all
}

// blackBox is the package that tests the broker from outside.
const blackBox = "./integration"

// others returns all packages that are not in a list: a new package is tested without being named.
func (p *project) others(lists ...[]string) []string {
	named := append(paths(slices.Concat(lists...)), blackBox)
	return slices.DeleteFunc(slices.Clone(p.pkgs), func(pkg string) bool { return slices.Contains(named, pkg) })
}

// How tests are built.
var (
	pure = []string{"CGO_ENABLED=0"} //nolint:gochecknoglobals // a constant
	cgo  = []string{"CGO_ENABLED=1"} //nolint:gochecknoglobals // a constant
)

// goTest is a phase of the Go command in the root. Nothing is taken from its cache: the tests that drive the
// broker run a binary whose sources the Go command does not see them depend on.
func (p *project) goTest(name string, env []string, args ...string) phase {
	return phase{name: name, env: env, args: slices.Concat([]string{"tools/env", "go", "test", "-json", "-count=1", "-timeout", hangs, "-p", p.p}, args)}
}

// inModule is a phase of the Go command in a module of its own.
func (p *project) inModule(name, dir string, args ...string) phase {
	return phase{name: name, dir: dir, env: pure, args: slices.Concat([]string{"go", "test", "-json", "-count=1", "-timeout", hangs, "-p", p.p}, args, []string{"./..."})}
}

func (p *project) make(name string, args ...string) phase {
	return phase{name: name, args: slices.Concat([]string{"make", "--no-print-directory"}, args)}
}

// driven has a phase run after the broker is built, with it.
func (p *project) driven(x phase) phase {
	x.needs = append(x.needs, "build")
	x.env = append(slices.Clone(x.env), "TEST_BROKER="+filepath.Join(p.root, "bin", "fila"))
	return x
}

// tier returns the phases of a tier.
func (p *project) tier(ctx context.Context, name string) ([]phase, error) {
	switch name {
	case "quick":
		return p.quick(), nil
	case "test", "check":
		changed, err := changes(ctx, p.root)
		if err != nil {
			return nil, err
		}
		phases, err := p.test(changed)
		if name == "check" {
			phases = append([]phase{p.lint(changed)}, phases...)
		}
		return phases, err
	case "prove":
		return p.prove(), nil
	}
	return nil, errors.New("no tier " + name + ": it is quick, test, check or prove")
}

// lint leaves the module out that renders the chart when neither has changed: Helm's library is a fifth of what the linter compiles.
func (p *project) lint(changed []string) phase {
	if touchesChart(changed) || touches(changed, ".golangci.yml", "tools/go.mod") {
		return p.make("lint", "lint")
	}
	return p.make("lint", "lint", "UNLINTED=./integration/chart/...")
}

// slow lists the packages whose tests take the longest, those that wait for elections first. The quick run starts
// with them, and with one package more at a time than there are cores: else it ends with one package that waits.
func slow() []string { return []string{"internal/cluster", "engine", "commands"} }

// quick is what needs neither cgo nor a process, without the simulations that have to find planted faults: they test other tests.
func (p *project) quick() []phase {
	atATime := strconv.Itoa(runtime.GOMAXPROCS(0) + 1)
	return []phase{
		{name: "packages", env: pure, args: slices.Concat([]string{"go", "test", "-json", "-short", "-skip", "FindsPlantedFaults$", "-p", atATime}, paths(slow()), p.others(driving(), slow()))},
		p.notrace(),
	}
}

// The packages with build tags of their own.
func (p *project) notrace() phase {
	return p.goTest("notrace", pure, "-short", "-tags", "notrace", "./internal/ops/tracing")
}

func (p *project) fault() phase {
	return p.goTest("fault", pure, "-tags", "fault", "./internal/fault")
}

// test is what every change has to pass.
func (p *project) test(changed []string) ([]phase, error) {
	unraced, err := p.unraced("-short")
	if err != nil {
		return nil, err
	}
	phases := []phase{
		p.make("build", "build"),
		p.driven(p.goTest("broker", cgo, "-short", blackBox)),
		p.race("-short"),
		p.driven(p.goTest("processes", cgo, append([]string{"-short"}, paths(driving())...)...)),
		p.goTest("rocks", cgo, "-short", "-skip", storeRacing, "./"+store),
		p.goTest("rocks-race", cgo, "-race", "-short", "-run", storeRacing, "./"+store),
		p.goTest("packages", cgo, append([]string{"-short"}, p.others(racing(), driving(), []string{store})...)...),
		p.fault(), p.notrace(),
	}
	phases = slices.Concat(phases, unraced, p.modules())
	phases = append(phases, p.make("site", "site"), p.dashboard(true))
	phases = append(phases, p.adapters(!touchesAdapters(changed))...)
	if touchesPackages(changed) {
		phases = append(phases, p.readmes())
	}
	if touchesChart(changed) {
		phases = append(phases, p.chart())
	}
	return phases, nil
}

// modules are the modules of their own whose tests need no more than Go.
func (p *project) modules() []phase {
	return []phase{
		p.driven(p.inModule("peers", "integration/peers")), p.inModule("ui", "internal/ops/admin/ui/build"), p.inModule("pages", "tools/site"),
		p.inModule("adapters-packages", "tools/packages"),
	}
}

// race runs the tests of packages in which goroutines meet under the race detector. Files with the constraint
// !race have those in which one goroutine works at a time: there the detector finds nothing, and takes long.
func (p *project) race(args ...string) phase {
	return p.goTest("race", cgo, slices.Concat([]string{"-race"}, args, paths(racing()))...)
}

// unraced returns a phase for each of these packages that has files with the constraint !race: the tests of those.
func (p *project) unraced(args ...string) ([]phase, error) {
	var phases []phase
	for _, pkg := range racing() {
		names, err := unraced(filepath.Join(p.root, pkg))
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			phases = append(phases, p.goTest(path.Base(pkg), cgo, slices.Concat(args, []string{"-run", "^(" + strings.Join(names, "|") + ")$", "./" + pkg})...))
		}
	}
	return phases, nil
}

// function matches what the Go command runs as a test.
var function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// unraced returns the tests of a package that are not built with the race detector.
func unraced(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(text), "//go:build !race\n") {
			continue
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "TestMain" {
				names = append(names, m[1])
			}
		}
	}
	return names, nil
}

// shortened returns the flag of short tests.
func shortened(short bool) []string {
	if short {
		return []string{"-short"}
	}
	return nil
}

// chart renders the Helm chart.
func (p *project) chart() phase { return p.driven(p.inModule("chart", "integration/chart")) }

// dashboard drives the dashboard and the site of the documents in Chromium.
func (p *project) dashboard(short bool) phase {
	x := p.driven(p.inModule("dashboard", "integration/dashboard", shortened(short)...))
	x.needs = append(x.needs, "site")
	return x
}

// adapters let the frameworks' own suites drive the adapters and a real broker.
func (p *project) adapters(short bool) []phase {
	var phases []phase
	for _, name := range goAdapters() {
		// With the tag the suite of Watermill waits five times as long for messages.
		phases = append(phases, p.driven(p.inModule(name, "adapters/"+name, append(shortened(short), "-tags=stress")...)))
	}
	for _, name := range frameworks() {
		x := p.driven(phase{name: name, args: []string{"adapters/" + name + "/tests/run"}})
		if short {
			x.env = append(x.env, "TEST_SHORT=1")
		}
		phases = append(phases, x)
	}
	return phases
}

// packaged is the test that installs the packages of the adapters, and follows the README of each. It fetches what they
// need, so it is a phase of its own.
const packaged = "^TestTheReadmesOfTheAdapters$"

func (p *project) readmes() phase {
	return p.driven(p.goTest("readmes", pure, "-run", packaged, blackBox))
}

// prove is everything at length.
func (p *project) prove() []phase {
	phases := []phase{
		p.make("build", "build"),
		p.driven(p.goTest("broker", cgo, "-skip", packaged, blackBox)),
		p.driven(p.goTest("processes", cgo, paths(driving())...)),
		p.race("-short", "./cli", "./internal/cluster/replica", "./"+store),
		p.goTest("packages", cgo, p.others(driving())...),
		p.fault(), p.notrace(),
	}
	phases = append(phases, p.modules()...)
	phases = append(phases, p.make("site", "site"), p.dashboard(false))
	phases = append(append(phases, p.adapters(false)...), p.readmes(), p.chart())
	phases = append(phases,
		p.make("faults", "faults"),
		p.make("torture", "torture", "T=3m"),
		p.make("torture-order", "torture-order", "N=100000"),
		p.make("torture-nodes", "torture-nodes", "T=3m"),
		p.make("torture-five", "torture-nodes", "T=3m", "NODES=5"),
		p.make("powercut", "powercut", "T=2m"),
		p.make("powercut-interval", "powercut", "T=1m", "SYNC=interval"),
		p.make("powercut-nodes", "powercut-nodes", "N=20"),
		p.make("stale", "stale", "N=20"),
		p.make("credits", "credits"),
		p.make("damage", "damage", "N=40"),
		p.make("sim", "sim", "SEEDS=4000"),
		p.make("sim-nodes", "sim-nodes", "SEEDS=1000"),
		p.make("shares", "shares", "SETUPS=1000", "SEED=1"),
		p.make("fuzz", "fuzz", "T=5s"),
		p.make("conversation", "fuzz", "T=1m", "F=Conversation"),
		p.make("plain", "plain", "plain-integration"),
		p.make("sanitize", "sanitize"),
		p.make("collector", "test-collector"),
		asRoot(p.make("release", "test-packages")),
		asRoot(p.make("systems", "test-systems")),
	)
	// Each of the targets builds the broker, if it is not there.
	for i := range phases {
		if x := &phases[i]; x.name != "build" && len(x.needs) == 0 && x.args[0] == "make" {
			x.needs = []string{"build"}
		}
	}
	return phases
}

// asRoot is a phase that mounts, boots or installs.
func asRoot(x phase) phase {
	x.root = true
	return x
}
