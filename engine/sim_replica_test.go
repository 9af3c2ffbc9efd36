package engine

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// The simulation of several nodes that are one broker. Each has a store, a machine, and at most one
// engine; the log is a model (sim_raft_test.go). Clients, commands and the oracle are those of the
// simulation of one node: to them a takeover is a restart. Beside it, clients of a leader that was
// replaced wait for their answers, and that leader may get new commands. It may say what has
// happened and what has not, and must not hand out anything.

var simNodeSeeds = flag.Int("nodeseeds", 1000, "seeds that the simulation of several nodes runs")

func TestSimulationOfNodes(t *testing.T) {
	seeds := *simNodeSeeds
	if testing.Short() {
		seeds = min(seeds, 40)
	}
	var seen simEvents
	for seed := *simFirst; seed < *simFirst+uint64(seeds); seed++ {
		if err := simulateNodes(seed, noMutant, &seen); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%+v", seen)
	for i, v := 0, reflect.ValueOf(seen); i < v.NumField(); i++ {
		if v.Field(i).Int() == 0 && seeds >= 1000 {
			t.Errorf("%d seeds have had none: %s", seeds, v.Type().Field(i).Name)
		}
	}
}

// simEvents count what a run is about, so that it is not free of it.
type simEvents struct {
	takeovers  int // by another node or the same
	twoEngines int // takeovers beside an engine that does not know it
	stopped    int // nodes that were stopped with an engine that leads
	inInbox    int // tasks that such an engine has found in its inbox
	snapshots  int // that a node was given
	divided    int // batches of several parts
	unfinished int // of which a machine has discarded a part
	oldTerm    int // batches of one term that the log has taken in another
	refused    int // tasks that a leader that was replaced has refused
	late       int // successes that it has answered
	users      int // changes of users that were acknowledged
}

func TestSimulationOfNodesFindsPlantedFaults(t *testing.T) {
	late := map[mutant]uint64{termNotChecked: 210, confirmedBefore: 215, partsSingly: 225, toldUnconfirmed: 190}
	for m, name := range map[mutant]string{
		termNotChecked: "no term check", appliedTwice: "apply twice", toldUnconfirmed: "told without confirming",
		confirmedBefore: "confirmed by an answer of before", replyBeforeCommit: "reply before commit", startNotWritten: "start number not written",
		logCutUnsynced: "log cut before the store is synced", partsSingly: "parts applied singly",
	} {
		t.Run(name, func(t *testing.T) {
			findFault(t, 500, late[m], func(seed uint64) error { return simulateNodes(seed, m, &simEvents{}) })
		})
	}
}

const simClusterID = "simulated"

// simCluster is one run of the simulation of several nodes.
type simCluster struct {
	*sim

	nodes   []*simNode
	leader  *simNode // whose engine is the newest; nil: there is none
	acting  *simNode // whose engine runs
	digests map[uint64]uint64

	calm      bool    // nothing fails, and nothing is late
	slowness  float64 // chance that a step of the log happens later
	crashing  float64 // chance that a leader crashes in the middle of a commit
	rough     int     // weather in this many of 100 steps
	partBytes int
	takeovers int
	seen      *simEvents
	users     simUsers
}

// simSession is the engine of a node and what the simulation has for it.
type simSession struct {
	step     *Stepper // nil: there is none
	term     uint64
	replaced bool // a later leader has taken over
	heard    bool // a majority has answered since the last step
	inbox    []*Task

	clients []*simClient
	leaving []*simTask
	undos   []*Task
}

func simulateNodes(seed uint64, m mutant, seen *simEvents) error {
	rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible on purpose
	s := &sim{rng: rng, w: newConditions(rng), mutant: m, cfg: DefaultConfig(), oracle: newOracle()}
	s.w.crash, s.w.powerLoss, s.w.diskFails, s.w.sync = 0, 0, 0, SyncAlways
	s.store = &crashStore{Memory: storage.NewMemory(), rng: rng} // only the stores of nodes are used
	c := &simCluster{sim: s, seen: seen, digests: map[uint64]uint64{}, rough: 2 + rng.IntN(12), partBytes: replica.PartBytes, users: newSimUsers()}
	if rng.IntN(2) == 0 {
		c.partBytes = 60 + rng.IntN(400)
	}
	if rng.IntN(3) > 0 {
		c.slowness = rng.Float64()
	}
	if rng.IntN(2) == 0 {
		c.crashing = 0.03
	}
	c.plant()
	s.configure(seed)
	s.cfg.KeepTime = true
	for i := range 3 + 2*rng.IntN(2) {
		n := &simNode{cluster: c, id: i, up: true, store: storage.NewMemory()}
		if err := replica.Claim(n.store, simClusterID, map[string]string{"default": "seeded"}); err != nil {
			return err
		}
		n.read()
		c.nodes = append(c.nodes, n)
	}
	c.calm = true
	s.oracle.now = time.Unix(1_700_000_000, 0)
	if !c.elect(c.nodes[0]) || !c.takeOver(c.nodes[0]) {
		return errors.New("the first node does not lead")
	}
	if err := s.setUp(); err != nil {
		return err
	}
	c.calm = false
	for range s.w.steps {
		c.once()
		if err := s.verdict(); err != nil {
			return err
		}
	}
	err := c.end()
	seen.refused += s.refusals
	seen.late += s.lates
	return err
}

// plant sets the conditions in which a mutant is found.
func (c *simCluster) plant() {
	switch c.mutant {
	case termNotChecked:
		c.slowness = 0.7
	case appliedTwice, partsSingly:
		c.slowness, c.crashing, c.partBytes = 0.5, 0.03, 60
	case toldUnconfirmed, confirmedBefore:
		c.w.leaseLag, c.rough = 5*time.Millisecond, 15
	case replyBeforeCommit, startNotWritten:
		c.w.lazy, c.rough = 0, 15
	default:
	}
}

func (c *simCluster) slow() bool    { return !c.calm && c.rng.Float64() < c.slowness }
func (c *simCluster) crashes() bool { return !c.calm && c.rng.Float64() < c.crashing }

// on runs something with the engine and the clients of a node. The process may crash meanwhile.
func (c *simCluster) on(n *simNode, run func()) {
	was := c.acting
	c.leave(was)
	c.enter(n)
	defer func() {
		c.leave(n)
		if p := recover(); p != nil {
			if p != errCrash { //nolint:errorlint // a panic value
				panic(p)
			}
			c.crash(n, false)
		}
		c.enter(was)
	}()
	run()
}

func (c *simCluster) enter(n *simNode) {
	if c.acting = n; n == nil {
		return
	}
	s, v := c.sim, &n.session
	s.step, s.clients, s.leaving, s.undos = v.step, v.clients, v.leaving, v.undos
	s.replaced, s.held = v.replaced, nil
	if n.paused {
		s.held = &v.inbox
	}
}

func (c *simCluster) leave(n *simNode) {
	if n != nil {
		v := &n.session
		v.clients, v.leaving, v.undos = c.clients, c.leaving, c.undos
	}
}

// simNodeStore is the store of an engine of a node.
type simNodeStore struct {
	*replica.Store

	node  *simNode
	first bool // nothing was committed yet
}

// simReader reads from the store that the node has now: a snapshot may have replaced it.
type simReader struct{ node *simNode }

func (r simReader) Get(f storage.Family, key []byte) ([]byte, error) { return r.node.store.Get(f, key) }
func (r simReader) Scan(f storage.Family, from, to []byte) storage.Iterator {
	return r.node.store.Scan(f, from, to)
}

// Commit returns ErrWouldBlock where the log has not decided: Stepper asks again.
func (s *simNodeStore) Commit(b *storage.Batch, sync bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != errUndecided { //nolint:errorlint // a panic value
				panic(p)
			}
			err = ErrWouldBlock
		}
	}()
	if s.first && s.node.cluster.mutant == startNotWritten {
		b = &storage.Batch{}
	}
	err, s.first = s.Store.Commit(b, sync), false
	return err
}

