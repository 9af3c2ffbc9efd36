//go:build cgo

package broker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

func noProgress(string, int64) func(int64) { return func(int64) {} }

// aNode makes the store of a node with one message more than its queue, which is what check and
// repair find, and a copy of it.
func aNode(t *testing.T, orphan bool) (dir, backup string) {
	t.Helper()
	dir, backup = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup")
	s, err := rocks.Open(rocks.Options{Path: dir, Replica: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Claim(s, "a-cluster", nil); err != nil {
		t.Fatal(err)
	}
	var b storage.Batch
	b.Put(storage.State, storage.AppendStateKey(nil, "epoch"), make([]byte, 8))
	if orphan {
		b.Put(storage.Attempts, storage.AppendMessageKey(nil, 7, "k", 4, storage.ID{1}), (&storage.Attempt{Attempt: 1}).Append(nil))
	}
	if err := s.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(backup); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, backup
}

func wantPlain(t *testing.T, dir string) {
	t.Helper()
	s, err := rocks.Open(rocks.Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := replica.ReadRecord(s)
	if v, ferr := storage.FormatOf(s.Get); r != nil || err != nil || v != storage.FormatVersion || ferr != nil {
		t.Errorf("%s is in format %d, %v, at %+v, %v in a log", filepath.Base(dir), v, ferr, r, err)
	}
}

func TestARestoredBackupOfANodeBelongsToNoCluster(t *testing.T) {
	_, backup := aNode(t, false)
	dir := filepath.Join(t.TempDir(), "restored")
	if report, err := restore(backup, dir, noProgress); err != nil || report.Count > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	wantPlain(t, dir)
}

func TestARepairedStoreOfANodeBelongsToNoCluster(t *testing.T) {
	dir, _ := aNode(t, true)
	report, err := repair(dir, noProgress)
	if err != nil || report.Before.Count == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, "node of a cluster") {
		t.Errorf("the report does not say so: %q", notes)
	}
	wantPlain(t, dir)
}

// tornLog changes a byte near the end of the newest log of a store.
func tornLog(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	newest := slices.Max(logs)
	text, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-len(text)/4] ^= 0xff
	if err := os.WriteFile(newest, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a loss of power leaves of the log of a node is no damage: the node has it elsewhere. Of a broker
// alone it is.
func TestATornLogOfANodeIsNoDamage(t *testing.T) {
	for _, node := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "data")
		s, err := rocks.Open(rocks.Options{Path: dir, Replica: node})
		if err != nil {
			t.Fatal(err)
		}
		if node {
			if err := replica.Claim(s, "a-cluster", nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			var b storage.Batch
			b.Put(storage.State, storage.AppendStateKey(nil, "epoch"), make([]byte, 8))
			if err := s.Commit(&b, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		tornLog(t, dir)
		found, err := check(dir, noProgress)
		if err != nil {
			t.Fatal(err)
		}
		if !node {
			if found.Count == 0 {
				t.Error("damage in the log of a broker alone is not reported")
			}
			continue
		}
		if found.Count > 0 || len(found.Notes) != 1 || !strings.Contains(found.Notes[0], ".log is torn at offset") || found.Replica == nil {
			t.Fatalf("check of a torn log: %+v", found)
		}
		if _, err := restore(dir, dir+"-restored", noProgress); err == nil || !strings.Contains(err.Error(), "it is no backup") {
			t.Errorf("a torn store is restored: %v", err)
		}
		if s, err = rocks.Open(rocks.Options{Path: dir, Replica: true}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := check(dir, noProgress)
		if err != nil || len(after.Notes) > 0 || after.Digest != found.Digest || after.Digest == "" {
			t.Errorf("what check has read is not what the node reads: %v, %+v, before %+v", err, after, found)
		}
	}
}
