package integration_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// infoOf returns a section of a node's INFO as fields; none while another node is taking over.
func (n *nodes) infoOf(id, section string) map[string]string {
	n.t.Helper()
	fields := map[string]string{}
	for line := range strings.Lines(fmt.Sprint(n.asks(id, "INFO", section))) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = text
		}
	}
	return fields
}

// asks sends a command that reads to a node. The reply is nil while another node is taking over.
func (n *nodes) asks(id string, args ...any) any {
	n.t.Helper()
	c := kit.Connect(n.t, n.Node(id).Addr(), 3)
	defer c.Close()
	reply, err := c.Do(n.t.Context(), args...).Result()
	if err != nil && !kit.Loading(err) && !kit.Deposed(err) {
		n.t.Fatalf("%q at %s: %v", args, id, err)
	}
	return reply
}

// Every node says which role it has and where the leader is, and a change of the leader is seen on all.
func TestEveryNodeTellsItsRole(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	leader := n.leader()
	says := func(id, leader string) bool {
		info := n.infoOf(id, "replication")
		role := fmt.Sprint(n.asks(id, "ROLE"))
		greeting, _ := n.asks(id, "HELLO", "3").(map[any]any)
		if id == leader {
			return info["role"] == "master" && strings.HasPrefix(role, "[master ") && greeting["role"] == "master"
		}
		return info["role"] == "slave" && info["master_host"]+":"+info["master_port"] == n.Node(leader).Addr() && info["master_link_status"] == "up" &&
			strings.HasPrefix(role, "[slave 127.0.0.1 "+info["master_port"]+" connected ") && greeting["role"] == "replica" &&
			n.infoOf(id, "cluster")["leader"] == leader && n.infoOf(id, "cluster")["cluster_state"] == "ok"
	}
	testkit.Eventually(t, "all nodes tell their roles", func() bool {
		leader = n.leader()
		return says("a", leader) && says("b", leader) && says("c", leader) && n.infoOf(leader, "replication")["connected_slaves"] == "2"
	})
	testkit.Eventually(t, "the leader names the others", func() bool {
		leader = n.leader()
		list := fmt.Sprint(n.infoOf(leader, "replication"))
		return !slices.ContainsFunc(n.others(leader), func(id string) bool {
			return !strings.Contains(list, strings.Replace("ip="+n.Node(id).Addr(), ":", ",port=", 1))
		})
	})
	c := kit.Connect(t, n.Node(n.others(leader)[0]).Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "m")
	if got := kit.Do(t, c, "WAIT", "2", "0"); got != int64(2) {
		t.Errorf("%v nodes have the message, want 2", got)
	}
	n.kill(leader)
	rest := n.others(leader)
	kit.Ready(t, n.Node(rest[0]).Broker)
	testkit.Eventually(t, "both nodes name another leader", func() bool {
		now := n.leader()
		return now != leader && says(rest[0], now) && says(rest[1], now) && n.infoOf(now, "replication")["connected_slaves"] == "1" &&
			n.infoOf(now, "cluster")["failovers"] != "0"
	})
	kit.Do(t, c, "FILA.ENQUEUE", "q", "m")
	testkit.Eventually(t, "the other node has the message", func() bool { return kit.Do(t, c, "WAIT", "2", "200") == int64(1) })
	n.start(leader)
	testkit.Eventually(t, "the node that came back is a replica", func() bool { return says(leader, n.leader()) })
}

