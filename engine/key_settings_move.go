package engine

import (
	"reflect"

	"github.com/faisca/fila/storage"
)

// The settings of fairness keys are kept under the number of their queue, and a purge gives
// the queue another one. There may be a hundred thousand: so they are written under the
// new number first, in slices, and the purge itself finds them there.
//
//  1. The move takes a number that no queue has ever had.
//  2. Slice by slice, settings are written under it. What changes meanwhile is written under
//     both numbers. Each of these writes changes nothing that counts: no queue has that number.
//  3. When all are there, the purge gives the queue that number in one write.
//
// A crash before that leaves settings under the number of no queue. The next start removes
// them (recoverSettings).
type settingsMove struct {
	task *Task
	no   uint32           // that the queue gets
	it   *reflect.MapIter // of its settings: one that stays meanwhile is met once
}

// moveSettings writes the settings of the keys of a queue that is about to be purged under
// its next number. It returns ErrWouldBlock where it goes on in a later turn.
func (tx *Tx) moveSettings(q *queue) error {
	c := tx.core
	if tx.atomic || q.moving == nil && len(q.settings) <= c.tasks.budget.part(32) {
		return nil // the purge writes them itself
	}
	if q.moving == nil {
		q.moving = &settingsMove{task: tx.task, no: c.newNumber(), it: reflect.ValueOf(q.settings).MapRange()}
	}
	m := q.moving
	if m.task != tx.task {
		return tx.yield() // another purge of the queue goes first
	}
	for tx.more() {
		if !m.it.Next() {
			return nil
		}
		set, _ := reflect.TypeAssert[storage.Key](m.it.Value())
		c.out.batch.Put(storage.State, stateKeyUnder(m.no, m.it.Key().String()), set.Append(nil))
	}
	return tx.yield()
}

// putSettings writes the settings of a key.
func (c *core) putSettings(q *queue, key string, set storage.Key) {
	c.out.batch.Put(storage.State, stateKeyUnder(q.no, key), set.Append(nil))
	if q.moving != nil && set.Pinned {
		c.out.batch.Put(storage.State, stateKeyUnder(q.moving.no, key), set.Append(nil))
	}
}

// deleteSettings removes them.
func (c *core) deleteSettings(q *queue, key string) {
	c.out.batch.Delete(storage.State, stateKeyUnder(q.no, key))
	if q.moving != nil {
		c.out.batch.Delete(storage.State, stateKeyUnder(q.moving.no, key))
	}
}

// renumber gives a queue that is being emptied its next number, under which the settings of
// its keys are in the store from then on.
func (c *core) renumber(q *queue, by *Task) {
	if m := q.moving; m != nil && m.task == by {
		q.no, q.moving = m.no, nil
	} else {
		q.no = c.newNumber()
		for name, set := range q.settings {
			c.out.batch.Put(storage.State, stateKeyUnder(q.no, name), set.Append(nil))
		}
	}
	q.set.Number = q.no
	c.queues.byNumber[q.no] = q
}

// dropMove removes what was written for the purge of a queue that is deleted instead.
func (c *core) dropMove(q *queue) {
	if q.moving != nil {
		c.deleteSettingsUnder(c.out.batch, q.moving.no)
		q.moving = nil
	}
}

// deleteSettingsUnder removes all settings under a number.
func (c *core) deleteSettingsUnder(b *storage.Batch, no uint32) {
	prefix := stateKeysUnder(no)
	b.DeleteRange(storage.State, prefix, storage.After(prefix))
}
