package engine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/ordered"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// The runtime configuration is names and values that operators change while the broker runs,
// and that scripts read with fila.get. All of it is in memory, in the snapshot that connections
// share.

// Bounds of one key and one value of the runtime configuration. Config.Limits bounds all of
// them together.
const (
	configKeyMax   = 512     // bytes
	configValueMax = 8 << 10 // bytes
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
	after, bytes := c.out.snapshot.config.Edit(), c.out.snapshot.configBytes
	for k, v := range values {
		switch {
		case k == "":
			return fmt.Errorf("%w: a configuration key has at least one byte", ErrInvalid)
		case len(k) > configKeyMax:
			return fmt.Errorf("%w: configuration key of %d bytes, the limit is %d", ErrTooBig, len(k), configKeyMax)
		case len(v) > configValueMax:
			return fmt.Errorf("%w: value of %.64q has %d bytes, the limit is %d", ErrTooBig, k, len(v), configValueMax)
		}
		old, known := after.Set(k, v)
		bytes += len(v) - len(old)
		if !known {
			bytes += len(k)
		}
	}
	if l := &c.cfg.Limits; after.Len() > l.Values || bytes > l.ValueBytes {
		return fmt.Errorf("%w: the runtime configuration would have %d keys and %d bytes, the limits are %d and %d; delete some with FILA.CONFIG DEL",
			ErrInvalid, after.Len(), bytes, l.Values, l.ValueBytes)
	}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateConfig, k), []byte(values[k]))
	}
	c.out.sync = true
	c.out.snapshot = c.out.snapshot.withConfig(after.Map, bytes)
	return nil
}

// DeleteConfig removes values of the runtime configuration and returns the number of those that
// existed.
func (tx *Tx) DeleteConfig(keys []string) (int, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return 0, err
	}
	after, bytes, n := c.out.snapshot.config.Edit(), c.out.snapshot.configBytes, 0
	for _, k := range keys {
		if old, ok := after.Delete(k); ok {
			n++
			bytes -= len(k) + len(old)
			c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateConfig, k))
		}
	}
	if n > 0 {
		c.out.sync = true
		c.out.snapshot = c.out.snapshot.withConfig(after.Map, bytes)
	}
	return n, nil
}

// Config returns a value of the runtime configuration, and whether it exists.
func (tx *Tx) Config(key string) (string, bool) { return tx.core.out.snapshot.Get(key) }

// ConfigKeys returns up to count keys of the runtime configuration that begin with prefix and
// are greater than after, in ascending order.
func (tx *Tx) ConfigKeys(prefix, after string, count int) []string {
	var keys []string
	for k := range tx.core.out.snapshot.config.From(max(prefix, after)) {
		if !strings.HasPrefix(k, prefix) || len(keys) == count {
			break
		}
		if k > after {
			keys = append(keys, k)
		}
	}
	return keys
}

// recoverConfig reads the runtime configuration, and the users, from the store.
func (c *core) recoverConfig() error {
	config, bytes := ordered.Map[string]{}.Edit(), 0
	err := c.scan(storage.State, storage.AppendStateKey(nil, storage.StateConfig), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("configuration %q: %w", k, storage.ErrCorrupt)
		}
		config.Set(parts[1], string(v))
		bytes += len(parts[1]) + len(v)
		return nil
	})
	c.out.snapshot = c.out.snapshot.withConfig(config.Map, bytes)
	if err != nil {
		return err
	}
	return c.recoverUsers()
}

// Where several nodes are one broker, its users are records of the store: names, and lines whose meaning
// the engine does not know. They come into force where the nodes read them, see storage.ReadUsers.

// Bounds of the users in the store.
const (
	usersMax      = 10_000
	userLineMax   = 64 << 10 // bytes
	usersBytesMax = 16 << 20 // of all lines
)

// userTable are the users as of the open batch.
type userTable struct {
	lines   map[string]string // by name
	bytes   int
	version uint64 // of the newest change; 0: users are not in the store
}

// User returns the line of a user, "" if there is none.
func (tx *Tx) User(name string) string { return tx.core.users.lines[name] }

// Users returns the names of all users, in order.
func (tx *Tx) Users() []string { return slices.Sorted(maps.Keys(tx.core.users.lines)) }

