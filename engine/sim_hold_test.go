package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// Holds in the simulation: no message that names a throttle key is delivered before a hold of it ends, which a reply has
// promised, whatever crashes.

// holdOracle is what clients know of holds.
type holdOracle struct {
	until map[string]time.Time
	asked map[string]int // how many holds of the key were asked for
}

// ask notes that a hold is asked for, and returns what notes its reply.
func (o *holdOracle) ask(key string, until time.Time, opens bool) (replied func(err error)) {
	if o.until == nil {
		o.until, o.asked = map[string]time.Time{}, map[string]int{}
	}
	o.asked[key]++
	n := o.asked[key]
	if opens {
		delete(o.until, key)
	}
	return func(err error) {
		if err == nil && !opens && o.asked[key] == n && until.After(o.until[key]) {
			o.until[key] = until
		}
	}
}

// heldOver finds a delivery of a message that names a throttle key which is held.
func (o *oracle) heldOver(throttles []string, now time.Time) {
	for _, key := range throttles {
		if until := o.holds.until[key]; now.Before(until) {
			o.fail("throttle %s is held until %v, and a message goes out", key, until)
		}
	}
}

// holdThrottle holds a throttle key, or opens it.
func (s *sim) holdThrottle(cl *simClient) {
	key := fmt.Sprintf("t%d", s.rng.IntN(3))
	d := time.Duration(s.rng.IntN(4)*s.rng.IntN(150)) * time.Millisecond
	var replied func(error)
	s.submit(cl, func(tx *Tx) error {
		if !s.replaced {
			replied = s.oracle.holds.ask(key, tx.Now().Add(d), d == 0)
		}
		return tx.Hold(key, d)
	}, func(err error) {
		switch {
		case err != nil && !refusal(err):
			s.oracle.fail("hold: %v", err)
		case replied != nil:
			replied(err)
		}
	})
}

// drawHolds returns throttle keys that a nack holds, of which the message may name none.
func (s *sim) drawHolds() (holds []HoldFor) {
	for i := range 3 {
		if s.rng.IntN(12) == 0 {
			holds = append(holds, HoldFor{Key: fmt.Sprint("t", i), For: time.Duration(1+s.rng.IntN(400)) * time.Millisecond})
		}
	}
	return holds
}

// holdsOf returns what judges the holds of a nack once the engine has decided on it: they are of throttle keys that the
// message names, or the nack is refused and the lease stays. replied then notes its reply, which promises those of the
// hook as well.
func (s *sim) holdsOf(tx *Tx, req *Nack) (judge func(err error) (replied func(err error))) {
	m, nothing := tx.core.leases.byID[req.Receipt.ID], func(error) {}
	if m == nil || m.fence != req.Receipt.Fence {
		return func(error) func(error) { return nothing }
	}
	names := m.throttleKeys()
	if s.mutant == hookHoldIgnored && req.decided != nil {
		req.decided.Holds = nil
	}
	isNamed := !slices.ContainsFunc(req.Holds, func(h HoldFor) bool { return !slices.Contains(names, h.Key) })
	return func(err error) func(error) {
		invalid := errors.Is(err, ErrInvalid)
		if err == nil && !isNamed || invalid && isNamed {
			s.oracle.fail("the message %s names the throttles %v, a nack with the holds %v: %v", req.Receipt, names, req.Holds, err)
		}
		if invalid && (tx.core.leases.byID[m.id] != m || m.fence != req.Receipt.Fence) {
			s.oracle.fail("the lease of %s has ended with a nack that was refused", req.Receipt)
		}
		if err != nil || s.replaced {
			return nothing
		}
		holds := req.Holds
		if req.decided != nil {
			holds = slices.Concat(holds, hookHolds(names, req.attempts))
		}
		var replies []func(error)
		for _, h := range holds {
			replies = append(replies, s.oracle.holds.ask(h.Key, tx.Now().Add(h.For), false))
		}
		return func(err error) {
			for _, replied := range replies {
				replied(err)
			}
		}
	}
}

// cutsOf separates the limits of throttles that a nack holds: they are cut even if the message is dead.
func cutsOf(limits []limitBefore, holds []HoldFor) (held, others []limitBefore) {
	for _, l := range limits {
		if slices.ContainsFunc(holds, func(h HoldFor) bool { return h.Key == l.name }) {
			held = append(held, l)
		} else {
			others = append(others, l)
		}
	}
	return held, others
}

// loseHold reports whether a mutant does not write a hold.
func (s *crashStore) loseHold(r storage.Record) bool {
	return s.mutant == holdNotWritten && r.Family == storage.State && bytes.HasPrefix(r.Key, storage.AppendStateKey(nil, storage.StateHold)) && s.rng.IntN(2) == 0
}

// over forgets the holds that are over by the clock of a node that ends: the next one may have an earlier clock.
func (o *holdOracle) over(now time.Time) {
	maps.DeleteFunc(o.until, func(_ string, until time.Time) bool { return !now.Before(until) })
}
