package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/internal/recent"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// A budget is an account of prepaid credits under a name. internal/credit has its arithmetic;
// this file is the accounts in memory, their records, and the commands that move them.
//
// All accounts are in memory. What moves one changes its sums and adds an entry to the ledger
// in the same batch; its record follows once, when the batch is cut, however often it has moved
// (writeAccounts). Refills have no timer: an account catches up with its ticks when a command
// looks at it, so a million budgets cost nothing when their month begins.
//
// A movement with an id is done once, as an enqueue with a deduplication id (dedup.go): the
// connection looks the id up in the store, accountTable.recent has the ids that this may have
// missed, and where both may, the look-up is repeated off the loop.

// account is a budget in memory. With a name of 32 bytes and its place in the table it takes at
// most 256 bytes, see TestAMillionBudgetsTakeAtMost256BytesEach.
type account struct {
	name      string
	made      uint64 // its number, never reused: it tells two budgets of one name apart
	seq       uint64 // its number in the roster
	sums      credit.Account
	low       int64          // one more than the balance below which it is low; 0: none is set
	calendar  *credit.Shared // ticks of the refill; nil: there is none
	createdAt int64
	lastAt    int64 // of its newest entry in the ledger, Unix nanoseconds; 0: there is none
	dirty     bool  // it is in accountTable.dirty
	gone      bool  // it was deleted
}

// accountTable is the component of budgets.
type accountTable struct {
	byName    map[string]*account
	list      roster[account]
	calendars credit.Calendars
	dirty     []*account // have changed since the last cut
	made      uint64     // budgets made since the start or recovery
	recent    recent.Table[movementKey, movement]
	days      ledger.Days // of which the store may have entries
}

// movementKey is an id under which an account was moved.
type movementKey struct {
	made uint64
	id   string
}

// movement is what was done under an id.
type movement struct {
	kind            ledger.Kind
	amount, balance int64
}

func (s *accountTable) reset() {
	*s = accountTable{byName: map[string]*account{}}
}

// next returns when the first day of the ledger is dropped.
func (s *accountTable) next(c *core) int64 {
	if s.days.Empty() {
		return never
	}
	return s.days.DropAt(c.cfg.HistoryDays)
}

