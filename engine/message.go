package engine

import (
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/internal/failures"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/storage"
)

// status is the structure of the engine's memory that holds a message; it holds each message
// at most once. Memory and the records of the store change in the same turn:
//
//	transition         cause                                  records: + put, - delete
//	new → ready        enqueue, tick, move between queues     +messages (+expiries +dedup)
//	new → delayed      enqueue with a delay                   +messages +scheduled (+expiries +dedup)
//	ready → leased     lease                                  (+leases, after Config.LeaseWriteDelay)
//	delayed → ready    its time has come                      -scheduled
//	leased → ready     release, or a retry without a delay    +attempts (-leases)
//	leased → delayed   nack with a delay or backoff           +attempts +scheduled (-leases)
//	leased → retrying  the same, of an ordered queue     +attempts +leases (-leases)
//	retrying → ready   its time has come                      -leases
//	ready ↔ delayed    reschedule                             +attempts, ±scheduled
//	leased → gone      ack, dead, cancel                      -messages (-leases -attempts -expiries -dedup +results)
//	ready → gone       TTL, cancel, redrive                   -messages (-attempts -expiries -dedup)
//	delayed → gone     TTL, cancel, redrive                   the same, -scheduled
//	any → gone         purge                                  ranges of all families of the queue
//	ready, delayed → gone   eviction from memory              none: the store holds the message
//
// Records in parentheses are written or deleted only if the message has them; of dedup, that is
// the entry of its unique id (unique.go), or on enqueue that of a deduplication id. A body goes with
// the last message that holds it (bodies.go). A message that
// moves to another queue, dead or redriven, is gone from the one and new in the other, in one
// batch. The records tell the status after a restart: leased if there is a lease record,
// else delayed if there is a scheduled record, else ready.
type status uint8

const (
	ready   status = iota // in the window of its key
	leased                // in core.leases
	delayed               // in the head of core.delayed
	gone                  // in no structure: removed from the queue, or only from memory
)

// message is a message in memory: in a window, leased, or due soon. All others are on disk
// only.
type message struct {
	rank     uint8 // 9 - priority
	id       ID
	status   status
	retried  bool  // an attempts record exists
	reserved uint8 // a bit for each of its budgets in which its lease has reserved the charge

	// Fields of the messages record, which is written once:
	cost      uint32
	key       *fairKey
	throttles *throttleSet // throttle set; nil: none
	expires   int64        // end of its time to live in Unix nanoseconds; 0: none

	attempt    uint32 // 1 plus the failures so far
	deliveries uint32 // all deliveries so far, whatever their end
	fence      uint64 // delivery number of the newest delivery; 0: none
	failure    *failures.Failures
	ties       *ties // nil: none
	since      int64 // when it was leased (leaseTime) or, while it is not, when it became ready; in Unix nanoseconds

	// body is the encoded record with payload and headers, or nil if it must be read from the store. A message that is
	// not ready retains it only until the batch that writes the record is committed.
	body  []byte
	batch uint64 // number of the batch that writes the record: readable once it is committed

	lease
	timer int // index in leaseTable.ends while leased, else -1
}

// lease is the state of a delivery; it is zero while the message is not leased. Its record is
// deferred by Config.LeaseWriteDelay, so most leases are never written.
type lease struct {
	until     int64            // end in Unix nanoseconds
	held      *consumers.Lease // in the register of consumers; nil: it is retrying
	writes    uint8            // puts of the lease record, up to 2: one put allows a single delete
	recovered bool             // read from the store by a recovery
	deciding  bool             // it has expired, and the on_failure hook is deciding
	retrying  bool             // no delivery: the message waits for until, and its key with it, see ordered.go
}

// Failure is an attempt of a message that has failed.
type Failure = storage.Failure

// Position returns its place in its key, which never changes.
func (m *message) Position() window.Place { return window.Place{Rank: m.rank, ID: m.id} }

// storageKey returns the key of its records. It changes when the queue is purged.
func (m *message) storageKey() storage.MessageKey {
	return storage.MessageKey{Queue: m.key.queue.no, Key: m.key.name, Rank: m.rank, ID: m.id}
}

// fail counts a failed delivery, and adds it to the list.
func (c *core) fail(m *message, text, cause string, expired bool) {
	m.failure = m.failure.Add(storage.Failure{
		Attempt: m.attempt, Consumer: m.held.Name(), LeasedAt: min(c.leasedAt(m), c.now), At: c.now, Expired: expired, Error: text,
	}, cause)
	m.attempt++
}

// ID is the id of a message.
type ID = storage.ID

