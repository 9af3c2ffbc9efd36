package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/faisca/fila/storage"
)

// recover builds the memory anew from the store: at start, and in place after a
// failed commit. It takes as long as there are queues, keys and leases, not
// messages: the fairness keys are found by skipping from one to the next, their
// windows are read when the turns begin, and what has to be counted is counted
// beside the loop (census.go).
//
// Tasks that wait are not the store's: they stay, and are put in line again.
func (c *core) recover() error {
	waiting := c.unparkAll()
	buckets := c.throttles.byName
	for _, j := range c.ops.redrives {
		c.cfg.Log.Warn().Str("queue", j.req.DLQ).Int("moved", j.moved).Msg("a redrive was interrupted, run it again")
	}
	c.reset()
	c.waits.unblocked = append(c.waits.unblocked, waiting...) // also if what follows fails: somebody waits for an answer
	if err := c.recoverState(); err != nil {
		return fmt.Errorf("recover state: %w", err)
	}
	if err := c.recoverThrottles(buckets); err != nil {
		return fmt.Errorf("recover throttles: %w", err)
	}
	if err := c.recoverQueues(); err != nil {
		return fmt.Errorf("recover queues: %w", err)
	}
	c.recoverScripts()
	if err := c.recoverConfig(); err != nil {
		return fmt.Errorf("recover configuration: %w", err)
	}
	if err := c.recoverCron(); err != nil {
		return fmt.Errorf("recover recurring messages: %w", err)
	}
	if err := c.recoverDedup(); err != nil {
		return fmt.Errorf("recover deduplication ids: %w", err)
	}
	if err := c.recoverSettings(); err != nil {
		return fmt.Errorf("recover settings of keys: %w", err)
	}
	if err := c.recoverKeys(); err != nil {
		return fmt.Errorf("recover fairness keys: %w", err)
	}
	if err := c.recoverLeases(); err != nil {
		return fmt.Errorf("recover leases: %w", err)
	}
	if err := c.recoverDue(&c.delayed.index); err != nil {
		return fmt.Errorf("recover delayed messages: %w", err)
	}
	if err := c.recoverDue(&c.ttl.index); err != nil {
		return fmt.Errorf("recover messages with a time to live: %w", err)
	}
	c.ops.census = newCensus(c.epoch, c.store)
	return nil
}

// start makes this start's number durable, so that no delivery number of it can
// be given out by a later one.
func (c *core) start() error {
	var b storage.Batch
	b.Put(storage.State, storage.AppendStateKey(nil, stateEpoch), encodeUint(c.epoch))
	for _, no := range c.detached.orphaned {
		c.deleteSettingsUnder(&b, no)
	}
	if err := c.store.Commit(&b, true); err != nil {
		return fmt.Errorf("write the number of this start: %w", err)
	}
	c.detached.orphaned = nil
	return nil
}

// unparkAll takes all parked tasks out of their lines, the oldest first, each
// followed by what its client has sent behind it.
func (c *core) unparkAll() []*Task {
	all := c.waitingTasks()
	for _, t := range all {
		t.resume = t.wait.until
		c.unpark(t)
	}
	all = slices.Concat(all, c.tasks.later, c.waits.unblocked)
	c.tasks.later, c.waits.unblocked = nil, nil
	return all
}

