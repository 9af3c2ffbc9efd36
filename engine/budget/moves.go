package budget

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/storage"
)

// CatchUp adds to an account what the ticks of its refill up to the moment have brought.
func (t *Accounts) CatchUp(a *Account, w Moment) Change {
	ch := t.change()
	t.catchUp(a, w, &ch)
	return ch
}

func (t *Accounts) catchUp(a *Account, w Moment, ch *Change) {
	ticks := a.due(w.Calendar)
	if ticks == nil {
		return
	}
	ch.Refilled = true
	if added := a.sums.CatchUp(w.Calendar, ticks); added > 0 {
		t.enter(a, ledger.Refill, added, "", "", w, ch)
	}
	t.touch(a, ch)
}

// Move is a request to credit or to charge an account.
type Move struct {
	Name   string
	Amount int64  // 1 to credit.Max
	Charge bool   // take the amount instead of adding it
	Force  bool   // of a charge: also if it is not covered
	ID     string // does it once; "": none
	Note   string

	// Known is what the store had under the id. A connection looks it up before.
	Known Lookup
}

// Bounds of the texts of a movement, in bytes.
const (
	MoveIDMax   = 512
	MoveNoteMax = 512
)

// Check refuses texts that are too long: refusals.ErrTooBig.
func (m *Move) Check() error {
	switch {
	case len(m.ID) > MoveIDMax:
		return fmt.Errorf("%w: ID of %d bytes, the limit is %d", refusals.ErrTooBig, len(m.ID), MoveIDMax)
	case len(m.Note) > MoveNoteMax:
		return fmt.Errorf("%w: NOTE of %d bytes, the limit is %d", refusals.ErrTooBig, len(m.Note), MoveNoteMax)
	}
	return nil
}

// Refusal returns the error of a client whose movement of an account Move has refused. One of the look-up of the id
// is that of the store.
func (m *Move) Refusal(a *Account, err error) error {
	kind, _ := m.Kind()
	used, is := errors.AsType[*UsedError](err)
	switch {
	case is:
		return fmt.Errorf("%w: ID %.80q is that of a %s of %d of budget %q; use another id", refusals.ErrInvalid, m.ID, used.Kind, used.Amount, m.Name)
	case errors.Is(err, credit.ErrNotCovered):
		return fmt.Errorf("%w: budget %q has %d credits available and may be %d in debt, the charge is %d", refusals.ErrCredit, m.Name, a.Available(), a.Debt(), m.Amount)
	case errors.Is(err, credit.ErrBounds):
		return fmt.Errorf("%w: the balance of budget %q is %d, with %s %d it would be out of bounds", refusals.ErrInvalid, m.Name, a.Balance(), kind, m.Amount)
	default:
		return fmt.Errorf("look ID up: %w", err)
	}
}

// Kind returns the kind of the movement, and by how much it changes the balance.
func (m *Move) Kind() (ledger.Kind, int64) {
	if m.Charge {
		return ledger.Charge, -m.Amount
	}
	return ledger.Credit, m.Amount
}

// Move credits or charges an account and returns its balance. A movement whose id is known changes nothing and
// returns the balance of the first time. Refills that are due come first, also where it is refused: the change holds
// with an error as well.
//
// Errors: recent.ErrStale, a UsedError, the error of the look-up; credit.ErrNotCovered, credit.ErrBounds.
func (t *Accounts) Move(a *Account, m *Move, w Moment) (balance int64, ch Change, err error) {
	ch = t.change()
	t.catchUp(a, w, &ch)
	kind, change := m.Kind()
	if m.ID != "" {
		switch was, err := t.recent.Find(movementKey{a.made, m.ID}, &m.Known); {
		case err != nil:
			return 0, ch, err
		case was != (movement{}) && (was.kind != kind || was.amount != change):
			return 0, ch, &UsedError{was.kind, max(was.amount, -was.amount)}
		case was != (movement{}):
			return was.balance, ch, nil
		}
	}
	if m.Charge {
		err = a.sums.Charge(m.Amount, m.Force)
	} else {
		err = a.sums.Credit(m.Amount)
	}
	if err == nil {
		t.enter(a, kind, change, m.ID, m.Note, w, &ch)
	}
	return a.sums.Balance(), ch, err
}

