package metrics

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/yield"
)

// Config is the bounds of a Collector and what it has to show beside the engine's figures.
type Config struct {
	Queues    int // queues with series by name; 0: none
	Keys      int // fairness keys with series, of each queue; 0: none
	Throttles int // throttles and patterns with series, and as many throttles of patterns; 0: none
	Budgets   int // budgets with series; 0: none

	Now     func() time.Time // the clock by which a scrape is timed
	Process Process
}

// Collector makes the metrics of a broker. Its Scrapes may be made and written by any
// goroutine; they are applied by the engine's loop.
type Collector struct {
	cfg     Config
	table   [idCount]*Metric
	runtime *prometheus.Registry // go_… and process_…

	// Of the loop:
	queues    queues
	throttles places // of settings and patterns
	instances places // of throttles of patterns
	budgets   places
	current   *reading // under way or the last one; nil: there was none

	scripts scripts
	stored  storeCounters
	bytes   atomic.Int64 // of the last answer
}

// New returns a collector that has seen nothing.
func New(cfg Config) *Collector {
	c := &Collector{cfg: cfg, table: table(), runtime: prometheus.NewRegistry()}
	c.runtime.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.queues = queues{most: cfg.Queues, named: map[string]*namedQueue{}, keyRoom: keysTotal}
	return c
}

// Scrape is one answer. Apply collects the engine's figures, over several turns; Write makes
// the text of them. Scrapes that come while one collects share what it finds.
type Scrape struct {
	collector *Collector
	reading   *reading
	began     time.Time
}

// Scrape begins an answer.
func (c *Collector) Scrape() *Scrape { return &Scrape{collector: c, began: c.cfg.Now()} }

// Apply implements engine.Call. It returns engine.ErrWouldBlock until all figures are there, and
// is refused in a transaction, as other clients must be served meanwhile.
func (s *Scrape) Apply(tx *engine.Tx) error {
	if s.reading == nil {
		s.reading = s.collector.join(tx.Now())
	}
	return s.reading.advance(tx)
}

// join returns the reading under way, or begins one.
func (c *Collector) join(now time.Time) *reading {
	if r := c.current; r == nil || r.done || now.Sub(r.advanced) > abandonedAfter {
		c.queues.round++
		c.current = &reading{collector: c, advanced: now}
		c.current.request = engine.Figures{Count: engine.FiguresAll, Durations: true, Sum: c.queues.choice()}
	}
	return c.current
}

// Rights are what a user sees.
type Rights struct {
	Queue              func(queue string) bool // nil: all, and the sum of those without series of their own
	Throttles, Budgets bool
}

// Write returns the text of the answer in a format. server is what connections and commands
// show. rights are those of the user; nil: it has all of them. Apply has
// returned nil before, or was not called, as this process has no engine: then its figures are left out.
func (s *Scrape) Write(format Format, server *Server, rights *Rights) ([]byte, error) {
	c := s.collector
	var breaks yield.Breaks
	defer breaks.End()
	f := &families{table: &c.table, native: format == Protobuf, breaks: &breaks}
	if s.reading != nil {
		if rights == nil {
			rights = &Rights{Throttles: true, Budgets: true}
		}
		s.reading.write(f, rights)
	}
	server.write(f)
	c.cfg.Process.write(f)
	c.stored.write(f, c.cfg.Process.Store)
	f.value(scrapeSeconds, max(c.cfg.Now().Sub(s.began), 0).Seconds(), nil)
	others, err := c.runtime.Gather()
	if err != nil {
		return nil, fmt.Errorf("metrics of the process: %w", err)
	}
	text, err := encode(append(f.all(), others...), format, &breaks)
	c.bytes.Store(int64(len(text)))
	return text, err
}

// Bytes returns the size of the last answer, 0 before the first.
func (c *Collector) Bytes() int { return int(c.bytes.Load()) }
