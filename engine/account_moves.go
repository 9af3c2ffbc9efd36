package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/storage"
)

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

// enter adds an entry to the ledger for a movement that the sums have made, and has the record
// of the account written.
func (c *core) enter(a *account, kind ledger.Kind, amount int64, id, note string) {
	c.enterUse(a, a.sums.Balance()-amount)
	e := storage.LedgerEntry{Made: a.made, Kind: uint32(kind), Amount: amount, Balance: a.sums.Balance(), ID: id, Note: note}
	c.putEntry(a, c.now, &e)
	if id != "" {
		e.ID, e.Note = "", ""
		c.out.batch.Put(storage.Ledger, storage.AppendLedgerIDKey(nil, storage.LedgerDay(a.lastAt), a.name, id), e.Append(nil))
		c.accounts.recent.Add(movementKey{a.made, id}, movement{kind, amount, e.Balance}, c.out.batchNo, c.now)
	}
	c.moved(a, amount)
}

// putEntry adds an entry to the ledger at a time, or after the newest one.
func (c *core) putEntry(a *account, at int64, e *storage.LedgerEntry) {
	a.lastAt = max(at, a.lastAt+1)
	c.out.batch.Put(storage.Ledger, storage.AppendLedgerKey(nil, a.name, a.lastAt), e.Append(nil))
	if days := c.accounts.days.With(a.lastAt); days != c.accounts.days {
		c.setLedgerDays(days)
	}
}

// moved follows a change of the balance by an amount: the record is written, keys that wait look
// again, and a balance that has fallen below its bound is told.
func (c *core) moved(a *account, amount int64) {
	c.touch(a)
	if amount > 0 {
		a.dry = false
		c.freed(a)
	} else {
		c.order.Drained(a.name)
	}
	if before := a.sums.Balance() - amount; a.low > 0 && before >= a.low-1 && a.sums.Balance() < a.low-1 {
		c.emitBudget(EventBudgetLow, a)
	}
}

// Messages move budgets in three steps. reserveCharge keeps the charge in each budget of a message
// when it is leased; the lease ends with one of
//
//	settleCharge  its ack or nack: the charge is returned, and what was used is spent
//	returnCharge  any other end: the charge is returned
//
// message.reserved says which of the two is still to come, so each happens once. What is reserved
// is not stored: it is the sum over the leases, also after a recovery (reserveAgain).

// use is the settlements of an account that have no entry in the ledger yet. Those of a minute
// share one, unless another movement comes between: the entries of a budget add up to its balance.
type use struct {
	at            int64 // of the newest, Unix nanoseconds
	amount, count int64
}

func noBudget(name string) error {
	return fmt.Errorf("%w %.80q; create it with FILA.BUDGET SET", ErrNoBudget, name)
}

// accountsOf returns the budgets of a throttle set, which may be nil, in the order of their names;
// nil for one that does not exist. It looks them up again if a budget has been added or removed
// since.
func (c *core) accountsOf(l *throttleSet) []*account {
	if l == nil || len(l.Budgets) == 0 {
		return nil
	}
	if l.accountsIn != c.accounts.version {
		l.accounts, l.accountsIn = make([]*account, len(l.Budgets)), c.accounts.version
		for i, name := range l.Budgets {
			l.accounts[i] = c.accounts.byName.Get(name)
		}
	}
	return l.accounts
}

// reserveCharge keeps the charge of a message that is delivered in each of its budgets, which cover it.
func (c *core) reserveCharge(m *message) {
	if m.key.queue.isDLQ() {
		return
	}
	for i, a := range c.accountsOf(m.throttles) {
		c.catchUp(a) // what covered the charge may be a refill that is due
		a.sums.Reserve(m.throttles.Charge)
		m.reserved |= 1 << i
	}
}

// reserveAgain keeps the charge of a lease that exists already, after a restart.
func (c *core) reserveAgain(m *message) {
	if m.key.queue.isDLQ() {
		return
	}
	for i, a := range c.accountsOf(m.throttles) {
		if a != nil {
			a.sums.Reserve(m.throttles.Charge)
			m.reserved |= 1 << i
		}
	}
}

// reservedBy calls fn for each account that has reserved the charge of a message, and ends that.
func (c *core) reservedBy(m *message, fn func(a *account, charge int64)) {
	if m.reserved == 0 {
		return
	}
	for i, a := range c.accountsOf(m.throttles) {
		if m.reserved&(1<<i) != 0 && a != nil { // a charge of 0 reserves nothing, so the budget may be gone
			fn(a, m.throttles.Charge)
		}
	}
	m.reserved = 0
}

// returnCharge returns the charge of a message whose lease ends without a settlement.
func (c *core) returnCharge(m *message) {
	c.reservedBy(m, func(a *account, charge int64) {
		if a.sums.Return(charge); charge > 0 {
			c.freed(a)
		}
	})
}

