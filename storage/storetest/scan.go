package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

func before(t *testing.T, s *subject) {
	t.Helper()
	s.commit(func(b *storage.Batch) {
		for _, key := range []string{"a", "b", "c", "d"} {
			b.Put(storage.Results, []byte(key), []byte("v"+key))
		}
	})
	for _, tt := range []struct{ from, to, key, want string }{
		{"", "", "z", "d c b a"}, {"", "", "c", "b a"}, {"", "", "bb", "b a"}, {"", "", "a", ""}, {"b", "d", "z", "c b"}, {"b", "d", "d", "c b"}, {"b", "d", "b", ""}, {"b", "d", "a", ""},
	} {
		var to []byte
		if tt.to != "" {
			to = []byte(tt.to)
		}
		it := s.Scan(storage.Results, []byte(tt.from), to)
		var got []string
		for ok := it.Before([]byte(tt.key)); ok; ok = it.Before(it.Key()) {
			if string(it.Value()) != "v"+string(it.Key()) {
				t.Errorf("%q has the value %q", it.Key(), it.Value())
			}
			got = append(got, string(it.Key()))
		}
		if strings.Join(got, " ") != tt.want || it.Err() != nil {
			t.Errorf("before %q of %q to %q: %q, %v", tt.key, tt.from, tt.to, got, it.Err())
		}
		if tt.want != "" && (!it.Seek([]byte("b")) || !it.Next() || string(it.Key()) != "c" || !it.Before([]byte("c")) || string(it.Key()) != "b") {
			t.Errorf("from the end of %q to %q to b, on to c and back to b: at %q", tt.from, tt.to, it.Key())
		}
		it.Close()
		if it.Before([]byte("z")) {
			t.Error("a closed iterator moves")
		}
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

// rangesOfKeys compares ranges within fairness keys, in any order, with scans of the same: with records in
// memory, on disk, written over and deleted, between keys of which one is the beginning of another.
func rangesOfKeys(t *testing.T, s *subject) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible on purpose
	const keys = 40
	at := func(key, n int) []byte {
		name := fmt.Sprintf("key%d", key)
		if key%5 == 4 {
			name = strings.Repeat("k", key)
		}
		return storage.AppendMessageKey(nil, uint32(key%3), name, uint8(n%3), storage.ID{0: uint8(n / 3)})
	}
	for _, family := range []storage.Family{storage.Messages, storage.Attempts} {
		for round := range 3 {
			s.commit(func(b *storage.Batch) {
				for range 300 {
					k := at(rng.IntN(keys), rng.IntN(30))
					if rng.IntN(3) == 0 {
						b.Delete(family, k)
					} else {
						b.Put(family, k, fmt.Appendf(nil, "%d", round))
					}
				}
			})
			compare := func(it storage.Iterator, from []byte) {
				want := s.Scan(family, from, storage.After(from[:storage.KeyPrefixLen(from)]))
				defer want.Close()
				steps := rng.IntN(20)
				for a, b := it.Seek(from), want.Seek(from); ; a, b = it.Next(), want.Next() {
					if a != b || a && (!bytes.Equal(it.Key(), want.Key()) || !bytes.Equal(it.Value(), want.Value())) {
						t.Fatalf("%s from %q: %v %q, want %v %q", family, from, a, it.Key(), b, want.Key())
					}
					if steps--; !a || steps < 0 {
						break
					}
				}
				if err := it.Err(); err != nil {
					t.Fatal(err)
				}
			}
			it := storage.ScanKeys(s.Store, family)
			for range 200 {
				compare(it, at(rng.IntN(keys+1), rng.IntN(31)))
			}
			it.Close()
			for range 20 {
				var ranges [][]byte
				for key := range keys + 1 {
					if rng.IntN(4) > 0 {
						ranges = append(ranges, at(key, rng.IntN(31)))
					}
				}
				slices.SortFunc(ranges, bytes.Compare)
				it := storage.ScanKeysInOrder(s.Store, family, ranges[0])
				for _, from := range ranges {
					compare(it, from)
				}
				it.Close()
			}
			if round == 1 {
				s.again()
			}
		}
	}
}

// manyMessages compares what is read at a time with what Get reads one by one: it is the same up to the
// first message that is missing or has no room. A store that reads any at a time reads many.
func manyMessages(t *testing.T, s *subject) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // reproducible on purpose
	key := func(n int) []byte {
		return storage.AppendMessageKey(nil, 1, fmt.Sprint("key", n%7), 0, storage.ID{0: byte(n)})
	}
	const room = 10_000
	read := 0
	for round := range 3 {
		s.commit(func(b *storage.Batch) {
			for n := range 200 {
				switch {
				case n%17 == round:
					b.Delete(storage.Messages, key(n))
				case rng.IntN(3) > 0:
					m := storage.Message{Payload: bytes.Repeat([]byte{byte(n), byte(round)}, rng.IntN(100))}
					if n%50 == 49 {
						m.Payload = make([]byte, 2*room)
					}
					b.Put(storage.Messages, key(n), m.Append(nil))
				}
			}
		})
		if round == 1 {
			s.again()
		}
		for range 300 {
			var keys [][]byte
			for range rng.IntN(40) {
				keys = append(keys, key(rng.IntN(200)))
			}
			size := 0
			for i, record := range storage.GetMessages(s.Store, keys, room) {
				want, err := storage.GetMessage(s.Store, keys[i])
				if err != nil || !bytes.Equal(record, want) {
					t.Fatalf("message %d of %d: %d bytes, want %d bytes, %v", i, len(keys), len(record), len(want), err)
				}
				size += len(record)
				read++
			}
			if size > room {
				t.Fatalf("%d bytes were read", size)
			}
		}
	}
	if read > 0 && read < 1000 {
		t.Errorf("%d messages were read many at a time", read)
	}
}
