package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// stream is the StreamLayer of Raft on the node port.
type stream struct {
	port *Port
	addr raftAddr
	done chan struct{}
}

// raftAddr is the address at which other nodes reach this one.
type raftAddr string

func (raftAddr) Network() string  { return "tcp" }
func (a raftAddr) String() string { return string(a) }

// Accept implements net.Listener.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case c := <-s.port.raft:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The port stays open.
func (s *stream) Close() error {
	close(s.done)
	return nil
}

// Addr implements net.Listener.
func (s *stream) Addr() net.Addr { return s.addr }

// Dial implements raft.StreamLayer.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.port.dial(ctx, kindRaft, string(address))
}

const (
	raftTimeout = 10 * time.Second // for a request and its answer
	raftPool    = 3                // idle connections to a node
	retryAfter  = 50 * time.Millisecond
)

// transport is Raft's transport, but for what a node gets that does not answer or cannot write it. Raft
// doubles the intervals between its attempts up to 10 s, and a node that comes back would get nothing
// for as long, while its vote may be the one that a commit lacks. So entries are tried again here, at
// short intervals, and after a copy of the data that did not arrive Raft is told so when the node
// answers again.
//
// Raft sends a request without entries to each node several times a second, beside its heartbeats, so that the
// node learns of commits. One that would tell nothing new, to a node that has answered a heartbeat
// just now, is answered here: they were a quarter of what a leader without work did.
//
// Raft refuses its vote, and what comes before a vote, to a candidate that is no voter by the members that
// this node knows. They may be older than those of the candidate: with three voters, a node that has just
// got its vote by the log of the leader and its own could not lead when that leader is lost, as the third
// one does not know of it, and the third one could not either, as its log is behind: with all data there, no
// node would ever lead. So a candidate is judged by its log and its term only, as in the paper on Raft
// ("Consensus: Bridging Theory and Practice", 4.1): its request names a voter of this node's own list
// when it comes to Raft. What keeps two leaders out of one term is that a node votes once in a term, and that
// the majorities of two lists that differ in one voter overlap. A node that was removed, and does not know
// it, gets no majority even of the members of before, as the log of a majority has the removal; and while
// there is a leader no other candidate gets a vote.
type transport struct {
	*raft.NetworkTransport

	stream   *stream
	requests chan raft.RPC // of other nodes, to Raft
	closing  sync.Once
	closed   chan struct{}
	// voter returns a voter as this node knows the members; empty: it knows none.
	voter func() raft.ServerID
	// leader is called with the node that sends entries of a term. After an error they are not taken.
	leader func(term uint64, id raft.ServerID) error
	fresh  time.Duration // for so long an answer to a heartbeat counts as one of now
	// leads reports whether this node leads in a term with another one as a member at an address.
	leads func(term uint64, id raft.ServerID, at raft.ServerAddress) bool
	// onDisk returns up to which entry the log of this node is on disk. Others are told of the commit of
	// no later one, see asyncLog.
	onDisk func() uint64

	mu    sync.Mutex
	nodes map[raft.ServerID]*heard
}

// heard is what a node has said last.
type heard struct {
	at     raft.ServerAddress
	term   uint64    // in which it has taken what follows
	last   uint64    // entry up to which it has the log of the leader
	commit uint64    // index that it knows
	beats  time.Time // of its last answer to a heartbeat in term
}

// transportOptions configures newTransport: the fields of transport of these names.
type transportOptions struct {
	fresh  time.Duration
	leads  func(term uint64, id raft.ServerID, at raft.ServerAddress) bool
	onDisk func() uint64
	voter  func() raft.ServerID
	leader func(term uint64, id raft.ServerID) error
}

// newTransport returns a transport that works until Close.
func newTransport(port *Port, addr string, log hclog.Logger, o transportOptions) *transport {
	s := &stream{port: port, addr: raftAddr(addr), done: make(chan struct{})}
	t := &transport{stream: s, requests: make(chan raft.RPC), closed: make(chan struct{}), nodes: map[raft.ServerID]*heard{}, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: raftPool, Timeout: raftTimeout, Logger: log,
		// No pipelining: it gains nothing with one batch under way, and a node that is behind gets
		// only so much of the log for each new entry, while new entries may wait for that node.
		MaxRPCsInFlight: 1,
	})}
	t.fresh, t.leads, t.onDisk, t.voter, t.leader = o.fresh, o.leads, o.onDisk, o.voter, o.leader
	go t.receive()
	return t
}

