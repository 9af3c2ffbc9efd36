package engine

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// The simulation. Clients run random commands under conditions that vary with the seed:
// crashes at any commit, power loss, a failing disk, jumping clocks, vanishing clients. An
// oracle that knows only the replies judges what the clients receive. A run depends on its
// seed alone.

var (
	simSeeds = flag.Int("seeds", 2000, "seeds that the simulation runs")
	simStory = flag.Bool("story", false, "print what the clients of the simulation are told")
	simFirst = flag.Uint64("seed", 1, "the first of them")
)

func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	if testing.Short() {
		seeds = min(seeds, 100)
	}
	for seed := *simFirst; seed < *simFirst+uint64(seeds); seed++ {
		if err := simulate(seed, noMutant); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// mutant is a planted fault. The simulation must detect each.
type mutant int

const (
	noMutant mutant = iota
	replyBeforeCommit
	ackNotWritten
	enqueueNotWritten
	expiryNotUnderLoad
	waiterForgotten
	unfencedReceipt
	retryTooEarly
	endNotSeen
	transactionInParts
	replyNotSynced
	timerLost
	tickNotWritten
	dedupNotWritten
	dedupForgotten
	timeNotForgotten
	changeNotNoted
	lateRetry
	unfencedUndo
	additionNotWritten
	removalNotWritten
	signalTimeWrong
	checkpointLate
	limitNotCut
	leaseAboveLimit
	reservationKept
	returnedTwice
	creditNotSeen
	settlementNotWritten
	refillRepeated
	idForgotten
	settledTwice
	creditNotWritten
	releaseNotSeen
	hookFree
	tickFree
	publishInParts
	orderBroken
	orderNotCommitted
	resultBeforeCommit
	uniqueFreedApart
	untilLeaseFreedEarly
	replacementKeepsTTL
	replacementKeepsBody
	replacementMoves
	replacementNotCommitted
	oldRequestReplaces
	bodyFreedEarly
	bodyForgotten
	actNotWritten
	doneWrittenApart
	failureNotWritten
	failureTwice
	gatherLost
	holdNotWritten
	hookHoldIgnored
	pauseNotWritten
	// Those of several nodes, see sim_replica_test.go.
	termNotChecked
	appliedTwice
	toldUnconfirmed
	confirmedBefore
	startNotWritten
	logCutUnsynced
	partsSingly
)

// findFault runs a simulation with a planted fault until a seed finds it. A short run leaves out the
// seeds before early, which did not find it when this was written.
func findFault(t *testing.T, seeds, early uint64, simulate func(seed uint64) error) {
	t.Helper()
	first := uint64(1)
	if testing.Short() {
		first = max(first, early)
	}
	for seed := first; seed < max(first, early)+seeds; seed++ {
		if err := simulate(seed); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Errorf("%d seeds have not found the fault", seeds)
}

func TestSimulationFindsPlantedFaults(t *testing.T) {
	late := map[mutant]uint64{lateRetry: 30, orderNotCommitted: 45, hookHoldIgnored: 350, unfencedUndo: 240, replacementNotCommitted: 25}
	for m, name := range map[mutant]string{
		replyBeforeCommit: "reply before commit", ackNotWritten: "ack not written", enqueueNotWritten: "enqueue not written",
		expiryNotUnderLoad: "expiry not run under load", waiterForgotten: "waiter not served", unfencedReceipt: "unfenced receipt",
		retryTooEarly: "retry too early", endNotSeen: "message delivered after its time to live", transactionInParts: "transaction in two writes",
		replyNotSynced: "reply not synced", timerLost: "timer lost in a crash",
		tickNotWritten:  "tick not written with its message",
		dedupNotWritten: "deduplication id not written", dedupForgotten: "deduplication id forgotten before it can be looked up",
		timeNotForgotten: "a message leaves the index, and its record stays", changeNotNoted: "change beside a reading not noted",
		lateRetry: "retry after the time to live", unfencedUndo: "a later delivery taken back",
		additionNotWritten: "addition to a signal not written", removalNotWritten: "removal of a signal not written",
		signalTimeWrong: "signal written with another time", checkpointLate: "checkpoint of signals after its time",
		limitNotCut: "a limit that is not cut", leaseAboveLimit: "a lease above the limit",
		reservationKept: "a reservation kept after expiry", returnedTwice: "a reservation given back twice",
		creditNotSeen:        "a credit that wakes no key",
		settlementNotWritten: "a settlement in another write than its ack",
		refillRepeated:       "a refill twice after the clock went back", idForgotten: "an id forgotten in a crash",
		settledTwice:     "use settled twice",
		creditNotWritten: "a message handed out on a credit that was not written", releaseNotSeen: "a wake-up missed on release",
		publishInParts: "publish in two writes",
		hookFree:       "budgets that a hook names are ignored", tickFree: "a tick without its budgets",
		orderBroken: "order broken by a retry", orderNotCommitted: "the next of a key handed out before the end of the last was written",
		resultBeforeCommit: "a result told before its commit", uniqueFreedApart: "unique id freed in another write than the ack",
		untilLeaseFreedEarly: "a unique id freed by a lease without a record", replacementKeepsTTL: "a replacement that keeps the old time to live",
		replacementKeepsBody: "a replacement that leaves the old body", replacementMoves: "a replacement that loses its place",
		replacementNotCommitted: "a replacement handed out before it was written", oldRequestReplaces: "an old request, sent again, that replaces a newer one",
		bodyFreedEarly: "body freed one message too early", bodyForgotten: "bodies without a count forgotten",
		doneWrittenApart: "a done record of a message that is still there",
		holdNotWritten:   "a hold lost by a crash", hookHoldIgnored: "a hold of a hook ignored",
		actNotWritten: "a change without its act", failureNotWritten: "an attempt is missing", failureTwice: "an attempt twice after a crash",
		pauseNotWritten: "a pause lost by a crash",
		gatherLost:      "a key that gathers sleeps for ever after a restart",
	} {
		t.Run(name, func(t *testing.T) {
			findFault(t, 200, late[m], func(seed uint64) error { return simulate(seed, m) })
		})
	}
}

// sim is one run of the simulation.
type sim struct {
	rng      *rand.Rand
	w        conditions
	mutant   mutant
	store    *crashStore
	step     *Stepper
	cfg      Config
	clients  []*simClient
	leaving  []*simTask // of clients that have disconnected, until they are done
	undos    []*Task    // take deliveries back that reached no client; not submitted yet
	oracle   oracle
	cron     cronOracle
	money    moneyOracle
	inHand   []*Delivery // leases that clients believe to have
	failing  bool
	stopping bool
	nextID   uint64
	syncedAt time.Time // of SyncInterval

	gatherers map[string]gathered // by queue and key
	decisions int
	announced *Enqueue // the enqueue of the next task

	held     *[]*Task // the inbox of a node that is stopped; nil: it runs
	replaced bool     // another node leads: the clients are those of a leader of before
	late     func()   // of the next task, see simTask

	refusals, lates int // answers of leaders that were replaced
}

// simClient is a client and its connection, which answers its commands in their order.
type simClient struct {
	client  *Client
	pending []*simTask // without a reply
	gone    bool       // it has disconnected: replies are dropped
}

// pipelineMax is how many commands a client sends without waiting for replies.
const pipelineMax = 3

// simTask is a task with what the client does with its reply.
type simTask struct {
	Task
	apply func(tx *Tx) error
	then  func(err error)
	// deliveries are the messages that the reply hands over. They are taken back if the reply
	// does not reach the client. nil: it hands over none.
	deliveries func() []*Delivery
	sim        *sim
	client     *simClient
	order      int

	asks      bool // for a result
	announced *Enqueue
	// late judges a success that a leader answers after it was replaced; nil: it may be old.
	late func()
}

func (t *simTask) Apply(tx *Tx) error {
	t.sim.decisions++
	t.order = t.sim.decisions
	return t.apply(tx)
}

func simulate(seed uint64, m mutant) (err error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
	s := &sim{rng: rng, w: newConditions(rng), mutant: m, cfg: DefaultConfig(), oracle: newOracle()}
	s.store = &crashStore{Memory: storage.NewMemory(), rng: rng, mutant: m}
	if m == changeNotNoted || m == unfencedUndo || m == creditNotWritten {
		s.w.lazy = 0.7
	} else if m != noMutant && m != dedupForgotten {
		s.w.lazy = 0 // mutants break the order of events without delays
		s.w.sync = SyncAlways
	}
	if m == unfencedUndo {
		s.w.lost = 0.5
	}
	if m == publishInParts || m == settlementNotWritten || m == refillRepeated || m == idForgotten || m == creditNotWritten {
		s.w.crash, s.w.powerLoss = 0.05, 0
	}
	s.plantOrder()
	if m == creditNotWritten || m == orderNotCommitted || m == replacementNotCommitted {
		s.w.crash, s.w.leaseLag = 0.02, 5*time.Millisecond
	}
	if m == resultBeforeCommit || m == uniqueFreedApart || m == bodyForgotten || m == actNotWritten || m == holdNotWritten || m == failureNotWritten || m == failureTwice || m == doneWrittenApart || m == untilLeaseFreedEarly {
		s.w.crash, s.w.powerLoss = 0.2, 0
	}
	if m == replyNotSynced {
		s.w.crash, s.w.powerLoss = 0.02, 0.05
	}
	s.configure(seed)
	if s.step, err = NewStepper(s.cfg, s.store, time.Unix(1_700_000_000, 0)); err != nil {
		return err
	}
	s.tune()
	s.oracle.now = s.step.now
	for range s.w.clients {
		s.clients = append(s.clients, s.newClient())
	}
	if err := s.setUp(); err != nil {
		return err
	}
	s.store.chance = s.w.crash / 4
	for range s.w.steps {
		s.guard(s.once)
		if err := s.verdict(); err != nil {
			return err
		}
	}
	return s.drainAll()
}

// configure chooses the settings of the engine.
func (s *sim) configure(seed uint64) {
	rng := s.rng
	s.cfg.Sync = s.w.sync
	s.cfg.Window, s.cfg.WindowTotal, s.cfg.DueWindow = s.w.window, s.w.window*(1+rng.IntN(4)), 2+rng.IntN(6)
	s.cfg.BodyBytes, s.cfg.ReadsMax, s.cfg.LeaseWriteDelay = int64(rng.IntN(400)), 1+rng.IntN(3), s.w.leaseLag
	s.cfg.Seed, s.cfg.Scripts = seed, simScripts{}
	s.setUpSignals()
}

// tune applies the conditions' bounds to a core that has started.
func (s *sim) tune() {
	c := s.step.core
	s.step.Lazy, c.heads.prefetchKeysMin, c.detached.max, c.tasks.budget.Turn, c.bodies.min = s.lazy, 1, s.w.reclaimMax, s.w.units, s.w.bodyMin
	if s.mutant == checkpointLate {
		c.signals.Inside().Delay(100)
	}
}

// lazy delays commits and reads, in a part of the seeds.
func (s *sim) lazy() bool { return s.w.lazy > 0 && s.rng.Float64() < s.w.lazy }

func (s *sim) setUp() error {
	jitter := []uint64{0, 20, 100}[s.w.steps%3]
	o := QueueOptions{Given: queueset.Given{
		queueset.MaxAttempts: uint64(s.w.attempts), queueset.Backoff: millis(s.w.backoff), queueset.BackoffJitter: jitter,
		queueset.Visibility: 300, queueset.DedupWindow: millis(s.w.dedupWindow), queueset.ResultTTL: queueset.MillisMax, queueset.KeepDone: s.keepDone(),
	}}
	var errs [4]error
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[0] = tx.CreateQueue("a", s.inOrder(o)); return nil })})
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[1] = tx.CreateQueue("b", s.inBatches(withSignals(o))); return nil })})
	for i, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[2+i] = tx.LoadScript("b", simHook{kind}, ""); return nil })})
	}
	s.oracle.attempts, s.oracle.window = s.w.attempts, s.w.dedupWindow
	errs[0] = errors.Join(errs[0], s.setUpCron(), s.setUpBudgets(), s.setUpTopics())
	for s.step.flight != nil || len(s.step.reads) > 0 || len(s.step.late) > 0 {
		s.step.Do()
	}
	s.syncNow()
	return errors.Join(errs[:]...)
}

