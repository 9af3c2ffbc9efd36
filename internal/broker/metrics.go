package broker

import (
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/internal/ops/metrics"
	"github.com/faisca/fila/storage/rocks"
)

// metrics returns the collector of the broker's metrics.
func (b *broker) metrics() *metrics.Collector {
	m := b.cfg.Metrics
	process := metrics.Process{
		Version: cli.Version(), Revision: cli.Commit(), RocksDB: rocks.Version(), Go: runtime.Version(),
		Loop: b.loopFigures, Certificates: b.certificateEnds,
	}
	if b.tracer != nil {
		process.Spans = func() map[string]uint64 {
			n := b.tracer.Counts()
			return map[string]uint64{"exported": n.Exported, "dropped": n.Dropped, "failed": n.Failed}
		}
	}
	if b.member != nil {
		process.Replication = b.member.figures
	}
	if b.measured != nil {
		process.Store = (&storeFigures{store: b.measured}).read
	}
	return metrics.New(metrics.Config{Queues: m.Queues, Keys: m.Keys, Throttles: m.Throttles, Budgets: m.Budgets, Now: time.Now, Process: process})
}

// loopFigures returns the figures of the engine; zero if a node has not led yet.
func (b *broker) loopFigures() (l metrics.Loop) {
	if e := b.newest(); e != nil {
		l = metrics.Loop(e.Figures())
	}
	return l
}

// metricsFormat returns the format that a scraper asks for, as FILA.METRICS calls it, and its
// content type.
func metricsFormat(h http.Header) (format, contentType string) {
	f, contentType := metrics.Negotiate(h)
	return string(f), contentType
}

// certificateEnds returns when the certificates of the listeners end.
func (b *broker) certificateEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	for listener, c := range b.certificates {
		if c == nil || c.GetConfigForClient == nil {
			continue
		}
		if now, err := c.GetConfigForClient(nil); err == nil && now != nil {
			ends[listener] = now.Certificates[0].Leaf.NotAfter
		}
	}
	return ends
}

// storeFiguresWait is how long a scrape waits for the figures of the store.
const storeFiguresWait = 100 * time.Millisecond

// storeFigures reads the figures of the store on a goroutine of its own: while the store is
// reopened, or its disk does not answer, a scrape shows the last ones.
type storeFigures struct {
	store measured

	mu      sync.Mutex
	reading chan struct{} // closed when the read under way has ended; nil: none is
	last    metrics.Store
	known   bool
}

// read returns the figures, and whether any are known.
func (s *storeFigures) read() (metrics.Store, bool) {
	s.mu.Lock()
	if s.reading == nil {
		s.reading = make(chan struct{})
		go s.refresh(s.reading)
	}
	reading := s.reading
	s.mu.Unlock()
	select {
	case <-reading:
	case <-time.After(storeFiguresWait):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.known
}

func (s *storeFigures) refresh(done chan struct{}) {
	st, err := s.store.Stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = nil
	close(done)
	if err != nil {
		return // it is being closed
	}
	s.known = true
	s.last = metrics.Store{
		MemtableBytes: st.MemtableBytes, CacheBytes: st.CacheBytes, PendingBytes: st.PendingCompactBytes, WALBytes: st.LogBytes,
		LevelFiles: st.LevelFiles[:], Stopped: st.WriteStopped, CacheHits: st.CacheHits, CacheMisses: st.CacheMisses, Stalled: st.Stalled,
	}
}
