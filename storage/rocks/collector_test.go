//go:build cgo

package rocks_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// A table full of deletes is compacted although nothing else asks for it.
func TestDeletesThatLieTogetherAreCompacted(t *testing.T) {
	testDrained(t, 5000, (*storage.Batch).Delete)
}

// So is one full of single deletes, which RocksDB's own collector does not count.
func TestSingleDeletesThatLieTogetherAreCompacted(t *testing.T) {
	testDrained(t, 20_000, (*storage.Batch).SingleDelete)
}

func testDrained(t *testing.T, records int, remove func(b *storage.Batch, f storage.Family, key []byte)) {
	t.Helper()
	s := openAt(t, newDir(t))
	flush := func(name string, change func(b *storage.Batch, key []byte)) {
		t.Helper()
		var b storage.Batch
		for n := range records {
			change(&b, fmt.Appendf(nil, "key%05d", n))
		}
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
		// A checkpoint writes everything to tables first.
		if err := s.Checkpoint(filepath.Join(t.TempDir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	flush("puts", func(b *storage.Batch, key []byte) { b.Put(storage.Attempts, key, make([]byte, 100)) })
	flush("deletes", func(b *storage.Batch, key []byte) { remove(b, storage.Attempts, key) })
	testkit.Eventually(t, "nothing is left but the table with the format record", func() bool {
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return st.TableBytes < 5_000 && st.Compactions == 0
	})
}

// A scan of a whole family, as at a start, reads each block once: it takes no room in the cache
// from blocks that are read again. A scan with an end fills the cache.
func TestAScanOfAWholeFamilyStaysOutOfTheCache(t *testing.T) {
	s := openAt(t, newDir(t))
	var b storage.Batch
	for n := range 10_000 {
		b.Put(storage.Budgets, fmt.Appendf(nil, "key%05d", n), fmt.Appendf(nil, "%0200d", n*n))
	}
	if err := s.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(filepath.Join(t.TempDir(), "flushed")); err != nil {
		t.Fatal(err)
	}
	cached := func(to []byte) uint64 {
		t.Helper()
		it := s.Scan(storage.Budgets, nil, to)
		defer it.Close()
		n := 0
		for it.Next() {
			n += len(it.Value())
		}
		if it.Err() != nil || n != 10_000*200 {
			t.Fatalf("%d bytes read: %v", n, it.Err())
		}
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return st.CacheBytes
	}
	whole := cached(nil)
	ranged := cached([]byte("l"))
	if ranged < whole+200_000 {
		t.Errorf("the cache holds %d bytes after a scan of the family, and %d after one with an end", whole, ranged)
	}
}