// takeOver starts the engine of a node that leads the log, as soon as it has all that is committed.
// It returns false if it cannot.
func (c *simCluster) takeOver(n *simNode) bool {
	term, calm := n.leads, c.calm
	c.settleBefore()
	c.calm = true
	defer func() { c.calm = calm }()
	n.flow()
	if n.leads != term || n.commit < n.last() || c.oracle.err != nil {
		return false
	}
	s, was := c.sim, c.oracle.now
	now := was
	if c.takeovers > 0 { // clocks differ
		now = now.Add([]time.Duration{time.Duration(s.rng.IntN(2000)) * time.Millisecond, -time.Hour, 0, 0}[s.rng.IntN(4)])
	}
	store := &simNodeStore{Store: replica.NewStore(simReader{n}, n, term, n.machine.LastOf(term)), node: n, first: true}
	store.PartBytes = c.partBytes
	cfg := s.cfg
	cfg.Confirm = func() error { return n.Confirm(term) }
	s.money.prune(was) // the clock may be set back
	step, err := NewStepper(cfg, store, now)
	if err != nil {
		if !errors.Is(err, storage.ErrDeposed) && !errors.Is(err, ErrWouldBlock) {
			s.oracle.fail("take over: %v", err)
		}
		n.stepDown()
		return false
	}
	c.takeovers++
	s.oracle.trace("node %d takes over", n.id)
	c.seen.takeovers++
	for _, o := range c.nodes {
		if o.session.step != nil && o.session.step.halted == nil {
			c.seen.twoEngines++
		}
		o.session.replaced = true
	}
	s.cron.crashed()
	n.session = simSession{step: step, term: term}
	if now.Before(was) {
		s.cron.until = max(s.cron.until, was.UnixNano())
	}
	s.oracle.setBack += max(was.Sub(step.Now()), 0)
	s.oracle.now = step.Now()
	c.leader, s.step, s.clients, s.leaving, s.undos = n, step, nil, nil, nil
	c.tune()
	for range s.w.clients {
		s.clients = append(s.clients, s.newClient())
	}
	n.session.clients = s.clients
	if c.takeovers > 1 {
		c.on(n, func() {
			s.money.crashed(s, false)
			s.crashedTopics(false)
			s.checkBodies()
			s.oracle.crashed(step.Now(), step.core)
		})
	} else {
		s.oracle.signals.follow(step.core)
	}
	return true
}

