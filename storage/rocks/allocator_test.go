//go:build cgo && !plain

package rocks

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/faisca/fila/storage"
)

// However many threads use the store, what they allocate and free comes from one pool:
// what one frees is there for all others.
func TestThreadsOfTheStoreShareTheirMemory(t *testing.T) {
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	var b storage.Batch
	for i := range 1000 {
		b.Put(storage.State, fmt.Appendf(nil, "key%d", i), make([]byte, 10_000))
	}
	if err := s.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil { // a flush, by RocksDB's own threads
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 { // calls of C at the same time are on threads of their own
		all.Go(func() {
			for i := range 1000 {
				if _, err := s.Get(storage.State, fmt.Appendf(nil, "key%d", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := arenas(); n != 1 {
		t.Errorf("there are %d pools of memory", n)
	}
}

// A Get leaves nothing allocated behind, in memtables as in tables.
func TestAGetFreesWhatItAllocates(t *testing.T) {
	for _, memtable := range []Memtable{Lanes, SkipList} {
		s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Memtable: memtable})
		if err != nil {
			t.Fatal(err)
		}
		key := storage.AppendMessageKey(nil, 1, "key", 5, storage.ID{1})
		var b storage.Batch
		b.Put(storage.Messages, key, []byte("payload"))
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
		const rounds = 50_000
		var before int
		for n := range rounds + 1000 {
			if n == 1000 {
				before = used()
			}
			if _, err := s.Get(storage.Messages, key); err != nil {
				t.Fatal(err)
			}
		}
		if more := used() - before; more > rounds*10 {
			t.Errorf("memtable %s: %d bytes more after %d Gets", memtable, more, rounds)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
