package integration_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/internal/testkit/smalldisk"
)

// nodes are the nodes of a cluster, by id.
type nodes struct {
	*kit.Cluster

	t *testing.T
}

// cluster starts three nodes and waits until they serve.
func cluster(t *testing.T, args ...string) *nodes {
	t.Helper()
	return clusterIn(t, kit.Homes(t, 3), harness.Same(args...))
}

// clusterIn is cluster with the directory of each node, and arguments by node.
func clusterIn(t *testing.T, homes []string, args harness.Arguments) *nodes {
	t.Helper()
	return &nodes{kit.ServeNodesIn(t, homes, args), t}
}

// log returns what a node has logged.
func (n *nodes) log(id string) string {
	n.t.Helper()
	return kit.Log(n.t, n.Node(id).Broker)
}

// start starts a node and waits until it serves commands, itself or by way of the leader.
func (n *nodes) start(id string) {
	n.t.Helper()
	kit.Start(n.t, n.Node(id).Broker)
}

// kill ends a node as a crash would.
func (n *nodes) kill(id string) {
	n.t.Helper()
	kit.Kill(n.t, n.Node(id).Broker)
}

// loseDisk kills a node and removes its data.
func (n *nodes) loseDisk(id string) {
	n.t.Helper()
	n.kill(id)
	if err := n.Node(id).Wipe(); err != nil {
		n.t.Fatal(err)
	}
}

// leader returns the id of the node that has taken over last, by what the nodes log.
func (n *nodes) leader() string {
	n.t.Helper()
	return n.Leader().ID
}

// ledBetween reports whether a node has taken over within a time: leases that the one before has answered in its last
// milliseconds may be forgotten.
func (n *nodes) ledBetween(from, to time.Time) bool {
	for _, node := range n.Nodes {
		text, err := os.ReadFile(node.Log())
		if err != nil {
			return false
		}
		for _, m := range regexp.MustCompile(`"time":"([^"]+)"[^\n]*"this node leads the cluster"`).FindAllSubmatch(text, -1) {
			if at, err := time.Parse(time.RFC3339Nano, string(m[1])); err == nil && !at.Before(from.Add(-time.Second)) && !at.After(to.Add(time.Second)) {
				return true
			}
		}
	}
	return false
}

// Clients of a node that stays see a pause when the leader is killed, and nothing that was acknowledged
// is lost. The judge is that of a single broker that is killed.
func TestNothingIsLostWhenLeadersAreKilled(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	first := n.leader()
	admin := kit.Connect(t, n.Node(first).Addr(), 3)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", visibility.Milliseconds(), "BACKOFF", 10, "MAXATTEMPTS", 1_000_000)
	l := newLedger()
	l.forgets = n.ledBetween
	producing, stopProducing := context.WithCancel(t.Context())
	consuming, stopConsuming := context.WithCancel(t.Context())
	var producer, consumer sync.WaitGroup
	defer func() { stopProducing(); producer.Wait(); stopConsuming(); consumer.Wait() }()
	for i, id := range []string{"a", "b", "c", "a", "b", "c"} {
		load := &load{ledger: l, addr: n.Node(id).Addr()}
		producer.Go(func() { load.produce(producing, i) })
		consumer.Go(func() { load.consume(consuming, i) })
	}
	seed := rand.Uint64()
	t.Logf("the moments of the kills are from seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	progress := func(least int, what string) {
		t.Helper()
		before := l.answers()
		testkit.Eventually(t, "there is progress "+what, func() bool { return l.answers() >= before+least })
	}
	for round := range killRounds() {
		progress(50+chance.IntN(300), "with all nodes")
		id := n.leader()
		if round%3 == 2 { // one that does not lead
			id = map[string]string{"a": "b", "b": "c", "c": "a"}[id]
		}
		n.kill(id)
		l.killed()
		progress(100, "without node "+id)
		n.start(id)
	}
	stopProducing()
	producer.Wait()
	admin = kit.Connect(t, n.Node(n.leader()).Addr(), 3)
	wantDrained(t, admin, "q")
	stopConsuming()
	consumer.Wait()
	l.check(t)
	kit.WantStats(t, admin, "q", map[string]int64{"ready": 0, "delayed": 0, "leased": 0, "dead": 0, "waiters": 0})
	t.Logf("%d enqueues answered, %d deliveries, %d acks, %d kills", len(l.answered), len(l.receipts), len(l.acked), killRounds())
}

