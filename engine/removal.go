package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/engine/settings"
	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Time to live. The states of a message with a TTL:
//
//   indexed    Its entry is in core.ttl.index, from enqueue on. When the entry is due,
//              a message in a head cache whose body is in memory, or not needed, is
//              expired at once; a leased one is suspended; any other one is expiring.
//   expiring   A ttlBatch reads its record. After the read it is expired, or suspended
//              if it was leased meanwhile; after an error it is indexed again.
//   suspended  A lease holds the message, and the index has no entry. At the end of the
//              lease it is indexed again.
//   expired    It is dead-lettered, or dropped if its queue has no dead-letter queue.
//
// A leased message belongs to its consumer until the lease ends, whatever its TTL. A
// message whose TTL has passed is not delivered even if the index has not reached it: take
// checks the time of each message.

// reasonTTL is the reason of a dead message whose TTL has passed.
const reasonTTL = "ttl"

// lifetime returns when a message that is enqueued now expires, in Unix nanoseconds; 0 if
// it has no TTL. ttl 0 stands for the TTL of the queue. A message that would expire before
// it is ready is refused with ErrInvalid.
func (c *core) lifetime(q *queue, ttl time.Duration, readyAt int64) (int64, error) {
	name := "TTL"
	if ttl == 0 {
		ttl, name = q.set.Values.Duration(queueset.TTL), "the queue's TTL"
	}
	if ttl == 0 {
		return 0, nil
	}
	end := c.now + int64(ttl)
	if readyAt >= end {
		return 0, fmt.Errorf("%w: %s of %d ms is over before the message is due; give it a longer one", ErrInvalid, name, ttl.Milliseconds())
	}
	return end, nil
}

// expired reports whether the TTL of a message has passed.
func (m *message) expired(now int64) bool { return m.expires != 0 && m.expires <= now }

// ttlMessages is the component that expires messages. An entry is in the index or in
// expiring, or in neither while its message is leased.
type ttlMessages struct {
	index       dueIndex         // by the time of expiry
	batches     int              // reads under way, at most ttlBatchesMax
	expiring    map[ID]*dueEntry // entries whose records are being read
	pausedUntil int64            // no read before this time: the last one failed
}

func (t *ttlMessages) reset() {
	*t = ttlMessages{index: dueIndex{family: storage.Expiries}, expiring: map[ID]*dueEntry{}}
}

// next returns when the first entry is due. While all reads are in use their results come
// as tasks, and no timer is needed.
func (t *ttlMessages) next(c *core) int64 {
	if t.batches >= ttlBatchesMax || t.index.Len() == 0 {
		return never
	}
	return max(t.index.next(), c.reads.PausedTo, t.pausedUntil)
}

// expire ends messages whose TTL has passed, within the budget.
func (t *ttlMessages) expire(c *core) {
	var unread map[*queue]*ttlBatch
	for c.room() {
		d, ok := t.index.First()
		if !ok || d.At > c.now {
			break
		}
		c.spend(2) // a move to another queue costs twice
		q := c.queues.byNumber[d.Key.Queue]
		if q == nil { // the queue was deleted, with its messages
			c.unindex(&t.index, d.At, d.Key)
			continue
		}
		if m := c.leases.byID[d.Key.ID]; m != nil && m.key.queue == q && !m.retrying {
			t.index.Remove(d) // endLease restores the entry
			continue
		}
		if m := q.inWindow(d.Key); m != nil && c.endTTL(m) {
			continue
		}
		// The message is not in memory, or its body is needed. The entry stays on disk
		// until the record has been read.
		o := unread[q]
		if o == nil || len(o.entries) == ttlBatchMax {
			if t.batches >= ttlBatchesMax || !c.mayRead() || c.now < t.pausedUntil {
				break
			}
			o = c.readTTLBatch(q)
			if unread == nil {
				unread = map[*queue]*ttlBatch{}
			}
			unread[q] = o
		}
		t.index.Remove(d)
		t.expiring[d.Key.ID] = d
		o.entries = append(o.entries, d)
	}
	c.refill(&t.index)
}

