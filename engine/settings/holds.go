package settings

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/storage"
)

// Holds are the throttle keys that are held: no message that names one is delivered before a time.
// A hold is a record until it is over. It is written with what has asked for it, and deleted in the turn that ends it; one
// that a crash has left behind ends with the first turn. The zero value has none.
type Holds struct {
	byKey map[string]*hold
	ends  intrusive.Heap[*hold]
}

type hold struct {
	key   string
	until int64 // Unix nanoseconds
	at    int   // index in Holds.ends
}

func (h *hold) Before(o *hold) bool {
	return cmp.Or(cmp.Compare(h.until, o.until), cmp.Compare(h.key, o.key)) < 0
}
func (h *hold) Index() *int { return &h.at }

// First returns the hold that ends first.
func (s *Holds) First() (key string, until int64, ok bool) {
	h, ok := s.ends.First()
	if !ok {
		return "", 0, false
	}
	return h.key, h.until, true
}

// Hold begins a hold of a key, or makes it longer, and writes it; until is a whole millisecond, as clients are shown. It reports
// whether it did: of two holds of a key the later end counts. Where there are so many of other keys, the one that
// ends first has to end now: over is its key.
func (s *Holds) Hold(key string, now int64, d time.Duration, most int, b *storage.Batch) (until int64, over string, held bool) {
	until = time.Unix(0, now+int64(d)+int64(time.Millisecond)-1).Truncate(time.Millisecond).UnixNano()
	h := s.byKey[key]
	switch {
	case h != nil && h.until >= until:
		return until, "", false
	case h == nil:
		if first, _ := s.ends.First(); len(s.byKey) >= most {
			over = first.key
			s.End(over, b)
		}
		s.add(&hold{key: key, until: until})
	default:
		h.until = until
		s.ends.Fix(h)
	}
	b.Put(storage.State, storage.AppendStateKey(nil, storage.StateHold, key), storage.EncodeUint(uint64(until)))
	return until, over, true
}

func (s *Holds) add(h *hold) {
	if s.byKey == nil {
		s.byKey = map[string]*hold{}
	}
	s.byKey[h.key] = h
	s.ends.Push(h)
}

// All visits the keys that are held, and until when.
func (s *Holds) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for key, h := range s.byKey {
			if !yield(key, h.until) {
				return
			}
		}
	}
}

// End ends the hold of a key, deletes its record, and reports whether there was one.
func (s *Holds) End(key string, b *storage.Batch) bool {
	h := s.byKey[key]
	if h == nil {
		return false
	}
	s.ends.Remove(h)
	delete(s.byKey, key)
	b.Delete(storage.State, storage.AppendStateKey(nil, storage.StateHold, key))
	return true
}

// Read reads the holds of a store, also those that were over before, and visits them.
func (s *Holds) Read(store records.Scanner, visit func(key string, until int64)) error {
	return records.Each(store, "hold", storage.StateHold, 1, func(name []string, value []byte) error {
		until, err := storage.DecodeUint(value)
		if err != nil {
			return err
		}
		s.add(&hold{key: name[0], until: int64(until)})
		visit(name[0], int64(until))
		return nil
	})
}

// Check verifies that each hold has an end, and that there are at most so many (40).
func (s *Holds) Check(most int) error {
	if s.ends.Len() != len(s.byKey) || len(s.byKey) > most {
		return fmt.Errorf("%d holds, %d of them end", len(s.byKey), s.ends.Len())
	}
	return nil
}