// settleBefore settles what leaders have answered before another node takes over, and what unconfirmed
// has held back to keep the order of the oracle: the earlier decisions are confirmed no more.
func (c *simCluster) settleBefore() {
	for _, o := range c.nodes {
		if o.session.step != nil {
			c.on(o, func() {
				for _, t := range c.takeDone(math.MaxInt) {
					t.settle()
				}
			})
		}
	}
}

// sound reports whether a node leads with an engine that no other node has replaced.
func (c *simCluster) sound(n *simNode) bool {
	return n != nil && n.up && !n.paused && n.session.step != nil && n.session.step.halted == nil && n.leads == n.session.term
}

// once runs one step: a client's command, the weather, or time, and then some of what the nodes
// have to do.
func (c *simCluster) once() {
	switch n := c.rng.IntN(100); {
	case n < 8:
		c.advance(time.Duration(c.rng.IntN(200)) * time.Millisecond)
	case n < 8+c.rough:
		c.weather()
	default:
		c.act()
	}
	for _, i := range c.rng.Perm(len(c.nodes)) {
		c.network(c.nodes[i])
	}
	for _, i := range c.rng.Perm(len(c.nodes)) {
		c.run(c.nodes[i])
	}
	if c.leader == nil || !c.sound(c.leader) {
		c.seekLeader()
	}
	for _, n := range c.nodes {
		if n.up && !n.paused {
			n.session.heard = n.heardOf()
		}
	}
}

// act lets a client of some engine run a command: mostly of the newest one.
func (c *simCluster) act() {
	n := c.leader
	if o := c.nodes[c.rng.IntN(len(c.nodes))]; n == nil || c.rng.IntN(8) == 0 && o.up && o.session.step != nil {
		n = o
	}
	if n.session.step == nil {
		return
	}
	c.on(n, func() {
		s := c.sim
		redriving := len(s.step.core.ops.redrives) > 0
		switch cl := s.idleClient(); {
		case cl == nil || len(n.session.inbox) > 20:
		case s.rng.IntN(30) == 0 && !n.paused:
			s.vanish()
		case s.rng.IntN(25) == 0:
			c.setUser(cl)
		default:
			s.act(cl)
		}
		if c.sound(n) && !n.session.replaced {
			s.judge(redriving)
		} else {
			s.oracle.redriven(s.step.core)
			s.settleReplies()
		}
	})
}

