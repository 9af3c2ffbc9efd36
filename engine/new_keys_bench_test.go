package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/faisca/fila/engine/figures"
)

// Keys that come and go. Of a million tenants few have a message at a time, so most
// messages create their key and end it.

// pending is how many messages are in flight: 64 connections with 16 each.
const pending = 1024

// newChurn starts an engine whose messages have random keys out of a number of them.
func newChurn(b testing.TB, keys int) *workload {
	b.Helper()
	l := newLoad(b, 0, 0)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	l.pick = func() string { return fmt.Sprintf("tenant-%07d", rng.IntN(keys)) }
	for range pending / turnTasks {
		l.prepare()
		l.enqueue()
	}
	for range 4 * figures.IdleMax / turnTasks { // fills the statistics of idle keys
		l.cycle()
	}
	l.spent = cost{}
	return l
}

// BenchmarkKeysByChanceAgainstTen compares random keys with ten keys; each message is
// enqueued, leased and acked while few others are in flight.
func BenchmarkKeysByChanceAgainstTen(b *testing.B) {
	compare(b, newChurn(b, 10), newChurn(b, 1_000_000))
}

// BenchmarkKeysByChance is one side of it alone, for profiles.
func BenchmarkKeysByChance(b *testing.B) {
	for _, keys := range []int{10, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			l := newChurn(b, keys)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N / turnTasks {
				l.cycle()
			}
			b.ReportMetric(float64((l.spent.enqueue+l.spent.lease+l.spent.ack).Nanoseconds())/float64(b.N), "loop-ns/op")
		})
	}
}

// BenchmarkNewKeys always enqueues to new keys, up to 200,000 at a time.
func BenchmarkNewKeys(b *testing.B) {
	const most = 200_000
	for _, fresh := range []bool{false, true} {
		b.Run(fmt.Sprint(fresh), func(b *testing.B) {
			l := newLoad(b, 0, 0)
			for i := range most {
				l.names = append(l.names, fmt.Sprintf("tenant-%07d", i))
			}
			if !fresh {
				l.names = l.names[:10]
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()
			b.ResetTimer()
			left := most
			for range b.N / turnTasks {
				if left < turnTasks {
					b.StopTimer()
					l.Do(&Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })})
					l.at, left = 0, most
					b.StartTimer()
				}
				left -= turnTasks
				l.now = l.now.Add(50 * time.Microsecond)
				l.prepare()
				l.enqueue()
			}
			b.ReportMetric(float64(l.spent.enqueue.Nanoseconds())/float64(b.N), "loop-ns/op")
		})
	}
}