// waitingTasks lists the parked tasks: those in the lines of queues, the oldest
// first, then those that wait for something to be read or decided, and the engine's own
// that go on in slices.
func (c *core) waitingTasks() []*Task {
	var all []*Task
	seen := map[*Task]bool{}
	for _, name := range (&Tx{core: c}).Queues() {
		for n := c.queues.byName[name].waiters.first; n != nil; n = n.next {
			if t := n.wait.task; !seen[t] {
				seen[t] = true
				all = append(all, t)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.waits.parked)) {
		if t := c.waits.parked[id]; !seen[t] {
			all = append(all, t)
		}
	}
	for _, t := range c.tasks.yielded {
		if t.Client == nil && t.wait != nil {
			all = append(all, t)
		}
	}
	return all
}

func (c *core) number(parts ...string) (uint64, error) {
	b, err := c.store.Get(storage.State, storage.AppendStateKey(nil, parts...))
	if errors.Is(err, storage.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return decodeUint(b)
}

// recoverState reads the engine's own numbers.
func (c *core) recoverState() error {
	epoch, err := c.number(stateEpoch)
	if err != nil {
		return err
	}
	c.epoch = max(c.epoch, epoch) + 1
	// Where a power loss may take the bound of ids with it, and the clock has gone
	// back, ids start again where an earlier start has begun. Their chance must not.
	c.ids.rng = rand.New(rand.NewPCG(c.cfg.Seed, c.epoch))
	c.ids.jitter = rand.New(rand.NewPCG(c.cfg.Seed, c.epoch^jitterStream))
	ids, err := c.number(stateIDs)
	if err != nil {
		return err
	}
	c.ids.last = max(c.ids.last, int64(ids)) //nolint:gosec // a time
	c.ids.until = c.ids.last
	next, err := c.number(stateNextQueue)
	if err != nil {
		return err
	}
	c.queues.nextNumber = max(uint32(next), 1) //nolint:gosec // was 32 bits when it was written
	return nil
}

// recoverThrottles reads the throttles. Their buckets start full, but for those
// that the engine has known before a recovery in place.
func (c *core) recoverThrottles(known map[string]*throttle) error {
	return c.scan(storage.State, storage.AppendStateKey(nil, stateThrottle), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("throttle %q: %w", k, storage.ErrCorrupt)
		}
		var set storage.Throttle
		if err := set.Decode(v); err != nil {
			return fmt.Errorf("throttle %q: %w", parts[1], err)
		}
		t := c.addThrottle(parts[1], set)
		if old := known[parts[1]]; old != nil {
			t.tokens, t.admitted, t.refused, t.waited = min(old.level(c.now), float64(set.Burst)), old.admitted, old.refused, old.waited
		}
		return nil
	})
}

// recoverSettings reads what was set for single fairness keys. Of a purge that a crash has
// interrupted there may be some under the number of no queue: start removes those.
func (c *core) recoverSettings() error {
	return c.scan(storage.State, storage.AppendStateKey(nil, stateKey), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 3 || len(parts[1]) != 4 {
			return fmt.Errorf("key %q: %w", k, storage.ErrCorrupt)
		}
		var set storage.Key
		if err := set.Decode(v); err != nil {
			return fmt.Errorf("key %q: %w", parts[2], err)
		}
		no := binary.BigEndian.Uint32([]byte(parts[1]))
		if q := c.queues.byNumber[no]; q != nil {
			q.settings[parts[2]] = set
		} else if n := len(c.detached.orphaned); n == 0 || c.detached.orphaned[n-1] != no {
			c.detached.orphaned = append(c.detached.orphaned, no)
		}
		return nil
	})
}

