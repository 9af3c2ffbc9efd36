package engine

import (
	"fmt"

	"github.com/faisca/fila/storage"
)

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