// expire drops ids of recent batches, and the days of the ledger that are no longer kept.
func (s *accountTable) expire(c *core) {
	c.spend(s.recent.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
	kept := s.days.Kept(c.now, c.cfg.HistoryDays)
	if kept == s.days {
		return
	}
	c.out.batch.DeleteRange(storage.Ledger, storage.AppendLedgerDay(nil, s.days.First), storage.AppendLedgerDay(nil, kept.First))
	c.setLedgerDays(kept)
}

// setLedgerDays publishes the days of the ledger to connections that look ids up.
func (c *core) setLedgerDays(days ledger.Days) {
	c.accounts.days = days
	next := *c.out.snapshot
	next.ledgerDays = days
	c.out.snapshot = &next
}

// check verifies invariant 28.
func (s *accountTable) check(c *core, bad report) {
	listed, dirty, refilled := 0, 0, 0
	for a := range s.list.all() {
		listed++
		if s.byName[a.name] != a || a.gone {
			bad(28, "budget %q is listed and not found under its name", a.name)
		}
		if a.dirty {
			dirty++
		}
		if a.calendar != nil {
			refilled++
		}
		if a.sums.Refill.Amount > 0 != (a.calendar != nil) {
			bad(28, "budget %q has a refill of %d, and a calendar: %v", a.name, a.sums.Refill.Amount, a.calendar != nil)
		}
		if !s.days.Empty() && a.lastAt > 0 && storage.LedgerDay(a.lastAt) >= s.days.End {
			bad(28, "budget %q has an entry after the days of the ledger", a.name)
		}
	}
	marked := 0
	for _, a := range s.dirty {
		if !a.gone {
			marked++
		}
	}
	if listed != len(s.byName) || dirty != marked {
		bad(28, "%d budgets are listed, %d found; %d are dirty, %d to be written", listed, len(s.byName), dirty, marked)
	}
	if accounts, _ := s.calendars.Taken(); accounts != refilled {
		bad(28, "%d budgets have a calendar, %d a refill", accounts, refilled)
	}
}

// add adds an account.
func (s *accountTable) add(a *account) {
	s.byName[a.name] = a
	a.seq = s.list.add(a)
}

// touch has the record of an account written with the open batch.
func (c *core) touch(a *account) {
	c.out.sync = true
	if !a.dirty {
		a.dirty = true
		c.accounts.dirty = append(c.accounts.dirty, a)
	}
}

// writeAccounts writes the records of the accounts that have changed since the last cut.
func (c *core) writeAccounts() {
	for i, a := range c.accounts.dirty {
		c.accounts.dirty[i] = nil
		if a.dirty = false; !a.gone {
			rec := a.record()
			c.out.batch.Put(storage.Budgets, []byte(a.name), rec.Append(nil))
		}
	}
	c.accounts.dirty = c.accounts.dirty[:0]
}

func (a *account) record() storage.Budget {
	s := &a.sums
	rec := storage.Budget{
		Made: a.made, CreatedAt: a.createdAt, Credited: s.Credited, Spent: s.Spent, Debt: s.Debt, Low: a.low,
		Refill: s.Refill.Amount, RefillMax: s.Refill.Max, NextAt: s.NextAt, LastAt: a.lastAt,
	}
	if a.calendar != nil {
		rec.Expression, rec.Zone = a.calendar.Expression, a.calendar.TimeZone
	}
	return rec
}

// catchUp adds to an account what the ticks of its refill up to now have brought. While the
// store takes no writes, or is full, the account stays as it was.
func (c *core) catchUp(a *account) {
	if a.calendar == nil || a.calendar.Schedule == nil || a.sums.NextAt == 0 || c.now < a.sums.NextAt || c.health.failed != nil || c.health.full != nil {
		return
	}
	if added := a.sums.CatchUp(c.now, a.calendar); added > 0 {
		c.enter(a, ledger.Refill, added, "", "")
	}
	c.touch(a)
}

// enter adds an entry to the ledger for a movement that the sums have made, and has the record
// of the account written.
func (c *core) enter(a *account, kind ledger.Kind, amount int64, id, note string) {
	a.lastAt = max(c.now, a.lastAt+1)
	e := storage.LedgerEntry{Made: a.made, Kind: uint32(kind), Amount: amount, Balance: a.sums.Balance(), ID: id, Note: note}
	c.out.batch.Put(storage.Ledger, storage.AppendLedgerKey(nil, a.name, a.lastAt), e.Append(nil))
	if id != "" {
		e.ID, e.Note = "", ""
		c.out.batch.Put(storage.Ledger, storage.AppendLedgerIDKey(nil, storage.LedgerDay(a.lastAt), a.name, id), e.Append(nil))
		c.accounts.recent.Add(movementKey{a.made, id}, movement{kind, amount, e.Balance}, c.out.batchNo, c.now)
	}
	if days := c.accounts.days.With(a.lastAt); days != c.accounts.days {
		c.setLedgerDays(days)
	}
	c.touch(a)
	if before := a.sums.Balance() - amount; a.low > 0 && before >= a.low-1 && a.sums.Balance() < a.low-1 {
		c.emit(Event{Kind: EventBudgetLow, Budget: a.name, Balance: a.sums.Balance(), Available: a.sums.Available()})
	}
}

// accountNamed returns the account of a name, up to date with its refill, or ErrNoBudget.
func (c *core) accountNamed(name string) (*account, error) {
	a := c.accounts.byName[name]
	if a == nil {
		return nil, fmt.Errorf("%w %.80q; create it with FILA.BUDGET SET", ErrNoBudget, name)
	}
	c.catchUp(a)
	return a, nil
}

// BudgetOptions are the settings of a budget.
type BudgetOptions struct {
	Debt   int64  // how far below zero it may be taken, 0 to credit.Max
	Low    *int64 // the balance below which it is low, 0 to credit.Max; nil: none
	Refill *Refill
}

// Refill is the allowance of a budget: NewRefill makes one.
type Refill struct {
	credit.Refill
	ticks    credit.Ticks
	schedule *schedule.Schedule
}

// NewRefill returns a refill by an amount at each tick of an expression in a zone, up to a
// balance. It runs on any goroutine. Errors: ErrInvalid for an expression or zone.
func NewRefill(amount int64, expression, zone string, most int64) (*Refill, error) {
	s, err := schedule.Parse(expression, zone)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return &Refill{credit.Refill{Amount: amount, Max: most}, credit.Ticks{Expression: expression, TimeZone: zone}, s}, nil
}

// SetBudget creates a budget, or replaces the settings of one. Its sums stay as they are, but
// for a budget that had no refill and gets one: it is filled at once. A refill with the same
// expression and zone keeps its next tick. The settings are durable when the reply leaves.
//
// Errors: ErrMisconf, ErrInvalid for an empty name or one budget too many, ErrTooBig.
func (tx *Tx) SetBudget(name string, o *BudgetOptions) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	s := &c.accounts
	a := s.byName[name]
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a budget has at least one byte", ErrInvalid)
	case len(name) > c.cfg.Limits.Key:
		return fmt.Errorf("%w: name of %d bytes, the limit is %d", ErrTooBig, len(name), c.cfg.Limits.Key)
	case a == nil && len(s.byName) >= c.cfg.Limits.Budgets:
		return fmt.Errorf("%w: the limit is %s, set limits.budgets to allow more", ErrInvalid, amount(c.cfg.Limits.Budgets, "budget"))
	case a == nil:
		s.made++
		a = &account{name: name, made: c.fenceBase() + s.made, createdAt: c.now}
		s.add(a)
	default:
		c.catchUp(a)
	}
	a.sums.Debt, a.low = o.Debt, 0
	if o.Low != nil {
		a.low = *o.Low + 1
	}
	c.setRefill(a, o.Refill)
	c.touch(a)
	return nil
}

