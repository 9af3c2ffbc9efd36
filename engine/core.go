package engine

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/faisca/fila/storage"
)

// Store is what the engine needs of storage; see storage.Iterator and the
// conformance suite storage/storetest for what it promises.
type Store interface {
	// Commit writes a batch atomically, with sync durably. After an error
	// nothing of it is visible to Get and Scan.
	Commit(b *storage.Batch, sync bool) error
	// Sync makes everything committed so far durable.
	Sync() error
	// Get returns a copy of a value, or storage.ErrNotFound.
	Get(f storage.Family, key []byte) ([]byte, error)
	// Scan iterates over [from, to) as it is now; a nil to means to the end.
	Scan(f storage.Family, from, to []byte) storage.Iterator
	// Reopen makes a store writable again after a failed commit.
	Reopen() error
}

// core is the engine without goroutines, locks and clocks: state, and a function of
// state, time and tasks. A turn takes all its decisions in memory, and writes them into
// the open batch; the loop carries batches to the store and replies to clients.
//
// Its state is in components, each with a reset, its timers and its invariants: see
// component.go.
type core struct {
	cfg   Config
	store Store // only read from within a turn

	now   int64  // of this turn, Unix nanoseconds; never goes back
	epoch uint64 // number of this start, or of the recovery after it

	ids       idSource
	queues    queueSet
	heads     headCache
	reads     readQueue
	waits     waitSet
	tasks     taskQueue
	throttles throttleTable
	leases    leaseTable
	delayed   delayedMessages
	ttl       ttlMessages
	dedup     dedupIDs
	cron      cronTable
	detached  detachedKeys
	ops       operations
	out       outbox
	health    health
}

// newCore returns a core without memory of any message: see recover.
func newCore(cfg Config, store Store) *core {
	c := &core{cfg: cfg, store: store}
	c.out.batch, c.out.batchNo, c.out.snapshot = &storage.Batch{}, 1, &Snapshot{}
	c.waits.parked = map[uint64]*Task{}
	c.heads.prefetchKeysMin, c.detached.max, c.tasks.budget.turn = prefetchKeysMin, reclaimMax, turnUnits
	c.ids.rng = rand.New(rand.NewPCG(cfg.Seed, 0x66696c61))
	c.ids.jitter = rand.New(rand.NewPCG(cfg.Seed, jitterStream))
	if !cfg.LastBackup.IsZero() {
		c.ops.backups.lastAt = cfg.LastBackup.UnixNano()
	}
	c.reset()
	return c
}

// turn is one pass of the engine; its steps never change order. What it writes
// is added to the open batch: the more the disk has to do, the more turns share
// one batch.
func (c *core) turn(now time.Time, tasks []*Task) {
	c.begin(now)
	c.slice(c.tasks.budget.part(4))
	c.expire()
	c.slice(c.tasks.budget.part(4))
	c.resumeYielded()
	c.newTasks()
	c.applyUnblocked() // before what their clients have sent since
	c.applyAll(tasks)
	c.reclaim()
	c.reclassifySlice()
	c.atLeast(c.tasks.budget.part(8))
	c.serve()
	c.tasks.budget.spent += c.detached.reclaimed
	c.issueReads()
	c.emitQueueStates()
	c.tasks.unfinished = c.tasks.unfinished || c.hasUnfinished()
	c.health.counters.turns++
	c.health.counters.tasks += uint64(len(tasks))
}

// begin moves the time on.
func (c *core) begin(now time.Time) {
	c.now = max(c.now, now.UnixNano())
	c.detached.reclaimed, c.tasks.unfinished, c.tasks.budget.spent = 0, false, 0
	c.newTasks()
	c.waits.unblocked, c.tasks.later = append(c.tasks.later, c.waits.unblocked...), nil
	if c.health.bootTime == 0 {
		c.health.bootTime = c.now
	}
	for _, q := range c.waits.resumed {
		q.resumed = false
		c.offer(q)
	}
	c.waits.resumed = c.waits.resumed[:0]
	c.dropCommittedBodies()
}

// Tx is what a call may do within a turn.
type Tx struct {
	core      *core
	task      *Task
	atomic    bool // a part of several calls that are one: it must not wait, see Exec
	preflight preflight
	stored    bool // the result tells of nothing but what is in the store, see told.go
}

func unix(nanos int64) time.Time { return time.Unix(0, nanos) }

// Now returns the time of the turn.
func (tx *Tx) Now() time.Time { return time.Unix(0, tx.core.now) }

// component is a part of the engine's state. What recovery builds anew from the store,
// its reset forgets; everything it does at a time, its expire does.
type component interface {
	reset()
	// next returns when the component needs a turn; never if it needs none.
	next(c *core) int64
	// expire acts on what is due, within the budget of the step.
	expire(c *core)
	// check reports each broken invariant by its number in the package comment. It is for
	// tests.
	check(c *core, bad report)
}

// report takes an invariant's number and what breaks it.
type report func(no int, format string, args ...any)

// never is the time of a timer that is not set.
const never = math.MaxInt64

// untimed is embedded in components without timers, unchecked in those whose invariants
// another component checks along with its own.
type (
	untimed   struct{}
	unchecked struct{}
)

func (untimed) next(*core) int64      { return never }
func (untimed) expire(*core)          {}
func (unchecked) check(*core, report) {}

// components lists all components in the order in which their timers act.
func (c *core) components() [15]component {
	return [...]component{
		&c.waits, &c.throttles, &c.reads, &c.ops, &c.leases, &c.delayed, &c.ttl, &c.cron, &c.dedup,
		&c.queues, &c.heads, &c.tasks, &c.detached, &c.out, &c.health,
	}
}

// reset forgets what recovery builds anew from the store.
func (c *core) reset() {
	for _, p := range c.components() {
		p.reset()
	}
}

// expire acts on every timer that is due. It is a step of every turn, so that no load can
// hold it up. What very many timers have to do at once is done in slices, and each
// component has a little of the budget, however much those before it have used. While
// the store takes no writes, only waits end.
func (c *core) expire() {
	least := c.tasks.budget.part(32)
	c.waits.expire(c)
	if c.health.failed != nil {
		return
	}
	all := c.components()
	for _, p := range all[1:] { // without waits
		c.atLeast(least)
		p.expire(c)
	}
}

// nextTimer returns when the next turn is due without any task, 0 if never.
func (c *core) nextTimer() int64 {
	if c.tasks.unfinished {
		return c.now
	}
	at := c.waits.next(c)
	if c.health.failed == nil {
		for _, p := range c.components() {
			at = min(at, p.next(c))
		}
	}
	if at == never {
		return 0
	}
	return at
}
