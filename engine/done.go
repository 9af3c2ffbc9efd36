package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// The records of ends. An ack leaves a record, in the batch that removes the message, if its queue keeps what is done
// (KEEPDONE) or the consumer has given a value and the queue keeps these (RESULTTTL), see search.KnownFor.
//
// So a message with a record is not in its queue, and an id is never given again. Records are in generations (package
// generation), which are as long as the longer period.

// keepsDone reports whether the queue keeps what is known of messages that are done.
func (q *queue) keepsDone() bool { return q.set.Values[queueset.KeepDone] > 0 }

// keepEnd stores the record of the end of a leased message that is acked, and returns its key; nil: there is none.
func (t *idTable) keepEnd(c *core, m *message, value []byte) []byte {
	q := m.key.queue
	if search.KnownFor(&q.set.Values, value != nil) == 0 {
		return nil
	}
	rec := storage.Result{Value: value, NoValue: value == nil, At: c.now}
	if value != nil {
		q.figures.Count(figures.Results, 1)
	}
	if q.keepsDone() {
		rec.Key, rec.Attempts, rec.Deliveries, rec.Consumer = m.key.name, m.attempt, m.deliveries, m.held.Name()
		rec.FirstLeasedAt = c.firstLease(m)
		rec.Headers = c.leases.notes.Headers(m)
	}
	return t.PutEnd(q.idScope(), m.id, &rec, c.out.writes(c.now))
}

// firstLease returns when the first lease of a leased message began; 0: not known.
func (c *core) firstLease(m *message) int64 {
	if at := m.tied().firstLeased; at != 0 || m.deliveries != 1 || m.retrying {
		return at
	}
	return min(c.leasedAt(m), c.now) // the time of a lease may be nanoseconds ahead, see LeaseTime
}

// keepFirstLease notes when the first lease of a message began, as that lease ends.
func (c *core) keepFirstLease(m *message) {
	if m.key.queue.keepsDone() && m.tied().firstLeased == 0 {
		m.noteFirstLease(c.firstLease(m))
	}
}

// endView returns a message that is done; nil if f is, or the queue does not know of it any more.
func (q *queue) endView(f *search.End, now int64) *View {
	if f == nil || !f.Known(&q.set.Values, now) {
		return nil
	}
	return f.View(q.name)
}

// BrowseDone returns a page of messages that are done, which are known for the KEEPDONE of the queue: the newest
// generation of records first, within it by id, the newest first. It is as Browse is, but its filter selects by header
// and by the time of the ack only. Done messages do not change: one that is known during the whole walk is seen exactly
// once.
func (tx *Tx) BrowseDone(req *Browse) (next string, list []*View, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return "", nil, err
	}
	if tx.atomic {
		return "", nil, errWaits
	}
	p := req.done
	if req.done = nil; p == nil || p.epoch != c.epoch || p.Queue != q.no {
		at, ok := search.ParsePlace(req.Cursor)
		if !ok {
			return "", nil, fmt.Errorf("%w: CURSOR %.80q is none that FILA.BROWSE ... DONE has returned; start with 0", ErrInvalid, req.Cursor)
		}
		if err := filterError(req.Filter.CheckDone(filterBytesMax)); err != nil {
			return "", nil, err
		}
		req.done = &donePage{
			task: tx.task, epoch: c.epoch, Done: search.Done{
				Queue: q.no, Ends: q.ids.Ends(), Set: q.set.Values, Now: c.now, Key: req.Key, Filter: req.Filter, Limit: max(req.Count, 1), At: at,
			},
		}
		c.out.jobs = append(c.out.jobs, req.done)
		return "", nil, tx.await()
	}
	if !p.read {
		req.done = p
		return "", nil, tx.await()
	}
	if p.err != nil {
		return "", nil, fmt.Errorf("browse what is done in %q: %w", req.Queue, p.err)
	}
	c.spend(len(p.Found))
	for _, f := range p.Found {
		if v := q.endView(f, c.now); v != nil {
			list = append(list, v)
		}
	}
	return p.At.Cursor(), list, nil
}

// donePage is the off-loop job that reads a page of messages that are done.
type donePage struct {
	task  *Task
	epoch uint64
	search.Done

	read bool // the page has arrived
	err  error
}

// searches implements searching: a page may pass over very many records.
func (p *donePage) searches() bool { return true }

func (p *donePage) do(store Store) { p.err = p.Read(store) }

// Apply resumes the task with the page.
func (p *donePage) Apply(tx *Tx) error {
	if p.epoch == tx.core.epoch && p.task.wait != nil { // else it was concluded, or starts another page
		p.read = true
		p.task.resume(tx.core)
	}
	return nil
}
