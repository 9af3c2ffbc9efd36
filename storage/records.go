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

// Message is a message as enqueued. It is written once and never rewritten, which makes
// SingleDelete valid for it. Its key holds queue, fairness key, priority and id.
type Message struct {
	Payload   []byte
	Headers   []Header
	Throttles []string
	Weight    uint32   // as given at enqueue; 0: not given
	Cost      uint32   // 0: 1
	ReadyAt   int64    // 0: immediately
	ExpiresAt int64    // 0: never
	Dead      *Dead    // of a message in a dead-letter queue, else nil
	Budgets   []string // that pay for it
	Charge    int64    // to each of them
	Unique    string   // of which the queue has one message at a time; a dead one has had it; "": none
	Body      ID       // that has the payload and the headers, see body.go; zero: the record itself has them
}

// Numbers of fields that are found without decoding the record.
const (
	messagePayload = 1
	messageHeaders = 2
	messageBody    = 12
)

// Dead records where and why a message died.
type Dead struct {
	Queue                       string // where it died, by name
	Reason, Error               string
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
}

// Lease is a live lease of a message.
type Lease struct {
	Until                       int64
	Consumer                    string
	Attempt, Deliveries         uint32
	Throttles                   []string
	Cost                        uint32
	LeasedAt                    int64
	FirstFailedAt, LastFailedAt int64
	Error                       string // of the previous attempt
	Retried                     bool   // an Attempt record of the message exists
	ExpiresAt                   int64  // of the message; 0: never
	Budgets                     []string
	Charge                      int64  // to each of them
	Unique                      string // of the message
	Retrying                    bool   // no delivery: the message waits for Until, and its key with it
	Body                        ID     // that the message holds; zero: none
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

// sizeMax returns an upper bound of the bytes that Append appends, so that one allocation
// suffices. A field that it forgets costs another one and nothing else.
func (m *Message) sizeMax() int {
	const field, number = 6, 11 // tag and length; tag and number
	n := 3*field + len(m.Payload) + len(m.Unique) + len(m.Body) + 5*number
	for _, h := range m.Headers {
		n += 3*field + len(h.Name) + len(h.Value)
	}
	for _, names := range [][]string{m.Throttles, m.Budgets} {
		for _, name := range names {
			n += field + len(name)
		}
	}
	if d := m.Dead; d != nil {
		n += 4*field + len(d.Queue) + len(d.Reason) + len(d.Error) + 5*number
	}
	return n
}

// Decode reads a record that Append made.
func (m *Message) Decode(b []byte) error { return m.DecodeLike(b, nil, nil) }

// DecodeLike is Decode for one of many similar messages: throttle keys and budgets that equal
// those given are taken from there, and the slices themselves if all do, without allocations.
func (m *Message) DecodeLike(b []byte, throttles, budgets []string) error {
	*m = Message{}
	c := codec{throttles: throttles, budgets: budgets}
	for c.decode(b); c.pass(); {
		m.fields(&c)
	}
	if c.err != nil {
		*m = Message{}
		return fmt.Errorf("message record: %w", c.err)
	}
	return nil
}

func (m *Message) fields(c *codec) {
	c.bytes(messagePayload, &m.Payload)
	c.headers(messageHeaders, &m.Headers)
	c.strings(3, &m.Throttles, c.throttles)
	c.uint32(4, &m.Weight)
	c.uint32(5, &m.Cost)
	c.int64(6, &m.ReadyAt)
	c.int64(7, &m.ExpiresAt)
	c.dead(8, &m.Dead)
	c.strings(9, &m.Budgets, c.budgets)
	c.int64(10, &m.Charge)
	c.string(11, &m.Unique)
	c.someID(messageBody, &m.Body)
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
}

// Append appends the encoded record.
func (l *Lease) Append(dst []byte) []byte { return encode(dst, l) }

// Decode reads a record that Append made.
func (l *Lease) Decode(b []byte) error { return decode(b, l, Lease{}, "lease", nil) }

func (l *Lease) fields(c *codec) {
	c.int64(1, &l.Until)
	c.string(2, &l.Consumer)
	c.uint32(3, &l.Attempt)
	c.uint32(4, &l.Deliveries)
	c.strings(5, &l.Throttles, nil)
	c.uint32(6, &l.Cost)
	c.int64(7, &l.LeasedAt)
	c.int64(8, &l.FirstFailedAt)
	c.int64(9, &l.LastFailedAt)
	c.string(10, &l.Error)
	c.bool(11, &l.Retried)
	c.int64(12, &l.ExpiresAt)
	c.strings(13, &l.Budgets, nil)
	c.int64(14, &l.Charge)
	c.string(15, &l.Unique)
	c.bool(16, &l.Retrying)
	c.someID(17, &l.Body)
}

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
	out := make([]byte, 0, len(record)+sizeInt(7, at))
	return appendInt(append(out, record...), 7, at)
}

// AppendReadyAt returns a copy of an encoded Message without a ready time with that field
// added. It copies because records may be shared.
func AppendReadyAt(record []byte, at int64) []byte {
	out := make([]byte, 0, len(record)+sizeInt(6, at))
	return appendInt(append(out, record...), 6, at)
}
