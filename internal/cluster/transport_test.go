package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
)

// Entries for a member that has moved are not sent to its old address any more: Raft's goroutine for
// the member would otherwise never learn of the new one.
func TestEntriesAreNotSentToAnAddressThatIsOld(t *testing.T) {
	port, err := OpenPort(t.Context(), PortConfig{Listen: "127.0.0.1:0", Node: "a", Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = port.Close() }()
	network, peers := newNetwork(t, "b")
	network.listens("b", "") // nothing is there
	at := raft.ServerAddress(peers[0].Addr)
	var asked []raft.ServerAddress
	tr := newTransport(port, port.Addr().String(), hashicorpLog(zerolog.Nop()), transportOptions{
		fresh: time.Minute, onDisk: func() uint64 { return 1 },
		leads: func(_ uint64, _ raft.ServerID, to raft.ServerAddress) bool {
			asked = append(asked, to)
			return len(asked) < 3
		},
	})
	defer func() { _ = tr.Close() }()
	req := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: 1}
	if err := tr.AppendEntries("b", at, req, &raft.AppendEntriesResponse{}); err == nil {
		t.Fatal("entries were taken where nothing is")
	}
	if len(asked) != 3 || asked[0] != at || asked[2] != at {
		t.Errorf("the leader asked of %q, want three times of %s", asked, at)
	}
}

// A request that tells a node nothing is not sent while the node answers heartbeats, and any other one is.
func TestWhatANodeHasJustConfirmedIsNotSentAgain(t *testing.T) {
	var ports [2]*Port
	for i, id := range []string{"a", "b"} {
		port, err := OpenPort(t.Context(), PortConfig{Listen: "127.0.0.1:0", Node: id, Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = port.Close() })
		port.join("1")
		port.serve(func(string, question, []byte) ([]byte, error) { return nil, nil }, func(*greeting) error { return nil }, nil)
		ports[i] = port
	}
	open := func(p *Port) *transport {
		tr := newTransport(p, p.Addr().String(), hashicorpLog(zerolog.Nop()), transportOptions{
			fresh: time.Minute, onDisk: func() uint64 { return 100 }, leads: func(uint64, raft.ServerID, raft.ServerAddress) bool { return false },
		})
		t.Cleanup(func() { _ = tr.Close() })
		return tr
	}
	leader, follower := open(ports[0]), open(ports[1])
	got := make(chan *raft.AppendEntriesRequest, 1)
	success := true
	go func() {
		for rpc := range follower.Consumer() {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			got <- req
			rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: success}, nil)
		}
	}()
	to := raft.ServerAddress(ports[1].Addr().String())
	send := func(what string, want bool, req raft.AppendEntriesRequest) {
		t.Helper()
		var resp raft.AppendEntriesResponse
		if err := leader.AppendEntries("b", to, &req, &resp); err != nil {
			t.Fatal(err)
		}
		sent := len(got) > 0
		if sent {
			<-got
		}
		if sent != want || resp.Term != req.Term || resp.Success != success {
			t.Errorf("%s: sent %t, want %t; the answer is %+v", what, sent, want, resp)
		}
	}
	beat := func(term uint64) raft.AppendEntriesRequest { return raft.AppendEntriesRequest{Term: term} }
	empty := func(term, last, commit uint64) raft.AppendEntriesRequest {
		return raft.AppendEntriesRequest{Term: term, PrevLogEntry: last, PrevLogTerm: 1, LeaderCommitIndex: commit}
	}
	entries := raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 6, PrevLogTerm: 1, LeaderCommitIndex: 6, Entries: []*raft.Log{{Index: 7, Term: 2}}}
	send("entries", true, entries)
	send("no heartbeat yet", true, empty(2, 7, 6))
	send("a heartbeat", true, beat(2))
	send("nothing new", false, empty(2, 7, 6))
	send("a heartbeat again", true, beat(2))
	send("a commit", true, empty(2, 7, 7))
	send("the same commit", false, empty(2, 7, 7))
	send("an entry that it does not have", true, empty(2, 8, 7))
	send("the same entries again", true, entries)
	success = false
	send("another term", true, empty(3, 7, 6))
	send("a heartbeat that it refuses", true, beat(3))
	success = true
	send("a refused term", true, empty(3, 7, 6))
	send("a term without a heartbeat", true, empty(3, 7, 6))
	send("a heartbeat of the term", true, beat(3))
	leader.fresh = 0
	send("a heartbeat of long ago", true, empty(3, 7, 6))
}
