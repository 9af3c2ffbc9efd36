package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// The acts are the last changes by administrators. All of them are in memory, as a page of them is read
// with each look at the dashboard; their records are for the next start.

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

// actLog is the last acts, the oldest first.
type actLog struct{ list []Act }

// last returns the number of the newest act; 0: there was none.
func (l *actLog) last() uint64 {
	if len(l.list) == 0 {
		return 0
	}
	return l.list[len(l.list)-1].Number
}

// RecordAct keeps an act under the next number, at the time of the turn. It is in the same write as what the calls
// of the task have changed so far, and durable when the reply leaves. ErrMisconf refuses it while
// the store takes no writes.
func (tx *Tx) RecordAct(a Act) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	a.Number, a.At = c.acts.last()+1, unix(c.calendar())
	for _, text := range []*string{&a.User, &a.Addr, &a.Command, &a.Object} {
		*text = errtext.Clip(*text, ActNameMax)
	}
	a.Before, a.After = errtext.Clip(a.Before, ActSettingMax), errtext.Clip(a.After, ActSettingMax)
	rec := storage.Act{
		At: a.At.UnixNano(), User: a.User, Addr: a.Addr, Command: a.Command, Object: a.Object, Before: a.Before, After: a.After,
	}
	c.out.batch.Put(storage.State, actKey(a.Number), rec.Append(nil))
	if l := &c.acts; len(l.list) == ActsMax {
		c.out.batch.Delete(storage.State, actKey(l.list[0].Number))
		l.list = l.list[1:]
	}
	c.acts.list = append(c.acts.list, a)
	c.out.sync = true
	return nil
}

// actKey returns the key of the record of an act.
func actKey(number uint64) []byte {
	return storage.AppendStateKey(nil, storage.StateAct, string(storage.EncodeUint(number)))
}

// Acts returns up to count acts, the newest first: those before the number that is the cursor, or with 0
// the newest. next is the cursor of the next page, 0 at the end.
func (tx *Tx) Acts(cursor uint64, count int) (next uint64, list []Act) {
	all := tx.core.acts.list
	end := len(all)
	if cursor > 0 {
		end, _ = slices.BinarySearchFunc(all, cursor, func(a Act, n uint64) int { return cmp.Compare(a.Number, n) })
	}
	for i := end - 1; i >= 0 && len(list) < count; i-- {
		list = append(list, all[i])
	}
	if n := len(list); n > 0 && n < end {
		next = list[n-1].Number
	}
	return next, list
}

// recoverActs reads the acts, whose keys are in the order of their numbers.
func (c *core) recoverActs() error {
	c.acts = actLog{}
	return c.scan(storage.State, storage.AppendStateKey(nil, storage.StateAct), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("act %q: %w", k, storage.ErrCorrupt)
		}
		number, err := storage.DecodeUint([]byte(parts[1]))
		var rec storage.Act
		if err == nil {
			err = rec.Decode(v)
		}
		if err != nil {
			return fmt.Errorf("act %q: %w", k, err)
		}
		c.acts.list = append(c.acts.list, Act{
			Number: number, At: unix(rec.At), User: rec.User, Addr: rec.Addr, Command: rec.Command, Object: rec.Object, Before: rec.Before, After: rec.After,
		})
		return nil
	})
}
