package engine

import "github.com/faisca/fila/engine/internal/keytable"

// Announcer is a call that may enqueue a message. Announce returns the prepared request, or
// nil if the call will not enqueue one; it changes nothing.
type Announcer interface {
	Announce() *Enqueue
}

const (
	// prefetchMax is the size of a group: large enough to overlap many misses, small enough
	// that the lines are still in the cache when they are used.
	prefetchMax = 32
	// prefetchKeysMin is the number of keys from which prefetching pays: fewer keys are
	// usually in a cache.
	prefetchKeysMin = 2000
)

// prefetchBuffer holds the intermediate results of prefetching a group.
type prefetchBuffer struct {
	pages  [prefetchMax]*keytable.Page[fairKey]
	hashes [prefetchMax]keytable.Hash
	keys   [prefetchMax]*fairKey
	sum    int64 // depends on all that was read, so that the compiler keeps the reads
}

// prefetchFields reads a field of each of the cache lines that every message of a key needs;
// see the layout of fairKey: the edge of its window is in the second.
func (k *fairKey) prefetchFields() int64 {
	if k.window.More() {
		return k.total + 1
	}
	return k.total
}

// prefetchName reads the name of a key, which a lookup compares.
func (k *fairKey) prefetchName() int64 {
	if k.name == "" {
		return 0
	}
	return int64(k.name[0])
}

// prefetchTasks prefetches for the first tasks, prefetchMax at most, and returns their number.
func (c *core) prefetchTasks(tasks []*Task) int {
	if c.heads.keys < c.heads.prefetchKeysMin {
		return len(tasks)
	}
	f := &c.heads.prefetch
	n := min(len(tasks), prefetchMax)
	found := c.announced(tasks[:n])
	sum := f.sum
	for i, p := range f.pages[:found] {
		sum ^= p.Touch(f.hashes[i])
	}
	known := 0
	for i, p := range f.pages[:found] {
		if k := p.Peek(f.hashes[i]); k != nil {
			f.keys[known] = k
			known++
		}
	}
	for _, k := range f.keys[:known] {
		sum += k.prefetchFields()
	}
	for _, k := range f.keys[:known] {
		sum += k.prefetchName()
	}
	f.sum = sum
	return n
}

// announced stores the pages and hashes of the keys into which the tasks will enqueue, and
// returns their number.
func (c *core) announced(tasks []*Task) int {
	f, n := &c.heads.prefetch, 0
	var q *queue
	for _, t := range tasks {
		a, ok := t.Call.(Announcer)
		if !ok {
			continue
		}
		req := a.Announce()
		if req == nil {
			continue
		}
		if q == nil || q.name != req.Queue {
			q = c.queues.byName[req.Queue]
		}
		if q == nil || q.keys.Len() == 0 {
			continue
		}
		f.pages[n], f.hashes[n] = q.keys.Page(req.hash), req.hash
		n++
	}
	return n
}
