package engine

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
)

// States of a fairness key, as FILA.KEY and FILA.EXPLAIN report them. They are computed on
// request from what holds now; keyState tests for them in this order: paused, ordered, throttled or
// no_credit, concurrency, no_consumer, ready, loading, leased, delayed. A key without messages is empty.
//
// A state describes the first ready message of the key: a key whose other messages are leased
// or delayed is ready if it has a ready one.
const (
	KeyReady       = "ready"       // delivers when its turn comes
	KeyNoConsumer  = "no_consumer" // could deliver, and no consumer waits
	KeyThrottled   = "throttled"   // waits for tokens only, until ReadyAt
	KeyConcurrency = "concurrency" // waits for a lease to end, perhaps also for tokens
	KeyNoCredit    = "no_credit"   // a budget does not cover its next message
	KeyPaused      = "paused"      // its deliveries or those of its queue are paused
	KeyLoading     = "loading"     // its next messages are being read from the store
	KeyLeased      = "leased"      // all of its messages are leased, or leased and delayed
	KeyDelayed     = "delayed"     // all of its messages are delayed
	KeyOrdered     = "ordered"     // in an ordered queue: waits for the message that is out
	KeyEmpty       = "empty"       // it has no messages
)

// KeyInfo describes a fairness key at one moment. Counters begin at zero at a start of the
// broker and survive times without messages (idle-key statistics).
type KeyInfo struct {
	Key                    string
	Depth, Leased, Delayed int64 // messages; Depth counts those of any status
	Weight                 uint32
	Deficit                int64  // credit left, in units of cost
	Delivered              uint64 // deliveries
	// Share is the part of the cost that the queue has delivered in about the last minute,
	// FairShare the part of the weights of its active keys. They agree in the long run if no
	// throttle stops the key and it always has messages.
	Share, FairShare  float64
	State, Reason     string        // a Key constant; the reason in words
	ReadyAt           time.Time     // when it delivers again, if known; else zero
	OldestAt          time.Time     // enqueue time of its first ready message; zero if that is not in memory
	Throttle          string        // the first of BlockedBy, or empty
	BlockedBy         []Blocker     // throttles that do not admit its next message now
	Admitted, Refused uint64        // admissions by throttles; times that a throttle stopped its class
	Waited            time.Duration // for throttles
	WaitsFor          ID            // the message of an ordered queue that is out; zero: none
	Lacks             *Lack         // the first budget that does not cover its next message; nil: all do
	Paused, Pinned    bool          // Pinned: it has settings of its own, which last until they are reset
	Counting          bool          // the messages are still being counted after a start: Depth and Delayed are too low
}

// Key describes a fairness key, which need not have messages. Errors: ErrNoQueue, ErrInvalid,
// ErrTooBig.
func (tx *Tx) Key(queue, key string) (KeyInfo, error) {
	q, err := tx.core.queueNamed(queue)
	if err != nil {
		return KeyInfo{}, err
	}
	if err := cmp.Or(tx.core.checkKey(key), tx.afford(1)); err != nil { // setFirstDue may spend much
		return KeyInfo{}, err
	}
	return tx.core.keyInfo(q, key), nil
}

// keyInfo describes a key of a queue, with or without messages.
func (c *core) keyInfo(q *queue, key string) KeyInfo {
	if k := q.keys.get(key); k != nil {
		i := c.describe(k)
		c.setFirstDue(q, &i)
		return i
	}
	// A key without messages is not in memory. Its settings are the queue's, its counters are
	// those that the queue has saved for a bounded number of such keys.
	set, pinned := q.settings[key]
	idle := q.figures.Idle(uint64(hashName(key)), key)
	return KeyInfo{
		Key: key, Weight: max(set.Weight, 1), Paused: set.Paused, Pinned: pinned, State: KeyEmpty, Reason: "it has no messages",
		Delivered: idle.Delivered, Admitted: idle.Admitted, Refused: idle.Refused, Waited: idle.Waited,
	}
}

