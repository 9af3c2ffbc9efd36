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

// TestBatchesAreTheSameForAllClients: leases of one key and keys that gather, in both protocols, and after kills.
func TestBatchesAreTheSameForAllClients(t *testing.T) {
	t.Parallel()
	b := serveSpeakers(t, "--storage.lease_lag_ms", "0")
	for i, w := range wires(t, b.Addr()) {
		if testing.Short() && i != 0 && i != 3 { // each client once, and each protocol
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			s := &speaker{t, w, b}
			leasesOfOneKey(s, fmt.Sprint("same", i))
			keysThatGather(s, fmt.Sprint("texts", i))
		})
	}
}

// batch leases with these options and fails unless the payloads go out in this order. It returns the receipts.
func (s *speaker) batch(line string, payloads ...string) (receipts []string) {
	s.Helper()
	ds, err := leased(s.run(line))
	if err != nil {
		s.Fatal(err)
	}
	var got []string
	for i := range ds {
		got, receipts = append(got, ds[i].payload), append(receipts, ds[i].receipt)
	}
	if fmt.Sprint(got) != fmt.Sprint(payloads) {
		s.Fatalf("%s: %v went out, want %v", line, got, payloads)
	}
	return receipts
}

func leasesOfOneKey(s *speaker, q string) {
	s.says("OK", "FILA.QUEUE CREATE "+q)
	for _, m := range []string{"a1", "b1", "a2", "b2", "a3", "b3"} {
		s.id(q + " " + m + " KEY " + m[:1])
	}
	receipts := s.batch("FILA.LEASE "+q+" COUNT 2 SAMEKEY", "a1", "a2")
	s.batch("FILA.LEASE "+q+" SAMEKEY COUNT 10", "b1", "b2", "b3")
	s.says("2", "FILA.ACK "+q+" "+strings.Join(receipts, " "))
	s.batch("FILA.MLEASE 1 "+q+" COUNT 9 SAMEKEY BLOCK 1000", "a3")

	// What is on disk only is read first.
	for i := range 3 {
		s.id(fmt.Sprintf("%s d%d KEY d", q, i))
		s.id(fmt.Sprintf("%s e%d KEY e", q, i))
	}
	s.restart()
	s.batch("FILA.LEASE "+q+" COUNT 10 SAMEKEY", "d0", "d1", "d2")
	s.batch("FILA.LEASE "+q+" COUNT 10 SAMEKEY", "e0", "e1", "e2")
	s.says("OK", "FILA.QUEUE CREATE ordered."+q+" ORDERED ON")
	s.says("INVALID not allowed", "FILA.LEASE ordered."+q+" SAMEKEY")
}

func keysThatGather(s *speaker, q string) {
	s.says("INVALID not allowed: BATCH needs BATCHWAIT", "FILA.QUEUE CREATE "+q+" BATCH 3")
	s.says("INVALID not allowed", "FILA.QUEUE CREATE "+q+" BATCH 3 BATCHWAIT 1000 ORDERED ON")
	s.says("OK", "FILA.QUEUE CREATE "+q+" BATCH 3 BATCHWAIT 3600000")
	s.has("batch 3 batch_wait_ms 3600000", "FILA.QUEUE INFO "+q)
	s.id(q + " t1 KEY t")
	s.id(q + " t2 KEY t")
	s.id(q + " later KEY t DELAY 3600000")
	s.batch("FILA.LEASE " + q + " COUNT 3 SAMEKEY")
	s.has("state gathering", "FILA.EXPLAIN "+q+" KEY t")
	s.restart()
	s.batch("FILA.LEASE " + q + " COUNT 3 SAMEKEY")
	s.has("state gathering", "FILA.EXPLAIN "+q+" KEY t")
	s.id(q + " t3 KEY t")
	receipts := s.batch("FILA.LEASE "+q+" COUNT 3 SAMEKEY", "t1", "t2", "t3")
	s.says("1", "FILA.RELEASE "+q+" "+receipts[1])
	s.batch("FILA.LEASE " + q + " COUNT 3 SAMEKEY")
	s.says("2", "FILA.ACK "+q+" "+receipts[0]+" "+receipts[2])

	// A key that has begun to gather before a kill goes on when its time has come.
	s.says("OK", "FILA.QUEUE ALTER "+q+" BATCHWAIT 300")
	s.restart()
	s.batch("FILA.LEASE "+q+" COUNT 3 SAMEKEY BLOCK 10000", "t2")
	s.id(q + " u1 KEY u")
	s.batch("FILA.LEASE "+q+" COUNT 3 SAMEKEY BLOCK 10000", "u1")

	dlq := kit.Mapped(s.T, s.run("FILA.QUEUE INFO "+q+".dlq"))
	if fmt.Sprint(dlq["batch"]) != "0" {
		s.Errorf("the dead-letter queue gathers: %v", dlq["batch"])
	}
}

