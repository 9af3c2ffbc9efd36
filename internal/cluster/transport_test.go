package cluster

import (
	"testing"

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
	tr := newTransport(port, port.Addr().String(), hashicorpLog(zerolog.Nop()), func(_ uint64, _ raft.ServerID, to raft.ServerAddress) bool {
		asked = append(asked, to)
		return len(asked) < 3
	}, func() uint64 { return 1 })
	defer func() { _ = tr.Close() }()
	req := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: 1}
	if err := tr.AppendEntries("b", at, req, &raft.AppendEntriesResponse{}); err == nil {
		t.Fatal("entries were taken where nothing is")
	}
	if len(asked) != 3 || asked[0] != at || asked[2] != at {
		t.Errorf("the leader asked of %q, want three times of %s", asked, at)
	}
}
