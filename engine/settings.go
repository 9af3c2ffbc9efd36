package engine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/faisca/fila/storage"
)

// Runtime configuration: names and values that operators change while the broker
// runs and that scripts read with fila.get. All of it is in memory.

const (
	configKeyMax   = 512
	configValueMax = 8 << 10
)

// SetConfig sets values, all of them or none. The next message that is enqueued
// after the reply sees them.
func (tx *Tx) SetConfig(values map[string]string) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	after, bytes := c.out.snapshot.config.edit(), c.out.snapshot.configBytes
	for k, v := range values {
		switch {
		case k == "":
			return fmt.Errorf("%w: a configuration key has at least one byte", ErrInvalid)
		case len(k) > configKeyMax:
			return fmt.Errorf("%w: configuration key of %d bytes, the limit is %d", ErrTooBig, len(k), configKeyMax)
		case len(v) > configValueMax:
			return fmt.Errorf("%w: value of %.64q has %d bytes, the limit is %d", ErrTooBig, k, len(v), configValueMax)
		}
		old, known := after.tree.Set(k, v)
		bytes += len(v) - len(old)
		if !known {
			bytes += len(k)
		}
	}
	if l := &c.cfg.Limits; after.len() > l.Values || bytes > l.ValueBytes {
		return fmt.Errorf("%w: the runtime configuration would have %d keys and %d bytes, the limits are %d and %d; delete some with FILA.CONFIG DEL",
			ErrInvalid, after.len(), bytes, l.Values, l.ValueBytes)
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateConfig, k), []byte(values[k]))
	}
	c.out.sync = true
	c.out.snapshot = c.out.snapshot.withConfig(after, bytes)
	return nil
}

// DeleteConfig removes values and returns how many there were.
func (tx *Tx) DeleteConfig(keys []string) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	after, bytes, n := c.out.snapshot.config.edit(), c.out.snapshot.configBytes, 0
	for _, k := range keys {
		if old, ok := after.tree.Delete(k); ok {
			n++
			bytes -= len(k) + len(old)
			c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, stateConfig, k))
		}
	}
	if n > 0 {
		c.out.sync = true
		c.out.snapshot = c.out.snapshot.withConfig(after, bytes)
	}
	return n, nil
}

// Config returns a value of the runtime configuration.
func (tx *Tx) Config(key string) (string, bool) { return tx.core.out.snapshot.Get(key) }

// ConfigKeys returns the keys that start with a prefix and come after another, in
// order, at most count.
func (tx *Tx) ConfigKeys(prefix, after string, count int) []string {
	var keys []string
	for k := range tx.core.out.snapshot.config.from(max(prefix, after)) {
		if !strings.HasPrefix(k, prefix) || len(keys) == count {
			break
		}
		if k > after {
			keys = append(keys, k)
		}
	}
	return keys
}

func (c *core) recoverConfig() error {
	config, bytes := ordered[string]{}.edit(), 0
	err := c.scan(storage.State, storage.AppendStateKey(nil, stateConfig), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("configuration %q: %w", k, storage.ErrCorrupt)
		}
		config.tree.Set(parts[1], string(v))
		bytes += len(parts[1]) + len(v)
		return nil
	})
	c.out.snapshot = c.out.snapshot.withConfig(config, bytes)
	return err
}

// KeyOptions are settings of a fairness key as a command gives them; nil: not given.
type KeyOptions struct {
	Weight *uint32 // from 1 to Limits.Weight
}

// SetKey changes settings of a fairness key, whether it has messages or not. They
// act on the backlog at once and stay until ResetKey; a WEIGHT given with a later
// enqueue still changes the weight.
func (tx *Tx) SetKey(queue, key string, o KeyOptions) error {
	c := tx.core
	q, set, err := c.keySettings(queue, key)
	if err != nil {
		return err
	}
	if o.Weight != nil {
		if *o.Weight < 1 || *o.Weight > c.cfg.Limits.Weight {
			return fmt.Errorf("%w: WEIGHT must be from 1 to %d", ErrInvalid, c.cfg.Limits.Weight)
		}
		set.Weight = *o.Weight
	}
	c.pin(q, key, set)
	return nil
}

