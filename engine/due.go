package engine

import (
	"slices"
	"strings"

	"github.com/faisca/fila/storage"
)

// dueEntry is an entry of a due-time index that is in memory.
type dueEntry struct {
	at  int64
	key string // of its record: entries are ordered by it
	mk  storage.MessageKey
	m   *message // that is delayed, if it is in memory, else nil
	i   int

	prev, next *dueEntry // in the head, of the same queue
}

func newDueEntry(at int64, mk storage.MessageKey, m *message) *dueEntry {
	return &dueEntry{at: at, key: string(storage.AppendScheduledKey(nil, at, mk)), mk: mk, m: m}
}

func (d *dueEntry) before(o *dueEntry) bool { return d.key < o.key }
func (d *dueEntry) index() *int             { return &d.i }

// dueIndex is the head of a durable index by time: all entries before the edge.
// Those at or after it are on disk only, and are read when the head shrinks. There
// are two: of the messages that are delayed, and of those that have a time to live.
type dueIndex struct {
	family storage.Family
	heap   timers[*dueEntry]
	edge   string // "": nothing is on disk only
	read   *read
	unseen string // first entry added at or after the edge since the read was asked for, "": none
	// lost are the entries that were taken off the disk since then.
	removed map[string]struct{}
	// byID finds the entries of the head by message, byQueue the newest of each queue.
	byID    map[ID]*dueEntry
	byQueue map[uint32]*dueEntry
}

// onDisk says that an entry is at or after the edge.
func (x *dueIndex) onDisk(key string) bool { return x.edge != "" && key >= x.edge }

// first returns when the first entry is due.
func (x *dueIndex) first() int64 {
	if d, ok := x.heap.next(); ok {
		return d.at
	}
	return never
}

func (x *dueIndex) add(d *dueEntry) {
	x.heap.push(d)
	if x.byID == nil {
		x.byID, x.byQueue = map[ID]*dueEntry{}, map[uint32]*dueEntry{}
	}
	x.byID[d.mk.ID] = d
	if d.next = x.byQueue[d.mk.Queue]; d.next != nil {
		d.next.prev = d
	}
	x.byQueue[d.mk.Queue] = d
}

// remove takes an entry out of memory.
func (x *dueIndex) remove(d *dueEntry) {
	x.heap.remove(d)
	x.unlist(d)
}

// unlist takes an entry out of what finds it.
func (x *dueIndex) unlist(d *dueEntry) {
	delete(x.byID, d.mk.ID)
	switch {
	case d.prev != nil:
		d.prev.next = d.next
	case d.next != nil:
		x.byQueue[d.mk.Queue] = d.next
	default:
		delete(x.byQueue, d.mk.Queue)
	}
	if d.next != nil {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil
}

// dueLooks is how many entries of an index are looked at for a unit of work.
const dueLooks = 8

// setFirstDue tells those of the keys of a queue that wait for the time of a message when
// the first one falls due, as far as the head of the index knows. The head has at most
// twice DueWindow entries: so that is done in one turn.
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
	for d := c.delayed.index.byQueue[q.no]; d != nil; d = d.next {
		n++
		if i := wanted[d.mk.Key]; i != nil && (i.ReadyAt.IsZero() || d.at < i.ReadyAt.UnixNano()) {
			i.ReadyAt = unix(d.at)
		}
	}
	c.spend(n / dueLooks)
}

// recordRemoval takes note of an entry behind the edge that is taken off the disk: a
// read under way may have seen it.
func (x *dueIndex) recordRemoval(key string) {
	if x.read == nil {
		return
	}
	if x.removed == nil {
		x.removed = map[string]struct{}{}
	}
	x.removed[key] = struct{}{}
}

// schedule makes a message that is in no structure delayed until a time.
func (c *core) schedule(m *message, at int64) {
	d := newDueEntry(at, m.storageKey(), m)
	m.key.delayed++
	m.key.queue.delayed++
	m.key.queue.recordTime(m.id, at)
	c.releaseBody(m)
	m.status = delayed
	if !c.index(&c.delayed.index, d) {
		m.status = gone // the disk has it
	}
}

// index adds an entry to an index and reports whether memory holds it.
func (c *core) index(x *dueIndex, d *dueEntry) bool {
	c.out.batch.Put(x.family, []byte(d.key), nil)
	if x.onDisk(d.key) {
		if x.unseen == "" || d.key < x.unseen {
			x.unseen = d.key
		}
		return false
	}
	x.add(d)
	if x.heap.len() > 2*c.cfg.DueWindow {
		c.trimDue(x)
	}
	return true
}

// unindex takes the entry of a message off an index, wherever it is.
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

// trimDue leaves about the later half of an index's head to the disk. It sorts nothing: to
// divide the entries by one from their middle is enough.
func (c *core) trimDue(x *dueIndex) {
	all := x.heap.h
	middle := middleOf(all)
	n := 0
	for i, d := range all {
		if d.before(middle) {
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
	x.heap.rebuild(all[:n])
}

// middleOf returns an entry that is neither among the first nor among the last ones by
// time: the middle one of a sample.
func middleOf(all []*dueEntry) *dueEntry {
	const most = 64
	var sample []*dueEntry
	for i := 0; i < len(all); i += (len(all) + most - 1) / most {
		sample = append(sample, all[i])
	}
	slices.SortFunc(sample, func(a, b *dueEntry) int { return strings.Compare(a.key, b.key) })
	return sample[len(sample)/2]
}

// unschedule takes an entry of the head out, in memory and on disk.
func (c *core) unschedule(d *dueEntry) {
	c.delayed.index.remove(d)
	c.out.batch.SingleDelete(storage.Scheduled, []byte(d.key))
	if m := d.m; m != nil && m.key.purged() {
		c.dropBody(m)
		m.status = gone
	}
	if q := c.queues.byNumber[d.mk.Queue]; q != nil {
		q.delayed--
		if k := q.keys.get(d.mk.Key); k != nil {
			k.delayed--
		}
		q.recordTime(d.mk.ID, 0)
	}
}

// delayedMessages is the messages that wait for a time.
type delayedMessages struct{ index dueIndex }

func (d *delayedMessages) reset() { d.index = dueIndex{family: storage.Scheduled} }

func (d *delayedMessages) next(*core) int64 { return d.index.first() }

// expire makes ready what is due, in slices.
func (d *delayedMessages) expire(c *core) {
	for c.room() {
		e, ok := d.index.heap.next()
		if !ok || e.at > c.now {
			break
		}
		c.spend(1)
		c.unschedule(e)
		q := c.queues.byNumber[e.mk.Queue]
		switch {
		case q == nil: // deleted since, with its messages
		case e.m != nil:
			c.makeReady(e.m)
		default: // not in memory: leave it to the disk's side of its key
			k := c.keyOf(q, e.mk.Key)
			c.shrink(k.addOnDisk(place{rank: e.mk.Rank, id: e.mk.ID}))
			c.settle(k)
		}
	}
	c.refill(&d.index)
}

// refill asks for the next entries of an index when its head runs low.
func (c *core) refill(x *dueIndex) {
	if x.edge != "" && x.read == nil && c.mayRead() && x.heap.len() <= c.cfg.DueWindow/2 {
		x.read, x.unseen, x.removed = &read{epoch: c.epoch, index: x, family: x.family, dueFrom: x.edge}, "", nil
		c.out.jobs = append(c.out.jobs, x.read)
	}
}

// mergeDue takes what a read has found into the head of its index.
func (c *core) mergeDue(r *read) {
	x := r.index
	x.read = nil
	if r.stale || r.err != nil {
		return // asked for again in the next turn
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