// endTTLAtHead expires a message that take found at the head of its key before the index
// reached it. The record is read in the turn if need be. If it cannot be read, the key
// backs off and its head cache is given up, so that the other keys go on.
func (c *core) endTTLAtHead(m *message) {
	if c.endTTL(m) {
		return
	}
	err := c.loadBody(m)
	if err == nil {
		c.endTTL(m)
		return
	}
	c.cfg.Log.Error().Err(err).Msg("an expired message cannot be read, retrying later")
	k := m.key
	c.heads.shrink(k.window.Cut(0))
	c.backOff(k)
	c.settle(k)
}

// inWindow returns a message from the head cache of its key, or nil.
func (q *queue) inWindow(mk storage.MessageKey) *message {
	k := q.keys.get(mk.Key)
	if k == nil {
		return nil
	}
	return k.window.At(window.PlaceOf(mk))
}

// endTTL expires a message of a head cache, and reports whether that was possible without
// reading its record.
func (c *core) endTTL(m *message) bool {
	if m.body == nil && c.queues.haveDLQ(m.key.queue) && !c.groups.cancels(m) {
		return false
	}
	m.key.window.Remove(m.Position())
	c.heads.messages--
	k := m.key
	c.groups.expireWaiting(c, m)
	c.settle(k)
	return true
}

// haveDLQ reports whether dead messages of a queue move to another queue. A dead-letter
// queue has none.
func (s *queueSet) haveDLQ(q *queue) bool { return !q.isDLQ() && s.byName[q.set.DLQ] != nil }

// expireMessage ends a message that is in no structure because its TTL has passed: it is
// dead-lettered or dropped. It returns the queue that takes it, or "". Where haveDLQ holds,
// the body must be loaded.
func (c *core) expireMessage(m *message) string {
	q := m.key.queue
	q.figures.Count(figures.TTLExpired, 1)
	c.out.sync = true
	if c.queues.haveDLQ(q) {
		return c.deadLetter(m, reasonTTL)
	}
	q.figures.Count(figures.Dropped, 1)
	c.emitFailure(m, Event{Kind: EventDead, Reason: reasonTTL})
	m.key.queue.tellDead(c, m, reasonTTL)
	c.groups.memberEnded(m, group.Dead)
	c.remove(m)
	return ""
}

// restore puts an entry back into the index that expire took out during a lease.
func (t *ttlMessages) restore(m *message) {
	if t.index.Find(m.id) != nil || t.expiring[m.id] != nil {
		return
	}
	t.index.Restore(newExpiryEntry(m))
}

func newExpiryEntry(m *message) *dueEntry {
	return window.NewEntry[*message](m.expires, m.storageKey(), nil)
}

// ttlBatch is an off-loop job that reads the records of expired messages of one queue, so
// that they can be dead-lettered.
type ttlBatch struct {
	loggedRead
	entries []*dueEntry
	found   []*foundMessage
}

// ttlBatchMax is how many records a batch reads, ttlBatchesMax how many batches are under
// way at a time. A million messages that expire in one second are processed in many batches
// between the work of other clients.
const (
	ttlBatchMax   = 256
	ttlBatchesMax = 2
)

// readTTLBatch starts a batch for a queue. The caller adds the entries in the same turn.
func (c *core) readTTLBatch(q *queue) *ttlBatch {
	o := &ttlBatch{}
	o.changeLog = c.openLog(q)
	o.then = o.deadLetter
	c.out.jobs = append(c.out.jobs, o)
	c.ttl.batches++
	return o
}

// do reads the records, off the loop. Messages that are gone by then are left out.
func (o *ttlBatch) do(store Store) {
	for _, d := range o.entries {
		var f *foundMessage
		if f, o.err = readMessage(store, d.Key); o.err != nil {
			return
		}
		if f != nil {
			o.found = append(o.found, f)
		}
	}
}

// deadLetter expires the messages of a batch that still exist and are not leased. After an
// error of the store, or a change log that could not follow, all entries return to the
// index.
func (o *ttlBatch) deadLetter(c *core) {
	c.ttl.batches--
	if o.err != nil || !c.valid(&o.changeLog) {
		if o.err != nil {
			c.cfg.Log.Error().Err(o.err).Msg("expired messages cannot be read, retrying later")
			c.ttl.pausedUntil = c.now + int64(c.cfg.RetryInterval)
		}
		for _, d := range o.entries { // retry those that are not gone meanwhile
			if c.ttl.expiring[d.Key.ID] != d {
				continue
			}
			delete(c.ttl.expiring, d.Key.ID)
			c.ttl.index.Restore(d)
		}
		return
	}
	c.spend(2 * len(o.found))
	for _, f := range o.found {
		if d := c.ttl.expiring[f.m.id]; d == nil || d.At > c.now {
			continue // it is gone, or it was replaced by a message with another time to live
		}
		if m := c.extract(&o.changeLog, f); m != nil {
			k := m.key
			c.groups.expireWaiting(c, m)
			c.settle(k)
		}
	}
	for _, d := range o.entries { // what is left is leased: endLease restores its entry
		if c.ttl.expiring[d.Key.ID] == d {
			delete(c.ttl.expiring, d.Key.ID)
		}
	}
}