// Return ends the reservation of a charge without a settlement.
func (t *Accounts) Return(a *Account, charge int64, w Moment) Change {
	ch := t.change()
	if a.sums.Return(charge); charge > 0 {
		a.freed(w, &ch)
	}
	return ch
}

// Work is what a settlement is for. It is kept in the entry of an account with Detail.
type Work struct {
	Queue, Key string
	Message    []byte // its id
}

// Settle ends the reservation of a charge and takes what was used, which may be more or less. Ticks up to the moment
// find the balance as it was before.
func (t *Accounts) Settle(a *Account, charge, used int64, of Work, w Moment) Change {
	ch := t.change()
	t.catchUp(a, w, &ch)
	before := a.sums.Balance()
	if a.sums.Settle(charge, used); used > 0 {
		t.enterSettlement(a, used, before, of, w, &ch)
		t.moved(a, -used, w, &ch)
	}
	if used < charge {
		a.freed(w, &ch)
	}
	return ch
}

// enter adds an entry to the ledger for a movement that the sums have made.
func (t *Accounts) enter(a *Account, kind ledger.Kind, amount int64, id, note string, w Moment, ch *Change) {
	t.enterUse(a, a.sums.Balance()-amount, ch)
	e := storage.LedgerEntry{Made: a.made, Kind: uint32(kind), Amount: amount, Balance: a.sums.Balance(), ID: id, Note: note}
	t.putEntry(a, w.Now, &e, ch)
	if id != "" {
		e.ID, e.Note = "", ""
		t.put(storage.AppendLedgerIDKey(nil, storage.LedgerDay(a.lastAt), a.name, id), &e, ch)
		t.recent.Add(movementKey{a.made, id}, movement{kind, amount, e.Balance}, w.Batch, w.Now)
	}
	t.moved(a, amount, w, ch)
}

// putEntry adds an entry to the ledger at a time, or after the newest one.
func (t *Accounts) putEntry(a *Account, at int64, e *storage.LedgerEntry, ch *Change) {
	a.lastAt = max(at, a.lastAt+1)
	t.put(storage.AppendLedgerKey(nil, a.name, a.lastAt), e, ch)
	t.days = t.days.With(a.lastAt)
}

func (t *Accounts) put(key []byte, e *storage.LedgerEntry, ch *Change) {
	ch.Entries = append(ch.Entries, Entry{key, e.Append(nil)})
	t.entries = ch.Entries
}

// moved notes what follows from a change of the balance by an amount.
func (t *Accounts) moved(a *Account, amount int64, w Moment, ch *Change) {
	t.touch(a, ch)
	if amount > 0 {
		a.dry = false
		a.freed(w, ch)
	} else {
		ch.Drained = true
	}
	if before := a.sums.Balance() - amount; a.low > 0 && before >= a.low-1 && a.sums.Balance() < a.low-1 {
		ch.Low = true
	}
}

// freed notes that an account covers more than before.
func (a *Account) freed(w Moment, ch *Change) {
	a.freedIn, ch.Freed = w.Batch, true
}

// enterSettlement adds a settlement to the ledger, or to those that share an entry. before is the
// balance before it.
func (t *Accounts) enterSettlement(a *Account, n, before int64, of Work, w Moment, ch *Change) {
	const minute = int64(time.Minute)
	if u := a.use; u != nil && (a.detail || u.at/minute != w.Now/minute || u.amount > math.MaxInt64-n) {
		t.enterUse(a, before, ch)
	}
	if a.detail {
		t.putEntry(a, w.Now, &storage.LedgerEntry{
			Made: a.made, Kind: uint32(ledger.Use), Amount: -n, Balance: a.sums.Balance(), Count: 1,
			Queue: of.Queue, Message: string(of.Message), Key: of.Key,
		}, ch)
		return
	}
	if a.use == nil {
		a.use = &use{}
	}
	a.use.at = max(w.Now, a.use.at)
	a.use.amount += n
	a.use.count++
}

// enterUse adds the entry of the settlements that have none. balance is that after them.
func (t *Accounts) enterUse(a *Account, balance int64, ch *Change) {
	u := a.use
	if u == nil {
		return
	}
	a.use = nil
	t.putEntry(a, u.at, new(u.entry(a.made, balance)), ch)
}

func (u *use) entry(made uint64, balance int64) storage.LedgerEntry {
	return storage.LedgerEntry{Made: made, Kind: uint32(ledger.Use), Amount: -u.amount, Balance: balance, Count: u.count}
}
