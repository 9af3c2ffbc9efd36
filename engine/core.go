package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/settings"
	"github.com/faisca/fila/engine/turn"
	"github.com/faisca/fila/storage"
)

// Store is what the engine needs of storage. The conformance suite storage/storetest
// verifies these promises for every implementation. Turns call Get and Scan on the loop;
// off-loop jobs call them on other goroutines at the same time, also during a Commit.
type Store interface {
	// Commit writes a batch atomically, and durably if sync is set. After an error nothing
	// of the batch is visible to Get and Scan, and the store refuses writes until Reopen
	// succeeds.
	Commit(b *storage.Batch, sync bool) error
	// Sync makes everything committed so far durable.
	Sync() error
	// Get returns a copy of a value, or storage.ErrNotFound if there is none.
	Get(f storage.Family, key []byte) ([]byte, error)
	// Scan iterates over the records in [from, to) as of the call; a nil to means the end
	// of the family. The caller closes the iterator.
	Scan(f storage.Family, from, to []byte) storage.Iterator
	// Reopen makes a store writable again after a failed commit. The failed batch is then
	// either entirely present or absent, so the engine recovers its memory afterwards.
	Reopen() error
}

// core is the engine without goroutines, locks and clocks: state, and turn, a function of
// state, time and tasks. A turn decides in memory and writes its decisions into the open
// batch (outbox.go); the driver of the Machine carries batches to the store and replies to clients.
//
// The state is divided into components, each with a reset, its timers and its invariants.
// The verbs (lease, ack, ...) are methods of core and Tx, since most of them change several
// components together.
type core struct {
	cfg   Config
	store Store // only read from within a turn

	now   int64  // time of this turn in Unix nanoseconds; never decreases
	epoch uint64 // number of this start or recovery: results of jobs from an earlier one are dropped

	ids      idSource        // message ids
	queues   queueSet        // queues with their keys
	heads    headCache       // bounds of the messages and bodies in memory
	reads    readQueue       // window reads that are requested and under way
	waits    waitSet         // parked tasks
	tasks    taskQueue       // tasks left over by a turn, and its budget
	order    ordering        // what is delivered next
	holds    holdTable       // throttle keys that are closed until a time
	leases   leaseTable      // live leases and their timers
	delayed  delayedMessages // head of the index of due times
	ttl      ttlMessages     // head of the index of message expiries
	dedup    idTable         // deduplication ids, unique ids and records of ends
	bodies   bodyTable       // payloads that messages of several queues share
	accounts accountTable    // budgets
	groups   groupTable      // messages that are done together
	cron     cronTable       // recurring messages
	scripts  scriptTable     // histories of hooks
	topics   topicTable      // queues that are bound to topics
	detached detachedKeys    // what purged queues have left in memory
	ops      operations      // census, redrives and backups
	sweep    sweep           // figures of all fairness keys
	gather   gathering       // keys that wait until they have a batch
	history  history         // what queues and keys did in the last day
	signals  signalTable     // sums that fade with time
	users    settings.Users  // users of a cluster
	acts     settings.Acts   // what administrators have changed
	out      outbox          // the open batch and what follows its commit
	health   health          // whether the store takes writes
	time     timekeeper      // writes the time, and knows how far the system clock is behind it
}

// newCore returns a core with no state from the store. It takes no turn before recover and
// start have succeeded.
func newCore(cfg Config, store Store) *core {
	c := &core{cfg: cfg, store: store, signals: newSignalTable(&cfg)}
	c.out.batch, c.out.batchNo, c.out.snapshot = &storage.Batch{}, 1, &Snapshot{}
	c.out.durable = &atomic.Uint64{}
	c.waits.parked = map[uint64]*Task{}
	c.heads.prefetchKeysMin, c.detached.max, c.tasks.budget.Turn, c.bodies.min = prefetchKeysMin, reclaimMax, turnUnits, bodyMin
	c.ids.rng = rand.New(rand.NewPCG(cfg.Seed, 0x66696c61))
	c.ids.jitter = rand.New(rand.NewPCG(cfg.Seed, jitterStream))
	if !cfg.LastBackup.IsZero() {
		c.ops.backups.Remember(cfg.LastBackup)
	}
	c.order.Order = dispatch.New(dispatch.Config{Quantum: cfg.Quantum, Instances: cfg.Limits.Instances}, host{c})
	c.reset()
	return c
}

