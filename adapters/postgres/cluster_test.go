package outbox

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNothingIsLostOrDoubledWhenNodesDie kills each node of a cluster in turn, among them those that lead, while a relay
// works that knows the addresses for clients of Redis Cluster: of these a node that does not lead answers MOVED.
func TestNothingIsLostOrDoubledWhenNodesDie(t *testing.T) {
	atLength(t)
	var nodes [3]*brokerProcess
	var peers, clients []string
	for i := range nodes {
		var ports [2]int
		for p := range ports {
			var err error
			if ports[p], err = reserve(); err != nil {
				t.Fatal(err)
			}
		}
		id, client := string(rune('a'+i)), fmt.Sprint("127.0.0.1:", ports[1])
		peers, clients = append(peers, fmt.Sprintf("%s=127.0.0.1:%d", id, ports[0])), append(clients, client)
		nodes[i] = &brokerProcess{dir: t.TempDir(), args: []string{"--cluster.node_id", id, "--cluster.client_addr", client}}
	}
	var starting sync.WaitGroup
	for _, b := range nodes {
		b.args = append(b.args, "--cluster.peers", strings.Join(peers, ","))
		starting.Go(func() {
			if err := b.start(); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		for _, b := range nodes {
			b.kill()
		}
	})
	if t.Failed() {
		return
	}
	client, url := nodes[0].client(t), sharedDB.fresh(t)
	q := "orders"
	until(t, "a node leads", func() bool {
		return client.Do(t.Context(), "FILA.QUEUE", "CREATE", q, "IFNOTEXISTS").Err() == nil
	})
	exec1(t, url, "CREATE TABLE done (key text, n int, PRIMARY KEY (key, n))")
	stop := make(chan struct{})
	var producers sync.WaitGroup
	for i := range 6 {
		producers.Go(func() { producer{url, q, fmt.Sprint("k", i)}.run(t, 1_000_000, stop) })
	}
	relaying(t, Config{Broker: "redis://" + clients[0] + "?addr=" + clients[1] + "&addr=" + clients[2], Database: url, Batch: 100}, nil)
	db := connect(t, url)
	for _, b := range append(nodes[:], nodes[:]...) {
		<-time.After(500 * time.Millisecond)
		b.kill()
		last := number(t, db, "SELECT last_value FROM fila_outbox_seq_seq")
		until(t, "rows are moved without the node", func() bool {
			return number(t, db, "SELECT coalesce(min(seq), 0) FROM fila_outbox") > last
		})
		if err := b.start(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	producers.Wait()
	until(t, "all rows are moved", func() bool { return number(t, db, "SELECT count(*) FROM fila_outbox") == 0 })
	until(t, "the cluster answers", func() bool { return client.Do(t.Context(), "FILA.QUEUE", "INFO", q).Err() == nil })
	n := expect(t, client, q, url)
	t.Logf("%d messages", n)
	if n < 100 {
		t.Errorf("only %d messages", n)
	}
}
