package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

// Holds of throttles, and keys that gather, in the simulation of the scheduler and in its records.

// isHeld reports whether the throttle is held.
func (t *schedThrottle) isHeld() bool { return t.sim.now < t.heldUntil }

// hold holds a throttle, or opens it.
func (t *schedThrottle) hold(d time.Duration) {
	t.sim.call(func(tx *Tx) error {
		t.appears()
		if d == 0 {
			t.heldUntil = 0
		}
		err := tx.Hold(t.name, d)
		t.heldFor(tx, d)
		return err
	})
}

// appears prepares for a hold of a throttle without limits, which is in the throttle sets that name it while it is held.
func (t *schedThrottle) appears() {
	if t.rate == 0 && t.conc == 0 {
		t.moves()
	}
}

// holdEnds prepares for the end of a hold until a time.
func (t *schedThrottle) holdEnds(at int64) {
	if t.isHeld() && t.heldUntil <= at {
		t.appears()
	}
}

// heldFor records that a hold was asked for. The later end counts, and the engine says when that is.
func (t *schedThrottle) heldFor(tx *Tx, d time.Duration) {
	info, _ := tx.Throttle(t.name)
	is, least := int64(0), max(t.heldUntil, t.sim.now+int64(d))
	if !info.HeldUntil.IsZero() {
		is = info.HeldUntil.UnixNano()
	}
	if d > 0 && (is < least || is >= least+int64(time.Millisecond)) || d == 0 && is != 0 {
		t.sim.fault("throttle %s is held until %d, want %d", t.name, is, least)
	}
	t.heldUntil = is
}

// schedHold is what a nack holds; nil: nothing.
type schedHold struct {
	t *schedThrottle
	d time.Duration
}

// holdOf decides what the nack of a message holds.
func (s *schedSim) holdOf(m *schedMessage) *schedHold {
	if !s.holds || len(m.class.throttles) == 0 || s.rng.IntN(20) > 0 {
		return nil
	}
	return &schedHold{m.class.throttles[s.rng.IntN(len(m.class.throttles))], time.Duration(1+s.rng.IntN(3000)) * time.Millisecond}
}

func (h *schedHold) holds() []HoldFor {
	if h == nil {
		return nil
	}
	h.t.appears()
	return []HoldFor{{Key: h.t.name, For: h.d}}
}

func (h *schedHold) began(tx *Tx) {
	if h != nil {
		h.t.heldFor(tx, h.d)
	}
}

// randomHolds has throttles be held from time to time, in a third of the set-ups.
func (u *setUp) randomHolds(seed uint64, shared []*schedThrottle) {
	r := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // reproducible on purpose
	if r.IntN(3) > 0 {
		return
	}
	u.holds = true
	u.changes = append(u.changes, "holds")
	for range 1 + r.IntN(2) {
		t := shared[r.IntN(len(shared))]
		u.again(time.Duration((5+30*r.Float64())*1e9), func() {
			t.hold(time.Duration(r.IntN(4)*r.IntN(1500)) * time.Millisecond)
		})
	}
}

// schedGather is what is known of when a key gathers messages. Between the bounds, it may.
type schedGather struct {
	since  int64 // it has had ready messages since then
	latest int64 // one has become ready, for the last time
	waited bool  // one that was delivered before has become ready: the key counts as waited until a lease
}

// gets records that a message becomes ready.
func (g *schedGather) gets(m *schedMessage) {
	now := m.key.queue.sim.now
	if len(m.key.ready) == 0 {
		g.since = now
	}
	g.latest, g.waited = now, g.waited || m.tries > 0
}

// loses records that a message is no longer ready. A lease has the key judged anew.
func (g *schedGather) loses(k *schedKey, leased bool) {
	switch {
	case len(k.ready) == 0:
		g.waited = false
	case k.ready[0].tries > 0:
		g.waited = true
	case leased:
		g.waited = false
	}
}

// full reports whether the key certainly does not gather.
func (k *schedKey) full() bool {
	q, g := k.queue, &k.gather
	return q.batch == 0 || len(k.ready) >= q.batch || g.waited && !q.sim.onDisk || q.sim.now >= g.latest+q.wait+tokenLate // ids are later than the time by as much
}

// gathers returns for how long the key certainly gathers still; at most 0: it may not.
func (k *schedKey) gathers() time.Duration {
	q, first := k.queue, k.gather.since
	if q.batch == 0 || len(k.ready) >= q.batch || k.gather.waited {
		return 0
	}
	for _, m := range k.ready {
		if first = min(first, m.sent); m.tries > 0 {
			return 0
		}
	}
	return time.Duration(first + q.wait - int64(time.Millisecond) - q.sim.now)
}

// mayGo finds a delivery of a key that certainly gathers.
func (k *schedKey) mayGo() {
	if left := k.gathers(); left > 0 {
		k.queue.sim.fault("key %s of %s has %d messages of a batch of %d and waits for another %v, and a message goes out", k.name, k.queue.name, len(k.ready), k.queue.batch, left)
	}
}

// randomGathering has the keys of some queues gather, in a quarter of the set-ups.
func (u *setUp) randomGathering(seed uint64, q *schedQueue) {
	r := rand.New(rand.NewPCG(seed, 12)) //nolint:gosec // reproducible on purpose
	if r.IntN(4) > 0 || len(u.queues)%2 == 0 {
		return
	}
	q.batch, q.wait = 2+r.IntN(5), int64(time.Duration(100+r.IntN(5000))*time.Millisecond)
	u.gathers = true
	u.changes = append(u.changes, fmt.Sprintf("%s gathers %d for %v", q.name, q.batch, time.Duration(q.wait)))
	u.call(func(tx *Tx) error {
		return tx.AlterQueue(q.name, QueueOptions{Given: queueset.Given{queueset.Batch: uint64(q.batch), queueset.BatchWait: millis(time.Duration(q.wait))}})
	})
}
