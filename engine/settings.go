package engine

import (
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/settings"
	"github.com/faisca/fila/storage"
)

// SetConfig sets values of the runtime configuration, all of them or none. Messages that are
// enqueued after its reply see them. The values are durable when the reply leaves.
//
// Errors: ErrMisconf, ErrInvalid for an empty key or too many values, ErrTooBig for a key or
// value that is too long.
func (tx *Tx) SetConfig(values map[string]string) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	after, err := c.out.snapshot.config.With(values, &c.cfg.Limits, c.out.batch)
	if err != nil {
		return err
	}
	c.out.sync = true
	c.out.snapshot = c.out.snapshot.withConfig(after)
	return nil
}

// DeleteConfig removes values of the runtime configuration and returns the number of those that
// existed.
func (tx *Tx) DeleteConfig(keys []string) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	after, n := c.out.snapshot.config.Without(keys, c.out.batch)
	if n > 0 {
		c.out.sync = true
		c.out.snapshot = c.out.snapshot.withConfig(after)
	}
	return n, nil
}

// Config returns a value of the runtime configuration, and whether it exists.
func (tx *Tx) Config(key string) (string, bool) { return tx.core.out.snapshot.Get(key) }

// ConfigKeys returns up to count keys of the runtime configuration that begin with prefix and
// are greater than after, in ascending order.
func (tx *Tx) ConfigKeys(prefix, after string, count int) []string {
	return tx.core.out.snapshot.config.Keys(prefix, after, count)
}

// recoverConfig reads the runtime configuration, the users and the acts from the store.
func (c *core) recoverConfig() error {
	config, err := settings.ReadValues(c.store)
	c.out.snapshot = c.out.snapshot.withConfig(config)
	if err != nil {
		return err
	}
	if c.users, err = settings.ReadUsers(c.store); err != nil {
		return err
	}
	c.acts, err = settings.ReadActs(c.store)
	return err
}

// User returns the line of a user, "" if there is none.
func (tx *Tx) User(name string) string { return tx.core.users.Line(name) }

// Users returns the names of all users, in order.
func (tx *Tx) Users() []string { return tx.core.users.Names() }

// SetUsers sets the lines of users, all of them or none; an empty line deletes a user. The change is
// durable when the reply leaves.
//
// Errors: ErrMisconf, ErrTooBig for too many users or lines that are too long.
func (tx *Tx) SetUsers(lines map[string]string) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	if err := c.users.Set(lines, c.out.batch); err != nil {
		return err
	}
	c.out.sync = true
	return nil
}

// SetLearner notes for the nodes of a cluster whether one of them is a learner by the will of an operator,
// see storage.LearnerKey. It is durable when the reply leaves. Errors: ErrMisconf.
func (tx *Tx) SetLearner(node string, learner bool) error {
	if err := tx.core.writable(); err != nil {
		return err
	}
	storage.PutLearner(tx.core.out.batch, node, learner)
	tx.core.out.sync = true
	return nil
}

// Act is what an administrator has changed.
type Act = settings.Act

// Bounds of the acts, see package settings.
const (
	ActsMax       = settings.ActsMax
	ActNameMax    = settings.ActNameMax
	ActSettingMax = settings.ActSettingMax
)

// RecordAct keeps an act under the next number, at the time of the turn. It is in the same write as what the calls
// of the task have changed so far, and durable when the reply leaves. ErrMisconf refuses it while
// the store takes no writes.
func (tx *Tx) RecordAct(a Act) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	c.acts.Keep(a, unix(c.calendar()), c.out.batch)
	c.out.sync = true
	return nil
}

// Acts returns up to count acts, the newest first: those before the number that is the cursor, or with 0
// the newest. next is the cursor of the next page, 0 at the end.
func (tx *Tx) Acts(cursor uint64, count int) (next uint64, list []Act) {
	return tx.core.acts.Page(cursor, count)
}

// KeyOptions are the settings of a fairness key that a command changes.
type KeyOptions = settings.KeyOptions

// SetKey changes settings of a fairness key, which need not have messages. The settings affect
// the backlog immediately and last until ResetKey. A later enqueue that names a weight still
// changes the weight.
//
// Errors: ErrMisconf, ErrNoQueue, ErrInvalid, ErrTooBig.
func (tx *Tx) SetKey(queue, key string, o KeyOptions) error {
	c := tx.core
	q, set, err := c.keySettings(queue, key)
	if err != nil {
		return err
	}
	if err := o.Apply(&set, &c.cfg.Limits); err != nil {
		return err
	}
	c.pin(q, key, set)
	return nil
}

// PauseKey pauses or resumes the deliveries of a fairness key. Its messages keep their
// positions, and other keys are not affected. The pause lasts until the key is resumed or
// reset, across restarts.
func (tx *Tx) PauseKey(queue, key string, paused bool) error {
	c := tx.core
	q, set, err := c.keySettings(queue, key)
	if err != nil {
		return err
	}
	set.Paused = paused
	c.pin(q, key, set)
	return nil
}

