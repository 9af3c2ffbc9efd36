package engine

// headCache counts what the windows of all keys hold in memory: the head of each key,
// as far as it fits. What is behind it is on disk only, see read.go.
type headCache struct {
	keys        int        // of all queues
	messages    int        // in windows
	bodyBytes   int64      // of their bodies, and of uncommitted ones
	uncommitted []*message // hold a body at least until their batch is committed

	prefetch        prefetchBuffer
	prefetchKeysMin int // as the constant; tests set any number

	untimed
}

func (h *headCache) reset() {
	*h = headCache{prefetchKeysMin: h.prefetchKeysMin}
}

// dropCommittedBodies drops bodies that can be read from the store now and need not be kept.
func (c *core) dropCommittedBodies() {
	h := &c.heads
	for len(h.uncommitted) > 0 && h.uncommitted[0].batch <= c.out.committed {
		if m := h.uncommitted[0]; m.status != ready || h.bodyBytes > c.cfg.BodyBytes {
			c.dropBody(m)
		}
		h.uncommitted = h.uncommitted[1:]
	}
}

// windowMax is how many messages a key may hold in memory now. A place without its
// body is not worth much: a message that is left to the disk is read along with those
// beside it, one whose body was dropped alone. So windows are short, too, when bodies
// have taken their part.
func (c *core) windowMax() int {
	if c.heads.bodyBytes > c.retainedBodyBytesMax() {
		return min(windowSmall, c.readMax())
	}
	return c.readMax()
}

const windowSmall = 4

// readMax is how many messages a key may hold in memory once it has been read.
func (c *core) readMax() int {
	switch {
	case c.heads.messages < c.cfg.WindowTotal:
		return c.cfg.Window
	case c.heads.messages < 2*c.cfg.WindowTotal:
		return min(windowSmall, c.cfg.Window)
	default:
		return 1
	}
}

// bodiesKept is how many bytes of bodies are kept of what is enqueued. The rest of the
// budget is for what is read, since that is about to be delivered.
func (c *core) retainedBodyBytesMax() int64 { return c.cfg.BodyBytes / 4 * 3 }

// makeReady puts a message where ready ones belong.
func (c *core) makeReady(m *message) {
	k := m.key
	m.status = ready
	if k.add(m, idNanos(m.id) == c.ids.last, c.windowMax()) {
		c.heads.messages++
		if len(k.window) > 2*c.cfg.Window {
			c.shrink(k.cut(c.cfg.Window))
		}
		c.retainBody(m)
	} else {
		c.dropBody(m)
		m.status = gone // the disk has it
	}
	c.settle(k)
}

// retainBody keeps the body of a ready message as long as the budget allows, and
// in any case until it can be read from the store.
func (c *core) retainBody(m *message) {
	if m.body != nil && c.heads.bodyBytes > c.retainedBodyBytesMax() {
		c.releaseBody(m)
	}
}

// letGo drops the body of a message as soon as the store has it.
func (c *core) releaseBody(m *message) {
	if m.body == nil {
		return
	}
	if m.batch <= c.out.committed {
		c.dropBody(m)
	} else {
		c.heads.uncommitted = append(c.heads.uncommitted, m)
	}
}

func (c *core) setBody(m *message, body []byte) {
	m.body = body
	c.heads.bodyBytes += int64(len(body))
}

func (c *core) dropBody(m *message) {
	c.heads.bodyBytes -= int64(len(m.body))
	m.body = nil
}

// forget drops a ready message from memory that has left its window.
func (c *core) forget(m *message) {
	c.heads.messages--
	c.dropBody(m)
	m.status = gone
}

// shrink forgets what a cut has left to the disk.
func (c *core) shrink(rest []*message) {
	for _, m := range rest {
		c.forget(m)
	}
}

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
		sum += k.prefetchFields()
	}
	for _, k := range f.keys[:known] {
		sum += k.prefetchName()
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
	keys := s.open.h[0].upcoming(f.keys[:0], min(n, prefetchMax))
	sum := f.sum
	for _, k := range keys {
		sum += k.prefetchFields()
	}
	for _, k := range keys {
		sum += k.prefetchName()
		if len(k.window) > 0 {
			m := k.window[0]
			sum ^= int64(m.rank) + int64(m.fence) + int64(m.timer) //nolint:gosec // any bits will do
		}
	}
	f.sum = sum
}

// firstLines reads the lines of a key that each message of it needs.
func (k *fairKey) prefetchFields() int64 { return k.total + int64(k.weight) }

func (k *fairKey) prefetchName() int64 {
	if k.name == "" {
		return 0
	}
	return int64(k.name[0])
}