// A node that is stopped in order hands over: its clients' commands are executed, and those of clients
// of other nodes see no error.
func TestALeaderThatIsStoppedHandsOver(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	stopped := n.leader()
	other := map[string]string{"a": "b", "b": "c", "c": "a"}[stopped]
	c := kit.Connect(t, n.Node(other).Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var sent atomic.Int64
	go func() {
		for ctx.Err() == nil {
			if err := c.Do(context.WithoutCancel(ctx), "FILA.ENQUEUE", "q", sent.Load()).Err(); err != nil {
				done <- err
				return
			}
			sent.Add(1)
		}
		done <- nil
	}()
	kit.Stop(t, n.Node(stopped).Broker)
	before := sent.Load()
	testkit.Eventually(t, "messages are sent after the stop", func() bool { return sent.Load() >= before+100 || len(done) > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after %d messages: %v", sent.Load(), err)
	}
	if now := n.leader(); now == stopped {
		t.Errorf("%s still leads", now)
	}
	kit.WantStats(t, c, "q", map[string]int64{"ready": sent.Load()})
}

// A node that has lost its disk comes back by itself, and then another one may be lost.
func TestANodeWithAnEmptyDiskJoinsAgain(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	c := kit.Connect(t, n.Node("a").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	for i := range 200 {
		kit.Do(t, c, "FILA.ENQUEUE", "q", strings.Repeat("x", 10_000), "KEY", i)
	}
	wiped, leader := "b", n.leader()
	if leader == wiped {
		wiped = "c"
	}
	n.loseDisk(wiped)
	if err := n.Node(wiped).Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "node "+wiped+" votes again", func() bool {
		out, code := n.fila(wiped, "cluster", "status")
		return code == 0 && strings.Count(out, "\tonline\t") == 3 && strings.Count(out, "\tvoter\t") == 2
	})
	leader = n.leader()
	n.kill(leader)
	kit.Ready(t, n.Node(wiped).Broker)
	kit.WantStats(t, kit.Connect(t, n.Node(wiped).Addr(), 3), "q", map[string]int64{"ready": 200})
	n.start(leader)
}

func TestABrokerWithoutReplicationRefusesTheStoreOfANode(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	kit.Stop(t, n.Node("a").Broker)
	out, code, err := harness.Run(t.Context(), nil, kit.Binary(t), "--storage.path", n.Node("a").Data(), "--server.listen_addr", "127.0.0.1:0")
	if err != nil || code != 1 || !strings.Contains(out, "belongs to a node of a cluster") {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}

// A backup of a node is the data of a single broker, and of a new cluster.
func TestABackupOfANodeBelongsToNoCluster(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	c := kit.Connect(t, n.Node("a").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "kept")
	path := fmt.Sprint(kit.Mapped(t, kit.Do(t, c, "FILA.BACKUP", "b1"))["path"])
	single := kit.Prepare(t)
	if out, code, err := harness.Run(t.Context(), nil, kit.Binary(t), "restore", path, single.Data()); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	kit.Start(t, single)
	kit.WantStats(t, kit.Connect(t, single.Addr(), 3), "q", map[string]int64{"ready": 1})
}

// others returns the nodes but one, that which leads first.
func (n *nodes) others(id string) []string {
	var list []string
	for _, node := range n.Others(id) {
		list = append(list, node.ID)
	}
	if i := slices.Index(list, n.leader()); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// enqueues sends messages until as many have been acknowledged, and returns the last refusal.
func (n *nodes) enqueues(c *redis.Client, payload string, count int) (refusal error) {
	n.t.Helper()
	defer func() { n.t.Logf("%d messages, last refusal: %v", count, refusal) }()
	for range count {
		testkit.Eventually(n.t, "another message is acknowledged", func() bool {
			err := c.Do(n.t.Context(), "FILA.ENQUEUE", "q", payload).Err()
			if err != nil {
				refusal = err
			}
			return err == nil
		})
	}
	return refusal
}

// A node whose disk is full lets others lead, and heals without a restart; so does a majority.
func TestAClusterGoesOnWhileADiskIsFull(t *testing.T) {
	t.Parallel()
	homes := kit.Homes(t, 3)
	for _, home := range homes {
		if err := smalldisk.Mount(home, 128<<20); err != nil {
			t.Logf("%v: internal/cluster has tests with injected errors", err)
			return
		}
		t.Cleanup(func() {
			if err := smalldisk.Unmount(home); err != nil {
				t.Error(err)
			}
		})
	}
	n := clusterIn(t, homes, harness.Same("--cluster.log_bytes", fmt.Sprint(32<<20)))
	payload, many := strings.Repeat("x", 1000), 3000
	if testing.Short() {
		many = 300
	}
	kit.Do(t, kit.Connect(t, n.Node("a").Addr(), 3), "FILA.QUEUE", "CREATE", "q")
	fill := func(id string) {
		t.Helper()
		if err := smalldisk.Fill(n.Node(id).Home); err != nil {
			t.Fatal(err)
		}
	}
	empty := func(id string) {
		t.Helper()
		if err := smalldisk.Empty(n.Node(id).Home); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"the leader", "a follower"} {
		full := n.leader()
		if what == "a follower" {
			full = n.others(full)[0]
		}
		fill(full)
		well := n.others(full)
		n.enqueues(kit.Connect(t, n.Node(well[0]).Addr(), 3), payload, many)
		empty(full)
		n.enqueues(kit.Connect(t, n.Node(full).Addr(), 3), payload, 100)
		// With one of the others gone, each write needs the node that was full.
		n.kill(well[1])
		n.enqueues(kit.Connect(t, n.Node(full).Addr(), 3), payload, 100)
		n.start(well[1])
	}
	leader := n.leader()
	well := n.others(leader)[0]
	fill(leader)
	fill(n.others(leader)[1])
	c := kit.Connect(t, n.Node(well).Addr(), 3)
	// What is left of a log file takes many messages.
	testkit.Eventually(t, "messages are refused while a majority cannot write", func() bool {
		for range 1000 {
			if c.Do(t.Context(), "FILA.ENQUEUE", "q", payload).Err() != nil {
				return true
			}
		}
		return false
	})
	empty(leader)
	empty(n.others(leader)[1])
	n.enqueues(c, payload, 100)
}

// standsStill reports whether all threads of a process are stopped, which a signal does in its time.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("the threads of process %d: %v", pid, err)
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return true
}

var staleRounds = flag.Int("stale-rounds", 5, "how often a leader is stopped")

// A leader that was stopped hands out nothing that others have acknowledged meanwhile, while other clients
// keep all nodes busy.
func TestAStoppedLeaderHandsOutNothing(t *testing.T) {
	t.Parallel()
	n := cluster(t, "--cluster.election_ms", fmt.Sprint(testkit.Slowed(200*time.Millisecond, 10).Milliseconds()))
	loading, stopLoading := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer func() { stopLoading(); clients.Wait() }()
	kit.Do(t, kit.Connect(t, n.Node("a").Addr(), 3), "FILA.QUEUE", "CREATE", "q")
	l := newLedger()
	for i, id := range []string{"a", "b", "c"} {
		load := &load{ledger: l, addr: n.Node(id).Addr()}
		clients.Go(func() { load.produce(loading, i) })
		clients.Go(func() { load.consume(loading, i) })
	}
	for round, took := 0, 0; took < *staleRounds; round++ {
		if round > 2*(*staleRounds)+10 {
			t.Fatalf("only in %d of %d rounds a leader was stopped", took, round)
		}
		old := n.leader()
		queue := fmt.Sprint("round", round)
		stale := kit.Connect(t, n.Node(old).Addr(), 3)
		if !filled(t, stale, queue, staleMessages) {
			continue // the leader has changed meanwhile
		}
		pid := n.Node(old).PID()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the process stands still", func() bool { return standsStill(t, pid) })
		// It has this in its socket when it goes on.
		got := make(chan []delivery, 1)
		go func() {
			reply, err := stale.Do(context.WithoutCancel(t.Context()), "FILA.LEASE", queue, "COUNT", staleMessages).Result()
			if err != nil {
				got <- nil
				return
			}
			list, err := leased(reply)
			if err != nil {
				t.Error(err)
			}
			got <- list
		}()
		ackedAll(t, kit.Connect(t, n.Node(n.others(old)[0]).Addr(), 3), queue, staleMessages)
		if n.leader() != old {
			took++
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for _, d := range <-got {
			t.Errorf("round %d: %s handed out %s after it was acked", round, old, d.payload)
		}
		kit.Ready(t, n.Node(old).Broker)
	}
}

const staleMessages = 50

// filled creates a queue with messages. It returns false after a refusal: the leader has changed.
func filled(t *testing.T, c *redis.Client, queue string, count int) bool {
	t.Helper()
	err := c.Do(t.Context(), "FILA.QUEUE", "CREATE", queue).Err()
	for i := 0; i < count && err == nil; i++ {
		err = c.Do(t.Context(), "FILA.ENQUEUE", queue, i).Err()
	}
	if err != nil {
		t.Log(err)
	}
	return err == nil
}

// ackedAll leases and acks until so many messages are acked. An ack without an answer counts: it may have been
// executed, and then its message does not come again.
func ackedAll(t *testing.T, c *redis.Client, queue string, count int) {
	t.Helper()
	acked := map[string]bool{}
	testkit.EventuallyEqual(t, "the number of acked messages of "+queue, count, func() int {
		reply, err := c.Do(t.Context(), "FILA.LEASE", queue, "COUNT", count).Result()
		if err != nil {
			return len(acked)
		}
		list, err := leased(reply)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if n, err := c.Do(t.Context(), "FILA.ACK", queue, d.receipt).Int(); err != nil || n == 1 {
				acked[d.payload] = true
			}
		}
		return len(acked)
	})
}

// What clients of a follower have begun goes on with the next leader: a lease that waits, a transaction
// that is being queued, a subscription. A client that has left gets nothing.
func TestClientsOfAFollowerGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	killed := n.leader()
	stays := n.Node(n.others(killed)[0]).Addr()
	admin := kit.Connect(t, stays, 3)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 60_000)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "left")
	lease := make(chan any, 1)
	go func() {
		reply, err := kit.Connect(t, stays, 3).Do(context.WithoutCancel(t.Context()), "FILA.LEASE", "q", "BLOCK", testkit.Patience().Milliseconds()).Result()
		if err != nil {
			t.Error(err)
		}
		lease <- reply
	}()
	leaving := kit.Dial(t, stays)
	transaction := kit.Dial(t, stays)
	events := kit.Connect(t, stays, 3).Subscribe(t.Context(), "fila:q:enqueued", "fila::lost")
	defer events.Close()
	for range 2 {
		if _, err := events.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	converse := func(c *net.TCPConn, command, want string) {
		t.Helper()
		if _, err := c.Write([]byte(command + "\r\n")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%s: %q, %v, want %q", command, got, err, want)
		}
	}
	converse(transaction, "MULTI", "+OK\r\n")
	converse(transaction, "FILA.ENQUEUE q queued-before", "+QUEUED\r\n")
	if _, err := leaving.Write([]byte("FILA.LEASE left BLOCK 0\r\n")); err != nil {
		t.Fatal(err)
	}
	kit.WantStats(t, admin, "q", map[string]int64{"waiters": 1})
	kit.WantStats(t, admin, "left", map[string]int64{"waiters": 1})
	n.kill(killed)
	if err := leaving.Close(); err != nil {
		t.Error(err)
	}
	// What is sent to a leader that is dying may have happened or not. What reads is asked again of the next.
	testkit.Eventually(t, "another node leads", func() bool { return admin.Do(t.Context(), "DBSIZE").Err() == nil })
	converse(transaction, "EXEC", "*1\r\n$36\r\n")
	list, err := leased(<-lease)
	if err != nil || len(list) != 1 || list[0].payload != "queued-before" || list[0].attempt != 1 {
		t.Errorf("the lease answers %+v, %v", list, err)
	}
	kit.Do(t, admin, "FILA.ENQUEUE", "left", "kept")
	if d := one(t, admin, "left"); d.attempt != 1 {
		t.Errorf("after a client has left: %+v", d)
	}
	heard := map[string]bool{}
	for len(heard) < 2 {
		m, err := events.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heard[m.Channel] = true
	}
}
