package engine

import (
	"fmt"
	"strings"
	"time"
)

// States of a fairness key.
const (
	KeyReady       = "ready"       // whoever asks next gets it in its turn
	KeyNoConsumer  = "no_consumer" // it could deliver, and nobody asks
	KeyThrottled   = "throttled"   // waits for tokens only, until ReadyAt
	KeyConcurrency = "concurrency" // waits for the end of a lease, perhaps also for tokens
	KeyPaused      = "paused"
	KeyLoading     = "loading" // its next messages are being read
	KeyLeased      = "leased"  // all of its messages are with consumers
	KeyDelayed     = "delayed" // all of its messages wait for their time
	KeyEmpty       = "empty"
)

// KeyInfo describes a fairness key.
type KeyInfo struct {
	Key                    string
	Depth, Leased, Delayed int64 // Depth: of any status
	Weight                 uint32
	Deficit                int64   // DRR credit left
	Delivered              uint64  // since the broker has started
	Share, FairShare       float64 // of the queue's deliveries (by cost) in the last minute; by weight among keys that have something
	State, Reason          string
	ReadyAt                time.Time // when it goes on, if that is known
	OldestAt               time.Time // enqueue of its first ready message, as far as that is in memory
	Throttle               string    // the first of BlockedBy
	BlockedBy              []Blocker // throttles that do not admit its next message now
	Admitted, Refused      uint64    // by throttles
	Waited                 time.Duration
	Paused, Pinned         bool // Pinned: it has settings of its own
	Counting               bool // Depth is still being counted after a start
}

// Key describes a fairness key, also one without messages.
func (tx *Tx) Key(queue, key string) (KeyInfo, error) {
	q, err := tx.core.queueNamed(queue)
	if err != nil {
		return KeyInfo{}, err
	}
	if err := tx.core.checkKey(key); err != nil {
		return KeyInfo{}, err
	}
	return tx.core.keyInfo(q, key), nil
}

func (c *core) keyInfo(q *queue, key string) KeyInfo {
	if k := q.keys.get(key); k != nil {
		i := c.describe(k)
		c.setFirstDue(q, &i)
		return i
	}
	set, pinned := q.settings[key]
	past := q.idle.of(key)
	i := KeyInfo{
		Key: key, Weight: max(set.Weight, 1), Paused: set.Paused, Pinned: pinned, State: KeyEmpty, Reason: "it has no messages",
		Delivered: past.delivered, Admitted: past.admitted, Refused: past.refused, Waited: time.Duration(past.waited),
	}
	return i
}

func (c *core) describe(k *fairKey) KeyInfo {
	q := k.queue
	i := KeyInfo{
		Key: k.name, Depth: max(k.total, 0), Leased: k.leased, Delayed: max(k.delayed, 0), Weight: k.weight, Deficit: k.deficit(),
		Delivered: k.stats.delivered, Admitted: k.stats.admitted,
		Paused: k.paused, Pinned: k.pinned, Counting: !k.counted,
	}
	if all := q.share.value(c.now); all > 0 {
		i.Share = k.stats.share.value(c.now) / all
	}
	if k.class != nil {
		i.FairShare = float64(k.placedWeight) / float64(q.scheduler.weight)
	}
	refused, waited := k.stats.refused, k.stats.waited
	if k.class != nil {
		refused, waited = k.class.sharedBy(k, c.now)
	}
	i.Refused, i.Waited = refused, time.Duration(waited)
	if len(k.window) > 0 {
		i.OldestAt = idTime(k.window[0].id)
	}
	c.explainState(k, &i)
	return i
}

// Oldest asks for the enqueue time of the oldest message of a queue that is next in
// its key, as far as the heads of the keys are in memory.
type Oldest struct {
	Queue string

	cursor  uint64
	epoch   uint64
	at      int64 // nanoseconds, 0: none yet
	started bool
}

// oldestKeysPerUnit is for how many keys Oldest takes a unit of work: it looks at one field.
const oldestKeysPerUnit = 16

