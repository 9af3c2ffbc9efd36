package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/storage"
)

// read is a job that brings the next messages of a fairness key into its window (a window read). What is
// read and what the window records meanwhile is the subject of package window; leased messages are found
// in core.leases. By the stages of that package, a key is:
//
//	requested   in readQueue, to be read when memory allows it
//	urgent      in readQueue, to be read first
//	issued      in none: the job runs after the commit of its batch, and sees that batch
//	backed off  in readQueue: it is read again after Config.RetryInterval
//
//	none → requested, urgent    requestRead: the window has run low
//	requested, urgent → issued  issueReads: fewer are under way than readQueue.atOnce returns
//	issued → none               Apply merges the result, or drops a stale one
//	issued → backed off         Apply: the read failed
//	backed off → none           readQueue.expire
type read struct {
	window.Read[window.Place]
	epoch uint64 // core.epoch when it was issued
	key   *fairKey
	first bool   // it reads from the first message of the key on
	begin []byte // the edge, as a key of the store
	limit int    // messages to examine
	bytes int    // of bodies, after which the read ends

	found    []*message // in order, without delayed ones
	examined int
	next     window.Place // behind the last examined message
	more     bool         // the key may have messages there
	err      error
}

// readQueue holds the keys that need a window read, and bounds the reads under way.
type readQueue struct {
	window.Requests[*fairKey]

	batches map[*fairKey]*batchRead // what leases wait for, of keys with a read requested or under way

	unchecked
}

func (q *readQueue) reset() { *q = readQueue{} }

// next returns when reads may be issued again, or the first key that has backed off may be
// read again.
func (q *readQueue) next(c *core) int64 { return q.NextAt(c.now, never) }

// expire requests reads again for the keys that have backed off and whose time has come.
func (q *readQueue) expire(c *core) {
	for c.room() {
		k, read, ok := q.Resume(c.now)
		if !ok {
			return
		}
		c.spend(1)
		if k.alive() && k.window.Resume(read) {
			c.settle(k)
		}
	}
}

// requestRead queues a key for a window read when half of its window is empty, which gives the read the time of a commit and a
// few turns, and makes the request urgent when all of it is. A key is in each of the two lists at most once, and remains in
// prefetch when it becomes urgent: issueReads skips it there.
func (c *core) requestRead(k *fairKey) {
	if !k.window.More() {
		return
	}
	switch k.window.Request(c.heads.windowMax(&c.cfg) / 2) {
	case window.Prefetch:
		if !k.prefetching {
			k.prefetching = true
			c.reads.Prefetch(k)
		}
	case window.Urgent:
		c.reads.Urgent(k)
	case window.NoRead:
	}
}

// issueReads issues as many window reads as may be under way; prefetching waits while memory holds enough messages and
// bodies. A key that was detached, forgotten or read meanwhile is skipped, a bounded number in a turn.
func (c *core) issueReads() {
	skipped := 0
	for c.reads.InFlight < c.reads.atOnce(c.cfg.ReadsMax) && c.mayRead() {
		k, urgent, ok := c.reads.Next(c.heads.messages < c.cfg.WindowTotal && c.heads.bodyBytes < c.cfg.BodyBytes)
		if !ok {
			return
		}
		if !urgent {
			k.prefetching = false
		}
		if k.purged() {
			if skipped++; skipped >= c.detached.max {
				c.tasks.unfinished = true
				return
			}
			continue
		}
		if k.window.Wants() && k.alive() {
			c.issueRead(k)
		}
	}
}

// readsAtStart is how many times as many reads are under way after a start, of all keys in the order of the store: more that
// share an iterator take less. Later so many are in the way of a key that consumers wait for: leases were a fifth slower.
const readsAtStart = 4

// atOnce returns how many reads may be under way: most, and more if the next one is the first of its key.
func (q *readQueue) atOnce(most int) int {
	if k, ok := q.MostUrgent(); ok && !k.window.Before(window.Place{}) {
		return readsAtStart * most
	}
	return most
}

// issueRead issues a window read: it starts at the edge and brings as many messages as the window has room for.
func (c *core) issueRead(k *fairKey) {
	r := &read{epoch: c.epoch, key: k, limit: max(c.heads.readMax(&c.cfg)-k.window.Len(), 1)}
	if b := c.reads.batches[k]; b != nil {
		r.limit = max(r.limit, b.wants)
	}
	from := k.window.Issue(&r.Read)
	r.first, r.begin = from == window.Place{}, storage.AppendMessageKey(nil, k.queue.no, k.name, from.Rank, from.ID)
	r.bytes = c.heads.readBytes(&c.cfg, r.first)
	c.reads.InFlight++
	c.out.jobs = append(c.out.jobs, r)
}

// batchRead is a read of a key for leases that take more messages of it than are in memory (SameKey). It brings as many as one
// of them wants, whatever the bound of a window: there are at most as many such reads as clients.
type batchRead struct {
	tasks []*Task
	wants int
}

// awaitMessages parks a task until the next read of a key has ended, which brings as many messages as it wants if there are
// so many and they fit into the bytes of a read. More must be on disk. The key may be forgotten or purged by then.
func (tx *Tx) awaitMessages(k *fairKey, wants int) error {
	c := tx.core
	b := c.reads.batches[k]
	if b == nil {
		b = &batchRead{}
		if c.reads.batches == nil {
			c.reads.batches = map[*fairKey]*batchRead{}
		}
		c.reads.batches[k] = b
	}
	b.tasks, b.wants = append(b.tasks, tx.task), max(b.wants, wants)
	k.window.Request(k.window.Len())
	if k.window.Wants() { // requestRead may have listed it to be read when memory allows it
		c.reads.Urgent(k)
	}
	return tx.await()
}

