package engine

import (
	"unsafe"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/window"
)

// fairKey is a fairness key of a queue. It exists while it has messages of any status, or a
// read under way. Its next ready messages are in its window; those at or behind the edge are on disk
// only. So memory is bounded by what is about to be delivered, not by what is stored. The states of a
// key are those of its window (package window):
//
//	complete   every ready message is in memory; if there is none, all messages are leased, delayed or gone
//	partial    a window read is requested when the window is half empty
//	awaiting   the next messages are known only after a read. Other keys do not wait for it if the
//	           last read was stale, failed, or all it found had changed: it is repeated
//
// A paused key has the same states, but is in no class, and so has a key of an ordered queue with a
// message out (ordered.go), and one that gathers (gather.go). settle must follow each transition.
// A key without messages of any status and without a read is forgotten.
//
// With millions of keys each cache line is a miss, so the order of fields is by use, 64 bytes
// at a time: an enqueue needs the first two lines, a delivery the third as well, and it is counted
// in the fourth. A test checks it.
type fairKey struct {
	name         string
	total        int64 // messages of any status; while not counted, the change since the start
	queue        *queue
	weight       uint32
	awaitingRead bool // the window is awaiting a read, and the key is not stopped for another reason
	paused       bool
	counted      bool // total is exact
	pinned       bool // an operator has set weight or pause: the settings outlive its messages

	window       window.Window[*message] // its second half begins the second line
	dispatch.Key                         // ends the second line with what an enqueue needs, and the third

	leased    int64 // messages, and the one that is retrying
	stats     figures.Key
	throttles *throttleSet  // throttle set of the newest message that has one, shared by its messages
	delayed   int64         // messages; like total while not counted
	hash      keytable.Hash // of name, for the key table

	out          uint32 // of an ordered queue: 1 + its index in keyOrder.keys; 0: none
	stored       bool   // a record of its settings exists
	prefetching  bool   // in readQueue, to be read when memory allows it
	batching     bool   // a lease takes several messages of it in this turn
	forgotten    bool   // it is in its queue no more, since it had no messages
	gatherTimer  int    // index in gathering.keys; -1: it does not gather
	gathersUntil int64  // see gather.go; ends a cache line
}

// head returns what stands at the head of the key. settle tells it to the order of delivery after each change.
func (k *fairKey) head() dispatch.Head {
	h := dispatch.Head{Weight: k.weight, Cost: dispatch.CostMin}
	switch {
	case k.window.Len() == 0 && !k.window.More():
	case k.paused || k.waitsForOne() || k.gathers() || k.window.Len() == 0 && k.window.LastReadEmpty():
		h.State = dispatch.Stopped
	case k.window.Len() == 0:
		h.State = dispatch.Loading
	default:
		m := k.window.First()
		h.State, h.Cost, h.Set = dispatch.Ready, m.cost, m.throttles.of()
	}
	return h
}

// key returns the fairness key that holds what the order of delivery knows: every dispatch.Key of an engine is a part of one.
func key(k *dispatch.Key) *fairKey {
	if k == nil {
		return nil
	}
	return (*fairKey)(unsafe.Add(unsafe.Pointer(k), -int(unsafe.Offsetof(fairKey{}.Key)))) //nolint:gosec // a pointer to its owner would take a fourth cache line
}

// newFairKey adds a key to a queue that does not have it, with its settings and statistics.
// The caller gives it a message, or settles it, before the turn ends: a key without messages
// must not remain.
func (c *core) newFairKey(q *queue, name string, h keytable.Hash) *fairKey {
	k := &fairKey{queue: q, name: name, hash: h, weight: 1, counted: true, gatherTimer: -1}
	if set, ok := q.settings.Of(name); ok {
		k.weight, k.paused, k.pinned, k.stored = max(set.Weight, 1), set.Paused, true, true
	}
	tally, owes := q.figures.Returned(&k.stats, uint64(h), name)
	k.AddTally(dispatch.Tally(tally))
	k.Owe(dispatch.Debt(owes))
	q.keys.Add(h, k)
	c.heads.keys++
	k.Number(q.roster.Add(k))
	return k
}

// keyTable finds the fairness keys of a queue by name.
type keyTable struct{ keytable.Table[fairKey] }

// get returns the key with a name, or nil if there is none.
func (t *keyTable) get(name string) *fairKey { return t.find(keytable.HashOf(name), name) }

// find is get for callers that have computed the hash.
func (t *keyTable) find(h keytable.Hash, name string) *fairKey {
	k, at := t.First(h)
	for k != nil && k.name != name {
		k, at = t.Next(h, at)
	}
	return k
}

