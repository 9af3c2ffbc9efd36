package engine

// throttleSet is all throttles, and which of them may have room for what waits.
type throttleSet struct {
	byName  map[string]*throttle
	list    roster[throttle]
	version uint64 // grows with each change of which throttles there are

	timers   timers[*throttle] // by their next token, if a class waits for it
	notified []*throttle       // may have got room
	waking   *throttle         // whose room wakeAll gives away
	deferred bool              // wakeAll has left some of notified to the next step
	order    uint64            // of the newest entry in a line, and claim

	unset map[string]*unsetKey // throttle keys without a setting that leases name

	stale     []*queue // whose keys may name throttles that have come or gone, see reclass
	staleFrom uint64   // cursor in the first of them
}

func (s *throttleSet) reset() {
	*s = throttleSet{byName: map[string]*throttle{}, unset: map[string]*unsetKey{}, version: s.version + 1, waking: s.waking, order: s.order, staleFrom: s.staleFrom}
}

func (s *throttleSet) next(*core) int64 {
	if t, ok := s.timers.next(); ok {
		return t.wakeAt
	}
	return never
}

// expire wakes the throttles whose next token has come.
func (s *throttleSet) expire(c *core) {
	for c.room() {
		t, ok := s.timers.next()
		if !ok || t.wakeAt > c.now {
			break
		}
		c.spend(1)
		c.disarm(t)
		c.notify(t)
	}
	c.atLeast(c.tasks.budget.part(32))
	c.wakeAll()
}
