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
		"storage/rocks":     {may: []string{"internal/tuning", "storage", "storage/rocks/files"}, tests: []string{"internal/testkit/smalldisk", "storage/storetest"}},
		// Reads the files of RocksDB without RocksDB.
		"storage/rocks/files": {},
		"engine":              {may: []string{"engine/dispatch", "internal/credit", "engine/internal/decay", "engine/internal/directory", "internal/errtext", "internal/glob", "internal/histogram", "internal/hook", "engine/internal/intrusive", "internal/ledger", "engine/internal/mailbox", "internal/queueset", "engine/internal/recent", "internal/schedule", "engine/internal/signals", "internal/timeline", "internal/tuning", "internal/yield", "storage"}, tests: []string{"engine/internal/adaptive", "internal/cluster/replica"}},
		// What is delivered next: it knows no messages, records or clients.
		"engine/dispatch":           {may: []string{"engine/internal/adaptive", "engine/internal/firstfit", "engine/internal/intrusive"}},
		"engine/internal/intrusive": {},
		"scripting":                 {may: []string{"internal/credit", "internal/hook", "internal/tuning", "internal/yield", "storage"}},
		"commands": {
			may:   []string{"engine", "internal/acl", "internal/command", "internal/credit", "internal/errtext", "internal/events", "internal/glob", "internal/hook", "internal/ledger", "internal/ops/metrics", "internal/queueset", "internal/cluster/relay", "internal/schedule", "internal/ops/telemetry", "internal/timeline", "internal/cluster/topology", "internal/ops/tracing", "resp"},
			tests: []string{"internal/broker/compat", "internal/ops/otlptest", "scripting", "storage"},
		},
		// The command table: it does not know what a command does.
		"internal/command": {may: []string{"internal/acl", "resp"}},
		// Needed only by the reference of commands.
		"internal/broker/compat": {may: []string{"internal/command"}},
		// Services that commands use: they know neither sessions nor the table.
		"internal/events":  {may: []string{"engine", "internal/glob", "resp"}},
		"internal/errtext": {},
		// Links between nodes: it knows bytes and frames.
		"internal/cluster/relay":    {},
		"internal/ops/nametext":     {},
		"internal/glob":             {},
		"internal/ops/tracing":      {may: []string{"engine", "internal/ops/nametext"}, tests: []string{"internal/ops/otlptest", "storage"}},
		"internal/ops/otlptest":     {},
		"internal/cluster/topology": {may: []string{"resp"}},
		"internal/ops/telemetry":    {may: []string{"engine", "internal/histogram"}},
		// The contract between engine and scripts, and the meaning of cron expressions: values and
		"internal/ops/metrics": {may: []string{"engine", "internal/histogram", "internal/hook", "internal/ops/nametext", "internal/yield"}, tests: []string{"storage"}},
		// interfaces without state.
		"internal/hook":     {may: []string{"internal/histogram", "storage"}},
		"internal/schedule": {},
		// Ids that a look-up in the store may have missed.
		"engine/internal/directory": {},
		"engine/internal/recent":    {},
		"internal/timeline":         {},
		// The arithmetic of limits, sums and budgets.
		"engine/internal/adaptive": {},
		"engine/internal/decay":    {},
		"engine/internal/signals":  {may: []string{"engine/internal/decay", "storage"}},
		"internal/broker/verify":   {may: []string{"engine", "internal/queueset", "storage"}},
		"engine/internal/firstfit": {},
		// What several nodes make equal; the log is behind an interface.
		"internal/cluster/replica": {may: []string{"storage"}},
		"internal/cluster":         {may: []string{"internal/certs", "internal/fault", "internal/cluster/replica", "storage"}},
		"internal/credit":          {may: []string{"internal/schedule"}},
		// Reads what has moved budgets.
		"internal/ledger": {may: []string{"storage"}},
		// Histograms of durations, for the engine, the commands and their exporters.
		"internal/histogram": {},
		// The table of a queue's settings, which the client side reads, too.
		"internal/queueset": {},
		// The client side of a load: it identifies a server by address only.
		"internal/bench":         {may: []string{"internal/proc"}},
		"internal/client":        {},
		"internal/proc":          {},
		"internal/acl":           {},
		"internal/broker/backup": {},
		"internal/certs":         {},
		"internal/progress":      {},
		// Small file systems for tests.
		"internal/testkit/smalldisk": {},
		"internal/yield":             {},
		"engine/internal/mailbox":    {},
		"internal/tuning":            {},
		// The command line: what starts the broker, and what works with one that runs.
		"cli":             {may: []string{"cli/output", "cli/remote", "internal/bench", "internal/client", "internal/glob", "internal/progress", "internal/queueset"}},
		"cli/remote":      {may: []string{"cli/output", "cli/top", "cli/worker", "internal/ops/admin", "internal/client", "internal/progress", "internal/queueset"}},
		"cli/output":      {may: []string{"internal/client"}},
		"cli/top":         {may: []string{"cli/output", "internal/client"}},
		"cli/worker":      {may: []string{"internal/client"}},
		"internal/broker": {may: []string{"cli", "commands", "engine", "internal/ops/admin", "internal/broker/backup", "internal/certs", "internal/cluster", "internal/command", "internal/broker/compat", "internal/fault", "internal/hook", "internal/ops/metrics", "internal/proc", "internal/cluster/relay", "internal/cluster/replica", "internal/ops/telemetry", "internal/ops/tracing", "internal/tuning", "internal/broker/verify", "internal/yield", "resp", "scripting", "storage", "storage/rocks"}},
		// HTTP for operators. It knows the broker as a client does.
		"internal/ops/admin": {may: []string{"internal/ops/admin/ui", "internal/client", "internal/yield"}, tests: []string{"commands", "engine", "internal/broker/compat", "resp", "storage"}},
		// The dashboard: what a browser gets. What makes it is a separate module.
		"internal/ops/admin/ui":       {},
		"internal/ops/admin/ui/build": {},
		// Breaks one promise of a binary built for tests.
		"internal/fault": {may: []string{"engine", "resp", "storage"}},
		"main":           {may: []string{"internal/broker"}},
		"integration":    {tests: []string{"integration/harness", "integration/kit", "internal/ops/otlptest", "internal/proc", "internal/testkit/smalldisk"}},
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
		"integration/torture":   {may: []string{"integration/harness", "integration/history", "integration/powerloss", "internal/proc", "internal/progress", "internal/testkit/smalldisk"}, tests: []string{"integration/kit"}},
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