// PauseKey stops or resumes the deliveries of a fairness key. Its messages keep
// their places; others go on.
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

// ResetKey takes the settings of a fairness key away, never its messages. It
// reports whether there were any.
func (tx *Tx) ResetKey(queue, key string) (bool, error) {
	c := tx.core
	q, _, err := c.keySettings(queue, key)
	if err != nil {
		return false, err
	}
	if _, ok := q.settings[key]; !ok {
		return false, nil
	}
	delete(q.settings, key)
	c.deleteSettings(q, key)
	c.out.sync = true
	if k := q.keys.get(key); k != nil {
		k.weight, k.paused, k.pinned, k.stored = 1, false, false, false
		c.settle(k)
	}
	return true, nil
}

// checkKey refuses what no fairness key can be.
func (c *core) checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a fairness key has at least one byte", ErrInvalid)
	}
	if len(key) > c.cfg.Limits.Key {
		return fmt.Errorf("%w: fairness key of %d bytes, the limit is %d", ErrTooBig, len(key), c.cfg.Limits.Key)
	}
	return nil
}

// keySettings checks a request and returns the settings as they are now.
func (c *core) keySettings(queue, key string) (*queue, storage.Key, error) {
	q, err := c.queueToChange(queue)
	if err != nil {
		return nil, storage.Key{}, err
	}
	if err := c.checkKey(key); err != nil {
		return nil, storage.Key{}, err
	}
	if k := q.keys.get(key); k != nil {
		return q, storage.Key{Weight: k.weight, Paused: k.paused}, nil
	}
	return q, q.settings[key], nil
}

// pin makes settings a key's own.
func (c *core) pin(q *queue, key string, set storage.Key) {
	set.Pinned = true
	set.Weight = max(set.Weight, 1)
	q.settings[key] = set
	c.putSettings(q, key, set)
	c.out.sync = true
	if k := q.keys.get(key); k != nil {
		k.weight, k.paused, k.pinned, k.stored = set.Weight, set.Paused, true, true
		c.settle(k)
	}
}

// setWeight changes the weight of a key that has messages, as an enqueue asks. It
// is kept across restarts for as long as the key has messages; a weight of 1
// needs no record.
func (c *core) setWeight(k *fairKey, weight uint32) {
	if k.weight == weight {
		return
	}
	k.weight = weight
	set := storage.Key{Weight: weight, Paused: k.paused, Pinned: k.pinned}
	switch {
	case k.pinned:
		k.queue.settings[k.name] = set
	case weight == 1:
		c.dropKey(k)
		return
	}
	k.stored = true
	c.putSettings(k.queue, k.name, set)
}

// dropKey takes the record of settings off the disk that end with the messages.
func (c *core) dropKey(k *fairKey) {
	if k.stored && !k.pinned {
		k.stored = false
		c.deleteSettings(k.queue, k.name)
	}
}

// forgetKey drops a key without messages from memory.
func (c *core) forgetKey(k *fairKey) {
	q := k.queue
	if !q.keys.remove(k.hash, k) {
		return // it was settled once more after its last message had gone
	}
	c.heads.keys--
	c.dropKey(k)
	q.roster.remove(k.seq)
	q.idle.keep(k)
}

// Pause stops or resumes a queue: with in that it takes new messages, with out that
// it hands them out. A paused intake refuses enqueues with ErrPaused; messages that
// come back, or die, are taken all the same. Those who wait for a queue whose
// deliveries are paused go on waiting, and are served when it is resumed.
func (tx *Tx) Pause(name string, in, out, paused bool) error {
	c := tx.core
	q, err := c.queueToChange(name)
	if err != nil {
		return err
	}
	if in {
		q.set.PausedIn = paused
	}
	if out {
		q.set.PausedOut = paused
	}
	c.putQueue(q)
	c.listPaused(q)
	if !out {
		return nil
	}
	if paused {
		c.unreserveQueue(q)
	} else {
		c.offer(q)
	}
	return nil
}

// listPaused keeps the list of queues whose deliveries are paused.
func (c *core) listPaused(q *queue) {
	if q.set.PausedOut {
		c.queues.pausedOut[q] = struct{}{}
	} else {
		delete(c.queues.pausedOut, q)
	}
}

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