// describe describes a key with messages, except for the due time of a delayed one, which
// setFirstDue adds.
func (c *core) describe(k *fairKey) KeyInfo {
	i := KeyInfo{
		Key: k.name, Depth: max(k.total, 0), Leased: k.leased - k.retryingCount(), Delayed: max(k.delayed, 0) + k.retryingCount(), Weight: k.weight, Deficit: k.Deficit(),
		Delivered: k.stats.Delivered,
		Paused:    k.paused, Pinned: k.pinned, Counting: !k.counted,
	}
	i.Share, i.FairShare = c.shares(k)
	tally := k.Key.Tally(c.now)
	i.Admitted, i.Refused, i.Waited = tally.Admitted, tally.Refused, time.Duration(tally.Waited)
	if k.window.Len() > 0 {
		i.OldestAt = idTime(k.window.First().id)
	}
	c.explainState(k, &i)
	return i
}

// shares returns the part of the cost that the queue has delivered in about the last minute, and
// the part of the weights of its active keys; see KeyInfo.
func (c *core) shares(k *fairKey) (share, fair float64) {
	return k.queue.figures.Share(&k.stats, c.now), k.Key.Share()
}

// Oldest asks for the enqueue time of the oldest of the first messages of a queue's keys.
// Messages that are not in memory, such as the backlogs of keys that are loading, are not
// considered. The other fields are the progress of the call.
type Oldest struct {
	Queue string

	cursor  uint64
	epoch   uint64
	at      int64 // the oldest so far, Unix nanoseconds; 0: none
	started bool
}

// oldestKeysPerUnit is the number of keys that Oldest visits for one unit of work: it looks at
// one field of each.
const oldestKeysPerUnit = 16

// Oldest returns the time, zero if the queue has no ready message in memory. It returns
// ErrWouldBlock if it continues in a later turn, as it does for many keys. ErrNoQueue is its
// only refusal.
func (tx *Tx) Oldest(req *Oldest) (time.Time, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return time.Time{}, err
	}
	if !req.started || req.epoch != c.epoch {
		*req = Oldest{Queue: req.Queue, started: true, epoch: c.epoch}
	}
	n, yields := 0, false
	req.cursor = q.roster.WalkWhile(req.cursor, func(k *fairKey) bool {
		if yields = n%oldestKeysPerUnit == 0 && !tx.more(); yields {
			return false
		}
		n++
		if k.window.Len() > 0 {
			if at := idNanos(k.window.First().id); req.at == 0 || at < req.at {
				req.at = at
			}
		}
		return true
	})
	if yields {
		return time.Time{}, tx.yield()
	}
	req.started = false
	if req.at == 0 {
		return time.Time{}, nil
	}
	return unix(req.at), nil
}

// keyState is the state of a key with messages, an index of KeyStates.
type keyState uint8

const (
	stateReady keyState = iota
	stateNoConsumer
	stateThrottled
	stateConcurrency
	statePaused
	stateLoading
	stateLeased
	stateDelayed
	stateNoCredit
	stateOrdered
)

// KeyStates are the states of a key with messages, in the order of QueueFigures.States.
func KeyStates() [figures.KeyStates]string {
	return [...]string{KeyReady, KeyNoConsumer, KeyThrottled, KeyConcurrency, KeyPaused, KeyLoading, KeyLeased, KeyDelayed, KeyNoCredit, KeyOrdered}
}

// keyState returns the state of a key with messages.
func (c *core) keyState(k *fairKey) keyState {
	q := k.queue
	if q.set.PausedOut || k.paused {
		return statePaused
	}
	if k.waitsForOthers() {
		return stateOrdered
	}
	if k.window.Len() > 0 {
		if k.window.First().throttles != nil {
			if c.refillFor(k.window.First()); !c.covered(k.window.First()) {
				return stateNoCredit
			}
			switch blocked, slots := c.order.Blocked(&k.Key, k.window.First().throttles.of(), k.window.First().cost); {
			case slots:
				return stateConcurrency
			case blocked:
				return stateThrottled
			}
		}
		if q.waiters.Len() == 0 {
			return stateNoConsumer
		}
		return stateReady
	}
	switch {
	case k.window.More():
		return stateLoading
	case k.leased > 0:
		return stateLeased
	default:
		return stateDelayed
	}
}

