package storetest

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/faisca/fila/storage"
)

// This file tests closing, opening, copying, and concurrent use.

func reopen(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1")
	s.again()
	s.want("a", "1")
	s.commit(func(b *storage.Batch) { b.SingleDelete(storage.Messages, []byte("a")) })
	s.put("c", "1")
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	s.again()
	s.wantAll(storage.Messages, "b=1 c=1")
	s.wantAll(storage.Default, "format=1")
}

func reopenInPlace(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1")
	for range 3 {
		if err := s.Reopen(); err != nil {
			t.Fatal(err)
		}
		s.want("a", "1")
	}
	s.put("b", "1")
	s.wantAll(storage.Messages, "a=1 b=1")
}

// reopenWaits: an open iterator may delay Reopen, neither fails, and the holder of the
// iterator may read until it closes it.
func reopenWaits(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1")
	it := s.Scan(storage.Messages, nil, nil)
	if !it.Next() {
		t.Fatal("no first key")
	}
	done := make(chan error, 1)
	go func() { done <- s.Reopen() }()
	for range 200 {
		s.want("b", "1")
		if !it.Seek([]byte("b")) || string(it.Value()) != "1" {
			t.Fatalf("the iterator is at %q, %v", it.Key(), it.Err())
		}
	}
	it.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.wantAll(storage.Messages, "a=1 b=1")
}

func checkpoint(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1")
	s.commit(func(b *storage.Batch) {
		b.SingleDelete(storage.Messages, []byte("b"))
		b.Put(storage.State, []byte("s"), nil)
	})
	dir := filepath.Join(t.TempDir(), "copy")
	if err := s.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	s.put("c", "1")
	c := &subject{Store: s.open(t, dir), t: t, dir: dir, open: s.open}
	defer c.close()
	c.wantAll(storage.Messages, "a=1")
	c.wantAll(storage.State, "s=")
	c.wantAll(storage.Default, "format=1")
	c.put("d", "1")
	c.again()
	c.wantAll(storage.Messages, "a=1 d=1")
	s.wantAll(storage.Messages, "a=1 c=1")
}

func checkpointExists(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1")
	if err := s.Checkpoint(t.TempDir()); err == nil {
		t.Error("a checkpoint went into a directory that exists")
	}
	if err := s.Checkpoint(filepath.Join(t.TempDir(), "missing", "copy")); err == nil {
		t.Error("a checkpoint went into a directory that does not exist")
	}
	s.put("b", "1")
	s.wantAll(storage.Messages, "a=1 b=1")
}

// readersSeeWholeBatches commits batches that write one number under many keys, while
// readers check that they never see two.
func readersSeeWholeBatches(t *testing.T, s *subject) {
	t.Helper()
	const keys, batches = 16, 300
	write := func(n int) {
		s.commit(func(b *storage.Batch) {
			for k := range keys {
				b.Put(storage.Messages, fmt.Appendf(nil, "%02d", k), fmt.Appendf(nil, "%d", n))
			}
		})
	}
	write(0)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for last := ""; ; {
				select {
				case <-stop:
					return
				default:
				}
				it := s.Scan(storage.Messages, nil, nil)
				var seen []string
				for it.Next() {
					seen = append(seen, string(it.Value()))
				}
				it.Close()
				if len(seen) != keys || len(slices.Compact(seen)) != 1 {
					t.Errorf("a reader sees %v", seen)
					return
				}
				if got, err := s.Get(storage.Messages, []byte("07")); err != nil || len(got) < len(last) {
					t.Errorf("a reader gets %q, %v after %q", got, err, last)
					return
				}
				last = seen[0]
			}
		})
	}
	for n := 1; n < batches; n++ {
		write(n)
		if n%100 == 0 {
			if err := s.Reopen(); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	readers.Wait()
	s.want("00", fmt.Sprint(batches-1))
}

// modelAgrees applies many small changes to the store and to a map, and compares the two
// repeatedly, also after reopening.
func modelAgrees(t *testing.T, s *subject) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	model := map[string]string{}
	puts := map[string]int{}
	key := func() string { return strings.Repeat("abcdef"[r.IntN(6):][:1], 1+r.IntN(4)) }
	step := func(b *storage.Batch) {
		k := key()
		switch r.IntN(8) {
		case 0, 1, 2, 3:
			v := fmt.Sprint(r.IntN(1000))
			b.Put(storage.Messages, []byte(k), []byte(v))
			model[k] = v
			puts[k]++
		case 4:
			b.Delete(storage.Messages, []byte(k))
			delete(model, k)
			delete(puts, k)
		case 5, 6:
			if puts[k] == 1 {
				b.SingleDelete(storage.Messages, []byte(k))
				delete(model, k)
				delete(puts, k)
			}
		case 7:
			to := key()
			b.DeleteRange(storage.Messages, []byte(k), []byte(to))
			for m := range model {
				if k <= m && m < to {
					delete(model, m)
					delete(puts, m)
				}
			}
		}
	}
	compare := func() {
		t.Helper()
		var keys []string
		for k := range model {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for i, k := range keys {
			keys[i] = k + "=" + model[k]
		}
		s.wantAll(storage.Messages, strings.Join(keys, " "))
	}
	for n := range 600 {
		s.commit(func(b *storage.Batch) {
			for range 1 + r.IntN(8) {
				step(b)
			}
		})
		compare()
		if t.Failed() {
			t.Fatalf("after batch %d", n)
		}
		if n%200 == 199 {
			s.again()
			compare()
		}
	}
}
