package integration_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/broker"
)

// latencies sends messages through a queue, one at a time, and returns how long each
// took from its enqueue to its ack, in order.
func latencies(t *testing.T, c *redis.Client, queue string, length time.Duration) []time.Duration {
	t.Helper()
	var all []time.Duration
	for end := time.Now().Add(length); time.Now().Before(end); {
		start := time.Now()
		do(t, c, "FILA.ENQUEUE", queue, "x", "HEADER", "tenant", "acme")
		d := one(t, c, queue)
		do(t, c, "FILA.ACK", queue, d.receipt)
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all
}

// besieged runs the attack corpus in a queue until the context ends: a script after
// another is loaded, so that no breaker stays open, while clients enqueue.
func besieged(ctx context.Context, t *testing.T, b *broker.Broker, queue string, clients int) *sync.WaitGroup {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "scripting", "testdata", "attacks", "*.lua"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d attacks, %v", len(files), err)
	}
	sources := make([]string, len(files))
	for i, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources[i] = string(text)
	}
	admin := connect(t, b.Addr(), 3)
	do(t, admin, "FILA.QUEUE", "CREATE", queue)
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			// Some are refused, as they have to be.
			_ = admin.Do(ctx, "FILA.SCRIPT", "LOAD", queue, "ON_ENQUEUE", sources[i%len(sources)]).Err()
			time.Sleep(10 * time.Millisecond)
		}
	})
	for range clients {
		c := connect(t, b.Addr(), 3)
		group.Go(func() {
			for ctx.Err() == nil {
				err := c.Do(ctx, "FILA.ENQUEUE", queue, "x", "HEADER", "tenant", "mallory").Err()
				if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
					t.Errorf("an enqueue with a hostile script failed: %v", err)
					return
				}
			}
		})
	}
	return &group
}

// TestHostileScriptsCostTheirOwnQueue: while scripts of one queue do what they can to
// take all of the processor, another queue, with a script of its own, is served.
func TestHostileScriptsCostTheirOwnQueue(t *testing.T) {
	b := serve(t)
	c := connect(t, b.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "quiet")
	source, err := os.ReadFile(filepath.Join("testdata", "tenants.lua"))
	if err != nil {
		t.Fatal(err)
	}
	do(t, c, "FILA.SCRIPT", "LOAD", "quiet", "ON_ENQUEUE", string(source))
	const length = 2 * time.Second
	alone := latencies(t, c, "quiet", length)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	group := besieged(ctx, t, b, "loud", 3)
	attacked := latencies(t, c, "quiet", length)
	cancel()
	group.Wait()
	at := func(list []time.Duration, percent int) time.Duration { return list[len(list)*percent/100] }
	t.Logf("enqueue, lease and ack alone: %d, p50 %v, p99 %v; beside attacks: %d, p50 %v, p99 %v",
		len(alone), at(alone, 50), at(alone, 99), len(attacked), at(attacked, 50), at(attacked, 99))
	// A machine that is busy otherwise adds to both.
	if most := 20*at(alone, 99) + 200*time.Millisecond; at(attacked, 99) > most {
		t.Errorf("p99 is %v while another queue's scripts attack, and %v alone", at(attacked, 99), at(alone, 99))
	}
	if errs, _ := c.Do(t.Context(), "FILA.SCRIPT", "STATS", "quiet").Result(); mapped(t, errs.([]any)[0])["errors"] != int64(0) {
		t.Errorf("the quiet queue's script has suffered: %v", errs)
	}
}
