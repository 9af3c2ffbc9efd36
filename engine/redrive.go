package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/ids"
	"github.com/faisca/fila/engine/internal/failures"
	"github.com/faisca/fila/engine/redriving"
	"github.com/faisca/fila/storage"
)

// Redrive is a request to move the messages of a dead-letter queue back to the queues in
// which they died.
type Redrive struct {
	DLQ   string
	Count int    // the most to move; 0: all
	Key   string // only messages of this fairness key; "": of all keys
	To    string // the queue that takes them; "": the queue in which each died
	Rate  int    // the most to move in any second, up to a million; 0: no limit
	// Filter selects the messages to move, such as those of one group of errors; nil: all.
	Filter *Filter

	job *redrive // under way; nil: not started
}

// redrive is the redrive of one dead-letter queue; a queue has at most one. Its states are those of package redriving:
//
//	waiting  page is nil; operations.next is the timer
//	reading  page is under way as an off-loop job
//	moving   redriveFound moves the messages of the page, in one turn
//	over     the queue was read to its end, Count was reached, StopRedrive, a purge or
//	         deletion of the queue, or Err
//
// Each message moves atomically, the whole redrive does not. A redrive is not durable: a
// restart or a recovery ends it, and each message has moved or not.
//
// The task that started the redrive is answered at its end or after redriveReplyAfter,
// whichever comes first, but not before its first page is read; then the redrive continues in the background.
type redrive struct {
	redriving.State
	req  Redrive
	dlq  *queue
	task *Task // the task that waits for the end; nil: none does
	page *page // being read; nil: none
}

// redriveReplyAfter is how long a redrive delays the reply to its client.
const redriveReplyAfter = int64(time.Second)

// replyAt returns when the task that waits is answered although the redrive goes on. Its first page is waited for, so
// that the answer to a short redrive is all of it, however late a page is read.
func (j *redrive) replyAt() int64 {
	if j.task == nil || j.page != nil && j.Looked == 0 {
		return never
	}
	return j.Began + redriveReplyAfter
}

// Redrive moves dead messages back, ready at once, and returns how many it has moved by the
// time of the answer. Attempts restart; ids and positions stay. A message stays in the
// dead-letter queue if it is leased or delayed, if its target queue does not exist, is full or
// has its intake paused, or if another message there has taken its unique id: these are counted
// as skipped.
//
// A client that disconnects stops nothing; StopRedrive does. Errors: ErrInvalid for a queue
// that is no dead-letter queue or has a redrive running, for TO or RATE out of bounds,
// ErrPaused for a paused TO, ErrMisconf if the store stops taking writes or a recovery
// interrupts the redrive. In a transaction it is refused.
func (tx *Tx) Redrive(req *Redrive) (int, error) {
	c := tx.core
	if j := req.job; j != nil {
		return c.redriveResult(j)
	}
	dlq, err := c.queueToChange(req.DLQ)
	if err != nil {
		return 0, err
	}
	if err := c.checkRedrive(dlq, req); err != nil {
		return 0, err
	}
	if tx.atomic {
		return 0, errWaits
	}
	j := &redrive{State: redriving.New(req.Count, req.Rate, req.Filter != nil, c.now), req: *req, dlq: dlq, task: tx.task}
	req.job, dlq.redrive = j, j
	c.ops.redrives = append(c.ops.redrives, j)
	c.advance(j)
	return 0, tx.await()
}

// redriveResult returns the answer of a redrive that has ended or continues in the
// background.
func (c *core) redriveResult(j *redrive) (int, error) {
	j.task = nil
	switch {
	case j.Err != nil:
		return j.Done, fmt.Errorf("redrive %q: %w", j.req.DLQ, j.Err)
	case c.queues.byName[j.req.DLQ] != j.dlq: // a recovery has replaced the queue
		return j.Done, fmt.Errorf("%w: the redrive of %q was interrupted; what it has not moved is still there, run it again", ErrMisconf, j.req.DLQ)
	default:
		return j.Done, nil
	}
}

// checkRedrive validates a redrive before it starts.
func (c *core) checkRedrive(dlq *queue, req *Redrive) error {
	if !dlq.isDLQ() {
		return fmt.Errorf("%w: %q is not a dead-letter queue", ErrInvalid, req.DLQ)
	}
	if err := filterError(req.Filter.Check(filterBytesMax)); err != nil {
		return err
	}
	if err := redriving.CheckRate(req.Rate); err != nil {
		return err
	}
	if j := dlq.redrive; j != nil && !j.Over {
		return fmt.Errorf("%w: a redrive of %q is running; FILA.STATS shows how far it is, FILA.REDRIVE %s STOP ends it", ErrInvalid, req.DLQ, req.DLQ)
	}
	if req.To == "" {
		return nil
	}
	to, err := c.queueNamed(req.To)
	switch {
	case err != nil:
		return fmt.Errorf("TO: %w", err)
	case to == dlq:
		return fmt.Errorf("%w: TO %q is the dead-letter queue itself", ErrInvalid, req.To)
	case to.set.PausedIn:
		return fmt.Errorf("%w: TO %q takes no messages now", ErrPaused, req.To)
	}
	return nil
}

