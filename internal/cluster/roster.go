package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/storage"
)

// Contact is where clients reach a node, as it says itself. A port is 0 if it does not listen.
type Contact struct {
	Host            string `json:"host,omitempty"`
	Port            int    `json:"port,omitempty"`
	TLSPort         int    `json:"tls_port,omitempty"`
	ClusterPort     int    `json:"cluster_port,omitempty"` // of clients that follow redirections
	ClusterTLSPort  int    `json:"cluster_tls_port,omitempty"`
	SentinelPort    int    `json:"sentinel_port,omitempty"` // of clients that ask which node leads
	SentinelTLSPort int    `json:"sentinel_tls_port,omitempty"`
}

// Member is a node of the cluster as this node knows it.
type Member struct {
	Status // the newest that it has told; of one that was never heard only Node and Addr

	Voter   bool
	Learner bool          // an operator has named it one; it may have its vote for a moment
	Heard   time.Duration // since Status was told; 0 for this node, negative: never
	Behind  uint64        // batches that some node had a moment ago, and this one had not when it was heard
	Late    time.Duration // since it had all that the others had; 0 if Behind is
	Skew    time.Duration // its clock less that of this node
	Refusal string        // why it does not answer; empty: it does
}

// roster is what a node knows of all members. It asks each other one for its Status at intervals, on
// a connection and a goroutine of its own, whichever node leads: what it knows outlives a change of the
// leader. While calls of await are open it asks at short intervals.
type roster struct {
	n *Node

	mu      sync.Mutex
	others  map[string]*other // by id
	samples [2]sample         // the last one, and the one before it
	since   time.Time         // when this node itself had what a sample says; see other.caughtUp
	waits   map[*wait]struct{}
	running sync.WaitGroup
}

// other is another node.
type other struct {
	peer Peer
	wake chan struct{} // has room for one
	end  context.CancelFunc

	status   *Status // nil: it was never heard
	heard    time.Time
	skew     time.Duration
	caughtUp time.Time // when it had all that the others had; at first, when it was first watched
	refusal  string
	misses   int // answers in a row by which this node is no member, see isRemoved
}

// sample is the newest entry that any node had at a time.
type sample struct {
	applied uint64
	at      time.Time
}

// wait is a call of await.
type wait struct {
	applied uint64
	nodes   int
	done    func(nodes int)
	timer   *time.Timer // nil: none
}

// askFast is the interval of questions while calls of await are open.
const askFast = 10 * time.Millisecond

func newRoster(n *Node) *roster {
	return &roster{n: n, others: map[string]*other{}, waits: map[*wait]struct{}{}, since: time.Now()}
}

