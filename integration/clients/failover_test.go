package clients_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

//nolint:gochecknoglobals // flags of the test binary are global
var failovers = flag.Int("failovers", 1, "how often TestClientsThroughFailovers kills the leader")

// The ports of a node, by the modes of clients.
const (
	plainMode    = ""
	clusterMode  = "cluster"
	sentinelMode = "sentinel"
)

// fleet is a cluster of nodes.
type fleet struct {
	t     *testing.T
	nodes []*harness.Node
	ports map[string][]string // addresses by mode, in the order of nodes
}

// newFleet starts three nodes with ports for every kind of client.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, ports: map[string][]string{}}
	f.nodes = kit.ServeNodesIn(t, kit.Homes(t, 3), func(string) []string {
		client, sentinel := kit.Reserve(t), kit.Reserve(t)
		f.ports[clusterMode] = append(f.ports[clusterMode], client)
		f.ports[sentinelMode] = append(f.ports[sentinelMode], sentinel)
		return []string{"--cluster.client_addr", client, "--cluster.sentinel_addr", sentinel}
	}).Nodes
	for _, n := range f.nodes {
		f.ports[plainMode] = append(f.ports[plainMode], n.Addr())
	}
	return f
}

// leader returns the index of the node that leads, as the nodes tell clients of Sentinel.
func (f *fleet) leader() (leader int) {
	f.t.Helper()
	testkit.Eventually(f.t, "a node leads", func() bool {
		for i := range f.nodes {
			c := redis.NewClient(&redis.Options{Addr: f.ports[plainMode][i], MaxRetries: -1})
			role, err := c.Do(f.t.Context(), "ROLE").Slice()
			_ = c.Close() // it is done
			if err == nil && len(role) > 0 && role[0] == "master" {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// application enqueues, leases and acks with one library, as often as it takes each.
type application struct {
	t     *testing.T
	name  string
	hand  hand
	queue string
	home  int // node of a plain client, -1 for others

	rounds   atomic.Int64      // completed
	refused  int               // calls that ended with an error and were made again
	refusal  atomic.Value      // the last such error
	seen     map[string]string // id by payload
	acked    map[string]bool   // by payload
	enqueued int
}

// insist makes a call until it succeeds.
func (a *application) insist(ctx context.Context, wait string, args ...string) (reply, bool) {
	for ctx.Err() == nil {
		v, err := a.hand.do(wait, args...)
		if err == nil {
			return v, true
		}
		a.refused++
		a.refusal.Store(err.Error())
		time.Sleep(5 * time.Millisecond)
	}
	return nil, false
}

// run works until ctx ends. A message is enqueued with its number as deduplication id until that is
// acknowledged, so each number is one message, however often it was sent.
func (a *application) run(ctx context.Context) {
	const few = 5
	for ctx.Err() == nil {
		for range few {
			n := strconv.Itoa(a.enqueued)
			if _, ok := a.insist(ctx, atOnce, "FILA.ENQUEUE", a.queue, n, "DEDUP", n); !ok {
				return
			}
			a.enqueued++
		}
		if !a.consume(ctx, few) {
			return
		}
		a.rounds.Add(1)
		time.Sleep(20 * time.Millisecond) // fast libraries leave the processor to the others
	}
}

// consume leases messages, waiting for the first, and acks them. It returns false at the end of ctx.
func (a *application) consume(ctx context.Context, count int) bool {
	v, ok := a.insist(ctx, "500", "FILA.LEASE", a.queue, "COUNT", strconv.Itoa(count), "BLOCK", "500")
	for _, each := range list(v) {
		m := list(each)
		receipt, payload := text(m[0]), text(m[1])
		id, _, _ := strings.Cut(receipt, ":")
		if a.acked[payload] {
			a.t.Errorf("%s: message %s was delivered after the reply to its ack", a.name, payload)
		}
		if before, again := a.seen[payload]; again && before != id {
			a.t.Errorf("%s: %s was enqueued twice, as %s and %s", a.name, payload, before, id)
		}
		a.seen[payload] = id
		acked, replied := a.insist(ctx, atOnce, "FILA.ACK", a.queue, receipt)
		if ok = ok && replied; replied && text(acked) == "1" {
			a.acked[payload] = true
		}
	}
	return ok
}

// finish consumes what is left, and checks that nothing acknowledged is missing. Leases whose replies were
// lost have to end first.
func (a *application) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience())
	defer cancel()
	for len(a.seen) < a.enqueued && ctx.Err() == nil {
		a.consume(ctx, 100)
	}
	for n := range a.enqueued {
		if a.seen[strconv.Itoa(n)] == "" {
			a.t.Errorf("%s: message %d of %d was acknowledged and never came", a.name, n, a.enqueued)
		}
	}
	a.t.Logf("%s: %d messages, %d calls were made again, the last after: %v", a.name, a.enqueued, a.refused, a.refusal.Load())
}

// applications starts one for each library and kind of client.
func applications(t *testing.T, f *fleet) []*application {
	t.Helper()
	known := map[string]client{}
	for _, c := range clients() {
		known[c.name] = c
	}
	var all []*application
	for i, x := range []struct{ name, mode string }{
		{"go-redis", plainMode}, {"go-redis", clusterMode}, {"go-redis", sentinelMode}, {"redis-py", plainMode}, {"redis-py", clusterMode},
		{"ioredis", plainMode}, {"ioredis", clusterMode},
	} {
		c := known[x.name]
		if x.name == "redis-py" && x.mode == clusterMode {
			c.has = []string{c.has[0], "-c", "import redis.cluster"} // from redis-py 4.1 on
		}
		if err := missing(t, c); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Log(err)
			continue
		}
		if c.make != nil {
			run(t, c.make[0], c.make[1:]...)
		}
		a := &application{t: t, name: strings.TrimSpace(x.name + " " + x.mode), queue: fmt.Sprintf("failover-%d", i), home: -1, seen: map[string]string{}, acked: map[string]bool{}}
		addr := f.ports[x.mode][0]
		if x.mode == plainMode {
			a.home = i % len(f.nodes)
			addr = f.ports[x.mode][a.home]
		}
		a.hand = startProgram(t, c.command, addr, 0, "FILA_MODE="+x.mode, "FILA_NODES="+strings.Join(f.ports[x.mode], ","))
		all = append(all, a)
	}
	return all
}

// Clients of each kind work on while leaders are killed: what was acknowledged arrives, under one id.
func TestClientsThroughFailovers(t *testing.T) {
	f := newFleet(t)
	all := applications(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*failovers+1)*4*testkit.Patience())
	defer cancel()
	working, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	admin := kit.Connect(t, f.ports[plainMode][f.leader()], 3)
	for _, a := range all {
		kit.Do(t, admin, "FILA.QUEUE", "CREATE", a.queue, "VISIBILITY", "2000", "BACKOFF", "10", "MAXATTEMPTS", "1000000")
	}
	for _, a := range all {
		go func() {
			a.run(working)
			done <- struct{}{}
		}()
	}
	// progress waits until each client that can reach a node has completed some rounds.
	progress := func(rounds int64, down int, what string) {
		t.Helper()
		for _, a := range all {
			if a.home >= 0 && a.home == down {
				continue
			}
			enough := a.rounds.Load() + rounds
			testkit.Eventually(t, fmt.Sprintf("%s goes on %s", a.name, what), func() bool { return a.rounds.Load() >= enough })
		}
	}
	for n := range *failovers {
		progress(3, -1, fmt.Sprintf("before failover %d", n+1))
		leader := f.leader()
		kit.Kill(t, f.nodes[leader].Broker)
		progress(3, leader, fmt.Sprintf("after the leader was killed, %d", n+1))
		kit.Start(t, f.nodes[leader].Broker)
	}
	progress(3, -1, "in the end")
	stop()
	for range all {
		<-done
	}
	for _, a := range all {
		a.finish(ctx)
	}
}
