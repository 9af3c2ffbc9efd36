package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestGroupsAreTheSameForAllClients: in both protocols, and after kills while members are pending.
func TestGroupsAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t, "--storage.lease_lag_ms", "0")
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			s := &speaker{t, w, b}
			aChord(s, fmt.Sprint("chord", i))
			groupsInGroups(s, fmt.Sprint("tree", i))
			whatGroupsRefuse(s, fmt.Sprint("no", i))
		})
	}
}

// aChord has members that are acked, die, are cancelled and redriven, and a message when all have come to their end.
func aChord(s *speaker, n string) {
	in, out := n+".in", n+".out"
	s.says("OK", "FILA.QUEUE CREATE "+in+" MAXATTEMPTS 1")
	s.says("OK", "FILA.QUEUE CREATE "+out)
	s.says("<nil>", "FILA.GROUP GET "+n)
	s.says("1", "FILA.GROUP OPEN "+n+" "+out+" all KEY acme HEADER kind chord")
	s.says("0", "FILA.GROUP OPEN "+n+" "+out+" other")
	s.id(in + " a GROUP " + n)
	s.id(in + " b GROUP " + n)
	cancelled := s.id(in + " c DELAY 3600000 GROUP " + n)
	s.has("state open members 3 pending 3 done 0 message <nil> sealed_at <nil>", "FILA.GROUP GET "+n)
	s.restart()
	if _, list := s.page("FILA.GROUP LIST MATCH " + n); len(list) != 1 {
		s.Errorf("%d groups are listed: %v", len(list), list)
	}
	s.says("3", "FILA.GROUP SEAL "+n)
	s.says("SEALED", "FILA.ENQUEUE "+in+" d GROUP "+n)
	receipts := s.out(in, "a", "b")
	s.says("1", "FILA.ACK "+in+" "+receipts[0])
	s.says("1", "FILA.CANCEL "+in+" "+cancelled)
	s.has("state sealed members 3 pending 1 done 1 dead 0 cancelled 1", "FILA.GROUP GET "+n)
	s.restart()
	s.out(out)
	s.has("action dlq", "FILA.NACK "+in+" "+receipts[1])
	s.restart()
	s.has("state done members 3 pending 0 done 1 dead 1 cancelled 1 error <nil>", "FILA.GROUP GET "+n)
	ds, err := leased(s.run("FILA.LEASE " + out))
	if err != nil || len(ds) != 1 || ds[0].payload != "all" || ds[0].key != "acme" {
		s.Fatalf("the message of the group is %+v, %v", ds, err)
	}
	m := kit.Mapped(s.T, s.run("FILA.GET "+out+" "+ds[0].id()))
	headers := fmt.Sprint(m["headers"])
	for _, want := range []string{"kind", "chord", "fila-group-done", "fila-group-dead"} {
		if !strings.Contains(headers, want) {
			s.Errorf("the headers %s have no %s", headers, want)
		}
	}
	s.says("1", "FILA.REDRIVE "+in+".dlq") // it has ended, and takes nothing back
	s.has("state done members 3 dead 1", "FILA.GROUP GET "+n)
	s.says("0", "FILA.GROUP CANCEL "+n)
}

// groupsInGroups: the message of one group is a member of another, and a dead member keeps a group waiting.
func groupsInGroups(s *speaker, n string) {
	q := n + ".q"
	s.says("OK", "FILA.QUEUE CREATE "+q+" MAXATTEMPTS 1")
	s.says("1", "FILA.GROUP OPEN "+n+".outer "+q+" top")
	s.says("1", "FILA.GROUP OPEN "+n+".inner "+q+" middle WHEN DONE GROUP "+n+".outer")
	s.says("1", "FILA.GROUP SEAL "+n+".outer")
	s.id(q + " leaf GROUP " + n + ".inner")
	s.says("1", "FILA.GROUP SEAL "+n+".inner")
	s.has("action dlq", "FILA.NACK "+q+" "+s.out(q, "leaf")[0])
	s.has("state sealed dead 1 pending 0", "FILA.GROUP GET "+n+".inner")
	s.says("1", "FILA.REDRIVE "+q+".dlq")
	s.has("dead 0 pending 1", "FILA.GROUP GET "+n+".inner")
	s.restart()
	s.says("1", "FILA.ACK "+q+" "+s.out(q, "leaf")[0])
	s.has("state done done 1", "FILA.GROUP GET "+n+".inner")
	s.has("state sealed pending 1", "FILA.GROUP GET "+n+".outer")
	s.says("1", "FILA.ACK "+q+" "+s.out(q, "middle")[0])
	s.says("1", "FILA.ACK "+q+" "+s.out(q, "top")[0])
}

func whatGroupsRefuse(s *speaker, n string) {
	q := n + ".q"
	s.says("OK", "FILA.QUEUE CREATE "+q)
	s.says("NOGROUP", "FILA.ENQUEUE "+q+" x GROUP "+n)
	s.says("NOGROUP", "FILA.GROUP SEAL "+n)
	s.says("NOQUEUE", "FILA.GROUP OPEN "+n+" "+n+".none x")
	s.says("1", "FILA.GROUP OPEN "+n+" "+q+" x")
	s.says("INVALID", "FILA.ENQUEUE "+q+" x UNIQUE u REPLACE GROUP "+n)
	s.id(q + " waits GROUP " + n)
	s.id(q + " leased GROUP " + n)
	receipt := s.batch("FILA.LEASE "+q+" COUNT 1", "waits")[0]
	s.says("1", "FILA.GROUP CANCEL "+n)
	s.out(q)
	s.says("CANCELLED", "FILA.EXTEND "+q+" "+receipt+" 60000")
	s.restart()
	s.out(q)
	s.says("1", "FILA.ACK "+q+" "+receipt)
	s.has("state cancelled members 2 pending 0 done 1 cancelled 1 message <nil>", "FILA.GROUP GET "+n)
	s.says("1", "FILA.GROUP OPEN "+n+".late "+q+" x EXPIRE 50")
	s.run("FILA.ENQUEUE " + q + " late GROUP " + n + ".late DELAY 3600000") // a member, unless the group has expired already
	testkit.Eventually(s.T, "a group expires", func() bool {
		return kit.Mapped(s.T, s.run("FILA.GROUP GET "+n+".late"))["state"] == "cancelled"
	})
}