// resumeBatches resumes the tasks that wait for a read of a key, which has ended or will not be issued any more.
func (c *core) resumeBatches(k *fairKey) {
	if b := c.reads.batches[k]; b != nil {
		delete(c.reads.batches, k)
		for _, t := range b.tasks {
			t.resume(c)
		}
	}
}

// dropBatchReads resumes the tasks that wait for reads of the keys of a queue that is purged or deleted, in the next turn.
func (c *core) dropBatchReads(q *queue) {
	var keys []*fairKey
	for k := range c.reads.batches {
		if k.queue == q {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b *fairKey) int { return cmp.Compare(a.Seq(), b.Seq()) })
	for _, k := range keys {
		c.tasks.yielded = append(c.tasks.yielded, c.reads.batches[k].tasks...)
		delete(c.reads.batches, k)
	}
}

// readBytes is the number of bytes after which a window read ends: a small part of what Config.BodyBytes has left, so that the
// windows of many keys become equally long. A read brings at least one message of any size.
func (h *headCache) readBytes(cfg *Config, first bool) int {
	most := (cfg.BodyBytes - h.bodyBytes) / 64
	if first {
		most /= readsAtStart
	}
	return int(max(min(most, int64(cfg.ReadBytes)), 4<<10))
}

// mayRead reports whether reads may be issued: not while the store is read-only, nor for a while after failures, see readFailed.
func (c *core) mayRead() bool { return c.health.failed == nil && c.now >= c.reads.PausedTo }

// readFailed delays the next read: of the key alone, whose records may be damaged, or of all
// keys when Config.ReadsMax reads have failed in a row, since then it is the disk. It refuses
// the tasks that wait only for the read. Without a key, it was a read of a due-time index.
func (c *core) readFailed(k *fairKey, err error) {
	c.cfg.Log.Error().Err(err).Msg("reading ahead failed, it is tried again")
	until := c.now + int64(c.cfg.RetryInterval)
	if c.reads.Failed(c.cfg.ReadsMax, until); k == nil {
		c.reads.PausedTo = until
		return
	}
	c.backOff(k)
	for n := k.queue.waiters.Head(); n != nil; {
		w := n.wait
		n = n.Next()
		if w.kind.forReads() {
			c.finish(w.task, fmt.Errorf("%w: %w", ErrMisconf, err))
		}
	}
}

// backOff makes the next read of a key wait for Config.RetryInterval.
func (c *core) backOff(k *fairKey) {
	c.reads.BackOff(k, k.window.BackOff(), c.now+int64(c.cfg.RetryInterval))
}

// do reads from the store. It runs off the loop and changes only the read itself.
func (r *read) do(store Store) {
	it := search.OpenKeys(store)
	defer it.Close()
	r.err = r.readKey(store, it)
}

// readKey examines messages from the edge on, until the limit or the bytes are reached.
func (r *read) readKey(store Store, it search.Iterators) error {
	size := 0
	var like *throttleSet
	var err error
	r.more, err = it.Range(r.begin, func(rec *search.Record) (bool, error) {
		f, err := found(rec, store, like)
		if err != nil {
			return false, err
		}
		like = f.m.throttles
		r.next = f.m.Position().Next()
		if !f.delayed {
			r.found = append(r.found, f.m)
		}
		size += len(f.m.body)
		r.examined++
		return r.examined < r.limit && size < r.bytes, nil
	})
	return err
}

// Apply merges the result of a read into memory. It drops a result from before a recovery, of
// a key that was forgotten or detached meanwhile, and a stale one. In every case settle
// requests the next read if the key still needs one.
func (r *read) Apply(tx *Tx) error {
	c := tx.core
	if r.epoch != c.epoch {
		return nil
	}
	c.reads.InFlight--
	k := r.key
	defer c.resumeBatches(k)
	if !k.alive() || !k.window.End(&r.Read) {
		return nil
	}
	if r.err != nil {
		c.readFailed(k, r.err)
	} else {
		c.reads.Succeeded()
		c.mergeKey(k, r)
	}
	if k.window.LastReadEmpty() {
		k.queue.order.Offer() // the key leaves its class, and others no longer wait for it
	}
	c.settle(k)
	return nil
}

// mergeKey adds what a read has found to the window of its key. Leased messages are left out: the edge had retreated to before
// them. Delayed messages were not found; when they are due, makeReady or AddOnDisk adds them.
func (c *core) mergeKey(k *fairKey, r *read) {
	unleased := slices.DeleteFunc(r.found, func(m *message) bool { return c.leases.byID[m.id] != nil })
	joined, ok := k.window.Merge(&r.Read, unleased, r.next, r.more)
	if ok {
		c.spend(len(r.found))
	}
	for _, m := range joined {
		m.key = k
		if m.throttles != nil {
			meta := m.meta()
			m.throttles = c.order.throttleSet(k, &meta)
		}
		m.status = ready
		c.heads.messages++
		c.heads.setBody(m, m.body)
		if c.heads.bodyBytes > c.cfg.BodyBytes {
			c.heads.dropBody(m)
		}
	}
}
