package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// Leadership is one leadership of this node, which Config.Lead gets.
type Leadership struct {
	Term  uint64
	Store *replica.Store // of the engine
	// Confirm returns nil if no other node led when it was called, else storage.ErrDeposed. It waits
	// until a majority has answered, or the leadership has ended.
	Confirm func() error
	// Yield is closed when the node wants to hand over.
	Yield <-chan struct{}
}

// followLeadership passes on what Raft says about the leadership of this node, without ever keeping
// Raft waiting. While Raft knows no leader, a node counts as the leader that says so itself: the Raft of a node
// whose disk is full learns of no new term, and commands of its clients are passed on all the same. stands is false
// for a node that does not stand for elections yet.
func (n *Node) followLeadership(notify <-chan bool, stands bool) {
	seen := make(chan raft.Observation, 1)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(o)
	again := time.NewTicker(n.cfg.Election / 4) // an observation may be lost
	defer again.Stop()
	var lost time.Time // since when Raft knows no leader; zero: it knows one
	for n.raft.State() != raft.Shutdown {
		select {
		case leads := <-notify:
			if !leads {
				n.ceaseLeading(errors.New("another node leads, or none"))
			}
			select {
			case n.changed <- struct{}{}:
			default:
			}
		case <-seen:
		case <-again.C:
			stands = stands || n.stand()
		}
		addr, id := n.raft.LeaderWithID()
		leader := Peer{ID: string(id), Addr: string(addr)}
		switch {
		case leader.ID != "":
			lost = time.Time{}
		case lost.IsZero():
			lost = time.Now()
		default:
			leader = n.roster.leading(n.raft.CurrentTerm(), lost)
		}
		n.setLeader(leader)
	}
}

// leaderNow returns the node that leads, a zero one if none is known to.
func (n *Node) leaderNow() Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader
}

// setLeader notes which node leads.
func (n *Node) setLeader(leader Peer) {
	n.mu.Lock()
	same := leader == n.leader
	n.leader = leader
	if leader.ID != "" && leader.ID != n.led {
		if n.led != "" {
			n.failovers++
		}
		n.led = leader.ID
	}
	n.mu.Unlock()
	if same {
		return
	}
	if leader.ID == "" {
		n.cfg.Log.Warn().Msg("no leader of the cluster is known")
	} else {
		n.cfg.Log.Info().Str("leader", leader.ID).Msg("leader of the cluster")
	}
	if n.cfg.Leader != nil {
		n.cfg.Leader(leader)
	}
	n.roster.wakeAll()
}

// ceaseLeading ends the leadership under way, if there is one.
func (n *Node) ceaseLeading(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cease != nil {
		n.cease(fmt.Errorf("%w: %w", storage.ErrDeposed, cause))
	}
}

// Yield asks the node to hand its leadership over, if it leads.
func (n *Node) Yield() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.yield != nil {
		n.yield()
	}
}

// serve leads whenever Raft says so, until ctx ends or the node fails.
func (n *Node) serve(ctx context.Context) error {
	watch := time.NewTicker(n.cfg.Pace.Watch)
	defer watch.Stop()
	stopWatching := n.goWatch(watch.C)
	defer stopWatching()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.failed:
			return err
		case <-n.changed:
		}
		for n.raft.State() == raft.Leader && ctx.Err() == nil && len(n.failed) == 0 {
			if err := n.lead(ctx); err != nil {
				n.transfer()
				return err
			}
		}
	}
}

