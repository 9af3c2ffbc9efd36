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
	// aheadMax is for how many tasks or messages memory is read ahead: enough to keep
	// the processor's loads busy, few enough that nothing has left the caches again.
	aheadMax = 32
	// aheadKeys is how many keys there are at least where it pays: fewer of them are
	// in a cache, unless they have not been used for long.
	aheadKeys = 2000
)

// foresight is what reading ahead has read, step by step.
type foresight struct {
	pages  [aheadMax]*keyPage
	hashes [aheadMax]nameHash
	keys   [aheadMax]*fairKey
	sum    int64 // of what was read: or the compiler would leave the reading out
}

// lookAhead reads ahead for the first of some tasks, and returns for how many.
func (c *core) lookAhead(tasks []*Task) int {
	if c.keys < c.aheadKeys {
		return len(tasks)
	}
	f := &c.foresight
	n := min(len(tasks), aheadMax)
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
	f, n := &c.foresight, 0
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
			q = c.queues[req.Queue]
		}
		if q == nil || q.keys.n == 0 {
			continue
		}
		f.pages[n], f.hashes[n] = q.keys.page(req.hash), req.hash
		n++
	}
	return n
}

// lookRound reads ahead for the next n deliveries of a queue, aheadMax at most.
func (c *core) lookRound(q *queue, n int) {
	s := q.scheduler
	if s.keys < max(c.aheadKeys, 1) || !s.hasOpen() {
		return
	}
	f := &c.foresight
	keys := s.open.h[0].soon(f.keys[:0], min(n, aheadMax))
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
