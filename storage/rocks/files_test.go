//go:build cgo

package rocks_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
	"github.com/faisca/fila/storage/rocks/files"
	"github.com/faisca/fila/storage/storetest"
)

// mixed makes a store of a mode with puts, deletions of every kind and values of all
// sizes, in tables of several generations and in the log, and returns what is in it.
func mixed(t *testing.T, mode rocks.Mode) (dir string, left map[string]string) {
	t.Helper()
	dir = newDir(t)
	s, err := rocks.Open(rocks.Options{Path: dir, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	left = map[string]string{}
	key := func(i int) []byte { return fmt.Appendf(nil, "q\x00\x05key-%d%08d", i%4, i*7919%100_000_007) }
	var b storage.Batch
	commit := func(n int) {
		if n > 0 && b.Len() < n {
			return
		}
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	const generations, each = 5, 1200
	for g := range generations {
		for i := g * each; i < (g+1)*each; i++ {
			value := bytes.Repeat(fmt.Appendf(nil, "%d", i*i*31), i%97+1)
			b.Put(storage.Messages, key(i), value)
			left[string(key(i))] = string(value)
			if g > 0 && i%3 == 0 {
				b.SingleDelete(storage.Messages, key(i-each))
				delete(left, string(key(i-each)))
			}
			b.Put(storage.Attempts, key(i%500), fmt.Append(nil, i))
			if i%7 == 0 {
				b.Delete(storage.Attempts, key(i%500))
			}
			commit(5)
		}
		from, to := fmt.Appendf(nil, "q\x00\x05key-%d0001", g%4), fmt.Appendf(nil, "q\x00\x05key-%d0003", g%4)
		b.DeleteRange(storage.Messages, from, to)
		for k := range left {
			if k >= string(from) && k < string(to) {
				delete(left, k)
			}
		}
		commit(0)
		if g < generations-1 {
			if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil { // writes tables
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, left
}

// modes are all of them.
func modes() []rocks.Mode { return []rocks.Mode{rocks.LowSpace, rocks.Balanced, rocks.HighThroughput} }

// TestARebuildOfASoundStoreChangesNothing reads tables and logs in our own way, though
// all of them are sound, and compares with what was written.
func TestARebuildOfASoundStoreChangesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range modes() {
		t.Run(string(mode), func(t *testing.T) {
			dir, left := mixed(t, mode)
			// What is wrong with the store is about none of its records.
			change(t, filepath.Join(dir, "CURRENT"), func([]byte) []byte { return []byte("junk") })
			got, done := rebuilt(t, dir)
			if len(got) != len(left) {
				t.Errorf("%d records, want %d: %+v", len(got), len(left), done)
			}
			for k, v := range left {
				if got[k] != v {
					t.Errorf("%q is %.20q, want %.20q", k, got[k], v)
				}
			}
			if done.MayReturn != 0 || len(done.Notes) != 0 {
				t.Errorf("it lost something: %+v", done)
			}
		})
	}
}

// rebuilt rebuilds a store and returns its messages.
func rebuilt(t *testing.T, dir string) (map[string]string, rocks.Rebuilt) {
	t.Helper()
	i, err := rocks.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	damaged := i.VerifyTables(func(*rocks.Table) {})
	s, done, err := i.Rebuild(filepath.Join(t.TempDir(), "new"), damaged, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it was only read
	got := map[string]string{}
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	for it.Next() {
		got[string(it.Key())] = string(it.Value())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return got, done
}

// TestATableIsReadWithoutItsIndex: all data blocks are found without what leads to them.
func TestATableIsReadWithoutItsIndex(t *testing.T) {
	t.Parallel()
	for _, mode := range modes() {
		t.Run(string(mode), func(t *testing.T) {
			dir, left := mixed(t, mode)
			tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
			if err != nil || len(tables) < 3 {
				t.Fatalf("tables %v, %v", tables, err)
			}
			for _, file := range tables {
				change(t, file, func(b []byte) []byte { b[len(b)-1] ^= 0xff; return b }) // of the footer
			}
			got, done := rebuilt(t, dir)
			for k, v := range left {
				if got[k] != v {
					t.Errorf("%q is %.20q, want %.20q", k, got[k], v)
				}
			}
			if len(got) != len(left) || done.MayReturn != 0 {
				t.Errorf("%d records, want %d: %+v", len(got), len(left), done)
			}
		})
	}
}

// TestWhatWasDeletedStaysDeleted flips a byte in each table, one after the other, where
// most of what the tables hold are deletions of what other tables hold.
func TestWhatWasDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	dir, left := mixed(t, rocks.Balanced)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) < 3 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	returned := 0
	for _, file := range tables {
		r, err := files.OpenTable(file, nil)
		if err != nil || r.Name != storage.Messages.String() {
			continue
		}
		for _, where := range []float64{0.1, 0.5, 0.8} {
			harmed := filepath.Join(t.TempDir(), "harmed")
			storetest.CopyFiles(t, harmed, dir)
			change(t, filepath.Join(harmed, filepath.Base(file)), func(b []byte) []byte { b[int(float64(len(b))*where)] ^= 1; return b })
			got, done := rebuilt(t, harmed)
			back, lost := 0, 0
			for k := range got {
				if left[k] == "" {
					back++
				}
			}
			for k := range left {
				if got[k] == "" {
					lost++
				}
			}
			t.Logf("%s at %.1f: %d are back, %d lost: %+v", filepath.Base(file), where, back, lost, done)
			if int64(back) > done.MayReturn {
				t.Errorf("%s at %.1f: %d are back, and %d at most were reported", filepath.Base(file), where, back, done.MayReturn)
			}
			if lost > 120 || back > 120 {
				t.Errorf("%s at %.1f: %d are lost and %d are back for one block", filepath.Base(file), where, lost, back)
			}
			returned += back
		}
	}
	if returned == 0 {
		t.Error("no deletion was in a damaged block: the test sees nothing")
	}
}