// SetUsers sets the lines of users, all of them or none; an empty line deletes a user. The change is
// durable when the reply leaves.
//
// Errors: ErrMisconf, ErrTooBig for too many users or lines that are too long.
func (tx *Tx) SetUsers(lines map[string]string) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	n, bytes := len(c.users.lines), c.users.bytes
	for name, line := range lines {
		old, known := c.users.lines[name]
		if len(line) > userLineMax {
			return fmt.Errorf("%w: the rules of user %.64q have %d bytes, the limit is %d", ErrTooBig, name, len(line), userLineMax)
		}
		bytes += len(line) - len(old)
		switch {
		case line != "" && !known:
			n++
		case line == "" && known:
			n--
		}
	}
	if n > max(usersMax, len(c.users.lines)) || bytes > max(usersBytesMax, c.users.bytes) {
		return fmt.Errorf("%w: there would be %s with rules of %d bytes, the limits are %d and %d", ErrTooBig, errtext.Amount(n, "user"), bytes, usersMax, usersBytesMax)
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if line := lines[name]; line != "" {
			c.users.lines[name] = line
			c.out.batch.Put(storage.State, storage.UserKey(name), []byte(line))
		} else {
			delete(c.users.lines, name)
			c.out.batch.Delete(storage.State, storage.UserKey(name))
		}
	}
	c.users.bytes = bytes
	c.users.version++
	storage.PutUsersVersion(c.out.batch, c.users.version)
	c.out.sync = true
	return nil
}

