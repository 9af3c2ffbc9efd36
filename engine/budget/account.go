package budget

import (
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// Account is a budget in memory. With a name of 32 bytes and its place in the table it takes at
// most 256 bytes, see TestAMillionAccountsTakeAtMost256BytesEach.
type Account struct {
	name      string
	made      uint64 // its number, never reused: it tells two accounts of one name apart
	seq       uint64 // its number in the roster
	sums      credit.Account
	low       int64                         // one more than the balance below which it is low; 0: none is set
	calendar  atomic.Pointer[credit.Shared] // ticks of the refill; nil: there is none
	createdAt int64
	lastAt    int64  // of its newest entry in the ledger, Unix nanoseconds; 0: there is none
	use       *use   // settlements without an entry; nil: there are none
	freedIn   uint64 // number of the batch in which it has last got more available
	refuse    bool   // an enqueue that is not covered is refused
	detail    bool   // each settlement has an entry of its own
	dirty     bool   // it is in Accounts.dirty
	dry       bool   // RunDry was called, and no credits have come in since
	gone      bool   // it was deleted
}

// use is the settlements of an account that have no entry in the ledger yet. Those of a minute
// share one, unless another movement comes between: the entries of an account add up to its balance.
type use struct {
	at            int64 // of the newest, Unix nanoseconds
	amount, count int64
}

// Name returns the name. It does not change.
func (a *Account) Name() string { return a.name }

// Balance is what the account has, including what is reserved.
func (a *Account) Balance() int64 { return a.sums.Balance() }

// Available is what the next delivery may take.
func (a *Account) Available() int64 { return a.sums.Available() }

// Debt is how far below zero what is available may be taken.
func (a *Account) Debt() int64 { return a.sums.Debt }

// Reserved is what open reservations hold.
func (a *Account) Reserved() int64 { return a.sums.Reserved }

// Covers reports whether a charge may be taken. Refills that are due do not count until CatchUp.
func (a *Account) Covers(charge int64) bool { return a.sums.Covers(charge) }

// Refuses reports whether an enqueue with a charge is refused: the account does so, and does not cover it.
func (a *Account) Refuses(charge int64) bool { return a.refuse && !a.sums.Covers(charge) }

// CoverAt is the greatest charge that is covered at a time of the calendar, with the refills that are due then; 0 is
// no time, and no refill counts. It changes nothing.
func (a *Account) CoverAt(calendar int64) int64 {
	if ticks := a.due(calendar); ticks != nil {
		return max(a.sums.AvailableAt(calendar, ticks)+a.sums.Debt, 0)
	}
	return a.sums.Cover()
}

// due returns the ticks of the refill if one of them is due, else nil.
func (a *Account) due(calendar int64) *schedule.Schedule {
	if a.sums.NextAt == 0 || calendar < a.sums.NextAt {
		return nil
	}
	return a.calendar.Load().Schedule()
}

// NextAt is the next tick of the refill by the calendar, Unix nanoseconds; 0: there is none.
func (a *Account) NextAt() int64 { return a.sums.NextAt }

// FreedIn is the number of the batch in which the account has last got more available.
func (a *Account) FreedIn() uint64 { return a.freedIn }

// RunDry notes that something waits for credits, and reports whether that is new since credits have come in. It is
// in memory only: a start begins without it.
func (a *Account) RunDry() (first bool) {
	first = !a.dry
	a.dry = true
	return first
}

// Reserve keeps a charge that is covered. Settle or Return ends the reservation.
func (a *Account) Reserve(charge int64) { a.sums.Reserve(charge) }

// Info describes an account at one moment.
type Info struct {
	Name               string
	Balance, Available int64
	Reserved           int64 // by leases that exist now
	Credited, Spent    int64
	Debt               int64
	Low                *int64 // nil: none is set
	Refuse, Detail     bool
	Refill, Max        int64 // 0: there is no refill
	Expression, Zone   string
	Unreadable         bool      // the refill has no next tick: its expression or zone cannot be read
	NextAt             time.Time // of the refill; zero: there is none
	CreatedAt          time.Time
}

// Info describes the account as it is. Refills that are due do not count until CatchUp.
func (a *Account) Info() Info {
	s := &a.sums
	i := Info{
		Name: a.name, Balance: s.Balance(), Available: s.Available(), Reserved: s.Reserved, Refuse: a.refuse, Detail: a.detail, Credited: s.Credited, Spent: s.Spent, Debt: s.Debt,
		Refill: s.Refill.Amount, Max: s.Refill.Max, CreatedAt: time.Unix(0, a.createdAt),
	}
	if low := a.low - 1; low >= 0 {
		i.Low = &low
	}
	if t := a.calendar.Load(); t != nil {
		i.Expression, i.Zone = t.Expression, t.TimeZone
		i.Unreadable = t.Schedule() == nil
	}
	if s.NextAt != 0 && !i.Unreadable {
		i.NextAt = time.Unix(0, s.NextAt)
	}
	return i
}

// record returns the account as it is stored.
func (a *Account) record() storage.Budget {
	s := &a.sums
	rec := storage.Budget{
		Made: a.made, CreatedAt: a.createdAt, Credited: s.Credited, Spent: s.Spent, Debt: s.Debt, Low: a.low,
		Refill: s.Refill.Amount, RefillMax: s.Refill.Max, NextAt: s.NextAt, LastAt: a.lastAt, Refuse: a.refuse, Detail: a.detail,
	}
	if u := a.use; u != nil {
		rec.UseAt, rec.UseAmount, rec.UseCount = u.at, u.amount, u.count
	}
	if t := a.calendar.Load(); t != nil {
		rec.Expression, rec.Zone = t.Expression, t.TimeZone
	}
	return rec
}