// setRefill replaces the refill of an account.
func (c *core) setRefill(a *account, r *Refill) {
	old := a.calendar
	if r == nil {
		c.accounts.calendars.Return(old)
		a.calendar, a.sums.Refill, a.sums.NextAt = nil, credit.Refill{}, 0
		return
	}
	if a.sums.Refill = r.Refill; old != nil && old.Ticks == r.ticks && old.Schedule != nil {
		return
	}
	a.calendar = c.accounts.calendars.Take(r.ticks, func() *schedule.Schedule { return r.schedule })
	c.accounts.calendars.Return(old)
	if a.calendar.Schedule == nil { // another account has it from a store of another version
		a.calendar.Schedule = r.schedule
	}
	a.sums.NextAt = a.calendar.First(c.now)
	if old == nil {
		if added := a.sums.Fill(); added > 0 {
			c.enter(a, ledger.Refill, added, "", "")
		}
	}
}

// DeleteBudget removes a budget and reports whether it existed. Its history and ids do not
// count for a later budget of that name.
func (tx *Tx) DeleteBudget(name string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	a := c.accounts.byName[name]
	if a == nil {
		return false, nil
	}
	delete(c.accounts.byName, name)
	c.accounts.list.remove(a.seq)
	c.accounts.calendars.Return(a.calendar)
	a.gone = true
	c.out.batch.Delete(storage.Budgets, []byte(name))
	c.out.sync = true
	return true, nil
}

// BudgetMove is a request to credit or to charge a budget. Engine.PrepareMove comes before
// Tx.MoveBudget.
type BudgetMove struct {
	Name   string
	Amount int64  // 1 to credit.Max
	Charge bool   // take the amount instead of adding it
	Force  bool   // of a charge: also if it is not covered
	ID     string // does it once; "": none
	Note   string

	known movementView
}

// Bounds of the texts of a movement, in bytes.
const (
	MoveIDMax   = 512
	MoveNoteMax = 512
)

func (r *BudgetMove) kind() (ledger.Kind, int64) {
	if r.Charge {
		return ledger.Charge, -r.Amount
	}
	return ledger.Credit, r.Amount
}

// MoveBudget credits or charges a budget and returns its balance. A movement whose id is known
// changes nothing and returns the balance of the first time. It is durable when the reply
// leaves.
//
// Errors: ErrMisconf, ErrNoBudget, ErrCredit for a charge that is not covered, ErrInvalid for a
// balance out of bounds, or for an id that is known for something else.
func (tx *Tx) MoveBudget(req *BudgetMove) (balance int64, err error) {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return 0, err
	}
	a, err := c.accountNamed(req.Name)
	if err != nil {
		return 0, err
	}
	kind, change := req.kind()
	if req.ID != "" {
		was, found, err := c.movedUnder(a, req)
		switch {
		case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
			return 0, tx.lookAgain(req)
		case err != nil:
			return 0, err
		case found && (was.kind != kind || was.amount != change):
			return 0, fmt.Errorf("%w: ID %.80q is that of a %s of %d of budget %q; use another id", ErrInvalid, req.ID, was.kind, max(was.amount, -was.amount), req.Name)
		case found:
			return was.balance, nil
		}
	}
	if req.Charge {
		err = a.sums.Charge(req.Amount, req.Force)
	} else {
		err = a.sums.Credit(req.Amount)
	}
	switch {
	case errors.Is(err, credit.ErrNotCovered):
		return 0, fmt.Errorf("%w: budget %q has %d credits available and may be %d in debt, the charge is %d", ErrCredit, a.name, a.sums.Available(), a.sums.Debt, req.Amount)
	case err != nil:
		return 0, fmt.Errorf("%w: the balance of budget %q is %d, with %s %d it would be out of bounds", ErrInvalid, a.name, a.sums.Balance(), kind, req.Amount)
	}
	c.enter(a, kind, change, req.ID, req.Note)
	return a.sums.Balance(), nil
}