// recoverUsers reads the users from the store.
func (c *core) recoverUsers() error {
	version, lines, err := storage.ReadUsers(c.store, 0)
	c.users = userTable{lines: lines, version: version}
	if lines == nil {
		c.users.lines = map[string]string{}
	}
	for _, line := range lines {
		c.users.bytes += len(line)
	}
	return err
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

// KeyOptions are the settings of a fairness key that a command changes; nil: unchanged.
type KeyOptions struct {
	Weight   *uint32 // from 1 to Limits.Weight
	MaxDepth *uint64 // messages that the key may have, in place of the queue's KeyMaxDepth; 0: that
}

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
	if o.Weight != nil {
		if *o.Weight < 1 || *o.Weight > c.cfg.Limits.Weight {
			return fmt.Errorf("%w: WEIGHT must be from 1 to %d", ErrInvalid, c.cfg.Limits.Weight)
		}
		set.Weight = *o.Weight
	}
	if o.MaxDepth != nil {
		if *o.MaxDepth > math.MaxInt64 {
			return fmt.Errorf("%w: MAXDEPTH must be from 0 to %d", ErrInvalid, int64(math.MaxInt64))
		}
		set.MaxDepth = *o.MaxDepth
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
	if _, ok := q.settings[key]; !ok {
		return false, nil
	}
	q.unsetKey(key)
	c.deleteSettings(q, key)
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
	set := q.settings[key]
	if k := q.keys.get(key); k != nil {
		set.Weight, set.Paused = k.weight, k.paused
	}
	return q, set, nil
}

// setKey gives a key settings of its own, in memory.
func (q *queue) setKey(key string, set storage.Key) {
	q.bounded += bounds(set) - bounds(q.settings[key])
	q.settings[key] = set
}

// unsetKey takes them from it.
func (q *queue) unsetKey(key string) {
	q.bounded -= bounds(q.settings[key])
	delete(q.settings, key)
}

// bounds is 1 for settings that bound the messages of the key.
func bounds(set storage.Key) int {
	if set.MaxDepth > 0 {
		return 1
	}
	return 0
}

// pin stores settings as the key's own: they outlive the key's messages.
func (c *core) pin(q *queue, key string, set storage.Key) {
	set.Pinned = true
	set.Weight = max(set.Weight, 1)
	q.setKey(key, set)
	c.putSettings(q, key, set)
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
	set := storage.Key{Weight: weight, Paused: k.paused, Pinned: k.pinned}
	switch {
	case k.pinned:
		set.MaxDepth = k.queue.settings[k.name].MaxDepth
		k.queue.setKey(k.name, set)
	case weight == 1:
		c.dropKey(k)
		return
	}
	k.stored = true
	c.putSettings(k.queue, k.name, set)
}

// dropKey deletes the settings record of a key whose settings end with its messages.
func (c *core) dropKey(k *fairKey) {
	if k.stored && !k.pinned {
		k.stored = false
		c.deleteSettings(k.queue, k.name)
	}
}

// forgetKey drops a key without messages from memory. Its statistics move to the idle-key
// statistics of the queue.
func (c *core) forgetKey(k *fairKey) {
	q := k.queue
	if !q.keys.Remove(k.hash, k) {
		return // already forgotten: settle may follow the removal of its last message twice
	}
	c.heads.keys--
	c.dropKey(k)
	q.sequence.forget(k)
	q.roster.Remove(k.Seq())
	q.figures.Forgotten(&k.stats, uint64(k.hash), k.name, k.throttled(c.now), figures.Debt(k.Debt()))
}

// The settings records of fairness keys have the number of their queue in their store keys, and
// a purge gives the queue another number. There may be 100,000 records. So they are written
// under the next number in slices before the purge, and the purge itself is one write:
//
//  1. The move takes a number that no queue has ever had.
//  2. In slices, it writes the settings under that number. Changes in the meantime are written
//     under both numbers. None of these writes has an effect yet, since no queue has the
//     number.
//  3. When all settings are written, the purge gives the queue the number.
//
// A crash before step 3 leaves settings under a number without a queue. Recovery deletes them
// (recoverSettings).
//
//	none → moving     moveSettings, for a purge of a queue with many settings
//	moving → none     renumber: the purge is done; dropMove: the queue is deleted instead
type settingsMove struct {
	task *Task
	no   uint32           // the number that the queue will have
	it   *reflect.MapIter // over the queue's settings: visits one that exists throughout exactly once
}

// moveSettings writes the key settings of a queue under its next number, before a purge. It
// returns ErrWouldBlock if it continues in a later turn. It leaves few settings, and those that a
// transaction affords, which must not wait, to renumber, which writes them at once.
func (tx *Tx) moveSettings(q *queue) error {
	c := tx.core
	if few := q.moving == nil && len(q.settings) <= c.tasks.budget.part(32); tx.atomic || few {
		return tx.afford(len(q.settings)) // renumber writes them
	}
	if q.moving == nil {
		q.moving = &settingsMove{task: tx.task, no: c.newNumber(), it: reflect.ValueOf(q.settings).MapRange()}
	}
	m := q.moving
	if m.task != tx.task {
		return tx.yield() // another purge of the queue comes first
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

// putSettings writes the settings of a key, under both numbers during a move. Settings that are
// not pinned end with the purge and are not moved.
func (c *core) putSettings(q *queue, key string, set storage.Key) {
	c.out.batch.Put(storage.State, stateKeyUnder(q.no, key), set.Append(nil))
	if q.moving != nil && set.Pinned {
		c.out.batch.Put(storage.State, stateKeyUnder(q.moving.no, key), set.Append(nil))
	}
}

// deleteSettings deletes the settings of a key, under both numbers during a move.
func (c *core) deleteSettings(q *queue, key string) {
	c.out.batch.Delete(storage.State, stateKeyUnder(q.no, key))
	if q.moving != nil {
		c.out.batch.Delete(storage.State, stateKeyUnder(q.moving.no, key))
	}
}

// renumber gives a queue its next number at the end of a purge. From then on, the settings of
// its keys are under that number in the store. by is the task of the purge, which may have
// moved the settings already.
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

// dropMove deletes what a move has written for a queue that is deleted instead of purged.
func (c *core) dropMove(q *queue) {
	if q.moving != nil {
		c.deleteSettingsUnder(c.out.batch, q.moving.no)
		q.moving = nil
	}
}

// deleteSettingsUnder deletes all key settings under a queue number.
func (c *core) deleteSettingsUnder(b *storage.Batch, no uint32) {
	prefix := stateKeysUnder(no)
	b.DeleteRange(storage.State, prefix, storage.After(prefix))
}

// stateKeysUnder returns the common prefix of the settings of keys under a queue number.
func stateKeysUnder(no uint32) []byte {
	return storage.AppendStateKey(nil, storage.StateKey, string(binary.BigEndian.AppendUint32(nil, no)))
}

// stateKeyUnder returns the key of a fairness key's settings.
func stateKeyUnder(no uint32, key string) []byte {
	return storage.AppendStateKey(nil, storage.StateKey, string(binary.BigEndian.AppendUint32(nil, no)), key)
}
