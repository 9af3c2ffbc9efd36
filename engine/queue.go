package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/changes"
	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/ids"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/plan"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/engine/settings"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// queue is one queue: its settings, its keys, and the consumers that wait for it.
type queue struct {
	intrusive.Links[queue] // among the queues with the same dead-letter queue, see queueSet.byDLQ

	name string
	no   uint32 // names the queue in keys of the store; never used again
	set  storage.Queue

	keys         keyTable
	order        *dispatch.Queue // of its keys
	waiters      waiters
	consumers    *consumers.Queue // an object of its own: what is idle of it outlives the queue
	becameReady  bool             // in events.ready
	shrunk       bool             // in events.shrunk
	awaitingRead int              // keys with a backlog on disk and no message in memory
	askedAt      int64            // when a consumer asked for messages last, Unix nanoseconds; 0: none has

	changes changes.Log[delta] // which off-loop reads of messages need, see reading.go

	redrive *redrive // under way, or the last one; nil: none yet

	regather    bool // another BATCH is set, and its keys are looked at
	roster      intrusive.Roster[fairKey]
	purgedUpTo  uint64              // roster number of the newest key that a purge detached, see removal.go
	purgedAt    int64               // when that was
	settings    settings.Keys       // of keys that have some of their own
	ids         ids.Queue           // where its ids and the records of ends of its messages are
	resultWaits map[ID]*resultWaits // requests for the results of its messages
	sequence    keyOrder            // of an ordered queue: what is out
	figures     figures.Queue
}

// limited reports whether the queue, or a key of it, has a maximum depth, for which its messages must be
// counted before an enqueue is admitted.
func (q *queue) limited() bool {
	return q.set.Values[queueset.MaxDepth] > 0 || q.set.Values[queueset.KeyMaxDepth] > 0 || q.settings.AnyMaxDepth()
}

// isDLQ says that the queue's messages are dead ones.
func (q *queue) isDLQ() bool { return q.set.DeadLetter }

// full refuses a message more than the queue, or one of its keys, may hold.
func (q *queue) full(key string) error {
	if most := int64(q.set.Values[queueset.MaxDepth]); most > 0 && q.figures.Total >= most {
		return fmt.Errorf("%w: %q holds %s, its MAXDEPTH is %d", ErrMaxDepth, q.name, errtext.Amount(q.figures.Total, "message"), most)
	}
	most, by := int64(q.set.Values[queueset.KeyMaxDepth]), "KEYMAXDEPTH"
	if q.settings.AnyMaxDepth() {
		if own, _ := q.settings.Of(key); own.MaxDepth > 0 {
			most, by = int64(own.MaxDepth), "MAXDEPTH"
		}
	}
	if most > 0 {
		if k := q.keys.get(key); k != nil && k.total >= most {
			return fmt.Errorf("%w: key %.512q of %q holds %s, its %s is %d", ErrMaxDepth, key, q.name, errtext.Amount(k.total, "message"), by, most)
		}
	}
	return nil
}

// QueueOptions are the settings of a queue that a command gives.
type QueueOptions = plan.Options

// present returns the queue as its settings are judged.
func (q *queue) present() *plan.Queue {
	return &plan.Queue{
		Name: q.name, Set: &q.set, Messages: q.figures.Total, Empty: q.figures.Total == 0 && (q.figures.Counted || q.keys.Len() == 0), Unused: q.figures.Unused(),
	}
}

// queueNamed returns a queue, or ErrNoQueue with its name. While the store takes no writes it
// returns ErrMisconf instead: the queue may exist on a disk that cannot be read.
func (c *core) queueNamed(name string) (*queue, error) {
	if q := c.queues.byName[name]; q != nil {
		return q, nil
	}
	if err := c.writable(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %.255q, create it with FILA.QUEUE CREATE", ErrNoQueue, name)
}

// queueToChange is queueNamed for calls that change something: it returns ErrMisconf while the
// store takes no writes.
func (c *core) queueToChange(name string) (*queue, error) {
	if err := c.writable(); err != nil {
		return nil, err
	}
	return c.queueNamed(name)
}

// DLQSuffix behind a queue's name makes that of the dead-letter queue it gets when
// none is named.
const DLQSuffix = plan.DLQSuffix

// CreateQueue makes a queue. Unless o names one or forbids it, a dead-letter
// queue "<name>.dlq" is made with it if there is none of that name; its name may be
// longer than the limit by what is added.
func (tx *Tx) CreateQueue(name string, o QueueOptions) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	if err := c.cfg.Limits.CheckQueueName(name); err != nil {
		return err
	}
	if c.queues.byName[name] != nil {
		return fmt.Errorf("%w: %q", ErrQueueExists, name)
	}
	set := storage.Queue{Values: c.cfg.QueueDefaults(), CreatedAt: c.now}
	if err := o.Apply(name, &set); err != nil {
		return err
	}
	automatic := o.DLQ == nil && !o.NoDLQ
	if automatic {
		set.DLQ = name + DLQSuffix
	}
	if err := c.checkDLQ(name, set.DLQ, automatic); err != nil {
		return err
	}
	if automatic && c.queues.byName[set.DLQ] == nil {
		c.addQueue(set.DLQ, storage.Queue{Values: set.Values.Inherited(), DeadLetter: true, CreatedAt: c.now})
	}
	c.addQueue(name, set)
	c.markDLQ(set.DLQ)
	return nil
}

