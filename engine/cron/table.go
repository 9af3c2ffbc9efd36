package cron

import (
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// Table has all recurring messages.
type Table struct {
	byName   map[string]*Entry
	list     intrusive.Roster[Entry]
	disabled int
	due      intrusive.Heap[*Entry] // the armed entries
	// uncounted lists the entries in that state, and perhaps some that have left it.
	uncounted []*Entry
	zones     map[string]*time.Location // entries of one zone share its tables
}

// NewTable returns a table without entries.
func NewTable() Table {
	return Table{byName: map[string]*Entry{}, zones: map[string]*time.Location{}}
}

// Get returns the entry of a name, nil if there is none.
func (t *Table) Get(name string) *Entry { return t.byName[name] }

// Len returns the number of entries, and how many of them are disabled.
func (t *Table) Len() (all, disabled int) { return len(t.byName), t.disabled }

// Walk visits up to count entries after the cursor, in the order of their creation, and returns the next cursor, 0 at the
// end.
func (t *Table) Walk(cursor uint64, count int, visit func(*Entry)) (next uint64) {
	return t.list.Walk(cursor, count, visit)
}

// Set creates an entry, or replaces the settings of the one with that name, whose counts go on, and its pause. If expression and zone
// stay the same, so does the next tick: setting an entry again neither skips nor repeats a tick. Otherwise the first tick
// is the first one after now. A tick that is being made no longer counts.
func (t *Table) Set(name string, rec storage.Cron, s *schedule.Schedule, now int64) *Entry {
	rec.SetAt = now
	e := t.byName[name]
	if e == nil {
		rec.NextAt = s.First(now)
		return t.add(name, rec, s)
	}
	if old := &e.rec; old.Expression == rec.Expression && old.Zone == rec.Zone && e.schedule != nil {
		rec.NextAt, rec.MadeUp = old.NextAt, old.MadeUp
	} else {
		rec.NextAt = s.First(now)
	}
	rec.LastAt, rec.Fired, rec.Missed, rec.Skipped, rec.PausedAt = e.rec.LastAt, e.rec.Fired, e.rec.Missed, e.rec.Skipped, e.rec.PausedAt
	e.rec, e.taken, e.uncounted = rec, nil, false
	t.plan(e, s)
	return e
}

// Restore adds an entry as it was stored. If its expression or zone is not valid any more, it is disabled, and the
// error says why.
func (t *Table) Restore(name string, rec storage.Cron) error {
	s, err := schedule.Stored(rec.Expression, rec.Zone)
	t.add(name, rec, s)
	return err
}

func (t *Table) add(name string, rec storage.Cron, s *schedule.Schedule) *Entry {
	e := &Entry{name: name, rec: rec, timer: -1}
	t.byName[name] = e
	t.disabled++ // it has no schedule yet
	e.seq = t.list.Add(e)
	t.plan(e, s)
	return e
}

// plan sets the schedule of an entry and arms it.
func (t *Table) plan(e *Entry, s *schedule.Schedule) {
	if s != nil {
		if zone := t.zones[e.rec.Zone]; zone != nil {
			s.Zone = zone
		}
		t.zones[e.rec.Zone] = s.Zone
	}
	if e.schedule == nil {
		t.disabled--
	}
	if s == nil {
		t.disabled++
	}
	e.schedule = s
	t.arm(e)
}

// arm puts an entry into the heap at its next tick, or takes it out if it is in another state.
func (t *Table) arm(e *Entry) {
	switch wanted := e.schedule != nil && e.rec.NextAt != 0 && e.rec.PausedAt == 0 && e.taken == nil && !e.uncounted; {
	case wanted && e.timer >= 0:
		t.due.Fix(e)
	case wanted:
		t.due.Push(e)
	case e.timer >= 0:
		t.due.Remove(e)
	}
}

// Pause stops the ticks of an entry, or lets them go on with the first one after now, and reports whether this changes
// the entry. Ticks that fall into the pause are not missed; one that is being made when the pause begins no longer counts.
func (t *Table) Pause(e *Entry, paused bool, now int64) bool {
	r := &e.rec
	if paused == (r.PausedAt != 0) {
		return false
	}
	if r.PausedAt = 0; paused {
		r.PausedAt, e.taken, e.uncounted = now, nil, false
	} else if e.schedule != nil && r.NextAt != 0 && r.NextAt <= now {
		r.NextAt, r.MadeUp = e.schedule.After(r.NextAt, now), 0
	}
	t.arm(e)
	return true
}

// Delete removes an entry.
func (t *Table) Delete(e *Entry) {
	delete(t.byName, e.name)
	t.list.Remove(e.seq)
	if e.schedule == nil {
		t.disabled--
	}
	e.schedule, e.taken = nil, nil
	t.arm(e)
}

// Next returns when the next entry ticks; ok is false if none does.
func (t *Table) Next() (at int64, ok bool) {
	if e, ok := t.due.First(); ok {
		return e.rec.NextAt, true
	}
	return 0, false
}

// Due returns the entry that is due first, nil if none is at that time.
func (t *Table) Due(now int64) *Entry {
	if e, ok := t.due.First(); ok && e.rec.NextAt <= now {
		return e
	}
	return nil
}

// Skip moves an entry past the missed ticks that its rule gives up, and returns how many these are, as far as they are
// counted, and the steps that this took: 0 if the next tick is to enqueue a message.
func (t *Table) Skip(e *Entry, now int64) (missed uint64, steps int) {
	r := &e.rec
	limit := now - int64(Grace) // earlier ticks are missed
	if r.NextAt >= limit {
		r.MadeUp = 0
		return 0, 0
	}
	var to int64
	switch rule := CatchUp(r.CatchUp); {
	case rule == All && r.MadeUp < MadeUpMax:
		return 0, 0
	case rule == None:
		to = e.schedule.After(r.NextAt, limit-1)
	default:
		if to = e.schedule.Last(r.NextAt, limit-1); to <= r.NextAt {
			return 0, 0 // the last missed tick
		}
	}
	n := e.schedule.Count(r.NextAt, to, CountMax)
	r.Missed += uint64(n)
	r.NextAt = to
	t.arm(e)
	const search = 64 // steps of the search for the last tick
	return uint64(n), n + search
}

const (
	// roundMax bounds the ticks of a round.
	roundMax = 64
	// skipMax bounds the steps of skipping missed ticks in a round.
	skipMax = 512
)

// Round takes the ticks that are due, some of them if there are very many, after it has moved their entries past the
// missed ticks that their rules give up. It returns how many were missed, and writes the records of these entries.
func (t *Table) Round(now int64, b *storage.Batch) (ticks []*Tick, missed uint64) {
	for steps := 0; steps < skipMax && len(ticks) < roundMax; {
		e := t.Due(now)
		if e == nil {
			break
		}
		n, took := t.Skip(e, now)
		if took > 0 {
			e.Put(b)
			missed += n
			steps += took
		} else {
			ticks = append(ticks, t.Take(e))
		}
	}
	return ticks, missed
}

// Take takes the next tick of an entry, for which a message is to be made.
func (t *Table) Take(e *Entry) *Tick {
	e.taken = &Tick{Entry: e, At: e.rec.NextAt, Record: e.rec}
	t.arm(e)
	return e.taken
}

// Holds reports whether a tick that was taken still counts: its entry was neither set nor deleted since, and the table is
// the same.
func (t *Table) Holds(k *Tick) bool { return k.Entry.taken == k && t.byName[k.Entry.name] == k.Entry }

// Defer has the tick that was taken wait for Counted.
func (t *Table) Defer(k *Tick) {
	k.Entry.uncounted = true
	t.uncounted = append(t.uncounted, k.Entry)
}

// Counted arms the entries whose ticks were deferred.
func (t *Table) Counted() {
	for _, e := range t.uncounted {
		e.uncounted = false
		t.arm(e)
	}
	t.uncounted = nil
}

// Release arms the entry of a tick that was taken: for the following tick after End, else for the same.
func (t *Table) Release(k *Tick) {
	k.Entry.taken = nil
	t.arm(k.Entry)
}

// Report takes the number of an invariant and a description of what breaks it.
type Report func(no int, format string, args ...any)

// Check verifies that a recurring message is armed, taken, or waits to be counted, and only one of these; an entry
// that is paused or has no next tick has no timer (21). made says which ticks are being made, counting whether messages are being
// counted.
func (t *Table) Check(made func(*Tick) bool, counting bool, bad Report) {
	waiting := 0
	for name, e := range t.byName {
		taken := e.taken != nil && made(e.taken)
		if off := e.schedule == nil || e.rec.NextAt == 0 || e.rec.PausedAt != 0; e.name != name || (e.timer >= 0) == (off || taken || e.uncounted) ||
			e.taken != nil && !taken || e.uncounted && (taken || !counting) {
			bad(21, "recurring message %q waits for its tick %v, is in the round %v, waits for counts %v", name, e.timer >= 0, taken, e.uncounted)
		}
		if e.timer >= 0 {
			waiting++
		}
	}
	if waiting != t.due.Len() {
		bad(21, "%d recurring messages wait for a tick, %d are in line", waiting, t.due.Len())
	}
}