func (s *sim) newClient() *simClient {
	s.nextID++
	return &simClient{client: NewClient(s.nextID, func() {})}
}

// guard runs a step, and the restart if the step ends in a crash.
func (s *sim) guard(step func()) {
	s.money.handedOut, s.oracle.order.handed = false, false
	crashed := func() (crashed bool) {
		defer func() {
			if p := recover(); p != nil {
				if p != errCrash { //nolint:errorlint // a panic value
					panic(p)
				}
				crashed = true
			}
		}()
		step()
		return false
	}()
	if crashed || s.rng.Float64() < s.w.crash/4 || s.justHanded() {
		s.restart(s.rng.Float64() < s.w.powerLoss*10)
	}
}

// restart simulates a crash of the process or of the machine, and a new start.
func (s *sim) restart(powerLoss bool) {
	s.money.prune(s.step.now) // the clock may be set back
	s.oracle.holds.over(unix(s.step.core.now))
	old := s.store
	memory := old.Memory.Clone()
	if powerLoss {
		memory = old.Memory.CloneSynced()
		if s.w.sync != SyncAlways {
			s.oracle.powerLost()
			s.oracle.namesLost()
			s.oracle.results.powerLost()
			clear(s.oracle.holds.until) // a hold that was opened may be there again, or one may be lost
			clear(s.oracle.done.shown)
			clear(s.oracle.done.in)
			clear(s.oracle.unique.ended)
			s.oracle.lostReplacements()
			s.cron.powerLost()
		}
	}
	memory.FailCommits(nil)
	s.failing = false
	s.store = &crashStore{Memory: memory, rng: s.rng, mutant: s.mutant}
	now := s.step.now
	switch s.rng.IntN(4) {
	case 0:
		now = now.Add(time.Duration(s.rng.IntN(2000)) * time.Millisecond)
	case 1:
		s.cron.until = max(s.cron.until, now.UnixNano())
		now = now.Add(-time.Hour)
	}
	step, err := NewStepper(s.cfg, s.store, now)
	if err != nil {
		s.oracle.fail("restart: %v", err)
		return
	}
	s.oracle.setBack += max(s.step.now.Sub(step.now), 0) // what the store has not kept
	s.oracle.now = s.step.now
	s.step = step
	s.tune()
	s.repeatRefills()
	s.money.crashed(s, powerLoss && s.w.sync != SyncAlways)
	s.store.chance = s.w.crash / 4
	s.crashedTopics(powerLoss && s.w.sync != SyncAlways)
	s.crashedUnique()
	s.cron.crashed()
	s.checkBodies()
	s.oracle.crashed(step.now, step.core)
	s.leaving, s.undos = nil, nil
	clear(s.gatherers)
	for _, c := range s.clients {
		*c = *s.newClient()
	}
}

