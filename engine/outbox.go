package engine

import (
	"fmt"

	"github.com/faisca/fila/storage"
)

// outbox is what turns have produced and the loop carries on: the open batch, the replies
// that wait for its commit, early replies, off-loop jobs and events.
type outbox struct {
	batch     *storage.Batch // open: turns add to it until it is cut
	spare     *storage.Batch // committed: its memory is reused for the next one; nil: none is free
	sync      bool           // a reply of the open batch promises durability
	batchNo   uint64
	committed uint64  // all batches up to this one are in the store
	released  []*Task // done when the open batch is committed
	early     []*Task // done before any commit, see early_reply.go
	jobs      []job
	events    events

	snapshot *Snapshot // what connections see
	key      []byte    // scratch for keys of the store

	untimed
	unchecked
}

func (o *outbox) reset() {
	o.batch.Reset()
	o.sync, o.jobs = false, nil
	o.events.drop()
}

// work is what a cut takes from the core and carries to the store.
type work struct {
	no     uint64
	batch  *storage.Batch // nil: nothing to write
	sync   bool
	tasks  []*Task
	beside []job // to be done after the commit: they see it
	events []Event
}

// job is work off the loop: a read of the store, a hook. It runs after the commit of the
// batch in which it was asked for, and its result comes back through the inbox as a call.
type job interface {
	Call
	do(store Store)
}

// cut ends the open batch and opens the next; nil if there is nothing to carry.
func (c *core) cut() *work {
	if c.out.batch.Len() == 0 && len(c.out.released) == 0 && len(c.out.jobs) == 0 && len(c.out.events.open) == 0 {
		return nil
	}
	w := &work{no: c.out.batchNo, sync: c.out.sync, tasks: c.out.released, beside: c.out.jobs, events: c.out.events.open}
	if c.out.batch.Len() > 0 {
		w.batch = c.out.batch
		c.out.batch, c.out.spare = c.out.spare, nil
		if c.out.batch == nil {
			c.out.batch = &storage.Batch{}
		}
	}
	c.out.batchNo++
	c.out.sync, c.out.released, c.out.jobs, c.out.events.open = false, nil, nil, nil
	c.tasks.budget.sliced = 0
	return w
}

// messageKey builds a message's key in the scratch buffer.
func (c *core) messageKey(m *message) []byte {
	c.out.key = storage.AppendMessageKey(c.out.key[:0], m.key.queue.no, m.key.name, m.rank, m.id)
	return c.out.key
}

// refuse answers everything of the open batch after a failed commit: it was not
// written, and what it built upon was not either.
func (c *core) refuse(cause error) {
	c.health.failed = cause
	c.loseBackups(c.out.jobs)
	refuse(c.out.released, cause)
}

// refuse makes tasks end with ErrMisconf that would have ended well.
func refuse(tasks []*Task, cause error) {
	for _, t := range tasks {
		if t.err == nil {
			t.err = fmt.Errorf("%w: %w", ErrMisconf, cause)
		}
	}
}
