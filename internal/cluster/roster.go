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
	Waiting bool          // for its vote, which it gets as soon as it has caught up
	Heard   time.Duration // since Status was told; 0 for this node, negative: never
	Behind  uint64        // batches that some node had a moment ago, and this one had not when it was heard
	Late    time.Duration // since it had all that the others had; 0 if Behind is
	Skew    time.Duration // its clock less that of this node
	Refusal string        // why it does not answer; empty: it does
	// Current says that it has had everything that the others had, the leader among them, since its
	// present process first answered without a gap, and the entry that has made it a member.
	Current bool
}

// roster is what a node knows of all members. It asks each other one for its Status at intervals, on
// a connection and a goroutine of its own, whichever node leads: what it knows outlives a change of the
// leader. While calls of await are open it asks at short intervals.
type roster struct {
	n *Node

	mu      sync.Mutex
	others  map[string]*other // by id
	samples [2]sample         // the last one, and the one before it
	own     progress          // of this node itself
	waits   map[*wait]struct{}
	news    chan struct{} // closed, and replaced, when a node has answered or has not
	running sync.WaitGroup
}

// other is another node.
type other struct {
	peer Peer
	wake chan struct{} // has room for one
	end  context.CancelFunc

	status   *Status // nil: it was never heard
	heard    time.Time
	asked    time.Time // when the last question began that was answered or failed
	skew     time.Duration
	progress progress
	refusal  string
	misses   int // answers in a row by which this node is no member, see isRemoved
}

// progress is how far a node is with the entries of the log.
type progress struct {
	came    time.Time // when its present process first answered without a gap
	had     time.Time // when it last had all that the others had; at first, when it was first watched
	current bool      // it has had that since it came
}

// begin notes that the process of a node has begun to answer.
func (p *progress) begin(now time.Time) { p.came, p.current = now, false }

// sample is the newest entry that any node had at a time.
type sample struct {
	applied uint64
	at      time.Time
	led     bool // the leader was among those nodes
}

// askFast is the interval of questions while calls of await are open.
const askFast = 10 * time.Millisecond

func newRoster(n *Node) *roster {
	now := time.Now()
	return &roster{n: n, others: map[string]*other{}, waits: map[*wait]struct{}{}, news: make(chan struct{}), own: progress{came: now, had: now}}
}

// run watches the members until ctx ends.
func (r *roster) run(ctx context.Context) {
	again := time.NewTicker(r.n.cfg.Pace.Watch)
	defer again.Stop()
	defer r.running.Wait()
	for {
		r.look(ctx)
		r.n.keepKnown(false)
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
	leader := r.n.leaderNow().ID
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples[1] = r.samples[0]
	r.samples[0] = sample{own, now, leader == r.n.cfg.ID}
	for id, o := range r.others {
		if o.status != nil {
			r.samples[0].applied = max(r.samples[0].applied, o.status.Applied)
			r.samples[0].led = r.samples[0].led || id == leader && o.refusal == ""
		}
	}
	r.catchUp(&r.own, own)
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
		o := &other{peer: p, wake: make(chan struct{}, 1), end: end, progress: progress{came: now, had: now}}
		r.others[p.ID] = o
		r.running.Go(func() { r.ask(asking, o) })
	}
}

// catchUp notes since when a node with some entries lacks any. The caller holds mu.
func (r *roster) catchUp(p *progress, applied uint64) {
	for _, s := range r.samples {
		if applied >= s.applied && !s.at.IsZero() {
			p.had = s.at
			p.current = p.current || s.led && s.at.After(p.came)
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
		asked := time.Now()
		if conn == nil {
			conn, err = r.n.port.dial(ctx, kindQuestion, o.peer.Addr)
		}
		if err == nil {
			err = r.askOnce(ctx, conn, o, buf)
		}
		if err != nil && ctx.Err() == nil {
			r.refused(o, asked, err)
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
	if o.status == nil || o.refusal != "" || o.status.Instance != s.Instance {
		o.progress.begin(now)
	}
	o.status, o.heard, o.asked, o.refusal = s, now, asked, ""
	o.skew = time.Duration(s.Clock - asked.Add(now.Sub(asked)/2).UnixNano())
	r.catchUp(&o.progress, s.Applied)
	r.tell()
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
	r.n.noteStanding(s)
	r.n.keepKnown(false)
	_ = r.n.recognize(s.Known, s.Node) // it ends the node
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

// refused notes why a node has not answered a question.
func (r *roster) refused(o *other, asked time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.refusal, o.asked = err.Error(), asked
	r.tell()
}

// tell ends the waits for news. The caller holds mu.
func (r *roster) tell() {
	close(r.news)
	r.news = make(chan struct{})
}

// refresh returns when all other nodes have answered a question that began after the call, or have not
// within the time for one; or when ctx ends.
func (r *roster) refresh(ctx context.Context) {
	began := time.Now()
	r.wakeAll()
	for {
		r.mu.Lock()
		open, news := false, r.news
		for _, o := range r.others {
			open = open || o.asked.Before(began)
		}
		r.mu.Unlock()
		if !open {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// Refresh has all other nodes asked anew, and calls done when each has answered or has failed to, or when
// end is called. done is called once, on another goroutine. Refresh does not wait. A node that is silent takes
// askTime, and twice that if a question is under way to it. One that is not connected to after that has
// failed to answer before, or was never heard.
func (n *Node) Refresh(done func()) (end func()) {
	ctx, cancel := context.WithTimeout(n.life, 2*askTime)
	go func() {
		defer cancel()
		n.roster.refresh(ctx)
		done()
	}()
	return cancel
}

// leading returns the node that has said since a time that it leads, in the newest term, which is at least
// term; a zero one if none has.
func (r *roster) leading(term uint64, since time.Time) (leader Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.others {
		if o.status != nil && o.refusal == "" && o.asked.After(since) && o.status.State == stateName(raft.Leader) && o.status.Term >= term {
			term, leader = o.status.Term, o.peer
		}
	}
	return leader
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

// Members returns all members, sorted by id, or the configured nodes while this one is no member.
func (n *Node) Members() []Member {
	voters := map[string]bool{}
	for _, p := range n.voters() {
		voters[p.ID] = true
	}
	named, _ := storage.ReadLearners(n.cfg.Store) // what cannot be read is shown by what else reads it
	room := n.room(named)
	peers := n.known()
	all := make([]Member, 0, len(peers))
	own := n.Status()
	n.roster.mu.Lock()
	defer n.roster.mu.Unlock()
	for _, p := range peers {
		m := n.roster.member(p, &own)
		m.Voter, m.Learner = voters[p.ID], slices.Contains(named, p.ID)
		m.Waiting = room && !m.Voter && !m.Learner
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// LeaderMember returns the node that leads, false if none is known to. Voter is not set.
func (n *Node) LeaderMember() (Member, bool) {
	leader := n.leaderNow()
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
	at, now := r.own, time.Now()
	if o := r.others[p.ID]; p.ID == own.Node {
		m.Status, m.Heard = *own, 0
	} else if o != nil {
		m.Refusal, m.Skew, at = o.refusal, o.skew, o.progress
		if o.status != nil {
			m.Status, m.Heard = *o.status, now.Sub(o.heard)
		}
	}
	// Against the sample before the last one, which is older than what a node that is well has told:
	// a node whose status is some moments old does not lag for that reason.
	if newest := r.samples[1].applied; newest > m.Applied {
		m.Behind, m.Late = newest-m.Applied, max(now.Sub(at.had), 0)
	}
	m.Current = at.current && !m.Lacks
	return m
}