// submit runs a task.
func (s *sim) submit(cl *simClient, apply func(tx *Tx) error, then func(err error)) *simTask {
	return s.submitLease(cl, apply, then, nil)
}

// submitLease runs a task whose reply hands over messages.
func (s *sim) submitLease(cl *simClient, apply func(tx *Tx) error, then func(err error), deliveries func() []*Delivery) *simTask {
	t := &simTask{apply: apply, then: then, deliveries: deliveries, sim: s, client: cl}
	t.Call, t.Client = t, cl.client
	t.announced, t.late, s.announced, s.late = s.announced, s.late, nil, nil
	cl.pending = append(cl.pending, t)
	s.run(t)
	s.settleReplies()
	return t
}

func (t *simTask) Announce() *Enqueue { return t.announced }

// settle gives the reply of a task that is done to its client, once. As a connection does, it
// drops the reply of a client that has disconnected.
func (t *simTask) settle() {
	then := t.then
	t.then = nil
	switch {
	case then == nil || !t.Done():
	case t.client.gone:
		t.sim.drop(t)
	case t.sim.replaced:
		t.settleLate(then)
	default:
		then(t.Err())
	}
}

// settleReplies delivers the replies that are done, in the order of the engine's decisions:
// those of a client in the order of its commands, and those of clients that have disconnected
// to no client. Then it submits what takes deliveries back, now or in a later step.
func (s *sim) settleReplies() {
	for {
		for _, t := range s.takeDone(s.unconfirmed()) {
			t.settle()
		}
		undos := s.undos
		if len(undos) == 0 || s.lazy() {
			return
		}
		s.undos = nil
		s.step.Submit(undos)
	}
}

