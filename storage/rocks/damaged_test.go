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
	const empty = "\x05\x2b\x28\x43\x00\x00\x01" // the record without fields that RocksDB 8.9 writes first
	manifest := filepath.Join(dir, currentManifest(t, dir))
	all, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"", empty, empty + "\x01\x02\x03", string(all[:10])} {
		if err := os.WriteFile(manifest, []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		if !damaged(dir, said) {
			t.Errorf("a store of whose MANIFEST only %q is left counts as whole", left)
		}
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