// detachedQueue is the keys that a queue had when it was purged or deleted. The states of
// such a key:
//
//	live ──detachAll──▶ detached ──reclaim──▶ reclaimed (unreferenced)
//
// With detachAll the keys are in none of the queue's tables, so no command finds them. What
// they hold is still counted elsewhere: the messages of head caches, their bodies, entries
// in the lines of throttles, and concurrency slots of leases. Reclaiming visits all keys;
// with a million of them that would stall a turn, so each turn reclaims a portion, and
// turns follow each other until nothing is left.
//
// Until then, detached keys can be met in four places, each of which skips them at bounded
// cost: the line of a throttle, the queue of reads, the result of a read, and a lease.
// Their receipts are invalid (leaseOf). A detached key must not be settled: that would
// change the order of the keys that the queue has now.
//
// Detaching is in memory only; the records went with the batch of detachAll.
type detachedQueue struct {
	queue *queue
	no    uint32             // the number that the queue had
	order *dispatch.Detached // of its keys
	keys  intrusive.Roster[fairKey]
	named bool // statistics of the keys are kept by name
}

// detachedKeys is the component that reclaims detached keys and leases.
type detachedKeys struct {
	queues    []*detachedQueue
	leases    int64    // detached leases that are not reclaimed yet
	leaseAt   int      // index in the lease timers where the search for them continues
	reclaimed int      // keys, leases and messages visited in this turn; reclass counts here, too
	max       int      // reclaimMax, unless a test sets another bound
	stale     [][]byte // keys of state that belongs to queues which are gone; start deletes it
	orphaned  []uint32 // numbers without a queue under which the store has settings of keys

	untimed
	unchecked
}

func (d *detachedKeys) reset() {
	d.queues, d.leases, d.leaseAt, d.orphaned, d.stale = nil, 0, 0, nil, nil
}

// deleteAtStart has start delete a record that belongs to nothing any more.
func (d *detachedKeys) deleteAtStart(name string, parts []string) {
	d.stale = append(d.stale, records.Key(name, parts))
}

// reclaimMax is how many keys, leases and messages a turn reclaims. It is at least as many
// as a turn can enqueue, so that repeated purges do not accumulate detached keys.
const reclaimMax = turnUnits

// detach hands the former keys of a queue to reclaim. A small number of keys is reclaimed
// at once, and their statistics stay available by name.
func (c *core) detach(r *detachedQueue) {
	if r.named {
		c.reclaimSome(r)
	}
	if c.unfinished(r) {
		c.detached.queues = append(c.detached.queues, r)
	}
}

// unfinished reports whether something of a detached queue is left to reclaim.
func (c *core) unfinished(r *detachedQueue) bool {
	return !r.keys.Empty() || !r.order.Empty() || c.delayed.index.OfQueue(r.no) != nil || c.ttl.index.OfQueue(r.no) != nil
}

// reclaim reclaims a portion of the detached leases and keys, the oldest queue first. It is
// a step of each turn; the turn asks for another one as long as something is left.
func (c *core) reclaim() {
	c.reclaimLeases()
	counts := c.health.failed == nil // what groups count is written, what else is reclaimed is not
	if counts {
		c.detached.reclaimed += c.groups.Reclaim(c.detached.max - c.detached.reclaimed)
	}
	for len(c.detached.queues) > 0 && c.detached.reclaimed < c.detached.max {
		r := c.detached.queues[0]
		c.reclaimSome(r)
		if c.unfinished(r) {
			break
		}
		c.detached.queues[0] = nil
		c.detached.queues = c.detached.queues[1:]
	}
	c.tasks.unfinished = c.tasks.unfinished || len(c.detached.queues) > 0 || c.detached.leases > 0 || counts && c.groups.Lost()
}

