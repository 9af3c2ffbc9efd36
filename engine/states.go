package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/faisca/fila/engine/internal/states"
)

// KeyState is why the next message of a fairness key, or the ready messages of a queue, are not delivered, or that they
// are about to be. Package states has the rule: the first state that holds is the state. What holds is found here, on
// request, for everything that shows a state.
//
// A state describes the first ready message of the key: a key whose other messages are leased
// or delayed is ready if it has a ready one.
type KeyState = states.State

// The states, in the order of the rule.
const (
	KeyPaused      = states.Paused      // its deliveries or those of its queue are paused
	KeyGathering   = states.Gathering   // waits for more messages of a batch, until ReadyAt
	KeyHeld        = states.Held        // a throttle key that its next message names is held, until ReadyAt if it waits for nothing else
	KeyThrottled   = states.Throttled   // waits for tokens only, until ReadyAt
	KeyConcurrency = states.Concurrency // waits for a lease to end, perhaps also for tokens
	KeyNoCredit    = states.NoCredit    // a budget does not cover its next message
	KeyOrdered     = states.Ordered     // in an ordered queue: waits for the message that is out
	KeyBusy        = states.Busy        // could deliver, and all consumers of the queue work
	KeyNoConsumer  = states.NoConsumer  // could deliver, and there is no consumer
	KeyReady       = states.Ready       // delivers when its turn comes
	KeyLoading     = states.Loading     // its next messages are being read from the store
	KeyLeased      = states.Leased      // all of its messages are leased, or leased and delayed
	KeyDelayed     = states.Delayed     // all of its messages are delayed
	KeyEmpty       = states.Empty       // it has no messages
)

// keyState returns the state of a key with messages.
func (c *core) keyState(k *fairKey) KeyState {
	q := k.queue
	var f states.Facts
	f.Set(KeyPaused, q.set.PausedOut || k.paused)
	f.Set(KeyGathering, k.gathers())
	f.Set(KeyOrdered, k.waitsForOthers())
	if k.window.Len() > 0 {
		if m := k.window.First(); m.throttles != nil {
			c.refillFor(m)
			f.Set(KeyNoCredit, !c.covered(m))
			blocked, slots, held := c.order.Blocked(&k.Key, m.throttles.of(), m.cost)
			f.Set(KeyHeld, held)
			f.Set(KeyThrottled, blocked && !slots)
			f.Set(KeyConcurrency, slots)
		}
		standing := c.standing(q)
		f.Set(standing.Free(), true)
	}
	f.Set(KeyLoading, k.window.More())
	f.Set(KeyLeased, k.leased > 0)
	f.Set(KeyDelayed, true)
	return f.State()
}

// standing is what the state of a queue depends on beside its keys.
func (c *core) standing(q *queue) states.Queue {
	n := &q.figures.Messages
	s := states.Queue{
		Now: c.now, Paused: q.set.PausedOut, Counted: q.figures.Counted, Total: n.Total, Leased: n.Leased, Retry: n.Retrying, Delayed: n.Delayed,
		Waiting: q.waiters.Len(), Asked: q.askedAt,
	}
	s.Holding, s.Newest = q.consumers.Holding()
	return s
}

// QueueState is the state of a queue, as its ready messages have it.
type QueueState struct {
	State  KeyState
	Reason string // what share of the ready messages is stopped, by what and how long, or why none is delivered; in a sentence
}

// stateReason says why a queue is in a state, whose keys are by state as given; nil: that is not known.
func (c *core) stateReason(q *queue, by *states.ByState, state KeyState) string {
	s, of := c.standing(q), ""
	if name, in, ok := s.Longest(by, state); ok {
		if k := q.keys.get(name); k != nil && c.keyState(k) == in {
			var i KeyInfo
			c.spend(describeUnits - 1)
			c.explainState(k, &i)
			of = i.Reason
		}
	}
	return s.Reason(by, state, of)
}

// explainState sets the state of a key with messages, and what it waits for.
func (c *core) explainState(k *fairKey, i *KeyInfo) {
	if k.window.Len() > 0 {
		i.BlockedBy, i.Lacks = c.blockers(k.window.First()), c.lack(k.window.First())
	}
	if m := k.outOf(); m != nil {
		i.WaitsFor = m.id
	}
	i.State = c.keyState(k)
	switch i.State {
	case KeyGathering:
		k.explainGathering(i)
	case KeyHeld, KeyThrottled, KeyConcurrency:
		c.explainBlocked(i)
	case KeyNoCredit:
		i.Reason, i.ReadyAt = i.Lacks.Reason(), i.Lacks.ReadyAt
	case KeyOrdered:
		c.explainOrdered(k, i)
	default:
		s := c.standing(k.queue)
		i.Reason = s.KeyReason(i.State, k.leased)
	}
}

// explainBlocked describes a key that throttles do not admit. The key delivers again when the
// last of them has room. That time is known only if all of them lack nothing but tokens.
func (c *core) explainBlocked(i *KeyInfo) {
	i.Throttle = i.BlockedBy[0].Throttle
	reasons, slots := make([]string, len(i.BlockedBy)), false
	for n := range i.BlockedBy {
		b := &i.BlockedBy[n]
		reasons[n] = b.Reason()
		for _, at := range []time.Time{b.NextAt, b.HeldUntil} {
			if at.After(i.ReadyAt) {
				i.ReadyAt = at
			}
		}
		slots = slots || b.Concurrency > 0 || b.Reserved
	}
	if slots || i.State == KeyConcurrency {
		i.ReadyAt = time.Time{}
	}
	i.Reason = strings.Join(reasons, "; ")
}

// explainOrdered says what a key in the state ordered waits for.
func (c *core) explainOrdered(k *fairKey, i *KeyInfo) {
	m := k.outOf()
	if m == nil { // the store had several leases of the key
		i.Reason = "a message of it is leased, and the next one goes out after it"
		return
	}
	i.ReadyAt = unix(m.until)
	if m.retrying {
		i.Reason = fmt.Sprintf("message %s comes first, and waits for its next attempt", m.id)
	} else {
		i.Reason = fmt.Sprintf("message %s is leased, and the next one goes out when it has ended, or fails and is tried again", m.id)
	}
}
