package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/client"
)

func TestTheDoctorFindsAFullDiskAndAnOldCertificate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	disk := func(free, size string) *patient {
		return &patient{now: now, info: map[string]string{"store_free_bytes": free, "store_bytes": size}}
	}
	for name, x := range map[string]struct {
		check string
		p     *patient
		want  string // "": nothing is found
	}{
		"much is free":               {"disk", disk("50000000000", "20000000000"), ""},
		"less than 1 GiB is free":    {"disk", disk("900000000", "1000"), "0.8 GiB of the disk are free"},
		"little beside the store":    {"disk", disk("5000000000", "80000000000"), "the store has 74.5 GiB"},
		"the disk is not known":      {"disk", &patient{now: now, info: map[string]string{}}, ""},
		"the certificate ends soon":  {"certificate", &patient{now: now, cert: now.Add(3 * 24 * time.Hour)}, "certificate"},
		"the certificate ends late":  {"certificate", &patient{now: now, cert: now.Add(90 * 24 * time.Hour)}, ""},
		"memory without a limit":     {"memory", &patient{stats: client.Map{with("memory_used", int64(9<<30))}}, ""},
		"memory with room":           {"memory", &patient{stats: client.Map{with("memory_used", int64(74<<20)), with("memory_limit", int64(100<<20))}}, ""},
		"memory that is nearly used": {"memory", &patient{stats: client.Map{with("memory_used", int64(75<<20)), with("memory_limit", int64(100<<20)), with("keys", int64(5))}}, "75 of 100 MiB of memory are used, 0 of them by 5 fairness keys"},
		"memory that is used up":     {"memory", &patient{stats: client.Map{with("memory_used", int64(85<<20)), with("memory_limit", int64(100<<20)), with("memory_full", int64(1))}}, "new messages are refused with OOM"},
		"all ticks have a next":      {"ticks", &patient{}, ""},
		"a zone is gone":             {"ticks", &patient{ticks: []string{"the recurring message report never ticks again: invalid expression or zone"}}, "the recurring message report never ticks again"},
		"there is no certificate":    {"certificate", &patient{now: now}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range checks() {
				if c.name != x.check {
					continue
				}
				found := c.look(x.p)
				if (len(found) == 0) != (x.want == "") || len(found) > 0 && !strings.Contains(found[0].what, x.want) {
					t.Errorf("found %+v, want %q", found, x.want)
				}
				return
			}
			t.Fatalf("there is no check %s", x.check)
		})
	}
}

// A node without a leader takes no writes for that reason, and its disk is not to blame.
func TestTheDoctorBlamesNoDiskForALostLeader(t *testing.T) {
	p := &patient{info: map[string]string{"writable": "0"}, nodes: []client.Map{node("a", "voter", "online"), node("b", "voter", "down")}}
	if found := writable(p); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	p.nodes[0] = node("a", "leader", "online")
	if found := writable(p); len(found) != 1 {
		t.Errorf("with a leader: found %+v", found)
	}
}

// node is one of FILA.CLUSTER STATUS.
func node(id, role, state string, more ...client.Field) client.Map {
	return append(client.Map{{Name: "id", Value: id}, {Name: "role", Value: role}, {Name: "state", Value: state}, {Name: "address", Value: "10.0.0.1:5575"}}, more...)
}

func with(name string, value any) client.Field { return client.Field{Name: name, Value: value} }

