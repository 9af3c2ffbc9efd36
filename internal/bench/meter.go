package bench

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// meter collects the measurements of a round's sessions. It counts only while it is on.
type meter struct {
	epoch time.Time
	on    atomic.Bool
	ended atomic.Bool // sessions complete their current batch and stop

	done atomic.Int64 // messages, including those while it is off
	last atomic.Int64 // time of the last reply, in ns since epoch
	gap  atomic.Int64 // longest time without a reply

	mu   sync.Mutex
	took map[string]*hdrhistogram.Histogram // in µs
}

func newMeter() *meter {
	return &meter{epoch: time.Now(), took: map[string]*hdrhistogram.Histogram{}}
}

// now is the time since the epoch, never 0.
func (m *meter) now() time.Duration { return max(time.Since(m.epoch), 1) }

// start turns the meter on.
func (m *meter) start() {
	m.last.Store(int64(m.now()))
	m.on.Store(true)
}

// answered records the duration of an operation that has just ended, and returns the current time.
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

// histogramMax is the greatest duration that the histograms distinguish.
const histogramMax = 10 * time.Minute

func (m *meter) record(what string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.took[what]
	if h == nil {
		h = hdrhistogram.New(1, histogramMax.Microseconds(), 3)
		m.took[what] = h
	}
	// Longer durations count as the greatest one, so that no value is lost.
	_ = h.RecordValue(min(max(took, time.Microsecond), histogramMax).Microseconds())
}

// Latency is a distribution of durations, in milliseconds.
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
