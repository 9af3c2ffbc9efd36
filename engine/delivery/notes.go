package delivery

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/faisca/fila/engine/internal/texts"
	"github.com/faisca/fila/storage"
)

// ProgressBytes is the longest text of NoteTable.SetProgress, in bytes.
const ProgressBytes = 1 << 10

const (
	// progressBytesMax bounds the texts of all leases together; the oldest are dropped for new ones.
	progressBytesMax = 64 << 20
	// headerBytes is how many bytes of names and values the headers of a lease have, at most.
	headerBytes = 1 << 10
	// headersBytesMax bounds the headers of all leases together, headerOverhead for each of them included.
	headersBytesMax = 64 << 20
	headerOverhead  = 48
)

// Notes are what is noted of a lease beside its state. Few leases have notes. They end with the lease, and no record has
// them: after a restart or a failover there are none.
type Notes struct {
	progress texts.Text // what its consumer has said last about how far it is

	// headers of the message, for the record of its end. Load gives them from the goroutine of the connection. nil: not
	// given; empty at the end: the lease is over.
	headers atomic.Pointer[[]storage.Header]
	used    *atomic.Int64 // by the headers of all leases: a lease beyond the bound has none; nil: none are kept
}

// keep gives the headers of the message: the first ones, as far as they fit.
func (n *Notes) keep(headers []storage.Header) {
	if n.headers.Load() != nil || len(headers) == 0 {
		return
	}
	fit, left := 0, headerBytes
	for _, h := range headers {
		if left -= len(h.Name) + len(h.Value); left < 0 {
			break
		}
		fit++
	}
	list := make([]storage.Header, fit)
	for i := range list {
		list[i] = storage.Header{Name: bytes.Clone(headers[i].Name), Value: bytes.Clone(headers[i].Value)}
	}
	size := sizeOf(list)
	if n.used.Add(size) > headersBytesMax || !n.headers.CompareAndSwap(nil, &list) {
		n.used.Add(-size)
	}
}

// drop frees the headers of a lease that is over. Headers that are given later are not kept.
func (n *Notes) drop() {
	if n.used == nil {
		return
	}
	if list := n.headers.Swap(&[]storage.Header{}); list != nil {
		n.used.Add(-sizeOf(*list))
	}
}

func (n *Notes) list() []storage.Header {
	if list := n.headers.Load(); list != nil {
		return *list
	}
	return nil
}

func sizeOf(list []storage.Header) (n int64) {
	for _, h := range list {
		n += int64(len(h.Name) + len(h.Value) + headerOverhead)
	}
	return n
}

// NoteTable has the notes of live leases. M is how the caller names a lease. NewNoteTable makes one.
type NoteTable[M comparable] struct {
	notes map[M]*Notes
	texts texts.Table
	used  *atomic.Int64 // by the headers of the notes
}

// NewNoteTable returns an empty set. What connections still give to notes of an earlier one is not counted in it.
func NewNoteTable[M comparable]() NoteTable[M] {
	return NoteTable[M]{texts: texts.Table{Max: progressBytesMax}}
}

// of returns the notes of a lease, which it creates if there are none.
func (l *NoteTable[M]) of(lease M) *Notes {
	n := l.notes[lease]
	if n == nil {
		if l.notes == nil {
			l.notes, l.used = map[M]*Notes{}, &atomic.Int64{}
		}
		n = &Notes{}
		l.notes[lease] = n
	}
	return n
}

// KeepHeaders returns the notes of a lease, which from now on keep headers of its message, for Delivery.Notes.
func (l *NoteTable[M]) KeepHeaders(lease M) *Notes {
	n := l.of(lease)
	n.used = l.used
	return n
}

// Headers returns the headers that a lease has kept, nil if there are none.
func (l *NoteTable[M]) Headers(lease M) []storage.Header {
	if n := l.notes[lease]; n != nil {
		return n.list()
	}
	return nil
}

// SetProgress notes how far the work on a leased message is; "" takes back what was said.
func (l *NoteTable[M]) SetProgress(lease M, text string) { l.texts.Set(&l.of(lease).progress, text) }

// Progress returns how far the work is; "": its consumer has not said, or it is not leased.
func (l *NoteTable[M]) Progress(lease M) string {
	if n := l.notes[lease]; n != nil {
		return n.progress.String()
	}
	return ""
}

// End drops the notes of a lease that ends, and reports whether it had said how far the work is.
func (l *NoteTable[M]) End(lease M) (said bool) {
	n := l.notes[lease]
	if n == nil {
		return false
	}
	said = n.progress.String() != ""
	l.texts.Set(&n.progress, "")
	n.drop()
	delete(l.notes, lease)
	return said
}

// Len returns how many leases have notes.
func (l *NoteTable[M]) Len() int { return len(l.notes) }

// HeaderBytes returns what the headers of all leases take.
func (l *NoteTable[M]) HeaderBytes() int64 {
	if l.used == nil {
		return 0
	}
	return l.used.Load()
}

// Check verifies that notes are of live leases, and that texts and headers are counted.
func (l *NoteTable[M]) Check(live func(lease M) bool) error {
	have, size := 0, int64(0)
	for lease, n := range l.notes {
		size += sizeOf(n.list())
		if !live(lease) {
			return fmt.Errorf("there are notes of the lease %v, which is over", lease)
		}
		if n.progress.String() != "" {
			have++
		}
	}
	if have != l.texts.Len() {
		return fmt.Errorf("%d leases have a text, %d are counted", have, l.texts.Len())
	}
	if n := l.HeaderBytes(); n != size {
		return fmt.Errorf("headers of leases have %d bytes, %d are counted", size, n)
	}
	return nil
}