// run watches the members until ctx ends.
func (r *roster) run(ctx context.Context) {
	again := time.NewTicker(r.n.cfg.Pace.Watch)
	defer again.Stop()
	defer r.running.Wait()
	for {
		r.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// look takes a sample, and begins to ask new members and ends with those that are none any more.
func (r *roster) look(ctx context.Context) {
	peers := r.n.known()
	own := r.n.applied()
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples[1] = r.samples[0]
	r.samples[0] = sample{own, now}
	for _, o := range r.others {
		if o.status != nil {
			r.samples[0].applied = max(r.samples[0].applied, o.status.Applied)
		}
	}
	r.catchUp(&r.since, own)
	for id, o := range r.others {
		if !slices.Contains(peers, o.peer) {
			o.end()
			delete(r.others, id)
		}
	}
	for _, p := range peers {
		if p.ID == r.n.cfg.ID || r.others[p.ID] != nil {
			continue
		}
		asking, end := context.WithCancel(ctx)
		o := &other{peer: p, wake: make(chan struct{}, 1), end: end, caughtUp: now}
		r.others[p.ID] = o
		r.running.Go(func() { r.ask(asking, o) })
	}
}

// catchUp notes since when a node with some entries lacks any. The caller holds mu.
func (r *roster) catchUp(since *time.Time, applied uint64) {
	for _, s := range r.samples {
		if applied >= s.applied && !s.at.IsZero() {
			*since = s.at
			return
		}
	}
}

// known returns the members, or while there are none those of the configuration.
func (n *Node) known() []Peer {
	members := n.members()
	if len(members) == 0 {
		return n.cfg.Peers
	}
	all := make([]Peer, len(members))
	for i, s := range members {
		all[i] = Peer{ID: string(s.ID), Addr: string(s.Address)}
	}
	return all
}

// applied returns the index of the newest batch in the local store; 0: there is none.
func (n *Node) applied() uint64 {
	n.mu.Lock()
	f := n.fsm
	n.mu.Unlock()
	if f == nil {
		return 0
	}
	applied, _ := f.applied()
	return applied
}

// ask asks a node until ctx ends.
func (r *roster) ask(ctx context.Context, o *other) {
	var conn net.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close() // nothing is lost with a question
		}
	}()
	again := time.NewTimer(0)
	defer again.Stop()
	buf := make([]byte, 4<<10)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-again.C:
		}
		var err error
		if conn == nil {
			conn, err = r.n.port.dial(ctx, kindQuestion, o.peer.Addr)
		}
		if err == nil {
			err = r.askOnce(ctx, conn, o, buf)
		}
		if err != nil && ctx.Err() == nil {
			r.refused(o, err)
		}
		if err != nil && conn != nil {
			_ = conn.Close() // it has failed already
			conn = nil
		}
		again.Reset(r.pause())
	}
}

// pause returns the time until the next question.
func (r *roster) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) > 0 {
		return min(askFast, r.n.cfg.Pace.Watch)
	}
	return r.n.cfg.Pace.Watch
}

