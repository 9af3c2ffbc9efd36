package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/failures"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/engine/settings"
	"github.com/faisca/fila/engine/topic"
	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/storage"
)

// recover rebuilds the memory from the store: at a start, and in place after a failed
// commit. The cost depends on the number of queues, keys and leases, not of messages. Its
// phases, each of which needs those before it:
//
//  1. Waiting tasks: they are no part of the store. They leave their lines and run again once
//     the memory is rebuilt, also if the recovery fails.
//  2. Reset all components.
//  3. Engine state: the number of this start (epoch), the bound of ids, queue numbers.
//  4. Throttles and holds, then queues, scripts, topics, configuration, recurring messages, generations of
//     deduplication ids and results, groups, budgets, settings of keys, at a start histories of queues and keys.
//  5. Fairness keys: a seek from one to the next. All messages of a key are behind its
//     edge; window reads fill the head caches once turns begin.
//  6. Leases, with the throttle slots that they use.
//  7. Heads of the indexes of due times and expiries.
//  8. Signals.
//  9. Look whether there are bodies, which are swept then.
//  10. Open the census, which counts the messages off the loop.
//
// After an error the memory is incomplete: a start fails, and a recovery in place is
// repeated before the engine takes writes again. At a start, start must succeed before the
// first lease.
func (c *core) recover() error {
	waiting := c.unparkAll()
	for _, j := range c.ops.redrives {
		c.cfg.Log.Warn().Str("queue", j.req.DLQ).Int("moved", j.Done).Msg("redrive interrupted by a recovery, run it again")
	}
	c.reset()
	c.epoch++ // also if the recovery fails: jobs under way are of the memory of before
	before := c.order.before
	c.order.before = dispatch.Buckets{}                       // also if the recovery fails: they keep the queues of before in memory
	c.waits.unblocked = append(c.waits.unblocked, waiting...) // also if the recovery fails: their clients wait for an answer
	if err := c.recoverState(); err != nil {
		return fmt.Errorf("recover state: %w", err)
	}
	if err := c.recoverThrottles(before); err != nil {
		return fmt.Errorf("recover throttles: %w", err)
	}
	if err := c.holds.Read(c.store, c.order.Hold); err != nil {
		return fmt.Errorf("recover holds: %w", err)
	}
	if err := c.recoverQueues(); err != nil {
		return fmt.Errorf("recover queues: %w", err)
	}
	c.recoverScripts()
	if err := c.recoverTopics(); err != nil {
		return fmt.Errorf("recover topics: %w", err)
	}
	if err := c.scripts.recover(c); err != nil {
		return fmt.Errorf("recover histories of scripts: %w", err)
	}
	if err := c.recoverConfig(); err != nil {
		return fmt.Errorf("recover configuration: %w", err)
	}
	if err := c.cron.recover(c); err != nil {
		return fmt.Errorf("recover recurring messages: %w", err)
	}
	if err := c.dedup.recover(c); err != nil {
		return fmt.Errorf("recover generations: %w", err)
	}
	if err := c.groups.recover(c); err != nil {
		return fmt.Errorf("recover groups: %w", err)
	}
	if err := c.recoverAccounts(); err != nil {
		return fmt.Errorf("recover budgets: %w", err)
	}
	if err := c.recoverSettings(); err != nil {
		return fmt.Errorf("recover settings of keys: %w", err)
	}
	if err := c.history.recover(c); err != nil {
		return fmt.Errorf("recover histories of queues and keys: %w", err)
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
	if err := c.signals.recover(c); err != nil {
		return fmt.Errorf("recover signals: %w", err)
	}
	if err := c.recoverBodies(); err != nil {
		return fmt.Errorf("recover bodies: %w", err)
	}
	c.openCensus()
	return nil
}

// start makes the number of this start durable, so that no later start gives out its
// delivery numbers again. It also deletes settings of keys under numbers that no queue has.
func (c *core) start() error {
	var b storage.Batch
	b.Put(storage.State, storage.AppendStateKey(nil, storage.StateEpoch), storage.EncodeUint(c.epoch))
	for _, no := range c.detached.orphaned {
		settings.DeleteKeys(&b, no)
	}
	for _, key := range c.detached.stale {
		b.Delete(storage.State, key)
	}
	if err := c.store.Commit(&b, true); err != nil {
		return fmt.Errorf("write the number of this start: %w", err)
	}
	c.detached.orphaned, c.detached.stale = nil, nil
	return nil
}

// unparkAll takes all parked tasks out of their lines and returns them, the oldest first,
// followed by the tasks that were queued behind them.
func (c *core) unparkAll() []*Task {
	all := c.waitingTasks()
	for _, t := range all {
		t.deadline = t.wait.until
		c.unpark(t)
	}
	all = slices.Concat(all, c.tasks.later, c.waits.unblocked)
	c.tasks.later, c.waits.unblocked = nil, nil
	return all
}

// number reads a number of the engine's state; 0 if it was never written.
func (c *core) number(parts ...string) (uint64, error) {
	b, err := c.store.Get(storage.State, storage.AppendStateKey(nil, parts...))
	if errors.Is(err, storage.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return storage.DecodeUint(b)
}

// recoverState reads the engine's own numbers and derives the random sources of this start.
func (c *core) recoverState() error {
	epoch, err := c.number(storage.StateEpoch)
	if err != nil {
		return err
	}
	c.epoch = max(c.epoch, epoch+1)
	// A power loss may lose the bound of ids while the clock has gone back: ids may then
	// have the times of an earlier start. A different random source keeps them distinct.
	c.ids.rng = rand.New(rand.NewPCG(c.cfg.Seed, c.epoch))
	c.ids.jitter = rand.New(rand.NewPCG(c.cfg.Seed, c.epoch^jitterStream))
	ids, err := c.number(storage.StateIDs)
	if err != nil {
		return err
	}
	c.ids.last = max(c.ids.last, int64(ids))
	c.ids.until = c.ids.last
	next, err := c.number(storage.StateNextQueue)
	if err != nil {
		return err
	}
	c.queues.nextNumber = max(uint32(next), 1)
	now, err := c.number(storage.StateNow)
	c.time.Recover(int64(now))
	c.now = max(c.now, int64(now))
	return err
}

// recoverThrottles reads the throttles. Token buckets start full and adaptive limits at their most,
// but keep their level and counters over a recovery in place: before are the throttles of before it.
func (c *core) recoverThrottles(before dispatch.Buckets) error {
	c.order.Advance(c.now)
	err := records.Each(c.store, "throttle", storage.StateThrottle, 1, func(name []string, v []byte) error {
		var set storage.Throttle
		if err := set.Decode(v); err != nil {
			return err
		}
		c.order.Restore(name[0], dispatch.Limits(set), before)
		return nil
	})
	c.order.RestoreInstances(before)
	return err
}

// recoverSettings reads the settings of fairness keys. A crash during a purge may leave
// some under a number that no queue has; start deletes them.
func (c *core) recoverSettings() error {
	return records.Each(c.store, "key", storage.StateKey, 2, func(name []string, v []byte) error {
		no, key, err := settings.ParseKey(name)
		var set storage.Key
		if err := cmp.Or(err, set.Decode(v)); err != nil {
			return err
		}
		if q := c.queues.byNumber[no]; q != nil {
			q.settings.Set(key, set)
		} else if n := len(c.detached.orphaned); n == 0 || c.detached.orphaned[n-1] != no {
			c.detached.orphaned = append(c.detached.orphaned, no)
		}
		return nil
	})
}

// recoverQueues reads the queues, without their messages. Those that were in memory before keep
// their counts.
func (c *core) recoverQueues() error {
	err := c.scan(storage.Queues, nil, func(k, v []byte) error {
		var set storage.Queue
		if err := set.Decode(v); err != nil {
			return fmt.Errorf("queue %q: %w", k, err)
		}
		q := c.newQueue(string(k), set)
		c.queues.figures.Recover(q.name, &q.figures)
		c.queues.nextNumber = max(c.queues.nextNumber, set.Number+1)
		return nil
	})
	if err != nil {
		return err
	}
	c.queues.figures.Recovered()
	return nil
}

// recoverKeys finds the fairness keys that have messages. Messages of an unknown queue are logged and left
// alone. Settings of keys without messages are dropped unless they are pinned.
func (c *core) recoverKeys() error {
	keys := storage.WalkKeys(c.store.Scan(storage.Messages, nil, nil))
	defer keys.Close()
	for keys.Next() {
		mk := keys.First()
		if q := c.queues.byNumber[mk.Queue]; q != nil {
			k := c.newFairKey(q, mk.Key, keytable.HashOf(mk.Key))
			k.counted = false
			k.gatherAnew()
			k.window.StartAt(window.Place{})
			if set, _ := q.settings.Of(mk.Key); !set.Pinned {
				k.pinned = false
				q.settings.Unset(mk.Key)
			}
			c.settle(k)
		} else {
			c.cfg.Log.Error().Uint32("queue", mk.Queue).Msg("the store holds messages of a queue that does not exist, they are left alone")
		}
	}
	for _, q := range c.queues.byName {
		q.settings.DropUnpinned()
	}
	return keys.Err()
}

// recoverLeases reads the leases. recovered marks them: an end while the broker was down is
// no failure. The messages themselves are read when they are needed.
func (c *core) recoverLeases() error {
	var found []recoveredLease
	err := c.scan(storage.Leases, nil, func(key, v []byte) error {
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
			rank: mk.Rank, id: mk.ID, key: k, status: leased,
			attempt: rec.Attempt, deliveries: rec.Deliveries, fence: fence, retried: rec.Retried, since: rec.LeasedAt,
			lease: lease{until: rec.Until, writes: 2, recovered: true, retrying: rec.Retrying},
		}
		m.give(&rec.Meta, c.order.throttleSet(k, &rec.Meta), true)
		m.noteFirstLease(rec.FirstLeasedAt)
		m.failure = failures.Stored(rec.Error, rec.Cause, rec.FirstFailedAt, rec.LastFailedAt, rec.Failures)
		c.leases.byID[m.id] = m
		c.leases.ends.Push(m)
		if !m.retrying {
			c.order.Begin(m.throttles.of())
			c.reserveAgain(m)
			found = append(found, recoveredLease{m, rec.Consumer})
		}
		k.leased++
		q.figures.Change(figures.Messages{Leased: 1})
		c.enterOrder(m)
		return nil
	})
	c.registerAgain(found)
	return err
}

// recoverDue reads the head of an index by time.
func (c *core) recoverDue(x *dueIndex) error {
	head, next, err := window.ReadDue[*message](c.store.Scan(x.family, nil, nil), "", c.cfg.DueWindow)
	for _, d := range head {
		x.Restore(d)
	}
	if next != "" {
		x.StartAt(next)
	}
	return err
}

// recoverTopics reads the bindings. One of a queue that does not exist, which only damage leaves,
// is deleted by start.
func (c *core) recoverTopics() error {
	err := records.Each(c.store, "binding", storage.StateTopic, 2, func(name []string, v []byte) error {
		var rec storage.Binding
		if err := rec.Decode(v); err != nil {
			return err
		}
		b := topic.Stored(name[1], &rec)
		if c.queues.byName[b.Queue] == nil {
			c.cfg.Log.Error().Str("topic", name[0]).Str("queue", b.Queue).Msg("a queue that does not exist is bound to a topic, the binding is deleted")
			c.detached.deleteAtStart(storage.StateTopic, name)
			return nil
		}
		c.topics.Bind(name[0], b)
		return nil
	})
	c.out.snapshot = c.out.snapshot.withTopics(c.topics.View())
	return err
}
