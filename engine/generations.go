package engine

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Deduplication ids and results of a queue are kept for a period that is a setting of the queue.
// They are grouped by generation, so that they can be forgotten without reading them:
//
//   newest ──as old as the period──▶ older ──no period reaches it──▶ dropped
//
// The newest generation takes new records. Once it is as old as the period, the next record
// begins another one, so a period covers one or two generations. A generation is dropped by one
// range deletion when the period of its last record is over.

// generationMin is the shortest time for which a generation takes records. It bounds the number
// of range deletions for very short periods.
const generationMin = int64(time.Second)

// generations is those of a queue in one family. The loop changes began by replacing the list;
// connections read it concurrently.
type generations struct {
	queue  *queue
	no     uint32
	family storage.Family
	began  atomic.Pointer[[]int64] // when each began, Unix nanoseconds, oldest first

	dropAt int64 // when no period reaches the oldest generation
	timer  int
}

func (g *generations) before(o *generations) bool { return g.dropAt < o.dropAt }
func (g *generations) index() *int                { return &g.timer }

// list returns the current list, which must not be changed. nil is a queue without records.
func (g *generations) list() []int64 {
	if g == nil {
		return nil
	}
	return *g.began.Load()
}

// generationsOf returns where a queue has its generations in a family, and the setting that is
// their period.
func (q *queue) generationsOf(f storage.Family) (**generations, queueset.Setting) {
	if f == storage.Results {
		return &q.results, queueset.ResultTTL
	}
	return &q.dedup, queueset.DedupWindow
}

// generation returns the generation that takes new records, and begins one if the newest is as
// old as the period.
func (c *core) generation(q *queue, f storage.Family) int64 {
	slot, period := q.generationsOf(f)
	gens := (*slot).list()
	if n := len(gens); n > 0 && c.now < gens[n-1]+q.generationLength(period) {
		return gens[n-1]
	}
	began := c.now
	if n := len(gens); n > 0 {
		began = max(began, gens[n-1]+1) // generations are distinct even if the clock was set back
	}
	c.setGenerations(q, f, append(slices.Clip(gens), began))
	return began
}

// generationLength returns for how long a generation takes records, in nanoseconds.
func (q *queue) generationLength(period queueset.Setting) int64 {
	return max(int64(q.set.Values.Duration(period)), generationMin)
}

// setGenerations replaces the generations of a queue and sets the timer that drops the oldest.
// The snapshot learns of the queue with its first generation of deduplication ids.
func (c *core) setGenerations(q *queue, f storage.Family, gens []int64) {
	slot, period := q.generationsOf(f)
	g := *slot
	if g == nil {
		if len(gens) == 0 {
			return
		}
		g = &generations{queue: q, no: q.no, family: f, timer: -1}
		*slot = g
		g.began.Store(&gens)
		if f == storage.Dedup {
			c.out.snapshot = c.out.snapshot.withDedup(q.name, g)
		}
	}
	g.began.Store(&gens)
	if g.timer >= 0 {
		c.ended.ends.remove(g)
	}
	if len(gens) == 0 {
		return
	}
	// The last record of the oldest generation was added before the next generation began.
	last := gens[0] + q.generationLength(period)
	if len(gens) > 1 {
		last = gens[1]
	}
	g.dropAt = last + q.generationLength(period)
	c.ended.ends.push(g)
}

// renewGenerations sets the timers anew after a change of the queue's settings: a longer period
// needs its records longer.
func (c *core) renewGenerations(q *queue) {
	c.setGenerations(q, storage.Dedup, q.dedup.list())
	c.setGenerations(q, storage.Results, q.results.list())
}

// endedGenerations is the component that drops generations which no period reaches.
type endedGenerations struct {
	ends timers[*generations] // by the time of the next drop

	unchecked
}

func (e *endedGenerations) reset() { *e = endedGenerations{} }

func (e *endedGenerations) next(*core) int64 {
	if g, ok := e.ends.next(); ok {
		return g.dropAt
	}
	return never
}

// expire drops the generations that no period reaches, within the budget.
func (e *endedGenerations) expire(c *core) {
	for c.room() {
		g, ok := e.ends.next()
		if !ok || g.dropAt > c.now {
			return
		}
		c.spend(1)
		gens := g.list()
		prefix := storage.AppendDedupPrefix(nil, g.no, gens[0])
		c.out.batch.DeleteRange(g.family, prefix, storage.After(prefix))
		c.setGenerations(g.queue, g.family, gens[1:])
	}
}

// recoverGenerations finds the generations of all queues. It seeks from one generation to the
// next and reads no other records.
func (c *core) recoverGenerations() error {
	c.dedup.fresh.Dropped = c.out.batchNo // look-ups from before the recovery are invalid
	for _, f := range []storage.Family{storage.Dedup, storage.Results} {
		if err := c.recoverFamily(f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// recoverFamily finds the generations of one family.
func (c *core) recoverFamily(f storage.Family) error {
	it := c.store.Scan(f, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; {
		no, gen, _, err := storage.ParseDedupKey(it.Key())
		if err != nil {
			return err
		}
		if q := c.queues.byNumber[no]; q != nil {
			slot, _ := q.generationsOf(f)
			c.setGenerations(q, f, append((*slot).list(), gen))
		}
		next := storage.After(storage.AppendDedupPrefix(nil, no, gen))
		if next == nil {
			break
		}
		ok = it.Seek(next)
	}
	return it.Err()
}

// forgetGenerations drops the generations of a queue from memory; their records go by range with
// the queue's number. Look-ups under the old number are invalid, see duplicate.
func (c *core) forgetGenerations(q *queue) {
	for _, g := range []*generations{q.dedup, q.results} {
		if g != nil && g.timer >= 0 {
			c.ended.ends.remove(g)
		}
	}
	q.results = nil
	if q.dedup != nil {
		q.dedup = nil
		c.out.snapshot = c.out.snapshot.withoutDedup(q.name)
	}
}
