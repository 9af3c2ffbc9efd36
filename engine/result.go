package engine

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/storage"
)

// Results. A consumer may give a value with its ack, which the queue keeps for a time, in the record of the end of
// the message (done.go). A request for the result of a message is answered with what has become of the message:
//
//	done     from the record of its end; to a request that waits, also without a record
//	dead     from the message in the dead-letter queue; to a request that waits, also without
//	         such a queue
//	pending  from the message itself
//	unknown  otherwise, and to a request that waits for a message which is cancelled
//
// A message in memory is pending. For any other one a request has three steps:
//
//  1. It is listed under the message (resultWait). From then on, the end of the message answers it.
//  2. After the commit of the turn's batch, an off-loop job looks for the value, then for the
//     message in the dead-letter queue, then in its own queue. An end before step 1 is in the
//     store by then. A redrive moves messages from the second place to the third, so none is
//     missed.
//  3. If the message is pending and the request blocks, the task stays parked (waitEnd).
//
// So a look-up is never stale but by a recovery, and no recent batches are kept for it, as they are
// for ids that only say which message or movement was first (package recent).
//
// The answer to a waiting request leaves after the commit of the batch that ends the
// message, as the reply to the ack does.
//
// Very many requests may be answered at once, and their clients may not read. So Retain decides
// whether an answer keeps its value in memory; one that may not is absent, and LoadResult reads it
// when the reply is written.

// The statuses of a Result.
const (
	ResultDone    = "done"
	ResultDead    = "dead"
	ResultPending = "pending"
)

// Result is what has become of a message. The zero value is that of an unknown message.
type Result struct {
	Status string    // one of the constants; "": the message is unknown, or not known any more
	Value  []byte    // of a message that is done; nil: its consumer has given none
	Error  string    // of a dead message: of its last failure, or else the reason
	At     time.Time // when the message was acked or died
	Absent bool      // it has a value, which LoadResult reads
	// Progress is how far the work on a pending message is, see ExtendOptions; "": not known.
	Progress string

	key []byte // of the record of the value; nil: it has none
}

// ErrNoRoom says that there is no memory for the answer, and that it is not on disk either.
var ErrNoRoom = errors.New("too many results wait to be read by their clients")

// LoadResult reads a value that is absent. A result that is not kept any more becomes that of an
// unknown message. It runs on the goroutine of the connection.
func (p *Preparer) LoadResult(r *Result) error { return loadResult(r, p.store) }

func loadResult(r *Result, store Store) error {
	if !r.Absent {
		return nil
	}
	if r.key == nil {
		return fmt.Errorf("%w, and the queue keeps none: set its RESULTTTL", ErrNoRoom)
	}
	var rec storage.Result
	b, err := store.Get(storage.Results, r.key)
	if errors.Is(err, storage.ErrNotFound) {
		*r = Result{}
		return nil
	}
	if err == nil {
		err = rec.Decode(b)
	}
	if err != nil {
		return fmt.Errorf("load the result: %w", err)
	}
	r.Value, r.Absent = rec.Value, false
	return nil
}

// give is the answer to the request: r, without its value if there is no memory for that.
func (req *ResultRequest) give(r Result) {
	if r.Value != nil && req.Retain != nil && !req.Retain(len(r.Value)) {
		r.Value, r.Absent = nil, true
	}
	req.Result = r
}

// ResultRequest asks for the result of a message.
type ResultRequest struct {
	Queue string
	ID    ID
	Block time.Duration // how long to wait for the end of the message; negative: not at all, 0: without limit
	// Retain reports whether the answer may keep a value of n bytes in memory, from the loop;
	// nil: any. What an earlier answer to the request has kept is free again.
	Retain func(n int) bool

	Result Result // the answer, once the task is done

	answered bool // Result is the answer
	look     *resultLook
}

// resultWait is a request that the end of the message answers.
type resultWait struct {
	intrusive.Links[resultWait] // of those of the message
	task                        *Task
	req                         *ResultRequest
	queue                       *queue
	atomic                      bool        // of a transaction: the task goes on when all of its calls can
	next                        *resultWait // of the same task
}

// resultWaits are those of one message, in the order of their arrival.
type resultWaits struct {
	intrusive.List[resultWait, *resultWait]
}

