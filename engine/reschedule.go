package engine

import (
	"fmt"
	"time"
)

// Reschedule asks for another time at which a message is ready.
type Reschedule struct {
	Queue string
	ID    ID
	Delay time.Duration // from now; 0: at once

	look *lookup
}

// Reschedule makes a message ready after a delay, whether it is ready now or waits
// for another time, and returns when that is. It keeps its attempts and its place.
// A dead message can be put off like any other of its queue. One that is leased
// cannot: its consumer decides. Nor can it be put off for as long as it has to live, or
// longer: it would die waiting. The message is looked up beside the loop; the task
// waits for that.
func (tx *Tx) Reschedule(req *Reschedule) (time.Time, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return time.Time{}, err
	}
	if req.Delay < 0 || req.Delay > durationMax {
		return time.Time{}, fmt.Errorf("%w: a delay is from 0 to %d ms", ErrInvalid, durationMax.Milliseconds())
	}
	l, err := tx.lookedUp(q, &req.look, []ID{req.ID}, false)
	if err != nil {
		return time.Time{}, lookupError(err, "reschedule")
	}
	is := gone
	if l.found[0] != nil {
		is = c.locate(&l.changeLog, l.found[0])
	}
	if is == gone {
		return time.Time{}, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
	}
	if is == leased {
		return time.Time{}, fmt.Errorf("%w: %s is leased; EXTEND, NACK or RELEASE it", ErrInvalid, req.ID)
	}
	if end := l.found[0].m.expires; end != 0 && c.now+int64(req.Delay) >= end {
		return time.Time{}, fmt.Errorf("%w: %s has %d ms to live, its delay must be shorter", ErrInvalid, req.ID, time.Duration(max(end-c.now, 0)).Milliseconds())
	}
	m := c.extract(&l.changeLog, l.found[0])
	if m == nil {
		return time.Time{}, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
	}
	c.out.sync = true
	return time.Unix(0, c.putOff(m, req.Delay)), nil
}

// PreflightReschedule looks up what Reschedule needs, see Preflighter.
func (tx *Tx) PreflightReschedule(req *Reschedule) error {
	return tx.preflightLookup(req.Queue, &req.look, []ID{req.ID}, false)
}