// advance lets time pass for all engines that are not stopped.
func (c *simCluster) advance(d time.Duration) {
	if c.rng.IntN(40) == 0 {
		d = time.Hour
	}
	for _, n := range c.nodes {
		if n.up && !n.paused && n.session.step != nil {
			c.on(n, func() {
				if c.rng.IntN(4) == 0 {
					c.step.now = c.step.now.Add(d) // without turns in between
				} else {
					c.step.Advance(d)
				}
				if n == c.leader {
					c.oracle.now = c.step.now
				}
				c.settleReplies()
			})
		}
	}
	if c.leader == nil || c.leader.paused {
		c.oracle.now = c.oracle.now.Add(d)
	}
}

// network does some of what the log of a node has to do.
func (c *simCluster) network(n *simNode) {
	if !n.up || n.paused {
		return
	}
	if !c.slow() {
		n.receive()
	}
	if !c.slow() {
		n.apply(n.passed + c.rng.Uint64N(10))
	}
	if n.leads == 0 {
		return
	}
	if c.rng.IntN(4) == 0 {
		n.flushLeftover()
	}
	for _, o := range c.nodes {
		if !c.slow() {
			n.send(o, c.rng.IntN(3) > 0)
		}
	}
	if c.rng.IntN(6) == 0 && !n.heardOf() { // it has heard of no majority for too long
		n.stepDown()
	}
}

// run lets the engine of a node do what it can: it learns what the log has decided. One that has
// ceased to lead answers all of its clients.
func (c *simCluster) run(n *simNode) {
	v := &n.session
	if !n.up || n.paused || v.step == nil {
		return
	}
	c.on(n, func() {
		if n.leads != v.term && c.rng.IntN(3) == 0 {
			c.step.Halt(storage.ErrDeposed)
		}
		inbox := v.inbox
		v.inbox = nil
		c.seen.inInbox += len(inbox)
		c.step.Do(inbox...)
		c.settleReplies()
	})
	if v.step == nil || v.step.halted == nil || v.step.handed {
		return
	}
	for _, cl := range v.clients {
		if len(cl.pending) > 0 {
			c.oracle.fail("node %d does not lead any more, and client %d has no answer", n.id, cl.client.ID)
		}
	}
	for _, t := range v.leaving {
		if !t.Done() {
			c.oracle.fail("node %d does not lead any more, and a task of a client that has left is not done", n.id)
		}
	}
	c.drop(n)
}

// drop forgets the engine of a node and its clients.
func (c *simCluster) drop(n *simNode) {
	n.session = simSession{}
	if c.leader == n {
		c.leader = nil
	}
}

// seekLeader has a node elected, or take over once its engine of before has ended.
func (c *simCluster) seekLeader() {
	n := c.nodes[c.rng.IntN(len(c.nodes))]
	if !n.up || n.paused || c.rng.IntN(3) > 0 || n.leads == 0 && !c.elect(n) {
		return
	}
	if n.session.step == nil {
		c.takeOver(n)
	}
}

// weather makes something fail, or heals it.
func (c *simCluster) weather() {
	n := c.nodes[c.rng.IntN(len(c.nodes))]
	if c.rng.IntN(2) == 0 && c.leader != nil {
		n = c.leader
	}
	switch c.rng.IntN(14) {
	case 0, 1:
		c.crash(n, c.rng.IntN(3) == 0)
	case 2, 3, 4:
		for _, o := range c.nodes {
			c.start(o)
		}
	case 5, 6:
		c.oracle.trace("node %d is stopped", n.id)
		if n.paused = n.up; n == c.leader {
			c.seen.stopped++
		}
	case 7:
		for _, o := range c.nodes {
			o.side = c.rng.IntN(2)
		}
		c.oracle.trace("a partition")
	case 8:
		c.heal()
	case 9: // an election without need
		if c.elect(n) && n.session.step == nil {
			c.takeOver(n)
		}
	case 10, 11:
		if n.up {
			n.cut()
		}
	case 12:
		c.stopLeader()
	case 13:
		power := c.rng.IntN(2) == 0
		for _, o := range c.nodes {
			c.crash(o, power)
			c.start(o)
		}
	}
}