// Oldest returns the time, zero if the queue has no message that is ready. Of a queue
// of very many keys it is found over several turns.
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
	req.cursor = q.roster.walkWhile(req.cursor, func(k *fairKey) bool {
		if yields = n%oldestKeysPerUnit == 0 && !tx.more(); yields {
			return false
		}
		n++
		if len(k.window) > 0 {
			if at := idNanos(k.window[0].id); req.at == 0 || at < req.at {
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

// Blocker is a throttle that does not admit the next message of a key now.
type Blocker struct {
	Throttle    string
	InUse       int64     // leases that name it
	Concurrency uint64    // that it allows, if they are all in use; else 0
	Rate        float64   // that it allows a second, if its bucket is empty; else 0
	NextAt      time.Time // when the bucket has a token again; zero if it has one
	Reserved    bool      // what room it has is kept for a message that needs several throttles
}

// blockers returns the throttles that do not admit a message now.
func (c *core) blockers(m *message) []Blocker {
	var all []Blocker
	for _, t := range c.throttlesOf(m) {
		if t.room(c.now) >= 1 {
			continue
		}
		b := Blocker{Throttle: t.name, InUse: t.inUse, Reserved: t.roomWithReserved(c.now, 0) >= 1}
		if n := t.set.Concurrency; n > 0 && t.inUse >= int64(n) { //nolint:gosec // bounded when it is set
			b.Concurrency = n
		}
		if t.set.Rate > 0 && t.level(c.now)+tokenSlack < 1 {
			b.Rate, b.NextAt = t.set.Rate, time.Unix(0, t.nextToken(c.now))
		}
		all = append(all, b)
	}
	return all
}

// reason says in half a sentence what a blocker waits for.
func (b *Blocker) reason() string {
	switch {
	case b.Reserved:
		return fmt.Sprintf("what throttle %q has free is kept for a message that needs several throttles", b.Throttle)
	case b.Concurrency > 0 && b.Rate > 0:
		return fmt.Sprintf("throttle %q has %d of %d leases in use, and no token", b.Throttle, b.InUse, b.Concurrency)
	case b.Concurrency > 0:
		return fmt.Sprintf("throttle %q has %d of %d leases in use", b.Throttle, b.InUse, b.Concurrency)
	default:
		return fmt.Sprintf("throttle %q has no token, it gets %s a second", b.Throttle, plain(b.Rate))
	}
}

// explainState says what a key does, and what it waits for, from what holds now.
func (c *core) explainState(k *fairKey, i *KeyInfo) {
	q := k.queue
	if len(k.window) > 0 {
		i.BlockedBy = c.blockers(k.window[0])
	}
	switch {
	case q.set.PausedOut:
		i.State, i.Reason = KeyPaused, "the deliveries of its queue are paused, FILA.QUEUE RESUME lets them go on"
	case k.paused:
		i.State, i.Reason = KeyPaused, "the key is paused, FILA.KEY RESUME lets it go on"
	case len(i.BlockedBy) > 0:
		c.explainBlocked(i)
	case len(k.window) > 0 && q.waiters.n == 0:
		i.State, i.Reason = KeyNoConsumer, "it could deliver, and no consumer waits"
	case len(k.window) > 0:
		i.State, i.Reason = KeyReady, "it delivers when its turn comes"
	case k.hasBacklog:
		i.State, i.Reason = KeyLoading, "its next messages are being read from disk"
	case k.leased > 0:
		i.State, i.Reason = KeyLeased, fmt.Sprintf("consumers hold %d of its messages, and there are no others to deliver", k.leased)
	default:
		i.State, i.Reason = KeyDelayed, "its messages wait for their time"
	}
}

// explainBlocked describes a key that throttles do not admit. It goes on when the last
// of them has room: when that is, is known only if all of them wait for tokens.
func (c *core) explainBlocked(i *KeyInfo) {
	i.State, i.Throttle = KeyThrottled, i.BlockedBy[0].Throttle
	reasons := make([]string, len(i.BlockedBy))
	for n := range i.BlockedBy {
		b := &i.BlockedBy[n]
		reasons[n] = b.reason()
		if b.Rate == 0 || b.Concurrency > 0 {
			i.State = KeyConcurrency
		}
		if b.NextAt.After(i.ReadyAt) {
			i.ReadyAt = b.NextAt
		}
	}
	if i.State == KeyConcurrency {
		i.ReadyAt = time.Time{}
	}
	i.Reason = strings.Join(reasons, "; ")
}

// Keys asks for a page of the fairness keys of a queue that have messages.
type Keys struct {
	Queue  string
	Cursor uint64 // of the page before; 0: from the beginning
	Count  int    // keys to look at, matching or not
	Match  func(string) bool

	cursor  uint64
	epoch   uint64
	left    int
	list    []*KeyInfo // a list of 10,000 that grows in one turn must not move them
	started bool
}

// describeUnits is what describing a key counts for: its fields are in several lines of
// memory, and texts are made.
const describeUnits = 4

// Keys lists them. The next cursor is 0 at the end. A key that has messages throughout a
// listing is listed exactly once. Of a large page some are described in later turns, as
// they are then.
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
	req.cursor = q.roster.walkWhile(req.cursor, func(k *fairKey) bool {
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
