package engine

import (
	"fmt"
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

// core is the engine without goroutines, locks and clocks: state, and a function
// of state, time and tasks. What it decides is complete in memory at once and in
// the open batch; the loop carries batches to the store and replies to clients.
type core struct {
	cfg   Config
	store Store // only read from within a turn

	now   int64 // of this turn, Unix nanoseconds; never goes back
	epoch uint64
	ids   idSource
	// idsUntil is the persisted bound of ids: a restart goes on from there.
	idsUntil  int64
	nextQueue uint32
	strays    []uint32 // numbers of no queue under which there are settings of keys
	bootTime  int64    // the first turn's time

	queues       map[string]*queue
	pausedOut    map[*queue]struct{} // those whose deliveries are paused
	names        []string            // of the queues, in order; nil: to be made anew. Shared with replies: never changed
	byNumber     map[uint32]*queue
	leases       map[ID]*message
	leaseEnd     timers[*message]
	lag          []lagged         // leases whose record is not written yet, oldest first
	due          dueIndex         // messages that are delayed
	ends         dueIndex         // messages that have a time to live
	obituaries   int              // under way
	dying        map[ID]*dueEntry // of ends, those that obituaries are about
	fresh        freshIDs
	dedupEnd     timers[*dedup]    // queues by when they can forget deduplication ids
	waits        timers[*wait]     // those with an end
	tokens       timers[*throttle] // by their next token, if something waits for it
	notified     []*throttle       // may have got room
	waking       *throttle         // whose room wakeAll gives away
	deferred     bool              // wakeAll has left some of notified to the next step
	order        uint64            // of the newest entry in a line, and claim
	throttles    map[string]*throttle
	unset        map[string]*unsetKey // throttle keys without a setting that leases name
	throttleList roster[throttle]
	// throttleVersion grows with each change of which throttles there are.
	throttleVersion uint64
	keys            int // of all queues
	aheadKeys       int // as the constant; tests read ahead with any number
	foresight       foresight
	cron            cronTable
	parked          map[uint64]*Task
	rotations       rotations

	offers  []*queue // have got something to deliver, and waiters
	resumed []*queue // had too much to look at for one turn
	again   []*Task  // were behind a task that is no longer blocked
	budget  budget
	// Tasks for the next turn, see budget.go: of again, those of clients that had their
	// share; those that no turn has come to; those that have done a part of their work.
	later, backlog, sliced []*Task
	spareBacklog           []*Task    // is empty; its memory is good for the next backlog
	backlogBytes           int        // that the tasks of the backlog have announced
	closing                []*queue   // are deleted, and some still wait for them
	hungry                 []*fairKey // want a read
	// starving want one and have nothing left to deliver: they go first.
	starving []*fairKey
	reading  int // reads under way
	// readPause is the time before which no read is asked for, endPause the same for
	// those of messages whose time to live is over.
	readPause, endPause int64
	readsFailed         int        // of keys, in a row
	resting             []resting  // keys that are read again later, the first one first
	refs                int        // messages in windows
	bodies              int64      // bytes of bodies in memory
	unborn              []*message // hold a body at least until their batch is committed
	census              *census    // counts what the store held at start; nil: done
	uncounted           []*Task    // wait for the end of the census
	redrives            []*redrive // under way
	remains             []*remains // of queues that were emptied
	orphans             int64      // leases of those, see leases.go
	orphanAt            int        // where sweep goes on to look for them
	stale               []*queue   // whose keys may name throttles that have come or gone, see reclass
	staleFrom           uint64     // cursor in the first of them
	swept               int        // of remains, and in stale queues, in this turn: keys, leases and messages
	sweepMax            int        // as the constant; tests sweep any number
	unfinished          bool       // this turn has left something to the next one, which follows at once

	// The open batch.
	batch     *storage.Batch
	spare     *storage.Batch // has been committed: its memory is good for the next
	sync      bool           // somebody's reply promises durability
	batchNo   uint64
	committed uint64 // all batches up to this one are in the store
	released  []*Task
	told      []*Task // are done before any commit, see told.go
	beside    []besides
	events    events

	snapshot *Snapshot // what connections see
	failed   error     // why the store cannot be written, or nil
	full     error     // why only what frees space may be written, or nil: see full.go
	// relieving says that the store is being asked for space.
	relieving bool
	backups   backups
	figure    figures
	key       []byte // scratch for keys of the store
	chance    *rand.Rand
}

// figures count since start, for FILA.STATS.
type figures struct {
	turns, tasks, recoveries uint64
}

// newCore returns a core without memory of any message: see recover.
func newCore(cfg Config, store Store) *core {
	c := &core{cfg: cfg, store: store, batch: &storage.Batch{}, batchNo: 1, parked: map[uint64]*Task{}, aheadKeys: aheadKeys, sweepMax: sweepMax, snapshot: &Snapshot{}}
	c.budget.turn = turnUnits
	c.ids.rng = rand.New(rand.NewPCG(cfg.Seed, 0x66696c61))
	c.chance = rand.New(rand.NewPCG(cfg.Seed, jitterStream))
	if !cfg.LastBackup.IsZero() {
		c.backups.lastAt = cfg.LastBackup.UnixNano()
	}
	c.forgetAll()
	return c
}

// forgetAll drops what recovery brings back from the store.
func (c *core) forgetAll() {
	c.names = nil
	c.pausedOut = map[*queue]struct{}{}
	c.queues, c.byNumber, c.leases = map[string]*queue{}, map[uint32]*queue{}, map[ID]*message{}
	c.leaseEnd, c.lag = timers[*message]{}, nil
	c.obituaries, c.dying = 0, map[ID]*dueEntry{}
	c.due, c.ends = dueIndex{family: storage.Scheduled}, dueIndex{family: storage.Expiries}
	c.throttleVersion++
	c.throttles, c.throttleList, c.tokens = map[string]*throttle{}, roster[throttle]{}, timers[*throttle]{}
	c.unset = map[string]*unsetKey{}
	c.notified, c.resumed, c.deferred = nil, nil, false
	c.dropEvents()
	c.offers, c.hungry, c.starving, c.reading, c.refs, c.bodies, c.unborn, c.census = nil, nil, nil, 0, 0, 0, nil, nil
	c.cron = newCronTable()
	c.uncounted, c.redrives = nil, nil
	c.fresh, c.dedupEnd = freshIDs{}, timers[*dedup]{}
	c.batch.Reset()
	c.sync, c.beside = false, nil
	c.strays = nil
	c.bootTime, c.readPause, c.endPause, c.keys, c.foresight = 0, 0, 0, 0, foresight{}
	c.readsFailed, c.resting = 0, nil
	c.remains, c.orphans, c.orphanAt, c.stale, c.unfinished = nil, 0, 0, nil, false
	c.sliced, c.closing, c.budget.sliced, c.budget.from = nil, nil, 0, 0
}

// turn is one pass of the engine; its steps never change order. What it writes
// is added to the open batch: the more the disk has to do, the more turns share
// one batch.
func (c *core) turn(now time.Time, tasks []*Task) {
	c.begin(now)
	c.slice(c.budget.part(4))
	c.expire()
	c.slice(c.budget.part(4))
	c.goOnInSlices()
	c.newTasks()
	c.goOn() // before what their clients have sent since
	c.applyAll(tasks)
	c.sweep()
	c.reclass()
	c.atLeast(c.budget.part(8))
	c.serve()
	c.budget.spent += c.swept
	c.pump()
	c.notice()
	c.unfinished = c.unfinished || c.owes()
	c.figure.turns++
	c.figure.tasks += uint64(len(tasks))
}

// begin moves the time on.
func (c *core) begin(now time.Time) {
	c.now = max(c.now, now.UnixNano())
	c.swept, c.unfinished, c.budget.spent = 0, false, 0
	c.newTasks()
	c.again, c.later = append(c.later, c.again...), nil
	if c.bootTime == 0 {
		c.bootTime = c.now
	}
	for _, q := range c.resumed {
		q.resumed = false
		c.offer(q)
	}
	c.resumed = c.resumed[:0]
	for len(c.unborn) > 0 && c.unborn[0].born <= c.committed {
		if m := c.unborn[0]; m.status != ready || c.bodies > c.cfg.BodyBytes {
			c.dropBody(m)
		}
		c.unborn = c.unborn[1:]
	}
}

// work is what a cut takes from the core and carries to the store.
type work struct {
	no     uint64
	batch  *storage.Batch // nil: nothing to write
	sync   bool
	tasks  []*Task
	beside []besides // to be done after the commit: they see it
	events []Event
}

// besides is what has to be read from the store beside the loop. When it is done
// it goes through the inbox, as a call.
type besides interface {
	Call
	do(store Store)
}

// cut ends the open batch and opens the next; nil if there is nothing to carry.
func (c *core) cut() *work {
	if c.batch.Len() == 0 && len(c.released) == 0 && len(c.beside) == 0 && len(c.events.open) == 0 {
		return nil
	}
	w := &work{no: c.batchNo, sync: c.sync, tasks: c.released, beside: c.beside, events: c.events.open}
	if c.batch.Len() > 0 {
		w.batch = c.batch
		c.batch, c.spare = c.spare, nil
		if c.batch == nil {
			c.batch = &storage.Batch{}
		}
	}
	c.batchNo++
	c.sync, c.released, c.beside, c.events.open = false, nil, nil, nil
	c.budget.sliced = 0
	return w
}

// apply runs a task, or keeps it in order behind a blocked one of its client.
func (c *core) apply(t *Task) {
	if cl := t.Client; cl != nil {
		if cl.blocked != nil {
			cl.behind = append(cl.behind, t)
			c.holdBack(t)
			return
		}
		if cl.dropped {
			c.finish(t, ErrClientGone)
			return
		}
	}
	c.run(t)
}

// goOn applies what stood behind tasks that are no longer blocked.
func (c *core) goOn() {
	for len(c.again) > 0 && c.room() {
		t := c.again[0]
		c.again[0] = nil
		if c.again = c.again[1:]; c.hadShare(t.Client) {
			c.later = append(c.later, t)
			continue
		}
		c.apply(t)
	}
}

// holdBack notes since when a task waits: the wait is not the engine's slowness.
func (c *core) holdBack(t *Task) {
	if t.held == 0 {
		t.held = c.now
	}
}

// run applies a task that may go now, for the first time or again.
func (c *core) run(t *Task) {
	tx := Tx{core: c, task: t}
	before := c.budget.spent
	t.running = true
	err := t.Call.Apply(&tx)
	t.running = false
	if c.budget.spent == before || t.Bytes >= unitBytes { // what has counted nothing is one unit
		c.spend(1 + t.Bytes/unitBytes)
	}
	if t.Client != nil {
		c.charge(t.Client, c.budget.spent-before)
	}
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
	case err == nil && tx.stored:
		c.conclude(t, nil)
		c.told = append(c.told, t)
	default:
		c.finish(t, err)
	}
}

