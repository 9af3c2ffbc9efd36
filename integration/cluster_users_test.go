package integration_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// usersFile writes a file of users and returns its name. The default user may do everything.
func usersFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// as returns a client of a node that authenticates.
func (n *nodes) as(id, user, password string) *redis.Client {
	n.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: n.Node(id).Addr(), Protocol: 3, MaxRetries: -1, Username: user, Password: password, ReadTimeout: testkit.Patience()})
	n.t.Cleanup(func() { c.Close() })
	return c
}

// may reports whether a user authenticates at a node and may run a command there.
func (n *nodes) may(id, user, password string, args ...any) bool {
	n.t.Helper()
	c := n.as(id, user, password)
	defer c.Close()
	var err error
	testkit.Eventually(n.t, "no other node is taking over", func() bool {
		err = c.Do(n.t.Context(), args...).Err()
		return !kit.Loading(err)
	})
	return err == nil
}

// redisCLI runs redis-cli against a node.
func (n *nodes) redisCLI(id string, args ...string) string {
	n.t.Helper()
	host, port, err := net.SplitHostPort(n.Node(id).Addr())
	if err != nil {
		n.t.Fatal(err)
	}
	var out []byte
	testkit.Eventually(n.t, "no other node is taking over", func() bool {
		out, err = exec.CommandContext(testkit.Context(n.t), "redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
		if err != nil {
			n.t.Fatalf("redis-cli %v: %v: %s", args, err, out)
		}
		return !strings.HasPrefix(string(out), "LOADING ")
	})
	return strings.TrimSpace(string(out))
}

// Users are the same on all nodes, through kills and a disk that is lost.
func TestUsersOfAClusterSurviveAFailover(t *testing.T) {
	t.Parallel()
	file := usersFile(t, "user default on nopass ~* &* +@all", "user seeded on >seed ~* &* +@all")
	n := cluster(t, "--auth.acl_file", file)
	leader := n.leader()
	at, third := n.others(leader)[0], n.others(leader)[1]
	for _, id := range []string{"a", "b", "c"} {
		if !n.may(id, "seeded", "seed", "PING") {
			t.Errorf("the user of the file is unknown at %s", id)
		}
	}
	// A change is in force at the leader, and where it was made, with its reply.
	if got := n.redisCLI(at, "ACL", "SETUSER", "worker", "on", ">one", "~jobs*", "+@all"); got != "OK" {
		t.Errorf("ACL SETUSER: %s", got)
	}
	for _, id := range []string{leader, at} {
		if got := n.redisCLI(id, "--no-auth-warning", "--user", "worker", "--pass", "one", "ACL", "WHOAMI"); got != "worker" {
			t.Errorf("at %s: %s", id, got)
		}
	}
	admin := kit.Connect(t, n.Node(leader).Addr(), 3)
	for range 10 {
		password := kit.Do(t, admin, "ACL", "GENPASS").(string)
		kit.Do(t, admin, "ACL", "SETUSER", "worker", "resetpass", ">"+password)
		if !n.may(leader, "worker", password, "PING") {
			t.Error("a new password is not in force at the leader")
		}
		testkit.Eventually(t, "the password is in force at "+third, func() bool { return n.may(third, "worker", password, "PING") })
	}
	kit.Do(t, admin, "ACL", "SETUSER", "worker", "resetpass", ">two")
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "jobs")

	// The next leader has them, and the old one when it is back.
	n.kill(leader)
	kit.Ready(t, n.Node(at).Broker)
	next := n.leader()
	if !n.may(next, "worker", "two", "FILA.ENQUEUE", "jobs", "x") || n.may(next, "worker", "two", "FILA.ENQUEUE", "other", "x") || n.may(next, "worker", "one", "PING") {
		t.Error("the next leader has other users")
	}
	testkit.Eventually(t, "the password is in force at the other follower", func() bool { return n.may(third, "worker", "two", "PING") })
	connected := n.as(third, "worker", "two")
	kit.Do(t, connected, "PING")
	kit.Do(t, kit.Connect(t, n.Node(next).Addr(), 3), "ACL", "DELUSER", "worker")
	testkit.Eventually(t, "the connection of a deleted user ends", func() bool { return connected.Do(t.Context(), "PING").Err() != nil })
	kit.Do(t, kit.Connect(t, n.Node(next).Addr(), 3), "ACL", "SETUSER", "later", "on", ">three", "+@all")
	if err := n.Node(leader).Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the users of meanwhile are in force", func() bool { return n.may(leader, "later", "three", "PING") && !n.may(leader, "worker", "two", "PING") })

	// So has a node whose disk was lost.
	wiped := n.others(next)[0]
	n.loseDisk(wiped)
	if err := n.Node(wiped).Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the users are on an empty disk", func() bool { return n.may(wiped, "later", "three", "PING") })
	kit.Ready(t, n.Node(wiped).Broker)
}

