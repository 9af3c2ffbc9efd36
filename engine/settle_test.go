package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// TestARestartedBucketGetsNothingBack: a lease from before the restart has taken nothing of the bucket that the restart
// has filled. What it has used beyond its cost is taken all the same.
func TestARestartedBucketGetsNothingBack(t *testing.T) {
	for used, want := range map[int64]float64{10: 50, 60: 50, 100: 10, 300: -190} {
		w := newWorld(t, func(c *Config) { c.LeaseWriteDelay = 0 })
		w.throttle("t", ThrottleOptions{Rate: new(1e-9), Burst: new(uint64(100)), ByCost: true})
		w.queue("q", QueueOptions{})
		send := func(cost uint32) { w.send(Enqueue{Queue: "q", Meta: Meta{Throttles: []string{"t"}, Cost: cost}}) }
		send(60)
		start := w.Now()
		w.Advance(50 * time.Millisecond) // less than the time between two records of it
		first := w.lease("q", 1)[0]
		s, err := NewStepper(w.core.cfg, w.store.(*storage.Memory).Clone(), start.Add(time.Second)) // the newest time in the store is before the lease
		if err != nil {
			t.Fatal(err)
		}
		*w.Stepper = *s
		send(50)
		w.lease("q", 1)
		w.must(func(tx *Tx) error {
			_, err := tx.AckWith("q", []Receipt{first.Receipt}, AckOptions{Used: &used})
			return err
		})
		if i, _ := w.core.order.Throttle("t"); i.Tokens < want-0.01 || i.Tokens > want+0.01 {
			t.Errorf("used %d: %f tokens, want %f", used, i.Tokens, want)
		}
	}
}
