package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// A log, or the mail of a cron job, has no use for how far something was.
func TestProgressIsShownOnTerminalsOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stderr")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	called := false
	code := Main(t.Context(), Program{Check: func(_ string, progress Progress) (CheckReport, error) {
		called = true
		done := progress("reading", 100)
		for range 100 {
			done(1)
		}
		return CheckReport{}, nil
	}}, Process{Args: []string{"check", "data"}, Stdout: f, Stderr: f})
	said, err := os.ReadFile(path)
	if code != 0 || !called || err != nil || string(said) != ": 0 table files, 0 bytes, 0 records\neverything is in order\n" {
		t.Errorf("exit code %d, %v: %s", code, err, said)
	}
	set, done := watch(f)
	set("loading", 0, 100, false)
	set("loading", 50, 100, false)
	set("running", 100, 100, false)
	done()
	if after, err := os.ReadFile(path); err != nil || len(after) != len(said) {
		t.Errorf("%v: %s", err, after[len(said):])
	}
}
