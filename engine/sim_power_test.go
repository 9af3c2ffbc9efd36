package engine

import "time"

// With storage.sync at interval or never, a power loss may undo what was answered since the
// last sync, and nothing else. The oracle keeps a list of it.

// unsynced is a reply that a power loss may invalidate.
type unsynced struct {
	m        *oracleMsg
	enqueued bool
	acked    bool
}

// tick is the timer of SyncInterval.
func (s *sim) tick() {
	if s.w.sync == SyncInterval && !s.failing && s.step.now.Sub(s.syncedAt) >= s.cfg.SyncInterval {
		s.syncNow()
	}
}

func (s *sim) syncNow() {
	if err := s.store.Sync(); err != nil {
		s.oracle.fail("sync: %v", err)
	}
	s.syncedAt = s.step.now
	s.oracle.unsynced = nil
}

// powerLost makes everything that was not synced uncertain. An earlier state of a message
// may be back, such as its previous lease or due time.
func (o *oracle) powerLost() {
	o.trace("the power is gone, and %d answers perhaps", len(o.unsynced))
	for _, u := range o.unsynced {
		m := u.m
		if u.enqueued {
			m.perhapsGone = true
		}
		if u.acked {
			delete(o.gone, m.tag)
			o.stored[m.tag] = m
			m.perhapsGone = true
		}
		m.notBefore = time.Time{}
	}
	for _, m := range o.byID {
		m.anyReceipt = true
	}
	for _, b := range o.follows {
		b.committed = false // the whole transaction may be lost
	}
}
