package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// cluster starts three nodes that are one broker. Its elections take long, so that on a busy machine none leads by chance.
func cluster(t *testing.T, login [2]string, args ...string) []*broker {
	t.Helper()
	var peers []string
	for _, id := range []string{"a", "b", "c"} {
		peers = append(peers, id+"="+kit.Reserve(t))
	}
	var nodes []*broker
	for _, id := range []string{"a", "b", "c"} {
		nodes = append(nodes, launch(t, append([]string{"--cluster.node_id", id, "--cluster.peers", strings.Join(peers, ","), "--cluster.election_ms", "5000"}, args...)...))
	}
	for _, b := range nodes {
		b.serves(login)
	}
	return nodes
}

// The dashboard of each node is that of the broker, by way of the node that leads: it shows the same,
// does the same, and goes on when another node takes over.
func TestTheDashboardOfEachNodeIsThatOfTheBroker(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	nodes := cluster(t, [2]string{})
	nodes[0].do("FILA.QUEUE", "CREATE", "orders")
	nodes[0].enqueue(25, "orders", "x", "KEY", "acme")
	browser := browse(t)
	var tabs []*tab
	for i, b := range nodes {
		x := open(t, browser, b.url, "#/queues/orders")
		tabs = append(tabs, x)
		x.wait("acme")
		label, side := "Pause", "paused"
		if i%2 == 1 {
			label, side = "Resume", "goes on"
		}
		x.click("button", label)
		x.wait("FILA.QUEUE " + strings.ToUpper(label) + " orders")
		x.click("button", label)
		x.wait(side)
		if n := nodes[(i+1)%3].do("FILA.QUEUE", "INFO", "orders").(client.Map).Int("paused_out"); n != int64(1-i%2) {
			t.Errorf("node %d: paused_out is %d", i, n)
		}
		for _, hash := range []string{"#/", "#/queues/orders/messages", "#/queues/orders/consumers", "#/queues/orders/settings", "#/throttles", "#/clients", "#/latency", "#/users"} {
			x.visit(hash)
			x.drawn()
			if text := x.text(); strings.Contains(text, "The broker has refused") {
				t.Errorf("node %d, %s:\n%s", i, hash, text)
			}
		}
		x.visit("#/queues/orders")
		x.wait("Live")
	}
	if err := nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	tabs[0].wait("unreachable")
	testkit.Eventually(t, "the others are one broker without it", func() bool {
		_, err := nodes[1].conn.Do(t.Context(), "FILA.QUEUE", "RESUME", "orders")
		return err == nil
	})
	for _, x := range tabs[1:] {
		x.until("it shows what has changed", `() => !/\bpaused\b/.test(document.querySelector(".sub").textContent) && /Live/.test(document.querySelector(".sub").textContent)`)
		x.wait("25")
	}
}

// status returns what a node knows of all nodes, by their ids.
func (b *broker) status() map[string]client.Map {
	b.t.Helper()
	all := map[string]client.Map{}
	for _, m := range client.Maps(b.do("FILA.CLUSTER", "STATUS")) {
		all[m.Text("id")] = m
	}
	return all
}

// leader returns the id of the node that leads, as this one knows it, once it knows one.
func (b *broker) leader() (id string) {
	b.t.Helper()
	testkit.Eventually(b.t, "a node leads", func() bool {
		for name, m := range b.status() {
			if m.Text("role") == "leader" {
				id = name
				return true
			}
		}
		return false
	})
	return id
}

// nodeRow returns the cells of a node on the page of the nodes, by the names of the columns.
const nodeRow = `(id) => {
	const row = [...document.querySelectorAll("tbody tr")].find((r) => r.querySelector("th")?.firstChild?.textContent === id);
	const names = [...(row?.closest("table").querySelectorAll("thead th") ?? [])].map((c) => c.textContent.replace(/ [↑↓]$/, ""));
	return Object.fromEntries([...(row?.children ?? [])].map((c, i) => [names[i], c.innerText]));
}`

// row returns what the page says of a node, by the names of the columns.
func (x *tab) row(id string) map[string]string {
	x.t.Helper()
	r, err := x.Eval(nodeRow, id)
	if err != nil {
		x.t.Fatal(err)
	}
	cells := map[string]string{}
	for name, cell := range r.Value.Map() {
		cells[name] = cell.Str()
	}
	return cells
}