// reclaimSome reclaims a portion of one detached queue: entries of the indexes by time,
// then classes, then keys.
func (c *core) reclaimSome(r *detachedQueue) {
	for ; c.detached.reclaimed < c.detached.max; c.detached.reclaimed++ {
		if d := c.delayed.index.OfQueue(r.no); d != nil {
			c.unschedule(d)
		} else if d := c.ttl.index.OfQueue(r.no); d != nil {
			c.unindex(&c.ttl.index, d.At, d.Key)
		} else {
			break
		}
	}
	c.detached.reclaimed += r.order.Reclaim(c.detached.max - c.detached.reclaimed)
	for c.detached.reclaimed < c.detached.max {
		k := r.keys.Shift()
		if k == nil {
			return
		}
		c.detached.reclaimed += 1 + k.window.Len()
		if k.gatherTimer >= 0 {
			c.gather.keys.Remove(k)
		}
		throttled := k.throttled(c.now) // with those of its class, which reclaimKey lets go
		c.reclaimKey(k)
		r.keepStats(k, throttled)
	}
}

// keepStats keeps the statistics of a reclaimed key under its name, unless there are too many keys: then
// the sums of the queue alone have them. A new key with that name takes them over.
func (r *detachedQueue) keepStats(k *fairKey, throttled figures.Tally) {
	switch now := r.queue.keys.find(k.hash, k.name); {
	case !r.named:
	case now != nil:
		now.AddTally(dispatch.Tally(throttled))
		r.queue.figures.Join(&now.stats, &k.stats, k.name)
	default:
		r.queue.figures.Keep(&k.stats, uint64(k.hash), k.name, throttled)
	}
}

// reclaiming reports whether a queue was purged and its detached keys are not reclaimed yet.
func (d *detachedKeys) reclaiming(q *queue) bool {
	return slices.ContainsFunc(d.queues, func(r *detachedQueue) bool { return r.queue == q })
}

// reclaimKey drops the messages of a key's head cache.
func (c *core) reclaimKey(k *fairKey) {
	for _, m := range k.window.All() {
		c.heads.forget(m)
	}
	k.window.Clear()
	k.Clear()
}

// The leases of a purged queue stay in the lease table, invalid. The table has no index by
// queue, as nothing else would use it. detachedKeys.leases counts them, and reclaimLeases
// walks the whole table, a portion in each turn, until it has found that many. Leases move
// within their heap meanwhile, so the walk may take more than one round.

// looksPerUnit is how many leases a unit of the budget pays for when they are only
// inspected.
const looksPerUnit = 4

// reclaimLeases drops a portion of the detached leases.
func (c *core) reclaimLeases() {
	for n := 1; c.detached.leases > 0 && c.detached.reclaimed < c.detached.max; n++ {
		if c.detached.leaseAt >= c.leases.ends.Len() {
			c.detached.leaseAt = 0
		}
		if m := c.leases.ends.Entries()[c.detached.leaseAt]; m.key.purged() {
			c.dropLease(m) // another lease takes its index
			c.detached.reclaimed++
			continue
		}
		c.detached.leaseAt++
		if n%looksPerUnit == 0 {
			c.detached.reclaimed++
		}
	}
}

// dropLease drops a detached lease and returns its throttle slots. Its records went by
// range deletion.
func (c *core) dropLease(m *message) {
	delete(c.leases.byID, m.id)
	c.leases.ends.Remove(m)
	c.leases.release(m)
	c.detached.leases--
	m.key.leased--
	c.returnShares(m)
	c.leases.endNotes(c, m)
	m.lease, m.status = lease{}, gone
}

// extract removes a message that was read from the store from all structures in memory and
// from the index of due times. The caller removes it, moves it, or makes it ready or
// delayed again in the same turn. It returns nil if the message is leased or gone. The
// change log must be valid, and each message may be extracted once.
func (c *core) extract(w *changeLog, f *foundMessage) *message {
	m := c.takeOut(f, c.locate(w, f))
	if m != nil {
		c.settle(m.key)
	}
	return m
}

// takeOut is extract of a message whose status is known. The caller settles its key.
func (c *core) takeOut(f *foundMessage, is status) (m *message) {
	switch is {
	case ready:
		m = c.extractReady(f)
	case delayed:
		m = c.extractDelayed(f)
	case leased, gone:
	}
	if m == nil {
		return nil
	}
	m.status = gone // in no structure
	if m.body == nil {
		c.heads.setBody(m, f.m.body)
	}
	m.key.window.Changed(m.Position())
	return m
}

