package tidy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// layer lists the packages of the module that a package may import.
type layer struct {
	may   []string
	tests []string // additional imports of its tests
}

// layers is the import table. All tests may import internal/testkit. A package that is missing here fails the test, so that adding one is
// a decision.
func layers() map[string]layer {
	return map[string]layer{
		"resp":              {may: []string{"internal/tuning", "internal/yield"}},
		"storage":           {may: []string{"internal/queueset"}, tests: []string{"storage/storetest"}},
		"storage/storetest": {may: []string{"storage"}},
		"storage/rocks":     {may: []string{"internal/tuning", "storage", "storage/rocks/files"}, tests: []string{"internal/smalldisk", "storage/storetest"}},
		// Reads the files of RocksDB without RocksDB.
		"storage/rocks/files": {},
		"engine":              {may: []string{"engine/dispatch", "internal/credit", "internal/decay", "internal/directory", "internal/errtext", "internal/glob", "internal/histogram", "internal/hook", "internal/intrusive", "internal/ledger", "internal/mailbox", "internal/queueset", "internal/recent", "internal/schedule", "internal/signals", "internal/timeline", "internal/tuning", "internal/yield", "storage"}, tests: []string{"internal/adaptive", "internal/replica"}},
		// What is delivered next: it knows no messages, records or clients.
		"engine/dispatch":    {may: []string{"internal/adaptive", "internal/firstfit", "internal/intrusive"}},
		"internal/intrusive": {},
		"scripting":          {may: []string{"internal/credit", "internal/hook", "internal/tuning", "internal/yield", "storage"}},
		"commands": {
			may:   []string{"engine", "internal/acl", "internal/command", "internal/credit", "internal/errtext", "internal/events", "internal/glob", "internal/hook", "internal/ledger", "internal/metrics", "internal/queueset", "internal/relay", "internal/schedule", "internal/telemetry", "internal/timeline", "internal/topology", "internal/tracing", "resp"},
			tests: []string{"internal/compat", "internal/otlptest", "scripting", "storage"},
		},
		// The command table: it does not know what a command does.
		"internal/command": {may: []string{"internal/acl", "resp"}},
		// Needed only by the reference of commands.
		"internal/compat": {may: []string{"internal/command"}},
		// Services that commands use: they know neither sessions nor the table.
		"internal/events":  {may: []string{"engine", "internal/glob", "resp"}},
		"internal/errtext": {},
		// Links between nodes: it knows bytes and frames.
		"internal/relay":     {},
		"internal/nametext":  {},
		"internal/glob":      {},
		"internal/tracing":   {may: []string{"engine", "internal/nametext"}, tests: []string{"internal/otlptest", "storage"}},
		"internal/otlptest":  {},
		"internal/topology":  {may: []string{"resp"}},
		"internal/telemetry": {may: []string{"engine", "internal/histogram"}},
		// The contract between engine and scripts, and the meaning of cron expressions: values and
		"internal/metrics": {may: []string{"engine", "internal/histogram", "internal/hook", "internal/nametext", "internal/yield"}, tests: []string{"storage"}},
		// interfaces without state.
		"internal/hook":     {may: []string{"internal/histogram", "storage"}},
		"internal/schedule": {},
		// Ids that a look-up in the store may have missed.
		"internal/directory": {},
		"internal/recent":    {},
		"internal/timeline":  {},
		// The arithmetic of limits, sums and budgets.
		"internal/adaptive": {},
		"internal/decay":    {},
		"internal/signals":  {may: []string{"internal/decay", "storage"}},
		"internal/verify":   {may: []string{"engine", "internal/queueset", "storage"}},
		"internal/firstfit": {},
		// What several nodes make equal; the log is behind an interface.
		"internal/replica": {may: []string{"storage"}},
		"internal/cluster": {may: []string{"internal/certs", "internal/fault", "internal/replica", "storage"}},
		"internal/credit":  {may: []string{"internal/schedule"}},
		// Reads what has moved budgets.
		"internal/ledger": {may: []string{"storage"}},
		// Histograms of durations, for the engine, the commands and their exporters.
		"internal/histogram": {},
		// The table of a queue's settings, which the client side reads, too.
		"internal/queueset": {},
		// The client side of a load: it identifies a server by address only.
		"internal/bench":    {may: []string{"internal/proc"}},
		"internal/client":   {},
		"internal/proc":     {},
		"internal/acl":      {},
		"internal/backup":   {},
		"internal/certs":    {},
		"internal/progress": {},
		// Small file systems for tests.
		"internal/smalldisk": {},
		"internal/yield":     {},
		"internal/mailbox":   {},
		"internal/tuning":    {},
		// The command line: what starts the broker, and what works with one that runs.
		"cli":             {may: []string{"cli/output", "cli/remote", "internal/bench", "internal/client", "internal/glob", "internal/progress", "internal/queueset"}},
		"cli/remote":      {may: []string{"cli/output", "cli/top", "cli/worker", "internal/admin", "internal/client", "internal/progress", "internal/queueset"}},
		"cli/output":      {may: []string{"internal/client"}},
		"cli/top":         {may: []string{"cli/output", "internal/client"}},
		"cli/worker":      {may: []string{"internal/client"}},
		"internal/broker": {may: []string{"cli", "commands", "engine", "internal/admin", "internal/backup", "internal/certs", "internal/cluster", "internal/command", "internal/compat", "internal/fault", "internal/hook", "internal/metrics", "internal/proc", "internal/relay", "internal/replica", "internal/telemetry", "internal/tracing", "internal/tuning", "internal/verify", "internal/yield", "resp", "scripting", "storage", "storage/rocks"}},
		// HTTP for operators. It knows the broker as a client does.
		"internal/admin": {may: []string{"internal/admin/ui", "internal/client", "internal/yield"}, tests: []string{"commands", "engine", "internal/compat", "resp", "storage"}},
		// The dashboard: what a browser gets. What makes it is a separate module.
		"internal/admin/ui":       {},
		"internal/admin/ui/build": {},
		// Breaks one promise of a binary built for tests.
		"internal/fault": {may: []string{"engine", "resp", "storage"}},
		"main":           {may: []string{"internal/broker"}},
		"integration":    {tests: []string{"integration/harness", "integration/kit", "internal/otlptest", "internal/proc", "internal/smalldisk"}},
		// Each client library runs the same tests; those in Go are in a separate module.
		"integration/clients":    {tests: []string{"integration/harness", "integration/kit"}},
		"integration/clients/go": {},
		"integration/systems":    {},
		// The commands of the binary, as they are typed.
		"integration/cmdline": {tests: []string{"integration/harness", "integration/kit", "internal/client"}},
		// Modules of their own, that frameworks of other people import: nothing of Fila is in them.
		"adapters/go":          {},
		"adapters/gocloud":     {},
		"adapters/watermill":   {},
		"examples/go/producer": {},
		"examples/go/worker":   {},
		// Drives the dashboard in a browser, from a separate module.
		"integration/dashboard": {tests: []string{"integration/harness", "integration/kit", "internal/client"}},
		"integration/metrics":   {tests: []string{"integration/harness", "integration/kit"}},
		// Programs that demonstrate or measure a running broker from outside; they share its start.
		"integration/harness": {},
		"integration/kit":     {may: []string{"integration/harness", "internal/testkit"}},
		"integration/tiers":   {may: []string{"integration/harness"}},
		"integration/demo":    {may: []string{"integration/harness", "internal/progress"}, tests: []string{"integration/kit"}},
		"integration/bench":   {may: []string{"integration/harness", "internal/bench", "internal/proc", "internal/progress"}},
		// A separate module, so that Fila does not depend on the systems under comparison.
		"integration/peers":       {may: []string{"integration/harness", "internal/bench", "internal/progress"}, tests: []string{"integration/kit"}},
		"integration/peers/natsd": {},
		// Judge the replies of clients, and cut the power of a data directory.
		"integration/history":   {},
		"integration/powerloss": {},
		"integration/torture":   {may: []string{"integration/harness", "integration/history", "integration/powerloss", "internal/proc", "internal/progress", "internal/smalldisk"}, tests: []string{"integration/kit"}},
		// Damages stores, and locates the deletions in them.
		"integration/damage": {may: []string{"integration/harness", "internal/progress", "storage", "storage/rocks/files"}, tests: []string{"integration/kit"}},
		"internal/tidy":      {},
		// What tests wait with.
		"internal/testkit": {},
	}
}

