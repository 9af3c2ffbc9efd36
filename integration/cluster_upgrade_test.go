package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// nextBinary builds a broker that differs from the one under test in the formats that it may write.
func nextBinary(t *testing.T) string {
	t.Helper()
	bin, err := harness.Build(t.Context(), "fila-next", ".", "-tags", "nextformat")
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// replace stops a node and starts it with another program.
func (n *nodes) replace(id, bin string) {
	n.t.Helper()
	kit.Stop(n.t, n.Node(id).Broker)
	n.Node(id).SetBinary(bin)
	n.start(id)
}

// sends enqueues messages that are numbered from first on, each exactly once.
func (n *nodes) sends(id string, first, count int) (next int) {
	n.t.Helper()
	c := kit.Connect(n.t, n.Node(id).Addr(), 3)
	for i := first; i < first+count; i++ {
		var err error
		testkit.Eventually(n.t, fmt.Sprintf("message %d is answered by way of %s", i, id), func() bool {
			err = c.Do(n.t.Context(), "FILA.ENQUEUE", "q", fmt.Sprint(i), "DEDUP", fmt.Sprint(i)).Err()
			return err == nil
		})
	}
	return first + count
}

// Nodes are upgraded one by one, and taken back while one of before is left. Once all are new, they write
// what those of before do not read.
func TestAClusterIsUpgradedAndTakenBackNodeByNode(t *testing.T) {
	testkit.AtLength(t) // it builds a second broker
	t.Parallel()
	older, newer := kit.Binary(t), nextBinary(t)
	n := cluster(t)
	leader := n.leader()
	first, second := n.others(leader)[0], n.others(leader)[1]
	kit.Do(t, kit.Connect(t, n.Node(leader).Addr(), 3), "FILA.QUEUE", "CREATE", "q")
	const raised = "all members read newer formats"
	writesNewer := func() bool {
		return strings.Contains(n.log(leader)+n.log(first)+n.log(second), raised)
	}
	sent := n.sends(first, 0, 50)
	for _, step := range []struct{ node, bin string }{
		{first, newer}, {second, newer}, // the followers; the leader is one of before
		{first, older}, {second, older}, // back
		{first, newer}, {leader, newer}, // one follower is one of before, and may lead
	} {
		n.replace(step.node, step.bin)
		sent = n.sends(first, sent, 50)
		sent = n.sends(leader, sent, 50)
	}
	// The last one that does not read the new formats may still become what it was, or the leader.
	n.replace(second, older)
	if writesNewer() {
		t.Error("newer formats are written while a member does not read them")
	}
	n.replace(second, newer)
	testkit.Eventually(t, "newer formats are written", writesNewer)
	sent = n.sends(second, sent, 50)

	// Now there is no way back.
	back := n.others(n.leader())[0]
	kit.Stop(t, n.Node(back).Broker)
	n.Node(back).SetBinary(older)
	if err := n.Node(back).Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience())
	defer cancel()
	if err := n.Node(back).Ready(ctx); err == nil || !strings.Contains(err.Error(), "run a newer fila") {
		t.Errorf("an older version with the store of a newer one: %v", err)
	}
	if err := n.Node(back).Stop(); err == nil {
		t.Error("it ends as if nothing were wrong")
	}
	// With an empty disk it is not admitted, and says why; the newer one is.
	if err := n.Node(back).Wipe(); err != nil {
		t.Fatal(err)
	}
	if err := n.Node(back).Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "an older version is refused", func() bool {
		return strings.Contains(n.log(back), "does not read what the members write: upgrade it")
	})
	n.replace(back, newer)
	sent = n.sends(back, sent, 50)
	kit.WantStats(t, kit.Connect(t, n.Node(back).Addr(), 3), "q", map[string]int64{"ready": int64(sent)})
}
