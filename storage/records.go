package storage

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faisca/fila/internal/queueset"
)

// This file defines the records: the values of the families, in the wire format of
// protobuf, encoded without generated code and described by fila.proto. A field of a
// record is a field of its struct, a line of its method fields, and a line of fila.proto.
//
// Decode replaces the whole record. Its byte slices alias the input, strings are copies.
// It returns ErrCorrupt for invalid input and leaves an empty record then. Times are
// nanoseconds since 1970; 0 means none.

// Header is one header of a message.
type Header struct {
	Name, Value []byte
}

// Message is a message as enqueued. It is written once, which makes SingleDelete valid for it, unless
// Meta.Rewritten says that it has taken the place of another. Its key holds queue, fairness key,
// priority and id.
type Message struct {
	Payload []byte
	Headers []Header
	Meta
	ReadyAt int64 // 0: immediately
	Dead    *Dead // of a message in a dead-letter queue, else nil
}

// Numbers of fields that are found or added without decoding the record.
const (
	messagePayload   = 1
	messageHeaders   = 2
	messageReadyAt   = 6
	messageExpiresAt = 7
	messageBody      = 12
	messageRewritten = messageLater + laterRewritten
	messageMember    = messageLater + laterMember
)

// Dead records where and why a message died.
type Dead struct {
	Queue                       string // where it died, by name
	Reason, Error               string
	Cause                       string // that was named; "": the error says it
	DiedAt                      int64
	Attempts, Deliveries        uint32
	FirstFailedAt, LastFailedAt int64
}

// Attempt is the state of a message that failed or was released. Its key is the message
// key.
type Attempt struct {
	Attempt, Deliveries         uint32
	ReadyAt                     int64
	Error                       string
	FirstFailedAt, LastFailedAt int64
	Fence                       uint64 // newest delivery number
	FirstLeasedAt               int64  // 0: not known, or its queue does not keep what is done
	Failures                    []Failure
	Freed                       bool   // the message has had its unique id until its lease, and does not own it any more
	Cause                       string // that was named; "": the error says it
}

// Failure is an attempt of a message that has failed.
type Failure struct {
	Attempt  uint32 // its number, from 1; a redrive and a death begin again
	Consumer string
	LeasedAt int64
	At       int64 // when it ended
	Expired  bool  // its lease has expired, else it was nacked
	Error    string
}

// leaseFailures is the number of the failures in a Lease: behind its own fields, and before the later ones of Meta.
const leaseFailures = 29

// Lease is a live lease of a message. Its Meta is that of the message, without the weight.
type Lease struct {
	Meta
	Until                       int64
	Consumer                    string
	Attempt, Deliveries         uint32
	LeasedAt                    int64
	FirstFailedAt, LastFailedAt int64
	Error                       string // of the previous attempt
	Retried                     bool   // an Attempt record of the message exists
	Retrying                    bool   // no delivery: the message waits for Until, and its key with it
	FirstLeasedAt               int64  // of an earlier delivery; 0: this is the first, or it is not known
	Failures                    []Failure
	Cause                       string // of the previous attempt
}

// Queue is the settings of a queue. Its key is the queue's name; all other keys contain
// the number instead, which is never reused.
type Queue struct {
	Number               uint32
	Values               queueset.Values // the numeric settings
	DLQ                  string
	DeadLetter           bool // it was created as a dead-letter queue
	PausedIn, PausedOut  bool
	CreatedAt            int64
	OnEnqueue, OnFailure string // source of the hooks
}

// Append appends the encoded record.
func (m *Message) Append(dst []byte) []byte {
	c := codec{buf: slices.Grow(dst, m.sizeMax())}
	m.fields(&c)
	return c.buf
}

// Upper bounds of the bytes of a field: of the tag and the length of a text, of a tag and a number.
const (
	fieldMax  = 6
	numberMax = 11
)

// sizeMax returns an upper bound of the bytes that Append appends, so that one allocation
// suffices. A field that it forgets costs another one and nothing else. It counts what the message has and no more: its
// record stays in memory until it is delivered.
func (m *Message) sizeMax() int {
	n := fieldMax + len(m.Payload) + m.Meta.sizeMax()
	if m.ReadyAt != 0 {
		n += numberMax
	}
	for _, h := range m.Headers {
		n += 3*fieldMax + len(h.Name) + len(h.Value)
	}
	if d := m.Dead; d != nil {
		n += 4*fieldMax + len(d.Queue) + len(d.Reason) + len(d.Error) + fieldMax + len(d.Cause) + 5*numberMax
	}
	return n
}

// Decode reads a record that Append made.
func (m *Message) Decode(b []byte) error { return m.DecodeLike(b, &Meta{}) }

// DecodeLike is Decode for one of many similar messages: throttle keys and budgets that equal
// those of another are taken from there, and the slices themselves if all do, without allocations. The other one may be
// that of m before.
func (m *Message) DecodeLike(b []byte, like *Meta) error {
	c := codec{throttles: like.Throttles, budgets: like.Budgets}
	*m = Message{}
	for c.decode(b); c.pass(); {
		m.fields(&c)
	}
	if c.err != nil {
		*m = Message{}
		return fmt.Errorf("message record: %w", c.err)
	}
	return nil
}

