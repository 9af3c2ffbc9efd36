package budget

import (
	"iter"

	"github.com/faisca/fila/engine/internal/directory"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// Accounts is all budgets of an engine. One goroutine uses it; others have a View. All accounts are
// in memory. Refills have no timer here: an account catches up with its ticks when a call looks at
// it, so a million accounts cost nothing when their month begins.
type Accounts struct {
	byName    *directory.Directory[Account] // views look accounts up as well
	list      intrusive.Roster[Account]
	version   uint64 // incremented when an account is added or removed: see Find
	calendars credit.Calendars
	dirty     []*Account // have changed since the last cut
	scratch   []byte     // for their records
	entries   []Entry    // scratch for changes
	made      uint64     // accounts made since the reset
	recent    recent.Table[movementKey, movement]
	days      ledger.Days // of which the store may have entries
}

// Moment is when something happens to an account.
type Moment struct {
	Now      int64  // Unix nanoseconds; must not decrease
	Calendar int64  // the same by the system clock: refills up to it count; 0: none is added, since nothing can be written
	Batch    uint64 // number of the batch that the change is in
}

// Change is what follows from a call.
type Change struct {
	Entries  []Entry // go into the ledger in this batch; valid until the next call
	Stored   bool    // the record has changed: the batch is synced
	Refilled bool    // ticks were computed, which is work
	Freed    bool    // more is covered than before: what waits for credits is looked at
	Drained  bool    // less is covered than before
	Low      bool    // the balance has fallen below its bound
}

// Entry is a record of storage.Ledger.
type Entry struct{ Key, Value []byte }

// change returns a change without anything.
func (t *Accounts) change() Change { return Change{Entries: t.entries[:0]} }

// Reset forgets all accounts. What was found of them before must be looked up again.
func (t *Accounts) Reset() {
	*t = Accounts{version: t.version + 1, byName: directory.New(func(a *Account) string { return a.name })}
}

// Recover begins a recovery, which calls Restore for each account. days are those of the ledger. Look-ups that may
// not have seen the batch are stale.
func (t *Accounts) Recover(days ledger.Days, batch uint64) {
	t.days, t.recent.Dropped = days, batch
}

// Restore adds the account of a record. An error says that the ticks of its refill cannot be read: the account is
// there, and is refilled when it has been set again.
func (t *Accounts) Restore(name string, rec *storage.Budget) (err error) {
	a := &Account{name: name, made: rec.Made, low: rec.Low, createdAt: rec.CreatedAt, lastAt: rec.LastAt, refuse: rec.Refuse, detail: rec.Detail}
	if rec.UseCount > 0 {
		a.use = &use{at: rec.UseAt, amount: rec.UseAmount, count: rec.UseCount}
	}
	a.sums = credit.Account{Credited: rec.Credited, Spent: rec.Spent, Debt: rec.Debt, Refill: credit.Refill{Amount: rec.Refill, Max: rec.RefillMax}, NextAt: rec.NextAt}
	if rec.Refill > 0 {
		a.calendar.Store(t.calendars.Take(credit.Ticks{Expression: rec.Expression, TimeZone: rec.Zone}, func() (ticks *schedule.Schedule) {
			ticks, err = schedule.Stored(rec.Expression, rec.Zone)
			return ticks
		}))
	}
	t.add(a)
	return err
}

func (t *Accounts) add(a *Account) {
	t.version++
	t.byName.Add(a)
	a.seq = t.list.Add(a)
}

// Len returns the number of accounts.
func (t *Accounts) Len() int { return t.byName.Len() }

// Get returns the account of a name, or nil.
func (t *Accounts) Get(name string) *Account { return t.byName.Get(name) }

// Found is the accounts of some names as they were found.
type Found struct {
	accounts []*Account
	version  uint64 // of the table for which they hold
}

// Find returns the accounts of names, in their order; nil for one that does not exist. It looks them up if an account
// was added or removed since f.
func (t *Accounts) Find(f *Found, names []string) []*Account {
	if f.version != t.version {
		f.accounts, f.version = make([]*Account, len(names)), t.version
		for i, name := range names {
			f.accounts[i] = t.byName.Get(name)
		}
	}
	return f.accounts
}

// Walk visits up to count accounts after a cursor, 0 being the beginning, in the order of their creation, and returns
// the next cursor, 0 at the end. An account that exists throughout a listing is visited exactly once.
func (t *Accounts) Walk(cursor uint64, count int, visit func(*Account)) (next uint64) {
	return t.list.Walk(cursor, count, visit)
}

// All iterates over the accounts in the order of their creation.
func (t *Accounts) All() iter.Seq[*Account] { return t.list.All() }

// Settings are the settings of an account.
type Settings struct {
	Debt   int64  // how far below zero it may be taken, 0 to credit.Max
	Low    *int64 // the balance below which it is low, 0 to credit.Max; nil: none
	Refill *Refill
	Refuse bool // an enqueue that is not covered is refused
	Detail bool // each settlement has an entry of its own in the history
}

// Refill is the allowance of an account: NewRefill makes one.
type Refill struct {
	credit.Refill
	ticks    credit.Ticks
	schedule *schedule.Schedule
}

// NewRefill returns a refill by an amount at each tick of an expression in a zone, up to a
// balance. It runs on any goroutine. The error is that of the expression or zone.
func NewRefill(amount int64, expression, zone string, most int64) (*Refill, error) {
	s, err := schedule.Parse(expression, zone)
	if err != nil {
		return nil, err
	}
	return &Refill{credit.Refill{Amount: amount, Max: most}, credit.Ticks{Expression: expression, TimeZone: zone}, s}, nil
}

// Set creates the account of a name, or replaces its settings. Its sums stay as they are, but for
// an account that had no refill and gets one: it is filled at once. A refill with the same
// expression and zone keeps its next tick. The number of a new account is above base, below which are those of
// before the last reset.
func (t *Accounts) Set(name string, s *Settings, base uint64, w Moment) (*Account, Change) {
	ch := t.change()
	a := t.byName.Get(name)
	if a == nil {
		t.made++
		a = &Account{name: name, made: base + t.made, createdAt: w.Now}
		t.add(a)
		a.freed(w, &ch)
	} else {
		t.catchUp(a, w, &ch)
	}
	if s.Debt != a.sums.Debt {
		a.freed(w, &ch)
		ch.Drained = true
	}
	a.sums.Debt, a.low, a.refuse, a.detail = s.Debt, 0, s.Refuse, s.Detail
	if s.Low != nil {
		a.low = *s.Low + 1
	}
	t.setRefill(a, s.Refill, w, &ch)
	t.touch(a, &ch)
	return a, ch
}

// setRefill replaces the refill of an account.
func (t *Accounts) setRefill(a *Account, r *Refill, w Moment, ch *Change) {
	old := a.calendar.Load()
	if r == nil {
		t.calendars.Return(old)
		a.sums.SetRefill(credit.Refill{}, 0)
		a.calendar.Store(nil)
		return
	}
	if old.Schedule() != nil && old.Ticks == r.ticks {
		a.sums.SetRefill(r.Refill, a.sums.NextAt)
		return
	}
	ticks := t.calendars.Take(r.ticks, func() *schedule.Schedule { return r.schedule })
	t.calendars.Return(old)
	if ticks.Schedule() == nil { // another account has it from a store of another version
		ticks.Repair(r.schedule)
	}
	a.sums.SetRefill(r.Refill, ticks.Schedule().First(w.Calendar))
	a.calendar.Store(ticks)
	if old == nil {
		if added := a.sums.Fill(); added > 0 {
			t.enter(a, ledger.Refill, added, "", "", w, ch)
		}
	}
}

// Delete removes an account of which nothing is reserved. Its entries and ids do not count for a later account of the
// name. The caller deletes its record.
func (t *Accounts) Delete(a *Account) {
	t.version++
	t.byName.Remove(a.name)
	t.list.Remove(a.seq)
	t.calendars.Return(a.calendar.Load())
	a.gone = true
}

// touch has the record of an account written with the open batch.
func (t *Accounts) touch(a *Account, ch *Change) {
	ch.Stored = true
	if !a.dirty {
		a.dirty = true
		t.dirty = append(t.dirty, a)
	}
}

// Records hands the records of storage.Budgets to put that have changed since the last call. They are valid during
// the call of put.
func (t *Accounts) Records(put func(name string, record []byte)) {
	for i, a := range t.dirty {
		t.dirty[i] = nil
		if a.dirty = false; !a.gone {
			rec := a.record()
			t.scratch = rec.Append(t.scratch[:0])
			put(a.name, t.scratch)
		}
	}
	t.dirty = t.dirty[:0]
}

// Expire drops ids of recent batches, those up to committed and most of them, and returns how many, which is work; and
// the days of the ledger that are no longer kept, as a range of keys: nil if there are none.
func (t *Accounts) Expire(now int64, committed uint64, keep, most int) (ids int, from, to []byte) {
	ids = t.recent.Prune(now, committed, most)
	if kept := t.days.Kept(now, keep); kept != t.days {
		from, to = storage.AppendLedgerDay(nil, t.days.First), storage.AppendLedgerDay(nil, kept.First)
		t.days = kept
	}
	return ids, from, to
}

// DropAt is when the first day of the ledger is no longer kept; ok is false if there is none.
func (t *Accounts) DropAt(keep int) (at int64, ok bool) {
	return t.days.DropAt(keep), !t.days.Empty()
}

// Report takes the number of an invariant and a description of what breaks it.
type Report func(no int, format string, args ...any)

// Check verifies the invariants 28 and 29. reserved is what the leases have reserved, by the name of the account.
func (t *Accounts) Check(reserved map[string]int64, bad Report) {
	listed, dirty, refilled := 0, 0, 0
	for a := range t.list.All() {
		listed++
		if t.byName.Get(a.name) != a || a.gone {
			bad(28, "budget %q is listed and not found under its name", a.name)
		}
		if a.dirty {
			dirty++
		}
		if a.calendar.Load() != nil {
			refilled++
		}
		if a.sums.Refill.Amount > 0 != (a.calendar.Load() != nil) {
			bad(28, "budget %q has a refill of %d, and a calendar: %v", a.name, a.sums.Refill.Amount, a.calendar.Load() != nil)
		}
		if !t.days.Empty() && a.lastAt > 0 && storage.LedgerDay(a.lastAt) >= t.days.End {
			bad(28, "budget %q has an entry after the days of the ledger", a.name)
		}
		if a.sums.Reserved != reserved[a.name] {
			bad(29, "budget %q has reserved %d, its leases %d", a.name, a.sums.Reserved, reserved[a.name])
		}
	}
	marked := 0
	for _, a := range t.dirty {
		if !a.gone {
			marked++
		}
	}
	if listed != t.byName.Len() || dirty != marked {
		bad(28, "%d budgets are listed, %d found; %d are dirty, %d to be written", listed, t.byName.Len(), dirty, marked)
	}
	if accounts, _ := t.calendars.Taken(); accounts != refilled {
		bad(28, "%d budgets have a calendar, %d a refill", accounts, refilled)
	}
}