// The page of the nodes says of each what FILA.CLUSTER STATUS does, on every node. A node that follows
// says whom. The leadership is handed over from there; a node that dies is seen on all that are left, on
// every page, and when it comes back, too.
func TestThePageOfTheNodesShowsHowEachIs(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	nodes := cluster(t, [2]string{})
	ids := []string{"a", "b", "c"}
	nodes[0].do("FILA.QUEUE", "CREATE", "orders")
	leader := nodes[0].leader()
	browser := browse(t)
	source := axe(t)
	var tabs []*tab
	for i, b := range nodes {
		x := open(t, browser, b.url, "#/nodes")
		tabs = append(tabs, x)
		x.find("link", "Nodes")
		for _, id := range ids {
			testkit.Eventually(t, "the page of "+ids[i]+" says of "+id+" what the broker says", func() bool {
				row, m := x.row(id), b.status()[id]
				return m != nil && strings.HasPrefix(row["Node"], id) && strings.Contains(row["Node"], "this one") == (id == ids[i]) && row["Role"] == m.Text("role") &&
					strings.HasPrefix(row["State"], "online") && row["Behind"] == "0" && strings.HasPrefix(row["Addresses"], m.Text("client")) && strings.Contains(row["Addresses"], m.Text("address")) && strings.Contains(row["Node"], m.Text("version"))
			})
		}
		x.until("the sums are right", `(leader) => { const all = [...document.querySelectorAll(".figure")].map((f) => f.textContent); return ["Leader" + leader, "Online3 of 3", "May be lost1 node"].every((f) => all.includes(f)); }`, leader)
		for _, scheme := range []string{"light", "dark"} {
			x.theme(scheme)
			x.accessible(source, "nodes "+scheme)
			x.shoot("nodes-" + ids[i] + "-" + scheme)
		}
		x.visit("#/")
		x.wait("Live")
		if ids[i] != leader {
			x.wait("This node, " + ids[i] + ", follows " + leader)
		} else if text := x.text(); strings.Contains(text, "follows") {
			t.Errorf("node %s leads, and says:\n%s", leader, text)
		}
		x.visit("#/clients")
		x.wait(map[bool]string{true: "of the node " + ids[i] + " alone, which leads", false: "of the node " + ids[i] + " alone, which follows " + leader}[ids[i] == leader])
		x.visit("#/nodes")
		x.size(320, 800)
		x.narrow("nodes")
		x.shoot("nodes-320")
		x.size(1280, 900)
	}

	// A node that follows hands the leadership over, to itself.
	to := 0
	if leader == "a" {
		to = 1
	}
	x := tabs[to]
	x.click("button", "Hand over")
	x.choose("To", ids[to])
	x.wait("FILA.CLUSTER TRANSFER " + ids[to])
	x.click("button", "Hand over")
	x.wait("The leadership is handed over.")
	for _, x := range tabs {
		x.until("it is seen on every node", `(leader) => [...document.querySelectorAll(".figure")].some((f) => f.textContent === "Leader" + leader)`, ids[to])
	}
	x.click("button", "Compare stores")
	x.wait("FILA.CLUSTER VERIFY")
	x.click("button", "Compare")
	x.wait("all are equal")
	x.accessible(source, "nodes compared")

	// One that follows is killed.
	dead := (to + 1) % 3
	if err := nodes[dead].Kill(); err != nil {
		t.Fatal(err)
	}
	for i, x := range tabs {
		if i == dead {
			continue
		}
		testkit.Eventually(t, ids[i]+" says that "+ids[dead]+" is down, and why", func() bool {
			state := x.row(ids[dead])["State"]
			return strings.HasPrefix(state, "down") && len(state) > len("down ")
		})
		x.until("no other may be lost", `() => [...document.querySelectorAll(".figure.bad")].some((f) => f.textContent === "May be lost0 nodes")`)
		x.accessible(source, "nodes with one that is down")
		x.shoot("nodes-down")
		if ids[i] != ids[to] && *takePictures {
			x.size(1200, 780)
			x.theme("light")
			x.picture("nodes")
			x.size(1280, 900)
		}
		x.visit("#/queues/orders")
		x.wait(ids[dead] + " is down: see the nodes.")
	}
	if err := nodes[dead].Start(); err != nil {
		t.Fatal(err)
	}
	for i, x := range tabs {
		if i != dead {
			x.gone(ids[dead] + " is down")
		}
	}
}

// A broker alone has no page of nodes in its menu, and no note about them.
func TestABrokerAloneSaysNothingOfNodes(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	b := start(t, [2]string{})
	x := open(t, browse(t), b.url, "#/nodes")
	x.wait("This broker runs alone.")
	x.visit("#/clients")
	x.drawn()
	if _, err := x.look("link", "Nodes"); err == nil || strings.Contains(x.text(), "of the node") {
		t.Errorf("the page says:\n%s", x.text())
	}
}

// The users of several nodes are the same. A viewer sees the nodes on each of them and can do nothing to
// them, nor can an operator. A user that is deleted by way of one node is logged out of the others in time.
func TestTheUsersOfSeveralNodesSeeThem(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	nodes := cluster(t, admin(), withUsers(t)...)
	nodes[0].do("FILA.QUEUE", "CREATE", "orders")
	browser := browse(t)
	for user, password := range map[string]string{"viewer": "reweiv", "operator": "rotarepo"} {
		for _, b := range nodes {
			x := open(t, browser, b.url, "#/nodes")
			x.login(user, password)
			x.wait("3 nodes")
			x.drawn()
			reasons, enabled := x.disabled()
			if len(enabled) > 0 || len(reasons) != 3 {
				t.Errorf("%s may %q, and not %q", user, enabled, reasons)
			}
			for action, why := range reasons {
				if !strings.Contains(why, "needs the right +fila.cluster|") {
					t.Errorf("%s: %s is disabled because %q", user, action, why)
				}
			}
		}
	}
	for i, b := range nodes {
		x := open(t, browser, b.url, "#/")
		other := nodes[(i+1)%3]
		create := func() {
			other.do(append([]string{"ACL", "SETUSER", "viewer"}, viewerRule()...)...)
			testkit.Eventually(t, "the user is known to the node", func() bool { return strings.Contains(fmt.Sprint(b.do("ACL", "USERS")), "viewer") })
		}
		x.endsInTime("node "+itoa(i), "#/", create, func() { other.do("ACL", "DELUSER", "viewer") })
	}
}
