package scripting

import (
	"time"

	"github.com/faisca/fila/internal/hook"
)

// breaker skips a hook that keeps failing.
//
//	closed ──errors in a row───► open ──cooldown──► trial ──success──► closed
//	                                ▲                  │
//	                                └─────failure──────┘
//
// In the state trial one call runs and all others are skipped. It is not safe for
// concurrent use: its owner holds a lock around each method.
type breaker struct {
	cooldown time.Duration

	row      uint32    // failures since the last success
	openedAt time.Time // zero while closed
	trial    bool      // the trial call is running
	opened   uint64    // how often it has opened
}

// enter reports whether a call may run, and whether it is the trial. A call that runs
// must be followed by leave with the same trial.
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

// leave reports the outcome of a call, and how many consecutive failures open the breaker now.
// Calls that started before the breaker opened no longer count.
func (b *breaker) leave(now time.Time, trial, failed bool, failures uint32) {
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
	if trial || b.row >= failures {
		b.openedAt = now
		b.opened++
	}
}

// state returns the state at a time.
func (b *breaker) state(now time.Time) hook.BreakerState {
	switch {
	case b.openedAt.IsZero():
		return hook.BreakerClosed
	case b.trial || !now.Before(b.openedAt.Add(b.cooldown)):
		return hook.BreakerTrial
	default:
		return hook.BreakerOpen
	}
}
