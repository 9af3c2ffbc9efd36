//go:build cgo

package rocks_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/internal/testkit/smalldisk"
	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks"
)

// The space of a queue that is purged comes back while nothing else is written, and that of others stays. A process
// that ends right after the purge leaves that to the next one.
func TestTheSpaceOfAPurgedQueueComesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		after func(*rocks.Store) error // the purge
	}{
		{"while it runs", func(*rocks.Store) error { return nil }},
		{"after a start", func(s *rocks.Store) error { return s.Close() }},
		{"after a reopening", func(s *rocks.Store) error { return s.Reopen() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testSpaceComesBack(t, c.after)
		})
	}
}

func testSpaceComesBack(t *testing.T, after func(*rocks.Store) error) {
	t.Helper()
	dir := t.TempDir()
	open := func() *rocks.Store {
		s, err := rocks.Open(rocks.Options{Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s := open()
	chance := rand.NewChaCha8([32]byte{})
	const many, kept = 1500, 20 // more than a table, which a start compacts anyway
	const inLogs = 900
	var b storage.Batch
	for i := range many + 2*kept {
		payload := make([]byte, 100_000)
		_, _ = chance.Read(payload)
		queue := uint32(2)
		if i >= many {
			queue = 1 + 2*uint32(i%2) // a queue before and one behind the purged one
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
	b.Reset()
	b.Put(storage.State, []byte("small"), nil) // keeps the logs of all that follows
	for i := range inLogs {
		payload := make([]byte, 100_000)
		_, _ = chance.Read(payload)
		b.Put(storage.Messages, storage.MessageKey{Queue: 2, Key: "later", ID: storage.ID{byte(i >> 8), byte(i)}}.Append(nil), payload)
		if err := s.Commit(&b, false); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	before := used()
	prefix := storage.AppendQueuePrefix(nil, 2)
	b.DeleteRange(storage.Messages, prefix, storage.After(prefix))
	if err := errors.Join(s.Commit(&b, true), after(s)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(storage.Messages, nil); errors.Is(err, storage.ErrClosed) {
		s = open()
	}
	testkit.Eventually(t, "the space of the purged queue", func() bool { return used() < before-(many+inLogs)*100_000*9/10 })
	if n := count(t, s); n != 2*kept {
		t.Errorf("%d messages are left, want %d", n, 2*kept)
	}
}
