package engine

import (
	"errors"
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
// message that became ready behind the edge bounds the read (read.unseen), one that
// changed there in another way is left out (read.changed), and who is leased is found
// in core.leases. A read whose edge has moved is stale.
type read struct {
	epoch  uint64
	issued bool // not only in line for it
	urgent bool // in core.starving
	stale  bool // of no use: ask again
	err    error

	// Of a key:
	key   *fairKey
	queue uint32
	name  string
	from  place
	// unseen is the first place at which a message became ready behind the edge
	// since the read was asked for: the read may not have seen it, so it tells
	// nothing from there on.
	unseen place
	// changed are messages behind the edge that have changed since then. What has
	// become of them is known: they are gone, leased or delayed, or unseen is not
	// behind them.
	changed map[ID]struct{}
	limit   int // messages to look at
	bytes   int

	found    []*message // in order, without those that are delayed
	examined int
	last     place // the last one that was looked at
	end      bool  // there is nothing after it

	// Of a due-time index:
	index   *dueIndex
	family  storage.Family
	dueFrom string
	due     []*dueEntry
	dueNext string // the first entry that was not taken, "": none
}

// readQueue is which keys want a read, and how many reads are under way.
type readQueue struct {
	prefetch []*fairKey // their windows run low
	urgent   []*fairKey // have nothing left to deliver: they go first
	inFlight int
	// pausedUntil is the time before which no read is asked for.
	pausedUntil int64
	failed      int         // reads of keys, in a row
	backedOff   []backedOff // keys that are read again later, the first one first

	unchecked
}

func (q *readQueue) reset() { *q = readQueue{} }

func (q *readQueue) next(c *core) int64 {
	at := int64(never)
	if q.pausedUntil > c.now {
		at = q.pausedUntil
	}
	if len(q.backedOff) > 0 {
		at = min(at, q.backedOff[0].until)
	}
	return at
}

func (q *readQueue) expire(c *core) { c.retryBackedOff() }

// wantKey puts a key in line for a read when its window runs low.
func (c *core) requestRead(k *fairKey) {
	if !k.hasBacklog {
		return
	}
	if k.read == nil && len(k.window) <= c.windowMax()/2 {
		k.read = &read{key: k}
		if len(k.window) > 0 && !k.prefetching {
			k.prefetching = true
			c.reads.prefetch = append(c.reads.prefetch, k)
		}
	}
	if r := k.read; r != nil && !r.issued && !r.urgent && len(k.window) == 0 {
		r.urgent = true
		c.reads.urgent = append(c.reads.urgent, k)
	}
}

// pump asks for as many reads as may be under way. Keys with nothing left to
// deliver come first; the others have to wait while memory holds enough.
func (c *core) issueReads() {
	emptied := 0
	for c.reads.inFlight < c.cfg.ReadsMax && c.mayRead() {
		var k *fairKey
		switch {
		case len(c.reads.urgent) > 0:
			k, c.reads.urgent = c.reads.urgent[0], c.reads.urgent[1:]
		case len(c.reads.prefetch) > 0 && c.heads.messages < c.cfg.WindowTotal && c.heads.bodyBytes < c.cfg.BodyBytes:
			k, c.reads.prefetch = c.reads.prefetch[0], c.reads.prefetch[1:]
			k.prefetching = false
		default:
			return
		}
		if k.purged() {
			if emptied++; emptied >= c.detached.max {
				c.tasks.unfinished = true
				return
			}
			continue
		}
		if k.read != nil && !k.read.issued && c.alive(k) {
			c.issueRead(k)
		}
	}
}

// ask asks for the next messages of a key.
func (c *core) issueRead(k *fairKey) {
	k.read = &read{
		epoch: c.epoch, issued: true, key: k, queue: k.queue.no, name: k.name, from: k.edge, unseen: lastPlace,
		limit: max(c.readMax()-len(k.window), 1), bytes: c.readBytes(),
	}
	c.reads.inFlight++
	c.out.jobs = append(c.out.jobs, k.read)
}

// readBytes is how many bytes a read may bring, but for its first message: a small part
// of what is left for bodies, so that the windows of many keys become equally long.
func (c *core) readBytes() int {
	const least, part = 4 << 10, 64
	return int(max(min((c.cfg.BodyBytes-c.heads.bodyBytes)/part, int64(c.cfg.ReadBytes)), least))
}

// alive says that a key has not been forgotten meanwhile.
func (c *core) alive(k *fairKey) bool {
	return k.queue.keys.find(k.hash, k.name) == k && c.queues.byNumber[k.queue.no] == k.queue
}

// mayRead says that reads make sense now: not while the store is being mended,
// nor right after one has failed, or a broken disk would keep the loop busy.
func (c *core) mayRead() bool { return c.health.failed == nil && c.now >= c.reads.pausedUntil }

// resting is a key that is not read for some time, because that has failed.
type backedOff struct {
	key   *fairKey
	read  *read // that it has meanwhile
	until int64
}

// readFailed answers those who wait for nothing but the disk, and makes the next
// try wait: that of the key, whose records may be damaged, or of all if it is the disk.
func (c *core) readFailed(r *read) {
	c.cfg.Log.Error().Err(r.err).Msg("reading ahead failed, it is tried again")
	c.reads.failed++
	if r.key == nil || c.reads.failed >= c.cfg.ReadsMax {
		c.reads.pausedUntil = c.now + int64(c.cfg.MendInterval)
	}
	if r.key == nil {
		return
	}
	c.backOff(r.key)
	for n := r.key.queue.waiters.first; n != nil; {
		w := n.wait
		n = n.next
		if w.untilLoaded {
			c.finish(w.task, fmt.Errorf("%w: %w", ErrMisconf, r.err))
		}
	}
}

// rest lets a key be read again only after some time.
func (c *core) backOff(k *fairKey) {
	k.read = &read{key: k, urgent: true} // so that it stands in no line
	c.reads.backedOff = append(c.reads.backedOff, backedOff{k, k.read, c.now + int64(c.cfg.MendInterval)})
}

// retryBackedOff lets those keys be read again that have rested long enough.
func (c *core) retryBackedOff() {
	for c.room() && len(c.reads.backedOff) > 0 && c.reads.backedOff[0].until <= c.now {
		c.spend(1)
		r := c.reads.backedOff[0]
		c.reads.backedOff = c.reads.backedOff[1:]
		if c.alive(r.key) && r.key.read == r.read {
			r.key.read = nil
			c.settle(r.key)
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
	size := 0
	more, err := readMessages(store, from, to, func(f foundMessage) bool {
		r.last = f.m.place
		if !f.delayed {
			r.found = append(r.found, f.m)
		}
		size += len(f.m.body)
		r.examined++
		return r.examined < r.limit && size < r.bytes
	})
	r.end = !more
	return err
}

// foundMessage is a message as the store has it.
type foundMessage struct {
	m       *message // its key is to be set
	key     string
	readyAt int64 // that its records name; 0: none
	delayed bool  // not due yet
}

// readMessages reads messages with what is known of their attempts, as long as
// the function wants more. It reports whether there were more.
func readMessages(store Store, from, to []byte, each func(foundMessage) bool) (more bool, err error) {
	messages := store.Scan(storage.Messages, from, to)
	defer messages.Close()
	attempts := store.Scan(storage.Attempts, from, to)
	defer attempts.Close()
	another := attempts.Seek(from)
	var last *throttleSet // neighbours have mostly the same
	for ok := messages.Seek(from); ok; ok = messages.Next() {
		if more {
			return true, nil
		}
		mk, err := storage.ParseMessageKey(messages.Key())
		if err != nil {
			return false, err
		}
		m, readyAt, err := decodeMessage(mk, messages.Value(), last)
		if err != nil {
			return false, err
		}
		last = m.throttles
		for another && string(attempts.Key()) < string(messages.Key()) {
			another = attempts.Next()
		}
		if another && string(attempts.Key()) == string(messages.Key()) {
			if readyAt, err = m.decodeAttempt(attempts.Value()); err != nil {
				return false, err
			}
		}
		f := foundMessage{m: m, key: mk.Key, readyAt: readyAt}
		if readyAt > 0 {
			if f.delayed, err = scheduled(store, readyAt, mk); err != nil {
				return false, err
			}
		}
		more = !each(f)
	}
	return false, errJoin(messages.Err(), attempts.Err())
}

// scheduled says whether a message still waits for its time. The time alone does
// not tell: a clock may have gone back since the message became ready.
func scheduled(store Store, at int64, mk storage.MessageKey) (bool, error) {
	_, err := store.Get(storage.Scheduled, storage.AppendScheduledKey(nil, at, mk))
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func errJoin(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// decodeMessage makes a message of a record. It shares the limits of another one if
// it has the same; nil: there is none.
func decodeMessage(mk storage.MessageKey, value []byte, like *throttleSet) (m *message, readyAt int64, err error) {
	body := slices.Clone(value)
	var rec storage.Message
	if err := rec.DecodeLike(body, like.keys()); err != nil {
		return nil, 0, fmt.Errorf("message %s: %w", mk.ID, err)
	}
	if like == nil || !slices.Equal(rec.Throttles, like.names) {
		like = newThrottleSet(rec.Throttles)
	}
	m = &message{
		place: place{rank: mk.Rank, id: mk.ID}, cost: max(rec.Cost, 1), throttles: like, expires: rec.ExpiresAt, attempt: 1, body: body, timer: -1,
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
	const limit = 2048 // what it brings is merged in one turn
	it := store.Scan(r.family, []byte(r.dueFrom), nil)
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
	if r.key == nil {
		if r.err != nil {
			c.readFailed(r)
		}
		c.mergeDue(r)
		return nil
	}
	c.reads.inFlight--
	k := r.key
	if k.read != r || !c.alive(k) {
		return nil
	}
	k.read = nil
	switch {
	case r.err != nil:
		c.readFailed(r)
	case !r.stale:
		c.mergeKey(k, r)
	}
	if r.err == nil {
		c.reads.failed = 0
	}
	if k.lastReadEmpty = len(k.window) == 0 && k.hasBacklog; k.lastReadEmpty {
		c.offer(k.queue) // for the others
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
	if r.unseen.less(edge) {
		edge = r.unseen
	}
	c.spend(len(r.found))
	for _, m := range r.found {
		if !m.place.less(edge) {
			break
		}
		if _, changed := r.changed[m.id]; changed || c.leases.byID[m.id] != nil {
			continue
		}
		m.key = k
		m.throttles = k.throttleSet(m.throttleKeys())
		m.status = ready
		k.push(m)
		c.heads.messages++
		c.setBody(m, m.body)
		if c.heads.bodyBytes > c.cfg.BodyBytes {
			c.dropBody(m)
		}
	}
	k.edge = edge
	k.hasBacklog = edge != lastPlace
}