func TestTheDoctorFindsWhatIsWrongWithACluster(t *testing.T) {
	a, b, c := node("a", "leader", "online"), node("b", "voter", "online"), node("c", "voter", "online")
	here := func(id, client string) client.Map {
		return node(id, "voter", "online", with("ports", "plain"), with("client", client))
	}
	for name, x := range map[string]struct {
		check string
		nodes []client.Map
		want  string // "": nothing is found
	}{
		"a broker that is no node":      {"leader", nil, ""},
		"a leader":                      {"leader", []client.Map{a, b, c}, ""},
		"no leader":                     {"leader", []client.Map{b, c}, "no node of the cluster leads"},
		"nodes that are well":           {"nodes", []client.Map{a, b, c}, ""},
		"a node that is down":           {"nodes", []client.Map{a, b, node("c", "voter", "down", with("trouble", "refused"))}, "node c does not answer: refused"},
		"a node on a full disk":         {"nodes", []client.Map{a, node("b", "voter", "readonly"), c}, "node b takes no writes"},
		"a node without data":           {"nodes", []client.Map{a, b, node("c", "none", "joining")}, "node c has not got the data"},
		"a node with other peers":       {"nodes", []client.Map{a, b, node("c", "none", "joining", with("trouble", "cluster.peers is a b here and a b c on c"))}, "node c is not admitted: cluster.peers is"},
		"a node without a vote":         {"nodes", []client.Map{a, b, node("c", "learner", "joining", with("applied", int64(7)))}, "node c has the data and no vote yet"},
		"a node that has come back":     {"nodes", []client.Map{a, b, node("c", "voter", "behind")}, "node c has come back and is catching up"},
		"a node that lags":              {"nodes", []client.Map{a, b, node("c", "voter", "behind", with("behind", int64(7)), with("behind_ms", int64(9000)))}, "node c lacks 7 entries, for 9s"},
		"three voters":                  {"majority", []client.Map{a, b, c}, ""},
		"no broker of a cluster":        {"majority", nil, ""},
		"one of three is down":          {"majority", []client.Map{a, b, node("c", "voter", "down")}, "2 of 3 voters are well: the loss of one more"},
		"two of three are down":         {"majority", []client.Map{b, node("a", "voter", "down"), node("c", "voter", "down")}, "1 of 3 voters are well, which is no majority"},
		"one of five is down":           {"majority", []client.Map{a, b, c, node("d", "voter", "online"), node("e", "voter", "down")}, ""},
		"two of five are down":          {"majority", []client.Map{a, b, c, node("d", "voter", "readonly"), node("e", "voter", "down")}, "3 of 5 voters are well"},
		"learners are no majority":      {"majority", []client.Map{a, b, node("c", "learner", "online")}, "2 nodes vote"},
		"a learner that is down":        {"majority", []client.Map{a, b, c, node("d", "learner", "down")}, ""},
		"clocks that agree":             {"clocks", []client.Map{a, node("b", "voter", "online", with("clock_skew_ms", int64(-900)))}, ""},
		"a clock that is late":          {"clocks", []client.Map{a, node("b", "voter", "online", with("clock_skew_ms", int64(-3000)))}, "the clock of node b differs by 3s"},
		"the same ports":                {"ports", []client.Map{here("a", "10.0.0.1:5555"), here("b", "10.0.0.2:5555")}, ""},
		"a node that was never heard":   {"ports", []client.Map{here("a", "10.0.0.1:5555"), node("b", "voter", "down")}, ""},
		"a port that one lacks":         {"ports", []client.Map{here("a", "10.0.0.1:5555"), node("b", "voter", "online", with("ports", "plain sentinel"))}, "node a has no port of the kind sentinel (node b has one)"},
		"an address of its own machine": {"ports", []client.Map{here("a", "127.0.0.1:5555")}, "clients are told 127.0.0.1:5555 for node a"},
		"a learner of its own":          {"learners", []client.Map{a, b, node("c", "learner", "online", with("named", int64(0)))}, ""},
		"a learner of an operator":      {"learners", []client.Map{a, b, node("c", "learner", "online", with("named", int64(1)))}, "node c keeps a copy and does not vote"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, k := range clusterChecks() {
				if k.name != x.check {
					continue
				}
				found := k.look(&patient{nodes: x.nodes})
				if (len(found) == 0) != (x.want == "") || len(found) > 0 && (!strings.Contains(found[0].what, x.want) || found[0].advice == "") || len(found) > 1 {
					t.Errorf("found %+v, want %q", found, x.want)
				}
				return
			}
			t.Fatalf("there is no check %s", x.check)
		})
	}
}

// A group is one finding however many queues it has, and its advice names the first.
func TestTheDoctorGroupsQueuesByTheirTroubles(t *testing.T) {
	group := func(trouble string, queues int64, more ...client.Field) client.Map {
		return append(client.Map{with("trouble", trouble), with("queues", queues), with("messages", int64(7)), with("oldest_ms", int64(90_000)),
			with("first", client.Map{with("orders", int64(4)), with("mails", int64(3))}[:min(queues, 2)])}, more...)
	}
	first := map[string]client.Map{"orders": {with("name", "orders"), with("dlq", "orders.dlq"), with("dead_letter", int64(0))}}
	for name, x := range map[string]struct {
		check string
		group client.Map
		what  string
		does  string
	}{
		"one queue without a consumer": {"consumers", group("no_consumer", 1), "orders has no consumer: 7 messages, the oldest is ready for 1m30s", "start workers, such as `fila work orders -- PROGRAM`"},
		"many": {
			"consumers", group("no_consumer", 500), "500 queues have no consumer: 7 messages, the oldest is ready for 1m30s; most are in orders (4), mails (3)",
			"start workers, such as `fila work orders -- PROGRAM`; `fila queues list --trouble no_consumer` lists them",
		},
		"dead letters": {"dead", group("dead", 2), "2 queues have dead letters: 7 messages; most are in orders (4), mails (3)", "`fila errors orders.dlq` groups them"},
		"throttled for long": {
			"waiting", group("late", 2, with("state", "throttled"), with("reason", "throttled, all are stopped")), "orders: throttled, all are stopped",
			"more workers do not help; `fila queues list --trouble late --state throttled` lists them",
		},
		"busy for long":                          {"waiting", group("late", 1, with("state", "busy")), "orders has messages that wait", "add workers"},
		"paused":                                 {"paused", group("paused", 3), "3 queues are paused", "`fila queues resume orders`"},
		"nearly full":                            {"full", group("full", 1), "orders has room", "raise max_depth"},
		"expiring leases":                        {"leases", group("expiring", 1), "orders has leases that expire", "visibility timeout"},
		"what is no finding, as it may be meant": {"waiting", group("throttled", 5), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range checks() {
				if c.name != x.check {
					continue
				}
				found := c.look(&patient{groups: []client.Map{x.group}, first: first})
				if x.what == "" && len(found) == 0 {
					return
				}
				if len(found) != 1 || !strings.Contains(found[0].what, x.what) || !strings.Contains(found[0].advice, x.does) {
					t.Errorf("found %+v, want %q and %q", found, x.what, x.does)
				}
				return
			}
			t.Fatalf("there is no check %s", x.check)
		})
	}
}
