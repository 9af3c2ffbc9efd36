package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/faisca/fila/storage"
)

// This file tests batches: their effect and their order.

func newStore(_ *testing.T, s *subject) {
	for _, f := range storage.Families() {
		if f == storage.Default {
			s.wantAll(f, "format=1")
		} else {
			s.wantAll(f, "")
		}
	}
}

func batchOrder(_ *testing.T, s *subject) {
	s.put("old", "0", "gone", "0")
	s.commit(func(b *storage.Batch) {
		b.Put(storage.Messages, []byte("a"), []byte("1"))
		b.Put(storage.Messages, []byte("a"), []byte("2"))
		b.Delete(storage.Messages, []byte("gone"))
		b.Put(storage.Messages, []byte("b"), []byte("1"))
		b.Delete(storage.Messages, []byte("b"))
		b.Delete(storage.Messages, []byte("c"))
		b.Put(storage.Messages, []byte("c"), []byte("1"))
		b.Put(storage.Messages, []byte("d"), []byte("1"))
		b.SingleDelete(storage.Messages, []byte("d"))
		b.Put(storage.Messages, []byte("e"), []byte("1"))
		b.DeleteRange(storage.Messages, []byte("e"), []byte("f"))
		b.Put(storage.Messages, []byte("ee"), []byte("1"))
	})
	s.wantAll(storage.Messages, "a=2 c=1 ee=1 old=0")
}

func batchReuse(t *testing.T, s *subject) {
	t.Helper()
	var b storage.Batch
	for _, key := range []string{"a", "b"} {
		b.Reset()
		b.Put(storage.Messages, []byte(key), []byte("1"))
		if err := s.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		// The store must not look at the batch after Commit returned.
		clear(b.Bytes()[12:])
	}
	s.wantAll(storage.Messages, "a=1 b=1")
}

func emptyBatch(t *testing.T, s *subject) {
	t.Helper()
	for _, sync := range []bool{false, true} {
		if err := s.Commit(&storage.Batch{}, sync); err != nil {
			t.Error(err)
		}
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	s.wantAll(storage.Messages, "")
}

func missingKey(_ *testing.T, s *subject) {
	s.put("b", "1")
	s.wantNone("a")
	s.wantNone("bb")
	s.wantNone("")
	s.commit(func(b *storage.Batch) { b.Delete(storage.Messages, []byte("b")) })
	s.wantNone("b")
}

func getCopies(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "value")
	got, err := s.Get(storage.Messages, []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	clear(got)
	s.want("a", "value")
}

func emptyValues(_ *testing.T, s *subject) {
	s.commit(func(b *storage.Batch) {
		b.Put(storage.Messages, nil, nil)
		b.Put(storage.Messages, []byte("a"), []byte{})
	})
	s.want("", "")
	s.want("a", "")
	s.wantAll(storage.Messages, "= a=")
}

func binaryKeys(t *testing.T, s *subject) {
	t.Helper()
	var b storage.Batch
	for i := range 256 {
		b.Put(storage.Messages, []byte{byte(i)}, []byte{byte(i), 0, '\n'})
		b.Put(storage.Messages, []byte{byte(i), 0}, nil)
	}
	if err := s.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	n := 0
	for ok := it.Seek(nil); ok; ok = it.Next() {
		want := []byte{byte(n / 2), 0}[:1+n%2]
		if !bytes.Equal(it.Key(), want) {
			t.Fatalf("key %d is %x, want %x", n, it.Key(), want)
		}
		if n%2 == 0 && !bytes.Equal(it.Value(), []byte{want[0], 0, '\n'}) {
			t.Fatalf("value %d is %x", n, it.Value())
		}
		n++
	}
	if n != 512 {
		t.Errorf("%d keys, want 512", n)
	}
}

func familiesSeparate(t *testing.T, s *subject) {
	t.Helper()
	for _, f := range storage.Families()[1:] {
		s.commit(func(b *storage.Batch) {
			b.Put(f, []byte("key"), []byte(f.String()))
			b.Put(f, []byte("gone"), nil)
		})
	}
	s.commit(func(b *storage.Batch) {
		b.DeleteRange(storage.Leases, []byte("gone"), []byte("h"))
		b.SingleDelete(storage.Queues, []byte("gone"))
		b.Delete(storage.State, []byte("gone"))
	})
	for _, f := range storage.Families()[1:] {
		want := "gone= key=" + f.String()
		switch f {
		case storage.Leases, storage.Queues, storage.State:
			want = "key=" + f.String()
		default:
		}
		s.wantAll(f, want)
		if got, err := s.Get(f, []byte("key")); err != nil || string(got) != f.String() {
			t.Errorf("%s: %q, %v", f, got, err)
		}
	}
}

// largeValues is about the largest message a client may send, and then some.
func largeValues(t *testing.T, s *subject) {
	t.Helper()
	value := make([]byte, 17<<20)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(value); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		s.commit(func(b *storage.Batch) { b.Put(storage.Messages, []byte(key), value) })
	}
	check := func() {
		t.Helper()
		got, err := s.Get(storage.Messages, []byte("b"))
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(value))
		}
		it := s.Scan(storage.Messages, nil, nil)
		defer it.Close()
		if !it.Seek([]byte("a")) || !bytes.Equal(it.Value(), value) || !it.Next() || !bytes.Equal(it.Value(), value) || it.Next() {
			t.Fatalf("scan sees something else, %v", it.Err())
		}
	}
	check()
	s.again()
	check()
}

