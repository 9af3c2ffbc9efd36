package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/storage"
)

// Browse is a request for one page of a queue's messages.
type Browse struct {
	Queue  string
	Status string // only messages with this status; "": all
	Key    string // only messages of this fairness key; "": of all keys
	Cursor string // as the page before returned it; "": the beginning
	Count  int    // messages to inspect, whether they match or not
	Filter *Filter

	page *page     // being read, or read; nil: not asked for
	done *donePage // the same, of BrowseDone
}

// View is a message as FILA.GET and FILA.BROWSE show it.
type View = search.View

// Death is how a message came into a dead-letter queue.
type Death = search.Death

// Statuses returns the possible statuses of a message that is not done.
func Statuses() []string { return []string{StatusReady, StatusDelayed, StatusLeased, StatusDead} }

// Browse returns a page of messages, ordered by fairness key and within a key by position.
// A page ends early when its messages are large, or when its filter has much to look at. next
// is "" at the end: a page without messages need not be the last.
//
// A message that exists during the whole walk is seen exactly once, whatever else changes:
// the cursor is a place in an order in which messages do not move. All messages of a page
// are shown as of one turn; the filter selects them by their records as they are read.
//
// The page is read off the loop, and the task parks meanwhile (ErrWouldBlock). A page whose
// change log could not follow is read again. Errors: an unknown queue, ErrInvalid for a bad
// cursor or filter, errors of the store. In a transaction Browse is refused.
func (tx *Tx) Browse(req *Browse) (next string, list []*View, err error) {
	p, err := tx.browse(req, false)
	if err != nil {
		return "", nil, err
	}
	c := tx.core
	c.spend(len(p.found)) // not divided: the page is a view of one moment
	for i := range p.found {
		if v := c.view(&p.changeLog, &p.found[i]); v != nil && (req.Status == "" || req.Status == v.Status) {
			list = append(list, v)
		}
	}
	return search.Cursor(p.Next), list, nil
}

// BrowseErrors returns the failures of a page of messages by cause, see ErrorGroup. It is as
// Browse is but for the status, which does not count. A page also ends early before the first
// message that would be one group too many: the groups of several pages have to be merged.
func (tx *Tx) BrowseErrors(req *Browse) (next string, groups []ErrorGroup, err error) {
	p, err := tx.browse(req, true)
	if err != nil {
		return "", nil, err
	}
	return search.Cursor(p.Next), p.Groups.List(), nil
}

// browse returns the page of a request once it is read, else it parks the task.
func (tx *Tx) browse(req *Browse, grouped bool) (*page, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, err
	}
	if tx.atomic {
		return nil, errWaits
	}
	p := req.page
	if req.page = nil; p == nil || !p.done || !c.valid(&p.changeLog) {
		cursor, ok := search.ParseCursor(q.no, req.Cursor)
		if !ok {
			return nil, fmt.Errorf("%w: CURSOR %.80q is none that FILA.BROWSE has returned; start with 0", ErrInvalid, req.Cursor)
		}
		if err := filterError(req.Filter.Check(filterBytesMax)); err != nil {
			return nil, err
		}
		p = c.readPage(q, req.Key, cursor, max(req.Count, 1), tx.task.resume)
		if p.Filter = req.Filter; grouped {
			p.Groups = &causes.Groups{Queue: q.name}
		}
		req.page = p
		return nil, tx.await()
	}
	if p.err != nil {
		return nil, fmt.Errorf("browse %q: %w", req.Queue, p.err)
	}
	return p, nil
}

// Get is a request for one message.
type Get struct {
	Queue string
	ID    ID

	look *lookup
}

// Get returns a message of any status; nil if the queue has none with that id. One that is done is known for the
// KEEPDONE of the queue. The message is looked up off the loop, and the task parks meanwhile. What a transaction has
// acked itself is unknown to it.
func (tx *Tx) Get(req *Get) (*View, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, err
	}
	if !tx.atomic {
		req.lookAgain(c, q)
	}
	l, err := tx.lookedUp(q, &req.look, []ID{req.ID}, true)
	if err != nil {
		return nil, lookupError(err, "get")
	}
	if l.found[0] == nil {
		return q.endView(l.end, c.now), nil
	}
	return c.view(&l.changeLog, l.found[0]), nil
}

// lookAgain drops a look-up that has found a message which has ended since, or none that has ended while it ran: it may
// have missed the record of the end, which the next one finds.
func (req *Get) lookAgain(c *core, q *queue) {
	l := req.look
	if l == nil || !l.done || !q.keepsDone() || !c.valid(&l.changeLog) {
		return
	}
	if _, gone := q.changes.Since(req.ID, l.since); gone {
		req.look = nil
	}
}

// PreflightGet looks up the message for a transaction. All messages that a transaction
// shows are in memory until its reply is written, so together they are bounded by
// Config.ReplyBytes: beyond that the error is ErrTooBig.
func (tx *Tx) PreflightGet(req *Get) error {
	if q := tx.core.queues.byName[req.Queue]; q != nil {
		req.lookAgain(tx.core, q)
	}
	if err := tx.preflightLookup(req.Queue, &req.look, []ID{req.ID}, true); err != nil {
		return err
	}
	if l := req.look; l != nil && l.done && l.err == nil {
		if f := l.found[0]; f != nil {
			tx.task.shown += len(f.m.body)
		} else if l.end != nil {
			tx.task.shown += l.end.Bytes
		}
	}
	if tx.task.shown > tx.core.cfg.ReplyBytes {
		return fmt.Errorf("%w: the messages that FILA.GET shows together have more than %d bytes, %w", ErrTooBig, tx.core.cfg.ReplyBytes, errTransaction)
	}
	return nil
}

// view returns a message that was read from the store as it is now; nil if it is gone.
func (c *core) view(w *changeLog, f *foundMessage) *View {
	is := c.locate(w, f)
	m, q := f.m, w.queue
	status := StatusReady
	switch {
	case is == gone:
		return nil
	case is == leased:
		m, status = c.leases.byID[m.id], StatusLeased
	case is == delayed:
		status = StatusDelayed
	case q.isDLQ():
		status = StatusDead
	}
	v := &View{MessageInfo: *m.info(status), Queue: q.name, Key: f.key, Priority: storage.PriorityMax - min(m.rank, storage.PriorityMax)}
	v.SetRecord(f.m.body, m.key.weight)
	v.Progress = c.leases.notes.Progress(m)
	v.Group = c.groups.nameOf(m)
	at := m.tied().firstLeased
	if is == leased && q.keepsDone() {
		at = c.firstLease(m)
	}
	if at != 0 {
		v.FirstLeasedAt = time.Unix(0, at)
	}
	if is == delayed {
		v.ReadyAt = time.Unix(0, f.readyAt)
	}
	if m.failure != nil {
		v.Failures = m.failure.List
	}
	if failed := m.failure.Current(); failed != nil {
		v.Error, v.Cause, v.FirstFailedAt, v.LastFailed = failed.Text, failed.Cause, time.Unix(0, failed.First), time.Unix(0, failed.Last)
	}
	return v
}

// Filter selects messages by their records in the store; nil selects all.
type Filter = search.Filter

// ErrorGroup is the failures of messages that have one cause.
type ErrorGroup = causes.Group

// filterBytesMax bounds each pattern or text of a filter, in bytes. The longest error has a
// group whose pattern is not longer.
const filterBytesMax = 2 * ErrorBytes

// filterError is the refusal of a filter.
func filterError(tooBig bool, err error) error {
	switch {
	case err == nil:
		return nil
	case tooBig:
		return fmt.Errorf("%w: %w", ErrTooBig, err)
	default:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
}