// settleCharge spends what the work on a message has used, in each of the budgets that have reserved
// its charge; nil: the charge. The caller ends the lease in the same turn.
func (c *core) settleCharge(m *message, used *int64) {
	c.recordUsed(m, used)
	c.reservedBy(m, func(a *account, charge int64) {
		c.catchUp(a) // the ticks up to now find the balance as it was
		n := charge
		if used != nil {
			n = *used
		}
		before := a.sums.Balance()
		if a.sums.Settle(charge, n); n > 0 {
			c.enterSettlement(a, n, before, m)
			c.moved(a, -n)
		}
		if n < charge {
			c.freed(a)
		}
	})
}

// enterSettlement adds a settlement to the ledger, or to those that share an entry. before is the
// balance before it.
func (c *core) enterSettlement(a *account, n, before int64, m *message) {
	const minute = int64(time.Minute)
	if u := a.use; u != nil && (a.detail || u.at/minute != c.now/minute || u.amount > math.MaxInt64-n) {
		c.enterUse(a, before)
	}
	if a.detail {
		c.putEntry(a, c.now, &storage.LedgerEntry{
			Made: a.made, Kind: uint32(ledger.Use), Amount: -n, Balance: a.sums.Balance(), Count: 1,
			Queue: m.key.queue.name, Message: string(m.id[:]), Key: m.key.name,
		})
		return
	}
	if a.use == nil {
		a.use = &use{}
	}
	a.use.at = max(c.now, a.use.at)
	a.use.amount += n
	a.use.count++
}

// enterUse adds the entry of the settlements that have none. balance is that after them.
func (c *core) enterUse(a *account, balance int64) {
	u := a.use
	if u == nil {
		return
	}
	a.use = nil
	c.putEntry(a, u.at, new(u.entry(a.made, balance)))
}

func (u *use) entry(made uint64, balance int64) storage.LedgerEntry {
	return storage.LedgerEntry{Made: made, Kind: uint32(ledger.Use), Amount: -u.amount, Balance: balance, Count: u.count}
}

// creditsCommitted reports whether the credits that a message was delivered on are in the store:
// no budget of it has got more available in the open batch, or in one that is being written.
func (c *core) creditsCommitted(m *message) bool {
	for _, a := range c.accountsOf(m.throttles) {
		if a == nil || a.freedIn > c.out.committed {
			return false
		}
	}
	return true
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

// BudgetInfo describes a budget at one moment.
type BudgetInfo struct {
	Name               string
	Balance, Available int64
	Reserved           int64 // by leases that exist now
	Credited, Spent    int64
	Debt               int64
	Low                *int64 // nil: none is set
	Refuse, Detail     bool
	Refill, Max        int64 // 0: there is no refill
	Expression, Zone   string
	NextAt             time.Time // of the refill; zero: there is none, or RefillError
	RefillError        string    // why the refill has no next tick; "": nothing is wrong
	Waiting            int64     // fairness keys that have come up and were not covered
	CreatedAt          time.Time
}

func (c *core) budgetInfo(a *account) BudgetInfo {
	s := &a.sums
	i := BudgetInfo{
		Name: a.name, Waiting: c.order.Waiting(a.name), Balance: s.Balance(), Available: s.Available(), Reserved: s.Reserved, Refuse: a.refuse, Detail: a.detail, Credited: s.Credited, Spent: s.Spent, Debt: s.Debt,
		Refill: s.Refill.Amount, Max: s.Refill.Max, CreatedAt: unix(a.createdAt),
	}
	if low := a.low - 1; low >= 0 {
		i.Low = &low
	}
	if t := a.calendar.Load(); t != nil {
		i.Expression, i.Zone = t.Expression, t.TimeZone
		if t.Schedule() == nil {
			i.RefillError = "invalid expression or zone; set the refill again"
			return i
		}
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
	return tx.core.budgetInfo(a), true
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
		req.next = c.accounts.list.Walk(req.next, n, func(a *account) {
			c.catchUp(a)
			if req.Match(a.name) {
				req.list = append(req.list, c.budgetInfo(a))
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

	running *ledger.Entry // of settlements that have no entry yet; nil: there are none, or the page is not the first

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
		if p.running != nil {
			p.list = slices.Insert(p.list, 0, *p.running)
		}
		return p.next, p.list, p.err
	}
	p := &historyPage{
		task: tx.task, days: c.accounts.days.Kept(c.now, c.cfg.HistoryDays), name: a.name, made: a.made, before: cmp.Or(req.Before, math.MaxInt64), count: max(req.Count, 1),
	}
	if u := a.use; u != nil && req.Before == 0 {
		// The job does not see the entry of these settlements, if it gets written before.
		p.before = a.lastAt + 1
		p.running = &ledger.Entry{At: max(u.at, p.before), LedgerEntry: u.entry(a.made, a.sums.Balance())}
		if p.count--; p.count == 0 {
			return p.before, []ledger.Entry{*p.running}, nil
		}
	}
	req.page = p
	c.out.jobs = append(c.out.jobs, req.page)
	return 0, nil, tx.await()
}