func (h *Header) fields(c *codec) {
	c.bytes(1, &h.Name)
	c.bytes(2, &h.Value)
}

func (d *Dead) fields(c *codec) {
	c.string(1, &d.Queue)
	c.string(2, &d.Reason)
	c.string(3, &d.Error)
	c.int64(4, &d.DiedAt)
	c.uint32(5, &d.Attempts)
	c.uint32(6, &d.Deliveries)
	c.int64(7, &d.FirstFailedAt)
	c.int64(8, &d.LastFailedAt)
	c.string(9, &d.Cause)
}

// Append appends the encoded record.
func (a *Attempt) Append(dst []byte) []byte { return encode(dst, a) }

// Decode reads a record that Append made.
func (a *Attempt) Decode(b []byte) error {
	*a = Attempt{}
	var c codec
	for c.decode(b); c.pass(); {
		a.fields(&c)
	}
	if c.err != nil {
		*a = Attempt{}
		return fmt.Errorf("attempt record: %w", c.err)
	}
	return nil
}

func (a *Attempt) fields(c *codec) {
	c.uint32(1, &a.Attempt)
	c.uint32(2, &a.Deliveries)
	c.int64(3, &a.ReadyAt)
	c.string(4, &a.Error)
	c.int64(5, &a.FirstFailedAt)
	c.int64(6, &a.LastFailedAt)
	c.uint64(7, &a.Fence)
	c.int64(8, &a.FirstLeasedAt)
	c.failures(9, &a.Failures)
	c.bool(10, &a.Freed)
	c.string(11, &a.Cause)
}

func (f *Failure) fields(c *codec) {
	c.uint32(1, &f.Attempt)
	c.string(2, &f.Consumer)
	c.int64(3, &f.LeasedAt)
	c.int64(4, &f.At)
	c.bool(5, &f.Expired)
	c.string(6, &f.Error)
}

// Append appends the encoded record.
func (l *Lease) Append(dst []byte) []byte { return encode(dst, l) }

// Decode reads a record that Append made.
func (l *Lease) Decode(b []byte) error { return decode(b, l, Lease{}, "lease", nil) }

// Append appends the encoded record.
func (q *Queue) Append(dst []byte) []byte { return encode(dst, q) }

// Decode reads a record that Append made.
func (q *Queue) Decode(b []byte) error {
	var fresh Queue
	for s, row := range queueset.All() {
		if row.Omitted() {
			fresh.Values[s] = row.Default
		}
	}
	return decode(b, q, fresh, "queue", nil)
}

func (q *Queue) fields(c *codec) {
	c.uint32(1, &q.Number)
	c.settings(&q.Values, false)
	c.string(10, &q.DLQ)
	c.bool(11, &q.DeadLetter)
	c.bool(12, &q.PausedIn)
	c.bool(13, &q.PausedOut)
	c.int64(14, &q.CreatedAt)
	c.string(15, &q.OnEnqueue)
	c.string(16, &q.OnFailure)
	c.settings(&q.Values, true)
}

// settings is the fields of the settings, in the order of their numbers: those of the first
// release, or those that were added.
func (c *codec) settings(v *queueset.Values, added bool) {
	rows := queueset.Rows()
	for _, s := range queueset.ByRecord() {
		row := &rows[s]
		switch num := protowire.Number(row.Record); {
		case row.Added() != added:
		case row.Omitted():
			next := row.ToRecord(v[s])
			c.uint64(num, &next)
			v[s] = row.FromRecord(next)
		case row.Max > math.MaxUint32:
			c.uint64(num, &v[s])
		default: // a uint32 in fila.proto: more is refused
			small := uint32(v[s])
			c.uint32(num, &small)
			v[s] = uint64(small)
		}
	}
}

// AppendExpiresAt returns a copy of an encoded Message without an expiry time with that
// field added. It copies because records may be shared.
func AppendExpiresAt(record []byte, at int64) []byte {
	out := make([]byte, 0, len(record)+sizeInt(messageExpiresAt, at))
	return appendInt(append(out, record...), messageExpiresAt, at)
}

// AppendRewritten returns a copy of an encoded Message with Meta.Rewritten set. It copies because records
// may be shared.
func AppendRewritten(record []byte) []byte {
	out := make([]byte, 0, len(record)+sizeInt(messageRewritten, 1))
	return appendInt(append(out, record...), messageRewritten, 1)
}

// AppendMember returns a copy of an encoded Message that is a member of no group with Meta.MemberOf set. It copies
// because records may be shared.
func AppendMember(record []byte, group uint64) []byte {
	out := make([]byte, 0, len(record)+sizeUint(messageMember, group))
	return appendUint(append(out, record...), messageMember, group)
}

// AppendReadyAt returns a copy of an encoded Message without a ready time with that field
// added. It copies because records may be shared.
func AppendReadyAt(record []byte, at int64) []byte {
	out := make([]byte, 0, len(record)+sizeInt(messageReadyAt, at))
	return appendInt(append(out, record...), messageReadyAt, at)
}