// scan calls fn for every record of a family whose key has the prefix.
func (c *core) scan(f storage.Family, prefix []byte, fn func(k, v []byte) error) error {
	it := c.store.Scan(f, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		if err := fn(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

func (c *core) recoverQueues() error {
	return c.scan(storage.Queues, nil, func(k, v []byte) error {
		var set storage.Queue
		if err := set.Decode(v); err != nil {
			return fmt.Errorf("queue %q: %w", k, err)
		}
		c.newQueue(string(k), set)
		c.queues.nextNumber = max(c.queues.nextNumber, set.Number+1)
		return nil
	})
}

// recoverKeys finds the fairness keys that hold messages: after the first message
// of one, it seeks past all others of it.
func (c *core) recoverKeys() error {
	it := c.store.Scan(storage.Messages, nil, nil)
	defer it.Close()
	var prefix []byte
	for ok := it.Seek(nil); ok; {
		if prefix != nil && bytes.HasPrefix(it.Key(), prefix) {
			ok = it.Seek(storage.After(prefix))
			continue
		}
		mk, err := storage.ParseMessageKey(it.Key())
		if err != nil {
			return err
		}
		prefix = storage.AppendKeyPrefix(prefix[:0], mk.Queue, mk.Key)
		if q := c.queues.byNumber[mk.Queue]; q != nil {
			k := c.newFairKey(q, mk.Key, hashName(mk.Key))
			k.counted, k.hasBacklog, k.edge = false, true, place{}
			if set := q.settings[mk.Key]; !set.Pinned {
				k.pinned = false
				delete(q.settings, mk.Key)
			}
			c.settle(k)
		} else {
			c.cfg.Log.Error().Uint32("queue", mk.Queue).Msg("the store holds messages of a queue that does not exist, they are left alone")
		}
		ok = it.Next() // cheaper than a seek if the key has but one
	}
	for _, q := range c.queues.byName { // those of keys without messages have ended with them
		maps.DeleteFunc(q.settings, func(_ string, set storage.Key) bool { return !set.Pinned })
	}
	return it.Err()
}

func (c *core) recoverLeases() error {
	return c.scan(storage.Leases, nil, func(key, v []byte) error {
		mk, fence, err := storage.ParseLeaseKey(key)
		if err != nil {
			return err
		}
		var rec storage.Lease
		if err := rec.Decode(v); err != nil {
			return fmt.Errorf("lease of %s: %w", mk.ID, err)
		}
		q := c.queues.byNumber[mk.Queue]
		if q == nil {
			return nil
		}
		k := c.keyOf(q, mk.Key)
		m := &message{
			place: place{rank: mk.Rank, id: mk.ID}, key: k, status: leased, cost: max(rec.Cost, 1), throttles: k.throttleSet(rec.Throttles), expires: rec.ExpiresAt,
			attempt: rec.Attempt, deliveries: rec.Deliveries, fence: fence, retried: rec.Retried,
			lease: lease{until: rec.Until, since: rec.LeasedAt, consumer: rec.Consumer, writes: 2, restored: true},
		}
		if rec.FirstFailedAt != 0 {
			m.failure = &failure{text: rec.Error, first: rec.FirstFailedAt, last: rec.LastFailedAt}
		}
		c.leases.byID[m.id] = m
		c.leases.ends.push(m)
		c.countInUse(m)
		k.leased++
		q.leased++
		return nil
	})
}

// recoverDue reads the head of a due-time index.
func (c *core) recoverDue(x *dueIndex) error {
	it := c.store.Scan(x.family, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; ok = it.Next() {
		if x.heap.len() >= c.cfg.DueWindow {
			x.edge = string(it.Key())
			break
		}
		at, mk, err := storage.ParseScheduledKey(it.Key())
		if err != nil {
			return err
		}
		x.add(newDueEntry(at, mk, nil))
	}
	return it.Err()
}

// What the engine keeps in storage.State, by the first part of the key.
const (
	stateEpoch     = "epoch"      // number of starts: no delivery number is given twice
	stateIDs       = "ids"        // nanoseconds that no id has reached yet
	stateNextQueue = "next_queue" // number of the next queue
	stateKey       = "key"        // then queue number and fairness key: storage.Key
	stateConfig    = "config"     // then name: a value of the runtime configuration
	stateThrottle  = "throttle"   // then throttle key: storage.Throttle
	stateCron      = "cron"       // then name: storage.Cron
	// stateCronMessage is followed by a name: what a recurring message holds, a
	// storage.Message.
	stateCronMessage = "cron_message"
)

func encodeUint(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeUint(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of %d bytes: %w", len(b), storage.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(b), nil
}

// stateKeysUnder is what the keys of the key settings start with that are kept under the
// number of a queue.
func stateKeysUnder(no uint32) []byte {
	return storage.AppendStateKey(nil, stateKey, string(binary.BigEndian.AppendUint32(nil, no)))
}

func stateKeyUnder(no uint32, key string) []byte {
	return storage.AppendStateKey(nil, stateKey, string(binary.BigEndian.AppendUint32(nil, no)), key)
}

// drain prepares the end: waits for messages end empty-handed, those for anything
// else are refused, and nothing is left to the lag.
func (c *core) drain() {
	for _, t := range c.waitingTasks() {
		if t.wait.inProgress() {
			c.finish(t, ErrStopped) // it has not happened, or not as a whole
		} else {
			c.finish(t, nil)
		}
	}
	for len(c.ops.redrives) > 0 {
		c.endRedrive(c.ops.redrives[0])
	}
	c.serve() // what their clients had sent behind them was submitted: it is done
	if c.health.failed != nil {
		return
	}
	for i := range c.leases.deferred {
		if c.leases.deferred[i].live() {
			c.writeLease(c.leases.deferred[i].m)
		}
	}
	c.leases.deferred = nil
	if c.ids.until > c.ids.last+1 {
		c.ids.until = c.ids.last + 1
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateIDs), encodeUint(uint64(c.ids.until))) //nolint:gosec // after 1970
		c.out.sync = true
	}
}