// askOnce asks a node for its status and notes it.
func (r *roster) askOnce(ctx context.Context, conn net.Conn, o *other, buf []byte) error {
	asked := time.Now()
	if err := conn.SetDeadline(asked.Add(askTime)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	reply, err := askOn(conn, askStatus, nil, buf)
	if err != nil {
		return err
	}
	s := new(Status)
	if err := json.Unmarshal(reply, s); err != nil {
		return err
	}
	if s.Node != o.peer.ID {
		return refusedError(o.peer.Addr + " is the address of node " + s.Node)
	}
	r.heard(o, s, asked, time.Now())
	return nil
}

// heard notes the status of a node, and ends the waits that it completes.
func (r *roster) heard(o *other, s *Status, asked, now time.Time) {
	r.mu.Lock()
	o.status, o.heard, o.refusal = s, now, ""
	o.skew = time.Duration(s.Clock - asked.Add(now.Sub(asked)/2).UnixNano())
	r.catchUp(&o.caughtUp, s.Applied)
	if r.n.isRemoved(s) {
		o.misses++
	} else {
		o.misses = 0
	}
	removed := o.misses == silentAfter
	var over []*wait
	for w := range r.waits {
		if r.having(w.applied) >= w.nodes {
			over = append(over, w)
		}
	}
	r.mu.Unlock()
	for _, w := range over {
		r.finish(w)
	}
	if removed {
		r.n.fatal(fmt.Errorf("node %s was removed from the cluster: %s", r.n.cfg.ID, removedAdvice))
	}
}

const removedAdvice = "take it out of cluster.peers of the others; to bring it back, empty its storage.path and cluster.path"

// isRemoved reports whether the leader says that this node is no member any more, although it has
// Raft. One such answer may be older than an admission.
func (n *Node) isRemoved(s *Status) bool {
	n.mu.Lock()
	r, id, leader := n.raft, n.identity, n.leader
	n.mu.Unlock()
	if r == nil || s.State != stateName(raft.Leader) || s.Cluster != id.Cluster || len(s.Members) == 0 {
		return false
	}
	return (s.Term >= r.CurrentTerm() || leader.ID == "") && !slices.Contains(s.Members, n.cfg.ID)
}

// refused notes why a node does not answer.
func (r *roster) refused(o *other, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.refusal = err.Error()
}

// wakeAll has all nodes asked at once.
func (r *roster) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		select {
		case o.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// having returns how many other nodes have the entries up to one. The caller holds mu.
func (r *roster) having(applied uint64) (n int) {
	for _, o := range r.others {
		if o.status != nil && o.status.Applied >= applied {
			n++
		}
	}
	return n
}

// await is Node.Await, for the entries up to applied.
func (r *roster) await(applied uint64, nodes int, timeout time.Duration, done func(int)) (end func()) {
	w := &wait{applied: applied, nodes: nodes, done: done}
	r.mu.Lock()
	have := r.having(applied)
	if have < nodes {
		r.waits[w] = struct{}{}
		if timeout > 0 {
			w.timer = time.AfterFunc(timeout, func() { r.finish(w) })
		}
	}
	r.mu.Unlock()
	if have >= nodes {
		done(have)
		return func() {}
	}
	r.wakeAll()
	return func() { r.finish(w) }
}

// finish ends a wait, unless it has ended.
func (r *roster) finish(w *wait) {
	r.mu.Lock()
	_, open := r.waits[w]
	delete(r.waits, w)
	have := r.having(w.applied)
	if w.timer != nil {
		w.timer.Stop()
	}
	r.mu.Unlock()
	if open {
		w.done(have)
	}
}

// Await calls done with the number of other nodes that have in their stores everything that this
// node has when it is called: as soon as these are so many, after the timeout (0: none), or when end is
// called. done is called once, from any goroutine. Await does not wait.
func (n *Node) Await(nodes int, timeout time.Duration, done func(nodes int)) (end func()) {
	return n.roster.await(n.applied(), nodes, timeout, done)
}

// Members returns all members, sorted by id, or the configured nodes while this one is no member.
func (n *Node) Members() []Member {
	voters := map[string]bool{}
	for _, p := range n.voters() {
		voters[p.ID] = true
	}
	named, _ := storage.ReadLearners(n.cfg.Store) // what cannot be read is shown by what else reads it
	peers := n.known()
	all := make([]Member, 0, len(peers))
	own := n.Status()
	n.roster.mu.Lock()
	defer n.roster.mu.Unlock()
	for _, p := range peers {
		m := n.roster.member(p, &own)
		m.Voter, m.Learner = voters[p.ID], slices.Contains(named, p.ID)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// LeaderMember returns the node that leads, false if none is known to. Voter is not set.
func (n *Node) LeaderMember() (Member, bool) {
	n.mu.Lock()
	leader := n.leader
	n.mu.Unlock()
	if leader.ID == "" {
		return Member{}, false
	}
	own := Status{Node: n.cfg.ID, Addr: n.own().Addr, Contact: n.cfg.Contact, State: stateName(raft.Leader), Writable: true, Applied: n.applied()}
	n.roster.mu.Lock()
	defer n.roster.mu.Unlock()
	return n.roster.member(leader, &own), true
}

// member returns what is known of a node; own is the status of this one. The caller holds mu.
func (r *roster) member(p Peer, own *Status) Member {
	m := Member{Status: Status{Node: p.ID, Addr: p.Addr}, Heard: -1}
	since, now := r.since, time.Now()
	if o := r.others[p.ID]; p.ID == own.Node {
		m.Status, m.Heard = *own, 0
	} else if o != nil {
		m.Refusal, m.Skew, since = o.refusal, o.skew, o.caughtUp
		if o.status != nil {
			m.Status, m.Heard = *o.status, now.Sub(o.heard)
		}
	}
	// Against the sample before the last one, which is older than what a node that is well has told:
	// a node whose status is some moments old does not lag for that reason.
	if newest := r.samples[1].applied; newest > m.Applied {
		m.Behind, m.Late = newest-m.Applied, max(now.Sub(since), 0)
	}
	return m
}