// lead is one leadership, from taking over to ceasing or handing over.
func (n *Node) lead(stopping context.Context) error {
	term := n.raft.CurrentTerm()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	yield, yielded := context.WithCancel(stopping)
	defer yielded()
	n.mu.Lock()
	n.cease, n.yield = cancel, yielded
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.cease, n.yield = nil, nil
		n.mu.Unlock()
		if h := n.takeAsked(); h != nil {
			h.done <- errors.New("the leader has changed meanwhile")
		}
	}()
	// From here on, a loss of leadership ends ctx.
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return nil
	}
	began := time.Now()
	err := n.noteLed(term)
	if err == nil {
		err = n.takeOver(ctx, yield, term)
	}
	if err == nil {
		stopTending := n.goTend(ctx)
		defer stopTending()
		err = n.awaitVoters(ctx, yield)
	}
	if err != nil {
		if ctx.Err() == nil && yield.Err() == nil {
			n.cfg.Log.Warn().Err(err).Msg("this node was elected and cannot lead")
		}
		n.handOver(ctx, yield)
		return nil
	}
	c := &confirmer{
		term: term, self: n.cfg.ID, own: n.raft.CurrentTerm, voters: n.voters, wait: n.cfg.Election,
		dial: func(ctx context.Context, addr string) (net.Conn, error) { return n.port.dial(ctx, kindQuestion, addr) },
	}
	c.start(ctx)
	n.cfg.Log.Info().Uint64("term", term).Dur("took_ms", time.Since(began)).Msg("this node leads the cluster")
	store := replica.NewStore(n.cfg.Store, n, term, n.fsm.machine.Load().LastOf(term))
	stopRaising := n.goRaise(ctx, store)
	defer stopRaising()
	err = n.cfg.Lead(ctx, &Leadership{
		Term: term, Store: store,
		Confirm: func() error { return c.confirm(ctx) }, Yield: yield.Done(),
	})
	ended := ctx.Err() != nil
	cancel(storage.ErrDeposed)
	c.stop()
	switch {
	case ended, errors.Is(err, storage.ErrDeposed):
		n.cfg.Log.Warn().Uint64("term", term).Msg("this node no longer leads the cluster")
		return nil
	case err != nil:
		return err
	}
	n.handOver(context.Background(), yield)
	return nil
}

// handOver makes another node the leader, at the end of a leadership that this node has ended.
func (n *Node) handOver(ctx, yield context.Context) {
	if ctx.Err() != nil {
		return
	}
	n.transfer()
	if yield.Err() == nil { // not asked for: do not take over again at once
		select {
		case <-time.After(n.cfg.Pace.Ask):
		case <-yield.Done():
		}
	}
}

// takeOver returns when everything that was committed before term is in the local store.
func (n *Node) takeOver(ctx, yield context.Context, term uint64) error {
	if !n.fsm.writable() {
		return errors.New("its store refuses writes")
	}
	if err := storage.CheckFormat(n.cfg.Store.Get); err != nil {
		return err // a newer program has led meanwhile
	}
	done := make(chan error, 1)
	go func() { done <- n.raft.Barrier(0).Error() }()
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-yield.Done():
		return yield.Err()
	}
	if now := n.raft.CurrentTerm(); now != term {
		return fmt.Errorf("term %d has begun meanwhile", now)
	}
	return nil
}

// awaitVoters returns when the cluster has been formed.
func (n *Node) awaitVoters(ctx, yield context.Context) error {
	again := time.NewTicker(n.cfg.Pace.Ask / 10)
	defer again.Stop()
	for !n.formed() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-yield.Done():
			return yield.Err()
		}
	}
	return nil
}

// formed reports whether the cluster has had all its voters once. A batch proves it: no engine
// ran before.
func (n *Node) formed() bool {
	applied, _ := n.fsm.applied()
	return applied > 0 || len(n.voters()) >= votersWanted(len(n.cfg.Peers))
}

// proposed bounds the entries of one batch that are under way: the log has them in memory.
const proposed = 16

// Propose implements replica.Log.
func (n *Node) Propose(term uint64, entries iter.Seq[[]byte]) error {
	if n.raft.CurrentTerm() != term {
		return storage.ErrDeposed
	}
	var under []raft.ApplyFuture
	for e := range entries {
		if len(under) == proposed {
			if err := outcome(under[0]); err != nil {
				return err
			}
			under = under[1:]
		}
		under = append(under, n.raft.Apply(e, 0))
	}
	for _, f := range under {
		if err := outcome(f); err != nil {
			return err
		}
	}
	return nil
}

// outcome waits until an entry is applied or lost.
func outcome(f raft.ApplyFuture) error {
	if err := f.Error(); err != nil {
		return err
	}
	err, _ := f.Response().(error)
	return err
}
