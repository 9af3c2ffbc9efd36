package tidy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// A floor is a set of packages that have the same place in the house.
type floor struct {
	packages []string // a path, or a folder with all below it: "storage/..."
	sees     []string // the floors that its packages may import, its own among them if they may import each other
	tests    []string // those that only its tests may import; all tests may import internal/testkit
}

// floors is the house from the ground up. A package is on the first floor that names it; one that none names fails
// the test, so that adding one is a decision.
func floors() map[string]floor {
	return map[string]floor{
		// Values and arithmetic, without a state of the broker.
		"values": {
			packages: []string{
				"internal/acl", "internal/bench", "internal/certs", "internal/client", "internal/credit", "internal/errtext", "internal/glob",
				"internal/histogram", "internal/ops/nametext", "internal/proc", "internal/progress", "internal/queueset", "internal/rawio", "internal/schedule",
				"internal/tuning", "internal/yield",
			},
			sees: []string{"values"},
		},
		// What is on disk, behind an interface, and what reads records.
		"store": {packages: []string{"storage", "storage/storetest"}, sees: []string{"values", "store"}},
		"rocks": {packages: []string{"storage/rocks/..."}, sees: []string{"values", "store", "rocks"}, tests: []string{"testkit"}},
		// What has moved budgets, read from the store.
		"ledger": {packages: []string{"internal/ledger"}, sees: []string{"values", "store"}},
		// The contract between engine and scripts.
		"hooks":     {packages: []string{"internal/hook"}, sees: []string{"values", "store"}},
		"limits":    {packages: []string{"internal/throttleset"}, sees: []string{"values", "store"}},
		"scripting": {packages: []string{"scripting"}, sees: []string{"values", "store", "hooks"}},
		// The engine. A room knows no other room, and not the engine.
		"parts":  {packages: []string{"engine/internal/..."}, sees: []string{"values", "store", "hooks", "parts"}},
		"rooms":  {packages: []string{"engine/..."}, sees: []string{"values", "store", "ledger", "hooks", "limits", "parts"}},
		"engine": {packages: []string{"engine"}, sees: []string{"values", "store", "ledger", "hooks", "limits", "parts", "rooms"}, tests: []string{"nodes"}},
		// What runs an engine: it alone has goroutines and a clock.
		"loop": {packages: []string{"engine/loop"}, sees: []string{"values", "store", "hooks", "parts", "engine"}},
		// The wire: links between nodes know bytes and frames.
		"wire": {packages: []string{"resp", "internal/cluster/relay", "internal/cluster/topology"}, sees: []string{"values", "wire"}},
		// The description of commands: it does not know what a command does.
		"syntax": {packages: []string{"internal/command"}, sees: []string{"values", "wire"}},
		// What several nodes make equal.
		"nodes": {packages: []string{"internal/cluster", "internal/cluster/replica"}, sees: []string{"values", "store", "nodes", "faults"}},
		// Breaks one promise of a binary built for tests.
		"faults": {packages: []string{"internal/fault"}, sees: []string{"store", "engine", "wire"}},
		// What commands use and serve: they know no session and no command.
		"services": {packages: []string{"commands/definition", "internal/events", "internal/ops/metrics", "internal/ops/telemetry", "internal/ops/tracing"}, sees: []string{"values", "hooks", "engine", "wire"}, tests: []string{"store", "otlp"}},
		"commands": {packages: []string{"commands"}, sees: []string{"values", "ledger", "hooks", "engine", "wire", "syntax", "services"}, tests: []string{"scripting", "store", "checks", "loop", "otlp"}},
		// The client side: the command line, and HTTP for operators, which know the broker as a client does.
		"clients": {packages: []string{"cli/...", "internal/ops/admin/..."}, sees: []string{"values", "clients"}, tests: []string{"commands", "engine", "loop", "store", "wire", "checks"}},
		// What looks at a store or at the table of commands and serves no client.
		"checks": {packages: []string{"internal/broker/backup", "internal/broker/compat", "internal/broker/verify"}, sees: []string{"values", "store", "engine", "syntax"}, tests: []string{"commands"}},
		"broker": {
			packages: []string{"internal/broker"},
			sees:     []string{"values", "store", "rocks", "hooks", "scripting", "engine", "loop", "wire", "syntax", "nodes", "faults", "services", "commands", "clients", "checks"},
		},
		"main": {packages: []string{"main"}, sees: []string{"broker"}},
		// Tests from outside: they see a broker that runs. Only what damages a store reads its files.
		"damage":  {packages: []string{"integration/damage"}, sees: []string{"values", "outside", "store", "rocks"}},
		"outside": {packages: []string{"integration/...", "examples/..."}, sees: []string{"values", "outside", "testkit"}, tests: []string{"otlp"}},
		// Modules of their own, that frameworks of other people import: nothing of the broker is in them.
		"adapters": {packages: []string{"adapters/..."}, sees: []string{"adapters"}},
		// What tests use, and rules for the sources.
		"testkit": {packages: []string{"internal/testkit/..."}, sees: []string{"testkit"}},
		"otlp":    {packages: []string{"internal/ops/otlptest"}},
		"tidy":    {packages: []string{"internal/tidy"}},
	}
}