// TestGroupsAreDoneOnceUnderKills has workers end the members of groups, some of which die and are redriven, while the
// broker is killed: the message of each group is enqueued once, with counts that are exact.
func TestGroupsAreDoneOnceUnderKills(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		name       string
		quick, all groupsUnderKills
	}{
		{"many", groupsUnderKills{groups: 20, members: 20, kills: 2}, groupsUnderKills{groups: 1000, members: 1000, kills: 20}},
		{"one", groupsUnderKills{groups: 1, members: 1000, kills: 1}, groupsUnderKills{groups: 1, members: 1_000_000, kills: 3}},
	} {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				form.quick.run(t)
			} else {
				form.all.run(t)
			}
		})
	}
}

// groupsUnderKills are groups with as many members each, and kills of the broker while these end.
type groupsUnderKills struct{ groups, members, kills int }

func (x groupsUnderKills) run(t *testing.T) {
	t.Helper()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "in", "MAXATTEMPTS", 1, "VISIBILITY", 600_000)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "out")
	for g := range x.groups {
		x.fill(t, c, fmt.Sprint("g", g), []string{"DONE", "ENDED"}[g%2])
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() { x.work(ctx, b.Addr(), w) })
	}
	for kill := range x.kills {
		c := kit.Connect(t, b.Addr(), 3)
		testkit.Eventually(t, "members are acked", func() bool {
			m := kit.Mapped(t, kit.Do(t, c, "FILA.STATS", "in"))
			left, _ := m["ready"].(int64)
			return left <= int64(x.groups*x.members*(x.kills-kill)/(x.kills+1))
		})
		kit.Kill(t, b)
		kit.Start(t, b)
	}
	c = kit.Connect(t, b.Addr(), 3)
	for g := range x.groups {
		testkit.Eventually(t, "a group is done", func() bool {
			_ = c.Do(ctx, "FILA.REDRIVE", "in.dlq").Err()
			return kit.Mapped(t, kit.Do(t, c, "FILA.GROUP", "GET", fmt.Sprint("g", g)))["state"] == "done"
		})
	}
	end()
	all.Wait()
	x.judge(t, c)
	kit.Kill(t, b)
	wantOutput(t, 0, "everything is in order", "check", b.Data())
}

// fill opens a group, enqueues its members and seals it.
func (x groupsUnderKills) fill(t *testing.T, c *redis.Client, name, when string) {
	t.Helper()
	kit.Do(t, c, "FILA.GROUP", "OPEN", name, "out", name, "WHEN", when)
	for m := 0; m < x.members; {
		p := c.Pipeline()
		for ; m < x.members && p.Len() < 500; m++ {
			p.Do(t.Context(), "FILA.ENQUEUE", "in", fmt.Sprint(m), "KEY", name, "GROUP", name)
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kit.Do(t, c, "FILA.GROUP", "SEAL", name)
}

// work acks what it leases, but for one in twenty, which is dead, and now and then redrives those. An answer that a kill
// has lost is given again.
func (x groupsUnderKills) work(ctx context.Context, addr string, w int) {
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2 + w%2, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
	defer func() { _ = c.Close() }()
	answer := func(args ...any) {
		for ctx.Err() == nil {
			if err := c.Do(ctx, args...).Err(); err == nil || strings.HasPrefix(err.Error(), "LEASELOST") {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	for n := w; ctx.Err() == nil; n++ {
		ds, err := leased(c.Do(ctx, "FILA.LEASE", "in", "COUNT", 20, "VISIBILITY", 2000, "BLOCK", 100).Val())
		if err != nil || len(ds) == 0 {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		ack := []any{"FILA.ACK", "in"}
		for i := range ds {
			if (n+i)%20 == 0 {
				answer("FILA.NACK", "in", ds[i].receipt, "DEAD")
			} else {
				ack = append(ack, ds[i].receipt)
			}
		}
		if len(ack) > 2 {
			answer(ack...)
		}
		if n%50 == 0 {
			_ = c.Do(ctx, "FILA.REDRIVE", "in.dlq").Err() // what it does not move, another will
		}
	}
}

// judge fails the test unless each group counts all of its members, and has enqueued its message once.
func (x groupsUnderKills) judge(t *testing.T, c *redis.Client) {
	t.Helper()
	for g := range x.groups {
		m := kit.Mapped(t, kit.Do(t, c, "FILA.GROUP", "GET", fmt.Sprint("g", g)))
		done, _ := m["done"].(int64)
		dead, _ := m["dead"].(int64)
		if m["members"] != int64(x.members) || done+dead != int64(x.members) || g%2 == 0 && dead != 0 {
			t.Errorf("group %d is %v", g, m)
		}
	}
	seen := map[string]int{}
	for {
		ds, err := leased(kit.Do(t, c, "FILA.LEASE", "out", "COUNT", 100))
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) == 0 {
			break
		}
		for i := range ds {
			seen[ds[i].payload]++
		}
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("the message of %s was enqueued %d times", name, n)
		}
	}
	if len(seen) != x.groups {
		t.Errorf("%d groups have a message, want %d", len(seen), x.groups)
	}
}
