package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// edit is a change of a source file that brings a defect back.
type edit struct{ file, old, new string }

// planted builds a broker whose source has the changes, each of which must apply exactly once.
func planted(t *testing.T, edits []edit) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		file := filepath.Join(root, filepath.FromSlash(e.file))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			t.Fatalf("%s has %q %d times, want once: what was planted has moved", e.file, e.old, n)
		}
		to := filepath.Join(dir, filepath.Base(e.file))
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[file] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return built(t, "fila-"+filepath.Base(t.Name()), ".", "-overlay", overlay)
}

// TestTortureFindsDefectsOfNodes brings defects back that nodes had. The torture has to find them.
func TestTortureFindsDefectsOfNodes(t *testing.T) {
	testkit.AtLength(t)
	for name, x := range map[string]struct {
		edits []edit
		by    string
		rules []string
	}{
		// Connections of a silent link are read for ever.
		"spinning": {
			[]edit{
				{"resp/conn_read.go", "errors.Is(err, os.ErrDeadlineExceeded) && c.deadlinePassed()", "errors.Is(err, os.ErrDeadlineExceeded)"},
				{"internal/cluster/relay/mux.go", "ok && timeout.Timeout()", "ok && timeout == nil"},
			},
			bySilence, []string{string(ruleIdle), string(ruleServes)},
		},
		// A vote is refused to a candidate that an older list of members does not have.
		"voter-list": {
			[]edit{{"internal/cluster/transport.go", `voter := t.voter(); voter != ""`, `voter := t.voter(); voter == "none"`}},
			byRow, []string{string(ruleMajority)},
		},
		// A node with an older disk is taken for what it was.
		"old-disk": {
			[]edit{{"internal/cluster/standing.go", "return s.Starts <= known.Starts || s.Term < known.Term || s.Entry < known.Entry", "return false"}},
			byOld, []string{string(ruleOldDisk)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := planted(t, x.edits)
			var out string
			for range plantedTries {
				var code int
				out, code = torture(t, bin, nil, "-nodes", "3", "-by", x.by, "-t", "12h", "-n", "8", "-calm", "300ms")
				for _, rule := range x.rules {
					if code == 1 && strings.Contains(out, "BROKEN "+rule) {
						t.Log(out)
						return
					}
				}
			}
			t.Errorf("want one of %q:\n%s", x.rules, out)
		})
	}
}
