package integration_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/smalldisk"
)

// nodes are the brokers of a cluster, by id.
type nodes struct {
	t     *testing.T
	all   map[string]*harness.Broker
	peers map[string]string // addresses of the node ports
}

// cluster starts three nodes and waits until they serve.
func cluster(t *testing.T, args ...string) *nodes {
	t.Helper()
	return clusterIn(t, map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir()}, args...)
}

// clusterIn is cluster with the directories of the nodes.
func clusterIn(t *testing.T, dirs map[string]string, args ...string) *nodes {
	t.Helper()
	return clusterOf(t, dirs, func(string) []string { return args })
}

// clusterOf is clusterIn with the arguments of each node.
func clusterOf(t *testing.T, dirs map[string]string, args func(id string) []string) *nodes {
	t.Helper()
	n := &nodes{t: t, all: map[string]*harness.Broker{}, peers: map[string]string{}}
	var peers []string
	for _, id := range slices.Sorted(maps.Keys(dirs)) {
		addr, err := harness.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		n.peers[id] = addr
		peers = append(peers, id+"="+addr)
	}
	for _, id := range slices.Sorted(maps.Keys(dirs)) {
		b, err := harness.New(binary(t), dirs[id], append([]string{"--cluster.node_id", id, "--cluster.peers", strings.Join(peers, ",")}, args(id)...)...)
		if err != nil {
			t.Fatal(err)
		}
		n.all[id] = b
		t.Cleanup(func() {
			if err := b.Stop(); err != nil {
				t.Errorf("node %s did not stop in order: %v", id, err)
			}
			if log := n.log(id); t.Failed() || strings.Contains(log, "panic") {
				t.Errorf("the log of node %s:\n%s", id, log[max(0, len(log)-6000):])
			}
		})
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for id := range n.all {
		n.ready(id)
	}
	return n
}

// ready waits until a node serves commands, itself or by way of the leader.
func (n *nodes) ready(id string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	if err := n.all[id].Ready(ctx); err != nil {
		n.t.Fatalf("node %s: %v", id, err)
	}
}

func (n *nodes) log(id string) string {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(n.all[id].Data()), "fila.log"))
	if err != nil {
		n.t.Error(err)
	}
	return string(text)
}

// leader returns the node that has taken over last, by what the nodes log.
func (n *nodes) leader() string {
	n.t.Helper()
	leads := regexp.MustCompile(`"term":(\d+)[^\n]*"this node leads the cluster"`)
	leader, newest := "", 0
	for id := range n.all {
		for _, m := range leads.FindAllStringSubmatch(n.log(id), -1) {
			if term, err := strconv.Atoi(m[1]); err == nil && term > newest {
				leader, newest = id, term
			}
		}
	}
	if leader == "" {
		n.t.Fatal("no node leads")
	}
	return leader
}