func TestALeaseAtAFollowerEndsWhenItsUserLosesTheRight(t *testing.T) {
	t.Parallel()
	n := cluster(t, "--auth.acl_file", usersFile(t, "user default on nopass ~* &* +@all", "user worker on >w ~* +@all"))
	leader := n.leader()
	admin := kit.Connect(t, n.Node(leader).Addr(), 3)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "q")
	worker := n.as(n.others(leader)[0], "worker", "w")
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Do(context.WithoutCancel(t.Context()), "FILA.LEASE", "q", "BLOCK", 0).Err()
	}()
	kit.WantStats(t, admin, "q", map[string]int64{"waiters": 1})
	kit.Do(t, admin, "ACL", "SETUSER", "worker", "-fila.lease")
	if err := within(t, ended); err != nil {
		t.Errorf("the lease ends with %v", err)
	}
	kit.Do(t, admin, "FILA.ENQUEUE", "q", "x")
	refused(t, worker, "NOPERM", "FILA.LEASE", "q")
	kit.WantStats(t, admin, "q", map[string]int64{"ready": 1})
}

// The file is read when the cluster is formed, and by ACL LOAD at the leader; ACL SAVE writes the users.
func TestTheFileOfUsersOfANode(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, id := range []string{"a", "b", "c"} {
		files[id] = usersFile(t, "user default on nopass ~* &* +@all", "user of-"+id+" on >p +@all")
	}
	n := clusterIn(t, kit.Homes(t, 3), func(id string) []string {
		return []string{"--auth.acl_file", files[id]}
	})
	leader := n.leader()
	other := n.others(leader)[0]
	for _, id := range []string{"a", "b", "c"} {
		testkit.Eventually(t, "the users of the node that formed the cluster are in force at "+id, func() bool { return n.may(id, "of-a", "p", "PING") && !n.may(id, "of-b", "p", "PING") })
	}
	refused(t, kit.Connect(t, n.Node(other).Addr(), 3), "ERR the users are in the store", "ACL", "LOAD")
	kit.Do(t, kit.Connect(t, n.Node(leader).Addr(), 3), "ACL", "SETUSER", "made", "on", ">p", "+@all")
	kit.Do(t, kit.Connect(t, n.Node(leader).Addr(), 3), "ACL", "LOAD")
	for _, id := range []string{"a", "b", "c"} {
		testkit.Eventually(t, "the users of the file of the leader are in force at "+id, func() bool { return n.may(id, "of-"+leader, "p", "PING") && !n.may(id, "made", "p", "PING") })
	}
	kit.Do(t, kit.Connect(t, n.Node(other).Addr(), 3), "ACL", "SETUSER", "saved", "on", ">p", "+@all")
	testkit.Eventually(t, "the user is in force at "+other, func() bool { return n.may(other, "saved", "p", "PING") })
	kit.Do(t, kit.Connect(t, n.Node(other).Addr(), 3), "ACL", "SAVE")
	if text, err := os.ReadFile(files[other]); err != nil || !strings.Contains(string(text), "user saved on #") || !strings.Contains(string(text), "user of-"+leader) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := os.ReadFile(files[leader]); err != nil || strings.Contains(string(text), "saved") {
		t.Errorf("the file of another node: %s, %v", text, err)
	}
}

// A single broker that becomes a cluster keeps its users and its data.
func TestASingleBrokerBecomesAClusterWithItsUsers(t *testing.T) {
	t.Parallel()
	file := usersFile(t, "user default on nopass ~* &* +@all")
	single := kit.Serve(t, "--auth.acl_file", file)
	c := kit.Connect(t, single.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "kept")
	kit.Do(t, c, "ACL", "SETUSER", "worker", "on", ">one", "~*", "+@all")
	kit.Do(t, c, "ACL", "SAVE")
	kit.Stop(t, single)
	empty := usersFile(t, "user default on nopass ~* &* +@all", "user elsewhere on >p +@all")
	n := clusterIn(t, []string{t.TempDir(), single.Dir(), t.TempDir()}, func(id string) []string {
		if id == "b" {
			return []string{"--auth.acl_file", file}
		}
		return []string{"--auth.acl_file", empty}
	})
	for _, id := range []string{"a", "b", "c"} {
		testkit.Eventually(t, "the user is in force at "+id, func() bool {
			return n.may(id, "worker", "one", "FILA.STATS", "q") && !n.may(id, "elsewhere", "p", "PING")
		})
	}
	kit.WantStats(t, n.as("c", "worker", "one"), "q", map[string]int64{"ready": 1})
}