// finish ends a task: its reply leaves when the open batch is committed.
func (c *core) finish(t *Task, err error) {
	c.conclude(t, err)
	c.released = append(c.released, t)
}

// conclude takes a task with its result out of what holds it.
func (c *core) conclude(t *Task, err error) {
	t.err = err
	if t.held != 0 {
		t.waited = time.Duration(c.now - t.held)
	}
	for _, w := range t.kept {
		c.unwatch(w)
	}
	t.kept = nil
	if t.wait != nil {
		c.unpark(t)
	}
}

// writable refuses what would change something while the store takes no writes.
func (c *core) writable() error {
	if c.failed != nil {
		return fmt.Errorf("%w: %w; the broker goes on by itself when it can", ErrMisconf, c.failed)
	}
	return nil
}

// nextTimer returns when the next turn is due without any task, 0 if never.
func (c *core) nextTimer() int64 {
	if c.unfinished {
		return c.now
	}
	var at int64
	earliest := func(t int64, ok bool) {
		if ok && (at == 0 || t < at) {
			at = t
		}
	}
	if w, ok := c.waits.next(); ok {
		earliest(w.until, true)
	}
	if c.failed != nil {
		return at // nothing else may be written
	}
	if m, ok := c.leaseEnd.next(); ok {
		earliest(m.until, true)
	}
	if t, ok := c.tokens.next(); ok {
		earliest(t.wakeAt, true)
	}
	if c.readPause > c.now {
		earliest(c.readPause, true)
	}
	if len(c.resting) > 0 {
		earliest(c.resting[0].until, true)
	}
	if len(c.lag) > 0 {
		earliest(c.lag[0].due, true)
	}
	if t := c.nextRedrive(); t > 0 {
		earliest(t, true)
	}
	if d, ok := c.dedupEnd.next(); ok {
		earliest(d.dropAt, true)
	}
	earliest(c.due.next())
	earliest(c.nextEnd())
	earliest(c.cron.next())
	return at
}

