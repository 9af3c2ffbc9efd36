package integration_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/harness"
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
	if err := n.all[id].Stop(); err != nil {
		n.t.Fatal(err)
	}
	n.all[id].SetBinary(bin)
	if err := n.all[id].Start(); err != nil {
		n.t.Fatal(err)
	}
	n.ready(id)
}

// sends enqueues messages that are numbered from first on, each exactly once.
func (n *nodes) sends(id string, first, count int) (next int) {
	n.t.Helper()
	c := connect(n.t, n.all[id].Addr(), 3)
	for i := first; i < first+count; i++ {
		var err error
		n.soon(fmt.Sprintf("message %d by way of %s", i, id), func() bool {
			err = c.Do(n.t.Context(), "FILA.ENQUEUE", "q", fmt.Sprint(i), "DEDUP", fmt.Sprint(i)).Err()
			return err == nil
		})
	}
	return first + count
}

// Nodes are upgraded one by one, and taken back while one of before is left. Once all are new, they write
// what those of before do not read.
func TestAClusterIsUpgradedAndTakenBackNodeByNode(t *testing.T) {
	older, newer := binary(t), nextBinary(t)
	n := cluster(t)
	leader := n.leader()
	first, second := n.others(leader)[0], n.others(leader)[1]
	do(t, connect(t, n.all[leader].Addr(), 3), "FILA.QUEUE", "CREATE", "q")
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
	n.soon("newer formats", writesNewer)
	sent = n.sends(second, sent, 50)

	// Now there is no way back.
	back := n.others(n.leader())[0]
	if err := n.all[back].Stop(); err != nil {
		t.Fatal(err)
	}
	n.all[back].SetBinary(older)
	if err := n.all[back].Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.all[back].Ready(ctx); err == nil || !strings.Contains(err.Error(), "run a newer fila") {
		t.Errorf("an older version with the store of a newer one: %v", err)
	}
	if err := n.all[back].Stop(); err == nil {
		t.Error("it ends as if nothing were wrong")
	}
	// With an empty disk it is not admitted, and says why; the newer one is.
	for _, dir := range []string{n.all[back].Data(), n.all[back].Data() + "-cluster"} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.all[back].Start(); err != nil {
		t.Fatal(err)
	}
	n.soon("the refusal of an older version", func() bool {
		return strings.Contains(n.log(back), "does not read what the members write: upgrade it")
	})
	n.replace(back, newer)
	sent = n.sends(back, sent, 50)
	wantStats(t, connect(t, n.all[back].Addr(), 3), "q", map[string]int64{"ready": int64(sent)})
}
