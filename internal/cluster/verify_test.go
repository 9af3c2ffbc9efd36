package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// heldBack passes the requests of a node on, and may keep the answers to its heartbeats, as the
// socket of a process that is stopped.
type heldBack struct {
	*raft.InmemTransport

	mu    sync.Mutex
	held  chan struct{} // answers wait until it is closed; nil: they do not
	kept  int
	sends bool // false: nothing new is sent, and what answers another request is not read
}

func (h *heldBack) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	stopped := func() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.sends }
	if stopped() {
		return errors.New("stopped")
	}
	err := h.InmemTransport.AppendEntries(id, to, req, resp)
	if !heartbeat(req) {
		if stopped() { // it reads no answer, which may be one to the next leader's term
			return errors.New("stopped")
		}
		return err
	}
	h.mu.Lock()
	held := h.held
	if held != nil {
		h.kept++
	}
	h.mu.Unlock()
	if held != nil {
		<-held
	}
	return err
}

func (h *heldBack) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// noFSM applies nothing.
type noFSM struct{}

func (noFSM) Apply(*raft.Log) any                 { return nil }
func (noFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("none") }
func (noFSM) Restore(io.ReadCloser) error         { return errors.New("none") }

// A leader that was stopped finds in its sockets answers to the heartbeats that it had sent before.
// Raft's VerifyLeader takes them for a confirmation, while another node leads and has committed
// entries. What is used in its place must not.
func TestAStoppedLeaderIsNotConfirmedByAnswersOfBefore(t *testing.T) {
	var nodes [3]*raft.Raft
	var transports [3]*heldBack
	var servers []raft.Server
	for i := range transports {
		addr, inner := raft.NewInmemTransportWithTimeout("", 10*time.Second) // a vote that is lost is not asked for again
		transports[i] = &heldBack{InmemTransport: inner, sends: true}
		servers = append(servers, raft.Server{ID: raft.ServerID("abc"[i : i+1]), Address: addr})
	}
	for i, from := range transports {
		for j, to := range transports {
			if i != j {
				from.Connect(servers[j].Address, to.InmemTransport)
			}
		}
	}
	t.Cleanup(func() {
		for _, r := range nodes { // in this order: those that have led before the one that answers them
			if r != nil {
				_ = r.Shutdown().Error()
			}
		}
	})
	for i := range nodes {
		c := raft.DefaultConfig()
		c.LocalID, c.Logger = servers[i].ID, hashicorpLog(zerolog.Nop())
		// No node is elected before the test asks for it, and none steps down: the clock of a node that is stopped stands still.
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout = 2*time.Hour, 2*time.Hour, time.Hour, 5*time.Millisecond
		logs := raft.NewInmemStore()
		if err := raft.BootstrapCluster(c, logs, logs, raft.NewInmemSnapshotStore(), transports[i], raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(c, noFSM{}, logs, logs, raft.NewInmemSnapshotStore(), transports[i])
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = r
	}
	elect := func(i, by int) { // as at a transfer of the leadership
		t.Helper()
		now := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
		testkit.Eventually(t, "the node leads that is to", func() bool {
			if nodes[i].State() == raft.Follower {
				_ = transports[by].TimeoutNow(servers[i].ID, servers[i].Address, now, &raft.TimeoutNowResponse{})
			}
			return nodes[i].State() == raft.Leader
		})
	}
	elect(0, 1)
	old := nodes[0]
	if err := old.Barrier(0).Error(); err != nil {
		t.Fatal(err)
	}
	term := old.CurrentTerm()
	testkit.Eventually(t, "the next leader lacks no entry", func() bool { return nodes[1].LastIndex() == old.LastIndex() }) // or the third gives it no vote

	held := make(chan struct{})
	h := transports[0]
	h.mu.Lock()
	h.held = held
	h.mu.Unlock()
	once := sync.OnceFunc(func() { close(held) })
	t.Cleanup(once)
	config := old.ReloadableConfig()
	config.HeartbeatTimeout, config.ElectionTimeout = time.Hour, time.Hour // has heartbeats sent at once
	if err := old.ReloadConfig(config); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "answers in the socket", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.kept >= 2 })
	h.mu.Lock()
	h.sends = false // stopped
	h.mu.Unlock()
	transports[1].Disconnect(servers[0].Address) // it does not read what comes
	transports[2].Disconnect(servers[0].Address)
	elect(1, 2)
	if err := nodes[1].Apply([]byte("acknowledged"), 0).Error(); err != nil {
		t.Fatal(err)
	}
	if old.State() != raft.Leader {
		t.Fatal("the stopped leader knows of the other one: this shows nothing")
	}
	c := &confirmer{
		term: term, self: "a", own: old.CurrentTerm, wait: time.Second,
		voters: func() []Peer { return []Peer{{"a", "a"}, {"b", "b"}, {"c", "c"}} },
		dial: func(_ context.Context, addr string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go answerQuestions(theirs, "a", func(string, question, []byte) ([]byte, error) {
				return termAnswer{term: nodes[addr[0]-'a'].CurrentTerm()}.append(nil), nil
			})
			return ours, nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.start(ctx)
	defer c.stop()
	defer cancel()

	old.VerifyLeader() // asks its sockets; the answer comes with the next heartbeat, or not at all
	once()             // it goes on, and reads them
	if err := c.confirm(context.Background()); !errors.Is(err, storage.ErrDeposed) {
		t.Errorf("a leader that another one has replaced is confirmed: %v", err)
	}
}
