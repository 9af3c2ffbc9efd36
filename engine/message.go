package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"

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
	cost      uint32
	key       *fairKey
	throttles *throttleSet // nil: no throttle keys
	expires   int64        // when its time to live is over; 0: never

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

// ID names a message for as long as Fila exists: a UUIDv7 whose free bits are
// put to use, so that an id alone leads to its record without an index of ids.
//
//	48 bits  Unix milliseconds of the enqueue        (RFC 9562)
//	 4 bits  version 7
//	12 bits  upper bits of the nanoseconds within the millisecond
//	 2 bits  variant
//	 8 bits  lower bits of the same
//	22 bits  hash of the fairness key
//	 4 bits  rank (9 - priority)
//	28 bits  random
//
// The nanoseconds are strictly increasing in an engine and across its restarts,
// so ids sort by enqueue order and none is given out twice.
type ID = storage.ID

// idSource makes ids. It is not safe for concurrent use: the loop owns it.
type idSource struct {
	last  int64 // nanoseconds of the newest id
	until int64 // bound of what may be used, on disk: a restart goes on from there
	rng   *rand.Rand
	// jitter is the chance that shortens pauses before retries.
	jitter *rand.Rand
}

// next returns the id of a message that is enqueued now, into a key with the hash, and never one that is
// not larger than all before it: if the clock stands still or goes back, the
// last time plus one nanosecond is used.
func (s *idSource) next(now int64, hash uint32, rank uint8) ID {
	ns := max(now, s.last+1)
	s.last = ns
	ms, sub := uint64(ns/1e6), uint64(ns%1e6) //nolint:gosec // times are after 1970
	var id ID
	binary.BigEndian.PutUint64(id[:8], ms<<16|0x7000|sub>>8)
	low := uint64(2)<<62 | (sub&0xff)<<54 | uint64(hash)<<32 | uint64(rank&15)<<28 | uint64(s.rng.Uint32()>>4)
	binary.BigEndian.PutUint64(id[8:], low)
	return id
}

// idNanos returns the Unix nanoseconds at which the message was enqueued.
func idNanos(id ID) int64 {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	return int64(hi>>16)*1e6 + int64(hi&0xfff<<8|lo>>54&0xff) //nolint:gosec // 48 bits of milliseconds
}

// idKeyHash returns the hash of the message's fairness key, see keyHash.
func idKeyHash(id ID) uint32 {
	return uint32(binary.BigEndian.Uint64(id[8:]) >> 32 & (1<<foldBits - 1))
}

// idRank returns the message's rank.
func idRank(id ID) uint8 { return id[12] >> 4 }

func idTime(id ID) time.Time { return time.Unix(0, idNanos(id)) }

// foldBits is how many bits of an id are the hash of its key.
const foldBits = 22

// keyHash is FNV-1a folded to 22 bits. It is part of the format: ids on disk hold it.
func keyHash(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return (h>>foldBits ^ h) & (1<<foldBits - 1)
}

// ParseID reads the text form of a message id; anything else is ErrBadReceipt.
func ParseID(b []byte) (ID, error) {
	// uuid also takes braces, urn: and a form without dashes: one id, one text.
	if len(b) != 36 {
		return ID{}, fmt.Errorf("%w: %.80q", ErrBadReceipt, b)
	}
	u, err := uuid.ParseBytes(b)
	if err != nil {
		return ID{}, fmt.Errorf("%w: %.80q", ErrBadReceipt, b)
	}
	return ID(u), nil
}

// Receipt stands for one delivery of a message. Once that delivery's lease is
// over, the receipt changes nothing any more.
type Receipt struct {
	ID ID
	// Fence is the number of the delivery. It grows with each delivery of the
	// message and jumps with each start of the broker, see core.fenceBase.
	Fence uint64
	// Bare says that only a message id was given: it means whoever holds the
	// lease now and is meant for operators.
	Bare bool
}

// ParseReceipt reads "<message id>:<delivery number>", or a bare message id.
// Anything else is ErrBadReceipt.
func ParseReceipt(b []byte) (Receipt, error) {
	text, number, fenced := bytes.Cut(b, []byte{':'})
	id, err := ParseID(text)
	if err != nil {
		return Receipt{}, fmt.Errorf("%w: %.80q", ErrBadReceipt, b)
	}
	if !fenced {
		return Receipt{ID: id, Bare: true}, nil
	}
	fence, ok := parseFence(number)
	if !ok {
		return Receipt{}, fmt.Errorf("%w: %.80q", ErrBadReceipt, b)
	}
	return Receipt{ID: id, Fence: fence}, nil
}

// parseFence takes what Append writes and nothing else: no sign, no leading zero.
func parseFence(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '0' || b[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}

// Append adds the text form to dst.
func (r Receipt) Append(dst []byte) []byte {
	dst = AppendID(dst, r.ID)
	if r.Bare {
		return dst
	}
	return strconv.AppendUint(append(dst, ':'), r.Fence, 10)
}

func (r Receipt) String() string { return string(r.Append(nil)) }

// AppendID adds the text form of a message id to dst.
func AppendID(dst []byte, id ID) []byte {
	dst, _ = id.AppendText(dst) // it has no way to fail
	return dst
}
