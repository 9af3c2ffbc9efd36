package body

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

// world is the messages that hold bodies, as the store and the table have them.
type world struct {
	t     *testing.T
	table Table
	store *storage.Memory
	held  map[storage.ID][]storage.MessageKey
	n     uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, store: storage.NewMemory(), held: map[storage.ID][]storage.MessageKey{}}
}

func (w *world) commit(b *storage.Batch) {
	w.t.Helper()
	if err := w.store.Commit(b, false); err != nil {
		w.t.Fatal(err)
	}
}

// publish stores a body that so many messages hold.
func (w *world) publish(messages int) storage.ID {
	w.t.Helper()
	var b storage.Batch
	var h storage.Holders
	w.n++
	id := storage.MakeID(int64(w.n), 1, 5, 0) //nolint:gosec // small
	for i := range messages {
		mk := storage.MessageKey{Queue: uint32(i + 1), Key: "k", Rank: 5, ID: storage.MakeID(int64(w.n*100)+int64(i), 1, 5, 0)} //nolint:gosec // small
		rec := storage.Message{Meta: storage.Meta{Body: id}}
		b.Put(storage.Messages, mk.Append(nil), rec.Append(nil))
		h.Messages = append(h.Messages, string(mk.Append(nil)))
		w.held[id] = append(w.held[id], mk)
	}
	b.Put(storage.Bodies, storage.AppendBodyKey(nil, id), []byte("body"))
	b.Put(storage.Bodies, storage.AppendHoldersKey(nil, id), h.Append(nil))
	w.commit(&b)
	w.table.Stored(id, messages)
	return id
}

// end ends the newest message that holds a body. tell says whether the table learns of it.
func (w *world) end(id storage.ID, tell bool) {
	w.t.Helper()
	var b storage.Batch
	list := w.held[id]
	b.Delete(storage.Messages, list[len(list)-1].Append(nil))
	if w.held[id] = list[:len(list)-1]; tell && w.table.Left(id) {
		storage.DeleteBody(&b, id)
		if len(w.held[id]) > 0 {
			w.t.Fatalf("body %s is free and held by %d", id, len(w.held[id]))
		}
	}
	w.commit(&b)
}

// look looks until nothing is pending.
func (w *world) look() {
	w.t.Helper()
	for n := 0; w.table.Pending(); n++ {
		l := w.table.Look()
		if w.table.Pending() {
			w.t.Fatal("two looks at a time")
		}
		l.Read(w.store)
		w.table.Looked(&l)
		var b storage.Batch
		for _, id := range l.Free {
			if len(w.held[id]) > 0 {
				w.t.Fatalf("body %s is free and held by %d", id, len(w.held[id]))
			}
			storage.DeleteBody(&b, id)
		}
		if w.commit(&b); l.Err != nil || n > 100 {
			w.t.Fatalf("look %d: %v", n, l.Err)
		}
	}
}

// want verifies that the store has the bodies that are held, and no other.
func (w *world) want() {
	w.t.Helper()
	for id, list := range w.held {
		_, err := w.store.Get(storage.Bodies, storage.AppendBodyKey(nil, id))
		if (err == nil) != (len(list) > 0) {
			w.t.Fatalf("body %s is held by %d messages: %v", id, len(list), err)
		}
	}
}

func TestABodyGoesWithTheLastOfItsMessages(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		w := newWorld(t)
		var ids []storage.ID
		for range 200 {
			switch rng.IntN(6) {
			case 0, 1:
				ids = append(ids, w.publish(1+rng.IntN(4)))
			case 2:
				if rng.IntN(10) == 0 {
					w.table = Table{} // a recovery
					w.table.Sweep()
				}
			case 3:
				if len(ids) > 0 && rng.IntN(4) == 0 { // a purge takes messages that the table is not told of
					if id := ids[rng.IntN(len(ids))]; len(w.held[id]) > 0 {
						w.end(id, false)
						w.table.Sweep()
					}
				}
			default:
				if len(ids) > 0 {
					if id := ids[rng.IntN(len(ids))]; len(w.held[id]) > 0 {
						w.end(id, true)
					}
				}
			}
			w.table.Counted(func(id storage.ID, n int) {
				if n < max(len(w.held[id]), 1) {
					t.Fatalf("seed %d: body %s is counted with %d, %d hold it", seed, id, n, len(w.held[id]))
				}
			})
		}
		w.look()
		w.want()
	}
}

// Counts are hints: when there are too many, bodies are looked up.
func TestMoreBodiesThanCountsAreFreed(t *testing.T) {
	w := newWorld(t)
	first := w.publish(2)
	for i := range 2 * CountsMax {
		w.table.Stored(storage.MakeID(int64(i+1), 2, 5, 0), 1)
	}
	w.end(first, true)
	w.end(first, true)
	w.look()
	w.want()
}

// A sweep that begins during another one starts again when that is over, and both see all bodies.
func TestASweepIsRepeated(t *testing.T) {
	w := newWorld(t)
	for range 3 * looksMax {
		w.publish(1)
	}
	w.table.Sweep()
	l := w.table.Look()
	l.Read(w.store)
	for id := range w.held {
		w.end(id, false)
	}
	w.table.Sweep()
	w.table.Looked(&l)
	w.look()
	w.want()
}

func TestALookThatFailsIsRepeated(t *testing.T) {
	w := newWorld(t)
	id := w.publish(1)
	w.table = Table{}
	w.end(id, true)
	l := w.table.Look()
	l.Err = fmt.Errorf("the disk is away")
	w.table.Looked(&l)
	if !w.table.Pending() || slices.Contains(l.Free, id) {
		t.Error("it is not repeated")
	}
	w.look()
	w.want()
}
