package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/internal/errtext"
)

// KeyState is why the next message of a fairness key, or the ready messages of a queue, are not delivered, or that they
// are about to be. Package figures has the rule: the first state that holds is the state. What holds is found here, on
// request, for everything that shows a state.
//
// A state describes the first ready message of the key: a key whose other messages are leased
// or delayed is ready if it has a ready one.
type KeyState = figures.State

// The states, in the order of the rule.
const (
	KeyPaused      = figures.Paused      // its deliveries or those of its queue are paused
	KeyGathering   = figures.Gathering   // waits for more messages of a batch, until ReadyAt
	KeyHeld        = figures.Held        // a throttle key that its next message names is held, until ReadyAt if it waits for nothing else
	KeyThrottled   = figures.Throttled   // waits for tokens only, until ReadyAt
	KeyConcurrency = figures.Concurrency // waits for a lease to end, perhaps also for tokens
	KeyNoCredit    = figures.NoCredit    // a budget does not cover its next message
	KeyOrdered     = figures.Ordered     // in an ordered queue: waits for the message that is out
	KeyBusy        = figures.Busy        // could deliver, and all consumers of the queue work
	KeyNoConsumer  = figures.NoConsumer  // could deliver, and there is no consumer
	KeyReady       = figures.Ready       // delivers when its turn comes
	KeyLoading     = figures.Loading     // its next messages are being read from the store
	KeyLeased      = figures.Leased      // all of its messages are leased, or leased and delayed
	KeyDelayed     = figures.Delayed     // all of its messages are delayed
	KeyEmpty       = figures.Empty       // it has no messages
)

// keyState returns the state of a key with messages.
func (c *core) keyState(k *fairKey) KeyState {
	q := k.queue
	var f figures.Facts
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
		f.Set(c.freeState(q), true)
	}
	f.Set(KeyLoading, k.window.More())
	f.Set(KeyLeased, k.leased > 0)
	f.Set(KeyDelayed, true)
	return f.State()
}

// pollTime is for how long a consumer counts that has asked for messages and waits no more: those that ask again and
// again do so more often.
const pollTime = int64(time.Minute)

// freeState returns the state of a message of a queue that nothing stops. The next turn delivers it if a consumer waits.
func (c *core) freeState(q *queue) KeyState {
	switch {
	case q.waiters.Len() > 0:
		return KeyReady
	case q.figures.Leased > q.figures.Retrying:
		return KeyBusy
	case q.askedAt != 0 && c.now-q.askedAt < pollTime:
		return KeyReady
	default:
		return KeyNoConsumer
	}
}

// freeReason says why a message of a queue that nothing stops is where it is.
func (c *core) freeReason(q *queue) string {
	switch c.freeState(q) {
	case KeyBusy:
		n, newest := q.consumers.Holding()
		hold := "hold"
		if n == 1 {
			hold = "holds"
		}
		return fmt.Sprintf("%s %s %s of the queue, and none waits; the shortest is out for %s",
			errtext.Amount(n, "consumer"), hold, errtext.Amount(q.figures.Leased-q.figures.Retrying, "lease"), c.since(newest))
	case KeyNoConsumer:
		return "no consumer holds a lease of the queue, waits, or has asked within a minute"
	default:
		return "consumers ask"
	}
}

// QueueState is the state of a queue, as its ready messages have it.
type QueueState struct {
	State  KeyState
	Reason string // what share of the ready messages is stopped, by what and how long, or why none is delivered; in a sentence
}

// queueFacts returns the states of a queue whose keys are by state as given; nil: that is not known. They may be of a
// moment ago: a pause, consumers, and that no message is ready, are of now.
func (c *core) queueFacts(q *queue, by *figures.ByState) (f figures.Facts) {
	n, known := q.figures.Messages, int64(0)
	if by != nil {
		_, known = by.Stopped()
	}
	switch {
	case q.figures.Counted && n.Total <= n.Leased+n.Delayed: // none is ready
	case known > 0:
		f = by.Facts(c.freeState(q))
	case n.Total > n.Leased+n.Delayed:
		f.Set(c.freeState(q), true)
	}
	f.Set(KeyPaused, q.set.PausedOut)
	f.Set(KeyLeased, n.Leased > n.Retrying)
	f.Set(KeyDelayed, n.Delayed+n.Retrying > 0)
	return f
}

