package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/engine/budget"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/storage"
)

// accountTable is the component of budgets: the accounts are in package budget, which knows no messages. The engine
// writes what a change of an account says, and has keys looked at that wait for it (follow). It keeps the timers of
// refills that keys wait for.
type accountTable struct {
	budget.Accounts
	awaited map[*budget.Account]*budgetGate // keys wait for them
	timers  intrusive.Heap[*budgetGate]     // of those that have a next refill
}

func (s *accountTable) reset() {
	s.Reset()
	s.awaited, s.timers = map[*budget.Account]*budgetGate{}, intrusive.Heap[*budgetGate]{}
}

// next returns when the first day of the ledger is dropped, or a refill is due that keys wait for.
func (s *accountTable) next(c *core) int64 {
	at := int64(never)
	if drop, ok := s.DropAt(c.cfg.HistoryDays); ok {
		at = drop
	}
	if g, ok := s.timers.First(); ok {
		at = min(at, c.onCalendar(g.wakeAt))
	}
	return at
}

// expire drops ids of recent batches, and the days of the ledger that are no longer kept, and
// refills the budgets that keys wait for.
func (s *accountTable) expire(c *core) {
	c.expireRefills()
	ids, from, to := s.Expire(c.now, c.out.committed, c.cfg.HistoryDays, max(c.tasks.budget.Left, 0))
	c.spend(ids)
	if from != nil {
		c.out.batch.DeleteRange(storage.Ledger, from, to)
		c.publishAccounts()
	}
}

// check verifies the accounts (28), and that a budget has reserved the charges of the leases that name it (29).
func (s *accountTable) check(c *core, bad report) {
	reserved := map[string]int64{}
	for _, m := range c.leases.byID {
		meta := m.meta()
		for i, name := range meta.Budgets {
			if m.reserved&(1<<i) != 0 {
				reserved[name] += meta.Charge
			} else if meta.Charge > 0 && !m.key.queue.isDLQ() && !m.recovered && !m.retrying {
				bad(29, "the lease of %s has reserved nothing of budget %q", m.id, name)
			}
		}
	}
	s.Check(reserved, budget.Report(bad))
}

// moment is that of the turn. While the store takes no writes, or is full, no refill counts.
func (c *core) moment() budget.Moment {
	w := budget.Moment{Now: c.now, Calendar: c.calendar(), Batch: c.out.batchNo}
	if c.health.failed != nil || c.health.full != nil {
		w.Calendar = 0
	}
	return w
}

// follow writes what a change of an account says, and does what follows from it.
func (c *core) follow(a *budget.Account, ch budget.Change) {
	for i := range ch.Entries {
		c.out.batch.Put(storage.Ledger, ch.Entries[i].Key, ch.Entries[i].Value)
	}
	if len(ch.Entries) > 0 {
		c.publishAccounts()
	}
	if ch.Stored {
		c.out.sync = true
	}
	if ch.Refilled {
		c.spend(4) // the calendar and two records
	}
	if ch.Freed {
		c.order.Freed(a.Name())
	}
	if ch.Drained {
		c.order.Drained(a.Name())
	}
	if ch.Low {
		c.emitBudget(EventBudgetLow, a)
	}
}

// publishAccounts publishes the days of the ledger to connections that look ids up, and after a
// recovery the budgets.
func (c *core) publishAccounts() {
	if v := c.accounts.View(); v != c.out.snapshot.budgets {
		next := *c.out.snapshot
		next.budgets = v
		c.out.snapshot = &next
	}
}

// catchUp adds to an account what the ticks of its refill up to now have brought.
func (c *core) catchUp(a *budget.Account) { c.follow(a, c.accounts.CatchUp(a, c.moment())) }

// writeAccounts writes the records of the accounts that have changed since the last cut.
func (c *core) writeAccounts() {
	c.accounts.Records(func(name string, record []byte) {
		c.out.key = append(c.out.key[:0], name...)
		c.out.batch.Put(storage.Budgets, c.out.key, record)
	})
}

func noBudget(name string) error {
	return fmt.Errorf("%w %.80q; create it with FILA.BUDGET SET", ErrNoBudget, name)
}

// accountNamed returns the account of a name, up to date with its refill, or ErrNoBudget.
func (c *core) accountNamed(name string) (*budget.Account, error) {
	a := c.accounts.Get(name)
	if a == nil {
		return nil, noBudget(name)
	}
	c.catchUp(a)
	return a, nil
}

// BudgetOptions are the settings of a budget.
type BudgetOptions = budget.Settings

// NewRefill returns a refill by an amount at each tick of an expression in a zone, up to a
// balance. It runs on any goroutine. Errors: ErrInvalid for an expression or zone.
func NewRefill(amount int64, expression, zone string, most int64) (*budget.Refill, error) {
	r, err := budget.NewRefill(amount, expression, zone, most)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return r, nil
}

