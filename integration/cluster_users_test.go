package integration_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
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
	c := redis.NewClient(&redis.Options{Addr: n.all[id].Addr(), Protocol: 3, MaxRetries: -1, Username: user, Password: password, ReadTimeout: patience})
	n.t.Cleanup(func() { c.Close() })
	return c
}

// may reports whether a user authenticates at a node and may run a command there.
func (n *nodes) may(id, user, password string, args ...any) bool {
	n.t.Helper()
	c := n.as(id, user, password)
	defer c.Close()
	return c.Do(n.t.Context(), args...).Err() == nil
}

// soon waits until something holds at a node, and returns for how long it did not.
func (n *nodes) soon(what string, holds func() bool) time.Duration {
	n.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > patience {
			n.t.Fatalf("%s: not after %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// redisCLI runs redis-cli against a node.
func (n *nodes) redisCLI(id string, args ...string) string {
	n.t.Helper()
	host, port, err := net.SplitHostPort(n.all[id].Addr())
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("redis-cli %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Users are the same on all nodes, through kills and a disk that is lost.
func TestUsersOfAClusterSurviveAFailover(t *testing.T) {
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
	slowest := time.Duration(0)
	admin := connect(t, n.all[leader].Addr(), 3)
	for range 10 {
		password := do(t, admin, "ACL", "GENPASS").(string)
		do(t, admin, "ACL", "SETUSER", "worker", "resetpass", ">"+password)
		if !n.may(leader, "worker", password, "PING") {
			t.Error("a new password is not in force at the leader")
		}
		slowest = max(slowest, n.soon("the password at "+third, func() bool { return n.may(third, "worker", password, "PING") }))
	}
	t.Logf("a change was in force at another node after %v at most", slowest)
	do(t, admin, "ACL", "SETUSER", "worker", "resetpass", ">two")
	do(t, admin, "FILA.QUEUE", "CREATE", "jobs")

	// The next leader has them, and the old one when it is back.
	if err := n.all[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	n.ready(at)
	next := n.leader()
	if !n.may(next, "worker", "two", "FILA.ENQUEUE", "jobs", "x") || n.may(next, "worker", "two", "FILA.ENQUEUE", "other", "x") || n.may(next, "worker", "one", "PING") {
		t.Error("the next leader has other users")
	}
	n.soon("the password at the other follower", func() bool { return n.may(third, "worker", "two", "PING") })
	connected := n.as(third, "worker", "two")
	do(t, connected, "PING")
	do(t, connect(t, n.all[next].Addr(), 3), "ACL", "DELUSER", "worker")
	n.soon("the end of the connection of a deleted user", func() bool { return connected.Do(t.Context(), "PING").Err() != nil })
	do(t, connect(t, n.all[next].Addr(), 3), "ACL", "SETUSER", "later", "on", ">three", "+@all")
	if err := n.all[leader].Start(); err != nil {
		t.Fatal(err)
	}
	n.soon("the users of meanwhile", func() bool { return n.may(leader, "later", "three", "PING") && !n.may(leader, "worker", "two", "PING") })

	// So has a node whose disk was lost.
	wiped := n.others(next)[0]
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
	n.soon("the users on an empty disk", func() bool { return n.may(wiped, "later", "three", "PING") })
	n.ready(wiped)
}

func TestALeaseAtAFollowerEndsWhenItsUserLosesTheRight(t *testing.T) {
	n := cluster(t, "--auth.acl_file", usersFile(t, "user default on nopass ~* &* +@all", "user worker on >w ~* +@all"))
	leader := n.leader()
	admin := connect(t, n.all[leader].Addr(), 3)
	do(t, admin, "FILA.QUEUE", "CREATE", "q")
	worker := n.as(n.others(leader)[0], "worker", "w")
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Do(context.WithoutCancel(t.Context()), "FILA.LEASE", "q", "BLOCK", 0).Err()
	}()
	wantStats(t, admin, "q", map[string]int64{"waiters": 1})
	do(t, admin, "ACL", "SETUSER", "worker", "-fila.lease")
	if err := within(t, ended); err != nil {
		t.Errorf("the lease ends with %v", err)
	}
	do(t, admin, "FILA.ENQUEUE", "q", "x")
	refused(t, worker, "NOPERM", "FILA.LEASE", "q")
	wantStats(t, admin, "q", map[string]int64{"ready": 1})
}

// The file is read when the cluster is formed, and by ACL LOAD at the leader; ACL SAVE writes the users.
func TestTheFileOfUsersOfANode(t *testing.T) {
	files := map[string]string{}
	for _, id := range []string{"a", "b", "c"} {
		files[id] = usersFile(t, "user default on nopass ~* &* +@all", "user of-"+id+" on >p +@all")
	}
	n := clusterOf(t, map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir()}, func(id string) []string {
		return []string{"--auth.acl_file", files[id]}
	})
	leader := n.leader()
	other := n.others(leader)[0]
	for _, id := range []string{"a", "b", "c"} {
		n.soon("the users of the node that formed the cluster at "+id, func() bool { return n.may(id, "of-a", "p", "PING") && !n.may(id, "of-b", "p", "PING") })
	}
	refused(t, connect(t, n.all[other].Addr(), 3), "ERR the users are in the store", "ACL", "LOAD")
	do(t, connect(t, n.all[leader].Addr(), 3), "ACL", "SETUSER", "made", "on", ">p", "+@all")
	do(t, connect(t, n.all[leader].Addr(), 3), "ACL", "LOAD")
	for _, id := range []string{"a", "b", "c"} {
		n.soon("the users of the file of the leader at "+id, func() bool { return n.may(id, "of-"+leader, "p", "PING") && !n.may(id, "made", "p", "PING") })
	}
	do(t, connect(t, n.all[other].Addr(), 3), "ACL", "SETUSER", "saved", "on", ">p", "+@all")
	do(t, connect(t, n.all[other].Addr(), 3), "ACL", "SAVE")
	if text, err := os.ReadFile(files[other]); err != nil || !strings.Contains(string(text), "user saved on #") || !strings.Contains(string(text), "user of-"+leader) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := os.ReadFile(files[leader]); err != nil || strings.Contains(string(text), "saved") {
		t.Errorf("the file of another node: %s, %v", text, err)
	}
}

// A single broker that becomes a cluster keeps its users and its data.
func TestASingleBrokerBecomesAClusterWithItsUsers(t *testing.T) {
	dir, file := t.TempDir(), usersFile(t, "user default on nopass ~* &* +@all")
	single, err := harness.New(binary(t), dir, "--auth.acl_file", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := single.Stop(); err != nil {
			t.Error(err)
		}
	})
	restart(t, single)
	c := connect(t, single.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	do(t, c, "FILA.ENQUEUE", "q", "kept")
	do(t, c, "ACL", "SETUSER", "worker", "on", ">one", "~*", "+@all")
	do(t, c, "ACL", "SAVE")
	if err := single.Stop(); err != nil {
		t.Fatal(err)
	}
	empty := usersFile(t, "user default on nopass ~* &* +@all", "user elsewhere on >p +@all")
	n := clusterOf(t, map[string]string{"a": t.TempDir(), "b": dir, "c": t.TempDir()}, func(id string) []string {
		if id == "b" {
			return []string{"--auth.acl_file", file}
		}
		return []string{"--auth.acl_file", empty}
	})
	for id := range n.all {
		n.soon("the user at "+id, func() bool {
			return n.may(id, "worker", "one", "FILA.STATS", "q") && !n.may(id, "elsewhere", "p", "PING")
		})
	}
	wantStats(t, n.as("c", "worker", "one"), "q", map[string]int64{"ready": 1})
}
