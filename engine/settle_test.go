package engine

import (
	"testing"
	"time"
)

// TestARestartedBucketGetsNothingBack: a lease from before the restart has taken nothing of the bucket that the restart
// has filled. What it has used beyond its cost is taken all the same.
func TestARestartedBucketGetsNothingBack(t *testing.T) {
	for used, want := range map[int64]float64{10: 50, 60: 50, 100: 10, 300: -190} {
		w := newWorld(t, nil)
		w.throttle("t", ThrottleOptions{Rate: new(1e-9), Burst: new(uint64(100)), ByCost: true})
		w.queue("q", QueueOptions{})
		send := func(cost uint32) { w.send(Enqueue{Queue: "q", Meta: Meta{Throttles: []string{"t"}, Cost: cost}}) }
		send(60)
		first := w.lease("q", 1)[0]
		w.Advance(time.Second) // its record is written
		w.restart()
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
