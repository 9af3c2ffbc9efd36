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
	if c.heads.bodyBytes > c.bodiesKept() {
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
func (c *core) bodiesKept() int64 { return c.cfg.BodyBytes / 4 * 3 }

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
	if m.body != nil && c.heads.bodyBytes > c.bodiesKept() {
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
