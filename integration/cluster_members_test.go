package integration_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
)

// infoOf returns a section of a node's INFO as fields.
func (n *nodes) infoOf(id, section string) map[string]string {
	n.t.Helper()
	fields := map[string]string{}
	for line := range strings.Lines(fmt.Sprint(do(n.t, connect(n.t, n.all[id].Addr(), 3), "INFO", section))) {
		if name, text, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = text
		}
	}
	return fields
}

// until waits until something holds.
func (n *nodes) until(what string, holds func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			n.t.Fatalf("no sign of %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Every node says which role it has and where the leader is, and a change of the leader is seen on all.
func TestEveryNodeTellsItsRole(t *testing.T) {
	n := cluster(t)
	leader := n.leader()
	says := func(id, leader string) bool {
		info := n.infoOf(id, "replication")
		role := fmt.Sprint(do(t, connect(t, n.all[id].Addr(), 3), "ROLE"))
		greeting, _ := do(t, connect(t, n.all[id].Addr(), 3), "HELLO", "3").(map[any]any)
		if id == leader {
			return info["role"] == "master" && strings.HasPrefix(role, "[master ") && greeting["role"] == "master"
		}
		return info["role"] == "slave" && info["master_host"]+":"+info["master_port"] == n.all[leader].Addr() && info["master_link_status"] == "up" &&
			strings.HasPrefix(role, "[slave 127.0.0.1 "+info["master_port"]+" connected ") && greeting["role"] == "replica" &&
			n.infoOf(id, "cluster")["leader"] == leader && n.infoOf(id, "cluster")["cluster_state"] == "ok"
	}
	n.until("three nodes that tell their roles", func() bool {
		return says("a", leader) && says("b", leader) && says("c", leader) && n.infoOf(leader, "replication")["connected_slaves"] == "2"
	})
	for _, id := range n.others(leader) {
		if list := fmt.Sprint(n.infoOf(leader, "replication")); !strings.Contains(list, strings.Replace("ip="+n.all[id].Addr(), ":", ",port=", 1)) {
			t.Errorf("the leader does not name %s: %s", id, list)
		}
	}
	c := connect(t, n.all[n.others(leader)[0]].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	do(t, c, "FILA.ENQUEUE", "q", "m")
	if got := do(t, c, "WAIT", "2", "0"); got != int64(2) {
		t.Errorf("%v nodes have the message, want 2", got)
	}
	if err := n.all[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	rest := n.others(leader)
	n.ready(rest[0])
	n.until("another leader on both", func() bool {
		now := n.leader()
		return now != leader && says(rest[0], now) && says(rest[1], now) && n.infoOf(now, "replication")["connected_slaves"] == "1" &&
			n.infoOf(now, "cluster")["failovers"] != "0"
	})
	do(t, c, "FILA.ENQUEUE", "q", "m")
	n.until("the other node has the message", func() bool { return do(t, c, "WAIT", "2", "200") == int64(1) })
	if err := n.all[leader].Start(); err != nil {
		t.Fatal(err)
	}
	n.ready(leader)
	n.until("the node that came back as a replica", func() bool { return says(leader, n.leader()) })
}

// fila runs a subcommand against a node.
func (n *nodes) fila(id string, args ...string) (out string, code int) {
	n.t.Helper()
	out, code, err := harness.Run(n.t.Context(), nil, binary(n.t), append(args, "--addr", n.all[id].Addr())...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out, code
}

// The commands for operators: what they show of a cluster that is well and of one that is not, and what
// they change, through any node.
func TestAnOperatorOperatesACluster(t *testing.T) {
	n := cluster(t)
	c := connect(t, n.all["a"].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	for i := range 20 {
		do(t, c, "FILA.ENQUEUE", "q", i)
	}
	var out string
	n.until("a cluster that is well", func() (well bool) {
		var code int
		out, code = n.fila("c", "cluster", "status")
		return code == 0
	})
	leader := n.leader()
	for _, id := range []string{"a", "b", "c"} {
		role := map[bool]string{true: "leader", false: "voter"}[id == leader]
		if !strings.Contains(out, id+"\t"+role+"\tonline\t") {
			t.Errorf("%s is not shown as %s:\n%s", id, role, out)
		}
	}
	for _, to := range n.others(leader) {
		leader = to
		if out, code := n.fila("a", "cluster", "transfer", to); code != 0 {
			t.Fatalf("transfer to %s: exit code %d, %s", to, code, out)
		}
		n.until(to+" leading", func() bool { return n.infoOf(to, "replication")["role"] == "master" })
		wantStats(t, c, "q", map[string]int64{"ready": 20})
		n.until("a cluster that is well", func() bool { _, code := n.fila(to, "cluster", "status"); return code == 0 })
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
	n.until("the end of the node that was removed", func() bool { return strings.Contains(n.log(gone), "was removed from the cluster: ") })
	if err := n.all[gone].Kill(); err != nil { // it has ended
		t.Fatal(err)
	}
	n.until("two nodes", func() bool {
		out, code := n.fila(leader, "cluster", "status")
		return code == 0 && strings.Count(out, "\tonline\t") == 2
	})
	n.finds(rest, "majority\t2 nodes vote")
	if err := n.all[rest].Kill(); err != nil {
		t.Fatal(err)
	}
	n.finds(leader, "leader\tno node of the cluster leads")
	n.until("the loss of the majority", func() bool {
		out, code := n.fila(leader, "cluster", "status")
		return code == 1 && strings.Contains(out, "no node leads")
	})
	if err := n.all[rest].Start(); err != nil {
		t.Fatal(err)
	}
	n.ready(rest)
}

// finds waits until fila doctor finds all of these at a node.
func (n *nodes) finds(id string, findings ...string) {
	n.t.Helper()
	n.until("the findings "+strings.Join(findings, ", "), func() bool {
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
	dirs := map[string]string{}
	for _, id := range []string{"a", "b", "c", "d"} {
		dirs[id] = t.TempDir()
	}
	n := clusterIn(t, dirs)
	c := connect(t, n.all["a"].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	do(t, c, "FILA.ENQUEUE", "q", "m")
	var roles string
	settled := func(by string, want int, learner string) {
		t.Helper()
		n.until(fmt.Sprintf("%d nodes with %s as a learner", want, learner), func() (well bool) {
			roles, well = n.roles(by)
			return well && strings.Count(roles, "=") == want && strings.Count(roles, "=voter")+strings.Count(roles, "=leader") == 3 && strings.Contains(roles, learner+"=learner")
		})
	}
	n.until("three voters and a learner", func() (well bool) {
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
	if err := n.all[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	n.ready(spare)
	n.until("another leader", func() bool { return n.leader() != leader })
	n.finds(spare, "nodes\tnode "+leader+" does not answer", "majority\t2 of 3 voters are well")
	if err := n.all[leader].Start(); err != nil {
		t.Fatal(err)
	}
	n.ready(leader)
	settled(leader, 4, named)
	for _, b := range n.all {
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if out, code, err := harness.Run(t.Context(), nil, binary(t), "check", n.all[named].Data()); err != nil || code != 0 {
		t.Errorf("fila check: exit code %d, %v\n%s", code, err, out)
	}
	for _, b := range n.all {
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for id := range n.all {
		n.ready(id)
	}
	settled(named, 4, named)
	if reply := fmt.Sprint(do(t, connect(t, n.all[spare].Addr(), 3), "FILA.CLUSTER", "STATUS")); strings.Count(reply, "named:1") != 1 || strings.Count(reply, "named:0") != 3 {
		t.Errorf("STATUS: %s", reply)
	}
	// It takes the place of one that is removed, once it may.
	leader = n.leader()
	gone := slices.DeleteFunc(n.others(leader), func(id string) bool { return id == named })[0]
	if out, code := n.fila(leader, "cluster", "remove", gone, "--yes"); code != 0 {
		t.Fatalf("remove: exit code %d, %s", code, out)
	}
	n.until("the end of the node that was removed", func() bool { return strings.Contains(n.log(gone), "was removed from the cluster: ") })
	if err := n.all[gone].Kill(); err != nil { // it has ended
		t.Fatal(err)
	}
	if roles, _ := n.roles(leader); !strings.Contains(roles, named+"=learner") {
		t.Errorf("with a place for a voter the roles are %s", roles)
	}
	if got := do(t, connect(t, n.all[named].Addr(), 3), "FILA.CLUSTER", "VOTER", named); got != "OK" {
		t.Errorf("VOTER: %v", got)
	}
	n.until("three voters", func() (well bool) {
		roles, well = n.roles(named)
		return well && strings.Contains(roles, named+"=voter") && !strings.Contains(roles, "learner")
	})
	wantStats(t, connect(t, n.all[named].Addr(), 3), "q", map[string]int64{"ready": 1})
}

// A single broker becomes a cluster, and a single broker again, on whichever node: messages, leases,
// recurring messages and deduplication windows are as they were.
func TestABrokerBecomesAClusterAndASingleBrokerAgain(t *testing.T) {
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir()}
	// A younger lease may be forgotten when a leader ends.
	const early, none = "--storage.lease_lag_ms", "0"
	single, err := harness.New(binary(t), dirs["b"], early, none)
	if err != nil {
		t.Fatal(err)
	}
	restart(t, single)
	c := connect(t, single.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q", "DEDUPWINDOW", 3_600_000, "VISIBILITY", 3_600_000)
	first := fmt.Sprint(do(t, c, "FILA.ENQUEUE", "q", "once", "DEDUP", "d1"))
	do(t, c, "FILA.ENQUEUE", "q", "second")
	do(t, c, "FILA.CRON", "SET", "yearly", "q", "0 0 1 1 *", "tick")
	of := lease(t, c, "q")
	if err := single.Stop(); err != nil {
		t.Fatal(err)
	}
	asItWas := func(c *redis.Client, ready int64) {
		t.Helper()
		wantStats(t, c, "q", map[string]int64{"leased": 1, "ready": ready})
		if again := fmt.Sprint(do(t, c, "FILA.ENQUEUE", "q", "once", "DEDUP", "d1")); again != first {
			t.Errorf("the second enqueue of an id is %s, the first was %s", again, first)
		}
		if cron := mapped(t, do(t, c, "FILA.CRON", "GET", "yearly")); cron["expression"] != "0 0 1 1 *" {
			t.Errorf("the recurring message: %v", cron)
		}
		if got := do(t, c, "FILA.EXTEND", "q", of[0].receipt, 3_600_000); got == int64(0) {
			t.Error("the lease is over")
		}
	}
	n := clusterIn(t, dirs, early, none)
	asItWas(connect(t, n.all["a"].Addr(), 3), 1)
	do(t, connect(t, n.all["c"].Addr(), 3), "FILA.ENQUEUE", "q", "of the cluster")
	n.until("a cluster that is well", func() bool { _, code := n.fila("b", "cluster", "status"); return code == 0 })
	leader := n.leader()
	for _, id := range append(n.others(leader), leader) { // the last two lose the majority
		if err := n.all[id].Kill(); err != nil {
			t.Fatal(err)
		}
	}
	data := n.all[leader].Data()
	out, code, err := harness.Run(t.Context(), nil, binary(t), "cluster", "detach", data)
	if err != nil || code != 0 || !strings.Contains(out, "detached from the cluster") || !strings.Contains(out, data+"-cluster-detached") {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	out, code, err = harness.Run(t.Context(), nil, binary(t), "cluster", "detach", data)
	if err != nil || code != 0 || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a second time: exit code %d, %v: %s", code, err, out)
	}
	if out, code, err = harness.Run(t.Context(), nil, binary(t), "check", data); err != nil || code != 0 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	again, err := harness.New(binary(t), filepath.Dir(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := again.Stop(); err != nil {
			t.Error(err)
		}
	})
	restart(t, again)
	asItWas(connect(t, again.Addr(), 3), 2)
}

// One node that is left of a cluster serves alone, and others join it.
func TestANodeRecoversALostCluster(t *testing.T) {
	n := cluster(t)
	c := connect(t, n.all["a"].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	for i := range 50 {
		do(t, c, "FILA.ENQUEUE", "q", i)
	}
	if got := do(t, c, "WAIT", "2", "0"); got != int64(2) {
		t.Fatalf("%v nodes have the messages", got)
	}
	left := n.others(n.leader())[0]
	for _, b := range n.all {
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	out, code, err := harness.Run(t.Context(), nil, binary(t), "cluster", "recover", n.all[left].Data())
	if err != nil || code != 0 || !strings.Contains(out, "node "+left+" is the new cluster") {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	if err := n.all[left].Start(); err != nil {
		t.Fatal(err)
	}
	n.ready(left)
	c = connect(t, n.all[left].Addr(), 3)
	wantStats(t, c, "q", map[string]int64{"ready": 50})
	do(t, c, "FILA.ENQUEUE", "q", "alone")
	for id, b := range n.all {
		if id == left {
			continue
		}
		for _, dir := range []string{b.Data(), b.Data() + "-cluster"} {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	}
	n.until("three voters that are well", func() bool {
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
	n := cluster(t, "--admin.listen_addr", "127.0.0.1:0")
	do(t, connect(t, n.all["a"].Addr(), 3), "FILA.QUEUE", "CREATE", "orders")
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
	leader := n.leader()
	for _, id := range []string{"a", "b", "c"} {
		if status, body := get(id, "/readyz"); status != http.StatusOK {
			t.Errorf("%s is not ready: %d %s", id, status, body)
		}
		if out, code := n.fila(id, "health", "--ready"); code != 0 {
			t.Errorf("%s is not ready: %s", id, out)
		}
		n.until("the figures of "+id, func() bool {
			status, body := get(id, "/metrics")
			leads := map[bool]string{true: "1", false: "0"}[id == leader]
			return status == http.StatusOK && strings.Contains(body, "\nfila_cluster_leads "+leads+"\n") && strings.Contains(body, "\nfila_cluster_has_leader 1\n") &&
				strings.Contains(body, "\nfila_cluster_members{state=\"online\"} 3\n") && strings.Contains(body, `fila_queue_messages{queue="orders"`) == (id == leader)
		})
	}
	rest := n.others(leader)
	for _, id := range []string{leader, rest[0]} {
		if err := n.all[id].Kill(); err != nil {
			t.Fatal(err)
		}
	}
	n.until("a node that is not ready", func() bool {
		status, _ := get(rest[1], "/readyz")
		_, code := n.fila(rest[1], "health", "--ready")
		return status == http.StatusServiceUnavailable && code == 1
	})
	if status, body := get(rest[1], "/metrics"); status != http.StatusOK || !strings.Contains(body, "\nfila_cluster_has_leader 0\n") {
		t.Errorf("without a leader: %d\n%s", status, body)
	}
	if status, body := get(rest[1], "/healthz"); status != http.StatusOK {
		t.Errorf("a node without a leader is alive: %d %s", status, body)
	}
	for _, id := range []string{leader, rest[0]} {
		if err := n.all[id].Start(); err != nil {
			t.Fatal(err)
		}
	}
	n.ready(rest[1])
}
