package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/faisca/fila/engine/internal/directory"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// A budget is an account of prepaid credits under a name. internal/credit has its arithmetic;
// this file is the accounts in memory, their records, and the commands that move them.
//
// All accounts are in memory. What moves one changes its sums and adds an entry to the ledger
// in the same batch; its record follows once, when the batch is cut, however often it has moved
// (writeAccounts). Refills have no timer: an account catches up with its ticks when a command
// looks at it, so a million budgets cost nothing when their month begins. Hooks look at accounts
// from other goroutines (hookView.Budget), and compute the refills that are due by themselves.
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
	low       int64                         // one more than the balance below which it is low; 0: none is set
	calendar  atomic.Pointer[credit.Shared] // ticks of the refill; nil: there is none
	createdAt int64
	lastAt    int64       // of its newest entry in the ledger, Unix nanoseconds; 0: there is none
	use       *use        // settlements without an entry; nil: there are none
	awaited   *budgetGate // keys wait for it; nil: none does
	freedIn   uint64      // number of the batch in which it has last got more available
	refuse    bool        // an enqueue that is not covered is refused
	detail    bool        // each settlement has an entry of its own
	dirty     bool        // it is in accountTable.dirty
	dry       bool        // EventBudgetEmpty was emitted, and no credits have come in since
	gone      bool        // it was deleted
}

// accountTable is the component of budgets.
type accountTable struct {
	byName    *directory.Directory[account] // connections and jobs look budgets up as well
	list      intrusive.Roster[account]
	version   uint64 // incremented when a budget is added or removed: see accountsOf
	calendars credit.Calendars
	dirty     []*account // have changed since the last cut
	scratch   []byte     // for their records
	made      uint64     // budgets made since the start or recovery
	recent    recent.Table[movementKey, movement]
	days      ledger.Days // of which the store may have entries

	timers intrusive.Heap[*budgetGate] // of budgets that keys wait for and that have a next refill, see budget_gate.go
}

func (s *accountTable) reset() {
	*s = accountTable{version: s.version + 1, byName: directory.New(func(a *account) string { return a.name })}
}

// next returns when the first day of the ledger is dropped, or a refill is due that keys wait for.
func (s *accountTable) next(c *core) int64 {
	at := int64(never)
	if !s.days.Empty() {
		at = s.days.DropAt(c.cfg.HistoryDays)
	}
	if l, ok := s.timers.First(); ok {
		at = min(at, c.onCalendar(l.wakeAt))
	}
	return at
}