// SetBudget creates a budget, or replaces the settings of one, see budget.Accounts.Set. The settings are durable when
// the reply leaves.
//
// Errors: ErrMisconf, ErrInvalid for an empty name or one budget too many, ErrTooBig.
func (tx *Tx) SetBudget(name string, o *BudgetOptions) error {
	c := tx.core
	if err := c.writableForNew(); err != nil {
		return err
	}
	made := c.accounts.Get(name) == nil
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a budget has at least one byte", ErrInvalid)
	case len(name) > c.cfg.Limits.Key:
		return fmt.Errorf("%w: name of %d bytes, the limit is %d", ErrTooBig, len(name), c.cfg.Limits.Key)
	case made && c.accounts.Len() >= c.cfg.Limits.Budgets:
		return fmt.Errorf("%w: the limit is %s, set limits.budgets to allow more", ErrInvalid, errtext.Amount(c.cfg.Limits.Budgets, "budget"))
	}
	a, ch := c.accounts.Set(name, o, c.fenceBase(), c.moment())
	c.follow(a, ch)
	if made {
		c.order.Changed(name) // messages may have named it before
	} else if g := c.accounts.awaited[a]; g != nil {
		c.armRefill(g)
	}
	return nil
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
	a := c.accounts.Get(name)
	if a == nil {
		return false, nil
	}
	if r := a.Reserved(); r > 0 {
		return false, fmt.Errorf("%w: leases have reserved %s of budget %.80q; delete it when they have ended", ErrInvalid, errtext.Amount(r, "credit"), name)
	}
	c.accounts.Delete(a)
	c.order.Changed(name)
	c.out.batch.Delete(storage.Budgets, []byte(name))
	c.out.sync = true
	return true, nil
}

// BudgetMove is a request to credit or to charge a budget. Preparer.PrepareMove comes before
// Tx.MoveBudget.
type BudgetMove = budget.Move

// Bounds of the texts of a movement, in bytes.
const (
	MoveIDMax   = budget.MoveIDMax
	MoveNoteMax = budget.MoveNoteMax
)

// The ids of movements are in the ledger, and are looked up in the same way as deduplication ids (dedup.go).

// PrepareMove looks the id of a movement up. It runs on the goroutine of the connection.
// Errors: ErrTooBig for a long id or note.
func (p *Preparer) PrepareMove(req *BudgetMove) error {
	seen := p.durable.Load() // before the snapshot: the look-up then claims no more than it has seen
	return prepareMove(req, p.store, p.Snapshot(), seen)
}

func prepareMove(req *BudgetMove, store Store, s *Snapshot, seen uint64) error {
	if err := req.Check(); err != nil || req.ID == "" {
		return err
	}
	req.Known = s.budgets.Look(store, req.Name, req.ID, seen)
	return nil
}

// PreflightMove waits, in a transaction, for a current look-up of the id.
func (tx *Tx) PreflightMove(req *BudgetMove) error {
	if req.ID != "" && tx.core.accounts.Stale(&req.Known) {
		return tx.awaitRead(lookMoveAgain(req, &tx.core.out))
	}
	return nil
}

// lookMoveAgain returns the read that repeats the look-up of the id of a movement, for awaitRead.
func lookMoveAgain(req *BudgetMove, o *outbox) func(store Store) (give func()) {
	view, batch, name, id := o.snapshot.budgets, o.batchNo, req.Name, req.ID
	return func(store Store) func() {
		known := view.Look(store, name, id, batch)
		return func() { req.Known = known }
	}
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
	a := c.accounts.Get(req.Name)
	if a == nil {
		return 0, noBudget(req.Name)
	}
	balance, ch, err := c.accounts.Move(a, req, c.moment())
	c.follow(a, ch)
	switch {
	case err == nil:
		return balance, nil
	case errors.Is(err, recent.ErrStale):
		return 0, tx.awaitRead(lookMoveAgain(req, &c.out))
	default:
		return 0, req.Refusal(a, err)
	}
}

// BudgetInfo describes a budget at one moment.
type BudgetInfo struct {
	budget.Info
	RefillError string // why the refill has no next tick; "": nothing is wrong
	Waiting     int64  // fairness keys that have come up and were not covered
}

func (c *core) budgetInfo(a *budget.Account) BudgetInfo {
	i := BudgetInfo{Info: a.Info(), Waiting: c.order.Waiting(a.Name())}
	if i.Unreadable {
		i.RefillError = "invalid expression or zone; set the refill again"
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
		req.next = c.accounts.Walk(req.next, n, func(a *budget.Account) {
			c.catchUp(a)
			if req.Match(a.Name()) {
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

	page *historyPage // nil: not read yet
}

// historyPage is a page that has been read.
type historyPage struct {
	page budget.Page
	list []ledger.Entry
	next int64
	err  error
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
	if p := req.page; p != nil && p.page.Of(a) {
		req.page = nil
		return p.next, p.list, p.err
	}
	p := &historyPage{page: c.accounts.Page(a, req.Before, req.Count, c.now, c.cfg.HistoryDays)}
	if !p.page.Stored() {
		list, next, err = p.page.Read(nil)
		return next, list, err
	}
	return 0, nil, tx.awaitRead(func(store Store) func() {
		p.list, p.next, p.err = p.page.Read(store)
		return func() { req.page = p }
	})
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
	days, err := ledger.Recorded(c.store)
	if err != nil {
		return err
	}
	c.accounts.Recover(days, c.out.batchNo)
	err = c.scan(storage.Budgets, nil, func(k, v []byte) error {
		var rec storage.Budget
		if err := rec.Decode(v); err != nil {
			return fmt.Errorf("budget %q: %w", k, err)
		}
		if err := c.accounts.Restore(string(k), &rec); err != nil {
			c.cfg.Log.Error().Err(err).Str("budget", string(k)).Msg("refill disabled: invalid schedule, set the budget again")
		}
		return nil
	})
	if err == nil {
		c.publishAccounts()
	}
	return err
}