// TestNoBatchIsMixedOrLostUnderKills has producers and workers on a queue that gathers while the broker is killed:
// no lease has two keys or more messages than were asked for, each acknowledged message is delivered, and none waits for ever.
func TestNoBatchIsMixedOrLostUnderKills(t *testing.T) {
	t.Parallel()
	messages, workers, kills := 1_000, 4, 2
	if !testing.Short() {
		messages, workers, kills = 20_000, 8, 8
	}
	b := kit.Serve(t)
	kit.Do(t, kit.Connect(t, b.Addr(), 3), "FILA.QUEUE", "CREATE", "q", "BATCH", 7, "BATCHWAIT", 200, "MAXATTEMPTS", 0)
	var (
		mu      sync.Mutex
		waiting = map[string]bool{} // payloads that were acknowledged, and not delivered since
		seen    = map[string]bool{}
		sent    int
	)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var producers, all sync.WaitGroup
	connect := func(protocol int) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: protocol, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
	}
	for p := range 2 {
		producers.Go(func() {
			c := connect(2 + p)
			defer func() { _ = c.Close() }()
			for i := p; i < messages && ctx.Err() == nil; i += 2 {
				payload := fmt.Sprint(i)
				for ctx.Err() == nil {
					if c.Do(ctx, "FILA.ENQUEUE", "q", payload, "KEY", fmt.Sprint("k", i*i%13), "DEDUP", payload).Err() == nil {
						break
					}
					time.Sleep(5 * time.Millisecond) // the broker is being started
				}
				mu.Lock()
				if sent++; !seen[payload] {
					waiting[payload] = true
				}
				mu.Unlock()
			}
		})
	}
	for w := range workers {
		all.Go(func() {
			c := connect(2 + w%2)
			defer func() { _ = c.Close() }()
			for ctx.Err() == nil {
				ds, err := leased(c.Do(ctx, "FILA.LEASE", "q", "COUNT", 7, "SAMEKEY", "VISIBILITY", 2000, "BLOCK", 100).Val())
				if err != nil || len(ds) == 0 {
					time.Sleep(2 * time.Millisecond)
					continue
				}
				ack := []any{"FILA.ACK", "q"}
				mu.Lock()
				for i := range ds {
					if ds[i].key != ds[0].key || len(ds) > 7 {
						t.Errorf("a lease has %d messages, of the keys %s and %s", len(ds), ds[0].key, ds[i].key)
					}
					seen[ds[i].payload] = true
					delete(waiting, ds[i].payload)
					ack = append(ack, ds[i].receipt)
				}
				mu.Unlock()
				for ctx.Err() == nil && c.Do(ctx, ack...).Err() != nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	for kill := range kills {
		testkit.Eventually(t, "messages are sent", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return sent >= messages*(kill+1)/(kills+1)
		})
		kit.Kill(t, b)
		kit.Start(t, b)
	}
	producers.Wait()
	testkit.Eventually(t, "each message is delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(waiting) == 0
	})
	c := kit.Connect(t, b.Addr(), 3)
	testkit.Eventually(t, "the queue is empty", func() bool {
		m := kit.Mapped(t, kit.Do(t, c, "FILA.STATS", "q"))
		return m["ready"] == int64(0) && m["leased"] == int64(0)
	})
	end()
	all.Wait()
	kit.Kill(t, b)
	wantOutput(t, 0, "everything is in order", "check", b.Data())
}