// floorOf returns the name of the floor of a package: that which names it, or else the nearest folder around it.
func floorOf(pkg string) (name string, known bool) {
	longest := -1
	for of, f := range floors() {
		for _, p := range f.packages {
			dir, folder := strings.CutSuffix(p, "/...")
			switch {
			case p == pkg:
				return of, true
			case folder && (dir == pkg || strings.HasPrefix(pkg, dir+"/")) && len(dir) > longest:
				name, known, longest = of, true, len(dir)
			}
		}
	}
	return name, known
}

// owners maps modules to the only package that may import them. Adapters, as modules of their own, may as well.
func owners() map[string]string {
	return map[string]string{
		"github.com/tidwall/redcon":   "resp",
		"github.com/linxGnu/grocksdb": "storage/rocks",
		"github.com/zeebo/xxh3":       "storage/rocks/files",
		"github.com/yuin/gopher-lua":  "scripting",
		"github.com/spf13/cobra":      "cli",
		"github.com/spf13/pflag":      "cli",
		"github.com/knadh/koanf":      "cli",
		"charm.land":                  "cli/top",
		"C":                           "storage/rocks",

		"go.opentelemetry.io/otel": "internal/ops/tracing",
		"github.com/prometheus":    "internal/ops/metrics",
		"github.com/evanw/esbuild": "internal/ops/admin/ui/build",
		"github.com/go-rod":        "integration/dashboard",
		"go.yaml.in/yaml":          "internal/tidy",

		"github.com/HdrHistogram/hdrhistogram-go": "internal/bench",

		"github.com/hashicorp/raft":     "internal/cluster",
		"github.com/hashicorp/raft-wal": "internal/cluster",
	}
}

func TestPackagesImportOnlyWhatTheirFloorSees(t *testing.T) {
	for _, s := range sources(t) {
		report(t, layering(s))
	}
}

func layering(s source) []string {
	on, known := floorOf(s.pkg())
	if !known {
		return []string{fmt.Sprintf("%s: package %s is on no floor of internal/tidy/layers_test.go", s.path, s.pkg())}
	}
	sees := floors()[on].sees
	if s.test() {
		sees = slices.Concat(sees, floors()[on].tests, []string{"testkit"})
	}
	var complaints []string
	for p := range s.imports() {
		ours, internal := strings.CutPrefix(p, module+"/")
		below, _ := floorOf(ours)
		switch {
		case internal && (ours == s.pkg() || slices.Contains(sees, below)): // itself: its own external test
		case internal:
			complaints = append(complaints, fmt.Sprintf("%s: %s is on the floor %q, which may not see %q with %s", s.path, s.pkg(), on, below, ours))
		case on != "adapters":
			outside := s.test() && s.pkg() == "integration/"+path.Base(ownerOf(p)) // tests of what it writes
			if owner := ownerOf(p); owner != "" && owner != s.pkg() && !strings.HasPrefix(s.pkg(), owner+"/") && !outside {
				complaints = append(complaints, fmt.Sprintf("%s: only %s may import %s", s.path, owner, p))
			}
		}
	}
	return complaints
}

func ownerOf(p string) string {
	for mod, owner := range owners() {
		if p == mod || strings.HasPrefix(p, mod+"/") {
			return owner
		}
	}
	return ""
}

func TestTheFloorsAreHeldTo(t *testing.T) {
	in := func(path, imp string) source { return parse(t, path, "package x\nimport _ \""+imp+"\"\n") }
	wantBreach(t, layering(in("engine/queue.go", module+"/resp")), "may not see")
	wantBreach(t, layering(in("resp/conn.go", module+"/storage")), "may not see")
	wantBreach(t, layering(in("commands/lease.go", module+"/storage")), "may not see")
	wantBreach(t, layering(in("internal/command/scan.go", module+"/commands")), "may not see")
	wantBreach(t, layering(in("internal/command/scan.go", module+"/engine")), "may not see")
	wantBreach(t, layering(in("internal/events/hub.go", module+"/internal/command")), "may not see")
	wantBreach(t, layering(in("engine/dispatch/order.go", module+"/engine")), "may not see")
	wantBreach(t, layering(in("engine/dispatch/order.go", module+"/engine/figures")), "may not see")
	wantBreach(t, layering(in("engine/queue.go", module+"/engine/loop")), "may not see")
	wantBreach(t, layering(in("commands/lease.go", module+"/engine/loop")), "may not see")
	wantBreach(t, layering(in("engine/loop/loop.go", module+"/engine/figures")), "may not see")
	wantBreach(t, layering(in("engine/internal/decay/decay.go", module+"/engine/dispatch")), "may not see")
	wantBreach(t, layering(in("commands/lease.go", module+"/storage/rocks")), "may not see")
	wantBreach(t, layering(in("integration/kill_test.go", module+"/storage")), "may not see")
	wantBreach(t, layering(in("engine/queue.go", module+"/internal/testkit")), "may not see")
	wantBreach(t, layering(in("engine/queue.go", "github.com/tidwall/redcon")), "only resp")
	wantBreach(t, layering(in("storage/memory.go", "github.com/linxGnu/grocksdb")), "only storage/rocks")
	wantBreach(t, layering(in("engine/hook.go", "github.com/yuin/gopher-lua/parse")), "only scripting")
	wantBreach(t, layering(in("engine/fast.go", "C")), "only storage/rocks")
	wantBreach(t, layering(in("util/strings.go", "strings")), "is on no floor")
	if c := layering(in("storage/rocks/rocks_test.go", module+"/storage/storetest")); c != nil {
		t.Error(c)
	}
}
