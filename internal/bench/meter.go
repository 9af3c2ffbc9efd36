package bench

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// meter is what the sessions of a round report to. Only what happens while it is
// on counts.
type meter struct {
	epoch time.Time
	on    atomic.Bool
	ended atomic.Bool // sessions finish what they have begun, and stop

	done atomic.Int64 // messages, also while it is off
	last atomic.Int64 // when a reply came last, in ns since epoch
	gap  atomic.Int64 // the longest time without one

	mu   sync.Mutex
	took map[string]*hdrhistogram.Histogram // in µs
}

func newMeter() *meter {
	return &meter{epoch: time.Now(), took: map[string]*hdrhistogram.Histogram{}}
}

// now is the time since the epoch, never 0.
func (m *meter) now() time.Duration { return max(time.Since(m.epoch), 1) }

// start begins to count.
func (m *meter) start() {
	m.last.Store(int64(m.now()))
	m.on.Store(true)
}

// answered tells how long something took that has just ended, and returns the time.
func (m *meter) answered(what string, since time.Duration) time.Duration {
	now := m.now()
	if !m.on.Load() {
		return now
	}
	gap := int64(now) - m.last.Swap(int64(now))
	for {
		longest := m.gap.Load()
		if gap <= longest || m.gap.CompareAndSwap(longest, gap) {
			break
		}
	}
	m.record(what, now-since)
	return now
}

// histogramMax is the longest that is told apart.
const histogramMax = 10 * time.Minute

func (m *meter) record(what string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.took[what]
	if h == nil {
		h = hdrhistogram.New(1, histogramMax.Microseconds(), 3)
		m.took[what] = h
	}
	// Too long is as long as can be told: no value is lost.
	_ = h.RecordValue(min(max(took, time.Microsecond), histogramMax).Microseconds())
}

// Latency is how long something took, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

func (m *meter) latencies() map[string]Latency {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]Latency{}
	for what, h := range m.took {
		at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
		all[what] = Latency{
			Count: h.TotalCount(), Mean: h.Mean() / 1000,
			P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000,
		}
	}
	return all
}
