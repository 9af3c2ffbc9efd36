package integration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestThroughAFollower has a client of a follower use what the leader keeps. Each part begins with one leader, and returns
// what holds with the next one, after the leader was killed.
func TestThroughAFollower(t *testing.T) {
	t.Parallel()
	n := kit.ServeNodes(t, "--storage.lease_lag_ms", "0")
	leader, follower := n.Leader(), n.Follower()
	clients := wires(t, follower.Addr())
	parts := []struct {
		name  string
		begin func(s *speaker) func(s *speaker)
	}{
		{"retries", retriesGoOn},
		{"used costs", usedCostsAreForgotten},
		{"holds", func(s *speaker) func(*speaker) { return holdsStay(s, clients[1]) }},
		{"batches", batchesGoOn},
		{"groups", groupsGoOn},
		{"done", doneIsKept},
	}
	goOn := make([]func(*speaker), len(parts))
	for i, p := range parts {
		t.Run("begin/"+p.name, func(t *testing.T) { goOn[i] = p.begin(&speaker{t, clients[3], follower.Broker}) })
	}
	all := &speaker{t, clients[3], follower.Broker}
	messages := all.run("DBSIZE")
	kit.Kill(t, leader.Broker)
	testkit.Eventually(t, "another node leads", func() bool { return all.run("DBSIZE") == messages })
	for i, p := range parts {
		t.Run("go on/"+p.name, func(t *testing.T) {
			if goOn[i] == nil {
				t.Fatal("it has not begun")
			}
			goOn[i](&speaker{t, clients[3], follower.Broker})
		})
	}
}

// retriesGoOn: the attempts of a message are counted on, and its own and its key's limits are known.
func retriesGoOn(s *speaker) func(*speaker) {
	s.says("OK", "FILA.QUEUE CREATE retries VISIBILITY 3600000 MAXATTEMPTS 1 BACKOFF 0")
	s.says("OK", "FILA.KEY SET retries default MAXDEPTH 2")
	id := s.id("retries often MAXATTEMPTS 2")
	receipt := s.out("retries", "often")[0]
	return func(s *speaker) {
		s.has("action retry attempt 2", "FILA.NACK retries "+receipt)
		s.has("max_attempts 2 attempt 2", "FILA.GET retries "+id)
		s.has("max_depth 2", "FILA.KEY GET retries default")
		s.id("retries second")
		s.says("MAXDEPTH", "FILA.ENQUEUE retries third")
		s.has("action dlq", "FILA.NACK retries "+s.out("retries", "often", "second")[0])
	}
}

// usedCostsAreForgotten: the buckets of the next leader are full, and get nothing back of earlier leases.
func usedCostsAreForgotten(s *speaker) func(*speaker) {
	s.says("OK", "FILA.QUEUE CREATE used VISIBILITY 3600000")
	s.says("OK", "FILA.THROTTLE SET used RATE 0.000000001 BURST 1000 BY COST")
	s.id("used a COST 600 THROTTLE used")
	s.says("1", "FILA.ACK used "+s.out("used", "a")[0]+" USED 200")
	s.has("tokens 800", "FILA.THROTTLE GET used")
	s.id("used b COST 600 THROTTLE used")
	receipt := s.out("used", "b")[0]
	return func(s *speaker) {
		s.has("tokens 1000", "FILA.THROTTLE GET used")
		s.id("used c COST 300 THROTTLE used")
		s.out("used", "c")
		s.says("1", "FILA.ACK used "+receipt+" USED 100")
		s.has("tokens 700", "FILA.THROTTLE GET used")
	}
}

// holdsStay: a hold ends when it would have.
func holdsStay(s *speaker, cli wire) func(*speaker) {
	s.says("OK", "FILA.QUEUE CREATE held VISIBILITY 3600000 BACKOFF 0")
	s.says("OK", "FILA.THROTTLE SET tenant:* CONCURRENCY 1")
	s.id("held a THROTTLE provider THROTTLE tenant:1")
	s.id("held b THROTTLE tenant:1")
	s.has("action retry attempt 2", "FILA.NACK held "+s.out("held", "a")[0]+" ERROR 429 HOLD provider 3600000")
	until := s.heldUntil("provider")
	s.says("OK", "FILA.THROTTLE HOLD other 600000")
	s.says("OK", "FILA.THROTTLE HOLD other 0")
	return func(s *speaker) {
		if later := s.heldUntil("provider"); later != until {
			s.Errorf("held until %d, after a failover until %d", until, later)
		}
		s.says("<nil>", "FILA.THROTTLE GET other")
		s.has("pattern tenant:* concurrency 1", "FILA.THROTTLE GET tenant:1")
		if said := kit.Mapped(s.T, plain(cli.do(s.T, "FILA.THROTTLE", "GET", "provider")))["held_until"]; said != until {
			s.Errorf("redis-cli says %v, want %d", said, until)
		}
		s.afterAHold("held", "a", "provider")
	}
}

// batchesGoOn: keys gather on, and leases of one key pass through a follower.
func batchesGoOn(s *speaker) func(*speaker) {
	s.says("OK", "FILA.QUEUE CREATE batches VISIBILITY 3600000 BATCH 2 BATCHWAIT 3600000")
	for _, m := range []string{"a1", "b1", "b2", "b3"} {
		s.id("batches " + m + " KEY " + m[:1])
	}
	s.batch("FILA.LEASE batches COUNT 5 SAMEKEY", "b1", "b2", "b3")
	s.batch("FILA.LEASE batches COUNT 5 SAMEKEY")
	return func(s *speaker) {
		s.batch("FILA.LEASE batches COUNT 5 SAMEKEY")
		s.id("batches a2 KEY a")
		s.batch("FILA.MLEASE 1 batches SAMEKEY COUNT 5", "a1", "a2")
	}
}

// groupsGoOn: a group that was opened with one leader is done with the next.
func groupsGoOn(s *speaker) func(*speaker) {
	s.says("OK", "FILA.QUEUE CREATE groups VISIBILITY 3600000")
	s.says("1", "FILA.GROUP OPEN g groups all")
	s.id("groups a GROUP g")
	s.id("groups b GROUP g")
	s.says("2", "FILA.GROUP SEAL g")
	receipts := s.out("groups", "a", "b")
	s.says("1", "FILA.ACK groups "+receipts[0])
	return func(s *speaker) {
		s.has("state sealed members 2 pending 1 done 1", "FILA.GROUP GET g")
		s.says("1", "FILA.ACK groups "+receipts[1])
		s.has("state done pending 0 done 2", "FILA.GROUP GET g")
		s.out("groups", "all")
	}
}

// doneIsKept: what is done is known, and what was said about progress is not.
func doneIsKept(s *speaker) func(*speaker) {
	s.says("OK", "FILA.QUEUE CREATE done VISIBILITY 3600000 KEEPDONE 3600000")
	id, second := s.id("done first"), s.id("done second KEY other")
	receipts := s.out("done", "first", "second")
	if !strings.HasPrefix(receipts[0], id) {
		slices.Reverse(receipts)
	}
	s.says("1", "FILA.ACK done "+receipts[0])
	s.run("FILA.EXTEND done " + receipts[1] + " 60000 PROGRESS half")
	s.has("status pending progress half", "FILA.RESULT done "+second)
	return func(s *speaker) {
		s.has("status done", "FILA.GET done "+id)
		s.has("status pending progress <nil>", "FILA.RESULT done "+second)
		s.says("1", "FILA.ACK done "+receipts[1])
		s.has("status done key other", "FILA.GET done "+second)
	}
}
