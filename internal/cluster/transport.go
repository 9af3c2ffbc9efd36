package cluster

import (
	"context"
	"errors"
	"io"
	"net"
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
type transport struct {
	*raft.NetworkTransport

	stream *stream
	// leads reports whether this node leads in a term with another one as a member at an address.
	leads func(term uint64, id raft.ServerID, at raft.ServerAddress) bool
	// onDisk returns up to which entry the log of this node is on disk. Others are told of the commit of
	// no later one, see asyncLog.
	onDisk func() uint64
}

func newTransport(port *Port, addr string, log hclog.Logger, leads func(uint64, raft.ServerID, raft.ServerAddress) bool, onDisk func() uint64) *transport {
	s := &stream{port: port, addr: raftAddr(addr), done: make(chan struct{})}
	return &transport{stream: s, leads: leads, onDisk: onDisk, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: raftPool, Timeout: raftTimeout, Logger: log,
		// No pipelining: it gains nothing with one batch under way, and a node that is behind gets
		// only so much of the log for each new entry, while new entries may wait for that node.
		MaxRPCsInFlight: 1,
	})}
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		req.LeaderCommitIndex = min(req.LeaderCommitIndex, t.onDisk())
		err := t.NetworkTransport.AppendEntries(id, to, req, resp)
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