// whole formats the whole tokens of a bucket.
func whole(tokens float64) string { return plain(math.Floor(tokens + dispatch.TokenSlack)) }

// slots says how many leases a throttle allows that has no free slot.
func slotsReason(b *Blocker) string {
	if b.Limit > 0 && uint64(b.Limit) < b.Concurrency {
		return fmt.Sprintf("throttle %q allows %d of %d leases at a time now", b.Throttle, b.Limit, b.Concurrency)
	}
	return fmt.Sprintf("throttle %q has %d of %d leases in use", b.Throttle, b.InUse, b.Concurrency)
}

// reason says in half a sentence what the throttle lacks.
func blockerReason(b *Blocker) string {
	switch {
	case b.Reserved:
		return fmt.Sprintf("what throttle %q has free is kept for a message that needs several throttles", b.Throttle)
	case b.Concurrency > 0 && b.Rate > 0 && b.Need > 0:
		return fmt.Sprintf("%s, and has %s tokens, the message takes %d", slotsReason(b), whole(b.Tokens), b.Need)
	case b.Concurrency > 0 && b.Rate > 0:
		return slotsReason(b) + ", and has no token"
	case b.Concurrency > 0:
		return slotsReason(b)
	case b.Saved:
		return fmt.Sprintf("throttle %q saves its tokens for a message that comes before", b.Throttle)
	case b.Need > int64(b.Burst):
		return fmt.Sprintf("throttle %q has %s tokens, the message takes %d and goes out when the bucket of %d is full, it gets %s a second",
			b.Throttle, whole(b.Tokens), b.Need, b.Burst, plain(b.Rate))
	case b.Need > 0:
		return fmt.Sprintf("throttle %q has %s tokens, the message takes %d, it gets %s a second", b.Throttle, whole(b.Tokens), b.Need, plain(b.Rate))
	default:
		return fmt.Sprintf("throttle %q has no token, it gets %s a second", b.Throttle, plain(b.Rate))
	}
}

// explainState sets the state of a key with messages, and what it waits for.
func (c *core) explainState(k *fairKey, i *KeyInfo) {
	if k.window.Len() > 0 {
		i.BlockedBy, i.Lacks = c.blockers(k.window.First()), c.lack(k.window.First())
	}
	if m := k.outOf(); m != nil {
		i.WaitsFor = m.id
	}
	state := c.keyState(k)
	i.State = KeyStates()[state]
	switch state {
	case statePaused:
		i.Reason = "the key is paused, FILA.KEY RESUME lets it go on"
		if k.queue.set.PausedOut {
			i.Reason = "the deliveries of its queue are paused, FILA.QUEUE RESUME lets them go on"
		}
	case stateThrottled, stateConcurrency:
		c.explainBlocked(i)
	case stateNoCredit:
		i.Reason, i.ReadyAt = i.Lacks.reason(), i.Lacks.ReadyAt
	case stateNoConsumer:
		i.Reason = "it could deliver, and no consumer waits"
	case stateReady:
		i.Reason = "it delivers when its turn comes"
	case stateLoading:
		i.Reason = "its next messages are being read from disk"
	case stateLeased:
		i.Reason = fmt.Sprintf("consumers hold %d of its messages, and there are no others to deliver", k.leased)
	case stateOrdered:
		c.explainOrdered(k, i)
	case stateDelayed:
		i.Reason = "its messages wait for their time"
	}
}

// explainBlocked describes a key that throttles do not admit. The key delivers again when the
// last of them has room. That time is known only if all of them lack nothing but tokens.
func (c *core) explainBlocked(i *KeyInfo) {
	i.Throttle = i.BlockedBy[0].Throttle
	reasons := make([]string, len(i.BlockedBy))
	for n := range i.BlockedBy {
		b := &i.BlockedBy[n]
		reasons[n] = blockerReason(b)
		if b.NextAt.After(i.ReadyAt) {
			i.ReadyAt = b.NextAt
		}
	}
	if i.State == KeyConcurrency {
		i.ReadyAt = time.Time{}
	}
	i.Reason = strings.Join(reasons, "; ")
}

