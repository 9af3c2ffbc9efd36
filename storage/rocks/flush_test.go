//go:build cgo

package rocks

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// putMessage commits a message of some bytes.
func putMessage(t *testing.T, s *Store, n, size int) {
	t.Helper()
	var b storage.Batch
	var id storage.ID
	binary.BigEndian.PutUint64(id[:], uint64(n))
	b.Put(storage.Messages, storage.AppendMessageKey(nil, 1, "key", 0, id), make([]byte, size))
	if err := s.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
}

// While a caller waits for flushes, full memtables that no flush is to take are flushed.
func TestAForgottenFlushIsRequestedAgain(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	full := func() bool { return s.d.sum("rocksdb.num-immutable-mem-table") > 0 }
	for n := 0; !full(); n++ { // one is full, and a flush takes two
		putMessage(t, s, n, 12_000)
	}
	if n := s.d.sum("rocksdb.mem-table-flush-pending") + s.d.sum("rocksdb.num-running-flushes"); n != 0 {
		t.Fatalf("%d flushes are under way, want a memtable without one", n)
	}
	s.d.awaitFlushes(func() {
		testkit.Eventually(t, "the full memtable is flushed", func() bool { return !full() })
	})
}

// A flush that is requested while another begins ends without further writes. RocksDB forgets about
// one of forty.
func TestAFlushBesideAnotherEnds(t *testing.T) {
	testkit.AtLength(t)
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "store"), Mode: LowSpace})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 200*1000; n++ {
		putMessage(t, s, n%10_000, 9_000)
		if v, _ := s.d.db.GetIntPropertyCF("rocksdb.num-running-flushes", s.d.families[storage.Messages]); v == 0 {
			continue
		}
		n += 1000 - n%1000 // the next round
		putMessage(t, s, n%10_000, 90)
		ended := make(chan error, 1)
		go func() { ended <- s.d.flush(func() bool { return true }) }()
		if err := testkit.Receive(t, "the end of a flush", ended); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // not after a failure: the flush would still use it
		t.Fatal(err)
	}
}
