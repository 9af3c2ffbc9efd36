package metrics

import (
	"sync"
	"time"

	"github.com/faisca/fila/internal/histogram"
)

// Server is what commands and connections have counted since the start of the broker.
type Server struct {
	Commands []Command         // those that were called
	Errors   map[string]uint64 // error replies by code

	Connections, ConnectionsLimit, Subscriptions int64
	Accepted, Rejected, BytesIn, BytesOut        uint64
	AuthFailures                                 uint64
	Denials                                      map[string]uint64 // by reason
	StoreBytes, StoreFree                        uint64            // both 0: not known
	Turns, Commits                               histogram.Histogram
	Node                                         bool   // of a cluster
	Forwarded                                    uint64 // commands that were passed on to the leader
}

// Command is the figures of one command.
type Command struct {
	Name                   string
	Took                   *histogram.Histogram // of the calls, also of those that failed
	Failed, Rejected, Slow uint64
}

// Process is what the parts that only the broker knows have to show. Each field may be nil.
type Process struct {
	Version, Revision, RocksDB, Go string
	Loop                           func() Loop
	Store                          func() (Store, bool)        // false: they are not known
	Certificates                   func() map[string]time.Time // their ends by listener
	Spans                          func() map[string]uint64    // by outcome
	Replication                    func() Replication
}

// Loop is the figures of the loop that runs the engine.
type Loop struct {
	InboxTasks, InboxBytes int
	EventsLost             uint64
	BatchTasks             histogram.Histogram // tasks of each commit: n of them count as n seconds
}

// Store is the figures of RocksDB.
type Store struct {
	MemtableBytes, CacheBytes, PendingBytes, WALBytes uint64
	LevelFiles                                        []uint64 // by level
	Stopped                                           bool
	CacheHits, CacheMisses                            uint64
	Stalled                                           time.Duration
}

func (s *Server) write(f *families) {
	for i := range s.Commands {
		c := &s.Commands[i]
		l := label(labelCommand, c.Name)
		f.observed(commandDuration, c.Took, l)
		f.count(commandFailures, c.Failed, l)
		f.count(commandRejections, c.Rejected, l)
		f.count(slowCommands, c.Slow, l)
	}
	f.by(errorReplies, labelCode, s.Errors)
	f.number(connections, s.Connections, nil)
	f.number(connectionsLimit, s.ConnectionsLimit, nil)
	f.number(subscriptions, s.Subscriptions, nil)
	f.count(connectionsAccepted, s.Accepted, nil)
	f.count(connectionsRejected, s.Rejected, nil)
	f.count(receivedBytes, s.BytesIn, nil)
	f.count(sentBytes, s.BytesOut, nil)
	f.count(authFailures, s.AuthFailures, nil)
	f.by(aclDenials, labelReason, s.Denials)
	f.observed(engineTurn, &s.Turns, nil)
	f.observed(engineCommit, &s.Commits, nil)
	if s.Node {
		f.count(clusterForwarded, s.Forwarded, nil)
	}
	if s.StoreBytes > 0 {
		f.count(storeBytes, s.StoreBytes, nil)
		f.count(storeFree, s.StoreFree, nil)
	}
}

func (p *Process) write(f *families) {
	f.value(buildInfo, 1, label("version", p.Version).with("revision", p.Revision).with("rocksdb", p.RocksDB).with("goversion", p.Go))
	if p.Certificates != nil {
		for listener, end := range p.Certificates() {
			f.value(certificateExpiry, float64(end.Unix()), label(labelListener, listener))
		}
	}
	if p.Spans != nil {
		f.by(tracingSpans, labelOutcome, p.Spans())
	}
	if p.Replication != nil {
		r := p.Replication()
		r.write(f)
	}
	if p.Loop != nil {
		l := p.Loop()
		f.number(engineInboxTasks, int64(l.InboxTasks), nil)
		f.number(engineInboxBytes, int64(l.InboxBytes), nil)
		f.count(eventsLost, l.EventsLost, nil)
		f.observed(engineBatchTasks, &l.BatchTasks, nil)
	}
}

// storeCounters are the counters of RocksDB, which begin at 0 whenever the store is reopened.
type storeCounters struct {
	mu                    sync.Mutex
	hits, misses, stalled counter
}

// write writes the series of the store.
func (c *storeCounters) write(f *families, read func() (Store, bool)) {
	if read == nil {
		return
	}
	c.mu.Lock() // figures are taken over in the order in which they are read
	defer c.mu.Unlock()
	s, ok := read()
	if !ok {
		return
	}
	s.CacheHits, s.CacheMisses = c.hits.see(s.CacheHits), c.misses.see(s.CacheMisses)
	s.Stalled = time.Duration(c.stalled.see(uint64(max(s.Stalled, 0))))
	s.write(f)
}
