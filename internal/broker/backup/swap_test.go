package backup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestASwapThatWasKilledIsEndedByTheNext creates the directories of each intermediate state of a
// swap and runs the swap again.
func TestASwapThatWasKilledIsEndedByTheNext(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, x := range []struct {
		name   string
		leave  func(s *Swap) error // steps completed before the kill
		ended  bool                // the new one is in place after Resume
		exists string              // contents of DIR after Resume
	}{
		{"nothing", func(*Swap) error { return nil }, false, "old"},
		{"before the mark", func(s *Swap) error { return os.Mkdir(s.Made, 0o700) }, false, "old"},
		{"while it is made", func(s *Swap) error { return s.Begin() }, false, "old"},
		{"after the exchange", func(s *Swap) error {
			if err := begun(s); err != nil {
				return err
			}
			return exchange(s.Dir, s.Made)
		}, true, "new"},
		{"before the mark is removed", func(s *Swap) error {
			if err := begun(s); err != nil {
				return err
			}
			if err := exchange(s.Dir, s.Made); err != nil {
				return err
			}
			return os.Rename(s.Made, s.Kept)
		}, true, "new"},
		{"between two renames", func(s *Swap) error {
			if err := begun(s); err != nil {
				return err
			}
			return os.Rename(s.Dir, s.Kept)
		}, true, "new"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := NewSwap(filepath.Join(t.TempDir(), "data"), at)
			if err := os.Mkdir(s.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, s.Dir, "old")
			if err := x.leave(s); err != nil {
				t.Fatal(err)
			}
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			if err := s.Discard(); err != nil {
				t.Fatal(err)
			}
			wantOnly(t, s.Dir, x.exists)
			if _, err := os.Stat(s.Made); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", s.Made, err)
			}
			if x.ended {
				wantOnly(t, s.Kept, "old")
				return
			}
			if err := begun(s); err != nil {
				t.Fatal(err)
			}
			if err := s.Do(); err != nil {
				t.Fatal(err)
			}
			wantOnly(t, s.Dir, "new")
			wantOnly(t, s.Kept, "old")
		})
	}
}

func begun(s *Swap) error {
	if err := s.Begin(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Made, "new"), nil, 0o600)
}

func write(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantOnly fails unless a directory contains exactly one file of that name.
func wantOnly(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s has %v, %v; want %s", dir, entries, err, name)
	}
}
