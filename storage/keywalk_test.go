package storage

import (
	"fmt"
	"testing"
)

// steps counts what is asked of an iterator.
type steps struct {
	Iterator

	seeks, nexts int
}

func (s *steps) Seek(key []byte) bool { s.seeks++; return s.Iterator.Seek(key) }
func (s *steps) Next() bool           { s.nexts++; return s.Iterator.Next() }

// Every key is found, whatever the others have. Few messages are stepped over without a seek, many with one.
func TestKeysAreFoundWithFewStepsAndSeeks(t *testing.T) {
	const keys = 160
	for name, x := range map[string]struct {
		messages     func(key int) int
		seeks, nexts int // at most
	}{
		"one":   {func(int) int { return 1 }, 1, keys},
		"few":   {func(int) int { return passFew }, 1, passFew * keys},
		"many":  {func(int) int { return 50 }, 1 + keys, keys + (passFew-1)*(keys/(passTrust+1)+1)},
		"mixed": {func(key int) int { return 1 + key*key%37 }, keys, passFew * keys},
	} {
		store := NewMemory()
		var batch Batch
		for key := range keys {
			for n := range x.messages(key) {
				id := ID{0: 1, 14: byte(n >> 8), 15: byte(n)}
				batch.Put(Messages, AppendMessageKey(nil, 1, fmt.Sprintf("key-%03d", key), 0, id), nil)
			}
		}
		if err := store.Commit(&batch, false); err != nil {
			t.Fatal(err)
		}
		it := &steps{Iterator: store.Scan(Messages, nil, nil)}
		w := WalkKeys(it)
		found := 0
		for w.Next() {
			if mk, want := w.First(), fmt.Sprintf("key-%03d", found); mk.Queue != 1 || mk.Key != want || mk.ID[15] != 0 {
				t.Fatalf("%s: message %s of %s instead of the first of %s", name, mk.ID, mk.Key, want)
			}
			found++
		}
		if err := w.Err(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if found != keys || it.seeks > x.seeks || it.nexts > x.nexts {
			t.Errorf("%s: %d of %d keys found with %d seeks and %d steps, want at most %d and %d", name, found, keys, it.seeks, it.nexts, x.seeks, x.nexts)
		}
	}
}

func TestAWalkOverKeysEndsAtWhatIsNoMessage(t *testing.T) {
	store := NewMemory()
	var batch Batch
	batch.Put(Messages, AppendMessageKey(nil, 1, "a", 0, ID{1}), nil)
	batch.Put(Messages, []byte{0, 0, 0, 2, 'x'}, nil)
	if err := store.Commit(&batch, false); err != nil {
		t.Fatal(err)
	}
	w := WalkKeys(store.Scan(Messages, nil, nil))
	defer w.Close()
	if !w.Next() || w.Next() || w.Err() == nil {
		t.Errorf("the walk ended with %v at %+v", w.Err(), w.First())
	}
	if w.Next() {
		t.Error("it goes on after an error")
	}
}