// EnsureQueue is CreateQueue, but leaves a queue that exists as it is. That takes no
// write, so it succeeds on a full disk.
func (tx *Tx) EnsureQueue(name string, o QueueOptions) error {
	if tx.core.queues.byName[name] != nil {
		return nil
	}
	return tx.CreateQueue(name, o)
}

// AlterQueue changes the given settings of a queue; the others stay.
func (tx *Tx) AlterQueue(name string, o QueueOptions) error {
	c := tx.core
	q, err := c.queueToChange(name)
	if err != nil {
		return err
	}
	set := q.set
	if err := o.Apply(name, &set); err != nil {
		return err
	}
	if err := q.present().CheckReorder(&set.Values); err != nil {
		return err
	}
	if set.DLQ != q.set.DLQ {
		if q.isDLQ() {
			return fmt.Errorf("%w: %q is a dead-letter queue and has none of its own", ErrInvalid, name)
		}
		if err := c.checkDLQ(name, set.DLQ, false); err != nil {
			return err
		}
	}
	c.alterQueue(q, set)
	c.markDLQ(set.DLQ)
	return nil
}

// alterQueue gives a queue other settings, which have been checked.
func (c *core) alterQueue(q *queue, set storage.Queue) {
	if set.DeadLetter != q.set.DeadLetter {
		c.reclassifyAll()
	}
	was, is := q.set.Values, set.Values
	c.queues.set(q, set)
	if was[queueset.Batch] != is[queueset.Batch] || was[queueset.BatchWait] != is[queueset.BatchWait] {
		q.regather = true
		c.reclassifyAll()
	}
	c.putQueue(q)
	c.out.snapshot = c.out.snapshot.withBounds(q.name, plan.HookBounds(&q.set.Values))
	c.dedup.Renew(q.idScope())
	c.emitQueue(EventAltered, q)
}

// DeleteQueue removes a queue, with force also if messages are inside. Its
// dead-letter queue stays: it may be shared, and what it holds may be wanted.
func (tx *Tx) DeleteQueue(name string, force bool) error {
	c := tx.core
	q, err := c.queueToChange(name)
	if err != nil {
		return err
	}
	if !force && !q.present().Empty {
		return fmt.Errorf("%q: %w", name, ErrQueueNotEmpty)
	}
	if other := c.queues.byDLQ[name].Head(); other != nil {
		return fmt.Errorf("%w: %q is the dead-letter queue of %q, alter or delete that one first", ErrInvalid, name, other.name)
	}
	if err := tx.keepAll(name); err != nil {
		return err
	}
	c.removeQueue(q)
	c.emitQueue(EventDeleted, q)
	return nil
}

// checkDLQ refuses a dead-letter queue that is missing or would make a chain.
func (c *core) checkDLQ(name, dlq string, automatic bool) error {
	if dlq == "" {
		return nil
	}
	d := c.queues.byName[dlq]
	switch {
	case d == nil && automatic:
		return nil
	case d == nil:
		return fmt.Errorf("dead-letter queue: %w: %.255q, create it first", ErrNoQueue, dlq)
	}
	if err := d.present().CanBecomeDLQ(); err != nil {
		return err
	}
	if other := c.queues.byDLQ[name].Head(); other != nil {
		return fmt.Errorf("%w: %q is the dead-letter queue of %q and has none of its own", ErrInvalid, name, other.name)
	}
	return nil
}

// markDLQ notes that a queue takes dead messages. Its keys move to other classes, since nothing is
// charged there.
func (c *core) markDLQ(dlq string) {
	if q := c.queues.byName[dlq]; q != nil && !q.set.DeadLetter {
		set := q.set
		plan.MakeDLQ(&set)
		c.queues.set(q, set)
		c.putQueue(q)
		c.reclassifyAll()
	}
}

func (c *core) addQueue(name string, set storage.Queue) {
	set.Number = c.newNumber()
	q := c.newQueue(name, set)
	q.figures.SetCounted()
	c.putQueue(q)
	c.out.snapshot = c.out.snapshot.withBounds(name, plan.HookBounds(&q.set.Values))
	c.emitQueue(EventCreated, q)
}

// newNumber returns a number that no queue has ever had.
func (c *core) newNumber() uint32 {
	no := c.queues.nextNumber
	c.queues.nextNumber++
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateNextQueue), storage.EncodeUint(uint64(c.queues.nextNumber)))
	return no
}

