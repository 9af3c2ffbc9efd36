//go:build cgo

package rocks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// spread makes a store with many records in table files, and some in the log.
func spread(t *testing.T) (dir string, total int) {
	t.Helper()
	const inTables, inLog = 3000, 100
	dir = newDir(t)
	s := openAt(t, dir)
	for i := range inTables + inLog {
		if i == inTables {
			if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil { // writes tables
				t.Fatal(err)
			}
		}
		var b storage.Batch
		b.Put(storage.Messages, fmt.Appendf(nil, "queue\x00\x05key-%d%08d", i%4, i*7919%100_000_007), []byte(strings.Repeat(fmt.Sprint(i*i*31), 20)))
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, inTables + inLog
}

func TestARebuildLosesNoMoreThanTheDamagedBlocks(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		damage func(b []byte)
		lost   int // at most
	}{
		{"none", func([]byte) {}, 0},
		{"the first block", func(b []byte) { b[10] ^= 1 }, 75},
		{"a block in the middle", func(b []byte) { b[len(b)/2] ^= 1 }, 75},
		{"two blocks", func(b []byte) { b[len(b)/4] ^= 1; b[len(b)/2] ^= 1 }, 150},
		{"the last block", func(b []byte) { b[len(b)*8/10] ^= 1 }, 75},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir, total := spread(t)
			change(t, largest(t, dir, "*.sst"), func(b []byte) []byte { x.damage(b); return b })
			i, err := rocks.Inspect(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			damaged := i.VerifyTables(func(*rocks.Table) {})
			if (len(damaged) > 0) != (x.lost > 0) {
				t.Errorf("damaged tables: %+v", damaged)
			}
			s, done, err := i.Rebuild(dir+"-new", damaged, func() {})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // it was only read
			n := 0
			it := s.Scan(storage.Messages, nil, nil)
			defer it.Close()
			for it.Next() {
				n++
			}
			if err := it.Err(); err != nil || n < total-x.lost || n == total != (x.lost == 0) {
				t.Errorf("%d of %d records are left, %v: %+v", n, total, err, done)
			}
			t.Logf("%d of %d records are left: %+v", n, total, done)
		})
	}
}

// A look changes nothing, not even the log of RocksDB's own.
func TestAnInspectionChangesNothing(t *testing.T) {
	dir, _ := spread(t)
	before := listing(t, dir)
	i, err := rocks.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	i.VerifyTables(func(*rocks.Table) {})
	i.Close()
	if after := listing(t, dir); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if _, err := rocks.Inspect(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no store") {
		t.Errorf("an empty directory: %v", err)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %s\n", e.Name(), info.Size(), info.ModTime())
	}
	return b.String()
}
