package backup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeStore writes a file, and then returns err.
type fakeStore struct{ err error }

func (s *fakeStore) Checkpoint(dir string) error {
	if err := os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("x"), 0o600); err != nil {
		return err
	}
	return s.err
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestABackupHasItsNameWhenItIsWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	if at := Newest(dir); !at.IsZero() {
		t.Errorf("the newest of none: %s", at)
	}
	s := &fakeStore{}
	b := New(dir, s)
	path, err := b.Take("monday")
	if err != nil || path != filepath.Join(dir, "monday") {
		t.Fatalf("%q, %v", path, err)
	}
	if at := Newest(dir); at.IsZero() {
		t.Error("the newest is not found")
	}
	if _, err := b.Take("monday"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the same name again: %v", err)
	}
	s.err = errors.New("the disk is full")
	if _, err := b.Take("tuesday"); !errors.Is(err, s.err) {
		t.Errorf("a store that fails: %v", err)
	}
	if got := names(t, dir); got != ".lock monday" {
		t.Errorf("there are %s", got)
	}
}

func TestWhatACrashLeftIsRemovedAndNeverABackup(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, unfinished+"monday"), 0o750); err != nil {
		t.Fatal(err)
	}
	if at := Newest(dir); !at.IsZero() {
		t.Errorf("what is unfinished counts as of %s", at)
	}
	if _, err := New(dir, &fakeStore{}).Take("tuesday"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != ".lock tuesday" {
		t.Errorf("there are %s", got)
	}
}

func TestTwoBrokersDoNotDisturbEachOther(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir, &fakeStore{}).Take("monday"); err == nil || !strings.Contains(err.Error(), "another broker") {
		t.Errorf("while another makes one: %v", err)
	}
	unlock()
	if _, err := New(dir, &fakeStore{}).Take("monday"); err != nil {
		t.Error(err)
	}
}

func TestNamesLeadNowhereElse(t *testing.T) {
	b := New(t.TempDir(), &fakeStore{})
	for _, name := range []string{
		"", ".", "..", "../x", "/etc", "a/b", `a\b`, ".hidden", "-rf", "a b", "a\x00b", "a\nb", "ä", strings.Repeat("x", nameMax+1), unfinished + "x",
	} {
		if err := b.Check(name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, name := range []string{"a", "20260101-010000.000", "a..b", strings.Repeat("x", nameMax)} {
		if err := b.Check(name); err != nil {
			t.Error(err)
		}
	}
}