// idSource assigns ids. The loop owns it.
type idSource struct {
	last   int64      // nanoseconds of the newest id
	until  int64      // bound of last in the store: a restart continues from it
	rng    *rand.Rand // random bits of ids
	jitter *rand.Rand // shortens backoffs
}

// next returns the id of a message that is enqueued now into a key with the hash. It is
// greater than all earlier ids: if the clock has not advanced, the last time plus one
// nanosecond is used.
func (s *idSource) next(now int64, hash uint32, rank uint8) ID {
	ns := max(now, s.last+1)
	s.last = ns
	return storage.MakeID(ns, hash, rank, s.rng.Uint32())
}

// found returns a message as its records in the store describe it, and finds out whether it is delayed. like is the
// throttle set of the message before, which neighbours usually share.
func found(r *search.Record, store Store, like *throttleSet) (f foundMessage, err error) {
	m := &message{rank: r.Key.Rank, id: r.ID, attempt: 1, body: slices.Clone(r.Value), timer: -1, since: r.Since()}
	meta := &r.Message.Meta
	if !like.has(meta) || like.Charge != meta.Charge {
		like = newThrottleSet(meta)
	}
	m.give(meta, like, r.Message.Dead == nil && !r.Attempt.Freed)
	if a := &r.Attempt; r.Retried {
		m.retried, m.attempt, m.deliveries, m.fence = true, max(a.Attempt, 1), a.Deliveries, a.Fence
		m.noteFirstLease(a.FirstLeasedAt)
		m.failure = failures.Stored(a.Error, a.Cause, a.FirstFailedAt, a.LastFailedAt, a.Failures)
	}
	f = foundMessage{m: m, key: r.Key.Key, readyAt: r.ReadyAt()}
	f.delayed, err = r.Delayed(store)
	return f, err
}

// retainBody retains the body of a ready message if the bound allows it, and otherwise only
// until the store has it.
func (c *core) retainBody(m *message) {
	if m.body != nil && c.heads.bodyBytes > c.heads.retainedBodyBytesMax(&c.cfg) {
		c.releaseBody(m)
	}
}

// releaseBody drops the body of a message as soon as the store has it.
func (c *core) releaseBody(m *message) {
	if m.body == nil {
		return
	}
	if m.batch <= c.out.committed {
		c.heads.dropBody(m)
	} else {
		c.heads.uncommitted = append(c.heads.uncommitted, m)
	}
}

// setBody gives a message its body, which must not be changed afterwards.
func (h *headCache) setBody(m *message, body []byte) {
	m.body = body
	h.bodyBytes += int64(len(body))
}

// dropBody drops the body of a message at once.
func (h *headCache) dropBody(m *message) {
	h.bodyBytes -= int64(len(m.body))
	m.body = nil
}

// forget drops a ready message that has left its window from memory; its records remain.
func (h *headCache) forget(m *message) {
	h.messages--
	h.dropBody(m)
	m.status = gone
}

// held returns how many bytes the fairness keys, the messages and their bodies take in memory, at
// least: what the allocator adds, tables, and what only few of them have is not counted.
func (c *core) held() int64 {
	keys, messages := int64(c.heads.keys), int64(c.heads.messages+len(c.leases.byID))
	return c.heads.bodyBytes + keys*int64(unsafe.Sizeof(fairKey{})) + messages*int64(unsafe.Sizeof(message{}))
}

// writeAttempt writes the attempt record of a message: what changes after its own record,
// which is written once. These are attempts, deliveries, the last delivery number, the
// failure, and the time at which the message is ready (0: now).
func (c *core) writeAttempt(m *message, readyAt int64) {
	rec := storage.Attempt{Attempt: m.attempt, Deliveries: m.deliveries, ReadyAt: readyAt, Fence: m.fence, FirstLeasedAt: m.tied().firstLeased, Freed: m.freed()}
	rec.Error, rec.Cause, rec.FirstFailedAt, rec.LastFailedAt, rec.Failures = m.failure.Parts()
	m.retried = true
	m.key.queue.recordAttempt(m)
	c.out.batch.Put(storage.Attempts, c.messageKey(m), rec.Append(nil))
	m.key.window.Changed(m.Position())
}

// defaultRank is the rank of priority 4, the default.
const defaultRank = storage.PriorityMax - 4

// foundMessage is a message as its records in the store describe it.
type foundMessage struct {
	m       *message // without its key, which the loop sets
	key     string
	readyAt int64 // due time in its records, past or to come; 0: none
	delayed bool  // it waits for readyAt
}

// Header is a name and a value that travel with a message.
type Header = storage.Header
