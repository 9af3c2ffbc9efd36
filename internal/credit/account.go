package credit

import (
	"errors"
	"math"
	"runtime"
	"sync/atomic"
)

const (
	// Max is the largest amount of one movement, and the largest balance: 2^53 - 1.
	Max = 1<<53 - 1
	// ChargeMax is the largest charge of a message, and the largest amount it is settled with.
	ChargeMax = 1_000_000_000_000
	// BudgetsMax is how many budgets may pay for a message.
	BudgetsMax = 4
)

// The refusals of an account.
var (
	// ErrNotCovered refuses a charge above what is available, with the debt that is allowed.
	ErrNotCovered = errors.New("not covered")
	// ErrBounds refuses what would take the balance above Max or below -Max.
	ErrBounds = errors.New("the balance would be out of bounds")
)

// Account is the sums of a budget, with the settings that its arithmetic depends on. One goroutine
// has it; any other may call AvailableAt alone. Methods store what that reads; before others know
// the account, its fields may be set as well. Debt may be set at any time.
type Account struct {
	Credited int64 // all that came in
	Spent    int64 // all that went out
	Reserved int64 // held by live leases
	Debt     int64 // how far below zero Available may be taken
	Refill   Refill
	NextAt   int64 // the next tick of the refill, Unix nanoseconds; 0: there is none

	// version is odd while more than one field changes. AvailableAt reads again if it has seen two
	// different versions, or an odd one.
	version uint32
}

// Refill is what an account gets at each tick: Amount, or less if the balance would exceed Max.
type Refill struct {
	Amount int64 // 0: the account has no refill
	Max    int64 // the balance up to which it fills
}

// Calendar is the ticks of a refill, as internal/schedule computes them.
type Calendar interface {
	// Count returns the number of ticks from tick on and before another time, at most limit.
	Count(tick, before int64, limit int) int
	// After returns the first tick after t, 0 if there is none.
	After(tick, t int64) int64
}

// Balance is what the account has, including what is reserved. It is negative for a debt.
func (a *Account) Balance() int64 { return a.Credited - a.Spent }

// Available is what the next delivery may take.
func (a *Account) Available() int64 { return a.Balance() - a.Reserved }

// Covers reports whether a charge may be taken. A charge of 0 needs no credit.
func (a *Account) Covers(charge int64) bool { return charge == 0 || charge <= a.Available()+a.Debt }

// Credit adds an amount from 1 to Max. Errors: ErrBounds.
func (a *Account) Credit(n int64) error {
	if a.Balance() > Max-n || a.Credited > math.MaxInt64-n {
		return ErrBounds
	}
	add(&a.Credited, n)
	return nil
}

// Charge takes an amount from 1 to Max; with force whatever is available. It takes nothing of
// what is reserved unless forced. Errors: ErrNotCovered, ErrBounds.
func (a *Account) Charge(n int64, force bool) error {
	if !force && !a.Covers(n) {
		return ErrNotCovered
	}
	if a.Balance() < n-Max || a.Spent > math.MaxInt64-n {
		return ErrBounds
	}
	add(&a.Spent, n)
	return nil
}

// Cover is the largest charge that may be taken.
func (a *Account) Cover() int64 { return max(a.Available()+a.Debt, 0) }

// Reserve keeps a charge that is covered for a lease; Return gives it back, Settle ends it.
func (a *Account) Reserve(charge int64) { add(&a.Reserved, charge) }

// Return gives back what a lease has kept.
func (a *Account) Return(charge int64) { add(&a.Reserved, -charge) }

// Settle ends what a lease has kept, and takes what was used, which may be more or less. It is
// never refused: the work is done.
func (a *Account) Settle(charge, used int64) {
	a.begin()
	add(&a.Reserved, -charge)
	add(&a.Spent, min(used, math.MaxInt64-a.Spent))
	a.end()
}

// fill returns what k ticks without a movement between them add: each adds Refill.Amount, or
// what the balance lacks to Refill.Max if that is less.
func (a *Account) fill(k int64) int64 {
	room := a.room()
	if a.Refill.Amount == 0 || k > room/a.Refill.Amount { // k times the amount would exceed the room
		return room
	}
	return k * a.Refill.Amount
}

// room is what the balance lacks to Refill.Max, 0 if nothing.
func (a *Account) room() int64 {
	if a.Refill.Amount == 0 {
		return 0
	}
	return min(max(a.Refill.Max-a.Balance(), 0), math.MaxInt64-a.Credited)
}

// Fill adds the refill of one tick and returns what it added, which may be 0.
func (a *Account) Fill() int64 {
	n := a.fill(1)
	add(&a.Credited, n)
	return n
}

// CatchUp adds what the ticks up to now bring, sets NextAt to the first tick after now, and
// returns what was added. No tick counts twice, even if now goes back later: those up to NextAt
// are past. The result is that of a Fill at every tick, and its cost depends on the days since
// NextAt and on the ticks that the account lacks, whichever is less.
func (a *Account) CatchUp(now int64, ticks Calendar) int64 {
	if a.NextAt == 0 || now < a.NextAt {
		return 0
	}
	added, next := a.due(now, ticks), ticks.After(a.NextAt, now)
	a.begin()
	add(&a.Credited, added)
	atomic.StoreInt64(&a.NextAt, next)
	a.end()
	return added
}

// due is what the ticks up to now bring.
func (a *Account) due(now int64, ticks Calendar) int64 {
	room := a.room()
	if room == 0 {
		return 0
	}
	lacking := (room + a.Refill.Amount - 1) / a.Refill.Amount
	return a.fill(int64(ticks.Count(a.NextAt, now+1, int(lacking))))
}

// SetRefill replaces the refill, and its next tick.
func (a *Account) SetRefill(r Refill, next int64) {
	a.begin()
	atomic.StoreInt64(&a.Refill.Amount, r.Amount)
	atomic.StoreInt64(&a.Refill.Max, r.Max)
	atomic.StoreInt64(&a.NextAt, next)
	a.end()
}

// AvailableAt is what is available at a time, with what the ticks up to then bring. ticks is nil if
// there are none. It sees the account between two changes and changes nothing.
func (a *Account) AvailableAt(now int64, ticks Calendar) int64 {
	for {
		version := atomic.LoadUint32(&a.version)
		seen := Account{
			Credited: atomic.LoadInt64(&a.Credited), Spent: atomic.LoadInt64(&a.Spent), Reserved: atomic.LoadInt64(&a.Reserved), NextAt: atomic.LoadInt64(&a.NextAt),
			Refill: Refill{Amount: atomic.LoadInt64(&a.Refill.Amount), Max: atomic.LoadInt64(&a.Refill.Max)},
		}
		if version%2 == 1 || atomic.LoadUint32(&a.version) != version {
			runtime.Gosched()
			continue
		}
		if ticks != nil && seen.NextAt != 0 && now >= seen.NextAt {
			seen.Credited += seen.due(now, ticks)
		}
		return seen.Available()
	}
}

// begin and end enclose a change of several fields, add stores a sum.
func (a *Account) begin() { atomic.AddUint32(&a.version, 1) }
func (a *Account) end()   { atomic.AddUint32(&a.version, 1) }

func add(to *int64, n int64) { atomic.StoreInt64(to, *to+n) }