// expire drops ids of recent batches, and the days of the ledger that are no longer kept, and
// refills the budgets that keys wait for.
func (s *accountTable) expire(c *core) {
	c.expireRefills()
	c.spend(s.recent.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
	kept := s.days.Kept(c.now, c.cfg.HistoryDays)
	if kept == s.days {
		return
	}
	c.out.batch.DeleteRange(storage.Ledger, storage.AppendLedgerDay(nil, s.days.First), storage.AppendLedgerDay(nil, kept.First))
	c.setLedgerDays(kept)
}

// setLedgerDays publishes the days of the ledger to connections that look ids up, and after a
// recovery the budgets.
func (c *core) setLedgerDays(days ledger.Days) {
	c.accounts.days = days
	next := *c.out.snapshot
	next.ledgerDays, next.budgets = days, c.accounts.byName
	c.out.snapshot = &next
}

// check verifies invariant 28.
func (s *accountTable) check(c *core, bad report) {
	listed, dirty, refilled := 0, 0, 0
	for a := range s.list.All() {
		listed++
		if s.byName.Get(a.name) != a || a.gone {
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
	if listed != s.byName.Len() || dirty != marked {
		bad(28, "%d budgets are listed, %d found; %d are dirty, %d to be written", listed, s.byName.Len(), dirty, marked)
	}
	if accounts, _ := s.calendars.Taken(); accounts != refilled {
		bad(28, "%d budgets have a calendar, %d a refill", accounts, refilled)
	}
	s.checkReserved(c, bad)
}

// checkReserved verifies that a budget has reserved the charges of the leases that name it (29).
func (s *accountTable) checkReserved(c *core, bad report) {
	reserved := map[string]int64{}
	for _, m := range c.leases.byID {
		names, charge := m.budgets()
		for i, name := range names {
			if m.reserved&(1<<i) != 0 {
				reserved[name] += charge
			} else if charge > 0 && !m.key.queue.isDLQ() && !m.recovered && !m.retrying {
				bad(29, "the lease of %s has reserved nothing of budget %q", m.id, name)
			}
		}
	}
	for a := range s.list.All() {
		if a.sums.Reserved != reserved[a.name] {
			bad(29, "budget %q has reserved %d, its leases %d", a.name, a.sums.Reserved, reserved[a.name])
		}
	}
}

func (s *accountTable) add(a *account) {
	s.version++
	s.byName.Add(a)
	a.seq = s.list.Add(a)
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
			c.out.key = append(c.out.key[:0], a.name...)
			c.accounts.scratch = rec.Append(c.accounts.scratch[:0])
			c.out.batch.Put(storage.Budgets, c.out.key, c.accounts.scratch)
		}
	}
	c.accounts.dirty = c.accounts.dirty[:0]
}

func (a *account) record() storage.Budget {
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

// catchUp adds to an account what the ticks of its refill up to now have brought. While the
// store takes no writes, or is full, the account stays as it was.
func (c *core) catchUp(a *account) {
	ticks := a.calendar.Load().Schedule()
	if ticks == nil || a.sums.NextAt == 0 || c.calendar() < a.sums.NextAt || c.health.failed != nil || c.health.full != nil {
		return
	}
	c.spend(4) // the calendar and two records
	if added := a.sums.CatchUp(c.calendar(), ticks); added > 0 {
		c.enter(a, ledger.Refill, added, "", "")
	}
	c.touch(a)
}

// cover is the greatest charge that an account covers now, with the refills that are due. It changes nothing: a
// refill is written when credits are reserved, when a key begins to wait, or by its timer.
func (c *core) cover(a *account) int64 {
	if s := &a.sums; s.NextAt != 0 && c.calendar() >= s.NextAt && c.health.failed == nil && c.health.full == nil {
		if ticks := a.calendar.Load().Schedule(); ticks != nil {
			return max(s.AvailableAt(c.calendar(), ticks)+s.Debt, 0)
		}
	}
	return a.sums.Cover()
}

// covers reports whether an account covers a charge now.
func (c *core) covers(a *account, charge int64) bool { return charge == 0 || charge <= c.cover(a) }

// accountNamed returns the account of a name, up to date with its refill, or ErrNoBudget.
func (c *core) accountNamed(name string) (*account, error) {
	a := c.accounts.byName.Get(name)
	if a == nil {
		return nil, noBudget(name)
	}
	c.catchUp(a)
	return a, nil
}

// BudgetOptions are the settings of a budget.
type BudgetOptions struct {
	Debt   int64  // how far below zero it may be taken, 0 to credit.Max
	Low    *int64 // the balance below which it is low, 0 to credit.Max; nil: none
	Refill *Refill
	Refuse bool // an enqueue that is not covered is refused
	Detail bool // each settlement has an entry of its own in the history
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
	a := s.byName.Get(name)
	made := a == nil
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a budget has at least one byte", ErrInvalid)
	case len(name) > c.cfg.Limits.Key:
		return fmt.Errorf("%w: name of %d bytes, the limit is %d", ErrTooBig, len(name), c.cfg.Limits.Key)
	case a == nil && s.byName.Len() >= c.cfg.Limits.Budgets:
		return fmt.Errorf("%w: the limit is %s, set limits.budgets to allow more", ErrInvalid, amount(c.cfg.Limits.Budgets, "budget"))
	case a == nil:
		s.made++
		a = &account{name: name, made: c.fenceBase() + s.made, createdAt: c.now}
		s.add(a)
		c.freed(a)
	default:
		c.catchUp(a)
	}
	if o.Debt != a.sums.Debt {
		c.freed(a)
		c.order.Drained(a.name)
	}
	a.sums.Debt, a.low, a.refuse, a.detail = o.Debt, 0, o.Refuse, o.Detail
	if o.Low != nil {
		a.low = *o.Low + 1
	}
	c.setRefill(a, o.Refill)
	c.touch(a)
	if made {
		c.order.Changed(name) // messages may have named it before
	} else if a.awaited != nil {
		c.armRefill(a.awaited)
	}
	return nil
}

// setRefill replaces the refill of an account.
func (c *core) setRefill(a *account, r *Refill) {
	old := a.calendar.Load()
	if r == nil {
		c.accounts.calendars.Return(old)
		a.sums.SetRefill(credit.Refill{}, 0)
		a.calendar.Store(nil)
		return
	}
	if old.Schedule() != nil && old.Ticks == r.ticks {
		a.sums.SetRefill(r.Refill, a.sums.NextAt)
		return
	}
	ticks := c.accounts.calendars.Take(r.ticks, func() *schedule.Schedule { return r.schedule })
	c.accounts.calendars.Return(old)
	if ticks.Schedule() == nil { // another account has it from a store of another version
		ticks.Repair(r.schedule)
	}
	a.sums.SetRefill(r.Refill, ticks.Schedule().First(c.calendar()))
	a.calendar.Store(ticks)
	if old == nil {
		if added := a.sums.Fill(); added > 0 {
			c.enter(a, ledger.Refill, added, "", "")
		}
	}
}

// DeleteBudget removes a budget and reports whether it existed. Its history and ids do not
// count for a later budget of that name. Messages that name it are held until there is one again.
//
// Errors: ErrMisconf, ErrInvalid while leases have reserved credits of it.
func (tx *Tx) DeleteBudget(name string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	a := c.accounts.byName.Get(name)
	if a == nil {
		return false, nil
	}
	if r := a.sums.Reserved; r > 0 {
		return false, fmt.Errorf("%w: leases have reserved %s of budget %.80q; delete it when they have ended", ErrInvalid, amount(r, "credit"), name)
	}
	c.accounts.version++
	c.accounts.byName.Remove(name)
	c.order.Changed(name)
	c.accounts.list.Remove(a.seq)
	c.accounts.calendars.Return(a.calendar.Load())
	a.gone = true
	c.out.batch.Delete(storage.Budgets, []byte(name))
	c.out.sync = true
	return true, nil
}

// CheckBudget verifies a record of storage.Budgets.
func CheckBudget(key, value []byte) error {
	if len(key) == 0 {
		return errors.New("a budget without a name")
	}
	return new(storage.Budget).Decode(value)
}

// recoverAccounts reads the budgets, and finds the days of their ledger. Refills up to now are
// added when a command looks at them.
func (c *core) recoverAccounts() error {
	s := &c.accounts
	s.recent.Dropped = c.out.batchNo // look-ups from before the recovery are invalid
	err := c.scan(storage.Budgets, nil, func(k, v []byte) error {
		var rec storage.Budget
		if err := rec.Decode(v); err != nil {
			return fmt.Errorf("budget %q: %w", k, err)
		}
		a := &account{name: string(k), made: rec.Made, low: rec.Low, createdAt: rec.CreatedAt, lastAt: rec.LastAt, refuse: rec.Refuse, detail: rec.Detail}
		if rec.UseCount > 0 {
			a.use = &use{at: rec.UseAt, amount: rec.UseAmount, count: rec.UseCount}
		}
		a.sums = credit.Account{Credited: rec.Credited, Spent: rec.Spent, Debt: rec.Debt, Refill: credit.Refill{Amount: rec.Refill, Max: rec.RefillMax}, NextAt: rec.NextAt}
		if rec.Refill > 0 {
			a.calendar.Store(s.calendars.Take(credit.Ticks{Expression: rec.Expression, TimeZone: rec.Zone}, func() *schedule.Schedule {
				ticks, err := schedule.Stored(rec.Expression, rec.Zone)
				if err != nil {
					c.cfg.Log.Error().Err(err).Str("budget", a.name).Msg("refill disabled: invalid schedule, set the budget again")
				}
				return ticks
			}))
		}
		s.add(a)
		return nil
	})
	if err != nil {
		return err
	}
	days, err := ledger.Recorded(c.store)
	c.setLedgerDays(days)
	return err
}
