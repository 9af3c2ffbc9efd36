package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/ids"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Deduplication. An enqueue may name an id; a second enqueue with the same id within the queue's deduplication window
// stores nothing and returns the id of the first message. Package ids has the ids, and the unique ids (unique.go). Prepare
// looks them up on the goroutine of the connection. Enqueue has the look-ups repeated as an off-loop job if they are stale;
// the task waits.

// DedupContent as an id stands for the content of the message: a hash of queue, fairness
// key, headers and payload as the producer gave them.
const DedupContent = "*"

// dedupID returns the id under which the store keeps a request's Dedup; "" if it has none.
func dedupID(req *Enqueue) string {
	switch req.Dedup {
	case "":
		return ""
	case DedupContent:
		return ids.OfContent(req.Queue, req.Key, req.Headers, req.Payload)
	}
	return ids.Named(req.Dedup)
}

// idLooks are the look-ups of the ids of a request; nil: it has no such id.
type idLooks struct{ dedup, unique *ids.Lookup }

// look looks the ids of a request up. seen is the number of the last durable batch, read before the
// snapshot was taken. It is safe on any goroutine.
func (req *Enqueue) look(store Store, s *Snapshot, seen uint64) (l idLooks) {
	if req.Unique != "" {
		l.unique = s.ids.Owner(store, req.Queue, req.Unique, seen)
	}
	if req.dedup != "" {
		l.dedup = s.ids.Repeated(store, req.Queue, req.dedup, seen)
	}
	return l
}

// prior is what a queue has of the ids of a request.
type prior struct {
	known ID                 // the message that answers the request in place of a new one; zero: none
	owner storage.DedupEntry // of the message whose place or id the request may take; its ID is zero: none
	lent  *message           // that has lent the unique id, see owner
}

// earlier returns what a queue has of the ids of a request. The owner of its unique id answers it, or
// else the message that was enqueued with its deduplication id within the queue's window. With REPLACE
// the deduplication id is asked first, so that a request which is sent again replaces nothing newer. While the queue
// perhaps has members of cancelled groups, the owner has to be looked at without REPLACE, too (findOwner).
// ErrWouldBlock means that the look-ups have to be repeated; ErrInvalid that the queue has no
// deduplication window.
func (t *idTable) earlier(c *core, q *queue, req *Enqueue) (p prior, err error) {
	if p.owner, p.lent, err = t.owner(c, q, req.Unique, req.looks.unique); err != nil {
		return prior{}, err
	}
	if !req.Replace && !c.groups.Sweeping(q.no) {
		p.known, p.owner = p.owner.ID, storage.DedupEntry{}
	}
	if p.known == (ID{}) && (req.Replace || p.owner.ID == (ID{})) {
		p.known, err = t.repeated(c, q, req)
	}
	return p, err
}

// repeated returns the message that was enqueued with the deduplication id of a request; the zero ID:
// none was, or the request has no such id. Errors are those of earlier.
func (t *idTable) repeated(c *core, q *queue, req *Enqueue) (ID, error) {
	if req.dedup == "" {
		return ID{}, nil
	}
	window := q.set.Values.Duration(queueset.DedupWindow)
	if window == 0 {
		return ID{}, fmt.Errorf("%w: %q has no DEDUPWINDOW, set one with FILA.QUEUE ALTER", ErrInvalid, q.name)
	}
	first, err := t.Repeated(q.no, req.dedup, req.looks.dedup, window, c.now)
	return first, lookError(err, "DEDUP")
}

// PreflightEnqueue waits for what Enqueue needs in a transaction: exact counts where the
// queue is limited, current look-ups of the unique id and the deduplication id, and of the message that
// it may replace. Errors of
// the request are left to Enqueue.
func (tx *Tx) PreflightEnqueue(req *Enqueue) error {
	c := tx.core
	q := c.queues.byName[req.Queue]
	if q == nil {
		return nil // Enqueue reports the error
	}
	switch p, err := c.dedup.earlier(c, q, req); {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
		return tx.awaitRead(req.lookAgain(&c.out))
	case err == nil && p.known == (ID{}) && p.owner.ID != (ID{}):
		if err := tx.readOwner(req, p.owner.ID); err != nil {
			return err
		}
	}
	if req.Group != "" {
		if err := c.groups.preflight(tx, req.Group, &req.groupLook); err != nil {
			return err
		}
	}
	if q.limited() {
		return tx.AwaitCounts()
	}
	return nil
}

// lookAgain returns the read that repeats the look-ups of a request, for awaitRead.
func (req *Enqueue) lookAgain(o *outbox) func(store Store) (give func()) {
	s, batch := o.snapshot, o.batchNo
	return func(store Store) func() {
		l := req.look(store, s, batch)
		return func() { req.looks = l }
	}
}
