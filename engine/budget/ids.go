package budget

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/faisca/fila/engine/internal/directory"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/ledger"
)

// UsedError refuses a movement whose id is that of another one.
type UsedError struct {
	Kind   ledger.Kind // of the other one
	Amount int64
}

// Error implements error.
func (e *UsedError) Error() string {
	return fmt.Sprintf("the id is that of a %s of %d", e.Kind, e.Amount)
}

// movementKey is an id under which an account was moved.
type movementKey struct {
	made uint64
	id   string
}

// movement is what was done under an id; zero: nothing.
type movement struct {
	kind            ledger.Kind
	amount, balance int64
}

// Lookup is the look-up of an id. The zero value is none.
type Lookup = recent.Lookup[movementKey, movement]

// Stale reports whether what is known of an id may have changed since.
func (t *Accounts) Stale(k *Lookup) bool { return t.recent.Stale(k) }

// View is what goroutines see of accounts that do not own them. The zero value has none. Views of the same days are
// equal.
type View struct {
	byName *directory.Directory[Account]
	days   ledger.Days // that may have ids of movements
}

// View returns the present view. Accounts that are made or deleted later are seen, later days of the ledger are not.
func (t *Accounts) View() View { return View{t.byName, t.days} }

// account returns the account of a name, or nil.
func (v View) account(name string) *Account {
	if v.byName == nil {
		return nil
	}
	return v.byName.Get(name)
}

// Available returns what is available of an account at a time, with the ticks that are due; ok is false if there is
// none of that name.
func (v View) Available(name string, now int64) (available int64, ok bool) {
	a := v.account(name)
	if a == nil {
		return 0, false
	}
	if ticks := a.calendar.Load().Schedule(); ticks != nil {
		return a.sums.AvailableAt(now, ticks), true
	}
	return a.sums.AvailableAt(now, nil), true
}

// Look looks an id up in the store, which has all batches up to seen.
func (v View) Look(store ledger.Store, name, id string, seen uint64) Lookup {
	a := v.account(name)
	if a == nil {
		return recent.Begin[movementKey, movement](movementKey{}, seen)
	}
	k := recent.Begin[movementKey, movement](movementKey{a.made, id}, seen)
	found, err := ledger.Under(store, v.days, name, id)
	k.Err = err
	for i := range found {
		if e := &found[i]; e.Made == a.made {
			k.Found = movement{ledger.Kind(e.Kind), e.Amount, e.Balance}
			break
		}
	}
	return k
}

// Page is a page of what has moved an account.
type Page struct {
	days    ledger.Days
	name    string
	made    uint64
	before  int64
	count   int
	running *ledger.Entry // of settlements that have no entry yet; nil: there are none, or the page is not the first
}

// Page returns a page of up to count entries of an account, at least one, that are older than before; 0: the newest.
// keep is for how many days entries are kept.
func (t *Accounts) Page(a *Account, before int64, count int, now int64, keep int) Page {
	p := Page{days: t.days.Kept(now, keep), name: a.name, made: a.made, before: cmp.Or(before, math.MaxInt64), count: max(count, 1)}
	if u := a.use; u != nil && before == 0 {
		// The reader does not see the entry of these settlements, if it gets written before.
		p.before = a.lastAt + 1
		p.running = &ledger.Entry{At: max(u.at, p.before), LedgerEntry: u.entry(a.made, a.sums.Balance())}
		p.count--
	}
	return p
}

// Of reports whether the page is that of an account, and not of an earlier one of its name.
func (p *Page) Of(a *Account) bool { return p.made == a.made }

// Stored reports whether Read needs the store.
func (p *Page) Stored() bool { return p.count > 0 }

// Read returns the entries, the newest first, and the time to continue with, 0 at the end. It runs on any goroutine.
func (p *Page) Read(store ledger.Store) (list []ledger.Entry, next int64, err error) {
	next = p.before
	if p.Stored() {
		list, next, err = ledger.Page(store, p.days, p.name, p.made, p.before, p.count)
	}
	if p.running != nil && err == nil {
		list = slices.Insert(list, 0, *p.running)
	}
	return list, next, err
}
