package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/engine/ids"
)

// idTable is the component of deduplication ids, unique ids and records of ends.
type idTable struct {
	ids.Table

	unchecked
}

func (t *idTable) reset() { t.Reset() }

func (t *idTable) next(*core) int64 { return t.NextAt() }

// expire forgets recent ids and generations whose time has come, within the budget.
func (t *idTable) expire(c *core) {
	c.spend(t.Expire(c.out.writes(c.now), c.out.committed, max(c.tasks.budget.Left, 0)))
}

// recover finds the records of all queues.
func (t *idTable) recover(c *core) error {
	defer t.show(c)
	return t.Recover(c.store, c.out.batchNo, func(no uint32) (of ids.Scope, ok bool) {
		q := c.queues.byNumber[no]
		if q == nil {
			return ids.Scope{}, false
		}
		return q.idScope(), true
	})
}

// show gives connections the queues that have ids.
func (t *idTable) show(c *core) {
	if v := t.View(); v != c.out.snapshot.ids {
		next := *c.out.snapshot
		next.ids = v
		c.out.snapshot = &next
	}
}

// forget forgets the records of a queue that gets another number, or is deleted.
func (t *idTable) forget(c *core, q *queue) {
	t.Forget(q.idScope())
	t.show(c)
}

// record stores the deduplication id of a message that is enqueued in this turn, in the same batch as the message.
func (t *idTable) record(c *core, q *queue, id string, m ID) {
	t.Add(q.idScope(), id, m, c.out.writes(c.now))
	t.show(c)
}

// lookError is an error of a look-up: ErrWouldBlock says that it has to be repeated.
func lookError(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ids.ErrStale):
		return ErrWouldBlock
	default:
		return fmt.Errorf("look %s up: %w", what, err)
	}
}