// takeDone removes the tasks whose replies are due and that were decided before an order, and returns
// them.
func (s *sim) takeDone(before int) []*simTask {
	var done []*simTask
	for _, c := range s.clients {
		for len(c.pending) > 0 && c.pending[0].Done() && c.pending[0].order < before {
			done, c.pending = append(done, c.pending[0]), c.pending[1:]
		}
	}
	s.leaving = slices.DeleteFunc(s.leaving, func(t *simTask) bool {
		if t.Done() {
			done = append(done, t)
		}
		return t.Done()
	})
	slices.SortStableFunc(done, func(a, b *simTask) int { return a.order - b.order })
	return done
}

// run is Stepper.Do, except for the mutants, each of which breaks one of its rules.
func (s *sim) run(t *simTask) {
	if s.held != nil {
		*s.held = append(*s.held, &t.Task)
		return
	}
	c := s.step.core
	switch s.mutant {
	case replyBeforeCommit:
		c.turn(s.step.now, []*Task{&t.Task})
		s.step.release(c.out.released)
		t.settle()
		c.out.released = nil
	case resultBeforeCommit:
		c.turn(s.step.now, []*Task{&t.Task})
		s.answerEarly()
	case expiryNotUnderLoad:
		c.begin(s.step.now)
		c.apply(&t.Task)
		c.serve()
		c.issueReads()
		for w := c.cut(); w != nil; w = c.cut() {
			s.step.commit(w)
		}
		return
	case waiterForgotten:
		c.begin(s.step.now)
		c.expire()
		c.apply(&t.Task)
		c.order.Inside().ForgetOffers()
	default:
		if s.mutant == changeNotNoted {
			for _, q := range c.queues.byName {
				q.changes.Drop()
			}
		}
		s.step.Do(&t.Task)
		return
	}
	s.step.Do()
}

