package tidy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Every kind of event is in the reference. Pages about commands, settings and metrics are generated
// from their tables, and tests beside these tables compare them.
func TestTheReferenceHasEveryKindOfEvent(t *testing.T) {
	_, table, _ := strings.Cut(document(t, "engine/event/event.go"), "names := map[Kind]string{")
	table, _, _ = strings.Cut(table, "}")
	kinds := regexp.MustCompile(`\w+:\s*"(\w+)"`).FindAllStringSubmatch(table, -1)
	if len(kinds) < 10 {
		t.Fatalf("found the kinds %q", kinds)
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k[1])
	}
	report(t, missingEvents(document(t, "docs/reference/events.md"), names))
}

// missingEvents finds kinds of events that no row of the table of events begins with.
func missingEvents(page string, kinds []string) []string {
	var described, complaints []string
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`\\w+` )+)\\|").FindAllStringSubmatch(page, -1) {
		described = append(described, strings.Fields(strings.ReplaceAll(row[1], "`", ""))...)
	}
	for _, k := range kinds {
		if !slices.Contains(described, k) {
			complaints = append(complaints, fmt.Sprintf("docs/reference/events.md: no row describes %s", k))
		}
	}
	return complaints
}

// Documents and manifests name only metrics and settings that exist.
func TestDocumentsNameMetricsAndSettingsThatExist(t *testing.T) {
	metrics, settings := document(t, "docs/reference/metrics.md"), document(t, "docs/reference/configuration.md")
	for _, pattern := range []string{"README.md", "docs/*/*.md", "deploy/kubernetes/*.yaml", "deploy/compose/*.yaml", "deploy/chart/templates/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found %q, %v", pattern, found, err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			report(t, unknownNames(filepath.Base(file), string(text), metrics, settings))
		}
	}
}

// unknownNames finds metrics and settings in a text that their references do not have. A setting is
// named as an environment variable.
func unknownNames(name, text, metrics, settings string) []string {
	var complaints []string
	for _, m := range regexp.MustCompile(`\bfila_(?:queue|key|store|cluster|script|throttle|budget)_\w*[a-z]\b`).FindAllString(text, -1) {
		series := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(m, "")
		if !strings.Contains(metrics, "`"+m+"`") && !strings.Contains(metrics, "`"+series+"`") {
			complaints = append(complaints, fmt.Sprintf("%s: there is no metric %s", name, m))
		}
	}
	for _, v := range regexp.MustCompile(`\bFILA_([A-Z]+)__([A-Z_]+)\b`).FindAllStringSubmatch(text, -1) {
		if setting := strings.ToLower(v[1] + "." + v[2]); !strings.Contains(settings, "`"+setting+"`") {
			complaints = append(complaints, fmt.Sprintf("%s: %s is no setting", name, v[0]))
		}
	}
	return complaints
}

// All YAML of deploy and of the documents can be parsed, and no name in it is given twice. Each
// manifest for Kubernetes has its kind, its name and its specification.
func TestTheManifestsAreWellFormed(t *testing.T) {
	files, blocks := 0, 0
	for _, name := range tracked(t) {
		switch {
		case strings.HasPrefix(name, "deploy/chart/templates/"): // integration/chart renders them
		case strings.HasPrefix(name, "deploy/") && path.Ext(name) == ".yaml":
			files++
			report(t, malformed(name, document(t, name), strings.Contains(name, "/kubernetes/")))
		case path.Ext(name) == ".md":
			for _, block := range yamlBlocks(document(t, name)) {
				blocks++
				report(t, malformed(name, block, false))
			}
		}
	}
	if files < 8 || blocks < 3 {
		t.Errorf("found %d files and %d blocks", files, blocks)
	}
}

// yamlBlocks returns the blocks of YAML in a document.
func yamlBlocks(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?s)\n```ya?ml\n(.*?\n)```\n").FindAllStringSubmatch("\n"+text, -1) {
		all = append(all, m[1])
	}
	return all
}

func malformed(name, text string, manifests bool) []string {
	var complaints []string
	for i, d := 1, yaml.NewDecoder(strings.NewReader(text)); ; i++ {
		var parsed any
		if err := d.Decode(&parsed); errors.Is(err, io.EOF) {
			return complaints
		} else if err != nil {
			return append(complaints, fmt.Sprintf("%s: %v", name, err))
		}
		if !manifests {
			continue
		}
		manifest, _ := parsed.(map[string]any)
		metadata, _ := manifest["metadata"].(map[string]any)
		kind, _ := manifest["kind"].(string)
		label, _ := metadata["name"].(string)
		if spec, ok := manifest["spec"].(map[string]any); kind == "" || label == "" || manifest["apiVersion"] == nil || !ok || len(spec) == 0 {
			complaints = append(complaints, fmt.Sprintf("%s: manifest %d has no kind, name, version or specification", name, i))
		}
	}
}

func TestTheRulesAboutTheReferenceSeeABreach(t *testing.T) {
	wantBreach(t, missingEvents("| `created` `altered` | x |\n", []string{"created", "dead"}), "no row describes dead")
	if c := missingEvents("| `created` `altered` | x |\n", []string{"altered"}); c != nil {
		t.Error(c)
	}
	metrics, settings := "| `fila_queue_wait_seconds` |", "| `auth.password` |"
	wantBreach(t, unknownNames("x.md", "fila_queue_waits", metrics, settings), "no metric fila_queue_waits")
	wantBreach(t, unknownNames("x.md", "FILA_AUTH__PASSWORT=x", metrics, settings), "FILA_AUTH__PASSWORT is no setting")
	if c := unknownNames("x.md", "fila_queue_wait_seconds_bucket FILA_AUTH__PASSWORD", metrics, settings); c != nil {
		t.Error(c)
	}
	good := "apiVersion: v1\nkind: Service\nmetadata:\n  name: fila\nspec:\n  x: 1\n"
	if c := malformed("x.yaml", good+"---\n"+good, true); c != nil {
		t.Error(c)
	}
	wantBreach(t, malformed("x.yaml", good+"---\n"+strings.Replace(good, "kind: Service", "kind:", 1), true), "manifest 2 has no kind")
	wantBreach(t, malformed("x.yaml", good+" y: 1\n", true), "did not find expected key")
	wantBreach(t, malformed("x.yaml", good+"kind: Secret\n", true), "already defined")
	wantBreach(t, malformed("x.md", yamlBlocks("```yaml\na: [b\n```\n")[0], false), "x.md: yaml")
}

// The dashboard lists the settings of queues with words of its own.
func TestTheDashboardHasEverySettingOfQueues(t *testing.T) {
	rows := regexp.MustCompile(`\{Name: "(\w+)", Token: "(\w+)"`).FindAllStringSubmatch(document(t, "internal/queueset/queueset.go"), -1)
	if len(rows) < 10 {
		t.Fatalf("found the settings %q", rows)
	}
	const page = "internal/ops/admin/ui/src/pages/settings.tsx"
	text := document(t, page)
	for _, row := range rows {
		if !strings.Contains(text, `name: "`+row[1]+`", option: "`+row[2]+`"`) {
			t.Errorf("%s has no row for %s: add one, then make ui", page, row[1])
		}
	}
}