func singleDelete(_ *testing.T, s *subject) {
	s.put("a", "1", "b", "1")
	s.commit(func(b *storage.Batch) { b.SingleDelete(storage.Messages, []byte("a")) })
	s.wantAll(storage.Messages, "b=1")
	s.put("a", "2")
	s.wantAll(storage.Messages, "a=2 b=1")
	s.commit(func(b *storage.Batch) {
		b.SingleDelete(storage.Messages, []byte("a"))
		b.Put(storage.Messages, []byte("a"), []byte("3"))
	})
	s.again()
	s.wantAll(storage.Messages, "a=3 b=1")
}

// singleDeleteAgain: the contract counts the puts since the key last did not
// exist, however it came not to exist.
func singleDeleteAgain(_ *testing.T, s *subject) {
	for _, remove := range []func(b *storage.Batch, key []byte){
		func(b *storage.Batch, key []byte) { b.Delete(storage.Messages, key) },
		func(b *storage.Batch, key []byte) { b.SingleDelete(storage.Messages, key) },
		func(b *storage.Batch, key []byte) { b.DeleteRange(storage.Messages, key, storage.After(key)) },
	} {
		s.put("a", "1")
		s.commit(func(b *storage.Batch) { remove(b, []byte("a")) })
		s.wantAll(storage.Messages, "")
	}
	s.put("a", "1")
	s.put("a", "2")
	s.commit(func(b *storage.Batch) { b.Delete(storage.Messages, []byte("a")) })
	s.put("a", "3")
	s.commit(func(b *storage.Batch) { b.SingleDelete(storage.Messages, []byte("a")) })
	s.wantAll(storage.Messages, "")
	s.again()
	s.wantAll(storage.Messages, "")
}

func deleteRange(_ *testing.T, s *subject) {
	s.put("a", "1", "b", "1", "bb", "1", "c", "1", "d", "1")
	s.commit(func(b *storage.Batch) { b.DeleteRange(storage.Messages, []byte("b"), []byte("c")) })
	s.wantAll(storage.Messages, "a=1 c=1 d=1")
	s.put("b", "2")
	s.wantAll(storage.Messages, "a=1 b=2 c=1 d=1")
	s.commit(func(b *storage.Batch) { b.DeleteRange(storage.Messages, nil, []byte("bb")) })
	s.wantAll(storage.Messages, "c=1 d=1")
	s.again()
	s.wantNone("b")
	s.wantAll(storage.Messages, "c=1 d=1")
}

func refuseClosed(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1")
	s.close()
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	if it.Seek(nil) || it.Next() {
		t.Error("a scan goes on")
	}
	_, getErr := s.Get(storage.Messages, []byte("a"))
	for name, err := range map[string]error{
		"commit":     s.Commit(&storage.Batch{}, false),
		"sync":       s.Sync(),
		"get":        getErr,
		"scan":       it.Err(),
		"reopen":     s.Reopen(),
		"checkpoint": s.Checkpoint(s.dir + ".copy"),
	} {
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("%s: %v, want %v", name, err, storage.ErrClosed)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
}