// once runs one random step.
func (s *sim) once() {
	redriving := len(s.step.core.ops.redrives) > 0
	switch n := s.rng.IntN(100); {
	case n < 8:
		s.advance()
	case n < 11:
		s.vanish()
	case n < 13:
		s.disk()
	case n == 13 && s.rng.IntN(4) == 0 && !s.failing:
		s.stop()
	default:
		if cl := s.idleClient(); cl != nil {
			s.act(cl)
		} else {
			s.advance()
		}
	}
	s.judge(redriving)
}

// judge settles replies after a step, and checks what must hold.
func (s *sim) judge(redriving bool) {
	s.settleReplies()
	s.tick()
	s.checkpointed()
	if redriving || len(s.step.core.ops.redrives) > 0 {
		s.oracle.redriven(s.step.core)
	}
	if s.mutant == endNotSeen { // the index and the messages lose the expiry
		for _, q := range s.step.core.queues.byName {
			for k := range q.roster.All() {
				for _, m := range k.window.All() {
					m.expires = 0
				}
			}
		}
	}
	s.breakBudgets()
	s.breakOrder()
	s.breakBodies()
	if s.mutant == dedupForgotten {
		s.step.core.dedup.Inside().ForgetRecent()
	}
	s.oracle.limits(s.step.core)
	s.oracle.acts(s.step.core)
	s.oracle.attemptsOf(s.step.core)
	s.overdueBatches(s.step.core)
	if err := s.step.Check(); err != nil && s.mutant != orderBroken && s.mutant != gatherLost { // which the replies tell as well
		s.oracle.fail("%v", err)
	}
}

func (s *sim) advance() {
	d := time.Duration(s.rng.IntN(200)) * time.Millisecond
	if s.rng.IntN(40) == 0 {
		d = time.Hour
	}
	s.keepReservations(s.step.now.Add(d))
	if s.mutant == expiryNotUnderLoad || s.w.units < turnUnits && s.rng.IntN(4) == 0 {
		s.step.now = s.step.now.Add(d) // without turns in between
	} else {
		s.step.Advance(d)
	}
	s.oracle.now = s.step.now
}

// vanish disconnects a client, perhaps during a wait.
func (s *sim) vanish() {
	s.disconnect(s.clients[s.rng.IntN(len(s.clients))])
	s.step.Do()
}

// stop stops the engine in order and starts it again: every client must get a reply, and
// all replies must hold.
func (s *sim) stop() {
	s.stopInOrder()
	s.restart(false)
}