// remove deletes the records of a message and updates the totals of its key and queue. The
// message must be in no structure of the memory. Its key ends with its last message
// (settle).
func (c *core) remove(m *message) {
	k := m.key
	if key := c.messageKey(m); m.tied().rewritten {
		c.out.batch.Delete(storage.Messages, key)
	} else {
		c.out.batch.SingleDelete(storage.Messages, key)
	}
	if m.retried {
		c.out.batch.Delete(storage.Attempts, c.out.key)
	}
	if m.expires != 0 {
		c.unindex(&c.ttl.index, m.expires, m.storageKey())
	}
	c.dedup.free(c, m)
	c.leaveBody(m)
	k.queue.tell(c, m, nil)
	c.heads.dropBody(m)
	m.status = gone
	k.queue.changes.Gone(m.id)
	c.goneInOrder(m)
	k.window.Changed(m.Position())
	k.total--
	k.queue.figures.Left(&k.stats)
	c.markShrunk(k.queue)
	c.settle(k)
}

// extractReady removes a message from its key's head cache. A message behind the edge is in
// no structure.
func (c *core) extractReady(f *foundMessage) *message {
	k := f.m.key
	if !k.window.Before(f.m.Position()) {
		return f.fresh()
	}
	m := k.window.Remove(f.m.Position())
	if m != nil {
		c.heads.messages--
	}
	return m
}

// extractDelayed removes a message from the index of due times, or from those that are retrying.
func (c *core) extractDelayed(f *foundMessage) *message {
	k := f.m.key
	if m := c.retryingOf(k, f.m.id); m != nil {
		c.endLease(m)
		return m
	}
	if d := c.delayed.index.Find(f.m.id); d != nil && d.Key.Queue == k.queue.no {
		c.unschedule(d)
		if d.Message != nil {
			return d.Message
		}
		return f.fresh()
	}
	c.unindex(&c.delayed.index, f.readyAt, f.m.storageKey())
	k.delayed--
	k.queue.figures.Change(figures.Messages{Delayed: -1})
	k.queue.recordTime(f.m.id, 0)
	return f.fresh()
}

// fresh returns a copy for use in memory, without the body: bodies are counted when setBody
// adds them.
func (f *foundMessage) fresh() *message {
	m := *f.m
	m.body = nil
	return &m
}

// detachAll drops everything in a queue, in memory and on disk, in time that does not
// depend on how much there is. Afterwards no queue has the old number; the caller gives the
// queue a new one or deletes it.
//
// Records go by range deletion. Entries of the indexes by time are ordered by time, not by
// queue: those in memory are reclaimed, those on disk stay until they are due and are then
// recognised by their number. Keys and leases become detached and are reclaimed in
// portions, see detachedQueue.
func (c *core) detachAll(q *queue) {
	c.spend(8) // the store deletes a range of each family
	c.dropBatchReads(q)
	q.regather = false
	q.purgedUpTo, q.purgedAt = q.roster.Last(), c.now
	named := q.keys.Len() < min(figures.IdleMax, c.detached.max)
	r := &detachedQueue{queue: q, no: q.no, order: q.order.Replace(), keys: q.roster, named: named}
	c.detached.leases += q.figures.Leased
	q.figures.Detach(q.held) // while its keys are found
	c.heads.keys -= q.keys.Len()
	clear(c.order.recent) // their classes would keep the purged keys in memory
	q.keys, q.roster = keyTable{}, intrusive.Roster[fairKey]{}
	q.roster.Skip(q.purgedUpTo)
	delete(c.queues.byNumber, q.no)
	q.awaitingRead, q.sequence = 0, keyOrder{}
	q.changes.Drop()
	prefix := storage.AppendQueuePrefix(nil, q.no)
	for _, f := range []storage.Family{storage.Messages, storage.Attempts, storage.Leases, storage.Dedup, storage.Results} {
		c.out.batch.DeleteRange(f, prefix, storage.After(prefix))
	}
	c.bodies.Sweep()
	c.groups.Detach(q.no)
	c.dedup.forget(c, q)
	q.tellAll(c, nil)
	settings.DeleteKeys(c.out.batch, q.no)
	c.out.sync = true
	c.detach(r)
}