// fila runs a subcommand against a node.
func (n *nodes) fila(id string, args ...string) (out string, code int) {
	n.t.Helper()
	out, code, err := harness.Run(n.t.Context(), nil, kit.Binary(n.t), append(args, "--addr", n.Node(id).Addr())...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out, code
}

// transfers has a node hand the leadership over to another by way of a third one, and asks again what an election or a
// late node has kept from happening.
func (n *nodes) transfers(id, to string) {
	n.t.Helper()
	leads := func() bool { return n.infoOf(to, "replication")["role"] == "master" }
	var out string
	defer func() { n.t.Logf("transfer to %s: %s", to, out) }()
	testkit.Eventually(n.t, "the leadership is handed over to "+to, func() (done bool) {
		var code int
		out, code = n.fila(id, "cluster", "transfer", to)
		return code == 0 || leads()
	})
	testkit.Eventually(n.t, to+" leads", leads)
}

// The commands for operators: what they show of a cluster that is well and of one that is not, and what
// they change, through any node.
func TestAnOperatorOperatesACluster(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	c := kit.Connect(t, n.Node("a").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	for i := range 20 {
		kit.Do(t, c, "FILA.ENQUEUE", "q", i)
	}
	var leader string
	testkit.Eventually(t, "all nodes are shown with their roles", func() bool {
		out, code := n.fila("c", "cluster", "status")
		leader = n.leader()
		return code == 0 && !slices.ContainsFunc([]string{"a", "b", "c"}, func(id string) bool {
			role := map[bool]string{true: "leader", false: "voter"}[id == leader]
			return !strings.Contains(out, id+"\t"+role+"\tonline\t")
		})
	})
	for _, to := range n.others(leader) {
		leader = to
		n.transfers("a", to)
		kit.WantStats(t, c, "q", map[string]int64{"ready": 20})
		testkit.Eventually(t, "the cluster is well", func() bool { _, code := n.fila(to, "cluster", "status"); return code == 0 })
	}
	if out, code := n.fila("b", "cluster", "verify"); code != 0 || strings.Count(out, "\tequal\t") != 3 {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
	gone, rest := n.others(leader)[0], n.others(leader)[1]
	if out, code := n.fila(gone, "cluster", "remove", leader, "--yes"); code != 1 || !strings.Contains(out, "leads") {
		t.Errorf("remove the leader: exit code %d, %s", code, out)
	}
	if out, code := n.fila(leader, "cluster", "remove", gone, "--yes"); code != 0 {
		t.Fatalf("remove: exit code %d, %s", code, out)
	}
	testkit.Eventually(t, "the node that was removed ends", func() bool { return strings.Contains(n.log(gone), "was removed from the cluster: ") })
	n.kill(gone)
	testkit.Eventually(t, "two nodes are left", func() bool {
		out, code := n.fila(leader, "cluster", "status")
		return code == 0 && strings.Count(out, "\tonline\t") == 2
	})
	n.finds(rest, "majority\t2 nodes vote")
	n.kill(rest)
	n.finds(leader, "leader\tno node of the cluster leads")
	testkit.Eventually(t, "the loss of the majority is seen", func() bool {
		out, code := n.fila(leader, "cluster", "status")
		return code == 1 && strings.Contains(out, "no node leads")
	})
	n.start(rest)
}

// A node that is gone is not shown as online, and one whose disk was lost not before it votes again. So disks
// that are lost one after the other lose nothing that was acknowledged.
func TestDisksLostInARowLoseNothing(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	c := kit.Connect(t, n.Node("a").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	if out, code := n.fila("a", "cluster", "status", "--wait"); code != 0 {
		t.Fatalf("the cluster is not well: exit code %d, %s", code, out)
	}
	sent := 0
	for _, id := range []string{"a", "b", "c", "a"} {
		other := n.others(id)[0]
		sent = n.sends(other, sent, 50)
		n.loseDisk(id)
		testkit.Eventually(t, id+" is not shown as online", func() bool {
			out, code := n.fila(other, "cluster", "status")
			return code == 1 && (strings.Contains(out, id+" is down") || strings.Contains(out, "no node leads"))
		})
		sent = n.sends(other, sent, 50)
		waited := make(chan string, 1)
		go func() { // the node that it asks is down at first
			out, code, err := harness.Run(testkit.Context(t), nil, kit.Binary(t), "cluster", "status", "--wait", "--addr", n.Node(id).Addr())
			waited <- fmt.Sprintf("exit code %d, %v\n%s", code, err, out)
		}()
		n.start(id)
		if got := testkit.Receive(t, "all nodes are online", waited); !strings.HasPrefix(got, "exit code 0, <nil>") || strings.Count(got, "\tonline\t") != 3 || strings.Count(got, "\tvoter\t") != 2 {
			t.Fatalf("waiting for %s: %s", id, got)
		}
	}
	killed := n.leader()
	n.kill(killed)
	kit.WantStats(t, kit.Connect(t, n.Node(n.others(killed)[0]).Addr(), 3), "q", map[string]int64{"ready": int64(sent)})
}

// finds waits until fila doctor finds all of these at a node.
func (n *nodes) finds(id string, findings ...string) {
	n.t.Helper()
	testkit.Eventually(n.t, "fila doctor finds "+strings.Join(findings, ", "), func() bool {
		out, code := n.fila(id, "doctor")
		return code == 3 && !slices.ContainsFunc(findings, func(f string) bool { return !strings.Contains(out, f) })
	})
}

// roles returns what a node shows of all, as words like a=voter, and whether it finds them well.
func (n *nodes) roles(id string) (roles string, well bool) {
	n.t.Helper()
	out, code := n.fila(id, "cluster", "status")
	for _, m := range regexp.MustCompile(`(?m)^(\w)\t(leader|voter|learner)\t`).FindAllStringSubmatch(out, -1) {
		roles += m[1] + "=" + m[2] + " "
	}
	return roles, code == 0
}

// What an operator says about votes is a record: it holds through failovers and restarts of all nodes, and
// fila check knows it.
func TestAnOperatorChoosesWhichNodesVote(t *testing.T) {
	t.Parallel()
	n := clusterIn(t, kit.Homes(t, 4), harness.Same())
	c := kit.Connect(t, n.Node("a").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "m")
	var roles string
	settled := func(by string, want int, learner string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("there are %d nodes with %s as a learner", want, learner), func() (well bool) {
			roles, well = n.roles(by)
			return well && strings.Count(roles, "=") == want && strings.Count(roles, "=voter")+strings.Count(roles, "=leader") == 3 && strings.Contains(roles, learner+"=learner")
		})
	}
	testkit.Eventually(t, "there are three voters and a learner", func() (well bool) {
		roles, well = n.roles("a")
		return well && strings.Count(roles, "=voter") == 2 && strings.Count(roles, "=learner") == 1
	})
	spare, _, _ := strings.Cut(roles[strings.Index(roles, "=learner")-1:], "=")
	leader := n.leader()
	named := slices.DeleteFunc(n.others(leader), func(id string) bool { return id == spare })[0]
	if out, code := n.fila(spare, "cluster", "learner", leader); code != 1 || !strings.Contains(out, "hand the leadership over first") {
		t.Errorf("the leader as a learner: exit code %d, %s", code, out)
	}
	if out, code := n.fila(spare, "cluster", "learner", "x"); code != 1 || !strings.Contains(out, "no member of the cluster is named") {
		t.Errorf("an unknown learner: exit code %d, %s", code, out)
	}
	if out, code := n.fila(leader, "cluster", "voter", spare); code != 1 || !strings.Contains(out, "as many as it needs") {
		t.Errorf("a fourth voter: exit code %d, %s", code, out)
	}
	for range 2 {
		if out, code := n.fila(spare, "cluster", "learner", named); code != 0 {
			t.Fatalf("exit code %d, %s", code, out)
		}
	}
	settled(leader, 4, named)
	n.finds(leader, "learners\tnode "+named+" keeps a copy and does not vote")
	if out, code := n.fila(leader, "cluster", "learner", spare); code != 1 || !strings.Contains(out, "2 voters would be left") {
		t.Errorf("a second learner: exit code %d, %s", code, out)
	}
	// A failover, and the restart of all.
	n.kill(leader)
	kit.Ready(t, n.Node(spare).Broker)
	testkit.Eventually(t, "there is another leader", func() bool { return n.leader() != leader })
	n.finds(spare, "nodes\tnode "+leader+" does not answer", "majority\t2 of 3 voters are well")
	n.start(leader)
	settled(leader, 4, named)
	for _, node := range n.Nodes {
		kit.Stop(t, node.Broker)
	}
	if out, code, err := harness.Run(t.Context(), nil, kit.Binary(t), "check", n.Node(named).Data()); err != nil || code != 0 {
		t.Errorf("fila check: exit code %d, %v\n%s", code, err, out)
	}
	if err := n.Start(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	settled(named, 4, named)
	if reply := fmt.Sprint(kit.Do(t, kit.Connect(t, n.Node(spare).Addr(), 3), "FILA.CLUSTER", "STATUS")); strings.Count(reply, "named:1") != 1 || strings.Count(reply, "named:0") != 3 {
		t.Errorf("STATUS: %s", reply)
	}
	// It takes the place of one that is removed, once it may.
	leader = n.leader()
	gone := slices.DeleteFunc(n.others(leader), func(id string) bool { return id == named })[0]
	if out, code := n.fila(leader, "cluster", "remove", gone, "--yes"); code != 0 {
		t.Fatalf("remove: exit code %d, %s", code, out)
	}
	testkit.Eventually(t, "the node that was removed ends", func() bool { return strings.Contains(n.log(gone), "was removed from the cluster: ") })
	n.kill(gone)
	if roles, _ := n.roles(leader); !strings.Contains(roles, named+"=learner") {
		t.Errorf("with a place for a voter the roles are %s", roles)
	}
	if got := kit.Do(t, kit.Connect(t, n.Node(named).Addr(), 3), "FILA.CLUSTER", "VOTER", named); got != "OK" {
		t.Errorf("VOTER: %v", got)
	}
	testkit.Eventually(t, "there are three voters", func() (well bool) {
		roles, well = n.roles(named)
		return well && strings.Contains(roles, named+"=voter") && !strings.Contains(roles, "learner")
	})
	kit.WantStats(t, kit.Connect(t, n.Node(named).Addr(), 3), "q", map[string]int64{"ready": 1})
}

// A single broker becomes a cluster, and a single broker again, on whichever node: messages, leases,
// recurring messages and deduplication windows are as they were.
func TestABrokerBecomesAClusterAndASingleBrokerAgain(t *testing.T) {
	t.Parallel()
	homes := kit.Homes(t, 3)
	// A younger lease may be forgotten when a leader ends.
	const early, none = "--storage.lease_lag_ms", "0"
	single := kit.PrepareIn(t, homes[1], early, none)
	kit.Start(t, single)
	c := kit.Connect(t, single.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "DEDUPWINDOW", 3_600_000, "VISIBILITY", 3_600_000)
	first := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", "q", "once", "DEDUP", "d1"))
	kit.Do(t, c, "FILA.ENQUEUE", "q", "second")
	kit.Do(t, c, "FILA.CRON", "SET", "yearly", "q", "0 0 1 1 *", "tick")
	of := lease(t, c, "q")
	kit.Stop(t, single)
	asItWas := func(c *redis.Client, ready int64) {
		t.Helper()
		kit.WantStats(t, c, "q", map[string]int64{"leased": 1, "ready": ready})
		if again := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", "q", "once", "DEDUP", "d1")); again != first {
			t.Errorf("the second enqueue of an id is %s, the first was %s", again, first)
		}
		if cron := kit.Mapped(t, kit.Do(t, c, "FILA.CRON", "GET", "yearly")); cron["expression"] != "0 0 1 1 *" {
			t.Errorf("the recurring message: %v", cron)
		}
		if got := kit.Do(t, c, "FILA.EXTEND", "q", of[0].receipt, 3_600_000); got == int64(0) {
			t.Error("the lease is over")
		}
	}
	n := clusterIn(t, homes, harness.Same(early, none))
	asItWas(kit.Connect(t, n.Node("a").Addr(), 3), 1)
	kit.Do(t, kit.Connect(t, n.Node("c").Addr(), 3), "FILA.ENQUEUE", "q", "of the cluster")
	testkit.Eventually(t, "the cluster is well", func() bool { _, code := n.fila("b", "cluster", "status"); return code == 0 })
	leader := n.leader()
	for _, id := range append(n.others(leader), leader) { // the last two lose the majority
		n.kill(id)
	}
	data := n.Node(leader).Data()
	out, code, err := harness.Run(t.Context(), nil, kit.Binary(t), "cluster", "detach", data)
	if err != nil || code != 0 || !strings.Contains(out, "detached from the cluster") || !strings.Contains(out, data+"-cluster-detached") {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	out, code, err = harness.Run(t.Context(), nil, kit.Binary(t), "cluster", "detach", data)
	if err != nil || code != 0 || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a second time: exit code %d, %v: %s", code, err, out)
	}
	if out, code, err = harness.Run(t.Context(), nil, kit.Binary(t), "check", data); err != nil || code != 0 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	again := kit.PrepareIn(t, filepath.Dir(data))
	kit.Start(t, again)
	asItWas(kit.Connect(t, again.Addr(), 3), 2)
}

// One node that is left of a cluster serves alone, and others join it.
func TestANodeRecoversALostCluster(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	c := kit.Connect(t, n.Node("a").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	for i := range 50 {
		kit.Do(t, c, "FILA.ENQUEUE", "q", i)
	}
	if got := kit.Do(t, c, "WAIT", "2", "0"); got != int64(2) {
		t.Fatalf("%v nodes have the messages", got)
	}
	left := n.others(n.leader())[0]
	for _, node := range n.Nodes {
		n.kill(node.ID)
	}
	out, code, err := harness.Run(t.Context(), nil, kit.Binary(t), "cluster", "recover", n.Node(left).Data())
	if err != nil || code != 0 || !strings.Contains(out, "node "+left+" is the new cluster") {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	n.start(left)
	c = kit.Connect(t, n.Node(left).Addr(), 3)
	kit.WantStats(t, c, "q", map[string]int64{"ready": 50})
	kit.Do(t, c, "FILA.ENQUEUE", "q", "alone")
	for _, node := range n.Others(left) {
		if err := node.Wipe(); err != nil {
			t.Fatal(err)
		}
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "three voters are well", func() bool {
		_, code := n.fila(left, "cluster", "status")
		return code == 0 && n.infoOf(left, "cluster")["voters"] == "3"
	})
	if out, code := n.fila(left, "cluster", "verify"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A node that does not lead is ready while there is a leader, shows figures of its own, and passes on what
// the admin listener asks the broker.
func TestTheAdminListenerOfEachNodeIsUseful(t *testing.T) {
	t.Parallel()
	n := cluster(t, "--admin.listen_addr", "127.0.0.1:0")
	kit.Do(t, kit.Connect(t, n.Node("a").Addr(), 3), "FILA.QUEUE", "CREATE", "orders")
	get := func(id, path string) (status int, body string) {
		t.Helper()
		urls := regexp.MustCompile(`"url":"(http://[^"]*)/"`).FindAllStringSubmatch(n.log(id), -1)
		if len(urls) == 0 {
			t.Fatalf("%s has no admin listener", id)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, urls[len(urls)-1][1]+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	var leader string
	for _, id := range []string{"a", "b", "c"} {
		testkit.Eventually(t, id+" is ready", func() bool { // a broker that stands still for two seconds is not
			status, _ := get(id, "/readyz")
			_, code := n.fila(id, "health", "--ready")
			return status == http.StatusOK && code == 0
		})
		testkit.Eventually(t, "the figures of "+id+" are right", func() bool {
			leader = n.leader()
			status, body := get(id, "/metrics")
			leads := map[bool]string{true: "1", false: "0"}[id == leader]
			return status == http.StatusOK && strings.Contains(body, "\nfila_cluster_leads "+leads+"\n") && strings.Contains(body, "\nfila_cluster_has_leader 1\n") &&
				strings.Contains(body, "\nfila_cluster_members{state=\"online\"} 3\n") && strings.Contains(body, `fila_queue_messages{queue="orders"`) == (id == leader)
		})
	}
	rest := n.others(leader)
	for _, id := range []string{leader, rest[0]} {
		n.kill(id)
	}
	testkit.Eventually(t, "the node that is left is not ready", func() bool {
		status, _ := get(rest[1], "/readyz")
		_, code := n.fila(rest[1], "health", "--ready")
		return status == http.StatusServiceUnavailable && code == 1
	})
	if status, body := get(rest[1], "/metrics"); status != http.StatusOK || !strings.Contains(body, "\nfila_cluster_has_leader 0\n") {
		t.Errorf("without a leader: %d\n%s", status, body)
	}
	testkit.Eventually(t, "a node without a leader is alive", func() bool {
		status, _ := get(rest[1], "/healthz")
		return status == http.StatusOK
	})
	for _, id := range []string{leader, rest[0]} {
		if err := n.Node(id).Start(); err != nil {
			t.Fatal(err)
		}
	}
	kit.Ready(t, n.Node(rest[1]).Broker)
}
