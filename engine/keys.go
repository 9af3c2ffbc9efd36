package engine

import (
	"cmp"
	"time"

	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/internal/states"
)

// KeyInfo describes a fairness key at one moment. Counters begin at zero at a start of the
// broker and survive times without messages (idle-key statistics).
type KeyInfo struct {
	Key                    string
	Depth, Leased, Delayed int64 // messages; Depth counts those of any status
	Weight                 uint32
	MaxDepth               uint64 // messages that it may have, in place of the queue's KeyMaxDepth; 0: that
	Deficit                int64  // credit left, in units of cost
	Delivered              uint64 // deliveries
	// Share is the part of the cost that the queue has delivered in about the last minute,
	// FairShare the part of the weights of its active keys. They agree in the long run if no
	// throttle stops the key and it always has messages.
	Share, FairShare  float64
	State             KeyState
	Reason            string        // why it is in its state, in words
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
	if err := cmp.Or(tx.core.cfg.Limits.CheckKey(key), tx.afford(1)); err != nil { // setFirstDue may spend much
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
	set, pinned := q.settings.Of(key)
	idle := q.figures.Idle(uint64(keytable.HashOf(key)), key)
	return KeyInfo{
		Key: key, Weight: max(set.Weight, 1), MaxDepth: set.MaxDepth, Paused: set.Paused, Pinned: pinned, State: KeyEmpty, Reason: states.EmptyReason,
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
	if k.pinned {
		set, _ := k.queue.settings.Of(k.name)
		i.MaxDepth = set.MaxDepth
	}
	i.Share, i.FairShare = k.shares(c.now)
	tally := k.Key.Tally(c.now)
	i.Admitted, i.Refused, i.Waited = tally.Admitted, tally.Refused, time.Duration(tally.Waited)
	if k.window.Len() > 0 {
		i.OldestAt = k.window.First().id.Time()
	}
	c.explainState(k, &i)
	return i
}

// Survey asks for what the keys of a queue say of it. The unexported fields are the progress of the call.
type Survey struct {
	Queue string

	cursor  uint64
	epoch   uint64
	started bool
	oldest  int64 // the oldest so far, Unix nanoseconds; 0: none
	by      states.ByState
}

// Survey returns the state of a queue, and the enqueue time of the oldest of the first messages of its keys, zero if it
// has no ready message in memory. Messages that are not in memory, such as the backlogs of keys that are loading, are not
// considered for that. It returns ErrWouldBlock if it continues in a later turn, as it does for many keys. ErrNoQueue is
// its only refusal.
func (tx *Tx) Survey(req *Survey) (state QueueState, oldest time.Time, err error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return state, oldest, err
	}
	if !req.started || req.epoch != c.epoch {
		*req = Survey{Queue: req.Queue, started: true, epoch: c.epoch}
	}
	n, yields := 0, false
	req.cursor = q.roster.WalkWhile(req.cursor, func(k *fairKey) bool {
		if yields = n%sweepKeysPerUnit == 0 && !tx.more(); yields {
			return false
		}
		n++
		if k.window.Len() > 0 {
			if at := k.window.First().id.Nanos(); req.oldest == 0 || at < req.oldest {
				req.oldest = at
			}
		}
		s := c.sample(k)
		req.by[s.State].Add(1, s.Ready, s.Since, s.Name)
		return true
	})
	if yields {
		return state, oldest, tx.yield()
	}
	req.started = false
	if req.oldest != 0 {
		oldest = unix(req.oldest)
	}
	standing := c.standing(q)
	facts := standing.Facts(&req.by)
	return QueueState{facts.State(), c.stateReason(q, &req.by, facts.State())}, oldest, nil
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
