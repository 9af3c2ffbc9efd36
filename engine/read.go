package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/storage"
)

// read brings records that are on disk only into memory: the next messages of a fairness key
// (a window read), or the next entries of a due-time index. States of a window read:
//
//	requested   the key is in readQueue.prefetch, or in urgent if its window is empty
//	issued      the job runs after the commit of its batch, and sees that batch
//	backed off  the last read failed: the key is read again after Config.RetryInterval
//
//	none → requested        requestRead: the window has run low
//	requested → issued      issueReads: fewer than Config.ReadsMax are under way
//	issued → none           Apply merges the result, or drops a stale one
//	issued → backed off     Apply: the read failed
//	backed off → none       retryBackedOff
//
// The result describes the store at one time and is merged in a later turn. What changes in
// between is recorded in memory: a message that becomes ready behind the edge bounds the
// result (unseen), one that changes there in another way is left out (changed), and leased
// messages are found in core.leases. A read whose edge has moved is stale.
type read struct {
	epoch  uint64 // core.epoch when it was issued
	issued bool
	urgent bool // in readQueue.urgent, or backed off
	stale  bool // the result cannot be merged: issue another read
	err    error

	// Of a window read:
	key   *fairKey
	queue uint32 // its number, for use off the loop
	name  string
	from  place // the edge
	// unseen is the first place at which a message became ready behind the edge since the
	// read was issued. The read may have missed it, so its result is valid up to there.
	unseen place
	// changed are messages behind the edge that have changed since the read was issued. Their
	// state is known in memory: gone, leased or delayed; if ready, unseen bounds the result.
	changed map[ID]struct{}
	limit   int // messages to examine
	bytes   int // of bodies, after which the read ends

	found    []*message // in order, without delayed ones
	examined int
	last     place // of the last examined message
	end      bool  // the key has no message after last

	// Of a due-time index:
	index   *dueIndex
	family  storage.Family
	dueFrom string
	due     []*dueEntry
	dueNext string // the first entry that was not read; "": the index has no more
}

// readQueue holds the keys that need a window read, and bounds the reads under way.
type readQueue struct {
	prefetch    []*fairKey  // their windows run low
	urgent      []*fairKey  // their windows are empty: they are read first
	inFlight    int         // window reads, at most Config.ReadsMax
	pausedUntil int64       // Unix nanoseconds before which no read is issued
	failed      int         // consecutive window reads that failed
	backedOff   []backedOff // in the order of their times

	unchecked
}

func (q *readQueue) reset() { *q = readQueue{} }

// next returns when reads may be issued again, or the first key that has backed off may be
// read again.
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

// requestRead queues a key for a window read when half of its window is empty, and makes the
// request urgent when all of it is. Half a window gives the read the time of a commit and a
// few turns before the key would have to wait. A key is in each of the two lists at most once,
// and remains in prefetch when it becomes urgent: issueReads skips it there.
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

