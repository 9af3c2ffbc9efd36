//go:build !plain

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
