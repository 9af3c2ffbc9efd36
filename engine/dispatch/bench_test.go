package dispatch

import (
	"fmt"
	"testing"
)

// idleHost has room for everything, and knows no budgets.
type idleHost struct{}

func (idleHost) Room() bool           { return true }
func (idleHost) Spend(int)            {}
func (idleHost) Announce(*Queue)      {}
func (idleHost) Budget(string) Budget { return nil }

// BenchmarkTokenBucket measures one check of a throttle, and one token consumed, among a
// thousand throttles.
func BenchmarkTokenBucket(b *testing.B) {
	o := New(Config{Quantum: 1}, idleHost{})
	q := o.NewQueue("q")
	keys := make([]Key, 1000)
	for i := range keys {
		name := fmt.Sprint("throttle-", i)
		o.SetThrottle(name, Limits{Rate: 1e9, Burst: 1e9})
		keys[i].Number(uint64(i) + 1)
		q.Set(&keys[i], Head{State: Ready, Weight: 1, Cost: 1, Set: &Set{Names: []string{name}}})
	}
	i, now := 0, int64(0)
	for b.Loop() {
		now++
		o.Advance(now)
		k := &keys[i%len(keys)]
		i++
		if len(o.Blockers(k, k.set, 1)) > 0 {
			b.Fatal("it is full")
		}
		o.consume(k)
	}
}
