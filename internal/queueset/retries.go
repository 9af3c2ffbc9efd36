package queueset

import (
	"fmt"
	"math"
	"time"
)

// Retries is how often and when a message is retried: its own in place of the settings of its queue with the same
// names. What is not given follows the queue.
type Retries struct {
	MaxAttempts Optional // failures after which it is dead; 0: it is retried without limit
	Backoff     Optional // before the first retry, in milliseconds
	MaxBackoff  Optional // before any retry, in milliseconds
}

// Check returns an error if a number is out of the bounds of its setting, or the longest backoff below the first.
func (r *Retries) Check() error {
	rows := Rows()
	for _, x := range [...]struct {
		s     Setting
		given Optional
	}{{MaxAttempts, r.MaxAttempts}, {Backoff, r.Backoff}, {MaxBackoff, r.MaxBackoff}} {
		if n, ok := x.given.Value(); ok && !rows[x.s].Allows(n) {
			return fmt.Errorf("%s must be %s %s, not %d", rows[x.s].Token, rows[x.s].Range(), rows[x.s].Unit, n)
		}
	}
	if least, most := r.Backoff.Or(0), r.MaxBackoff.Or(math.MaxUint64); most < least {
		return fmt.Errorf("MAXBACKOFF %d is below BACKOFF %d", most, least)
	}
	return nil
}

// With returns these retries, which may be nil, with what is given of others in their place. One of the two backoffs of others
// takes precedence over the other one of these, which is adapted so that the longest is not below the first. It changes neither.
func (r *Retries) With(others Retries) *Retries {
	if others == (Retries{}) {
		return r
	}
	var of Retries
	if r != nil {
		of = *r
	}
	of.MaxAttempts = others.MaxAttempts.orElse(of.MaxAttempts)
	of.Backoff = others.Backoff.orElse(of.Backoff)
	of.MaxBackoff = others.MaxBackoff.orElse(of.MaxBackoff)
	switch {
	case of.Backoff == 0 || of.MaxBackoff == 0:
	case others.MaxBackoff == 0:
		of.MaxBackoff = max(of.MaxBackoff, of.Backoff)
	case others.Backoff == 0:
		of.Backoff = min(of.Backoff, of.MaxBackoff)
	}
	return &of
}

// Exhausted reports whether a message of a queue with these settings is not retried after so many failures. r is what the
// message has of its own, and may be nil. With a MaxAttempts of 0 it is retried without limit.
func (r *Retries) Exhausted(failed uint32, of *Values) bool {
	most := of[MaxAttempts]
	if r != nil {
		most = r.MaxAttempts.Or(most)
	}
	return most > 0 && uint64(failed) >= most
}

// Delay is when a message of a queue with these settings is retried after the nth failure: after Backoff, doubled with each
// further failure up to MaxBackoff. r is what the message has of its own, and may be nil: its Backoff without a MaxBackoff
// of its own is never cut, as the queue's MaxBackoff then is at least that.
func (r *Retries) Delay(failed uint32, of *Values) time.Duration {
	ms, most := of[Backoff], of[MaxBackoff]
	if r != nil {
		own, ok := r.Backoff.Value()
		if ms = r.Backoff.Or(ms); ok {
			most = max(most, own)
		}
		most = r.MaxBackoff.Or(most)
	}
	for ; failed > 1 && ms < most; failed-- {
		if ms = 2 * ms; ms == 0 {
			break
		}
	}
	return time.Duration(min(ms, most)) * time.Millisecond
}

// Optional is a number that need not be given: one more than the number, or 0 for none.
type Optional uint64

// Some returns a number that is given.
func Some(n uint64) Optional { return Optional(n) + 1 }

// Value returns the number; ok is false if none is given.
func (o Optional) Value() (n uint64, ok bool) { return uint64(o) - 1, o != 0 }

// Or returns the number, or another one if none is given.
func (o Optional) Or(other uint64) uint64 {
	if o == 0 {
		return other
	}
	return uint64(o) - 1
}

func (o Optional) orElse(other Optional) Optional {
	if o == 0 {
		return other
	}
	return o
}
