package engine

// A message may name throttle keys that have no setting: they limit nothing. But when one
// gets a setting, the leases that name it count from that moment on, and there may be a
// hundred thousand leases. So those that are in use are counted for each such key while
// there are any, as a throttle counts its own.

// unsetKey is a throttle key without a setting. It is in core.unset while it is in use.
type unsetKey struct {
	name  string
	inUse int64 // leases of messages that name it
}

// unsetNamed returns the key of a name, which may be one that is not in use.
func (c *core) unsetNamed(name string) *unsetKey {
	if u := c.throttles.unset[name]; u != nil {
		return u
	}
	return &unsetKey{name: name}
}

// useUnset counts a lease for the keys without a setting that its message names, and
// endUnset is its end.
func (c *core) useUnset(m *message) {
	c.throttlesOf(m) // so that they are up to date
	l := m.limits
	if l == nil {
		return
	}
	for i, u := range l.unset {
		if u.inUse == 0 { // it may have come into use through another message
			u = c.unsetNamed(u.name)
			l.unset[i], c.throttles.unset[u.name] = u, u
		}
		u.inUse++
	}
}

func (c *core) endUnset(m *message) {
	for _, u := range m.limits.unset {
		if u.inUse--; u.inUse == 0 {
			delete(c.throttles.unset, u.name)
		}
	}
}

// takeUnset returns how many leases name a key that gets a setting.
func (c *core) takeUnset(name string) int64 {
	n := c.unsetNamed(name).inUse
	delete(c.throttles.unset, name)
	return n
}

// leaveUnset goes on counting the leases that name a key whose setting is taken away.
func (c *core) leaveUnset(t *throttle) {
	if t.inUse > 0 {
		c.throttles.unset[t.name] = &unsetKey{name: t.name, inUse: t.inUse}
	}
}
