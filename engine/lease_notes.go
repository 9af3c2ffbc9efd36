package engine

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/internal/texts"
)

// This file is what is noted of a lease in memory beside its state. Few leases have notes. They end with the lease, and
// no record has them: after a restart or a failover there are none.

// leaseNotes are the notes of a lease.
type leaseNotes struct {
	progress texts.Text // what its consumer has said last about how far it is
	headers  keptHeaders
}

// keptHeaders are headers of a message that is leased, for the record of its end. Delivery.Load, which has read the
// message, gives them from the goroutine of the connection.
type keptHeaders struct {
	list atomic.Pointer[[]Header] // nil: not given; empty at the end: the lease is over
	room *headerRoom              // nil: they are not kept
}

// headerRoom counts the bytes of the headers of all leases. A lease beyond the bound has none.
type headerRoom struct{ used atomic.Int64 }

const (
	// doneHeaderBytes is how many bytes of names and values the headers of a record of an end have, at most.
	doneHeaderBytes = 1 << 10
	// headersBytesMax bounds the headers of all leases together, headerOverhead for each of them included.
	headersBytesMax = 64 << 20
	headerOverhead  = 48
)

// keep gives the headers of the message: the first ones, as far as they fit.
func (k *keptHeaders) keep(headers []Header) {
	if k.list.Load() != nil || len(headers) == 0 {
		return
	}
	n, left := 0, doneHeaderBytes
	for _, h := range headers {
		if left -= len(h.Name) + len(h.Value); left < 0 {
			break
		}
		n++
	}
	list := make([]Header, n)
	for i := range list {
		list[i] = Header{Name: bytes.Clone(headers[i].Name), Value: bytes.Clone(headers[i].Value)}
	}
	size := headersSize(list)
	if k.room.used.Add(size) > headersBytesMax || !k.list.CompareAndSwap(nil, &list) {
		k.room.used.Add(-size)
	}
}

// drop frees the headers of a lease that is over. Headers that are given later are not kept.
func (k *keptHeaders) drop() {
	if k.room == nil {
		return
	}
	if list := k.list.Swap(&[]Header{}); list != nil {
		k.room.used.Add(-headersSize(*list))
	}
}

// get returns the headers, nil if there are none.
func (k *keptHeaders) get() []Header {
	if list := k.list.Load(); list != nil {
		return *list
	}
	return nil
}

func headersSize(list []Header) (n int64) {
	for _, h := range list {
		n += int64(len(h.Name) + len(h.Value) + headerOverhead)
	}
	return n
}

// notesOf returns the notes of a lease, which it creates if there are none.
func (t *leaseTable) notesOf(m *message) *leaseNotes {
	n := t.notes[m]
	if n == nil {
		if t.notes == nil {
			t.notes, t.headers = map[*message]*leaseNotes{}, &headerRoom{}
		}
		n = &leaseNotes{}
		t.notes[m] = n
	}
	return n
}

const (
	// ProgressBytes is the longest text of ExtendOptions.Progress, in bytes.
	ProgressBytes = 1 << 10
	// progressBytesMax bounds the texts of all leases together; the oldest are dropped for new ones.
	progressBytesMax = 64 << 20
)

// ExtendOptions say more about a lease than that it goes on.
type ExtendOptions struct {
	Progress *string // how far the work is, at most ProgressBytes; "": takes back what was said; nil: leaves it
}

// ExtendWith is Extend with options. A text that is too long is ErrTooBig, and then the lease keeps its end.
func (tx *Tx) ExtendWith(queue string, r Receipt, d time.Duration, o ExtendOptions) (time.Time, error) {
	if o.Progress != nil && len(*o.Progress) > ProgressBytes {
		return time.Time{}, fmt.Errorf("%w: PROGRESS of %d bytes, the limit is %d", ErrTooBig, len(*o.Progress), ProgressBytes)
	}
	until, err := tx.Extend(queue, r, d)
	if err == nil && o.Progress != nil {
		tx.core.noteProgress(tx.core.leases.byID[r.ID], *o.Progress)
	}
	return until, err
}

// noteProgress notes how far the work on a leased message is.
func (c *core) noteProgress(m *message, text string) {
	c.leases.texts.Set(&c.leases.notesOf(m).progress, text)
	c.showProgress(m, text)
	if q := m.key.queue; c.subscribed(EventProgress) {
		c.emit(Event{Kind: EventProgress, Queue: q.name, ID: m.id, Key: m.key.name, Progress: text})
	}
}

// showProgress passes on how far the work is to the requests that wait for the end of the message, whose time may be
// over before that.
func (c *core) showProgress(m *message, text string) {
	q := m.key.queue
	if len(q.resultWaits) == 0 || m.key.purged() {
		return
	}
	if all := q.resultWaits[m.id]; all != nil {
		for a := all.Head(); a != nil; a = a.Next() {
			if a.req.Result.Status == ResultPending {
				a.req.Result.Progress = text
			}
		}
	}
}

// progressOf returns how far the work on a message is; "": its consumer has not said, or it is not leased. m may be nil.
func (t *leaseTable) progressOf(m *message) string {
	if n := t.notes[m]; n != nil {
		return n.progress.String()
	}
	return ""
}

// dropNotes drops the notes of a lease that ends.
func (c *core) dropNotes(m *message) {
	n := c.leases.notes[m]
	if n == nil {
		return
	}
	if n.progress.String() != "" {
		c.showProgress(m, "")
	}
	c.leases.texts.Set(&n.progress, "")
	n.headers.drop()
	delete(c.leases.notes, m)
}

// checkNotes verifies that notes are of live leases, and that their texts are counted (15).
func (c *core) checkNotes(bad report) {
	have, size := 0, int64(0)
	for m, n := range c.leases.notes {
		size += headersSize(n.headers.get())
		if c.leases.byID[m.id] != m {
			bad(15, "there are notes of a lease of %s, which is over", m.id)
		}
		if n.progress.String() != "" {
			have++
		}
	}
	if have != c.leases.texts.Len() {
		bad(15, "%d leases have a text, %d are counted", have, c.leases.texts.Len())
	}
	if r := c.leases.headers; r != nil && r.used.Load() != size {
		bad(15, "headers of leases have %d bytes, %d are counted", size, r.used.Load())
	}
}
