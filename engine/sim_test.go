package engine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// The simulation: clients do what they like, the weather changes from seed to
// seed (crashes at any commit, power loss, a disk that fails, clocks that jump,
// clients that vanish), and an oracle that knows only what was answered judges
// what comes back. A seed is all that a run depends on.

var (
	simSeeds = flag.Int("seeds", 2000, "seeds that the simulation runs")
	simStory = flag.Bool("story", false, "print what the clients of the simulation are told")
	simFirst = flag.Uint64("seed", 1, "the first of them")
)

func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	if testing.Short() { // as under the race detector, which has nothing to find in one goroutine
		seeds = min(seeds, 100)
	}
	for seed := *simFirst; seed < *simFirst+uint64(seeds); seed++ { //nolint:gosec // positive
		if err := simulate(seed, noMutant); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// mutant is a fault that a test plants: the simulation must find each.
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
)

func TestSimulationFindsPlantedFaults(t *testing.T) {
	for m, name := range map[mutant]string{
		replyBeforeCommit: "reply before commit", ackNotWritten: "ack not written", enqueueNotWritten: "enqueue not written",
		expiryNotUnderLoad: "expiry not run under load", waiterForgotten: "waiter not served", unfencedReceipt: "unfenced receipt",
		retryTooEarly: "retry too early", endNotSeen: "message delivered after its time to live", transactionInParts: "transaction in two writes",
		replyNotSynced: "reply not synced", timerLost: "timer lost in a crash",
		tickNotWritten:  "tick not written with its message",
		dedupNotWritten: "deduplication id not written", dedupForgotten: "deduplication id forgotten before it can be looked up",
		timeNotForgotten: "a message leaves the index, and its record stays", changeNotNoted: "change beside a reading not noted",
		lateRetry: "retry after the time to live",
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 60; seed++ {
				if err := simulate(seed, m); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("60 seeds have not found it")
		})
	}
}

// weather is what varies between seeds.
type weather struct {
	crash, powerLoss, diskFails float64 // chances per step
	lazy                        float64 // chance that a commit or read has to wait
	sync                        SyncMode
	clients, keys, steps        int
	window                      int
	sweep                       int // portions in which purges give back what queues held
	units                       int // of work that a turn may do
	lag                         time.Duration
	backoff                     time.Duration
	dedupWindow                 time.Duration
	attempts                    uint32
}

func newWeather(r *rand.Rand) weather {
	w := weather{
		clients: 1 + r.IntN(6), keys: 1 + r.IntN(5), steps: 150 + r.IntN(250), window: 2 + r.IntN(12),
		lag: time.Duration(r.IntN(3)) * 5 * time.Millisecond, backoff: time.Duration(r.IntN(3)) * 200 * time.Millisecond,
		attempts: uint32(r.IntN(5)), dedupWindow: time.Duration(100+r.IntN(3000)) * time.Millisecond, //nolint:gosec // small
	}
	if r.IntN(3) > 0 {
		w.crash = 0.02
	}
	if r.IntN(3) == 0 {
		w.powerLoss = 0.02
	}
	if r.IntN(3) == 0 {
		w.diskFails = 0.01
	}
	if r.IntN(2) == 0 {
		w.lazy = 0.7
	}
	if w.powerLoss > 0 { // what is synced when makes no difference elsewhere
		w.sync = []SyncMode{SyncAlways, SyncAlways, SyncInterval, SyncNever}[r.IntN(4)]
	}
	w.sweep = []int{1, 4, reclaimMax}[r.IntN(3)]
	w.units = []int{1, 4, 64, turnUnits}[r.IntN(4)]
	return w
}

// sim is one run.
type sim struct {
	rng      *rand.Rand
	w        weather
	mutant   mutant
	store    *crashStore
	step     *Stepper
	cfg      Config
	clients  []*simClient
	oracle   oracle
	cron     cronOracle
	inHand   []*Delivery // what clients hold, as far as they know
	failing  bool
	stopping bool
	nextID   uint64
	syncedAt time.Time // of SyncInterval

	decisions int
	announced *Enqueue // of the next task
}

type simClient struct {
	client  *Client
	blocked *simTask
}

// simTask is a task together with what to do when it is done.
type simTask struct {
	Task
	apply func(tx *Tx) error
	then  func(err error) // nil: nobody is told
	sim   *sim
	order int

	announced *Enqueue
}

func (t *simTask) Apply(tx *Tx) error {
	t.sim.decisions++
	t.order = t.sim.decisions
	return t.apply(tx)
}