// readyCount returns how many of its messages are ready, also on disk; those in memory at least, while it is not counted.
func (k *fairKey) readyCount() int64 {
	return max(k.total-k.leased-k.delayed, int64(k.window.Len()), 0)
}

// held looks at what a followed key of the queue holds.
func (q *queue) held(f *figures.Followed) (h figures.KeyHolds) {
	k := q.keys.find(keytable.Hash(f.Hash), f.Name)
	if k == nil {
		return h
	}
	h = figures.KeyHolds{Total: k.total, Ready: k.readyCount(), Delayed: max(k.delayed, 0) + k.retryingCount(), Leased: k.leased - k.retryingCount()}
	if k.window.Len() > 0 {
		h.Since = k.window.First().since
	}
	return h
}

// idle reports whether the key can be forgotten: it has no messages of any status, and no
// read that would return to it.
func (k *fairKey) idle() bool { return k.counted && k.total == 0 && !k.window.Reading() }

// keyOf returns a fairness key of a queue, which it creates if there is none.
func (c *core) keyOf(q *queue, name string) *fairKey {
	return c.keyWithHash(q, name, keytable.HashOf(name))
}

// keyWithHash is keyOf for callers that have computed the hash.
func (c *core) keyWithHash(q *queue, name string, h keytable.Hash) *fairKey {
	if k := q.keys.find(h, name); k != nil {
		return k
	}
	return c.newFairKey(q, name, h)
}

// settle completes every transition of a key. It must follow each change of the window, the
// edge, the counts, the weight or the pause, and updates what depends on them:
//
//  0. whether the key gathers messages of a batch (judge);
//  1. the class and the place of the key in the schedule (dispatch.Queue.Set);
//  2. the state awaiting read, and the queue's count of such keys: when a key leaves the
//     state, consumers that waited for the read are served;
//  3. the request for a window read (requestRead);
//  4. the existence of the key: one that is idle and has no messages is forgotten.
//
// It must not be called for a detached key: that would change the schedule of the queue to
// which it no longer belongs.
func (c *core) settle(k *fairKey) {
	q := k.queue
	c.judge(k)
	q.order.Set(&k.Key, k.head())
	if awaiting := k.window.Awaiting() && !k.paused && !k.waitsForOne() && !k.gathers(); awaiting != k.awaitingRead {
		k.awaitingRead = awaiting
		if awaiting {
			q.awaitingRead++
		} else {
			q.awaitingRead--
			k.window.ReadAgain()
			q.order.Offer()
		}
	}
	c.requestRead(k)
	if k.idle() {
		c.forgetKey(k)
	}
}

// headCache bounds the memory of the head caches of all keys. Each key has a window, its next
// messages; what does not fit is on disk only and is read when the window runs low (read.go).
//
// Two bounds apply. Config.WindowTotal bounds messages: as it is approached, windows become
// shorter (readMax). Config.BodyBytes bounds bodies: a message above it stays in its window
// without its body, which is read again when the message is delivered (Delivery.Load). The
// body of a message that the store does not have yet must stay in memory: it can be read
// nowhere else.
type headCache struct {
	keys        int        // fairness keys of all queues
	messages    int        // in windows, also those of detached keys
	bodyBytes   int64      // of all bodies in memory, including those of uncommitted
	uncommitted []*message // retain a body until their batch is committed, in order of batches

	prefetch        prefetchBuffer
	prefetchKeysMin int // prefetchKeysMin; tests set other values

	untimed
}

func (h *headCache) reset() {
	*h = headCache{prefetchKeysMin: h.prefetchKeysMin}
}

// check recounts the keys (invariant 1), the messages in windows, detached keys included (6),
// and the bytes of bodies (7).
func (h *headCache) check(c *core, bad report) {
	keys, messages, bodies := 0, 0, int64(0)
	count := func(k *fairKey) {
		messages += k.window.Len()
		for _, m := range k.window.All() {
			bodies += int64(len(m.body))
		}
	}
	for _, q := range c.queues.byName {
		keys += q.keys.Len()
		for k := range q.roster.All() {
			count(k)
		}
	}
	for _, r := range c.detached.queues {
		for k := range r.keys.All() {
			count(k)
		}
	}
	for _, m := range c.leases.byID {
		bodies += int64(len(m.body))
	}
	counted := map[*message]bool{}
	for _, m := range h.uncommitted {
		if !counted[m] && (m.status == gone || m.status == delayed) {
			bodies += int64(len(m.body))
		}
		counted[m] = true
	}
	if keys != h.keys {
		bad(1, "%d keys, %d counted", keys, h.keys)
	}
	if messages != h.messages {
		bad(6, "%d messages in windows, %d counted", messages, h.messages)
	}
	if bodies != h.bodyBytes {
		bad(7, "%d bytes of bodies, %d counted", bodies, h.bodyBytes)
	}
}

