package scripting

import (
	"time"

	"github.com/faisca/fila/engine"
)

// breaker keeps a hook that fails from failing for every message. It is closed
// until a number of calls in a row have failed, then open for a while, then lets
// one call try: that one closes it or opens it again. It is not safe for
// concurrent use; its owner holds a lock around each call.
type breaker struct {
	failures uint32 // in a row that open it
	cooldown time.Duration

	row      uint32    // failures since the last success
	openedAt time.Time // zero while closed
	trial    bool      // a call is trying
	opened   uint64    // times it has opened
}

// enter asks whether a call may run. A call that may is followed by leave, with
// the trial it was given.
func (b *breaker) enter(now time.Time) (trial, ok bool) {
	switch {
	case b.openedAt.IsZero():
		return false, true
	case b.trial || now.Before(b.openedAt.Add(b.cooldown)):
		return false, false
	default:
		b.trial = true
		return true, true
	}
}

// leave reports how a call went. Those that began before the breaker opened say
// nothing any more when they end.
func (b *breaker) leave(now time.Time, trial, failed bool) {
	if trial {
		b.trial = false
	} else if !b.openedAt.IsZero() {
		return
	}
	if !failed {
		b.row, b.openedAt = 0, time.Time{}
		return
	}
	b.row++
	if trial || b.row >= b.failures {
		b.openedAt = now
		b.opened++
	}
}

func (b *breaker) state(now time.Time) engine.BreakerState {
	switch {
	case b.openedAt.IsZero():
		return engine.BreakerClosed
	case b.trial || !now.Before(b.openedAt.Add(b.cooldown)):
		return engine.BreakerTrial
	default:
		return engine.BreakerOpen
	}
}