// keyOf returns a queue's fairness key, made if it is new.
func (c *core) keyOf(q *queue, name string) *fairKey {
	return c.keyWithHash(q, name, hashName(name))
}

// keyWithHash is keyOf for those who know the hash.
func (c *core) keyWithHash(q *queue, name string, h nameHash) *fairKey {
	if k := q.keys.find(h, name); k != nil {
		return k
	}
	return c.newFairKey(q, name, h)
}

// settle must follow every change of a key's window, edge, counts, weight or
// pause. It keeps what depends on them: its place in the schedule, the wish for a
// read, and the key's existence.
func (c *core) settle(k *fairKey) {
	q := k.queue
	c.reschedule(k)
	if starved := len(k.window) == 0 && k.behind && !k.paused; starved != k.starved {
		k.starved = starved
		if starved {
			q.starved++
		} else {
			q.starved--
			k.vain = false
			c.offer(q)
		}
	}
	c.wantKey(k)
	if k.idle() {
		c.forgetKey(k)
	}
}

// offer has a queue looked at in serve if somebody waits for it.
func (c *core) offer(q *queue) {
	if q.waiters.first != nil && !q.offered {
		q.offered = true
		c.offers = append(c.offers, q)
	}
}

// windowMax is how many messages a key may hold in memory now. A place without its
// body is not worth much: a message that is left to the disk is read along with those
// beside it, one whose body was dropped alone. So windows are short, too, when bodies
// have taken their part.
func (c *core) windowMax() int {
	if c.bodies > c.bodiesKept() {
		return min(windowSmall, c.readMax())
	}
	return c.readMax()
}

