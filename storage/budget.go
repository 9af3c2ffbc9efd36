package storage

import (
	"encoding/binary"
	"math"
	"time"
)

// This file is the keys and records of the families Budgets and Ledger.

// Budget is an account of prepaid credits: its settings and its sums. Its key is the name.
type Budget struct {
	Made       uint64 // number of this budget, never reused: it tells two of one name apart
	CreatedAt  int64
	Credited   int64 // all that came in
	Spent      int64 // all that went out
	Debt       int64 // how far below zero it may be taken
	Low        int64 // one more than the balance below which it is low; 0: none is set
	Refill     int64 // what each tick adds; 0: there is no refill
	RefillMax  int64 // the balance up to which it is refilled
	Expression string
	Zone       string // name of the time zone of the expression
	NextAt     int64  // the next tick; 0: there is none
	LastAt     int64  // time of the newest entry of the ledger; 0: there is none
	UseAt      int64  // of the newest settlement that has no entry yet
	UseAmount  int64  // of these settlements, not negative
	UseCount   int64  // of their messages; 0: there are none
	Refuse     bool   // an enqueue that is not covered is refused
	Detail     bool   // each settlement has an entry of its own
}

// Append appends the encoded record.
func (b *Budget) Append(dst []byte) []byte { return encode(dst, b) }

// Decode reads a record that Append made. A budget without a number is corrupt.
func (b *Budget) Decode(rec []byte) error { return decode(rec, b, Budget{}, "budget", (*Budget).valid) }

func (b *Budget) valid() bool {
	return b.Made != 0 && min(b.Credited, b.Spent, b.Debt, b.Low, b.Refill, b.RefillMax, b.UseAmount, b.UseCount) >= 0
}

func (b *Budget) fields(c *codec) {
	c.uint64(1, &b.Made)
	c.int64(2, &b.CreatedAt)
	c.int64(3, &b.Credited)
	c.int64(4, &b.Spent)
	c.int64(5, &b.Debt)
	c.int64(6, &b.Low)
	c.int64(7, &b.Refill)
	c.int64(8, &b.RefillMax)
	c.string(9, &b.Expression)
	c.string(10, &b.Zone)
	c.int64(11, &b.NextAt)
	c.int64(12, &b.LastAt)
	c.int64(13, &b.UseAt)
	c.int64(14, &b.UseAmount)
	c.int64(15, &b.UseCount)
	c.bool(16, &b.Refuse)
	c.bool(17, &b.Detail)
}

// LedgerEntry is what has moved the sums of a budget. Its key is AppendLedgerKey.
type LedgerEntry struct {
	Made    uint64 // number of the budget
	Kind    uint32 // as the engine numbers them
	Amount  int64  // negative for what went out
	Balance int64  // after it
	ID      string // given by the client; "": none
	Note    string
	Count   int64  // of a use: how many messages were settled
	Queue   string // of a use of one message: its queue, id and fairness key
	Message string
	Key     string
}

// Append appends the encoded record.
func (e *LedgerEntry) Append(dst []byte) []byte { return encode(dst, e) }

// Decode reads a record that Append made.
func (e *LedgerEntry) Decode(b []byte) error { return decode(b, e, LedgerEntry{}, "ledger", nil) }

func (e *LedgerEntry) fields(c *codec) {
	c.uint64(1, &e.Made)
	c.uint32(2, &e.Kind)
	c.int64(3, &e.Amount)
	c.int64(4, &e.Balance)
	c.string(5, &e.ID)
	c.string(6, &e.Note)
	c.int64(7, &e.Count)
	c.string(8, &e.Queue)
	c.string(9, &e.Message)
	c.string(10, &e.Key)
}

// A key of the ledger begins with its day, the days since 1970, so that a day is dropped as a
// range. Then comes what it is, an entry or an id, and the name of the budget.
const (
	ledgerEntries = 0
	ledgerIDs     = 1
	ledgerDay     = int64(24 * time.Hour)
)

// LedgerDay returns the day of a time in Unix nanoseconds. Times before 1970 count as 0.
func LedgerDay(at int64) uint32 {
	return uint32(min(max(at, 0)/ledgerDay, math.MaxUint32))
}

// AppendLedgerDay appends the common prefix of a day.
func AppendLedgerDay(dst []byte, day uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, day)
}

// AppendLedgerPrefix appends the common prefix of the entries of a budget on a day.
func AppendLedgerPrefix(dst []byte, day uint32, name string) []byte {
	return appendString(append(AppendLedgerDay(dst, day), ledgerEntries), name)
}

// AppendLedgerKey appends the key of the entry of a budget at a time, which is not before 1970.
// The newest entry of a day sorts first.
func AppendLedgerKey(dst []byte, name string, at int64) []byte {
	return binary.BigEndian.AppendUint64(AppendLedgerPrefix(dst, LedgerDay(at), name), math.MaxUint64-uint64(max(at, 0)))
}

// AppendLedgerIDKey appends the key of an id, under which a budget was moved on a day. Its
// record is the entry of the movement.
func AppendLedgerIDKey(dst []byte, day uint32, name, id string) []byte {
	return append(appendString(append(AppendLedgerDay(dst, day), ledgerIDs), name), id...)
}

// LedgerKey is a decoded key of the ledger.
type LedgerKey struct {
	Day  uint32
	Name string // of the budget
	At   int64  // of an entry
	ID   string // of an id; "": the key is that of an entry
}

// ParseLedgerKey decodes a key of the ledger, or returns ErrCorrupt.
func ParseLedgerKey(k []byte) (LedgerKey, error) {
	const head = 4 + 1
	if len(k) < head {
		return LedgerKey{}, badKey("ledger", k)
	}
	lk := LedgerKey{Day: binary.BigEndian.Uint32(k)}
	name, rest, ok := nextString(k[head:])
	lk.Name = name
	switch {
	case !ok || name == "":
	case k[4] == ledgerIDs && len(rest) > 0:
		lk.ID = string(rest)
		return lk, nil
	case k[4] == ledgerEntries && len(rest) == 8:
		at := math.MaxUint64 - binary.BigEndian.Uint64(rest)
		lk.At = int64(at)
		if at <= math.MaxInt64 && LedgerDay(lk.At) == lk.Day {
			return lk, nil
		}
	}
	return LedgerKey{}, badKey("ledger", k)
}
