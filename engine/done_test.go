package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// doneIDs walks through what is done, with pages of n.
func (w *world) doneIDs(req Browse, n int) (ids []ID) {
	w.t.Helper()
	for {
		req.Count = n
		var list []*View
		page := req
		w.must(func(tx *Tx) (err error) { page.Cursor, list, err = tx.BrowseDone(&page); return err })
		for _, v := range list {
			ids = append(ids, v.ID)
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			return ids
		}
	}
}

// get is what FILA.GET shows.
func (w *world) get(queue string, id ID) (v *View) {
	w.t.Helper()
	req := &Get{Queue: queue, ID: id}
	w.must(func(tx *Tx) (err error) { v, err = tx.Get(req); return err })
	return v
}

// Generations begin every ten seconds, and each page may end within one.
func TestWhatIsDoneIsShownOnceAndTheNewestFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.KeepDone: 10_000, queueset.ResultTTL: 0}})
	var want []ID
	for i := range 25 {
		id := w.enqueue("q", fmt.Sprint("k", i%2), "x")
		d := w.lease("q", 1)[0]
		w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
		if want = append([]ID{id}, want...); i == 12 {
			w.restart()
		}
		w.Advance(500 * time.Millisecond)
	}
	want = want[:20] // the others were acked more than ten seconds ago
	if v := w.get("q", want[19]); v == nil {
		want = want[:19]
	}
	for n := range 8 {
		if got := w.doneIDs(Browse{Queue: "q"}, n+1); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d: %d messages, want %d, or in another order", n+1, len(got), len(want))
		}
		if got := w.doneIDs(Browse{Queue: "q", Key: "k1"}, n+1); len(got) < 9 || len(got) > 10 {
			t.Errorf("pages of %d: %d messages of a key", n+1, len(got))
		}
	}
	w.Advance(time.Hour)
	w.enqueue("q", "k", "x")
	if it := w.core.store.Scan(storage.Results, nil, nil); it.Seek(nil) || w.get("q", want[0]) != nil {
		t.Error("records outlast their period")
	}
}

func TestARecordOfAnEndHasHeadersUpToABound(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.KeepDone: 10_000}})
	send := func() ID {
		req := &Enqueue{Queue: "q", Key: "k", Payload: []byte("x"), Headers: []Header{
			{Name: []byte("a"), Value: bytes.Repeat([]byte("x"), 600)}, {Name: []byte("b"), Value: bytes.Repeat([]byte("y"), 600)},
		}}
		var id ID
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) (err error) { id, err = tx.Enqueue(req); return err })
		return id
	}
	first, second := send(), send()
	ds := w.lease("q", 2)
	for _, d := range ds {
		if _, err := w.Load([]*Delivery{d}); err != nil {
			t.Fatal(err)
		}
	}
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[0].Receipt}); return err })
	if n := w.core.leases.notes.HeaderBytes(); n == 0 || w.core.leases.notes.Len() != 1 {
		t.Errorf("the headers of one lease have %d bytes, %d leases have notes", n, w.core.leases.notes.Len())
	}
	w.Advance(time.Second) // writes the lease
	w.restart()            // the second lease has no headers any more
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[1].Receipt}); return err })
	for id, want := range map[ID]int{first: 1, second: 0} {
		if v := w.get("q", id); v == nil || v.Open() != nil || len(v.Headers()) != want || v.FirstLeasedAt.IsZero() {
			t.Errorf("%s, want %d headers: %v", id, want, v != nil)
		}
	}
}

// A message that is acked while it is looked up is found as done.
func TestAnEndDuringALookUpIsFound(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.KeepDone: 10_000}})
	id := w.enqueue("q", "k", "x")
	d := w.lease("q", 1)[0]
	w.Lazy = func() bool { return true }
	var v *View
	req := &Get{Queue: "q", ID: id}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { v, err = tx.Get(req); return err })}
	w.Do(task)
	w.Lazy = nil
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
	w.Do()
	if !task.Done() || v == nil || v.Status != StatusDone {
		t.Errorf("done %v, %+v", task.Done(), v)
	}
}
