package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/resp"
)

func three() *View {
	return &View{
		Name: "fila", Self: "b", Leader: "a", Led: true, Term: 7, Now: time.UnixMilli(1_700_000_000_000), Down: 400 * time.Millisecond,
		Nodes: []Node{
			{ID: "a", Host: "10.0.0.1", Port: 7000, Bus: 5556, Watch: 26379, Voter: true, Up: true, Applied: 42, Heard: time.Second},
			{ID: "b", Host: "10.0.0.2", Port: 7001, Bus: 5556, Watch: 26380, Voter: true, Up: true, Applied: 41},
			{ID: "c", Host: "10.0.0.3", Port: 7002, Bus: 5556, Watch: 26381, Voter: true, Applied: 40, Heard: 9 * time.Second},
		},
	}
}

// written returns what a function writes in RESP2, one value on a line and without lengths.
func written(write func(w *resp.Writer)) string {
	w := resp.Writer{Proto: 2}
	write(&w)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(w.Take()), "\r\n"), "\r\n") {
		if !strings.HasPrefix(line, "$") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// ids replaces the ids of nodes by their names.
func ids(v *View, text string) string {
	for _, n := range v.Nodes {
		text = strings.ReplaceAll(text, v.NodeID(n.ID), "<"+n.ID+">")
		text = strings.ReplaceAll(text, v.SentinelID(n.ID), "<s"+n.ID+">")
	}
	return text
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// The values are those of Redis 7.0 for CLUSTER KEYSLOT.
func TestSlotsAreThoseOfRedis(t *testing.T) {
	for key, slot := range map[string]int{
		"": 0, "123456789": 12739, "foo": 12182, "bar": 5061, "hello": 866, "{user1000}.following": 3443, "user1000": 3443,
		"foo{bar}{zap}": 5061, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015, "{bar": 4015, "foo{bar": 15278, "}{bar}": 5061,
	} {
		if got := Slot([]byte(key)); got != slot {
			t.Errorf("slot of %q: %d, want %d", key, got, slot)
		}
	}
}

func TestTheLeaderHasAllSlotsAndTheOthersAreItsReplicas(t *testing.T) {
	v := three()
	want(t, "SLOTS", ids(v, written(v.WriteSlots)), "*1 *4 :0 :16383 *4 10.0.0.1 :7000 <a> *0 *4 10.0.0.2 :7001 <b> *0")
	want(t, "SHARDS", ids(v, written(func(w *resp.Writer) { v.WriteShards(w, false) })), "*1 *4 slots *2 :0 :16383 nodes *3 "+
		"*14 id <a> port :7000 ip 10.0.0.1 endpoint 10.0.0.1 role master replication-offset :42 health online "+
		"*14 id <b> port :7001 ip 10.0.0.2 endpoint 10.0.0.2 role replica replication-offset :41 health online "+
		"*14 id <c> port :7002 ip 10.0.0.3 endpoint 10.0.0.3 role replica replication-offset :40 health fail")
	if text := written(func(w *resp.Writer) { v.WriteShards(w, true) }); strings.Count(text, " tls-port :") != 3 || strings.Contains(text, " port :") {
		t.Errorf("with TLS: %q", text)
	}
	want(t, "NODES", ids(v, v.NodesText()), ""+
		"<a> 10.0.0.1:7000@5556 master - 0 1699999999000 7 connected 0-16383\n"+
		"<b> 10.0.0.2:7001@5556 myself,slave <a> 0 0 7 connected\n"+
		"<c> 10.0.0.3:7002@5556 slave,fail <a> 0 1699999991000 7 disconnected\n")
	if text := v.InfoText(); !strings.HasPrefix(text, "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n") ||
		!strings.Contains(text, "cluster_known_nodes:3\r\ncluster_size:1\r\ncluster_current_epoch:7\r\n") {
		t.Errorf("INFO: %q", text)
	}
	if len(v.NodeID("a")) != 40 || v.NodeID("a") == v.NodeID("b") || v.NodeID("a") == v.SentinelID("a") {
		t.Error("ids are not forty digits each, all different")
	}
}

// Clients that ask in the middle of a failover find the range of slots, and a master that fails.
func TestTheLastLeaderIsShownWhileNoneLeads(t *testing.T) {
	v := three()
	v.Led = false
	want(t, "SLOTS", ids(v, written(v.WriteSlots)), "*1 *4 :0 :16383 *4 10.0.0.1 :7000 <a> *0 *4 10.0.0.2 :7001 <b> *0")
	if text := v.InfoText(); !strings.HasPrefix(text, "cluster_state:fail\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:0\r\n") {
		t.Errorf("INFO: %q", text)
	}
	if text := v.NodesText(); !strings.Contains(text, " master,fail - ") {
		t.Errorf("NODES: %q", text)
	}
	want(t, "address", written(func(w *resp.Writer) { v.WriteAddr(w, "fila") }), "*2 10.0.0.1 7000")
	if text := written(v.WriteMaster); !strings.Contains(text, " flags s_down,o_down,master ") {
		t.Errorf("MASTER: %q", text)
	}
	if text := v.SentinelInfo(); text != "name=fila,status=odown,address=10.0.0.1:7000,slaves=2,sentinels=3" {
		t.Errorf("INFO of Sentinel: %q", text)
	}
}

func TestBeforeTheFirstLeaderThereAreNoSlots(t *testing.T) {
	for name, change := range map[string]func(v *View){
		"never led": func(v *View) { v.Leader, v.Led = "", false }, "no port": func(v *View) { v.Nodes[0].Port = 0 }, "no host": func(v *View) { v.Nodes[0].Host = "" },
		"no member": func(v *View) { v.Nodes = v.Nodes[1:] },
	} {
		v := three()
		change(v)
		want(t, name+", SLOTS", written(v.WriteSlots), "*0")
		want(t, name+", MASTERS", written(v.WriteMasters), "*0")
		want(t, name+", address", written(func(w *resp.Writer) { v.WriteAddr(w, "fila") }), "*-1")
		if text := v.InfoText(); !strings.HasPrefix(text, "cluster_state:fail\r\ncluster_slots_assigned:0\r\n") {
			t.Errorf("%s, INFO: %q", name, text)
		}
		if text := written(func(w *resp.Writer) { v.WriteShards(w, false) }); !strings.HasPrefix(text, "*1 *4 slots *0 nodes *") {
			t.Errorf("%s, SHARDS: %q", name, text)
		}
		if text := v.NodesText(); strings.Contains(text, "master") {
			t.Errorf("%s, NODES: %q", name, text)
		}
		if v.SentinelInfo() != "" {
			t.Errorf("%s: there is a master for Sentinel", name)
		}
	}
}

// redis-py takes a master only if all of these fields are there.
func TestSentinelDescribesTheMaster(t *testing.T) {
	v := three()
	master := "name fila ip 10.0.0.1 port 7000 runid <a> flags master link-pending-commands 0 link-refcount 1 last-ping-sent 0 last-ok-ping-reply 1000 " +
		"last-ping-reply 1000 down-after-milliseconds 400 info-refresh 0 role-reported master role-reported-time 0 config-epoch 7 num-slaves 2 " +
		"num-other-sentinels 2 quorum 2 failover-timeout 800 parallel-syncs 1"
	want(t, "MASTER", ids(v, written(v.WriteMaster)), "*40 "+master)
	want(t, "MASTERS", ids(v, written(v.WriteMasters)), "*1 *40 "+master)
	want(t, "an address", written(func(w *resp.Writer) { v.WriteAddr(w, "fila") }), "*2 10.0.0.1 7000")
	want(t, "a wrong name", written(func(w *resp.Writer) { v.WriteAddr(w, "mymaster") }), "*-1")
	want(t, "INFO", v.SentinelInfo(), "name=fila,status=ok,address=10.0.0.1:7000,slaves=2,sentinels=3")
	want(t, "an event", Switched("fila", &v.Nodes[0], &v.Nodes[2]), "fila 10.0.0.1 7000 10.0.0.3 7002")
}

func TestSentinelDescribesTheOtherNodes(t *testing.T) {
	v := three()
	common := func(name, host string, port int, id, flags string, heard int, down string) string {
		return fmt.Sprintf("name %s ip %s port %d runid %s flags %s link-pending-commands 0 link-refcount 1 last-ping-sent 0 last-ok-ping-reply %d "+
			"last-ping-reply %d %sdown-after-milliseconds 400 ", name, host, port, id, flags, heard, heard, down)
	}
	slave := "info-refresh 0 role-reported slave role-reported-time 0 master-link-down-time 0 master-link-status ok master-host 10.0.0.1 master-port 7000 " +
		"slave-priority 100 slave-repl-offset %d replica-announced 1"
	want(t, "REPLICAS", ids(v, written(v.WriteReplicas)), "*2 "+
		"*42 "+common("10.0.0.2:7001", "10.0.0.2", 7001, "<b>", "slave", 0, "")+fmt.Sprintf(slave, 41)+" "+
		"*44 "+common("10.0.0.3:7002", "10.0.0.3", 7002, "<c>", "s_down,slave,disconnected", 9000, "s-down-time 9000 ")+fmt.Sprintf(slave, 40))
	want(t, "SENTINELS", ids(v, written(v.WriteSentinels)), "*2 "+
		"*28 "+common("<sa>", "10.0.0.1", 26379, "<sa>", "sentinel", 1000, "")+"last-hello-message 1000 voted-leader ? voted-leader-epoch 0 "+
		"*30 "+common("<sc>", "10.0.0.3", 26381, "<sc>", "s_down,sentinel,disconnected", 9000, "s-down-time 9000 ")+"last-hello-message 9000 voted-leader ? voted-leader-epoch 0")
}

func TestAQuorumIsAMajorityOfVoters(t *testing.T) {
	v := three()
	if text, ok := v.Quorum(); !ok || text != "2 usable Sentinels. Quorum and failover authorization can be reached" {
		t.Errorf("two of three: %v, %q", ok, text)
	}
	v.Nodes = append(v.Nodes, Node{ID: "d", Up: true})
	v.Nodes[0].Up = false
	if text, ok := v.Quorum(); ok || text != "1 usable Sentinels. Not enough available Sentinels to reach the majority and authorize a failover" {
		t.Errorf("one of three: %v, %q", ok, text)
	}
}

func TestANodeTakesNoMoreThanIsReserved(t *testing.T) {
	v := three()
	v.Name, v.Nodes = strings.Repeat("n", 64), nil
	const nodes = 16
	for i := range nodes {
		v.Nodes = append(v.Nodes, Node{
			ID: fmt.Sprint(i), Host: strings.Repeat("h", 253), Port: 65535, Watch: 65535, Bus: 65535, Applied: 1 << 63, Heard: 1 << 62,
		})
	}
	v.Self, v.Leader, v.Term = "1", "0", 1<<63
	for name, write := range map[string]func(w *resp.Writer){
		"SLOTS": v.WriteSlots, "SHARDS": func(w *resp.Writer) { v.WriteShards(w, true) }, "NODES": func(w *resp.Writer) { w.Verbatim(v.NodesText()) },
		"REPLICAS": v.WriteReplicas, "SENTINELS": v.WriteSentinels, "MASTERS": v.WriteMasters,
	} {
		for proto := 2; proto <= 3; proto++ {
			w := resp.Writer{Proto: proto}
			write(&w)
			if n := len(w.Take()); n > nodes*NodeBytes {
				t.Errorf("%s takes %d bytes in RESP%d, more than %d", name, n, proto, nodes*NodeBytes)
			}
		}
	}
}
