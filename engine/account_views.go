package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// BudgetInfo describes a budget at one moment.
type BudgetInfo struct {
	Name               string
	Balance, Available int64
	Credited, Spent    int64
	Debt               int64
	Low                *int64 // nil: none is set
	Refill, Max        int64  // 0: there is no refill
	Expression, Zone   string
	NextAt             time.Time // of the refill; zero: there is none
	CreatedAt          time.Time
}

func (a *account) info() BudgetInfo {
	s := &a.sums
	i := BudgetInfo{
		Name: a.name, Balance: s.Balance(), Available: s.Available(), Credited: s.Credited, Spent: s.Spent, Debt: s.Debt,
		Refill: s.Refill.Amount, Max: s.Refill.Max, CreatedAt: unix(a.createdAt),
	}
	if low := a.low - 1; low >= 0 {
		i.Low = &low
	}
	if a.calendar != nil {
		i.Expression, i.Zone = a.calendar.Expression, a.calendar.TimeZone
	}
	if s.NextAt != 0 {
		i.NextAt = unix(s.NextAt)
	}
	return i
}

// Budget describes a budget; ok is false if there is none of that name.
func (tx *Tx) Budget(name string) (info BudgetInfo, ok bool) {
	a, err := tx.core.accountNamed(name)
	if err != nil {
		return BudgetInfo{}, false
	}
	return a.info(), true
}

// BudgetList is a request for a page of the budgets whose names match, in the order of their
// creation. Count is how many are looked at. A budget that exists throughout a listing is
// listed exactly once.
type BudgetList struct {
	Cursor uint64 // as the page before returned it; 0: the beginning
	Count  int
	Match  func(name string) bool

	next uint64
	left int
	list []BudgetInfo
}

// Budgets returns a page and the cursor of the next one, 0 at the end. A long page is read in
// several turns: each of its budgets is as of one of them.
func (tx *Tx) Budgets(req *BudgetList) (next uint64, list []BudgetInfo, err error) {
	const step = 16
	c := tx.core
	if req.left == 0 {
		req.next, req.left, req.list = req.Cursor, max(req.Count, 1), nil
	}
	for {
		n := min(step, req.left)
		req.next = c.accounts.list.walk(req.next, n, func(a *account) {
			c.catchUp(a)
			if req.Match(a.name) {
				req.list = append(req.list, a.info())
			}
		})
		if req.left -= n; req.left == 0 || req.next == 0 {
			req.left = 0
			return req.next, req.list, nil
		}
		if c.spend(n); !tx.more() {
			return 0, nil, tx.yield()
		}
	}
}

// CheckBudget verifies a record of storage.Budgets.
func CheckBudget(key, value []byte) error {
	if len(key) == 0 {
		return errors.New("a budget without a name")
	}
	return new(storage.Budget).Decode(value)
}

// CheckLedger verifies a record of storage.Ledger, whose budget need not exist.
func CheckLedger(key, value []byte) error {
	if _, err := storage.ParseLedgerKey(key); err != nil {
		return err
	}
	return new(storage.LedgerEntry).Decode(value)
}

// BudgetHistory is a request for a page of what has moved a budget.
type BudgetHistory struct {
	Name   string
	Before int64 // as the page before returned it, Unix nanoseconds; 0: the newest
	Count  int

	page *historyPage
}

// historyPage is the off-loop job that reads a page.
type historyPage struct {
	task   *Task
	days   ledger.Days
	name   string
	made   uint64
	before int64
	count  int

	done bool
	list []ledger.Entry
	next int64
	err  error
}

func (p *historyPage) do(store Store) {
	p.list, p.next, p.err = ledger.Page(store, p.days, p.name, p.made, p.before, p.count)
}

// Apply continues the task.
func (p *historyPage) Apply(tx *Tx) error {
	if p.done = true; p.task.wait != nil {
		p.task.resume(tx.core)
	}
	return nil
}

// BudgetHistory returns what has moved a budget, the newest first, and what to continue with, 0
// at the end. The page is read off the loop, and the task parks meanwhile (ErrWouldBlock). In a
// transaction it is refused. Errors: ErrNoBudget, errors of the store.
func (tx *Tx) BudgetHistory(req *BudgetHistory) (next int64, list []ledger.Entry, err error) {
	c := tx.core
	a, err := c.accountNamed(req.Name)
	switch {
	case err != nil:
		return 0, nil, err
	case tx.atomic:
		return 0, nil, errWaits
	}
	if p := req.page; p != nil && p.done && p.made == a.made {
		req.page = nil
		return p.next, p.list, p.err
	}
	req.page = &historyPage{
		task: tx.task, days: c.accounts.days.Kept(c.now, c.cfg.HistoryDays), name: a.name, made: a.made, before: cmp.Or(req.Before, math.MaxInt64), count: max(req.Count, 1),
	}
	c.out.jobs = append(c.out.jobs, req.page)
	return 0, nil, tx.await()
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
		a := &account{name: string(k), made: rec.Made, low: rec.Low, createdAt: rec.CreatedAt, lastAt: rec.LastAt}
		a.sums = credit.Account{Credited: rec.Credited, Spent: rec.Spent, Debt: rec.Debt, Refill: credit.Refill{Amount: rec.Refill, Max: rec.RefillMax}, NextAt: rec.NextAt}
		if rec.Refill > 0 {
			a.calendar = s.calendars.Take(credit.Ticks{Expression: rec.Expression, TimeZone: rec.Zone}, func() *schedule.Schedule {
				ticks, err := schedule.Parse(rec.Expression, rec.Zone)
				if err != nil {
					c.cfg.Log.Error().Err(err).Str("budget", a.name).Msg("refill disabled: invalid schedule, set the budget again")
				}
				return ticks
			})
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