func (c *simCluster) heal() {
	for _, n := range c.nodes {
		n.side = 0
		if n.paused && c.rng.IntN(3) > 0 || c.calm {
			c.oracle.trace("node %d goes on", n.id)
			n.paused = false
		}
	}
}

// crash ends the process of a node. With the power goes what its store has not synced.
func (c *simCluster) crash(n *simNode, power bool) {
	if !n.up {
		return
	}
	c.oracle.trace("node %d crashes, power lost: %v", n.id, power)
	n.up, n.paused, n.leads, n.commit, n.acks, n.proposal, n.leftover = false, false, 0, 0, nil, nil, nil
	if power {
		n.store = n.store.CloneSynced()
	}
	c.drop(n)
}

// start starts a node that has crashed.
func (c *simCluster) start(n *simNode) {
	if !n.up {
		c.oracle.trace("node %d starts", n.id)
		n.up = true
		n.read()
	}
}

// stopLeader stops the engine of the leader in order. It starts again in the same term, or another
// node takes over.
func (c *simCluster) stopLeader() {
	n := c.leader
	if !c.sound(n) || !n.heardOf() {
		return
	}
	c.calm = true
	n.flow()
	if c.sound(n) && n.heardOf() {
		c.on(n, func() {
			c.step.Do()
			c.settleReplies()
			if c.sound(n) {
				c.stopInOrder()
			}
		})
	}
	c.calm = false
	if c.sound(n) && n.heardOf() && c.rng.IntN(2) == 0 {
		c.drop(n)
		c.takeOver(n)
	} else if c.sound(n) {
		c.drop(n)
		n.stepDown()
	}
}

// end heals everything, drains the queues and compares the stores.
func (c *simCluster) end() error {
	c.calm = true
	for range 40 {
		c.heal()
		for _, n := range c.nodes {
			c.start(n)
		}
		for _, n := range c.nodes {
			n.receive()
			n.flow()
		}
		for _, n := range c.nodes {
			c.run(n)
		}
		if c.oracle.err != nil {
			return c.oracle.err
		}
		if c.sound(c.leader) && c.leader.heardOf() {
			break
		}
		c.seekLeader()
	}
	n := c.leader
	if !c.sound(n) {
		return errors.New("everything works, and no node leads")
	}
	c.on(n, func() {
		if err := c.drainAll(); err != nil {
			c.oracle.fail("%v", err)
		}
	})
	if c.oracle.err != nil {
		return c.oracle.err
	}
	n.flow()
	for _, o := range c.nodes {
		n.send(o, true)
		o.apply(o.commit)
		if o.machine.Applied() != n.machine.Applied() {
			return errors.New("a node has not applied the whole log")
		}
		c.compareNow(o, o.machine.Applied())
	}
	c.endUsers()
	return c.oracle.err
}

// settleLate judges what a client is told by a leader that was replaced.
func (t *simTask) settleLate(then func(err error)) {
	s := t.sim
	switch err := t.Err(); {
	case errors.Is(err, ErrTakeover), errors.Is(err, ErrDeposed), errors.Is(err, ErrClientGone):
		s.refusals++
		then(err)
	case err == nil && t.tx.leased:
		s.oracle.fail("client %d is handed out messages by a leader that was replaced", t.client.client.ID)
	case err == nil && t.late != nil:
		s.lates++
		t.late()
	}
}

// unconfirmed returns the order of the first decision whose answer waits for a confirmation. What
// was decided after it may be answered before it; here it reaches its client in the order of the
// decisions, as the oracle has it.
func (s *sim) unconfirmed() int {
	first := math.MaxInt
	for _, t := range s.step.unconfirmed {
		if t, ok := t.Call.(*simTask); ok {
			first = min(first, t.order)
		}
	}
	return first
}
