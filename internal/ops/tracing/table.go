package tracing

import (
	"sync"
	"time"

	"github.com/faisca/fila/engine"
)

// Delivery is a sampled message that a client has leased.
type Delivery struct {
	context       Context
	queue, id     string
	child         bool // of the header's span, in place of a link to it
	ready, leased time.Time
	until         time.Time // end of the lease, as far as is known
	attributes    []pair    // of the span deliver
	client        string    // name of the consumer; "": it has none
}

// receipt names a delivery.
type receipt struct {
	id    engine.ID
	fence uint64
}

// deliveries is the table of the deliveries that have not ended, in shards, so that
// connections rarely wait for each other.
type deliveries struct {
	shards [shardCount]shard
}

const (
	shardCount = 64
	// deliveriesMax bounds the table. Where a shard is full, more deliveries have no spans.
	deliveriesMax = 1 << 16
	// staleAfter is how long after the end of its lease a delivery is given up where there is
	// no room: its end was never reported, as after a purge. No event is so late.
	staleAfter = time.Minute
	// sweepEvery is the least time between two sweeps of a full shard, which go through all of
	// it.
	sweepEvery = time.Second
)

type shard struct {
	mu    sync.Mutex
	live  map[receipt]*Delivery
	swept time.Time // the last sweep
}

// of returns the shard of a message. The last bits of an id are random.
func (t *deliveries) of(id engine.ID) *shard { return &t.shards[id[len(id)-1]%shardCount] }

// put adds a delivery and returns how many have been given up for it: stale ones, or the
// delivery itself if the shard is full.
func (t *deliveries) put(r receipt, d *Delivery, now time.Time) (lost int) {
	s := t.of(r.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live) >= deliveriesMax/shardCount {
		lost = s.sweep(now)
		if len(s.live) >= deliveriesMax/shardCount {
			return lost + 1
		}
	}
	if s.live == nil {
		s.live = map[receipt]*Delivery{}
	}
	s.live[r] = d
	return lost
}

// sweep removes stale deliveries and returns how many.
func (s *shard) sweep(now time.Time) (n int) {
	if now.Sub(s.swept) < sweepEvery {
		return 0
	}
	s.swept = now
	for r, d := range s.live {
		if now.Sub(d.until) > staleAfter {
			delete(s.live, r)
			n++
		}
	}
	return n
}

// take removes a delivery and returns it; nil if it is not in the table.
func (t *deliveries) take(r receipt) *Delivery {
	s := t.of(r.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.live[r]
	if d != nil {
		delete(s.live, r)
	}
	return d
}

// extend sets the end of a lease.
func (t *deliveries) extend(r receipt, until time.Time) {
	s := t.of(r.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.live[r]; d != nil {
		d.until = until
	}
}

// size returns how many deliveries there are.
func (t *deliveries) size() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.live)
		s.mu.Unlock()
	}
	return n
}