// Result finds out what has become of a message, and leaves it in the request. ErrWouldBlock
// means that the task waits. In a transaction it does not wait for the end of the message.
//
// Errors: an unknown queue, also one that is deleted while the task waits; an error of the store
// if the result cannot be read.
func (tx *Tx) Result(req *ResultRequest) error {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return err
	}
	if tx.atomic {
		defer tx.task.leaveMessage(req) // what a later call of the transaction does is not in its answer
		if req.answered {
			return nil
		}
	}
	l := req.look
	switch {
	case l != nil && l.done && l.epoch == c.epoch:
		if l.err != nil {
			return fmt.Errorf("look the result of %s up: %w", req.ID, l.err)
		}
		req.give(l.answer(q, c.now))
	case tx.atomic:
		req.Result = Result{} // an earlier call of the transaction has created the queue
	case q.has(c, req.ID):
		req.Result = Result{Status: ResultPending}
	default:
		return tx.lookResultUp(q, req)
	}
	if req.Result.Status != ResultPending {
		return nil
	}
	if req.Result.Progress = c.leases.notes.Progress(c.leases.byID[req.ID]); req.Block < 0 || tx.atomic {
		return nil
	}
	err = tx.park(waitEnd, nil, tx.blockUntil(req.Block))
	q.awaitEnd(tx.task, req)
	return err
}

// PreflightResult looks up the result for a transaction. As with PreflightGet, ErrTooBig says
// that a transaction shows too much.
func (tx *Tx) PreflightResult(req *ResultRequest) error {
	c := tx.core
	q := c.queues.byName[req.Queue]
	if q == nil {
		return nil // Result reports the error
	}
	if l := req.look; l == nil || l.epoch != c.epoch {
		return tx.lookResultUp(q, req)
	} else if !l.done {
		return tx.await()
	}
	tx.task.shown += len(req.look.result.Value) + len(req.Result.Value)
	if tx.task.shown > c.cfg.ReplyBytes {
		return fmt.Errorf("%w: what FILA.RESULT shows together has more than %d bytes, %w", ErrTooBig, c.cfg.ReplyBytes, errTransaction)
	}
	return nil
}

// lookResultUp starts a look-up and parks the task until the result arrives. An end of the message meanwhile
// answers the request.
func (tx *Tx) lookResultUp(q *queue, req *ResultRequest) error {
	c := tx.core
	l := &resultLook{
		task: tx.task, epoch: c.epoch, id: req.ID, name: q.name, queue: q.no, began: q.ids.Ends(),
		in: wanted{req.ID, q.keys.WithID(req.ID.KeyHash())},
	}
	if c.queues.haveDLQ(q) {
		dlq := c.queues.byName[q.set.DLQ]
		l.dlq, l.dead = dlq.no, wanted{req.ID, dlq.keys.WithID(req.ID.KeyHash())}
	}
	req.look, req.answered = l, false
	c.out.jobs = append(c.out.jobs, l)
	err := tx.await()
	q.awaitEnd(tx.task, req).atomic = tx.atomic
	return err
}

// answer returns the result of a look-up that no end of the message has overtaken.
func (l *resultLook) answer(q *queue, now int64) Result {
	ttl := search.KnownFor(&q.set.Values, l.result.Value != nil)
	if l.queue != q.no || l.result.Status == ResultDone && !l.result.At.Add(ttl).After(unix(now)) {
		return Result{}
	}
	return l.result
}

// has reports whether a message of the queue is in a structure of the memory, and so pending.
func (q *queue) has(c *core, id ID) bool {
	if c.leases.in(q, id) != nil {
		return true
	}
	for _, k := range q.keys.WithID(id.KeyHash()) {
		if k.window.At(window.Place{Rank: id.Rank(), ID: id}) != nil {
			return true
		}
	}
	return false
}

// awaitEnd returns the resultWait of a parked task for the request, which it creates if there is
// none.
func (q *queue) awaitEnd(t *Task, req *ResultRequest) *resultWait {
	for a := t.wait.ends; a != nil; a = a.next {
		if a.req == req {
			return a
		}
	}
	a := &resultWait{task: t, req: req, queue: q, next: t.wait.ends}
	t.wait.ends = a
	if q.resultWaits == nil {
		q.resultWaits = map[ID]*resultWaits{}
	}
	all := q.resultWaits[req.ID]
	if all == nil {
		all = &resultWaits{}
		q.resultWaits[req.ID] = all
	}
	all.PushBack(a)
	q.figures.AwaitResults(1)
	return a
}

// leaveMessages removes a wait that ends from those of messages.
func (w *wait) leaveMessages() {
	for a := w.ends; a != nil; a = a.next {
		a.leave()
	}
	w.ends = nil
}

// leaveMessage removes a request of the task, whose wait goes on, from those of its message.
func (t *Task) leaveMessage(req *ResultRequest) {
	for a := t.ends(); a != nil; a = a.next {
		if a.req == req {
			a.leave()
		}
	}
}

// ends returns the requests of the task that the ends of messages answer.
func (t *Task) ends() *resultWait {
	if t.wait == nil {
		return nil
	}
	return t.wait.ends
}

