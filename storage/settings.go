package storage

import (
	"math"
	"slices"
)

// This file is the records of the families State, Dedup and Results.

// DedupEntry is the record of a deduplication id, or of a unique id: the message enqueued with it,
// and when. Its key is a dedup key.
type DedupEntry struct {
	ID  ID
	At  int64  // nanoseconds since 1970
	Key string // fairness key of the message, of a unique id only
}

// Append appends the encoded record.
func (d *DedupEntry) Append(dst []byte) []byte { return encode(dst, d) }

// Decode reads a record that Append made.
func (d *DedupEntry) Decode(b []byte) error {
	return decode(b, d, DedupEntry{}, "dedup", (*DedupEntry).valid)
}

func (d *DedupEntry) valid() bool { return d.ID != (ID{}) }

func (d *DedupEntry) fields(c *codec) {
	c.id(1, &d.ID)
	c.int64(2, &d.At)
	c.string(3, &d.Key)
}

// Result is the record of a message that was acked. Its key is a result key. It has what the consumer has given with
// its ack, and where the queue keeps what is done, what is known of the message; else Attempts is 0.
type Result struct {
	Value   []byte // may be empty
	NoValue bool   // the consumer has given none
	At      int64  // of the ack, in nanoseconds since 1970

	Key           string
	FirstLeasedAt int64 // 0: not known
	Attempts      uint32
	Deliveries    uint32
	Consumer      string
	Headers       []Header // some of the message
}

// Append appends the encoded record.
func (r *Result) Append(dst []byte) []byte { return encode(dst, r) }

// Decode reads a record that Append made.
func (r *Result) Decode(b []byte) error { return decode(b, r, Result{}, "result", nil) }

// SizeMax returns an upper bound of the bytes that Append appends, so that one allocation suffices.
func (r *Result) SizeMax() int {
	n := 3*fieldMax + len(r.Value) + len(r.Key) + len(r.Consumer) + 5*numberMax
	for _, h := range r.Headers {
		n += 3*fieldMax + len(h.Name) + len(h.Value)
	}
	return n
}

func (r *Result) fields(c *codec) {
	c.bytes(1, &r.Value)
	c.int64(2, &r.At)
	c.bool(3, &r.NoValue)
	c.string(4, &r.Key)
	c.int64(5, &r.FirstLeasedAt)
	c.uint32(6, &r.Attempts)
	c.uint32(7, &r.Deliveries)
	c.string(8, &r.Consumer)
	c.headers(9, &r.Headers)
}

// Key is the settings of a fairness key. Its key is ("key", queue number, fairness key).
type Key struct {
	Weight uint32 // 0: 1
	Paused bool
	// Pinned means that the settings belong to the key itself and are kept without
	// messages.
	Pinned   bool
	MaxDepth uint64 // messages that the key may have, in place of the queue's KEYMAXDEPTH; 0: that
}

// Append appends the encoded record.
func (k *Key) Append(dst []byte) []byte { return encode(dst, k) }

// Decode reads a record that Append made.
func (k *Key) Decode(b []byte) error { return decode(b, k, Key{}, "key", nil) }

func (k *Key) fields(c *codec) {
	c.uint32(1, &k.Weight)
	c.bool(2, &k.Paused)
	c.bool(3, &k.Pinned)
	c.uint64(4, &k.MaxDepth)
}

// Script is a source in the history of a hook. Its key is ("script", queue, hook, number): the
// name of the queue and of the hook, and 8 bytes that order the sources of all hooks by age.
type Script struct {
	Source, Version string // Version: the SHA-1 of the source in hexadecimal digits
	LoadedAt        int64  // nanoseconds since 1970; 0: before there were histories
	User            string // that loaded it; "": not known
}

// Append appends the encoded record.
func (s *Script) Append(dst []byte) []byte { return encode(dst, s) }

// Decode reads a record that Append made.
func (s *Script) Decode(b []byte) error { return decode(b, s, Script{}, "script", nil) }

func (s *Script) fields(c *codec) {
	c.string(1, &s.Source)
	c.string(2, &s.Version)
	c.int64(3, &s.LoadedAt)
	c.string(4, &s.User)
}

// Act is what an administrator has changed. Its key is ("act", number): 8 bytes that order all acts by age.
type Act struct {
	At                          int64 // nanoseconds since 1970
	User, Addr, Command, Object string
	Before, After               string // the setting as text; "": there was none, or it is none
}

// Append appends the encoded record.
func (a *Act) Append(dst []byte) []byte { return encode(dst, a) }

// Decode reads a record that Append made.
func (a *Act) Decode(b []byte) error { return decode(b, a, Act{}, "act", nil) }

func (a *Act) fields(c *codec) {
	c.int64(1, &a.At)
	c.string(2, &a.User)
	c.string(3, &a.Addr)
	c.string(4, &a.Command)
	c.string(5, &a.Object)
	c.string(6, &a.Before)
	c.string(7, &a.After)
}

// Binding is a queue that gets the messages of a topic. Its key is ("topic", topic, queue): names.
type Binding struct {
	Headers []Header // patterns by name, all of which a message has to match
}

// Append appends the encoded record.
func (b *Binding) Append(dst []byte) []byte { return encode(dst, b) }

// Decode reads a record that Append made. A pattern without a name is corrupt.
func (b *Binding) Decode(enc []byte) error {
	return decode(enc, b, Binding{}, "binding", (*Binding).valid)
}

func (b *Binding) valid() bool {
	return !slices.ContainsFunc(b.Headers, func(h Header) bool { return len(h.Name) == 0 })
}

func (b *Binding) fields(c *codec) { c.headers(1, &b.Headers) }

// Throttle is the setting of a throttle. Its key is ("throttle", throttle key).
type Throttle struct {
	Rate        float64 // tokens a second; 0: not limited
	Burst       uint64
	Concurrency uint64 // leases at a time; 0: not limited
	ByCost      bool   // a message takes its cost in tokens, else one
	AdaptiveMin uint64 // the fewest leases at a time that failures leave, up to Concurrency; 0: the throttle is not adaptive
}

// Append appends the encoded record.
func (t *Throttle) Append(dst []byte) []byte { return encode(dst, t) }

// Decode reads a record that Append made. A rate that is no number is corrupt, and so is a minimum
// above the concurrency.
func (t *Throttle) Decode(b []byte) error {
	return decode(b, t, Throttle{}, "throttle", (*Throttle).valid)
}

func (t *Throttle) valid() bool {
	return t.Rate >= 0 && !math.IsInf(t.Rate, 0) && t.AdaptiveMin <= t.Concurrency
}

func (t *Throttle) fields(c *codec) {
	c.float64(1, &t.Rate)
	c.uint64(2, &t.Burst)
	c.uint64(3, &t.Concurrency)
	c.bool(4, &t.ByCost)
	c.uint64(5, &t.AdaptiveMin)
}
