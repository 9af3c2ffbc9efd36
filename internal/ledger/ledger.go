// Package ledger reads what has moved budgets: the entries of one, the newest first, and what
// was done under an id. The records are those of storage.Ledger, grouped by days; the functions
// only read, on any goroutine.
package ledger

import (
	"errors"

	"github.com/faisca/fila/storage"
)

// Kind is what moved a budget. The numbers are part of the format.
type Kind uint32

// The kinds.
const (
	Credit Kind = iota + 1 // FILA.BUDGET CREDIT
	Charge                 // FILA.BUDGET CHARGE
	Refill                 // what ticks of the refill have added
	Use                    // settlements of messages
)

// String returns the name of the kind on the wire.
func (k Kind) String() string {
	switch k {
	case Credit:
		return "credit"
	case Charge:
		return "charge"
	case Refill:
		return "refill"
	case Use:
		return "use"
	default:
		return "unknown"
	}
}

// Store is what is needed of storage.
type Store interface {
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
}

// day is the nanoseconds of one.
const day = int64(86_400e9)

// Days are the days of which the ledger may have records: from First up to, without, End.
type Days struct{ First, End uint32 }

// Empty reports whether the ledger has no records.
func (d Days) Empty() bool { return d.First == d.End }

// With returns the days with that of a time in Unix nanoseconds.
func (d Days) With(at int64) Days {
	n := storage.LedgerDay(at)
	if d.Empty() {
		return Days{n, n + 1}
	}
	return Days{min(d.First, n), max(d.End, n+1)}
}

// Kept returns the days that are kept at a time: those whose end is less than keep days ago.
func (d Days) Kept(now int64, keep int) Days {
	least := int64(storage.LedgerDay(now)) - int64(keep)
	if first := int64(d.First); !d.Empty() && first < least {
		first = min(least, int64(d.End))
		return Days{uint32(first), d.End}
	}
	return d
}

// DropAt returns when the first day is no longer kept, in Unix nanoseconds.
func (d Days) DropAt(keep int) int64 { return (int64(d.First) + int64(keep) + 1) * day }

// Recorded finds the days of which the store has records. It seeks from one day to the next.
func Recorded(store Store) (Days, error) {
	it := store.Scan(storage.Ledger, nil, nil)
	defer it.Close()
	var days Days
	for ok := it.Seek(nil); ok; {
		k, err := storage.ParseLedgerKey(it.Key())
		if err != nil {
			return Days{}, err
		}
		days = days.With(int64(k.Day) * day)
		next := storage.After(storage.AppendLedgerDay(nil, k.Day))
		if next == nil {
			break
		}
		ok = it.Seek(next)
	}
	return days, it.Err()
}

// Under returns what was done with budgets of a name under an id, the newest first. Budgets
// that have had the name one after the other are told apart by LedgerEntry.Made.
func Under(store Store, days Days, name, id string) ([]storage.LedgerEntry, error) {
	var found []storage.LedgerEntry
	for d := days.End; d > days.First; d-- {
		b, err := store.Get(storage.Ledger, storage.AppendLedgerIDKey(nil, d-1, name, id))
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		var e storage.LedgerEntry
		if err == nil {
			err = e.Decode(b)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, nil
}

// Entry is an entry with its time in Unix nanoseconds, which no other of its budget has.
type Entry struct {
	At int64
	storage.LedgerEntry
}

// skippedMax bounds the entries that a page looks at for an earlier budget of the name.
const skippedMax = 1000

// Page returns up to count entries of a budget that are older than before, the newest first.
// made is the number of the budget. next is the time to continue with, 0 at the end; a page may
// be empty without being the last.
func Page(store Store, days Days, name string, made uint64, before int64, count int) (list []Entry, next int64, err error) {
	if before <= 0 {
		return nil, 0, nil
	}
	skipped := 0
	for d := min(days.End, storage.LedgerDay(before-1)+1); d > days.First; d-- {
		prefix := storage.AppendLedgerPrefix(nil, d-1, name)
		it := store.Scan(storage.Ledger, prefix, storage.After(prefix))
		from := prefix
		if storage.LedgerDay(before-1) == d-1 {
			from = storage.AppendLedgerKey(nil, name, before-1)
		}
		for ok := it.Seek(from); ok; ok = it.Next() {
			k, err := storage.ParseLedgerKey(it.Key())
			e := Entry{At: k.At}
			if err == nil {
				err = e.Decode(it.Value())
			}
			if err != nil {
				it.Close()
				return nil, 0, err
			}
			if len(list) == count || skipped == skippedMax {
				it.Close()
				return list, k.At + 1, nil
			}
			if e.Made != made {
				skipped++
				continue
			}
			list = append(list, e)
		}
		err := it.Err()
		it.Close()
		if err != nil {
			return nil, 0, err
		}
	}
	return list, 0, nil
}