// newQueue brings a queue into memory.
func (c *core) newQueue(name string, set storage.Queue) *queue {
	q := &queue{name: name, no: set.Number, consumers: new(consumers.Queue)}
	q.order = c.order.NewQueue(q)
	c.queues.figures.Enter(&q.figures, name)
	c.queues.set(q, set)
	q.order.Pause(set.PausedOut)
	c.queues.byName[name], c.queues.byNumber[q.no] = q, q
	c.queues.names = nil
	return q
}

func (c *core) putQueue(q *queue) {
	c.out.batch.Put(storage.Queues, []byte(q.name), q.set.Append(nil))
	c.out.sync = true
}

// removeQueue forgets a queue and everything in it, in memory and on disk.
func (c *core) removeQueue(q *queue) {
	if j := q.redrive; j != nil && !j.Over {
		j.Err = fmt.Errorf("%w: %q was deleted", ErrNoQueue, q.name)
		c.endRedrive(j)
	}
	q.tellAll(c, fmt.Errorf("%w: %q was deleted", ErrNoQueue, q.name))
	c.detachAll(q)
	q.settings.Abandon(c.out.batch)
	c.scripts.Drop(c.out.batch, q.name)
	c.leaveTopics(q.name)
	c.out.batch.Delete(storage.Queues, []byte(q.name))
	histories := storage.AppendStateKey(nil, storage.StateKeyHistory, q.name)
	c.out.batch.DeleteRange(storage.State, histories, storage.After(histories))
	c.out.batch.Delete(storage.State, storage.AppendHistoryKey(nil, q.name))
	c.out.snapshot = c.out.snapshot.withoutQueue(q.name)
	delete(c.queues.byName, q.name)
	c.queues.leaveDLQ(q)
	q.order.Leave()
	c.queues.names = nil
	c.queues.figures.Leave(&q.figures)
	if q.waiters.Head() != nil {
		c.queues.deleted = append(c.queues.deleted, q)
		c.closeDeleted()
	}
}

// closeSome ends the waits for queues that were deleted, as far as this turn goes.
func (c *core) closeDeleted() {
	for len(c.queues.deleted) > 0 && c.room() {
		w := c.queues.deleted[0].waiters.Head()
		if w == nil {
			c.queues.deleted = c.queues.deleted[1:]
			continue
		}
		c.spend(1)
		if w.wait.kind == waitPreflight { // only one of its calls was for this queue
			c.leaveLines(w.wait)
			w.wait.task.resume(c)
			continue
		}
		c.finish(w.wait.task, fmt.Errorf("%w: %q was deleted", ErrNoQueue, w.queue.name))
	}
}

// Pause pauses or resumes a queue: its intake, its deliveries, or both. A queue with a paused
// intake refuses enqueues with ErrPaused, but accepts messages that return from leases and
// messages that are dead-lettered to it. Consumers that wait for a queue with paused deliveries
// continue to wait, and are served when it is resumed.
//
// Errors: ErrMisconf, ErrNoQueue.
func (tx *Tx) Pause(name string, in, out, paused bool) error {
	c := tx.core
	q, err := c.queueToChange(name)
	if err != nil {
		return err
	}
	if err := tx.afford(1); err != nil { // Queue.Pause may spend much
		return err
	}
	if in {
		q.set.PausedIn = paused
	}
	if out {
		q.set.PausedOut = paused
	}
	c.putQueue(q)
	if out {
		q.order.Pause(paused)
	}
	return nil
}

// QueueInfo is what FILA.QUEUE INFO shows.
type QueueInfo struct {
	Name                string
	Values              queueset.Values
	DLQ                 string // "": none
	DeadLetter          bool   // its messages are dead ones
	PausedIn, PausedOut bool
	CreatedAt           time.Time
	Topics              int64 // that it is bound to
	figures.Counts
}

// QueueInfo describes a queue.
func (tx *Tx) QueueInfo(name string) (QueueInfo, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil {
		return QueueInfo{}, err
	}
	s := &q.set
	return QueueInfo{
		Name: name, Values: s.Values, DLQ: s.DLQ, DeadLetter: s.DeadLetter, PausedIn: s.PausedIn, PausedOut: s.PausedOut, CreatedAt: time.Unix(0, s.CreatedAt),
		Topics: int64(len(tx.core.topics.Of(q.name))), Counts: q.counts(),
	}, nil
}

// counts returns the counts of a queue, in constant time.
func (q *queue) counts() figures.Counts { return q.figures.Counts(q.keys.Len()) }

// idsOf returns the queue as package ids sees it.
func (q *queue) idScope() ids.Scope {
	v := &q.set.Values
	return ids.Scope{Queue: &q.ids, Number: q.no, Name: q.name, Window: v.Duration(queueset.DedupWindow), Keep: search.KnownFor(v, true)}
}
