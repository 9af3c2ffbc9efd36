package census

import (
	"errors"
	"fmt"
	"testing"

	"github.com/faisca/fila/storage"
)

// filled returns a store with n messages of each of so many keys of two queues, of which the first of each key is
// delayed.
func filled(t *testing.T, keys, n int) *storage.Memory {
	t.Helper()
	store := storage.NewMemory()
	var b storage.Batch
	for i := range keys {
		for m := range n {
			mk := storage.MessageKey{Queue: uint32(1 + i%2), Key: fmt.Sprint("k", i), ID: storage.ID{15: byte(m), 14: byte(m >> 8), 7: 1}}
			b.Put(storage.Messages, mk.Append(nil), nil)
			if m == 0 {
				b.Put(storage.Scheduled, storage.AppendScheduledKey(nil, 5, mk), nil)
			}
		}
	}
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	return store
}

func open(s *storage.Memory) *Census {
	return Open(s.Scan(storage.Messages, nil, nil), s.Scan(storage.Scheduled, nil, nil))
}

func TestEachKeyIsCountedOnceCompletely(t *testing.T) {
	const keys, n = 2*keysMax + 5, 3
	store := filled(t, keys, n)
	census := open(store)
	var later storage.Batch
	later.Put(storage.Messages, storage.MessageKey{Queue: 9, Key: "later", ID: storage.ID{1}}.Append(nil), nil)
	if err := store.Commit(&later, true); err != nil {
		t.Fatal(err)
	}
	seen := map[string]Key{}
	parts, last := 0, 0
	census.Take(func(p *Part) {
		parts++
		if p.Last {
			last = parts
		}
		if p.Err != nil || len(p.Keys) > keysMax {
			t.Errorf("a part of %d keys, %v", len(p.Keys), p.Err)
		}
		for _, k := range p.Keys {
			if _, twice := seen[k.Name]; twice || k.Messages != n || k.Delayed != 1 {
				t.Errorf("%+v; seen before: %v", k, twice)
			}
			seen[k.Name] = k
		}
	})
	if len(seen) != keys || parts != 3 || last != parts {
		t.Errorf("%d keys in %d parts, the last is %d; what came later is seen: %v", len(seen), parts, last, seen["later"])
	}
	if seen["k0"].Queue != 1 || seen["k1"].Queue != 2 {
		t.Errorf("queues %d and %d", seen["k0"].Queue, seen["k1"].Queue)
	}
}

func TestACensusThatIsStoppedEnds(t *testing.T) {
	census := open(filled(t, 10*keysMax, 1))
	parts := 0
	census.Take(func(*Part) { parts++; census.Stop() })
	if parts != 2 || !census.Stopped() { // the one in which it was stopped, and the last
		t.Errorf("%d parts", parts)
	}
	var none *Census
	none.Stop()
}

func TestADamagedKeyEndsTheCensus(t *testing.T) {
	for name, family := range map[string]storage.Family{"messages": storage.Messages, "delayed": storage.Scheduled} {
		store := filled(t, 1, 1)
		var b storage.Batch
		b.Put(family, []byte{0}, nil)
		if err := store.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		var err error
		open(store).Take(func(p *Part) { err = errors.Join(err, p.Err) })
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
