// Package body finds out when a body is held by no message any more: the payload and headers that a publish has stored
// once for the messages of several queues (storage/body.go). The package knows no messages, batches or clock; the caller
// deletes what it says.
//
// The states of a body:
//
//	counted ──its last message ends──▶ free
//	counted ──recovery; purge or deletion of a queue; too many counts──▶ uncounted
//	uncounted ──one of its messages ends; a sweep──▶ looked up ──no message holds it──▶ free
//
// A sweep looks all bodies up. It follows a recovery, and a purge or deletion of a queue, which reads
// no message. A [Look] reads the store on another goroutine and needs no change log: no message begins to hold a body
// after its publish, so a body without a holder stays without one. Deleting one twice is harmless.
package body

import (
	"errors"
	"slices"

	"github.com/faisca/fila/storage"
)

// Bounds: two maps of CountsMax counts take some 10 MiB.
const (
	CountsMax = 64 << 10
	endedMax  = 4096
	looksMax  = 256 // bodies of a sweep, in one look
)

// Table counts the messages that hold bodies. The zero value has none.
type Table struct {
	counts, older map[storage.ID]int // messages that have not ended: of the newest bodies, of those before
	ended         []storage.ID       // uncounted bodies of which a message has ended
	from          []byte             // where the sweep continues; nil: there is none
	again         bool               // another sweep follows
	looking       bool               // a look is under way
}

// Stored counts a body that so many messages hold.
func (t *Table) Stored(id storage.ID, messages int) {
	if len(t.counts) >= CountsMax {
		t.older, t.counts = t.counts, nil
	}
	if t.counts == nil {
		t.counts = map[storage.ID]int{}
	}
	t.counts[id] = messages
}

// Left says that a message ends that holds a body, and reports whether it was the last one. A body that is not counted is
// looked up later.
func (t *Table) Left(id storage.ID) (last bool) {
	counts := t.counts
	n, counted := counts[id]
	if !counted {
		counts = t.older
		n, counted = counts[id]
	}
	switch {
	case n > 1:
		counts[id] = n - 1
	case counted:
		delete(counts, id)
		return true
	case len(t.ended) < endedMax:
		t.ended = append(t.ended, id)
	default:
		t.ended = nil
		t.Sweep()
	}
	return false
}

// Sweep looks all bodies up, since the counts do not tell which ones are held.
func (t *Table) Sweep() {
	t.again = t.from != nil
	if t.counts, t.older = nil, nil; !t.again {
		t.from = storage.HoldersPrefix()
	}
}

// Pending reports whether a look is to begin.
func (t *Table) Pending() bool { return !t.looking && (len(t.ended) > 0 || t.from != nil) }

// Look begins a look, of which one is under way at a time.
func (t *Table) Look() Look {
	l := Look{ids: t.ended, from: t.from}
	t.looking, t.ended = true, nil
	return l
}

// Looked ends a look. After an error it has to be repeated. Its Free is for the caller.
func (t *Table) Looked(l *Look) {
	switch t.looking = false; {
	case l.Err != nil:
		t.ended = append(t.ended, l.ids...)
	case l.from == nil:
	case l.next == nil && t.again:
		t.from, t.again = storage.HoldersPrefix(), false
	default:
		t.from = l.next
	}
}

// Counted visits the bodies that are counted, with the messages that hold them.
func (t *Table) Counted(visit func(id storage.ID, messages int)) {
	for _, counts := range []map[storage.ID]int{t.counts, t.older} {
		for id, n := range counts {
			visit(id, n)
		}
	}
}

// Look looks for bodies without holders.
type Look struct {
	ids  []storage.ID
	from []byte // of a part of a sweep; nil: none

	Free []storage.ID // what Read has found
	Err  error
	next []byte // where the sweep continues; nil: it has come to the end
}

// Read reads the store, on any goroutine.
func (l *Look) Read(store storage.Reader) {
	for _, id := range l.ids {
		holders, err := store.Get(storage.Bodies, storage.AppendHoldersKey(nil, id))
		if errors.Is(err, storage.ErrNotFound) {
			continue // it was deleted
		}
		if l.Err = err; err != nil || !l.look(store, id, holders) {
			return
		}
	}
	if l.from == nil {
		return
	}
	it := store.Scan(storage.Bodies, l.from, storage.After(storage.HoldersPrefix()))
	defer it.Close()
	ok := it.Seek(l.from)
	for n := 0; ok && n < looksMax; ok, n = it.Next(), n+1 {
		id, _, err := storage.ParseBodyKey(it.Key())
		if err == nil && !l.look(store, id, it.Value()) {
			return
		}
	}
	if ok {
		l.next = slices.Clone(it.Key())
	}
	l.Err = it.Err()
}

// look notes a body that no message holds. Damaged records are left to fila repair.
func (l *Look) look(store storage.Reader, id storage.ID, holders []byte) bool {
	held, err := storage.BodyHeld(store, id, holders)
	switch {
	case errors.Is(err, storage.ErrCorrupt):
	case err != nil:
		l.Err = err
		return false
	case !held:
		l.Free = append(l.Free, id)
	}
	return true
}
