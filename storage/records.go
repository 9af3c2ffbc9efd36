package storage

import (
	"fmt"
	"slices"
)

// This file defines the records: the values of the families, in the wire format of
// protobuf, encoded by hand and described by fila.proto.
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
	Weight    uint32 // as given at enqueue; 0: not given
	Cost      uint32 // 0: 1
	ReadyAt   int64  // 0: immediately
	ExpiresAt int64  // 0: never
	Dead      *Dead  // of a message in a dead-letter queue, else nil
}

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
}

// Queue is the settings of a queue. Its key is the queue's name; all other keys contain
// the number instead, which is never reused.
type Queue struct {
	Number                                                      uint32
	VisibilityMs, BackoffMs, MaxBackoffMs, TTLMs, DedupWindowMs uint64
	MaxAttempts                                                 uint32
	MaxDepth, KeyMaxDepth                                       uint64 // 0: no limit
	DLQ                                                         string
	DeadLetter                                                  bool // it was created as a dead-letter queue
	PausedIn, PausedOut                                         bool
	CreatedAt                                                   int64
	OnEnqueue, OnFailure                                        string // source of the hooks
	BackoffJitter                                               uint32 // percent
}

// Append appends the encoded record.
func (m *Message) Append(dst []byte) []byte {
	dst = slices.Grow(dst, m.sizeMax())
	dst = appendBytes(dst, 1, m.Payload)
	for _, h := range m.Headers {
		dst = appendLen(dst, 2, sizeBytes(1, h.Name)+sizeBytes(2, h.Value))
		dst = appendBytes(dst, 1, h.Name)
		dst = appendBytes(dst, 2, h.Value)
	}
	for _, t := range m.Throttles {
		dst = appendItem(dst, 3, t)
	}
	dst = appendUint(dst, 4, uint64(m.Weight))
	dst = appendUint(dst, 5, uint64(m.Cost))
	dst = appendInt(dst, 6, m.ReadyAt)
	dst = appendInt(dst, 7, m.ExpiresAt)
	if m.Dead != nil {
		dst = appendLen(dst, 8, m.Dead.size())
		dst = m.Dead.append(dst)
	}
	return dst
}

// sizeMax returns an upper bound of the bytes that Append appends, so that one allocation
// suffices.
func (m *Message) sizeMax() int {
	const field, number = 6, 11 // tag and length; tag and number
	n := field + len(m.Payload) + 4*number
	for _, h := range m.Headers {
		n += 3*field + len(h.Name) + len(h.Value)
	}
	for _, t := range m.Throttles {
		n += field + len(t)
	}
	if m.Dead != nil {
		n += field + m.Dead.size()
	}
	return n
}

// Decode reads a record that Append made.
func (m *Message) Decode(b []byte) error { return m.DecodeLike(b, nil) }

// DecodeLike is Decode for one of many similar messages: throttle keys that equal those
// given are taken from there, and the slice itself if all do, without allocations.
func (m *Message) DecodeLike(b []byte, throttles []string) error {
	*m = Message{}
	alike := 0
	err := eachField(b, func(f *field) {
		switch f.num {
		case 1:
			m.Payload = f.slice()
		case 2:
			m.Headers = append(m.Headers, decodeHeader(f))
		case 3:
			if n := len(m.Throttles); n == alike && n < len(throttles) && throttles[n] == string(f.slice()) {
				alike++
				m.Throttles = throttles[:alike:alike] // an append to it copies
			} else {
				m.Throttles = append(m.Throttles, f.string())
			}
		case 4:
			m.Weight = f.uint32()
		case 5:
			m.Cost = f.uint32()
		case 6:
			m.ReadyAt = f.int64()
		case 7:
			m.ExpiresAt = f.int64()
		case 8:
			m.Dead = &Dead{}
			m.Dead.decode(f)
		}
	})
	if err != nil {
		*m = Message{}
		return fmt.Errorf("message record: %w", err)
	}
	return nil
}

func decodeHeader(outer *field) Header {
	var h Header
	err := eachField(outer.slice(), func(f *field) {
		switch f.num {
		case 1:
			h.Name = f.slice()
		case 2:
			h.Value = f.slice()
		}
	})
	outer.bad = outer.bad || err != nil
	return h
}

func (d *Dead) size() int {
	return sizeBytes(1, d.Queue) + sizeBytes(2, d.Reason) + sizeBytes(3, d.Error) + sizeInt(4, d.DiedAt) +
		sizeUint(5, uint64(d.Attempts)) + sizeUint(6, uint64(d.Deliveries)) +
		sizeInt(7, d.FirstFailedAt) + sizeInt(8, d.LastFailedAt)
}

func (d *Dead) append(dst []byte) []byte {
	dst = appendBytes(dst, 1, d.Queue)
	dst = appendBytes(dst, 2, d.Reason)
	dst = appendBytes(dst, 3, d.Error)
	dst = appendInt(dst, 4, d.DiedAt)
	dst = appendUint(dst, 5, uint64(d.Attempts))
	dst = appendUint(dst, 6, uint64(d.Deliveries))
	dst = appendInt(dst, 7, d.FirstFailedAt)
	return appendInt(dst, 8, d.LastFailedAt)
}

func (d *Dead) decode(outer *field) {
	err := eachField(outer.slice(), func(f *field) {
		switch f.num {
		case 1:
			d.Queue = f.string()
		case 2:
			d.Reason = f.string()
		case 3:
			d.Error = f.string()
		case 4:
			d.DiedAt = f.int64()
		case 5:
			d.Attempts = f.uint32()
		case 6:
			d.Deliveries = f.uint32()
		case 7:
			d.FirstFailedAt = f.int64()
		case 8:
			d.LastFailedAt = f.int64()
		}
	})
	outer.bad = outer.bad || err != nil
}

