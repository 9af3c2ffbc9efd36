// Package generation groups records of queues that are kept for a period, so that they can be forgotten without
// reading them:
//
//	newest ──as old as the period──▶ older ──no period reaches it──▶ dropped
//
// The newest generation takes new records. Once it is as old as the period, the next record begins another one, so a
// period covers one or two generations. A generation is dropped by one range deletion when the period of its last
// record is over. The keys of records begin with queue and generation (storage.AppendDedupKey).
package generation

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// lengthMin is the shortest time for which a generation takes records. It bounds the number of range deletions for
// very short periods.
const lengthMin = int64(time.Second)

// Store is what is needed of storage.
type Store interface {
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
}

// Group is the generations of a queue in one family. The goroutine of its Table changes it; others may call List.
type Group struct {
	queue  uint32
	prefix []byte // of the keys, before the generation
	family storage.Family
	length int64                   // for how long a generation takes records
	began  atomic.Pointer[[]int64] // when each began, Unix nanoseconds, oldest first; replaced as a whole

	dropAt int64 // when no period reaches the oldest one
	timer  int
}

// New returns a group without generations, for the number of a queue.
func New(queue uint32, f storage.Family, period time.Duration) *Group {
	g := NewUnder(storage.AppendQueuePrefix(nil, queue), f, period)
	g.queue = queue
	return g
}

// NewUnder is New for records that are of no queue, and whose keys begin with a prefix and the generation.
func NewUnder(prefix []byte, f storage.Family, period time.Duration) *Group {
	g := &Group{prefix: prefix, family: f, timer: -1}
	g.began.Store(new([]int64))
	g.setPeriod(period)
	return g
}

// setPeriod sets for how long the group keeps records.
func (g *Group) setPeriod(period time.Duration) { g.length = max(int64(period), lengthMin) }

// Queue returns the number of the queue.
func (g *Group) Queue() uint32 { return g.queue }

// List returns when the generations began, which must not be changed. A nil group has none.
func (g *Group) List() []int64 {
	if g == nil {
		return nil
	}
	return *g.began.Load()
}

// Before is that of intrusive.Ordered.
func (g *Group) Before(o *Group) bool { return g.dropAt < o.dropAt }

// Index is that of intrusive.Ordered.
func (g *Group) Index() *int { return &g.timer }

// Table drops generations that no period reaches. The zero Table is empty.
type Table struct {
	ends intrusive.Heap[*Group] // by the time of the next drop
}

// Current returns the generation that takes new records, and begins one if the newest is as old as the period.
func (t *Table) Current(g *Group, now int64) int64 {
	began := max(now, storage.UniqueGeneration+1)
	list := g.List()
	if n := len(list); n > 0 {
		newest := list[n-1]
		if now < newest+g.length {
			return newest
		}
		began = max(began, newest+1) // generations are distinct even if the clock was set back
	}
	t.Add(g, began)
	return began
}

// Add adds a generation that is newer than those of the group.
func (t *Table) Add(g *Group, began int64) { t.set(g, append(slices.Clip(g.List()), began)) }

// Renew sets another period: a longer one needs its records longer. The group may be nil.
func (t *Table) Renew(g *Group, period time.Duration) {
	if g != nil {
		g.setPeriod(period)
		t.set(g, g.List())
	}
}

// Forget has no generation of the group dropped any more. The group may be nil.
func (t *Table) Forget(g *Group) {
	if g != nil && g.timer >= 0 {
		t.ends.Remove(g)
	}
}

// set replaces the generations of a group and sets the time at which the oldest is dropped.
func (t *Table) set(g *Group, list []int64) {
	g.began.Store(&list)
	t.Forget(g)
	if len(list) == 0 {
		return
	}
	last := list[0] + g.length // its last record was added before this, and before the next one began
	if len(list) > 1 {
		last = list[1]
	}
	g.dropAt = last + g.length
	t.ends.Push(g)
}

// DropAt returns when the next generation is dropped; ok is false if there is none.
func (t *Table) DropAt() (at int64, ok bool) {
	g, ok := t.ends.First()
	if !ok {
		return 0, false
	}
	return g.dropAt, true
}

// Drop drops the first generation, at or after DropAt, and returns the range of its records, which the caller deletes.
func (t *Table) Drop() (f storage.Family, from, to []byte) {
	g, _ := t.ends.First()
	list := g.List()
	t.set(g, list[1:])
	from = g.key(list[0])
	return g.family, from, storage.After(from)
}

// key returns the common prefix of the keys of a generation.
func (g *Group) key(began int64) []byte {
	return storage.AppendDuePrefix(slices.Clone(g.prefix), began)
}

// Find searches generations of a queue for an id, the newest first, and returns the value and its key; nil if there
// is none. It may be called on any goroutine.
func Find(store Store, f storage.Family, queue uint32, list []int64, id string) (value, key []byte, err error) {
	return find(store, &Group{prefix: storage.AppendQueuePrefix(nil, queue), family: f}, list, id)
}

// Find searches the generations of the group, as the function of that name.
func (g *Group) Find(store Store, id string) (value []byte, err error) {
	value, _, err = find(store, g, g.List(), id)
	return value, err
}

func find(store Store, g *Group, list []int64, id string) (value, key []byte, err error) {
	f := g.family
	for _, began := range slices.Backward(list) {
		key = append(g.key(began), id...)
		if value, err = store.Get(f, key); !errors.Is(err, storage.ErrNotFound) {
			return value, key, err
		}
	}
	return nil, nil, nil
}

// Recover adds the generations that the records of a group have. It seeks from one to the next and reads no other records.
func (t *Table) Recover(store Store, g *Group) error {
	it := store.Scan(g.family, g.prefix, storage.After(g.prefix))
	defer it.Close()
	for ok := it.Seek(g.prefix); ok; {
		at := it.Key()[len(g.prefix):]
		if len(at) < 8 {
			return storage.ErrCorrupt
		}
		began := int64(binary.BigEndian.Uint64(at))
		t.Add(g, began)
		next := storage.After(g.key(began))
		if next == nil {
			break
		}
		ok = it.Seek(next)
	}
	return it.Err()
}

// Walk visits the generations in the records of a family, by number of the queue and age. It seeks from one to the
// next and reads no other records.
func Walk(store Store, f storage.Family, visit func(queue uint32, began int64)) error {
	it := store.Scan(f, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; {
		queue, began, _, err := storage.ParseDedupKey(it.Key())
		if err != nil {
			return err
		}
		visit(queue, began)
		next := storage.After(storage.AppendDedupPrefix(nil, queue, began))
		if next == nil {
			break
		}
		ok = it.Seek(next)
	}
	return it.Err()
}
