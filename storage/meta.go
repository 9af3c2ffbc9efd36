package storage

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faisca/fila/internal/queueset"
)

// Meta is what a producer said about a message beside its content. It goes where the message
// goes: into the records of the message and of its lease, into the record of a recurring
// message, to hooks and to clients.
//
// A field is a field of this struct and a row of each record that has it. The records number
// the first fields differently. Those that come later have one row for all of them, in a method
// later(*codec, protowire.Number) that is called last: from 20 on in a Message, from 30 on in a
// Lease and in a Cron.
//
// Beside it, a field has its options and the reply fields that show it in commands/meta.go, what
// scripts see of it in scripting/meta.go, its limit in engine/internal/limits, and its place in memory, if it needs one,
// in engine/meta.go.
type Meta struct {
	Throttles []string          // throttle keys
	Budgets   []string          // that pay for it
	Charge    int64             // to each of them
	Weight    uint32            // of its fairness key, as given at enqueue; 0: not given
	Cost      uint32            // 0: 1
	ExpiresAt int64             // 0: never
	Unique    string            // of which the queue has one message at a time; a dead one has had it; "": none
	Body      ID                // that has the payload and the headers, see body.go; zero: the record itself has them
	Retries   *queueset.Retries // how it is retried, in place of its queue's settings; nil: nothing of that is given. It is never changed

	MemberOf uint64 // number of the group of which it is a member; 0: none
	Died     bool   // of a member: the group counts it as dead

	UntilLease bool // Unique is free from the lease of the message on
	// Rewritten says that the record of the message has been put over an earlier one. A Delete removes it,
	// as a SingleDelete needs a key that was put once; also where the message returns to the same key.
	Rewritten bool
}

// later has the rows of the fields that came later, from a number on.
func (m *Meta) later(c *codec, from protowire.Number) {
	c.retries(from, &m.Retries)
	c.bool(from+laterUntilLease, &m.UntilLease)
	c.bool(from+laterRewritten, &m.Rewritten)
	c.uint64(from+laterMember, &m.MemberOf)
	c.bool(from+laterDied, &m.Died)
}

// retries is three numbers, of a record that has none of them mostly.
func (c *codec) retries(from protowire.Number, v **queueset.Retries) {
	if *v != nil || c.next.num >= from && c.next.num < from+3 {
		c.passRetries(from, v)
	}
}

func (c *codec) passRetries(from protowire.Number, v **queueset.Retries) {
	if *v == nil {
		*v = new(queueset.Retries)
	}
	r := *v
	c.uint64(from, (*uint64)(&r.MaxAttempts))
	c.uint64(from+1, (*uint64)(&r.Backoff))
	c.uint64(from+2, (*uint64)(&r.MaxBackoff))
	if *r == (queueset.Retries{}) {
		*v = nil
	}
}

// The places of later fields behind the first number of a record, and these numbers.
const (
	laterUntilLease = 3
	laterRewritten  = 4
	laterMember     = 6
	laterDied       = 7

	messageLater = 20
	leaseLater   = 30
	cronLater    = 30
)

// sizeMax returns an upper bound of the bytes that Meta takes in a record.
func (m *Meta) sizeMax() (n int) {
	for _, given := range [...]bool{m.Charge != 0, m.Weight != 0, m.Cost != 0, m.ExpiresAt != 0, m.MemberOf != 0, m.Died, m.UntilLease, m.Rewritten} {
		if given {
			n += numberMax
		}
	}
	if m.Retries != nil {
		n += 3 * numberMax
	}
	if m.Body != (ID{}) {
		n += fieldMax + len(m.Body)
	}
	if m.Unique != "" {
		n += fieldMax + len(m.Unique)
	}
	for _, names := range [][]string{m.Throttles, m.Budgets} {
		for _, name := range names {
			n += fieldMax + len(name)
		}
	}
	return n
}

// CheckRetries returns an error if what the message has of its own about retries is out of bounds.
func (m *Meta) CheckRetries() error {
	if m.Retries == nil {
		return nil
	}
	return m.Retries.Check()
}

// Expires returns when the message expires; zero: never.
func (m *Meta) Expires() time.Time {
	if m.ExpiresAt == 0 {
		return time.Time{}
	}
	return time.Unix(0, m.ExpiresAt)
}

// CutContent returns what the content of a recurring message has of m, and cuts it out of m: its
// Cron has the rest.
func (m *Meta) CutContent() Meta {
	content := Meta{Throttles: m.Throttles, Weight: m.Weight, Cost: m.Cost}
	m.Throttles, m.Weight, m.Cost = nil, 0, 0
	return content
}

// AddContent is the reverse of CutContent.
func (m *Meta) AddContent(content *Meta) {
	m.Throttles, m.Weight, m.Cost = content.Throttles, content.Weight, content.Cost
}

func (m *Message) fields(c *codec) {
	c.bytes(messagePayload, &m.Payload)
	c.headers(messageHeaders, &m.Headers)
	c.strings(3, &m.Throttles, c.throttles)
	c.uint32(4, &m.Weight)
	c.uint32(5, &m.Cost)
	c.int64(messageReadyAt, &m.ReadyAt)
	c.int64(messageExpiresAt, &m.ExpiresAt)
	c.dead(8, &m.Dead)
	c.strings(9, &m.Budgets, c.budgets)
	c.int64(10, &m.Charge)
	c.string(11, &m.Unique)
	c.someID(messageBody, &m.Body)
	m.Meta.later(c, messageLater)
}

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
	c.int64(18, &l.FirstLeasedAt)
	c.string(19, &l.Cause)
	c.failures(leaseFailures, &l.Failures)
	l.Meta.later(c, leaseLater)
}

func (r *Cron) fields(c *codec) {
	c.string(1, &r.Queue)
	c.string(2, &r.Expression)
	c.string(3, &r.Zone)
	c.uint32(4, &r.CatchUp)
	c.string(5, &r.Key)
	c.uint32(6, &r.Priority)
	c.uint64(7, &r.DelayMs)
	c.uint64(8, &r.TTLMs)
	c.int64(9, &r.NextAt)
	c.int64(10, &r.LastAt)
	c.uint64(11, &r.Fired)
	c.uint64(12, &r.Missed)
	c.string(13, &r.LastError)
	c.int64(14, &r.ErrorAt)
	c.uint64(15, &r.MadeUp)
	c.int64(16, &r.SetAt)
	c.strings(17, &r.Budgets, nil)
	c.int64(18, &r.Charge)
	c.bool(19, &r.Topic)
	c.string(20, &r.Unique)
	c.uint64(21, &r.Skipped)
	c.int64(22, &r.PausedAt)
	r.Meta.later(c, cronLater)
	c.uint64(35, &r.Replace)
}
