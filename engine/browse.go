package engine

import (
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/faisca/fila/storage"
)

// Browse asks for a page of a queue's messages.
type Browse struct {
	Queue  string
	Status string // only those of this status; "": of all
	Key    string // only those of this fairness key; "": of all
	Cursor string // of the page before; "": from the beginning
	Count  int    // messages to look at, matching or not

	page *page
}

// Statuses are what a message may be.
func Statuses() []string { return []string{StatusReady, StatusDelayed, StatusLeased, StatusDead} }

// Browse goes through the messages of a queue in the order of their keys, and in a
// key in the order in which they are delivered. A page ends early when its messages
// are large. The next cursor is "" at the end. Whatever happens meanwhile, a message
// that is there during the whole walk is seen exactly once: the cursor is a place in
// that order, and messages keep theirs.
//
// The page is read beside the loop; the task waits for that.
func (tx *Tx) Browse(req *Browse) (next string, list []*View, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return "", nil, err
	}
	if tx.atomic {
		return "", nil, errWaits
	}
	p := req.page
	if req.page = nil; p == nil || !p.done || !c.valid(&p.changeLog) {
		cursor, err := parseCursor(q.no, req.Cursor)
		if err != nil {
			return "", nil, err
		}
		req.page = c.readPage(q, req.Key, cursor, max(req.Count, 1), resume(tx.task))
		tx.park(nil, 0, false)
		return "", nil, ErrWouldBlock
	}
	if p.err != nil {
		return "", nil, fmt.Errorf("browse %q: %w", req.Queue, p.err)
	}
	c.spend(len(p.found)) // one moment is shown: it is not divided
	for i := range p.found {
		if v := c.view(&p.changeLog, &p.found[i]); v != nil && (req.Status == "" || req.Status == v.Status) {
			list = append(list, v)
		}
	}
	return formatCursor(p.next), list, nil
}

// A cursor is the message key of the store at which to go on, without the number of
// the queue, in a form that survives every client.

func formatCursor(key []byte) string {
	if key == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(key[len(storage.AppendQueuePrefix(nil, 0)):])
}

func parseCursor(queue uint32, cursor string) ([]byte, error) {
	if cursor == "" {
		return nil, nil
	}
	place, err := base64.RawURLEncoding.DecodeString(cursor)
	key := slices.Concat(storage.AppendQueuePrefix(nil, queue), place)
	if err == nil {
		_, err = storage.ParseMessageKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: CURSOR %.80q is none that FILA.BROWSE has returned; 0 starts anew", ErrInvalid, cursor)
	}
	return key, nil
}
