package dispatch

import "time"

// A hold closes a throttle key until a time: no message that names the key is delivered before then, whether the key
// has limits or not. A throttle that is held has no room, as one without a free slot, so all that is decided about full
// throttles holds for it. A key without limits has a throttle without limits for as long as it is held. Throttle sets that
// have looked it up in vain look again, which Order.added tells them; no other set becomes stale.

// Hold closes a throttle key until Release. until is when that will be, in Unix nanoseconds.
func (o *Order) Hold(key string, until int64) {
	t := o.find(key)
	if t == nil {
		t = o.newThrottle(key, &unlimited)
		o.enroll(&o.roster, t)
		t.inUse = o.takeUnset(key)
		o.added++
	}
	t.grow(o.now)
	o.named(t)
	t.heldUntil = until
	o.list(t)
	for _, saver := range t.savers {
		o.list(saver)
	}
	for _, cl := range t.claims { // what they have reserved may be kept for too long
		for i := range cl.flows {
			o.list(cl.flows[i].throttle)
		}
	}
}

// Release opens a throttle key that is held.
func (o *Order) Release(key string) {
	t := o.throttles[key]
	if t == nil || t.heldUntil == 0 {
		return
	}
	t.heldUntil = 0
	if t.set == &unlimited {
		o.drop(t)
		return
	}
	o.list(t)
	o.lookAtUse(t)
}

// heldTime is until when a throttle is held, the zero time if it is not.
func (t *throttle) heldTime() time.Time {
	if t.heldUntil == 0 {
		return time.Time{}
	}
	return time.Unix(0, t.heldUntil)
}
