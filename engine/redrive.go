package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// Redrive asks to move messages of a dead-letter queue back.
type Redrive struct {
	DLQ   string
	Count int    // at most so many; 0: all
	Key   string // only those of this fairness key; "": of all
	To    string // where to; "": where each came from
	Rate  int    // at most so many in any second; 0: as fast as it goes

	job *redrive
}

// redrive is a redrive under way: at most one of each queue. It goes through the
// queue page by page; each page is read beside the loop, each message moves
// atomically, the whole does not. It is not durable: after a restart, or a recovery
// in place, it has ended, and each message has moved or not.
//
// The task that has begun it waits for its end, but not for longer than
// redriveReplyAfter: then it is answered, and the redrive goes on in the background.
type redrive struct {
	req   Redrive
	dlq   *queue
	task  *Task // who waits for its end; nil: it is in the background
	began int64

	moved, skipped int
	cursor         []byte // where the next page starts; nil: at the beginning
	page           *page
	nextAt         int64 // when the next message may move
	over           bool
	err            error // why it ended early
}

const (
	// redrivePage bounds how many messages one turn moves; others are served in
	// between.
	redrivePage = 256
	// redriveRatedPage is the same for one with a rate, which may not move them all.
	redriveRatedPage = 32
	// redriveReplyAfter is how long a redrive holds its client up.
	redriveReplyAfter = int64(time.Second)
	// redriveCatchUp is how far a redrive with a rate may catch up when it comes late.
	// What it could move too many in a second because of that is taken off its pace.
	redriveCatchUp = int64(50 * time.Millisecond)
	redrivePace    = 0.95
	rateRedrive    = 1_000_000
)

// Redrive moves dead messages to where they came from, ready at once, and returns
// how many it has moved when it is over or when it goes on in the background. Their
// attempts start again; they keep their id and their place. Messages stay that are
// leased or wait for their time, and those whose queue does not exist any more, is
// full, or takes none because its intake is paused.
//
// One redrive of a queue runs at a time. A client that goes away stops nothing.
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
	j := &redrive{req: *req, dlq: dlq, task: tx.task, began: c.now, nextAt: c.now}
	req.job, dlq.redrive = j, j
	c.ops.redrives = append(c.ops.redrives, j)
	c.advance(j)
	tx.park(nil, 0, false)
	return 0, ErrWouldBlock
}

func (c *core) redriveResult(j *redrive) (int, error) {
	j.task = nil
	switch {
	case j.err != nil:
		return j.moved, fmt.Errorf("redrive %q: %w", j.req.DLQ, j.err)
	case c.queues.byName[j.req.DLQ] != j.dlq: // the memory that knew it was dropped
		return j.moved, fmt.Errorf("%w: the redrive of %q was interrupted; what it has not moved is still there, run it again", ErrMisconf, j.req.DLQ)
	default:
		return j.moved, nil
	}
}

