//go:build cgo

package rocks_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/faisca/fila/internal/smalldisk"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// The space of a queue that is purged comes back while nothing else is written, and that of others stays.
func TestTheSpaceOfAPurgedQueueComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := rocks.Open(rocks.Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	chance := rand.NewChaCha8([32]byte{})
	const many, kept = 800, 50
	var b storage.Batch
	for i := range many + kept {
		payload := make([]byte, 100_000)
		_, _ = chance.Read(payload)
		queue := uint32(1)
		if i >= many {
			queue = 2
		}
		b.Reset()
		b.Put(storage.Messages, storage.MessageKey{Queue: queue, Key: "k", ID: storage.ID{byte(i >> 8), byte(i)}}.Append(nil), payload)
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Sync(), s.Reopen()); err != nil { // writes what is in memory into tables
		t.Fatal(err)
	}
	used := func() int64 {
		n, err := smalldisk.Usage(dir)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := used()
	b.Reset()
	prefix := storage.AppendQueuePrefix(nil, 1)
	b.DeleteRange(storage.Messages, prefix, storage.After(prefix))
	if err := s.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the space of the purged queue", func() bool { return used() < before-many*100_000*9/10 })
	if n := count(t, s); n != kept {
		t.Errorf("%d messages are left, want %d", n, kept)
	}
}