// turn is one iteration of the engine at a time, with tasks in the order of their arrival.
// Its writes join the open batch: the slower the disk, the more turns share a batch. The
// steps never change order:
//
//	begin      advance the time; drop bodies that the last commit has made readable
//	expire     act on every timer that is due; deliver what the timers of throttles have made ready
//	continue   run tasks and operations that earlier turns have left unfinished
//	apply      run unblocked tasks, then the backlog and the new tasks
//	reclaim    release a portion of what purged queues have left in memory
//	reclassify move a portion of the keys whose throttles have changed
//	serve      deliver what became ready to waiting consumers
//	read       start window reads for keys whose head cache runs low
//	announce   emit the events of queues that became ready or empty
//	publish    show connections the signals that have come or gone
//
// The messages of groups follow each step in which the last of their members may have ended (endOver).
//
// Unblocked tasks precede new ones because their clients sent them earlier. Serve follows
// apply so that a message can be stored and leased in one batch. Each step has its part of
// the budget (package turn); a step that exceeds it leaves the remainder to the next turn.
func (c *core) turn(now time.Time, tasks []*Task) {
	c.begin(now)
	c.slice(c.tasks.budget.Part(4))
	c.expire()
	c.groups.endOver(c)
	c.slice(c.tasks.budget.Part(4))
	c.resumeYielded()
	c.newTasks()
	c.applyUnblocked()
	c.applyAll(tasks)
	c.reclaim()
	c.groups.endOver(c)
	c.reclassifySlice()
	c.atLeast(c.tasks.budget.Part(8))
	c.serve()
	c.groups.endOver(c)
	c.tasks.budget.Spent += c.detached.reclaimed
	c.issueReads()
	c.emitQueueStates()
	c.signals.publish(c)
	c.tasks.unfinished = c.tasks.unfinished || c.hasUnfinished()
	c.health.counters.turns++
	c.health.counters.tasks += uint64(len(tasks))
}

// begin advances the time, which never goes back, and takes over what the last turn left.
func (c *core) begin(now time.Time) {
	c.now = max(c.now, now.UnixNano())
	c.order.Advance(c.now)
	c.detached.reclaimed, c.tasks.unfinished, c.tasks.budget.Spent = 0, false, 0
	c.newTasks()
	c.waits.unblocked, c.tasks.later = append(c.tasks.later, c.waits.unblocked...), nil
	if c.health.bootTime == 0 {
		c.health.bootTime = c.now
	}
	c.dropCommittedBodies()
}

// Tx is the access of a call to the engine within a turn. A method validates everything
// before its first change, so a method that returns an error has changed nothing. A Tx is
// valid only during the Apply that it was passed to.
type Tx struct {
	core      *core
	task      *Task
	atomic    bool           // the call is part of a transaction and must not wait, see Exec
	work      turn.Allowance // in a transaction
	preflight preflight
	delivered deliveries // by earlier calls of the transaction
	stored    bool       // the result depends on committed records only: it may be an early reply
	leased    bool       // the result hands out messages
}

func unix(nanos int64) time.Time { return time.Unix(0, nanos) }

// Now returns the time of the turn, the same for all of its calls.
func (tx *Tx) Now() time.Time { return time.Unix(0, tx.core.now) }

// more takes a unit and reports whether the call may handle its next message in this turn. A
// call of a transaction may as long as the work of the transaction lasts, so it asks before its
// first change.
func (tx *Tx) more() bool {
	if tx.atomic {
		return tx.afford(1) == nil
	}
	if !tx.core.room() {
		return false
	}
	tx.core.spend(1)
	return true
}