// Clients of a node that stays see a pause when the leader is killed, and nothing that was acknowledged
// is lost. The judge is that of a single broker that is killed.
func TestNothingIsLostWhenLeadersAreKilled(t *testing.T) {
	n := cluster(t)
	first := n.leader()
	admin := connect(t, n.all[first].Addr(), 3)
	do(t, admin, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", visibility.Milliseconds(), "BACKOFF", 10, "MAXATTEMPTS", 1_000_000)
	l := newLedger()
	producing, stopProducing := context.WithCancel(t.Context())
	consuming, stopConsuming := context.WithCancel(t.Context())
	var producer, consumer sync.WaitGroup
	defer func() { stopProducing(); producer.Wait(); stopConsuming(); consumer.Wait() }()
	for i, id := range []string{"a", "b", "c", "a", "b", "c"} {
		load := &load{ledger: l, addr: n.all[id].Addr()}
		producer.Go(func() { load.produce(producing, i) })
		consumer.Go(func() { load.consume(consuming, i) })
	}
	seed := rand.Uint64()
	t.Logf("the moments of the kills are from seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	progress := func(least int, what string) {
		t.Helper()
		for end, before := time.Now().Add(patience), l.answers(); l.answers() < before+least; {
			if time.Now().After(end) {
				t.Fatalf("no progress %s", what)
			}
			time.Sleep(time.Millisecond)
		}
	}
	for round := range kills {
		progress(50+chance.IntN(300), "with all nodes")
		id := n.leader()
		if round%3 == 2 { // one that does not lead
			id = map[string]string{"a": "b", "b": "c", "c": "a"}[id]
		}
		if err := n.all[id].Kill(); err != nil {
			t.Fatal(err)
		}
		l.killed()
		progress(100, "without node "+id)
		if err := n.all[id].Start(); err != nil {
			t.Fatal(err)
		}
		n.ready(id)
	}
	stopProducing()
	producer.Wait()
	admin = connect(t, n.all[n.leader()].Addr(), 3)
	wantDrained(t, admin, "q")
	stopConsuming()
	consumer.Wait()
	l.check(t)
	wantStats(t, admin, "q", map[string]int64{"ready": 0, "delayed": 0, "leased": 0, "dead": 0, "waiters": 0})
	t.Logf("%d enqueues answered, %d deliveries, %d acks, %d kills", len(l.answered), len(l.receipts), len(l.acked), kills)
}

// A node that is stopped in order hands over: its clients' commands are executed, and those of clients
// of other nodes see no error.
func TestALeaderThatIsStoppedHandsOver(t *testing.T) {
	n := cluster(t)
	stopped := n.leader()
	other := map[string]string{"a": "b", "b": "c", "c": "a"}[stopped]
	c := connect(t, n.all[other].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	sent := 0
	go func() {
		for ctx.Err() == nil {
			if err := c.Do(context.WithoutCancel(ctx), "FILA.ENQUEUE", "q", strconv.Itoa(sent)).Err(); err != nil {
				done <- err
				return
			}
			sent++
		}
		done <- nil
	}()
	if err := n.all[stopped].Stop(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after %d messages: %v", sent, err)
	}
	if now := n.leader(); now == stopped {
		t.Errorf("%s still leads", now)
	}
	wantStats(t, c, "q", map[string]int64{"ready": int64(sent)})
}

// A node that has lost its disk comes back by itself, and then another one may be lost.
func TestANodeWithAnEmptyDiskJoinsAgain(t *testing.T) {
	n := cluster(t)
	c := connect(t, n.all["a"].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	for i := range 200 {
		do(t, c, "FILA.ENQUEUE", "q", strings.Repeat("x", 10_000), "KEY", i)
	}
	wiped, leader := "b", n.leader()
	if leader == wiped {
		wiped = "c"
	}
	if err := n.all[wiped].Kill(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{n.all[wiped].Data(), n.all[wiped].Data() + "-cluster"} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.all[wiped].Start(); err != nil {
		t.Fatal(err)
	}
	back := func() bool {
		_, joined, _ := strings.Cut(n.log(leader), "a node joins the cluster")
		return strings.Contains(joined, fmt.Sprintf(`"node":%q`, wiped)) && strings.Count(n.log(leader), "votes from now on") >= 3
	}
	for end := time.Now().Add(patience); !back(); {
		if time.Now().After(end) {
			t.Fatalf("node %s does not vote again", wiped)
		}
		time.Sleep(time.Millisecond)
	}
	if err := n.all[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	n.ready(wiped)
	wantStats(t, connect(t, n.all[wiped].Addr(), 3), "q", map[string]int64{"ready": 200})
	if err := n.all[leader].Start(); err != nil {
		t.Fatal(err)
	}
	n.ready(leader)
}

func TestABrokerWithoutReplicationRefusesTheStoreOfANode(t *testing.T) {
	n := cluster(t)
	if err := n.all["a"].Stop(); err != nil {
		t.Fatal(err)
	}
	out, code, err := harness.Run(t.Context(), nil, binary(t), "--storage.path", n.all["a"].Data(), "--server.listen_addr", "127.0.0.1:0")
	if err != nil || code != 1 || !strings.Contains(out, "belongs to a node of a cluster") {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}

// A backup of a node is the data of a single broker, and of a new cluster.
func TestABackupOfANodeBelongsToNoCluster(t *testing.T) {
	n := cluster(t)
	c := connect(t, n.all["a"].Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	do(t, c, "FILA.ENQUEUE", "q", "kept")
	do(t, c, "FILA.BACKUP", "b1")
	path := n.all[n.leader()].Data() + "-backups/b1"
	single, err := harness.New(binary(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, code, err := harness.Run(t.Context(), nil, binary(t), "restore", path, single.Data()); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	t.Cleanup(func() {
		if err := single.Stop(); err != nil {
			t.Error(err)
		}
	})
	restart(t, single)
	wantStats(t, connect(t, single.Addr(), 3), "q", map[string]int64{"ready": 1})
}

// others returns the nodes but one, that which leads first.
func (n *nodes) others(id string) []string {
	list := slices.DeleteFunc(slices.Sorted(maps.Keys(n.all)), func(other string) bool { return other == id })
	if i := slices.Index(list, n.leader()); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// enqueues sends messages until as many have been acknowledged, and returns the last refusal.
func (n *nodes) enqueues(c *redis.Client, payload string, count int) (refusal error) {
	n.t.Helper()
	began := time.Now()
	defer func() { n.t.Logf("%d messages in %s, last refusal: %v", count, time.Since(began), refusal) }()
	for end, done := began.Add(patience), 0; done < count; {
		if time.Now().After(end) {
			n.t.Fatalf("%d of %d messages are acknowledged: %v", done, count, refusal)
		}
		if err := c.Do(n.t.Context(), "FILA.ENQUEUE", "q", payload).Err(); err != nil {
			refusal = err
			continue
		}
		done++
	}
	return refusal
}

// A node whose disk is full lets others lead, and heals without a restart; so does a majority.
func TestAClusterGoesOnWhileADiskIsFull(t *testing.T) {
	dirs := map[string]string{}
	for _, id := range []string{"a", "b", "c"} {
		dirs[id] = t.TempDir()
		if err := smalldisk.Mount(dirs[id], 128<<20); err != nil {
			t.Logf("%v: internal/cluster has tests with injected errors", err)
			return
		}
		t.Cleanup(func() {
			if err := smalldisk.Unmount(dirs[id]); err != nil {
				t.Error(err)
			}
		})
	}
	n := clusterIn(t, dirs, "--cluster.log_bytes", fmt.Sprint(32<<20))
	payload := strings.Repeat("x", 1000)
	do(t, connect(t, n.all["a"].Addr(), 3), "FILA.QUEUE", "CREATE", "q")
	fill := func(id string) {
		t.Helper()
		if err := smalldisk.Fill(dirs[id]); err != nil {
			t.Fatal(err)
		}
	}
	empty := func(id string) {
		t.Helper()
		if err := smalldisk.Empty(dirs[id]); err != nil {
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
		n.enqueues(connect(t, n.all[well[0]].Addr(), 3), payload, 3000)
		empty(full)
		n.enqueues(connect(t, n.all[full].Addr(), 3), payload, 100)
		// With one of the others gone, each write needs the node that was full.
		if err := n.all[well[1]].Kill(); err != nil {
			t.Fatal(err)
		}
		n.enqueues(connect(t, n.all[full].Addr(), 3), payload, 100)
		if err := n.all[well[1]].Start(); err != nil {
			t.Fatal(err)
		}
		n.ready(well[1])
	}
	leader := n.leader()
	well := n.others(leader)[0]
	fill(leader)
	fill(n.others(leader)[1])
	c := connect(t, n.all[well].Addr(), 3)
	for end, err := time.Now().Add(patience), error(nil); err == nil; err = c.Do(t.Context(), "FILA.ENQUEUE", "q", payload).Err() {
		if time.Now().After(end) {
			t.Fatal("messages are acknowledged while a majority cannot write")
		}
	}
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
	n := cluster(t, "--cluster.election_ms", "200")
	loading, stopLoading := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer func() { stopLoading(); clients.Wait() }()
	do(t, connect(t, n.all["a"].Addr(), 3), "FILA.QUEUE", "CREATE", "q")
	l := newLedger()
	for i, id := range []string{"a", "b", "c"} {
		load := &load{ledger: l, addr: n.all[id].Addr()}
		clients.Go(func() { load.produce(loading, i) })
		clients.Go(func() { load.consume(loading, i) })
	}
	for round, took := 0, 0; took < *staleRounds; round++ {
		if round > 2*(*staleRounds)+10 {
			t.Fatalf("only in %d of %d rounds a leader was stopped", took, round)
		}
		old := n.leader()
		queue := fmt.Sprint("round", round)
		stale := connect(t, n.all[old].Addr(), 3)
		if !filled(t, stale, queue, staleMessages) {
			continue // the leader has changed meanwhile
		}
		pid := n.all[old].PID()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); !standsStill(t, pid); {
			if time.Now().After(end) {
				t.Fatal("the node does not stop")
			}
		}
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
		ackedAll(t, connect(t, n.all[n.others(old)[0]].Addr(), 3), queue, staleMessages)
		if n.leader() != old {
			took++
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for _, d := range <-got {
			t.Errorf("round %d: %s handed out %s after it was acked", round, old, d.payload)
		}
		n.ready(old)
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
	for end := time.Now().Add(patience); len(acked) < count; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d messages of %s are acked", len(acked), count, queue)
		}
		reply, err := c.Do(t.Context(), "FILA.LEASE", queue, "COUNT", count).Result()
		if err != nil {
			continue
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
	}
}

// What clients of a follower have begun goes on with the next leader: a lease that waits, a transaction
// that is being queued, a subscription. A client that has left gets nothing.
func TestClientsOfAFollowerGoOnWithTheNextLeader(t *testing.T) {
	n := cluster(t)
	killed := n.leader()
	stays := n.all[n.others(killed)[0]].Addr()
	admin := connect(t, stays, 3)
	do(t, admin, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 60_000)
	do(t, admin, "FILA.QUEUE", "CREATE", "left")
	lease := make(chan any, 1)
	go func() {
		reply, err := connect(t, stays, 3).Do(context.WithoutCancel(t.Context()), "FILA.LEASE", "q", "BLOCK", patience.Milliseconds()).Result()
		if err != nil {
			t.Error(err)
		}
		lease <- reply
	}()
	leaving := raw(t, stays)
	transaction := raw(t, stays)
	events := connect(t, stays, 3).Subscribe(t.Context(), "fila:q:enqueued", "fila::lost")
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
	wantStats(t, admin, "q", map[string]int64{"waiters": 1})
	wantStats(t, admin, "left", map[string]int64{"waiters": 1})
	if err := n.all[killed].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := leaving.Close(); err != nil {
		t.Error(err)
	}
	// What is sent to a leader that is dying may have happened or not. What reads is asked again of the next.
	for end := time.Now().Add(patience); admin.Do(t.Context(), "DBSIZE").Err() != nil; {
		if time.Now().After(end) {
			t.Fatal("no other node leads")
		}
	}
	converse(transaction, "EXEC", "*1\r\n$36\r\n")
	list, err := leased(<-lease)
	if err != nil || len(list) != 1 || list[0].payload != "queued-before" || list[0].attempt != 1 {
		t.Errorf("the lease answers %+v, %v", list, err)
	}
	do(t, admin, "FILA.ENQUEUE", "left", "kept")
	list, err = leased(do(t, admin, "FILA.LEASE", "left", "BLOCK", 5000))
	if err != nil || len(list) != 1 || list[0].attempt != 1 {
		t.Errorf("after a client has left: %+v, %v", list, err)
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
