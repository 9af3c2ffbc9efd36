package tidy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layer says what the files of a package may import of ours.
type layer struct {
	may   []string
	tests []string // what its tests may import as well
}

// layers is the import table. A package that is not here fails the test: adding
// one is a decision, not an accident.
func layers() map[string]layer {
	return map[string]layer{
		"resp":              {may: []string{"internal/tuning"}},
		"storage":           {may: []string{"internal/queueset"}, tests: []string{"storage/storetest"}},
		"storage/storetest": {may: []string{"storage"}},
		"storage/rocks":     {may: []string{"internal/tuning", "storage", "storage/rocks/files"}, tests: []string{"internal/smalldisk", "storage/storetest"}},
		// Reads the files of RocksDB without RocksDB.
		"storage/rocks/files": {},
		"engine":              {may: []string{"internal/errtext", "internal/glob", "internal/histogram", "internal/hook", "internal/queueset", "internal/schedule", "internal/tuning", "internal/yield", "storage"}},
		"scripting":           {may: []string{"internal/hook", "internal/tuning", "internal/yield", "storage"}},
		"commands": {
			may:   []string{"engine", "internal/acl", "internal/command", "internal/events", "internal/glob", "internal/hook", "internal/queueset", "internal/schedule", "internal/telemetry", "internal/tracing", "resp"},
			tests: []string{"internal/compat", "internal/otlptest", "scripting", "storage"},
		},
		// The machinery of the table: it does not know what a command does.
		"internal/command": {may: []string{"internal/acl", "resp"}},
		// What only the document about commands needs.
		"internal/compat": {may: []string{"internal/command"}},
		// Services that commands use: they know neither sessions nor the table.
		"internal/events":    {may: []string{"engine", "internal/glob", "resp"}},
		"internal/errtext":   {},
		"internal/glob":      {},
		"internal/tracing":   {may: []string{"engine"}, tests: []string{"internal/otlptest", "storage"}},
		"internal/otlptest":  {},
		"internal/telemetry": {may: []string{"engine", "internal/histogram"}},
		// The contract between engine and scripts, and what cron expressions mean: values and
		// interfaces without state.
		"internal/hook":     {may: []string{"storage"}},
		"internal/schedule": {},
		// Counts of durations: the engine's, those of commands, and what exports them.
		"internal/histogram": {},
		// The table of a queue's settings, and nothing else: the client side reads it too.
		"internal/queueset": {},
		// The client side of a load: it knows a server only by its address.
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
		"internal/tuning":    {},
		"cli":                {may: []string{"internal/bench", "internal/client", "internal/progress", "internal/queueset"}},
		"internal/broker":    {may: []string{"cli", "commands", "engine", "internal/backup", "internal/certs", "internal/compat", "internal/fault", "internal/hook", "internal/telemetry", "internal/tracing", "internal/tuning", "resp", "scripting", "storage", "storage/rocks"}},
		// Breaks one promise of a binary that is built to be found out.
		"internal/fault": {may: []string{"engine", "resp", "storage"}},
		"main":           {may: []string{"internal/broker"}},
		"integration":    {tests: []string{"integration/harness", "internal/otlptest", "internal/proc", "internal/smalldisk"}},
		// Each client library does the same; those in Go are a module of their own.
		"integration/clients":    {tests: []string{"integration/harness"}},
		"integration/clients/go": {},
		"integration/systems":    {},
		"examples/go/producer":   {},
		"examples/go/worker":     {},
		// Programs that show or measure a running broker, from outside as well; they
		// share how it is started.
		"integration/harness": {},
		"integration/demo":    {may: []string{"integration/harness", "internal/progress"}},
		"integration/bench":   {may: []string{"integration/harness", "internal/bench", "internal/proc", "internal/progress"}},
		// A module of its own: what it compares with is nothing that Fila needs.
		"integration/peers":       {may: []string{"integration/harness", "internal/bench", "internal/progress"}},
		"integration/peers/natsd": {},
		// Judges what clients were told, and cuts the power of a data directory.
		"integration/history":   {},
		"integration/powerloss": {},
		"integration/torture":   {may: []string{"integration/harness", "integration/history", "integration/powerloss", "internal/progress", "internal/smalldisk"}},
		// Damages stores, and looks where in them each deletion was.
		"integration/damage": {may: []string{"integration/harness", "internal/progress", "storage", "storage/rocks/files"}},
		"internal/tidy":      {},
	}
}

// owners are the modules that one package alone may import.
func owners() map[string]string {
	return map[string]string{
		"github.com/tidwall/redcon":   "resp",
		"github.com/linxGnu/grocksdb": "storage/rocks",
		"github.com/zeebo/xxh3":       "storage/rocks/files",
		"github.com/yuin/gopher-lua":  "scripting",
		"github.com/spf13/cobra":      "cli",
		"github.com/spf13/pflag":      "cli",
		"github.com/knadh/koanf":      "cli",
		"C":                           "storage/rocks",

		"go.opentelemetry.io/otel": "internal/tracing",

		"github.com/HdrHistogram/hdrhistogram-go": "internal/bench",
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
		case internal && s.test() && slices.Contains(l.tests, ours):
		case internal:
			complaints = append(complaints, fmt.Sprintf("%s: %s may not import %s", s.path, s.pkg(), ours))
		default:
			if owner := ownerOf(p); owner != "" && owner != s.pkg() {
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
	wantBreach(t, layering(in("engine/queue.go", "github.com/tidwall/redcon")), "only resp")
	wantBreach(t, layering(in("storage/memory.go", "github.com/linxGnu/grocksdb")), "only storage/rocks")
	wantBreach(t, layering(in("engine/hook.go", "github.com/yuin/gopher-lua/parse")), "only scripting")
	wantBreach(t, layering(in("engine/fast.go", "C")), "only storage/rocks")
	wantBreach(t, layering(in("util/strings.go", "strings")), "not in the table")
	if c := layering(in("storage/rocks/rocks_test.go", module+"/storage/storetest")); c != nil {
		t.Error(c)
	}
}