// stopInOrder stops the engine.
func (s *sim) stopInOrder() {
	s.oracle.trace("stop")
	s.step.Lazy = nil
	s.stopping = true       // waits may end early
	for range pipelineMax { // tasks queued behind a wait may wait, too
		s.step.core.drain()
		s.step.Do()
		s.settleReplies()
	}
	for _, c := range s.clients {
		if len(c.pending) > 0 {
			s.oracle.fail("the engine stopped, and client %d has no answer", c.client.ID)
		}
	}
	if len(s.leaving) > 0 {
		s.oracle.fail("the engine stopped, and %d tasks of clients that have left are not done", len(s.leaving))
	}
	s.stopping = false
	s.oracle.signals.follow(s.step.core)
	s.oracle.signals.keep(s.step.now, false)
}

// disk makes the store fail, and repairs it.
func (s *sim) disk() {
	switch {
	case s.failing && s.step.core.health.failed == nil: // no commit has failed
		s.store.FailCommits(nil)
		s.failing = false
	case s.failing:
		s.store.FailCommits(nil)
		if err := s.step.Repair(); err != nil {
			s.oracle.fail("repair: %v", err)
		}
		s.failing = false
		s.decisions++ // what was seen before is not the newest
		s.oracle.recovered(s.step.now, s.step.core)
		s.money.crashed(s, false)
	case s.rng.Float64() < s.w.diskFails*20:
		if s.rng.IntN(2) == 0 {
			s.store.FailCommits(errors.New("no space left"))
		} else {
			s.store.FailCommitsLate(errors.New("i/o error"))
		}
		s.failing = true
	}
}

func (s *sim) verdict() error { return s.oracle.err }

// drainAll ends the run without further faults: it leases and acks until nothing is left,
// and all acknowledged messages must have come.
func (s *sim) drainAll() error {
	s.store.chance, s.w.crash, s.w.lazy, s.w.lost = 0, 0, 0, 0
	s.mutantEnds()
	s.step.Do()
	s.settleReplies()
	if s.failing {
		s.disk()
	}
	s.step.Do()
	s.settleReplies()
	if len(s.step.core.ops.redrives) > 0 { // it may also move messages that tasks behind a wait are still to enqueue
		s.oracle.redrove = math.MaxInt64
	}
	cl := s.newClient()
	s.clients = append(s.clients, cl)
	s.openGates(cl)
	if err := s.endCron(cl); err != nil {
		return err
	}
	s.endBudgets(cl)
	for i, empty := 0, 0; empty < 4; i++ {
		if i > 5000 {
			return errors.New("the queues do not drain")
		}
		s.step.Advance(100 * time.Millisecond)
		s.oracle.now = s.step.now
		if i%50 == 49 || empty > 0 {
			s.openGates(cl)
			s.step.Advance(2*time.Hour + s.oracle.setBack) // delays and leases end
			s.oracle.now = s.step.now
		}
		s.settleReplies()
		s.resumeAll(cl) // again: a task queued behind a wait may have paused a key
		before := len(s.inHand)
		for _, q := range []string{"a", "b", "a.dlq", "b.dlq"} {
			s.leaseAs(cl, &LeaseRequest{Queues: []string{q}, Count: 7, Block: -1, Visibility: time.Hour})
			if len(cl.pending) > 0 {
				return fmt.Errorf("a lease of %s that does not block has no answer: %s", q, s.describe())
			}
		}
		if len(s.inHand) == before {
			empty++
			continue
		}
		empty = 0
		for _, d := range s.inHand {
			var acked int
			s.oracle.maybeGone(d.Receipt.ID)
			s.money.mayUse(d.Receipt.ID, nil)
			s.submit(cl, func(tx *Tx) (err error) { acked, err = tx.Ack(d.Queue, []Receipt{d.Receipt}); return err }, func(err error) {
				s.oracle.acked(d, acked, err)
			})
		}
		s.inHand = nil
		if s.oracle.err != nil {
			return s.oracle.err
		}
		if err := s.step.Check(); err != nil {
			return err
		}
	}
	s.endSignals(cl)
	s.budgetsAtEnd()
	if err := s.oracle.atEnd(s.step); err != nil {
		return err
	}
	s.endBodies()
	s.endUnique(cl)
	return s.oracle.err
}
