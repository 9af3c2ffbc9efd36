package engine

import (
	"fmt"
	"slices"

	"github.com/faisca/fila/storage"
)

// read brings a part of what is on disk only into memory: the next messages of
// a fairness key, or the next entries of the due-time index. It is asked for in a
// turn, done beside the loop after that turn's batch is committed, and merged in
// a later turn.
//
// What the turns between asking and merging have changed is known in memory: a
// change behind the edge makes the read stale or bounds it (fairKey.unseen), and
// leased or delayed messages are found in core.leases and core.due.
type read struct {
	epoch uint64
	stale bool // of no use: ask again
	err   error

	// Of a key:
	key   *fairKey
	queue uint32
	name  string
	from  place
	limit int // messages
	bytes int

	found []*message // in order, their readyAt beside them
	readyAt []int64
	last  place // the last one that was looked at
	end   bool  // there is nothing after it

	// Of the due-time index:
	dueFrom string
	due     []*dueEntry
	dueNext string // the first entry that was not taken, "": none
}

// pump asks for as many reads as may be under way.
func (c *core) pump() {
	for len(c.hungry) > 0 && c.reading < c.cfg.ReadsMax && c.mayRead() {
		k := c.hungry[0]
		if c.refs >= c.cfg.WindowTotal && len(k.window) > 0 {
			break // it still has something: memory is not for that
		}
		c.hungry = c.hungry[1:]
		if k.read == nil || k.queue.keys[k.name] != k || c.byNumber[k.queue.no] != k.queue {
			continue
		}
		k.read = &read{
			key: k, queue: k.queue.no, name: k.name, from: k.edge, limit: max(c.windowMax()-len(k.window), 1), bytes: c.cfg.ReadBytes,
		}
		k.unseen = lastPlace
		c.reading++
		c.reads = append(c.reads, k.read)
	}
	for _, r := range c.reads {
		r.epoch = c.epoch
	}
}

// mayRead says that reads make sense now: not while the store is being mended,
// nor right after one has failed, or a broken disk would keep the loop busy.
func (c *core) mayRead() bool { return c.failed == nil && c.now >= c.readPause }

// readFailed answers those who wait for nothing but the disk, and makes the next
// try wait.
func (c *core) readFailed(r *read) {
	c.cfg.Log.Error().Err(r.err).Msg("reading ahead failed, it is tried again")
	c.readPause = c.now + int64(c.cfg.MendInterval)
	if r.key == nil {
		return
	}
	for n := r.key.queue.waiters.first; n != nil; {
		w := n.wait
		n = n.next
		if w.onlyLoading {
			c.finish(w.task, fmt.Errorf("%w: %w", ErrMisconf, r.err))
		}
	}
}

// do reads. It runs beside the loop and touches nothing of the engine.
func (r *read) do(store Store) {
	if r.key == nil {
		r.err = r.readDue(store)
	} else {
		r.err = r.readKey(store)
	}
}

func (r *read) readKey(store Store) error {
	prefix := storage.AppendKeyPrefix(nil, r.queue, r.name)
	from, to := append(slices.Clone(prefix), r.from.rank), storage.After(prefix)
	from = append(from, r.from.id[:]...)
	messages := store.Scan(storage.Messages, from, to)
	defer messages.Close()
	attempts := store.Scan(storage.Attempts, from, to)
	defer attempts.Close()
	another := attempts.Seek(from)
	size := 0
	for ok := messages.Seek(from); ok; ok = messages.Next() {
		if len(r.found) >= r.limit || size >= r.bytes {
			return errJoin(messages.Err(), attempts.Err())
		}
		m, readyAt, err := decodeMessage(messages.Key(), messages.Value())
		if err != nil {
			return err
		}
		for another && string(attempts.Key()) < string(messages.Key()) {
			another = attempts.Next()
		}
		if another && string(attempts.Key()) == string(messages.Key()) {
			if readyAt, err = m.decodeAttempt(attempts.Value()); err != nil {
				return err
			}
		}
		size += len(m.body)
		r.last = m.place
		r.found = append(r.found, m)
		r.readyAt = append(r.readyAt, readyAt)
	}
	r.end = true
	return errJoin(messages.Err(), attempts.Err())
}

func errJoin(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// decodeMessage makes a message of a record; its key is to be set.
func decodeMessage(key, value []byte) (m *message, readyAt int64, err error) {
	mk, err := storage.ParseMessageKey(key)
	if err != nil {
		return nil, 0, err
	}
	body := slices.Clone(value)
	var rec storage.Message
	if err := rec.Decode(body); err != nil {
		return nil, 0, fmt.Errorf("message %s: %w", mk.ID, err)
	}
	m = &message{
		place: place{rank: mk.Rank, id: mk.ID}, cost: max(rec.Cost, 1), throttles: rec.Throttles, attempt: 1, body: body, timer: -1,
	}
	return m, rec.ReadyAt, nil
}

// decodeAttempt adds what is known of a message's failures.
func (m *message) decodeAttempt(value []byte) (readyAt int64, err error) {
	var rec storage.Attempt
	if err := rec.Decode(value); err != nil {
		return 0, fmt.Errorf("message %s: %w", m.id, err)
	}
	m.retried, m.attempt, m.deliveries, m.fence = true, max(rec.Attempt, 1), rec.Deliveries, rec.Fence
	if rec.FirstFailedAt != 0 {
		m.failure = &failure{text: rec.Error, first: rec.FirstFailedAt, last: rec.LastFailedAt}
	}
	return rec.ReadyAt, nil
}

func (r *read) readDue(store Store) error {
	const limit = 4096
	it := store.Scan(storage.Scheduled, []byte(r.dueFrom), nil)
	defer it.Close()
	for ok := it.Seek([]byte(r.dueFrom)); ok; ok = it.Next() {
		if len(r.due) == limit {
			r.dueNext = string(it.Key())
			break
		}
		at, mk, err := storage.ParseScheduledKey(it.Key())
		if err != nil {
			return err
		}
		r.due = append(r.due, newDueEntry(at, mk, nil))
	}
	return it.Err()
}

// Apply merges what was read into memory. As a call it goes through the inbox
// like all that the loop is told.
func (r *read) Apply(tx *Tx) error {
	c := tx.core
	if r.epoch != c.epoch {
		return nil // asked for by a memory that was dropped
	}
	if r.err != nil {
		c.readFailed(r)
	}
	if r.key == nil {
		c.mergeDue(r)
		return nil
	}
	c.reading--
	k := r.key
	if k.read != r || k.queue.keys[k.name] != k || c.byNumber[k.queue.no] != k.queue {
		return nil
	}
	k.read = nil
	if !r.stale && r.err == nil {
		c.mergeKey(k, r)
	}
	c.settle(k)
	return nil
}

// mergeKey puts the messages a read has found into the key's window, and moves
// the edge behind them.
func (c *core) mergeKey(k *fairKey, r *read) {
	edge := lastPlace
	if !r.end {
		edge = r.last.next()
	}
	if k.unseen.less(edge) {
		edge = k.unseen
	}
	for i, m := range r.found {
		if !m.place.less(edge) {
			break
		}
		m.key = k
		if c.leases[m.id] != nil || c.due.isDelayed(r.readyAt[i], m.storageKey()) {
			continue
		}
		m.status = ready
		k.window = append(k.window, m)
		c.refs++
		c.setBody(m, m.body)
		if c.bodies > c.cfg.BodyBytes {
			c.dropBody(m)
		}
	}
	k.edge = edge
	k.behind = edge != lastPlace
}