// ResetKey removes the settings of a fairness key, but not its messages, and reports whether
// there were any. The key then has weight 1, is not paused, and may have as many messages as its
// queue says.
func (tx *Tx) ResetKey(queue, key string) (bool, error) {
	c := tx.core
	q, _, err := c.keySettings(queue, key)
	if err != nil {
		return false, err
	}
	if _, ok := q.settings.Of(key); !ok {
		return false, nil
	}
	q.settings.Unset(key)
	q.settings.Delete(c.out.batch, q.no, key)
	c.out.sync = true
	if k := q.keys.get(key); k != nil {
		k.weight, k.paused, k.pinned, k.stored = 1, false, false, false
		c.settle(k)
	}
	return true, nil
}

// keySettings checks a request to change a key's settings, and returns the queue and the
// present settings. Those of a key with messages include a weight that an enqueue has given.
func (c *core) keySettings(queue, key string) (*queue, storage.Key, error) {
	q, err := c.queueToChange(queue)
	if err != nil {
		return nil, storage.Key{}, err
	}
	if err := c.cfg.Limits.CheckKey(key); err != nil {
		return nil, storage.Key{}, err
	}
	set, _ := q.settings.Of(key)
	if k := q.keys.get(key); k != nil {
		set.Weight, set.Paused = k.weight, k.paused
	}
	return q, set, nil
}

// pin stores settings as the key's own: they outlive the key's messages.
func (c *core) pin(q *queue, key string, set storage.Key) {
	set.Pinned = true
	set.Weight = max(set.Weight, 1)
	q.settings.Set(key, set)
	q.settings.Write(c.out.batch, q.no, key, set)
	c.out.sync = true
	if k := q.keys.get(key); k != nil {
		k.weight, k.paused, k.pinned, k.stored = set.Weight, set.Paused, true, true
		c.settle(k)
	}
}

// setWeight changes the weight of a key that has messages, as an enqueue demands. Unless the
// key is pinned, the weight lasts for as long as the key has messages, across restarts. A
// weight of 1 needs no record.
func (c *core) setWeight(k *fairKey, weight uint32) {
	if k.weight == weight {
		return
	}
	k.weight = weight
	q, set := k.queue, storage.Key{Weight: weight, Paused: k.paused, Pinned: k.pinned}
	switch {
	case k.pinned:
		own, _ := q.settings.Of(k.name)
		set.MaxDepth = own.MaxDepth
		q.settings.Set(k.name, set)
	case weight == 1:
		c.dropKey(k)
		return
	}
	k.stored = true
	q.settings.Write(c.out.batch, q.no, k.name, set)
}

// dropKey deletes the settings record of a key whose settings end with its messages.
func (c *core) dropKey(k *fairKey) {
	if k.stored && !k.pinned {
		k.stored = false
		k.queue.settings.Delete(c.out.batch, k.queue.no, k.name)
	}
}

// forgetKey drops a key without messages from memory. Its statistics move to the idle-key
// statistics of the queue.
func (c *core) forgetKey(k *fairKey) {
	q := k.queue
	if !k.alive() {
		return // settle may follow the removal of its last message twice
	}
	k.forgotten = true
	q.keys.Remove(k.hash, k)
	c.heads.keys--
	c.dropKey(k)
	q.sequence.forget(k)
	q.roster.Remove(k.Seq())
	q.figures.Forgotten(&k.stats, uint64(k.hash), k.name, k.throttled(c.now), figures.Debt(k.Debt()))
}

// moveSettings writes the key settings of a queue under its next number, before a purge. It
// returns ErrWouldBlock if it continues in a later turn. It leaves few settings, and those that a
// transaction affords, which must not wait, to renumber, which writes them at once.
func (tx *Tx) moveSettings(q *queue) error {
	c := tx.core
	moving, own := q.settings.Moving(tx.task)
	if few := !moving && q.settings.Len() <= c.tasks.budget.Part(32); tx.atomic || few {
		return tx.afford(q.settings.Len()) // renumber writes them
	}
	if !moving {
		q.settings.BeginMove(tx.task, c.newNumber())
	} else if !own {
		return tx.yield() // another purge of the queue comes first
	}
	for tx.more() {
		if !q.settings.MoveNext(c.out.batch) {
			return nil
		}
	}
	return tx.yield()
}

// renumber gives a queue its next number at the end of a purge. From then on, the settings of
// its keys are under that number in the store. by is the task of the purge, which may have
// moved the settings already.
func (c *core) renumber(q *queue, by *Task) {
	if _, own := q.settings.Moving(by); own {
		q.no = q.settings.EndMove()
	} else {
		q.no = c.newNumber()
		q.settings.WriteAll(c.out.batch, q.no)
	}
	q.set.Number = q.no
	c.queues.byNumber[q.no] = q
}