// Close implements raft.WithClose.
func (t *transport) Close() error {
	t.closing.Do(func() { close(t.closed) })
	return t.NetworkTransport.Close()
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.requests }

// receive passes the requests of other nodes to Raft, until Close.
func (t *transport) receive() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			t.nameVoter(rpc.Command)
			if r, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && t.leader != nil {
				if err := t.leader(r.Term, raft.ServerID(r.ID)); err != nil {
					rpc.Respond(nil, err)
					continue
				}
			}
			select {
			case t.requests <- rpc:
			case <-t.closed:
				return
			}
		case <-t.closed:
			return
		}
	}
}

// nameVoter has a candidate judged by its log and its term only, see transport.
func (t *transport) nameVoter(request any) {
	var candidate *[]byte
	switch r := request.(type) {
	case *raft.RequestVoteRequest:
		candidate = &r.ID
	case *raft.RequestPreVoteRequest:
		candidate = &r.ID
	default:
		return
	}
	if voter := t.voter(); voter != "" {
		*candidate = []byte(voter)
	}
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		req.LeaderCommitIndex = min(req.LeaderCommitIndex, t.onDisk())
		if t.knows(id, to, req) {
			*resp = raft.AppendEntriesResponse{Term: req.Term, LastLog: req.PrevLogEntry, Success: true}
			return nil
		}
		err := t.NetworkTransport.AppendEntries(id, to, req, resp)
		if err == nil && resp.Success && resp.Term == req.Term {
			t.note(id, to, req)
		}
		// A node that lacks earlier entries says NoRetryBackoff: Raft sends it these.
		cannot := err == nil && !resp.Success && !resp.NoRetryBackoff && resp.Term <= req.Term
		if err == nil && !cannot || heartbeat(req) || errors.Is(err, raft.ErrTransportShutdown) || t.IsShutdown() {
			return err
		}
		time.Sleep(retryAfter)          //nolint:forbidigo // Raft's own goroutine for this node, which has nothing else to do
		if !t.leads(req.Term, id, to) { // a member that has moved is found at its new address
			return err
		}
	}
}

// knows reports whether a request tells a node nothing that it has not just confirmed.
func (t *transport) knows(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest) bool {
	if len(req.Entries) > 0 || heartbeat(req) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.nodes[id]
	return h != nil && h.at == to && h.term == req.Term && h.last == req.PrevLogEntry && h.commit == req.LeaderCommitIndex && time.Since(h.beats) < t.fresh
}

// note notes what a node has taken. A new term or address begins anew.
func (t *transport) note(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.nodes[id]
	if h == nil || h.at != to || h.term != req.Term {
		h = &heard{at: to, term: req.Term}
		t.nodes[id] = h
	}
	if heartbeat(req) {
		h.beats = time.Now()
		return
	}
	h.last, h.commit = req.PrevLogEntry, req.LeaderCommitIndex
	if n := len(req.Entries); n > 0 {
		h.last = req.Entries[n-1].Index
	}
}

// InstallSnapshot implements raft.Transport. A copy that cannot be sent is closed before the wait: it
// takes disk space and keeps the log from being cut off.
func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := t.NetworkTransport.InstallSnapshot(id, to, req, resp, data)
	if err == nil || errors.Is(err, raft.ErrTransportShutdown) {
		return err
	}
	if c, ok := data.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	for !t.IsShutdown() && t.leads(req.Term, id, to) {
		if c, down := t.stream.Dial(to, raftTimeout); down == nil {
			return errors.Join(err, c.Close())
		}
		time.Sleep(retryAfter) //nolint:forbidigo // Raft's own goroutine for this node, which has nothing else to do
	}
	return err
}

// heartbeat reports whether a request is one, as Raft's transport tells it.
func heartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
