package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/faisca/fila/engine/dispatch"
)

// The work of a delivery is the number of keys that it moves in the calendar. It does not
// depend on the number of keys or on the costs of messages.
func TestADeliveryMovesFewKeysWhateverMessagesCost(t *testing.T) {
	const deliveries = 200
	n := 20_000
	if testing.Short() {
		n = 3000
	}
	depth := 1 // of the calendar's heap
	for nodes := n; nodes > 1; nodes /= dispatch.HeapWidth {
		depth++
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	for name, of := range map[string]struct {
		cost  func() uint32
		moved int
	}{
		"one":             {func() uint32 { return 1 }, 6},
		"the greatest":    {func() uint32 { return 1_000_000 }, 2*depth + 6},
		"up to ten":       {func() uint32 { return 1 + rng.Uint32N(10) }, 2*depth + 6},
		"up to a million": {func() uint32 { return 1 + rng.Uint32N(1_000_000) }, 2*depth + 6},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{NoDLQ: true})
			tasks := make([]*Task, 2*n)
			for i := range tasks {
				req := &Enqueue{Queue: "q", Key: fmt.Sprintf("k%d", i%n), Payload: []byte("m"), Meta: Meta{Cost: of.cost()}}
				if err := w.Prepare(req); err != nil {
					t.Fatal(err)
				}
				tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}
			}
			w.Do(tasks...)
			keys := map[*fairKey]dispatch.Standing{}
			for k := range w.core.queues.byName["q"].roster.All() {
				keys[k] = w.core.order.Inside().Standing(&k.Key)
			}
			all, most := 0, 0
			for range deliveries {
				if len(w.lease("q", 1)) != 1 {
					t.Fatal("there is no message")
				}
				moved := 0
				for k, before := range keys {
					if now := w.core.order.Inside().Standing(&k.Key); now != before {
						moved++
						keys[k] = now
					}
				}
				all, most = all+moved, max(most, moved)
			}
			if all == 0 || most > of.moved {
				t.Errorf("a delivery among %d keys moves up to %d of them, %d in all, want at most %d each", n, most, all, of.moved)
			}
		})
	}
}