// crashStore crashes the process at a commit: before it or right after it.
type crashStore struct {
	*storage.Memory
	rng    *rand.Rand
	chance float64
	mutant mutant
}

var errCrash = errors.New("crash")

func (s *crashStore) Commit(b *storage.Batch, sync bool) error {
	if slices.Contains([]mutant{ackNotWritten, enqueueNotWritten, tickNotWritten, dedupNotWritten, timeNotForgotten}, s.mutant) {
		b = s.lose(b)
	}
	at := s.rng.Float64()
	if at < s.chance/2 {
		panic(errCrash)
	}
	err := s.Memory.Commit(b, sync && s.mutant != replyNotSynced)
	if at < s.chance {
		panic(errCrash)
	}
	return err
}

// Scan forgets, for a broken engine, who waits for a time.
func (s *crashStore) Scan(f storage.Family, from, to []byte) storage.Iterator {
	if s.mutant == timerLost && f == storage.Scheduled {
		from = []byte{0xff, 0xff}
	}
	return s.Memory.Scan(f, from, to)
}

// lose drops records that a broken engine would not have written.
func (s *crashStore) lose(b *storage.Batch) *storage.Batch {
	var out storage.Batch
	_ = b.Each(func(r storage.Record) error {
		switch r.Op {
		case storage.OpPut:
			if s.mutant == enqueueNotWritten && r.Family == storage.Messages && s.rng.IntN(20) == 0 {
				return nil
			}
			if s.mutant == tickNotWritten && b.Len() > 1 && bytes.HasPrefix(r.Key, storage.AppendStateKey(nil, stateCron)) && s.rng.IntN(3) == 0 {
				return nil
			}
			if s.mutant == dedupNotWritten && r.Family == storage.Dedup && s.rng.IntN(4) == 0 {
				return nil
			}
			out.Put(r.Family, r.Key, r.Value)
		case storage.OpDelete:
			out.Delete(r.Family, r.Key)
		case storage.OpSingleDelete:
			if s.mutant == ackNotWritten && r.Family == storage.Messages && s.rng.IntN(20) == 0 {
				return nil
			}
			if s.mutant == timeNotForgotten && r.Family == storage.Scheduled && s.rng.IntN(3) == 0 {
				return nil
			}
			out.SingleDelete(r.Family, r.Key)
		case storage.OpDeleteRange:
			out.DeleteRange(r.Family, r.Key, r.Value)
		}
		return nil
	})
	return &out
}

func simulate(seed uint64, m mutant) (err error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
	s := &sim{rng: rng, w: newWeather(rng), mutant: m, cfg: DefaultConfig(), oracle: newOracle()}
	s.store = &crashStore{Memory: storage.NewMemory(), rng: rng, mutant: m}
	if m == changeNotNoted {
		s.w.lazy = 0.7
	} else if m != noMutant && m != dedupForgotten {
		s.w.lazy = 0 // they are broken versions of the plain order of events
		s.w.sync = SyncAlways
	}
	if m == replyNotSynced {
		s.w.crash, s.w.powerLoss = 0.02, 0.05
	}
	s.cfg.Sync = s.w.sync
	s.cfg.Window, s.cfg.WindowTotal, s.cfg.DueWindow = s.w.window, s.w.window*(1+rng.IntN(4)), 2+rng.IntN(6)
	s.cfg.BodyBytes, s.cfg.ReadsMax, s.cfg.LeaseLag = int64(rng.IntN(400)), 1+rng.IntN(3), s.w.lag
	s.cfg.Seed, s.cfg.Scripts = seed, simScripts{}
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

// tune gives a core that was started the weather's bounds.
func (s *sim) tune() {
	c := s.step.core
	s.step.Lazy, c.heads.prefetchKeysMin, c.detached.max, c.tasks.budget.turn = s.lazy, 1, s.w.sweep, s.w.units
}

// lazy lets commits and reads of a part of the seeds take their time.
func (s *sim) lazy() bool { return s.w.lazy > 0 && s.rng.Float64() < s.w.lazy }

func (s *sim) setUp() error {
	attempts, backoff, visibility, window := s.w.attempts, s.w.backoff, 300*time.Millisecond, s.w.dedupWindow
	jitter := []uint32{0, 20, jitterMax}[s.w.steps%3]
	o := QueueOptions{MaxAttempts: &attempts, Backoff: &backoff, BackoffJitter: &jitter, Visibility: &visibility, DedupWindow: &window}
	var errs [4]error
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[0] = tx.CreateQueue("a", o); return nil })})
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[1] = tx.CreateQueue("b", o); return nil })})
	for i, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error { errs[2+i] = tx.LoadScript("b", simHook{kind}); return nil })})
	}
	s.oracle.attempts, s.oracle.window = attempts, window
	errs[0] = errors.Join(errs[0], s.setUpCron())
	for s.step.flight != nil || len(s.step.reads) > 0 || len(s.step.late) > 0 {
		s.step.Do()
	}
	s.syncNow()
	return errors.Join(errs[:]...)
}

