package engine

import (
	"bytes"

	"github.com/faisca/fila/storage"
)

// place is where a message stands within its fairness key: by priority first,
// then by enqueue time. It never changes, so a retried message keeps its place.
type place struct {
	rank uint8
	id   ID
}

// lastPlace is behind every message: as an edge it says that nothing of the key
// is on disk only.
var lastPlace = place{rank: 255} //nolint:gochecknoglobals // a constant; Go has none of struct type

func (p place) less(o place) bool {
	if p.rank != o.rank {
		return p.rank < o.rank
	}
	return bytes.Compare(p.id[:], o.id[:]) < 0
}

// next is the smallest place after p.
func (p place) next() place {
	for i := len(p.id) - 1; i >= 0; i-- {
		p.id[i]++
		if p.id[i] != 0 {
			return p
		}
	}
	p.rank++
	return p
}

// status says which structure of the engine's memory holds a message.
type status uint8

const (
	ready   status = iota // in its key's window
	leased                // in core.leases and the lease timers
	delayed               // in core.due
	gone                  // acked, moved or dropped: nothing may hold it any more
)

// message is a message that is in memory: near the head of its key, leased, or
// about to fall due. All others are on disk only.
type message struct {
	place
	status  status
	retried bool // a record in storage.Attempts exists

	// Written once, facts of the record:
	cost    uint32
	key     *fairKey
	limits  *limits // nil: no throttle keys
	expires int64   // when its time to live is over; 0: never

	// attempt is the number of the next or current delivery among those that
	// count: 1 plus the failures so far. deliveries counts every hand-out.
	attempt    uint32
	deliveries uint32
	fence      uint64 // of the newest delivery; 0: none yet
	failure    *failure

	// body is the encoded record, or nil when it has to be read from the store.
	// Only a message that is not leased may hold one, but for unborn ones.
	body  []byte
	batch uint64 // the batch that writes the record: readable once it is committed

	lease
	timer int // index in core.leaseEnd while leased
}

// lease is what is known of a delivery while it lasts.
type lease struct {
	until    int64
	since    int64
	consumer string
	writes   uint8 // puts of the lease record: 0 while the lag elides it
	restored bool  // read from disk at start, see core.bootTime
	judged   bool  // it is over, and the on_failure hook decides what follows
}

// failure is what is kept of a message that failed at least once.
type failure struct {
	text        string
	first, last int64
}

func (m *message) storageKey() storage.MessageKey {
	return storage.MessageKey{Queue: m.key.queue.no, Key: m.key.name, Rank: m.rank, ID: m.id}
}

// fail notes a failed delivery.
func (m *message) fail(now int64, text string) {
	m.attempt++
	if m.failure == nil {
		m.failure = &failure{first: now}
	}
	m.failure.last, m.failure.text = now, text
}
