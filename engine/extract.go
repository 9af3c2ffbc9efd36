package engine

// extract takes a message that was found in the store out of whatever holds it in
// memory, and off the due-time index: the caller then removes it, moves it, or
// makes it ready or delayed anew, within the same turn. It returns nil if the
// message is leased or gone. The watch must hold, and each message may be
// extracted once.
func (c *core) extract(w *changeLog, f *foundMessage) *message {
	var m *message
	switch c.locate(w, f) {
	case ready:
		m = c.extractReady(f)
	case delayed:
		m = c.extractDelayed(f)
	case leased, gone:
	}
	if m == nil {
		return nil
	}
	m.status = gone // in no structure
	if m.body == nil {
		c.setBody(m, f.m.body)
	}
	m.key.touch(m.place)
	c.settle(m.key)
	return m
}

// extractReady takes a message out of its key's window, or from behind its edge,
// where nothing in memory knows of it.
func (c *core) extractReady(f *foundMessage) *message {
	k := f.m.key
	if !k.inWindow(f.m.place) {
		return f.fresh()
	}
	m := k.removeAt(f.m.place)
	if m != nil {
		c.heads.messages--
	}
	return m
}

// extractDelayed takes a message off the due-time index.
func (c *core) extractDelayed(f *foundMessage) *message {
	k := f.m.key
	if d := c.delayed.index.byID[f.m.id]; d != nil && d.mk.Queue == k.queue.no {
		c.unschedule(d)
		if d.m != nil {
			return d.m
		}
		return f.fresh()
	}
	c.unindex(&c.delayed.index, f.readyAt, f.m.storageKey())
	k.delayed--
	k.queue.delayed--
	k.queue.recordTime(f.m.id, 0)
	return f.fresh()
}

// fresh returns the message for use in memory, as one whose body is not counted
// there yet.
func (f *foundMessage) fresh() *message {
	m := *f.m
	m.body = nil
	return &m
}