type callFunc func(tx *Tx) error

func (f callFunc) Apply(tx *Tx) error { return f(tx) }

func (s *sim) newClient() *simClient {
	s.nextID++
	return &simClient{client: NewClient(s.nextID, func() {})}
}

// guard runs a step, and the crash and restart that it may end in.
func (s *sim) guard(step func()) {
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
	if crashed || s.rng.Float64() < s.w.crash/4 {
		s.restart(s.rng.Float64() < s.w.powerLoss*10)
	}
}

// restart is a crash of the process, or of the machine, and a new start.
func (s *sim) restart(powerLoss bool) {
	old := s.store
	memory := old.Memory.Clone()
	if powerLoss {
		memory = old.Memory.CloneSynced()
		if s.w.sync != SyncAlways {
			s.oracle.powerLost()
			s.oracle.namesLost()
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
	s.oracle.setBack += max(s.step.now.Sub(now), 0)
	step, err := NewStepper(s.cfg, s.store, now)
	if err != nil {
		s.oracle.fail("restart: %v", err)
		return
	}
	s.oracle.now = s.step.now
	s.step = step
	s.tune()
	s.store.chance = s.w.crash / 4
	s.oracle.crashed(now, step.core)
	for _, c := range s.clients {
		*c = *s.newClient()
	}
}

// submit runs a task, under a mutant in a broken engine.
func (s *sim) submit(cl *simClient, apply func(tx *Tx) error, then func(err error)) *simTask {
	t := &simTask{apply: apply, then: then, sim: s}
	t.Call, t.Client = t, cl.client
	t.announced, s.announced = s.announced, nil
	cl.blocked = t
	s.run(t)
	s.settleBlocked()
	return t
}

func (t *simTask) Announce() *Enqueue { return t.announced }

func (t *simTask) settle() {
	if then := t.then; then != nil && t.Done() {
		t.then = nil
		then(t.Err())
	}
}

// settleBlocked tells the clients of tasks that are done, in the order in which
// the engine has decided them.
func (s *sim) settleBlocked() {
	var done []*simTask
	for _, c := range s.clients {
		if c.blocked != nil && (c.blocked.Done() || c.blocked.then == nil) {
			done = append(done, c.blocked)
			c.blocked = nil
		}
	}
	slices.SortStableFunc(done, func(a, b *simTask) int { return a.order - b.order })
	for _, t := range done {
		t.settle()
	}
}

// run is Stepper.Do but for the mutants, each of which breaks one rule of it.
func (s *sim) run(t *simTask) {
	c := s.step.core
	switch s.mutant {
	case replyBeforeCommit:
		c.turn(s.step.now, []*Task{&t.Task})
		s.step.release(c.out.released)
		t.settle()
		c.out.released = nil
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
		for _, q := range c.waits.offers {
			q.offered = false
		}
		c.waits.offers = nil
	default:
		if s.mutant == changeNotNoted {
			for _, q := range c.queues.byName {
				q.deltas = nil
			}
		}
		s.step.Do(&t.Task)
		return
	}
	s.step.Do()
}

// once is one step of the world.
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
	s.settleBlocked()
	s.tick()
	if redriving || len(s.step.core.ops.redrives) > 0 {
		s.oracle.redriven(s.step.core)
	}
	if s.mutant == endNotSeen { // as if the index and the messages had forgotten
		for _, q := range s.step.core.queues.byName {
			for k := range q.roster.all() {
				for _, m := range k.window {
					m.expires = 0
				}
			}
		}
	}
	if s.mutant == dedupForgotten {
		s.step.core.dedup.fresh = freshIDs{}
	}
	s.oracle.limits(s.step.core)
	if err := s.step.Check(); err != nil {
		s.oracle.fail("%v", err)
	}
}

func (s *sim) advance() {
	d := time.Duration(s.rng.IntN(200)) * time.Millisecond
	if s.rng.IntN(40) == 0 {
		d = time.Hour
	}
	if s.mutant == expiryNotUnderLoad || s.w.units < turnUnits && s.rng.IntN(4) == 0 {
		s.step.now = s.step.now.Add(d) // the load goes on meanwhile
	} else {
		s.step.Advance(d)
	}
	s.oracle.now = s.step.now
}

// vanish lets a client disappear, perhaps in the middle of a wait.
func (s *sim) vanish() {
	i := s.rng.IntN(len(s.clients))
	s.oracle.trace("client %d vanishes", s.clients[i].client.ID)
	s.step.Leave(s.clients[i].client)
	s.step.Do()
	s.clients[i] = s.newClient()
}

// stop ends the engine in order and starts it again: everybody has an answer, and
// what was answered is true.
func (s *sim) stop() {
	s.oracle.trace("stop")
	s.step.Lazy = nil
	s.stopping = true // waits may end before their time
	for range 3 {     // what stood behind a wait may wait itself
		s.step.core.drain()
		s.step.Do()
		s.settleBlocked()
	}
	for _, c := range s.clients {
		if c.blocked != nil {
			s.oracle.fail("the engine stopped, and client %d has no answer", c.client.ID)
		}
	}
	s.stopping = false
	s.restart(false)
}

// disk lets the store fail, and work again.
func (s *sim) disk() {
	switch {
	case s.failing && s.step.core.health.failed == nil: // nobody has noticed
		s.store.FailCommits(nil)
		s.failing = false
	case s.failing:
		s.store.FailCommits(nil)
		if err := s.step.Repair(); err != nil {
			s.oracle.fail("mend: %v", err)
		}
		s.failing = false
		s.oracle.crashed(s.step.now, s.step.core)
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

// drainAll ends the run: calm weather, all is leased and acked until nothing is
// left, and what was acknowledged must have come.
func (s *sim) drainAll() error {
	s.store.chance, s.w.crash, s.w.lazy = 0, 0, 0
	s.mutantEnds()
	s.step.Do()
	s.settleBlocked()
	if s.failing {
		s.disk()
	}
	s.step.Do()
	s.settleBlocked()
	if len(s.step.core.ops.redrives) > 0 { // nothing mortal is enqueued any more
		s.oracle.redriven(s.step.core)
	}
	cl := s.newClient()
	s.clients = append(s.clients, cl)
	if err := s.endCron(cl); err != nil {
		return err
	}
	for i, empty := 0, 0; empty < 4; i++ {
		if i > 5000 {
			return errors.New("the queues do not drain")
		}
		s.step.Advance(100 * time.Millisecond)
		s.oracle.now = s.step.now
		if i%50 == 49 || empty > 0 {
			s.step.Advance(2 * time.Hour) // everything delayed or leased comes back
			s.oracle.now = s.step.now
		}
		s.settleBlocked()
		s.resumeAll(cl) // again: what stood behind a wait may have paused a key
		before := len(s.inHand)
		for _, q := range []string{"a", "b", "a.dlq", "b.dlq"} {
			s.leaseAs(cl, &LeaseRequest{Queues: []string{q}, Count: 7, Block: -1, Visibility: time.Hour})
			if cl.blocked != nil {
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
	return s.oracle.atEnd(s.step)
}

func (s *sim) resumeAll(cl *simClient) {
	for _, q := range []string{"a", "b"} {
		s.submit(cl, func(tx *Tx) error { return tx.Pause(q, true, true, false) }, func(error) {})
		for k := range s.w.keys {
			s.submit(cl, func(tx *Tx) error { return tx.PauseKey(q, fmt.Sprintf("k%d", k), false) }, func(error) {})
		}
	}
}

// mutantEnds lets those mutants rest that would keep the end from coming.
func (s *sim) mutantEnds() {
	if s.mutant == expiryNotUnderLoad || s.mutant == waiterForgotten {
		s.oracle.overdue(s.step)
		s.mutant = noMutant
	}
}

// describe says what the engine waits for.
func (s *sim) describe() string {
	c := s.step.core
	text := fmt.Sprintf("now %d, failed %v, %d reads, %d hungry, pause %d;", c.now, c.health.failed, c.reads.inFlight, len(c.reads.prefetch), c.reads.pausedUntil)
	for _, q := range c.queues.byName {
		text += fmt.Sprintf(" %s: starved %d, keys %d, waiters %d, offered %v;", q.name, q.awaitingRead, q.scheduler.keys, q.waiters.n, q.offered)
		for k := range q.roster.all() {
			text += fmt.Sprintf(" %s: window %d behind %v read %v total %d;", k.name, len(k.window), k.hasBacklog, k.read != nil, k.total)
		}
	}
	return text
}