// dropCommittedBodies releases the bodies that waited only for their commit: of messages that
// are no longer ready, and of any while the bodies exceed their bound.
func (c *core) dropCommittedBodies() {
	h := &c.heads
	for len(h.uncommitted) > 0 && h.uncommitted[0].batch <= c.out.committed {
		if m := h.uncommitted[0]; m.status != ready || h.bodyBytes > c.cfg.BodyBytes {
			c.heads.dropBody(m)
		}
		h.uncommitted = h.uncommitted[1:]
	}
}

// windowMax is how many messages the window of a key may have after an enqueue. It is also
// small when the bodies exceed their part: a message without its body saves little, since a
// body that was dropped is read alone, but a message left to the disk is read together with
// its neighbours.
func (h *headCache) windowMax(cfg *Config) int {
	if h.bodyBytes > h.retainedBodyBytesMax(cfg) {
		return min(windowSmall, h.readMax(cfg))
	}
	return h.readMax(cfg)
}

// windowSmall is the length of windows while memory is short.
const windowSmall = 4

// readMax is how many messages the window of a key may have after a read. Every key may have
// one at least, whatever the bounds: without it, it could not deliver.
func (h *headCache) readMax(cfg *Config) int {
	switch {
	case h.messages < cfg.WindowTotal:
		return cfg.Window
	case h.messages < 2*cfg.WindowTotal:
		return min(windowSmall, cfg.Window)
	default:
		return 1
	}
}

// retainedBodyBytesMax is up to how many bytes of bodies an enqueue retains its own. The last
// quarter of Config.BodyBytes is for bodies that are read, which are delivered sooner.
func (h *headCache) retainedBodyBytesMax(cfg *Config) int64 { return cfg.BodyBytes / 4 * 3 }

// makeReady gives a message that is in no structure the status ready, from now on: it joins the
// window of its key if it is before the edge and there is room, else it is on disk only. The
// caller has written its records.
func (c *core) makeReady(m *message) {
	k := m.key
	k.gathersFrom(m)
	m.status, m.since = ready, c.now
	if k.window.Add(m, m.Position(), m.id.Nanos() == c.ids.last, c.heads.windowMax(&c.cfg)) {
		c.heads.messages++
		if k.window.Len() > 2*c.cfg.Window {
			c.heads.shrink(k.window.Cut(c.cfg.Window))
		}
		c.retainBody(m)
	} else {
		c.heads.dropBody(m)
		m.status = gone // from memory
	}
	c.settle(k)
}

// shrink drops the messages from memory that a window has left to the disk.
func (h *headCache) shrink(rest []*message) {
	for _, m := range rest {
		h.forget(m)
	}
}

// Prefetching of cache lines. A turn has many tasks, and with very many fairness keys each of
// them refers to a key that is in no processor cache: the slot of the table, the key and its
// name would be one cache miss after another. But the misses of different tasks do not depend
// on each other. So before a group of tasks is applied, short loops read the same field for
// all of them: the processor then overlaps the misses.
//
// Prefetching decides nothing and keeps nothing: what it has read may have changed when the
// task is applied.
//
// It makes an enqueue 18 % cheaper with 100,000 keys and 38 % with 1,000,000, a whole cycle 8
// and 22 %; with 1,000 keys nothing changes (Go 1.26). Prefetching for the deliveries of a
// lease as well made a lease 10 % dearer with 1,000,000 keys, and is not done.

// throttled returns what throttles have done to a key.
func (k *fairKey) throttled(now int64) figures.Tally { return figures.Tally(k.Key.Tally(now)) }

// waitsForOne reports whether the key delivers nothing until the message ends that is out.
// It reads the counter of leases, which is not in the lines that an enqueue needs, only for an ordered queue.
func (k *fairKey) waitsForOne() bool { return k.queue.ordered() && k.leased > 0 }

// purged reports whether the key is detached. Keys are numbered in the order of their
// creation, so one number per queue tells.
func (k *fairKey) purged() bool { return k.Seq() <= k.queue.purgedUpTo }

// alive reports whether its queue has the key: it was neither forgotten nor purged, nor was its queue deleted.
func (k *fairKey) alive() bool { return !k.forgotten && !k.purged() }

// shares returns the part of the cost that the queue has delivered in about the last minute, and
// the part of the weights of its active keys; see KeyInfo.
func (k *fairKey) shares(now int64) (share, fair float64) {
	return k.queue.figures.Share(&k.stats, now), k.Key.Share()
}
