//go:build cgo

package rocks_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
	"github.com/faisca/fila/storage/storetest"
)

func TestRocksIsAStore(t *testing.T) {
	t.Parallel()
	for _, memtable := range []rocks.Memtable{rocks.Lanes, rocks.SkipList} {
		t.Run(string(memtable), func(t *testing.T) {
			storetest.Exercise(t, func(t *testing.T, dir string) storetest.Store {
				t.Helper()
				s, err := rocks.Open(rocks.Options{Path: dir, Memtable: memtable})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

// A store may be opened in another mode, and with another memtable, than it was made with.
func TestEveryModeReadsWhatAnotherWrote(t *testing.T) {
	dir := newDir(t)
	modes := []rocks.Mode{rocks.Balanced, rocks.LowSpace, rocks.HighThroughput, ""}
	memtables := []rocks.Memtable{rocks.Lanes, rocks.SkipList}
	for n, mode := range modes {
		s, err := rocks.Open(rocks.Options{Path: dir, Mode: mode, Memtable: memtables[n%2]})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		put(t, s, storage.Messages, fmt.Sprintf("key%d", n), string(mode))
		// A checkpoint writes everything to tables, compressed as the mode says.
		if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		for m, other := range modes[:n+1] {
			want(t, s, fmt.Sprintf("key%d", m), string(other))
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestStatsSayWhatIsThere(t *testing.T) {
	s := openAt(t, newDir(t))
	put(t, s, storage.Messages, "a", "1", "b", "1")
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if st.Keys != 3 || st.TableBytes != 0 || st.MemtableBytes == 0 || st.CacheMaxBytes != 64<<20 || st.WriteStopped || st.BackgroundErrors != 0 ||
		st.LogBytes == 0 || st.LevelFiles != [rocks.Levels]uint64{} || st.CacheHits+st.CacheMisses != 0 {
		t.Errorf("before a flush: %+v", st) // the third key is the format
	}
	if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil {
		t.Fatal(err)
	}
	if st, err = s.Stats(); err != nil || st.Keys != 3 || st.TableBytes == 0 || st.Level0Files != 1 {
		t.Errorf("after a flush: %+v, %v", st, err)
	}
	files := st.LevelFiles
	for range 2 {
		if _, err := s.Get(storage.Messages, []byte("a")); err != nil {
			t.Fatal(err)
		}
	}
	st, err = s.Stats()
	if err != nil || files[0] == 0 || st.LevelFiles != files || st.CacheMisses == 0 || st.CacheHits == 0 {
		t.Errorf("after reading twice: %+v, %v", st, err)
	}
}

// Closing and reopening wait for running reads.
func TestCloseAndReopenWhileEverybodyReads(t *testing.T) {
	s := openAt(t, newDir(t))
	put(t, s, storage.Messages, "a", "1", "b", "1")
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				it := s.Scan(storage.Messages, []byte("a"), []byte("c"))
				_, err := s.Get(storage.Messages, []byte("a"))
				it.Next()
				err = errors.Join(err, it.Err())
				it.Close()
				_, statsErr := s.Stats()
				if err = errors.Join(err, statsErr); err == nil {
					continue
				}
				if !errors.Is(err, storage.ErrClosed) {
					t.Error(err)
				}
				return
			}
		})
	}
	var reopens sync.WaitGroup
	for range 3 {
		reopens.Go(func() {
			for range 3 {
				if err := s.Reopen(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reopens.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
}

// RocksDB 6 has no bound for the memory of such a read, and does none.
func TestManyMessagesAreReadAtATime(t *testing.T) {
	s := openAt(t, newDir(t))
	defer s.Close() //nolint:errcheck // nothing is kept
	var b storage.Batch
	var keys [][]byte
	for n := range 10 {
		keys = append(keys, storage.AppendMessageKey(nil, 1, "key", 0, storage.ID{byte(n)}))
		m := storage.Message{Payload: []byte("payload")}
		b.Put(storage.Messages, keys[n], m.Append(nil))
	}
	if err := s.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	want := len(keys)
	if strings.HasPrefix(rocks.Version(), "6.") {
		want = 0
	}
	if got := storage.GetMessages(s, keys, 10_000); len(got) != want {
		t.Errorf("%d of %d messages, want %d", len(got), len(keys), want)
	}
}