// owners maps modules to the only package that may import them.
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

		"go.opentelemetry.io/otel": "internal/tracing",
		"github.com/prometheus":    "internal/metrics",
		"github.com/evanw/esbuild": "internal/admin/ui/build",
		"github.com/go-rod":        "integration/dashboard",
		"go.yaml.in/yaml":          "internal/tidy",

		"github.com/HdrHistogram/hdrhistogram-go": "internal/bench",

		"github.com/hashicorp/raft":     "internal/cluster",
		"github.com/hashicorp/raft-wal": "internal/cluster",
	}
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	for _, s := range sources(t) {
		report(t, layering(s))
	}
}

func layering(s source) []string {
	l, known := layers()[s.pkg()]
	if !known {
		return []string{fmt.Sprintf("%s: package %s is not in the table of internal/tidy/layers_test.go", s.path, s.pkg())}
	}
	var complaints []string
	for p := range s.imports() {
		ours, internal := strings.CutPrefix(p, module+"/")
		switch {
		case internal && ours == s.pkg(): // its own external test
		case internal && slices.Contains(l.may, ours):
		case internal && s.test() && (ours == "internal/testkit" || slices.Contains(l.tests, ours)):
		case internal:
			complaints = append(complaints, fmt.Sprintf("%s: %s may not import %s", s.path, s.pkg(), ours))
		default:
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

func TestTheTableOfLayersIsHeldTo(t *testing.T) {
	in := func(path, imp string) source { return parse(t, path, "package x\nimport _ \""+imp+"\"\n") }
	wantBreach(t, layering(in("engine/queue.go", module+"/resp")), "may not import resp")
	wantBreach(t, layering(in("resp/conn.go", module+"/storage")), "may not import storage")
	wantBreach(t, layering(in("commands/lease.go", module+"/storage")), "may not import storage")
	wantBreach(t, layering(in("internal/command/scan.go", module+"/commands")), "may not import commands")
	wantBreach(t, layering(in("internal/command/scan.go", module+"/engine")), "may not import engine")
	wantBreach(t, layering(in("internal/events/hub.go", module+"/internal/command")), "may not import internal/command")
	wantBreach(t, layering(in("integration/kill_test.go", module+"/storage")), "may not import storage")
	wantBreach(t, layering(in("engine/queue.go", module+"/internal/testkit")), "may not import internal/testkit")
	wantBreach(t, layering(in("engine/queue.go", "github.com/tidwall/redcon")), "only resp")
	wantBreach(t, layering(in("storage/memory.go", "github.com/linxGnu/grocksdb")), "only storage/rocks")
	wantBreach(t, layering(in("engine/hook.go", "github.com/yuin/gopher-lua/parse")), "only scripting")
	wantBreach(t, layering(in("engine/fast.go", "C")), "only storage/rocks")
	wantBreach(t, layering(in("util/strings.go", "strings")), "not in the table")
	if c := layering(in("storage/rocks/rocks_test.go", module+"/storage/storetest")); c != nil {
		t.Error(c)
	}
}