// StopRedrive ends the redrive of a queue and returns how many messages it has moved; 0 if
// none was running. A page under way is discarded.
func (tx *Tx) StopRedrive(name string) (int, error) {
	c := tx.core
	dlq, err := c.queueNamed(name)
	if err != nil {
		return 0, err
	}
	j := dlq.redrive
	if j == nil || j.Over {
		return 0, nil
	}
	c.endRedrive(j)
	return j.Done, nil
}

// advance reads the next page of a redrive, or leaves it waiting until NextAt, when operations.expire calls again.
func (c *core) advance(j *redrive) {
	most, look, due := j.Page(c.now)
	if !due {
		return
	}
	j.page = c.readPage(j.dlq, j.req.Key, j.Cursor, look, func(c *core) { c.redrivePage(j) })
	j.page.Filter, j.page.Most = j.req.Filter, most
	j.page.ids = &ids.Owners{View: c.out.snapshot.ids, To: j.req.To, Seen: c.out.batchNo}
}

// redrivePage processes a page that has been read. A page whose change log could not follow
// is read again.
func (c *core) redrivePage(j *redrive) {
	p := j.page
	j.page = nil
	switch {
	case j.Over:
		return
	case p.err != nil:
		j.Err = p.err
		c.endRedrive(j)
		return
	case c.writableForNew() != nil:
		j.Err = c.writableForNew()
		c.endRedrive(j)
		return
	case p.no != j.dlq.no:
		c.endRedrive(j) // the queue was purged or deleted
		return
	case c.valid(&p.changeLog):
		if !j.More(c.redriveFound(j, p)) {
			c.endRedrive(j)
			return
		}
	}
	c.advance(j)
}

// redriveFound moves the messages of a page as far as the rate allows and their look-ups are
// current, and returns where the next page starts; nil at the end.
func (c *core) redriveFound(j *redrive, p *page) []byte {
	j.Begin(c.now, p.Looked)
	c.spend(1 + 2*len(p.found))
	for i := range p.found {
		if f := &p.found[i]; !j.Allows(c.now) || !c.redriveMessage(j, p, f) {
			return storage.AppendMessageKey(nil, p.no, f.key, f.m.rank, f.m.id)
		}
	}
	return p.Next
}

// redriveMessage moves a message to its target queue, or skips it. The change log of the
// page tells whether the message is still as it was read. One that has failed anew since may
// have another error than the filter has selected. It returns false if the message has to be
// read again, since the look-up of its unique id is too old.
func (c *core) redriveMessage(j *redrive, p *page, f *foundMessage) bool {
	failed := f.m.failure
	is := c.locate(&p.changeLog, f)
	if is == gone {
		return true
	}
	var rec storage.Message
	to := (*queue)(nil)
	if err := rec.Decode(f.m.body); err == nil { // a damaged record is reported by its delivery
		to = c.redriveTarget(j, &rec)
	}
	another := j.req.Filter != nil && (j.req.Filter.Error != nil || len(j.req.Filter.Causes) > 0) && !failures.Same(failed, f.m.failure)
	if to == nil || is != ready || another || c.groups.cancels(f.m) || to.full(f.key) != nil {
		j.Skipped++
		return true
	}
	owner, lent, err := c.dedup.owner(c, to, rec.Unique, p.ids.Of(f.m.id))
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
		return false
	case owner.ID != (ID{}):
		j.Skipped++
		j.Taken++
		return true
	}
	m := c.extract(&p.changeLog, f)
	if m == nil {
		return true
	}
	rec.Dead = nil
	c.move(m, to, &rec, lent)
	c.redriven(to, f.key)
	j.Moved()
	j.dlq.figures.Count(figures.Redriven, 1)
	return true
}

// redriveTarget returns the queue that takes a message, or nil if the message has to stay.
func (c *core) redriveTarget(j *redrive, rec *storage.Message) *queue {
	name := j.req.To
	if name == "" && rec.Dead != nil {
		name = rec.Dead.Queue
	}
	if to := c.queues.byName[name]; to != nil && to != j.dlq && !to.set.PausedIn {
		return to
	}
	return nil
}

// endRedrive ends a redrive and resumes the task that waits for it.
func (c *core) endRedrive(j *redrive) {
	j.Over, j.page = true, nil
	c.ops.redrives = slices.DeleteFunc(c.ops.redrives, func(o *redrive) bool { return o == j })
	if t := j.task; t != nil {
		t.resume(c)
	}
}

// RedriveInfo describes the running or the last redrive of a queue.
type RedriveInfo = redriving.Info

// RedriveInfo describes the running or the last redrive of a queue since the last start or
// recovery; the zero value if there was none.
func (tx *Tx) RedriveInfo(name string) (RedriveInfo, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil || q.redrive == nil {
		return RedriveInfo{}, err
	}
	j := q.redrive
	info := j.Info()
	info.To, info.Search = j.req.To, j.req.Key != "" || j.req.Count > 0 || j.req.Filter.Searches()
	info.From, info.Error, info.Causes = j.req.Filter.Shown()
	return info, nil
}