// stateReason says why a queue is in a state.
func (c *core) stateReason(q *queue, by *figures.ByState, state KeyState) string {
	switch n := q.figures.Messages; {
	case state == KeyPaused && q.set.PausedOut:
		return pausedReason
	case state == KeyLoading:
		return loadingReason
	case state == KeyLeased:
		return leasedReason(n.Leased - n.Retrying)
	case state == KeyDelayed:
		return delayedReason
	case state == KeyEmpty:
		return emptyReason
	default:
		return c.readyReason(q, by, state)
	}
}

// readyReason says what share of the ready messages of a queue is stopped, by what and how long, and why the others are
// where they are.
func (c *core) readyReason(q *queue, by *figures.ByState, state KeyState) string {
	stopped, ready := int64(0), int64(0)
	if by != nil {
		stopped, ready = by.Stopped()
	}
	if stopped == 0 {
		return c.freeReason(q)
	}
	var parts []string
	longest := state
	for s := range by {
		in, at := &by[s], KeyState(s)
		if at.Stops() == "" || in.Ready == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d by %s (%s)", in.Ready, at.Stops(), errtext.Amount(in.Keys, "key")))
		if longest.Stops() == "" {
			longest = at
		}
	}
	reason := fmt.Sprintf("%s of %s are stopped: %s", share(stopped, ready), errtext.Amount(ready, "ready message"), strings.Join(parts, ", "))
	if in := &by[longest]; in.Since != 0 {
		reason += fmt.Sprintf("; key %.80q waits longest, for %s", in.Key, c.since(in.Since))
		if k := q.keys.get(in.Key); k != nil && c.keyState(k) == longest {
			var i KeyInfo
			c.spend(describeUnits - 1)
			c.explainState(k, &i)
			reason += ": " + i.Reason
		}
	}
	if stopped < ready {
		reason += "; of the others, " + c.freeReason(q)
	}
	return reason
}

// share says which part of a number of messages, at least one, is stopped.
func share(stopped, of int64) string {
	switch percent := 100 * stopped / of; {
	case stopped == of:
		return "all"
	case percent == 0:
		return "less than 1 %"
	default:
		return fmt.Sprintf("%d %%", percent)
	}
}

// since says for how long something holds that began at a time.
func (c *core) since(at int64) string {
	if d := time.Duration(c.now - at).Truncate(time.Second); d > 0 {
		return d.String()
	}
	return "less than a second"
}

// What is said of states that need no figures.
const (
	pausedReason  = "the deliveries of its queue are paused, FILA.QUEUE RESUME lets them go on"
	loadingReason = "its next messages are being read from disk"
	delayedReason = "its messages wait for their time"
	emptyReason   = "it has no messages"
)

func leasedReason(n int64) string {
	return fmt.Sprintf("consumers hold %d of its messages, and there are no others to deliver", n)
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
	case KeyPaused:
		i.Reason = "the key is paused, FILA.KEY RESUME lets it go on"
		if k.queue.set.PausedOut {
			i.Reason = pausedReason
		}
	case KeyGathering:
		k.explainGathering(i)
	case KeyHeld, KeyThrottled, KeyConcurrency:
		c.explainBlocked(i)
	case KeyNoCredit:
		i.Reason, i.ReadyAt = i.Lacks.reason(), i.Lacks.ReadyAt
	case KeyOrdered:
		c.explainOrdered(k, i)
	case KeyBusy, KeyNoConsumer:
		i.Reason = "it could deliver: " + c.freeReason(k.queue)
	case KeyReady:
		i.Reason = "it delivers when its turn comes"
	case KeyLoading:
		i.Reason = loadingReason
	case KeyLeased:
		i.Reason = leasedReason(k.leased)
	case KeyDelayed:
		i.Reason = delayedReason
	case KeyEmpty:
		i.Reason = emptyReason
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
