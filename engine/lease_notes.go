package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/texts"
)

// This file is what is noted of a lease in memory beside its state. Few leases have notes. They end with the lease, and
// no record has them: after a restart or a failover there are none.

// leaseNotes are the notes of a lease.
type leaseNotes struct {
	progress texts.Text // what its consumer has said last about how far it is
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
	t := &c.leases
	if t.notes[m] == nil {
		if t.notes == nil {
			t.notes = map[*message]*leaseNotes{}
		}
		t.notes[m] = &leaseNotes{}
	}
	t.texts.Set(&t.notes[m].progress, text)
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
	delete(c.leases.notes, m)
}

// checkNotes verifies that notes are of live leases, and that their texts are counted (15).
func (c *core) checkNotes(bad report) {
	have := 0
	for m, n := range c.leases.notes {
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
}
