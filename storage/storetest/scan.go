package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/faisca/fila/storage"
)

// This file tests iterators: order, bounds and snapshots.

func scanOrder(_ *testing.T, s *subject) {
	s.put("b", "1", "a", "1", "\xff", "1")
	s.put("aa", "1", "", "1", "\x00", "1")
	s.wantAll(storage.Messages, "=1 \x00=1 a=1 aa=1 b=1 \xff=1")
}

func scanBounds(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1", "c", "1", "d", "1")
	for _, tt := range []struct{ from, to, want string }{
		{"b", "d", "b=1 c=1"},
		{"aa", "cc", "b=1 c=1"},
		{"b", "b", ""},
		{"d", "b", ""},
		{"", "b", "a=1"},
		{"e", "z", ""},
		{"c", "", "c=1 d=1"}, // no end
	} {
		var to []byte
		if tt.to != "" {
			to = []byte(tt.to)
		}
		it := s.Scan(storage.Messages, []byte(tt.from), to)
		if got := walk(t, it, nil); got != tt.want {
			t.Errorf("from %q to %q: %q, want %q", tt.from, tt.to, got, tt.want)
		}
		it.Close()
	}
}

// seekBounds also verifies that a scan does not retain the caller's bounds.
func seekBounds(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1", "c", "1", "d", "1", "e", "1")
	from, to := []byte("b"), []byte("d")
	it := s.Scan(storage.Messages, from, to)
	defer it.Close()
	from[0], to[0] = 'a', 'z'
	for _, tt := range []struct{ seek, want string }{
		{"", "b=1 c=1"}, {"a", "b=1 c=1"}, {"b", "b=1 c=1"}, {"bb", "c=1"}, {"c", "c=1"}, {"cc", ""}, {"d", ""}, {"z", ""},
	} {
		if got := walk(t, it, []byte(tt.seek)); got != tt.want {
			t.Errorf("seek %q: %q, want %q", tt.seek, got, tt.want)
		}
	}
}

func seekBack(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1", "c", "1")
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	for _, key := range []string{"c", "a", "b", "b", "c", "a"} {
		if !it.Seek([]byte(key)) || string(it.Key()) != key {
			t.Fatalf("seek %q is at %q", key, it.Key())
		}
	}
	if it.Seek([]byte("d")) {
		t.Errorf("seek past the end is at %q", it.Key())
	}
	if !it.Seek([]byte("aa")) || string(it.Key()) != "b" || !it.Next() || string(it.Key()) != "c" || it.Next() {
		t.Errorf("seek after the end is at %q", it.Key())
	}
}

func nextFirst(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1", "c", "1")
	it := s.Scan(storage.Messages, []byte("b"), nil)
	defer it.Close()
	if !it.Next() || string(it.Key()) != "b" || !it.Next() || string(it.Key()) != "c" || it.Next() {
		t.Errorf("next is at %q", it.Key())
	}
}

func pastEnd(t *testing.T, s *subject) {
	t.Helper()
	empty := s.Scan(storage.Messages, nil, nil)
	defer empty.Close()
	s.put("a", "1", "b", "1")
	it := s.Scan(storage.Messages, nil, []byte("b"))
	defer it.Close()
	if !it.Next() {
		t.Fatal("no first key")
	}
	for range 3 {
		if it.Next() || empty.Next() || it.Err() != nil || empty.Err() != nil {
			t.Fatalf("there is a key past the end, or an error: %v, %v", it.Err(), empty.Err())
		}
	}
}

func snapshot(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1", "b", "1", "c", "1")
	it := s.Scan(storage.Messages, nil, nil)
	defer it.Close()
	s.put("a", "2", "bb", "2")
	s.commit(func(b *storage.Batch) { b.SingleDelete(storage.Messages, []byte("c")) })
	for i := range 1000 { // enough to change the shape of any tree
		s.put(fmt.Sprintf("b%03d", i), "2")
	}
	if got, want := walk(t, it, nil), "a=1 b=1 c=1"; got != want {
		t.Errorf("the scan sees %q, want %q", got, want)
	}
	s.commit(func(b *storage.Batch) { b.DeleteRange(storage.Messages, nil, []byte("z")) })
	if got, want := walk(t, it, nil), "a=1 b=1 c=1"; got != want {
		t.Errorf("the scan sees %q, want %q", got, want)
	}
	s.wantAll(storage.Messages, "")
}

func closeTwice(t *testing.T, s *subject) {
	t.Helper()
	s.put("a", "1")
	it := s.Scan(storage.Messages, nil, nil)
	if !it.Next() {
		t.Fatal("no first key")
	}
	it.Close()
	it.Close()
	if it.Next() || it.Seek(nil) {
		t.Error("a closed iterator goes on")
	}
}

// keysOnly compares an iterator of keys only with one of values, over steps and seeks of all kinds: long
// runs of steps, keys that are longer than what is fetched at a time, bounds, the end.
func keysOnly(t *testing.T, s *subject) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	key := func(i int) []byte {
		k := fmt.Appendf(nil, "%05d", i)
		if i%700 == 3 {
			k = append(k, bytes.Repeat([]byte("x"), i*10)...)
		}
		return k
	}
	const n = 10_000
	s.commit(func(b *storage.Batch) {
		for i := range n {
			b.Put(storage.Messages, key(i), []byte("v"))
		}
	})
	for _, to := range [][]byte{nil, key(n / 2)} {
		keys, values := storage.KeysOnly(s.Scan(storage.Messages, key(10), to)), s.Scan(storage.Messages, key(10), to)
		s.commit(func(b *storage.Batch) { b.Put(storage.Messages, []byte("00100 later"), []byte("v")) })
		compare := func(what string, got, want bool) {
			t.Helper()
			if got != want || !bytes.Equal(keys.Key(), values.Key()) || keys.Err() != nil {
				t.Fatalf("%s: %v at %.20q, want %v at %.20q, %v", what, got, keys.Key(), want, values.Key(), keys.Err())
			}
		}
		compare("the first step", keys.Next(), values.Next())
		for range 300 {
			for range 1 << rng.IntN(13) {
				compare("a step", keys.Next(), values.Next())
			}
			from := key(rng.IntN(n + 10))
			compare("a seek", keys.Seek(from), values.Seek(from))
		}
		keys.Close()
		values.Close()
	}
}
