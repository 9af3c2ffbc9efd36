//go:build cgo

package rocks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// A checkpoint has all families as they were after one commit, whatever is committed while it is made.
func TestACheckpointIsTheStoreAfterACommit(t *testing.T) {
	t.Parallel()
	s := openAt(t, newDir(t))
	stop, done := make(chan struct{}), make(chan error)
	var committed atomic.Int64
	go func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			var b storage.Batch
			for family, lives := range window() {
				b.Put(family, windowKey(n), make([]byte, 200))
				if n > lives {
					b.SingleDelete(family, windowKey(n-lives))
				}
			}
			b.Put(storage.State, []byte("newest"), strconv.AppendInt(nil, int64(n), 10))
			if err := s.Commit(&b, false); err != nil {
				done <- err
				return
			}
			committed.Store(int64(n))
		}
	}()
	for range 20 {
		before := committed.Load()
		copied := filepath.Join(t.TempDir(), "copy")
		if err := s.Checkpoint(copied); err != nil {
			t.Fatal(err)
		}
		if n := wantWindow(t, copied); n < before {
			t.Errorf("the checkpoint has %d of %d commits", n, before)
		}
		if t.Failed() {
			break
		}
		if err := os.RemoveAll(copied); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// window is how many of the newest records each family has.
func window() map[storage.Family]int {
	return map[storage.Family]int{storage.Messages: 50, storage.Leases: 30, storage.Attempts: 70, storage.Scheduled: 10}
}

func windowKey(n int) []byte { return fmt.Appendf(nil, "%040d", n) }

// wantWindow reads a store and returns the number of its newest commit.
func wantWindow(t *testing.T, dir string) int64 {
	t.Helper()
	i, err := rocks.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if i.Fatal {
		t.Fatalf("%s: %+v", dir, i.Damage)
	}
	newest := int64(0)
	if value, err := i.Store.Get(storage.State, []byte("newest")); err == nil {
		newest, _ = strconv.ParseInt(string(value), 10, 64)
	}
	for family, lives := range window() {
		it := i.Store.Scan(family, nil, nil)
		n := max(newest-int64(lives), 0)
		for it.Next() {
			if n++; string(it.Key()) != string(windowKey(int(n))) {
				t.Errorf("%s after commit %d: %s in place of %d", family, newest, it.Key(), n)
				break
			}
		}
		if n != newest {
			t.Errorf("%s after commit %d ends with %d", family, newest, n)
		}
		if err := it.Err(); err != nil {
			t.Error(err)
		}
		it.Close()
	}
	return newest
}

// A process may end while it opens a checkpoint for the first time: RocksDB has made its lock then, and not
// yet a log. The checkpoint has none either, unless RocksDB is 9 or newer.
func TestACheckpointOpensAfterAnOpeningThatWasNotCompleted(t *testing.T) {
	s := openAt(t, newDir(t))
	put(t, s, storage.Messages, "a", "1")
	dir := filepath.Join(t.TempDir(), "copy")
	if err := s.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "LOCK"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, openAt(t, dir), "a", "1")
}
