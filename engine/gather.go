package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/internal/queueset"
)

// Keys of a queue with a BATCH gather: such a key is in no class until it has as many ready messages, or its time
// has come. Its states:
//
//	none       it has no ready message
//	by first   its time follows from its first message, which is not in memory yet: it loads
//	gathering  it has a timer, fewer ready messages than BATCH, and its time has not come
//	full       it has as many messages, or has waited: it takes part in the order of delivery
//
//	none → gathering           a message becomes ready: its time is BATCHWAIT from now on
//	none → full                a message that has failed or was redriven becomes ready: it counts as waited
//	gathering → full           it has as many messages; its time has come; a message becomes ready that counts as waited
//	full → gathering, none     a lease, a cancel: judged anew, by the enqueue of its first message
//	any → by first             recovery, a message that is released, another BATCH or BATCHWAIT
//	by first → gathering, full its first message is in memory
//
// settle judges a key after each change, with its counts: messages on disk need not be read for that. So gathering takes
// O(log keys), and a key that is full takes nothing. While a lease takes several messages of a key it is full.

// The times of a key that are none: fairKey.gathersUntil is one of these, or Unix nanoseconds.
const (
	gathersNot     = 0
	gathersByFirst = -1
	gathersNoMore  = 1 // it counts as waited
)

// gathering is the component that ends the gathering of keys whose time has come.
type gathering struct {
	keys intrusive.Heap[*fairKey]

	unchecked
}

func (g *gathering) reset() { *g = gathering{} }

// next returns when the first key has waited.
func (g *gathering) next(*core) int64 {
	if k, ok := g.keys.First(); ok {
		return k.gathersUntil
	}
	return never
}

// expire has keys take part in the order of delivery that have waited.
func (g *gathering) expire(c *core) {
	for c.room() {
		k, ok := g.keys.First()
		if !ok || k.gathersUntil > c.now {
			return
		}
		c.spend(1)
		if k.purged() {
			g.keys.Remove(k)
		} else {
			c.settle(k)
		}
	}
}

// Before orders keys that gather by their time.
func (k *fairKey) Before(o *fairKey) bool {
	return k.gathersUntil < o.gathersUntil || k.gathersUntil == o.gathersUntil && k.Seq() < o.Seq()
}

// Index is where the heap of keys that gather stores the index of a key.
func (k *fairKey) Index() *int { return &k.gatherTimer }

// gathers reports whether the key waits for more messages. It does not read the key where its queue has no BATCH.
func (k *fairKey) gathers() bool {
	return (k.queue.batch() > 0 || k.queue.regather) && k.gatherTimer >= 0
}

// batch returns how many messages a key of the queue gathers; 0: none.
func (q *queue) batch() int64 { return int64(q.set.Values[queueset.Batch]) }

// judge decides whether a key gathers. settle calls it first.
func (c *core) judge(k *fairKey) {
	most := k.queue.batch()
	if most == 0 && !k.queue.regather {
		return
	}
	until := c.gatherTime(k, most)
	full := until <= c.now || k.batching || k.readyCount() >= most
	if k.gatherTimer >= 0 && (full || until != k.gathersUntil) {
		c.gather.keys.Remove(k)
	}
	if k.gathersUntil = until; !full && k.gatherTimer < 0 {
		c.gather.keys.Push(k)
	}
}

// gatherTime returns the time of a key, of which one of the constants is at or before any time.
func (c *core) gatherTime(k *fairKey, most int64) int64 {
	n, wait := k.window.Len(), int64(k.queue.set.Values.Duration(queueset.BatchWait))
	switch {
	case most == 0, k.counted && k.readyCount() == 0, n == 0 && !k.window.More():
		return gathersNot
	case n > 0 && k.window.First().attempt > 1:
		return gathersNoMore
	case k.gathersUntil == gathersNot:
		return c.now + wait
	case k.gathersUntil == gathersByFirst && n > 0:
		return min(k.window.First().id.Nanos(), c.now) + wait // ids may be ahead of the time
	default:
		return k.gathersUntil
	}
}

// gathersFrom says that a message has become ready again that was leased before: one that has failed counts as waited.
func (k *fairKey) gathersFrom(m *message) {
	switch {
	case k.queue.batch() == 0 || m.fence == 0: // it was never delivered
	case m.attempt > 1:
		k.gathersUntil = gathersNoMore
	case k.gathersUntil != gathersNoMore:
		k.gathersUntil = gathersByFirst
	}
}

// redriven says that a key has got a message by a redrive, which counts as waited.
func (c *core) redriven(q *queue, key string) {
	if k := q.keys.get(key); k != nil && q.batch() > 0 {
		k.gathersUntil = gathersNoMore
		c.settle(k)
	}
}

// gatherAnew has the time of a key follow from its first message.
func (k *fairKey) gatherAnew() {
	if k.queue.batch() > 0 {
		k.gathersUntil = gathersByFirst
	}
}

// takesBatch says whether a lease takes several messages of a key, which does not gather meanwhile. The key may be gone.
func (c *core) takesBatch(k *fairKey, takes bool) {
	if k.queue.batch() > 0 && k.alive() {
		k.batching = takes
		c.settle(k)
	}
}

// regather has a key gather by the present settings of its queue.
func (c *core) regather(k *fairKey) {
	if k.gathersUntil != gathersNoMore {
		k.gatherAnew()
	}
	c.settle(k)
}

// explainGathering says what a key in the state gathering waits for.
func (k *fairKey) explainGathering(i *KeyInfo) {
	i.ReadyAt = unix(k.gathersUntil)
	i.Reason = fmt.Sprintf("it has %d of %d messages of a batch, and waits for more until %s", k.readyCount(), k.queue.batch(), i.ReadyAt.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))
}

// checkGathering verifies that a key gathers if and only if its queue has a BATCH, it has fewer ready messages and its time
// has not come, and that its timer is in its place (39).
func (c *core) checkGathering(k *fairKey, bad report) {
	most, n := k.queue.batch(), k.readyCount()
	is, due := k.gatherTimer >= 0, k.gathersUntil <= c.now // the next turn has it go on
	if must := most > 0 && n < most && !due; is != must && (!is || !due) && !k.queue.regather {
		bad(39, "key %q of %q has %d of %d messages, its time is %d of %d, it gathers: %v", k.name, k.queue.name, n, most, k.gathersUntil, c.now, is)
	}
	if in := c.gather.keys.Entries(); is && (k.gatherTimer >= len(in) || in[k.gatherTimer] != k) {
		bad(39, "the timer of key %q of %q, which gathers, is not in its place", k.name, k.queue.name)
	}
}