func (c *core) checkRedrive(dlq *queue, req *Redrive) error {
	if !dlq.isDLQ() {
		return fmt.Errorf("%w: %q is not a dead-letter queue", ErrInvalid, req.DLQ)
	}
	if req.Rate < 0 || req.Rate > rateRedrive {
		return fmt.Errorf("%w: RATE must be from 1 to %d", ErrInvalid, rateRedrive)
	}
	if j := dlq.redrive; j != nil && !j.over {
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

// StopRedrive ends the redrive of a queue and returns how many messages it has
// moved, 0 if none was running.
func (tx *Tx) StopRedrive(name string) (int, error) {
	c := tx.core
	dlq, err := c.queueNamed(name)
	if err != nil {
		return 0, err
	}
	j := dlq.redrive
	if j == nil || j.over {
		return 0, nil
	}
	c.endRedrive(j)
	return j.moved, nil
}

// advance lets a redrive ask for its next page, or wait until it may.
func (c *core) advance(j *redrive) {
	if j.nextAt > c.now {
		return // runRedrives comes back
	}
	limit := redrivePage
	if j.req.Rate > 0 {
		limit = redriveRatedPage
	}
	if j.req.Count > 0 {
		limit = min(limit, j.req.Count-j.moved)
	}
	j.page = c.readPage(j.dlq, j.req.Key, j.cursor, limit, func(c *core) { c.redrivePage(j) })
}

// pace is the time from one message to the next, at least a nanosecond.
func (j *redrive) pace() int64 {
	return max(int64(float64(time.Second)/(redrivePace*float64(j.req.Rate))), 1)
}

// redrivePage moves the messages of a page that has come.
func (c *core) redrivePage(j *redrive) {
	p := j.page
	j.page = nil
	switch {
	case j.over:
		return
	case p.err != nil:
		j.err = p.err
		c.endRedrive(j)
		return
	case c.writableForNew() != nil:
		j.err = c.writableForNew()
		c.endRedrive(j)
		return
	case p.no != j.dlq.no:
		c.endRedrive(j) // purged: nothing is left of what there was
		return
	case c.valid(&p.changeLog):
		j.cursor = c.redriveFound(j, p)
		if j.cursor == nil || j.req.Count > 0 && j.moved >= j.req.Count {
			c.endRedrive(j)
			return
		}
	}
	c.advance(j)
}

// redriveFound moves the messages of a page, as far as the rate lets it, and
// returns where to go on, nil at the end.
func (c *core) redriveFound(j *redrive, p *page) []byte {
	j.nextAt = max(j.nextAt, c.now-redriveCatchUp)
	c.spend(2 * len(p.found))
	for i := range p.found {
		if f := &p.found[i]; j.nextAt > c.now {
			return storage.AppendMessageKey(nil, p.no, f.key, f.m.rank, f.m.id)
		}
		c.redriveMessage(j, p, &p.found[i])
	}
	return p.next
}

// redriveMessage moves a message to where it belongs, or leaves it.
func (c *core) redriveMessage(j *redrive, p *page, f *foundMessage) {
	if c.locate(&p.changeLog, f) == gone {
		return
	}
	var rec storage.Message
	to := (*queue)(nil)
	if err := rec.Decode(f.m.body); err == nil { // else it is reported by whoever reads it for delivery
		to = c.redriveTarget(j, &rec)
	}
	if to == nil || c.locate(&p.changeLog, f) != ready || to.full(f.key) != nil {
		j.skipped++
		return
	}
	m := c.extract(&p.changeLog, f)
	if m == nil {
		return
	}
	rec.Dead = nil
	c.move(m, to, &rec)
	j.moved++
	j.dlq.totals.redriven++
	if j.req.Rate > 0 {
		j.nextAt += j.pace()
	}
}

// redriveTarget returns the queue that a message goes back to, nil if it has to stay.
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

// endRedrive ends a redrive and answers who waits for it.
func (c *core) endRedrive(j *redrive) {
	j.over, j.page = true, nil
	c.ops.redrives = slices.DeleteFunc(c.ops.redrives, func(o *redrive) bool { return o == j })
	if t := j.task; t != nil && t.wait != nil {
		c.run(t)
	}
}

// RedriveInfo describes the redrive of a queue that runs, or the last one.
type RedriveInfo struct {
	Running        bool
	Moved, Skipped int64
	To             string // "": to where each came from
	Rate           int    // 0: as fast as it goes
	StartedAt      time.Time
}

// RedriveInfo describes the redrive of a queue, if there was one.
func (tx *Tx) RedriveInfo(name string) (RedriveInfo, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil || q.redrive == nil {
		return RedriveInfo{}, err
	}
	j := q.redrive
	return RedriveInfo{
		Running: !j.over, Moved: int64(j.moved), Skipped: int64(j.skipped), To: j.req.To, Rate: j.req.Rate, StartedAt: time.Unix(0, j.began),
	}, nil
}