// afford takes units for work that is done in one piece. In a transaction it refuses the call if
// the transaction has not so many left, see turn.Allowance.
func (tx *Tx) afford(units int) error {
	if b := &tx.core.tasks.budget; tx.atomic && !tx.work.Afford(units, b) {
		return errTransactionWork
	}
	tx.core.spend(units)
	return nil
}

// yield parks the task until the next turn. Apply must return the result: ErrWouldBlock, or in a
// transaction the refusal of the call.
func (tx *Tx) yield() error {
	if tx.atomic {
		return errTransactionWork
	}
	tx.core.tasks.yielded = append(tx.core.tasks.yielded, tx.task)
	return tx.park(waitTurn, nil, 0)
}

// Each calls step for the numbers from *at up to n, as work of some units each, and leaves in *at
// where it is: calls of other packages do their work in slices with it. It returns
// ErrWouldBlock if it continues in a later turn.
func (tx *Tx) Each(at *int, n, units int, step func(i int)) error {
	for ; *at < n; *at++ {
		if !tx.more() {
			return tx.yield()
		}
		tx.core.spend(units - 1)
		step(*at)
	}
	return nil
}

// errInterrupted ends a task that had done a part of its work before a recovery. The client
// must find out which part: some of its batches may be committed.
var errInterrupted = fmt.Errorf("%w: this was interrupted, and a part of it may be done; look, and send it again", ErrMisconf)

// progress is the position of a task that does its work in slices.
type progress struct {
	epoch uint64 // core.epoch when it began
	at    int    // parts that are done
	n     int    // what they contribute to the result
}

// progress returns the position of the task, zero if it begins. errInterrupted refuses to
// continue after a recovery: whether the earlier parts are on disk is unknown.
func (tx *Tx) progress() (progress, error) {
	p := tx.task.progress
	switch {
	case p == nil || tx.atomic || p.epoch != tx.core.epoch && p.at == 0:
		return progress{epoch: tx.core.epoch}, nil
	case p.epoch != tx.core.epoch:
		return progress{}, errInterrupted
	default:
		return *p, nil
	}
}

// yieldAt is yield for a task whose position the engine keeps.
func (tx *Tx) yieldAt(p progress) error {
	tx.task.progress = &p
	return tx.yield()
}

// awaitAt is await for a task whose position the engine keeps.
func (tx *Tx) awaitAt(p progress) error {
	tx.task.progress = &p
	return tx.await()
}

// component is a part of the engine's state.
type component interface {
	// reset drops all state that recovery rebuilds from the store. What the store does not
	// hold, such as parked tasks, remains.
	reset()
	// next returns the Unix nanoseconds of the component's first timer, or never.
	next(c *core) int64
	// expire acts on the timers that are due, within the budget of the step. The remainder
	// stays due, so that next makes the next turn follow at once.
	expire(c *core)
	// check reports each broken invariant by its number in the package comment. Only tests
	// call it.
	check(c *core, bad report)
}

// report takes the number of an invariant and a description of what breaks it.
type report func(no int, format string, args ...any)

// never is the time of a timer that is not set.
const never = math.MaxInt64

// untimed is embedded in components without timers. unchecked is embedded in components
// whose invariants another component checks along with its own.
type (
	untimed   struct{}
	unchecked struct{}
)

func (untimed) next(*core) int64      { return never }
func (untimed) expire(*core)          {}
func (unchecked) check(*core, report) {}

// components lists all components in the order in which their timers act. The waits are
// first because expire handles them apart.
func (c *core) components() [26]component {
	return [...]component{
		&c.waits, &c.history, &c.holds, &c.order, &c.gather, &c.reads, &c.ops, &c.leases, &c.delayed, &c.ttl, &c.cron, &c.scripts, &c.topics, &c.dedup, &c.bodies, &c.accounts, &c.groups,
		&c.queues, &c.heads, &c.tasks, &c.detached, &c.sweep, &c.signals, &c.out, &c.health, &c.time,
	}
}

// reset drops all state that recovery rebuilds from the store.
func (c *core) reset() {
	for _, p := range c.components() {
		p.reset()
	}
}