// Keys asks for a page of the fairness keys of a queue that have messages. The unexported
// fields are the progress of the call.
type Keys struct {
	Queue  string
	Cursor uint64            // next cursor of the previous page; 0: the first page
	Count  int               // keys to look at, whether they match or not
	Match  func(string) bool // selects keys by name

	cursor  uint64
	epoch   uint64
	left    int
	list    []*KeyInfo // pointers, so that a list of 10,000 does not copy the entries as it grows
	started bool
}

// describeUnits is the work of describing a key, in units: its fields are on several cache
// lines, and texts are made.
const describeUnits = 4

// Keys returns a page of keys in the order of their creation, and the cursor of the next page,
// 0 at the end. A key that has messages throughout a listing is listed exactly once. It returns
// ErrWouldBlock if it continues in a later turn; a large page thus describes its keys at
// different times. ErrNoQueue is its only refusal.
func (tx *Tx) Keys(req *Keys) (next uint64, list []*KeyInfo, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return 0, nil, err
	}
	if !req.started || req.epoch != c.epoch {
		req.cursor, req.left, req.list, req.started, req.epoch = req.Cursor, req.Count, nil, true, c.epoch
	}
	yields := false
	req.cursor = q.roster.WalkWhile(req.cursor, func(k *fairKey) bool {
		if req.left == 0 {
			return false
		}
		if yields = !tx.more(); yields {
			return false
		}
		req.left--
		if req.Match(k.name) {
			c.spend(describeUnits - 1)
			req.list = append(req.list, new(c.describe(k)))
		}
		return true
	})
	if yields {
		return 0, nil, tx.yield()
	}
	req.started = false
	c.setFirstDue(q, req.list...)
	return req.cursor, req.list, nil
}

// TopKeys asks for the first fairness keys of a queue in an order. The unexported fields are the
// progress of the call.
type TopKeys struct {
	Queue string
	By    Order
	Count int               // at most figures.TopKeysMax are known
	Match func(string) bool // selects keys by name; nil: all

	list  []*KeyInfo
	at    int
	epoch uint64
}

// TopKeys describes the keys, as they are now, in the order that the last sweep has found; keys
// that have no messages any more are left out. It returns ErrWouldBlock until a sweep is recent
// enough. It is refused in a transaction. ErrNoQueue is its only other refusal.
func (tx *Tx) TopKeys(req *TopKeys) ([]*KeyInfo, error) {
	c := tx.core
	if tx.atomic {
		return nil, errWaits
	}
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, err
	}
	if err := tx.awaitSweep(); err != nil {
		return nil, err
	}
	swept := q.figures.Swept()
	if swept == nil {
		return nil, nil
	}
	if req.epoch != c.epoch {
		req.list, req.at, req.epoch = nil, 0, c.epoch
	}
	for top := swept.Top[req.By]; req.at < len(top) && len(req.list) < req.Count; req.at++ {
		if !tx.more() {
			return nil, tx.yield()
		}
		if req.Match != nil && !req.Match(top[req.at]) {
			continue
		}
		if k := q.keys.get(top[req.at]); k != nil {
			c.spend(describeUnits - 1)
			req.list = append(req.list, new(c.describe(k)))
		}
	}
	list := req.list
	req.list, req.at, req.epoch = nil, 0, 0
	c.setFirstDue(q, list...)
	return list, nil
}

// setFirstDue sets ReadyAt of those keys that are delayed to the time of their first delayed
// message, as far as the head knows it. It inspects the entries of the queue in the head,
// at most twice DueWindow, so one turn can afford it.
func (c *core) setFirstDue(q *queue, keys ...*KeyInfo) {
	wanted := map[string]*KeyInfo{}
	for _, i := range keys {
		if i.State == KeyDelayed {
			wanted[i.Key] = i
		}
	}
	if len(wanted) == 0 {
		return
	}
	n := 0
	for d := c.delayed.index.OfQueue(q.no); d != nil; d = d.Next() {
		n++
		if i := wanted[d.Key.Key]; i != nil && (i.ReadyAt.IsZero() || d.At < i.ReadyAt.UnixNano()) {
			i.ReadyAt = unix(d.At)
		}
	}
	c.spend(n / dueLooks)
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