// issueReads issues as many window reads as may be under way. Keys with an empty window come
// first, whatever memory holds, since they could not deliver otherwise; prefetching waits
// while memory holds enough messages and bodies. Entries of the lists may be outdated: a key
// that was detached, forgotten or read meanwhile is skipped, a bounded number in a turn.
func (c *core) issueReads() {
	skipped := 0
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
			if skipped++; skipped >= c.detached.max {
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

// issueRead issues a window read: it starts at the edge and brings as many messages as the
// window has room for.
func (c *core) issueRead(k *fairKey) {
	k.read = &read{
		epoch: c.epoch, issued: true, key: k, queue: k.queue.no, name: k.name, from: k.edge, unseen: lastPlace,
		limit: max(c.readMax()-len(k.window), 1), bytes: c.readBytes(),
	}
	c.reads.inFlight++
	c.out.jobs = append(c.out.jobs, k.read)
}

// readBytes is the number of bytes after which a window read ends: a small part of what
// Config.BodyBytes has left, so that the windows of many keys become equally long. A read
// brings at least one message of any size.
func (c *core) readBytes() int {
	const least, part = 4 << 10, 64
	return int(max(min((c.cfg.BodyBytes-c.heads.bodyBytes)/part, int64(c.cfg.ReadBytes)), least))
}

// alive reports whether a key still exists: neither it nor its queue was removed meanwhile.
func (c *core) alive(k *fairKey) bool {
	return k.queue.keys.find(k.hash, k.name) == k && c.queues.byNumber[k.queue.no] == k.queue
}

// mayRead reports whether reads may be issued: not while the store is read-only and may be
// reopened, nor for a while after a failure, since a broken disk would keep the loop busy.
func (c *core) mayRead() bool { return c.health.failed == nil && c.now >= c.reads.pausedUntil }

// backedOff is a key whose last read failed.
type backedOff struct {
	key   *fairKey
	read  *read // placeholder in key.read, which prevents a request
	until int64 // Unix nanoseconds
}

// readFailed delays the next read: of the key alone, whose records may be damaged, or of all
// keys when Config.ReadsMax reads have failed in a row, since then it is the disk. It refuses
// the tasks that wait only for the read.
func (c *core) readFailed(r *read) {
	c.cfg.Log.Error().Err(r.err).Msg("reading ahead failed, it is tried again")
	c.reads.failed++
	if r.key == nil || c.reads.failed >= c.cfg.ReadsMax {
		c.reads.pausedUntil = c.now + int64(c.cfg.RetryInterval)
	}
	if r.key == nil {
		return
	}
	c.backOff(r.key)
	for n := r.key.queue.waiters.Head(); n != nil; {
		w := n.wait
		n = n.Next()
		if w.kind.forReads() {
			c.finish(w.task, fmt.Errorf("%w: %w", ErrMisconf, r.err))
		}
	}
}

// backOff makes the next read of a key wait for Config.RetryInterval.
func (c *core) backOff(k *fairKey) {
	k.read = &read{key: k, urgent: true} // neither prefetched nor urgent: requestRead skips it
	c.reads.backedOff = append(c.reads.backedOff, backedOff{k, k.read, c.now + int64(c.cfg.RetryInterval)})
}

// retryBackedOff requests reads again for the keys whose time has come.
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

// do reads from the store. It runs off the loop and changes only the read itself.
func (r *read) do(store Store) {
	if r.key == nil {
		r.err = r.readDue(store)
		return
	}
	it := openKeys(store)
	defer it.close()
	r.err = r.readKey(store, it)
}

// keyIterators read fairness keys one after another. Opening iterators costs more than a window read does
// with them.
type keyIterators struct {
	messages, attempts storage.Iterator
}

func openKeys(store Store) keyIterators {
	return keyIterators{storage.ScanMessageKeys(store), storage.ScanKeys(store, storage.Attempts)}
}

func (it keyIterators) close() {
	it.messages.Close()
	it.attempts.Close()
}

// readKey examines messages from the edge on, until the limit or the bytes are reached.
func (r *read) readKey(store Store, it keyIterators) error {
	from := storage.AppendMessageKey(nil, r.queue, r.name, r.from.rank, r.from.id)
	size := 0
	more, err := readRange(it.messages, it.attempts, from, func(rec *record) (bool, error) {
		f, err := rec.found(store)
		if err != nil {
			return false, err
		}
		r.last = f.m.place
		if !f.delayed {
			r.found = append(r.found, f.m)
		}
		size += len(f.m.body)
		r.examined++
		return r.examined < r.limit && size < r.bytes, nil
	})
	r.end = !more
	return err
}

// foundMessage is a message as its records in the store describe it.
type foundMessage struct {
	m       *message // without its key, which the loop sets
	key     string
	readyAt int64 // due time in its records, past or to come; 0: none
	delayed bool  // it waits for readyAt
}

// readMessages reads the messages in [from, to) with their attempts, in order, until each
// returns false or an error. A record is valid until each returns. more reports whether there
// are messages after the last one, which it tries to read for that. The families messages and
// attempts have the same keys, so two iterators advance in step.
func readMessages(store Store, from, to []byte, each func(*record) (bool, error)) (more bool, err error) {
	messages := storage.ScanMessages(store, from, to)
	defer messages.Close()
	attempts := store.Scan(storage.Attempts, from, to)
	defer attempts.Close()
	return readRange(messages, attempts, from, each)
}

// readRange is readMessages from a key on, with iterators that end where it ends.
func readRange(messages, attempts storage.Iterator, from []byte, each func(*record) (bool, error)) (more bool, err error) {
	another := attempts.Seek(from)
	var r record
	for ok := messages.Seek(from); ok; ok = messages.Next() {
		if more { // each has returned false for the message before
			return true, nil
		}
		mk, err := storage.ParseMessageKey(messages.Key())
		if err != nil {
			return false, err
		}
		if err := r.decode(mk, messages.Value()); err != nil {
			return false, err
		}
		for another && string(attempts.Key()) < string(messages.Key()) {
			another = attempts.Next()
		}
		if another && string(attempts.Key()) == string(messages.Key()) {
			if err := r.decodeAttempt(attempts.Value()); err != nil {
				return false, err
			}
		}
		goOn, err := each(&r)
		if err != nil {
			return false, err
		}
		more = !goOn
	}
	return false, errJoin(messages.Err(), attempts.Err())
}

// scheduled reports whether a message is delayed, that is, has a scheduled record. The due
// time alone does not tell: the clock may have gone back since the message became ready.
func scheduled(store Store, at int64, mk storage.MessageKey) (bool, error) {
	_, err := store.Get(storage.Scheduled, storage.AppendScheduledKey(nil, at, mk))
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// errJoin returns the first error that is not nil, without allocating.
func errJoin(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// readDue reads the next entries of a due-time index.
func (r *read) readDue(store Store) error {
	const limit = 2048 // the entries are merged in one turn
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

// Apply merges the result of a read into memory. It drops a result from before a recovery, of
// a key that was forgotten or detached meanwhile, and a stale one. In every case settle
// requests the next read if the key still needs one.
func (r *read) Apply(tx *Tx) error {
	c := tx.core
	if r.epoch != c.epoch {
		return nil
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
		k.queue.order.Offer() // the key leaves its class, and others no longer wait for it
	}
	c.settle(k)
	return nil
}

// mergeKey appends the messages of a read to the window of its key and advances the edge
// behind them. Together with what the turns have recorded since the read was issued, no ready
// message is lost and none is in memory twice:
//
//   - A message that became ready behind the former edge meanwhile is behind the new one,
//     since the edge stops at unseen. The next read finds it.
//   - A message that was found, but has changed meanwhile, is skipped: it is gone, delayed,
//     leased, or it is ready again and thus not before unseen.
//   - Delayed messages were not found. When they are due, makeReady or addOnDisk adds them.
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
		if l := m.throttles; l != nil {
			m.throttles = c.throttleSet(k, l.Names, l.Budgets, l.Charge)
		}
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