// expire acts on every timer that is due. It is a step of every turn, so no load delays
// timers. When very many are due at once, a component acts on them in slices over several
// turns; each component has a minimum of the budget, whatever earlier ones have used. While
// the store takes no writes, only waits end, since all other timers write.
func (c *core) expire() {
	least := c.tasks.budget.Part(32)
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

// nextTimer returns the Unix nanoseconds at which a turn is due without any new task: now if
// this turn has left work to the next one, 0 if there is no timer.
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

// Ceasing. Where several nodes are one broker, another node may lead at any time, and this one
// may learn of it late. What a leader answers is therefore of two kinds:
//
//   - What a commit has stored is true: an enqueue, an ack. It is answered after the commit.
//   - What the leader only knows may be over: that no other client has a message, or what a
//     read has found. It is answered after Config.Confirm has returned: early replies, works
//     without a batch, and leases also after the commit of their batch, since a leader that was
//     stopped may learn of an old commit when its leases are long forgotten.
//
// A node that ceases to lead answers everything that it has:
//
//	its batch was handed to the store, also        ErrDeposed: it may have happened or not
//	committed and not confirmed
//	in a batch that was not; an early reply that   ErrTakeover: nothing has happened
//	is not confirmed; in the inbox, or behind a
//	blocked task
//	waits for messages                             none
//	waits for something else                       ErrTakeover
//	has done a part of its work in earlier turns   ErrDeposed

// errCeased is ErrDeposed as clients see it.
var errCeased = fmt.Errorf("%w; the command may have happened or not", ErrDeposed)

// Cease gives tasks the error of a node that has ceased to lead, whose answers are not confirmed or whose batch was not
// handed to the store.
func Cease(tasks []*Task) { cease(tasks, false) }

// cease gives tasks the error of a node that has ceased to lead. handed says that their batch was
// handed to the store. A refusal is replaced as well: another leader may have decided otherwise.
func cease(tasks []*Task, handed bool) {
	for _, t := range tasks {
		if handed && t.err == nil || t.committed || t.progress != nil && t.progress.at > 0 {
			t.err = errCeased
		} else {
			t.err = ErrTakeover
		}
	}
}

// halt ends all tasks that the core has, and new ones, and returns them. The core takes no further
// turn.
func (c *core) halt(tasks []*Task) []*Task {
	var all []*Task
	for _, t := range c.waitingTasks() {
		idle := t.wait.kind.idle()
		if c.conclude(t, nil); !idle {
			Cease([]*Task{t})
		}
		all = append(all, t)
	}
	rest := slices.Concat(c.out.early, c.out.released, c.waits.unblocked, c.tasks.later, c.tasks.backlog, tasks)
	c.out.early, c.out.released, c.waits.unblocked, c.tasks.later, c.tasks.backlog = nil, nil, nil, nil, nil
	Cease(rest)
	return append(all, rest...)
}

// awaitsBatch reports whether a task of the client waits for the commit of a batch. A reply behind
// it cannot leave before, so it must not be confirmed before: the connection would send it when
// the leader has long been replaced.
func (cl *Client) awaitsBatch() bool { return cl != nil && cl.inBatches.Load() > 0 }

// splitUnconfirmed returns the tasks of a committed work that may be answered, and those that wait
// for a confirmation: leases, what settles all that is before it, and without a batch everything
// that is answered to a client.
func splitUnconfirmed(tasks []*Task, batch bool) (committed, unconfirmed []*Task) {
	for _, t := range tasks {
		if t.tx.leased || t.published != nil || !batch && t.Client != nil {
			t.committed = batch
			unconfirmed = append(unconfirmed, t)
		} else {
			committed = append(committed, t)
		}
	}
	return committed, unconfirmed
}

// jitterStream separates the random numbers of delays from those of ids: a change of one
// leaves the other as it was for a seed.
const jitterStream = 0x6a697474

// scan calls fn for each record of a family whose key has the prefix, in key order, until
// fn returns an error.
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
