package dashboard

import (
	"strings"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/client"
)

// cluster starts three nodes that are one broker.
func cluster(t *testing.T) []*broker {
	t.Helper()
	var peers []string
	for _, id := range []string{"a", "b", "c"} {
		addr, err := harness.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, id+"="+addr)
	}
	var nodes []*broker
	for _, id := range []string{"a", "b", "c"} {
		nodes = append(nodes, launch(t, "--cluster.node_id", id, "--cluster.peers", strings.Join(peers, ",")))
	}
	for _, b := range nodes {
		b.serves([2]string{})
	}
	return nodes
}

// The dashboard of each node is that of the broker, by way of the node that leads: it shows the same,
// does the same, and goes on when another node takes over.
func TestTheDashboardOfEachNodeIsThatOfTheBroker(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
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
	eventually(t, "the others are one broker without it", func() bool {
		_, err := nodes[1].conn.Do(t.Context(), "FILA.QUEUE", "RESUME", "orders")
		return err == nil
	})
	for _, x := range tabs[1:] {
		x.until("it shows what has changed", `() => !/\bpaused\b/.test(document.querySelector(".sub").textContent) && /Live/.test(document.querySelector(".sub").textContent)`)
		x.wait("25")
	}
}
