//go:build cgo && !plain

package rocks

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

func largeKey(n int) []byte {
	var id storage.ID
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return storage.AppendMessageKey(nil, 1, string(rune('a'+n%3)), 0, id)
}

func largeValue(n, size int) []byte { return bytes.Repeat([]byte{byte(n), byte(n >> 8), 7}, size/3) }

// fillLarge commits messages of one size one by one, and returns how many memtables they took.
func fillLarge(t *testing.T, s *Store, messages, size int) int {
	t.Helper()
	begun := len(notedLogs(s.path))
	for n := range messages {
		var b storage.Batch
		b.Put(storage.Messages, largeKey(n), largeValue(n, size))
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
		if most, is := s.p.large, s.d.large.uncounted(); is > most {
			t.Fatalf("%d bytes are not counted, want at most %d", is, most)
		}
	}
	return len(notedLogs(s.path)) - begun
}

// A memtable takes more bytes of large values than of small ones.
func TestLargeValuesFillLargerMemtables(t *testing.T) {
	const bytes = 60 << 20
	for size, want := range map[int][2]int{256 << 10: {3, 5}, 15 << 10: {12, 18}} {
		s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Memtable: Lanes})
		if err != nil {
			t.Fatal(err)
		}
		if n := fillLarge(t, s, bytes/size, size); n < want[0] || n > want[1] {
			t.Errorf("messages of %d bytes took %d memtables, want %d to %d", size, n, want[0], want[1])
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// However many large values are written, what memtables do not count is bounded; it is there in the
// figures, and returned by a flush. All values are found, in memtables as in tables.
func TestLargeValuesAreBounded(t *testing.T) {
	const messages, size = 700, 90_000
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace, Memtable: Lanes})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	find := func(from int) {
		t.Helper()
		for n := from; n < messages; n++ {
			if v, err := s.Get(storage.Messages, largeKey(n)); err != nil || !bytes.Equal(v, largeValue(n, size)) {
				t.Fatalf("message %d: %d bytes, %v", n, len(v), err)
			}
		}
		it := s.Scan(storage.Messages, nil, nil)
		defer it.Close()
		n := 0
		for ok := it.Seek(nil); ok; ok = it.Next() {
			if len(it.Value()) != size {
				t.Fatalf("%x has %d bytes", it.Key(), len(it.Value()))
			}
			n++
		}
		if n != messages || it.Err() != nil {
			t.Fatalf("%d messages were found, %v", n, it.Err())
		}
	}
	fillLarge(t, s, messages, size)
	find(messages - 20)
	// A flush may have ended at any moment, and then all is counted until the next large value.
	testkit.Eventually(t, "memtables hold more than what RocksDB counts", func() bool {
		fillLarge(t, s, 1, size) // the first message as it is
		counted := s.d.sum("rocksdb.cur-size-all-mem-tables")
		st, err := s.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.d.large.uncounted() > 0 && st.MemtableBytes > counted
	})
	if err := s.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil { // a flush
		t.Fatal(err)
	}
	testkit.Eventually(t, "all bytes are counted after a flush", func() bool { return s.d.large.uncounted() <= 0 })
	find(0)
}
