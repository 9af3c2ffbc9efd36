//go:build cgo

package broker

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/internal/replica"
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
	if err := replica.Claim(s, "a-cluster"); err != nil {
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