const windowSmall = 4

// readMax is how many messages a key may hold in memory once it has been read.
func (c *core) readMax() int {
	switch {
	case c.refs < c.cfg.WindowTotal:
		return c.cfg.Window
	case c.refs < 2*c.cfg.WindowTotal:
		return min(windowSmall, c.cfg.Window)
	default:
		return 1
	}
}

// bodiesKept is how many bytes of bodies are kept of what is enqueued. The rest of the
// budget is for what is read, since that is about to be delivered.
func (c *core) bodiesKept() int64 { return c.cfg.BodyBytes / 4 * 3 }

// makeReady puts a message where ready ones belong.
func (c *core) makeReady(m *message) {
	k := m.key
	m.status = ready
	if k.add(m, idNanos(m.id) == c.ids.last, c.windowMax()) {
		c.refs++
		if len(k.window) > 2*c.cfg.Window {
			c.shrink(k.cut(c.cfg.Window))
		}
		c.holdBody(m)
	} else {
		c.dropBody(m)
		m.status = gone // the disk has it
	}
	c.settle(k)
}

// holdBody keeps the body of a ready message as long as the budget allows, and
// in any case until it can be read from the store.
func (c *core) holdBody(m *message) {
	if m.body != nil && c.bodies > c.bodiesKept() {
		c.letGo(m)
	}
}

// letGo drops the body of a message as soon as the store has it.
func (c *core) letGo(m *message) {
	if m.body == nil {
		return
	}
	if m.born <= c.committed {
		c.dropBody(m)
	} else {
		c.unborn = append(c.unborn, m)
	}
}

func (c *core) setBody(m *message, body []byte) {
	m.body = body
	c.bodies += int64(len(body))
}

func (c *core) dropBody(m *message) {
	c.bodies -= int64(len(m.body))
	m.body = nil
}

// forget drops a ready message from memory that has left its window.
func (c *core) forget(m *message) {
	c.refs--
	c.dropBody(m)
	m.status = gone
}

// shrink forgets what a cut has left to the disk.
func (c *core) shrink(rest []*message) {
	for _, m := range rest {
		c.forget(m)
	}
}

// messageKey builds a message's key in the scratch buffer.
func (c *core) messageKey(m *message) []byte {
	c.key = storage.AppendMessageKey(c.key[:0], m.key.queue.no, m.key.name, m.rank, m.id)
	return c.key
}

// Tx is what a call may do within a turn.
type Tx struct {
	core   *core
	task   *Task
	atomic bool // a part of several calls that are one: it must not wait, see Exec
	before before
	stored bool // the result tells of nothing but what is in the store, see told.go
}

func unix(nanos int64) time.Time { return time.Unix(0, nanos) }

// Now returns the time of the turn.
func (tx *Tx) Now() time.Time { return time.Unix(0, tx.core.now) }

// refuse answers everything of the open batch after a failed commit: it was not
// written, and what it built upon was not either.
func (c *core) refuse(cause error) {
	c.failed = cause
	c.loseBackups(c.beside)
	refuse(c.released, cause)
}

// refuse makes tasks end with ErrMisconf that would have ended well.
func refuse(tasks []*Task, cause error) {
	for _, t := range tasks {
		if t.err == nil {
			t.err = fmt.Errorf("%w: %w", ErrMisconf, cause)
		}
	}
}

// drain prepares the end: waits for messages end empty-handed, those for anything
// else are refused, and nothing is left to the lag.
func (c *core) drain() {
	for _, t := range c.waitingTasks() {
		if t.wait.begun() {
			c.finish(t, ErrStopped) // it has not happened, or not as a whole
		} else {
			c.finish(t, nil)
		}
	}
	for len(c.redrives) > 0 {
		c.endRedrive(c.redrives[0])
	}
	c.serve() // what their clients had sent behind them was submitted: it is done
	if c.failed != nil {
		return
	}
	for i := range c.lag {
		if c.lag[i].live() {
			c.writeLease(c.lag[i].m)
		}
	}
	c.lag = nil
	if c.idsUntil > c.ids.last+1 {
		c.idsUntil = c.ids.last + 1
		c.batch.Put(storage.State, storage.AppendStateKey(nil, stateIDs), encodeUint(uint64(c.idsUntil))) //nolint:gosec // after 1970
		c.sync = true
	}
}
