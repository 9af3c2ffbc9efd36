package group

import (
	"errors"
	"math"
	"time"

	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/storage"
)

// What is known of groups that have come to their end is on disk only, in generations that are forgotten some time after
// the end. It is looked up off the loop by name, see package recent.
type ended struct {
	recent recent.Table[string, storage.GroupEnd] // of recent batches
	kept   *generation.Group
	ends   generation.Table
	keep   int64 // for how long it is known, in nanoseconds
}

// Lookup is the look-up of a group that has come to its end.
type Lookup = recent.Lookup[string, storage.GroupEnd]

// The errors of Joinable. ErrStale says that the name has to be looked up, again.
var (
	ErrStale  = recent.ErrStale
	ErrNone   = errors.New("there is no such group")
	ErrSealed = errors.New("the group takes no more members")
)

// Ended returns the group of a name that has come to its end and is known; nil if there is none. There must be none of
// that name in the table. Errors: ErrStale, that of the look-up.
func (t *Table) Ended(name string, look *Lookup, now int64) (*storage.GroupEnd, error) {
	if len(t.ended.kept.List()) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	end, err := t.ended.recent.Find(name, look)
	if err != nil || end.Number == 0 || end.EndedAt+t.ended.keep <= now {
		return nil, err
	}
	return &end, nil
}

// Stale reports whether what is known under a name has to be looked up, again.
func (t *Table) Stale(name string, look *Lookup) bool {
	return t.Get(name) == nil && len(t.ended.kept.List()) > 0 && t.ended.recent.Stale(look)
}

// Lookup returns a function that looks a name up, on any goroutine, in a store that has all batches up to seen.
func (t *Table) Lookup(name string, seen uint64) func(store storage.Reader) *Lookup {
	kept := t.ended.kept
	return func(store storage.Reader) *Lookup {
		l := new(recent.Begin[string, storage.GroupEnd](name, seen))
		b, err := kept.Find(store, storage.GroupEndID(name))
		if l.Err = err; b != nil && err == nil {
			l.Err = l.Found.Decode(b)
		}
		return l
	}
}

// Joinable returns the group of a name if it takes members. Errors: ErrNone, ErrSealed, those of Ended.
func (t *Table) Joinable(name string, look *Lookup, now int64) (*Group, error) {
	if g := t.Get(name); g != nil {
		if !g.Open() {
			return nil, ErrSealed
		}
		return g, nil
	}
	end, err := t.Ended(name, look, now)
	switch {
	case err != nil:
		return nil, err
	case end != nil:
		return nil, ErrSealed
	}
	return nil, ErrNone
}

// Finish forgets a group that is over, and writes what is kept of it. message is the one that was enqueued.
func (t *Table) Finish(g *Group, message storage.ID, w writes.Batch) {
	end := storage.GroupEnd{
		Number: g.number, Cancelled: g.IsCancelled(), Done: g.Done, Dead: g.Dead, CancelledNumber: g.Cancelled, Message: message, Error: g.Error,
		OpenedAt: g.OpenedAt, SealedAt: g.SealedAt, EndedAt: w.Now, Queue: g.Queue,
	}
	if end.Cancelled {
		end.EndedAt = g.CancelledAt
	}
	w.Delete(storage.State, storage.AppendGroupMessageKey(nil, g.number))
	w.Put(storage.State, storage.AppendGroupEndKey(nil, t.ended.ends.Current(t.ended.kept, w.Now), g.Name), end.Append(nil))
	t.ended.recent.Add(g.Name, end, w.Number, w.Now)
	t.messages.release(g.number)
	t.forget(g)
}

// Recover finds what is known of groups that have come to their end. batch is the newest one: look-ups from before are
// stale.
func (t *Table) Recover(store storage.Reader, keep time.Duration, batch uint64) error {
	t.ended.recent.Dropped, t.ended.keep = batch, int64(keep)
	t.ended.kept = generation.NewUnder(storage.GroupEndsPrefix(), storage.State, keep)
	return t.ended.ends.Recover(store, t.ended.kept)
}

// NextAt returns when a group expires, one is finished again, or what is known of some is dropped; the end of time if none
// is.
func (t *Table) NextAt() int64 {
	at := int64(math.MaxInt64)
	if g, ok := t.timers.First(); ok {
		at = g.ExpireAt
	}
	if len(t.failed) > 0 {
		at = min(at, t.retryAt)
	}
	if drop, ok := t.ended.ends.DropAt(); ok {
		at = min(at, drop)
	}
	return at
}

// Expire cancels a group that has expired, and reports whether there was one.
func (t *Table) Expire(now int64) bool {
	g, ok := t.timers.First()
	if !ok || g.ExpireAt > now {
		return false
	}
	t.Cancel(g, now, "it has expired")
	return true
}

// Retry lists a group that could not be finished again at a time.
func (t *Table) Retry(g *Group, at int64) { t.failed, t.retryAt = append(t.failed, g), at }

// Drop drops what need not be known any more, with at most as many units of work, and returns how many it took. committed
// is the newest batch that the store has. The groups of Retry whose time has come are over again.
func (t *Table) Drop(w writes.Batch, committed uint64, most int) (work int) {
	if len(t.failed) > 0 && t.retryAt <= w.Now {
		all := t.failed
		t.failed = nil
		for _, g := range all {
			t.settle(g)
		}
	}
	work = t.ended.recent.Prune(w.Now, committed, most) + t.messages.drop(committed)
	for ; work < most; work++ {
		if at, ok := t.ended.ends.DropAt(); !ok || at > w.Now {
			break
		}
		w.DeleteRange(t.ended.ends.Drop())
	}
	return work
}

// The states of a group.
const (
	StateOpen      = "open"
	StateSealed    = "sealed"
	StateDone      = "done"
	StateCancelled = "cancelled"
)

// Info describes a group.
type Info struct {
	Name, State string
	Counts
	Message  storage.ID // that was enqueued at its end; zero: none was
	Error    string     // why it is cancelled; "": by a command, or it is not
	OpenedAt time.Time
	SealedAt time.Time // zero: it was not
	EndedAt  time.Time // zero: it has not
	Queue    string    // of its message
}

// Info describes the group.
func (g *Group) Info() Info {
	i := Info{Name: g.Name, State: StateOpen, Counts: g.Counts, Error: g.Error, OpenedAt: moment(g.OpenedAt), SealedAt: moment(g.SealedAt), Queue: g.Queue}
	switch {
	case g.IsCancelled():
		i.State, i.EndedAt = StateCancelled, moment(g.CancelledAt)
	case g.SealedAt != 0:
		i.State = StateSealed
	}
	return i
}

// InfoOf describes a group that has come to its end.
func InfoOf(name string, e *storage.GroupEnd) Info {
	i := Info{
		Name: name, State: StateDone, Counts: Counts{Done: e.Done, Dead: e.Dead, Cancelled: e.CancelledNumber}, Message: e.Message, Error: e.Error,
		OpenedAt: moment(e.OpenedAt), SealedAt: moment(e.SealedAt), EndedAt: moment(e.EndedAt), Queue: e.Queue,
	}
	if e.Cancelled {
		i.State = StateCancelled
	}
	return i
}

// moment is the time of Unix nanoseconds, and the zero time for 0.
func moment(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}
