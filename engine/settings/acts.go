package settings

import (
	"cmp"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// ActsMax is how many acts are kept: with one more, the oldest is deleted.
const ActsMax = 1000

// Bounds of the texts of an act, in bytes. Longer ones are cut at a character.
const (
	ActNameMax    = 256     // of the user, the address, the command and the object
	ActSettingMax = 1 << 10 // of the setting before and after
)

// Act is what an administrator has changed.
type Act struct {
	Number        uint64 // one more than that of the act before
	At            time.Time
	User, Addr    string // who, and from where
	Command       string
	Object        string // what it was about, such as a queue; "": the broker
	Before, After string // the setting as text; "": there was none, or it is none
}

// Acts are the last changes by administrators, the oldest first. All of them are in memory, as a page of them is read
// with each look at the dashboard; their records are for the next start.
type Acts struct{ list []Act }

// All returns the acts, the oldest first. The list must not be changed.
func (l *Acts) All() []Act { return l.list }

// Keep keeps an act under the next number, and writes it.
func (l *Acts) Keep(a Act, at time.Time, b *storage.Batch) {
	a.Number, a.At = 1, at
	if n := len(l.list); n > 0 {
		a.Number = l.list[n-1].Number + 1
	}
	for _, text := range []*string{&a.User, &a.Addr, &a.Command, &a.Object} {
		*text = errtext.Clip(*text, ActNameMax)
	}
	a.Before, a.After = errtext.Clip(a.Before, ActSettingMax), errtext.Clip(a.After, ActSettingMax)
	rec := storage.Act{
		At: a.At.UnixNano(), User: a.User, Addr: a.Addr, Command: a.Command, Object: a.Object, Before: a.Before, After: a.After,
	}
	b.Put(storage.State, actKey(a.Number), rec.Append(nil))
	if len(l.list) == ActsMax {
		b.Delete(storage.State, actKey(l.list[0].Number))
		l.list = l.list[1:]
	}
	l.list = append(l.list, a)
}

// actKey returns the key of the record of an act.
func actKey(number uint64) []byte {
	return storage.AppendStateKey(nil, storage.StateAct, string(storage.EncodeUint(number)))
}

// Page returns up to count acts, the newest first: those before the number that is the cursor, or with 0
// the newest. next is the cursor of the next page, 0 at the end.
func (l *Acts) Page(cursor uint64, count int) (next uint64, list []Act) {
	end := len(l.list)
	if cursor > 0 {
		end, _ = slices.BinarySearchFunc(l.list, cursor, func(a Act, n uint64) int { return cmp.Compare(a.Number, n) })
	}
	for i := end - 1; i >= 0 && len(list) < count; i-- {
		list = append(list, l.list[i])
	}
	if n := len(list); n > 0 && n < end {
		next = list[n-1].Number
	}
	return next, list
}

// ReadActs reads the acts of a store, whose keys are in the order of their numbers.
func ReadActs(store records.Scanner) (l Acts, err error) {
	return l, records.Each(store, "act", storage.StateAct, 1, func(name []string, value []byte) error {
		number, err := storage.DecodeUint([]byte(name[0]))
		var rec storage.Act
		if err := cmp.Or(err, rec.Decode(value)); err != nil {
			return err
		}
		l.list = append(l.list, Act{
			Number: number, At: time.Unix(0, rec.At), User: rec.User, Addr: rec.Addr, Command: rec.Command, Object: rec.Object, Before: rec.Before, After: rec.After,
		})
		return nil
	})
}
