package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// Nodes that talk to each other with TLS, and clients of Redis Cluster and Redis Sentinel that come with
// TLS: they are told the ports with TLS of all nodes, and find the next leader there.
func TestClientsWithTLSFindTheLeader(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for _, name := range []string{"node", "server", "client"} {
		ca.issue(t, name, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	}
	ports := map[string][]string{} // by setting
	n := clusterIn(t, kit.Homes(t, 3), func(string) []string {
		args := []string{
			"--cluster.cert_file", ca.file("node"), "--cluster.key_file", ca.file("node-key"), "--cluster.ca_file", ca.file("ca"),
			"--tls.cert_file", ca.file("server"), "--tls.key_file", ca.file("server-key"), "--tls.ca_file", ca.file("ca"),
		}
		for _, port := range []string{"tls.listen_addr", "cluster.client_tls_addr", "cluster.sentinel_tls_addr"} {
			addr := kit.Reserve(t)
			ports[port] = append(ports[port], addr)
			args = append(args, "--"+port, addr)
		}
		return args
	})
	secure := ca.client(t, "client")
	clients := map[string]redis.UniversalClient{
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: ports["cluster.client_tls_addr"], TLSConfig: secure, ClusterStateReloadInterval: time.Second}),
		"sentinel": redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "fila", SentinelAddrs: ports["cluster.sentinel_tls_addr"], TLSConfig: secure,
		}),
		"plain": redis.NewClient(&redis.Options{
			Addr: ports["tls.listen_addr"][0], TLSConfig: secure, DialTimeout: testkit.Patience(), ReadTimeout: testkit.Patience(),
		}),
	}
	// again sends a command until it is answered: that it is once only is the matter of DEDUP.
	again := func(c redis.UniversalClient, words ...any) {
		t.Helper()
		var err error
		testkit.Eventually(t, fmt.Sprint(words...)+" is answered", func() bool { err = c.Do(t.Context(), words...).Err(); return err == nil })
	}
	const each = 40
	for name, c := range clients {
		t.Cleanup(func() { _ = c.Close() })
		again(c, "FILA.QUEUE", "CREATE", name, "IFNOTEXISTS", "DEDUPWINDOW", 3_600_000)
		for i := range each {
			again(c, "FILA.ENQUEUE", name, "x", "DEDUP", i)
		}
	}
	for _, port := range []string{"cluster.client_tls_addr", "cluster.sentinel_tls_addr"} {
		c := redis.NewClient(&redis.Options{Addr: ports[port][0], MaxRetries: -1})
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Errorf("%s answers in plain text", port)
		}
		_ = c.Close()
	}
	lost := n.leader()
	if lost == "a" { // the plain client has no other node
		another := func() bool { lost = n.leader(); return lost != "a" }
		testkit.Eventually(t, "the leadership is handed over", func() bool {
			_, code := n.fila("a", "cluster", "transfer")
			return code == 0 || another()
		})
		testkit.Eventually(t, "there is another leader", another)
	}
	n.kill(lost)
	for name, c := range clients {
		for i := range each {
			again(c, "FILA.ENQUEUE", name, "x", "DEDUP", each+i)
		}
		kit.WantStats(t, clients["plain"].(*redis.Client), name, map[string]int64{"ready": 2 * each})
	}
	n.start(lost)
}
