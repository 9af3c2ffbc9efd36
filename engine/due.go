package engine

import (
	"slices"
	"strings"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// dueEntry is an entry of a due-time index that is in memory.
type dueEntry struct {
	at  int64
	key string // of its record; entries are ordered by it
	mk  storage.MessageKey
	m   *message // the delayed message; nil if it is on disk only
	i   int      // in the heap

	intrusive.Links[dueEntry] // entries of the same queue in memory
}

func newDueEntry(at int64, mk storage.MessageKey, m *message) *dueEntry {
	return &dueEntry{at: at, key: string(storage.AppendScheduledKey(nil, at, mk)), mk: mk, m: m}
}

func (d *dueEntry) Before(o *dueEntry) bool { return d.key < o.key }
func (d *dueEntry) Index() *int             { return &d.i }

// dueIndex is a durable index of messages by time. There are two: of delayed messages, and
// of messages with a TTL. All entries are on disk; the head, which is all entries before
// the edge, is also in memory.
//
//	entries by time:  [ head: memory and disk ) edge [ disk only )
//
// The head and its edge change as follows:
//
//   - The head has more than twice DueWindow entries: trimDue keeps the earlier half.
//   - It has half of DueWindow or less: refill reads the next entries off the loop, and
//     mergeDue adds them.
//   - A read reaches the end of the index: the edge is "", and new entries join the head.
//   - Recovery reads the first DueWindow entries.
//
// The index changes while a read is under way. unseen and removed record what the read may
// have missed or may still show, and the read is stale once trimDue has moved the edge;
// mergeDue corrects for all three.
type dueIndex struct {
	family storage.Family
	heap   intrusive.Heap[*dueEntry]
	edge   string // key of the first entry that is on disk only; "": there is none
	read   *read  // that fetches the next entries; nil: none is under way
	unseen string // first entry added at or after the edge since the read was asked for, "": none
	// removed holds the keys of entries that were deleted from disk since the read was
	// asked for.
	removed map[string]struct{}
	// byID finds the entry of a message in the head, byQueue those of each queue that has
	// any.
	byID    map[ID]*dueEntry
	byQueue map[uint32]*intrusive.List[dueEntry, *dueEntry]
}

// onDisk reports whether an entry with this key is on disk only.
func (x *dueIndex) onDisk(key string) bool { return x.edge != "" && key >= x.edge }

// first returns when the first entry of the head is due, in Unix nanoseconds.
func (x *dueIndex) first() int64 {
	if d, ok := x.heap.First(); ok {
		return d.at
	}
	return never
}

// add puts an entry into the head. Its key must be before the edge.
func (x *dueIndex) add(d *dueEntry) {
	x.heap.Push(d)
	if x.byID == nil {
		x.byID, x.byQueue = map[ID]*dueEntry{}, map[uint32]*intrusive.List[dueEntry, *dueEntry]{}
	}
	x.byID[d.mk.ID] = d
	if x.byQueue[d.mk.Queue] == nil {
		x.byQueue[d.mk.Queue] = &intrusive.List[dueEntry, *dueEntry]{}
	}
	x.byQueue[d.mk.Queue].PushBack(d)
}

// remove takes an entry out of the head. Its record on disk stays.
func (x *dueIndex) remove(d *dueEntry) {
	x.heap.Remove(d)
	x.unlist(d)
}

// unlist removes an entry from byID and byQueue.
func (x *dueIndex) unlist(d *dueEntry) {
	delete(x.byID, d.mk.ID)
	of := x.byQueue[d.mk.Queue]
	if of.Remove(d); of.Len() == 0 {
		delete(x.byQueue, d.mk.Queue)
	}
}

// dueLooks is how many entries a unit of the budget pays for when they are only inspected.
const dueLooks = 8

// setFirstDue sets ReadyAt of those keys that are delayed to the time of their first delayed
// message, as far as the head knows it. It inspects the entries of the queue in the head,
// at most twice DueWindow, so one turn can afford it.
func (c *core) setFirstDue(q *queue, keys ...*KeyInfo) {
	wanted := map[string]*KeyInfo{}
	for _, i := range keys {
		if i.State == KeyDelayed {
			wanted[i.Key] = i
		}
	}
	if len(wanted) == 0 {
		return
	}
	n := 0
	for d := c.delayed.index.byQueue[q.no].Head(); d != nil; d = d.Next() {
		n++
		if i := wanted[d.mk.Key]; i != nil && (i.ReadyAt.IsZero() || d.at < i.ReadyAt.UnixNano()) {
			i.ReadyAt = unix(d.at)
		}
	}
	c.spend(n / dueLooks)
}

// recordRemoval records that an entry which is on disk only is deleted: a read under way
// may still see it.
func (x *dueIndex) recordRemoval(key string) {
	if x.read == nil {
		return
	}
	if x.removed == nil {
		x.removed = map[string]struct{}{}
	}
	x.removed[key] = struct{}{}
}

// schedule makes a message that is in no structure delayed until a time, in memory and in
// the batch. The message stays in memory only if its entry is in the head.
func (c *core) schedule(m *message, at int64) {
	d := newDueEntry(at, m.storageKey(), m)
	m.key.delayed++
	c.addMessages(m.key.queue, messageCounts{delayed: 1})
	m.key.queue.recordTime(m.id, at)
	c.releaseBody(m)
	m.status = delayed
	if !c.index(&c.delayed.index, d) {
		m.status = gone // on disk only
	}
}

// index writes an entry of an index and reports whether it is in the head, too.
func (c *core) index(x *dueIndex, d *dueEntry) bool {
	c.out.batch.Put(x.family, []byte(d.key), nil)
	if x.onDisk(d.key) {
		if x.unseen == "" || d.key < x.unseen {
			x.unseen = d.key
		}
		return false
	}
	x.add(d)
	if x.heap.Len() > 2*c.cfg.DueWindow {
		c.trimDue(x)
	}
	return true
}

// unindex deletes the entry of a message from an index, in memory and on disk.
func (c *core) unindex(x *dueIndex, at int64, mk storage.MessageKey) {
	if d := x.byID[mk.ID]; d != nil && d.mk.Queue == mk.Queue {
		x.remove(d)
		c.out.batch.SingleDelete(x.family, []byte(d.key))
		return
	}
	if x == &c.ttl.index {
		delete(c.ttl.expiring, mk.ID)
	}
	key := storage.AppendScheduledKey(nil, at, mk)
	c.out.batch.SingleDelete(x.family, key)
	x.recordRemoval(string(key))
}

// trimDue leaves the later half of a head to the disk. It partitions the heap by a middle
// entry instead of sorting it. A read under way becomes stale, as the edge moves back.
func (c *core) trimDue(x *dueIndex) {
	all := x.heap.Entries()
	middle := middleOf(all)
	n := 0
	for i, d := range all {
		if d.Before(middle) {
			all[n], all[i] = d, all[n]
			n++
		}
	}
	x.edge = middle.key
	if x.read != nil {
		x.read.stale = true
	}
	for _, d := range all[n:] {
		x.unlist(d)
		if d.m != nil {
			c.dropBody(d.m)
			d.m.status = gone
			if !d.m.key.purged() {
				c.settle(d.m.key)
			}
		}
	}
	c.spend(len(all) / 4)
	clear(all[n:])
	x.heap.Rebuild(all[:n])
}

// middleOf returns an entry from the middle of the order: the median of a sample of up to
// 64 entries. The same entries give the same result, as a turn must be deterministic.
func middleOf(all []*dueEntry) *dueEntry {
	const most = 64
	var sample []*dueEntry
	for i := 0; i < len(all); i += (len(all) + most - 1) / most {
		sample = append(sample, all[i])
	}
	slices.SortFunc(sample, func(a, b *dueEntry) int { return strings.Compare(a.key, b.key) })
	return sample[len(sample)/2]
}

// unschedule removes an entry of the delayed messages from the head and from disk. A
// message of a purged queue is dropped with it.
func (c *core) unschedule(d *dueEntry) {
	c.delayed.index.remove(d)
	c.out.batch.SingleDelete(storage.Scheduled, []byte(d.key))
	if m := d.m; m != nil && m.key.purged() {
		c.dropBody(m)
		m.status = gone
	}
	if q := c.queues.byNumber[d.mk.Queue]; q != nil {
		c.addMessages(q, messageCounts{delayed: -1})
		if k := q.keys.get(d.mk.Key); k != nil {
			k.delayed--
		}
		q.recordTime(d.mk.ID, 0)
	}
}

// delayedMessages is the component that makes delayed messages ready.
type delayedMessages struct{ index dueIndex }

func (d *delayedMessages) reset() { d.index = dueIndex{family: storage.Scheduled} }

func (d *delayedMessages) next(*core) int64 { return d.index.first() }

// expire makes due messages ready, within the budget. A message that is not in memory joins
// the backlog on disk of its key, and its entry is removed.
func (d *delayedMessages) expire(c *core) {
	for c.room() {
		e, ok := d.index.heap.First()
		if !ok || e.at > c.now {
			break
		}
		c.spend(1)
		c.unschedule(e)
		q := c.queues.byNumber[e.mk.Queue]
		switch {
		case q == nil: // the queue was deleted, with its messages
		case e.m != nil:
			c.makeReady(e.m)
		default:
			k := c.keyOf(q, e.mk.Key)
			c.shrink(k.addOnDisk(place{rank: e.mk.Rank, id: e.mk.ID}))
			c.settle(k)
		}
	}
	c.refill(&d.index)
}

// refill starts a read of the next entries when the head is below half of DueWindow.
func (c *core) refill(x *dueIndex) {
	if x.edge != "" && x.read == nil && c.mayRead() && x.heap.Len() <= c.cfg.DueWindow/2 {
		x.read, x.unseen, x.removed = &read{epoch: c.epoch, index: x, family: x.family, dueFrom: x.edge}, "", nil
		c.out.jobs = append(c.out.jobs, x.read)
	}
}

// mergeDue adds the entries that a read has found to the head and moves the edge behind
// them, but not beyond an entry that was added meanwhile and that the read may have missed.
// A failed or stale read changes nothing; a later turn starts another.
func (c *core) mergeDue(r *read) {
	x := r.index
	x.read = nil
	if r.stale || r.err != nil {
		return
	}
	edge := r.dueNext
	if x.unseen != "" && (edge == "" || x.unseen < edge) {
		edge = x.unseen
	}
	for _, d := range r.due {
		if edge != "" && d.key >= edge {
			break
		}
		if _, gone := x.removed[d.key]; !gone {
			x.add(d)
		}
	}
	x.edge = edge
}
