package engine

// A turn has many tasks, and a lease many messages, and with very many fairness keys
// each of them is about a key that is in no cache: slot of the table, key, name,
// window and message would be one wait for memory after the other. What one task
// needs does not depend on the one before, though. So before some tasks are applied,
// or messages delivered, what they are going to read is read for all of them, one
// kind after the other, in loops so short that the processor goes on to the next load
// while those before it are under way.
//
// Nothing is decided here and nothing kept: when a task is applied, what was read
// ahead may have changed.

// Announcer is a call that is about to enqueue a prepared message; nil: it is not.
type Announcer interface {
	Announce() *Enqueue
}

const (
	// prefetchMax is for how many tasks or messages memory is read ahead: enough to keep
	// the processor's loads busy, few enough that nothing has left the caches again.
	prefetchMax = 32
	// prefetchKeysMin is how many keys there are at least where it pays: fewer of them are
	// in a cache, unless they have not been used for long.
	prefetchKeysMin = 2000
)

// foresight is what reading ahead has read, step by step.
type prefetchBuffer struct {
	pages  [prefetchMax]*keyPage
	hashes [prefetchMax]nameHash
	keys   [prefetchMax]*fairKey
	sum    int64 // of what was read: or the compiler would leave the reading out
}

// prefetchTasks reads ahead for the first of some tasks, and returns for how many.
func (c *core) prefetchTasks(tasks []*Task) int {
	if c.heads.keys < c.heads.prefetchKeysMin {
		return len(tasks)
	}
	f := &c.heads.prefetch
	n := min(len(tasks), prefetchMax)
	found := c.announced(tasks[:n])
	sum := f.sum
	for i, p := range f.pages[:found] {
		sum ^= int64(p.slots[p.home(f.hashes[i])].hash) //nolint:gosec // any bits will do
	}
	known := 0
	for i, p := range f.pages[:found] {
		if k := p.peek(f.hashes[i]); k != nil {
			f.keys[known] = k
			known++
		}
	}
	for _, k := range f.keys[:known] {
		sum += k.firstLines()
	}
	for _, k := range f.keys[:known] {
		sum += k.firstOfName()
	}
	f.sum = sum
	return n
}

// announced notes where the keys of the messages stand that tasks will enqueue, and
// returns of how many.
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
		if q == nil || q.keys.n == 0 {
			continue
		}
		f.pages[n], f.hashes[n] = q.keys.page(req.hash), req.hash
		n++
	}
	return n
}

// prefetchRound reads ahead for the next n deliveries of a queue, prefetchMax at most.
func (c *core) prefetchRound(q *queue, n int) {
	s := q.scheduler
	if s.keys < max(c.heads.prefetchKeysMin, 1) || !s.hasOpen() {
		return
	}
	f := &c.heads.prefetch
	keys := s.open.h[0].soon(f.keys[:0], min(n, prefetchMax))
	sum := f.sum
	for _, k := range keys {
		sum += k.firstLines()
	}
	for _, k := range keys {
		sum += k.firstOfName()
		if len(k.window) > 0 {
			m := k.window[0]
			sum ^= int64(m.rank) + int64(m.fence) + int64(m.timer) //nolint:gosec // any bits will do
		}
	}
	f.sum = sum
}

// firstLines reads the lines of a key that each message of it needs.
func (k *fairKey) firstLines() int64 { return k.total + int64(k.weight) }

func (k *fairKey) firstOfName() int64 {
	if k.name == "" {
		return 0
	}
	return int64(k.name[0])
}