// leave removes a request from those of its message.
func (a *resultWait) leave() {
	all := a.queue.resultWaits[a.req.ID]
	if all == nil || a.Prev() == nil && all.Head() != a {
		return // it was answered
	}
	a.queue.figures.AwaitResults(-1)
	if all.Remove(a); all.Len() == 0 {
		delete(a.queue.resultWaits, a.req.ID)
	}
}

// checkResultWaits verifies the number of requests that wait (24).
func (q *queue) checkResultWaits(bad report) {
	n := int64(0)
	for _, all := range q.resultWaits {
		n += int64(all.Len())
	}
	if n != q.figures.ResultWaits {
		bad(24, "queue %q: %d requests wait for results, it says %d", q.name, n, q.figures.ResultWaits)
	}
}

// tell answers the requests for a message that ends, in the batch that ends it; nil: the message
// is unknown from now on.
func (q *queue) tell(c *core, m *message, r *Result) {
	if len(q.resultWaits) == 0 {
		return
	}
	if all := q.resultWaits[m.id]; all != nil {
		all.tell(c, r)
	}
}

// tellDead answers the requests for a message that is dead.
func (q *queue) tellDead(c *core, m *message, reason string) {
	if len(q.resultWaits) > 0 {
		q.tell(c, m, &Result{Status: ResultDead, Error: m.failure.TextOr(reason), At: unix(c.now)})
	}
}

// tell answers the requests for a message.
func (all *resultWaits) tell(c *core, r *Result) {
	var answer Result
	if r != nil {
		answer = *r
		answer.Value = bytes.Clone(answer.Value) // the bytes are of the ack, whose client goes on
	}
	for a := all.Head(); a != nil; a = all.Head() {
		c.spend(1)
		a.leave()
		a.req.answered = true
		a.req.give(answer)
		if !a.atomic {
			c.finish(a.task, nil)
		}
	}
}

// tellAll answers all requests for messages of a queue, which are gone. err is the answer of those that
// wait; nil: the messages are unknown.
func (q *queue) tellAll(c *core, err error) {
	for _, id := range slices.SortedFunc(maps.Keys(q.resultWaits), func(a, b ID) int { return bytes.Compare(a[:], b[:]) }) {
		if err == nil {
			q.resultWaits[id].tell(c, nil)
			continue
		}
		for all := q.resultWaits[id]; all.Head() != nil; {
			a := all.Head()
			c.spend(1)
			if a.leave(); !a.atomic {
				c.finish(a.task, err)
			}
		}
	}
}

// resultLook is the off-loop job that looks a result up.
type resultLook struct {
	task       *Task
	epoch      uint64
	id         ID
	name       string // of the queue
	queue, dlq uint32 // numbers; dlq 0: it has none
	began      []int64
	in, dead   wanted // the message in the queue, and in the dead-letter queue

	done   bool // the result has arrived
	result Result
	err    error
}

// work is the number of records to try, at most.
func (l *resultLook) work() int { return len(l.began) + len(l.in.keys) + len(l.dead.keys) }

func (l *resultLook) do(store Store) {
	if found := l.value(store); found || l.err != nil {
		return
	}
	if l.dlq != 0 {
		var f *foundMessage
		if f, l.err = l.dead.find(store, l.dlq); l.err != nil {
			return
		}
		if f != nil && l.died(f) {
			return
		}
	}
	f, err := l.in.find(store, l.queue)
	if l.err = err; f != nil {
		l.result = Result{Status: ResultPending}
	}
}

// value looks for the record of the value.
func (l *resultLook) value(store Store) bool {
	e, key, err := search.FindResult(store, l.queue, l.began, l.id)
	if l.err = err; e == nil {
		return false
	}
	l.result = Result{Status: ResultDone, Value: e.Value(), At: unix(e.Rec.At), key: key}
	return true
}

// died takes the result from a message in the dead-letter queue, if it died in the queue.
func (l *resultLook) died(f *foundMessage) bool {
	var rec storage.Message
	if l.err = rec.Decode(f.m.body); l.err != nil {
		return false
	}
	d := rec.Dead
	if d == nil || d.Queue != l.name {
		return false
	}
	l.result = Result{Status: ResultDead, Error: cmp.Or(d.Error, d.Reason), At: unix(d.DiedAt)}
	return true
}

// Apply resumes the task with the result.
func (l *resultLook) Apply(tx *Tx) error {
	if l.epoch == tx.core.epoch && l.task.wait != nil { // else it was concluded, or starts another look-up
		l.done = true
		l.task.resume(tx.core)
	}
	return nil
}