// Append appends the encoded record.
func (a *Attempt) Append(dst []byte) []byte {
	dst = appendUint(dst, 1, uint64(a.Attempt))
	dst = appendUint(dst, 2, uint64(a.Deliveries))
	dst = appendInt(dst, 3, a.ReadyAt)
	dst = appendBytes(dst, 4, a.Error)
	dst = appendInt(dst, 5, a.FirstFailedAt)
	dst = appendInt(dst, 6, a.LastFailedAt)
	return appendUint(dst, 7, a.Fence)
}

// Decode reads a record that Append made.
func (a *Attempt) Decode(b []byte) error {
	*a = Attempt{}
	err := eachField(b, func(f *field) {
		switch f.num {
		case 1:
			a.Attempt = f.uint32()
		case 2:
			a.Deliveries = f.uint32()
		case 3:
			a.ReadyAt = f.int64()
		case 4:
			a.Error = f.string()
		case 5:
			a.FirstFailedAt = f.int64()
		case 6:
			a.LastFailedAt = f.int64()
		case 7:
			a.Fence = f.uint64()
		}
	})
	if err != nil {
		*a = Attempt{}
		return fmt.Errorf("attempt record: %w", err)
	}
	return nil
}

// Append appends the encoded record.
func (l *Lease) Append(dst []byte) []byte {
	dst = appendInt(dst, 1, l.Until)
	dst = appendBytes(dst, 2, l.Consumer)
	dst = appendUint(dst, 3, uint64(l.Attempt))
	dst = appendUint(dst, 4, uint64(l.Deliveries))
	for _, t := range l.Throttles {
		dst = appendItem(dst, 5, t)
	}
	dst = appendUint(dst, 6, uint64(l.Cost))
	dst = appendInt(dst, 7, l.LeasedAt)
	dst = appendInt(dst, 8, l.FirstFailedAt)
	dst = appendInt(dst, 9, l.LastFailedAt)
	dst = appendBytes(dst, 10, l.Error)
	dst = appendBool(dst, 11, l.Retried)
	return appendInt(dst, 12, l.ExpiresAt)
}

// Decode reads a record that Append made.
func (l *Lease) Decode(b []byte) error {
	*l = Lease{}
	err := eachField(b, func(f *field) {
		switch f.num {
		case 1:
			l.Until = f.int64()
		case 2:
			l.Consumer = f.string()
		case 3:
			l.Attempt = f.uint32()
		case 4:
			l.Deliveries = f.uint32()
		case 5:
			l.Throttles = append(l.Throttles, f.string())
		case 6:
			l.Cost = f.uint32()
		case 7:
			l.LeasedAt = f.int64()
		case 8:
			l.FirstFailedAt = f.int64()
		case 9:
			l.LastFailedAt = f.int64()
		case 10:
			l.Error = f.string()
		case 11:
			l.Retried = f.bool()
		case 12:
			l.ExpiresAt = f.int64()
		}
	})
	if err != nil {
		*l = Lease{}
		return fmt.Errorf("lease record: %w", err)
	}
	return nil
}

// Append appends the encoded record.
func (q *Queue) Append(dst []byte) []byte {
	dst = appendUint(dst, 1, uint64(q.Number))
	dst = appendUint(dst, 2, q.VisibilityMs)
	dst = appendUint(dst, 3, q.BackoffMs)
	dst = appendUint(dst, 4, q.MaxBackoffMs)
	dst = appendUint(dst, 5, q.TTLMs)
	dst = appendUint(dst, 6, q.DedupWindowMs)
	dst = appendUint(dst, 7, uint64(q.MaxAttempts))
	dst = appendUint(dst, 8, q.MaxDepth)
	dst = appendUint(dst, 9, q.KeyMaxDepth)
	dst = appendBytes(dst, 10, q.DLQ)
	dst = appendBool(dst, 11, q.DeadLetter)
	dst = appendBool(dst, 12, q.PausedIn)
	dst = appendBool(dst, 13, q.PausedOut)
	dst = appendInt(dst, 14, q.CreatedAt)
	dst = appendBytes(dst, 15, q.OnEnqueue)
	dst = appendBytes(dst, 16, q.OnFailure)
	return appendUint(dst, 17, uint64(q.BackoffJitter))
}

// Decode reads a record that Append made.
func (q *Queue) Decode(b []byte) error {
	*q = Queue{}
	if err := eachField(b, q.set); err != nil {
		*q = Queue{}
		return fmt.Errorf("queue record: %w", err)
	}
	return nil
}

func (q *Queue) set(f *field) {
	switch f.num {
	case 1:
		q.Number = f.uint32()
	case 2:
		q.VisibilityMs = f.uint64()
	case 3:
		q.BackoffMs = f.uint64()
	case 4:
		q.MaxBackoffMs = f.uint64()
	case 5:
		q.TTLMs = f.uint64()
	case 6:
		q.DedupWindowMs = f.uint64()
	case 7:
		q.MaxAttempts = f.uint32()
	case 8:
		q.MaxDepth = f.uint64()
	case 9:
		q.KeyMaxDepth = f.uint64()
	case 10:
		q.DLQ = f.string()
	case 11:
		q.DeadLetter = f.bool()
	case 12:
		q.PausedIn = f.bool()
	case 13:
		q.PausedOut = f.bool()
	case 14:
		q.CreatedAt = f.int64()
	case 15:
		q.OnEnqueue = f.string()
	case 16:
		q.OnFailure = f.string()
	case 17:
		q.BackoffJitter = f.uint32()
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
