//go:build cgo

package rocks

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/faisca/fila/storage"
)

// On a full disk RocksDB's word for damage counts only if the files of the store are damaged.
func TestDamageOnAFullDiskIsThatOfTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	said := fmt.Errorf("%w: the end of a file is missing", storage.ErrCorrupt)
	for _, c := range []struct {
		err  error
		want bool
	}{{said, false}, {syscall.ENOSPC, false}, {storage.ErrLocked, true}, {storage.ErrFormat, true}} {
		if got := damaged(dir, c.err); got != c.want {
			t.Errorf("a whole store, %v: %v", c.err, got)
		}
	}
	if err := os.Truncate(filepath.Join(dir, currentManifest(t, dir)), 10); err != nil {
		t.Fatal(err)
	}
	if !damaged(dir, said) {
		t.Error("a store with half a MANIFEST counts as whole")
	}
}

func currentManifest(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, manifestPrefix+"*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("MANIFESTs %v, %v", names, err)
	}
	return filepath.Base(names[0])
}
