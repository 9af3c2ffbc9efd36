package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// Recurring messages. An entry says what is enqueued and when; cron_tick.go says
// what happens at a tick. Of each entry memory holds all but what its message
// contains, which is read from the store for each tick.

// CatchUp is what becomes of ticks that were missed: see cronGrace.
type CatchUp uint8

// The rules. Their numbers are on disk.
const (
	CatchUpLast CatchUp = iota // the last one makes a message
	CatchUpNone                // none does
	CatchUpAll                 // each does, the oldest first
)

// String is the word on the wire.
func (u CatchUp) String() string {
	switch u {
	case CatchUpNone:
		return "none"
	case CatchUpAll:
		return "all"
	default:
		return "last"
	}
}

// Cron is a recurring message.
type Cron struct {
	Name       string
	Expression string // see ParseSchedule
	Zone       string // "": UTC
	CatchUp    CatchUp
	Message    Enqueue // what each tick enqueues; At is not used

	schedule *schedule.Schedule
	record   []byte
}

// PrepareCron checks a recurring message and encodes what it holds, on the
// connection.
func (e *Engine) PrepareCron(cr *Cron) error { return prepareCron(cr, &e.cfg.Limits) }

func prepareCron(cr *Cron, l *Limits) (err error) {
	switch {
	case cr.Name == "":
		return fmt.Errorf("%w: the name of a recurring message has at least one byte", ErrInvalid)
	case len(cr.Name) > l.Key:
		return fmt.Errorf("%w: name of %d bytes, the limit is %d", ErrTooBig, len(cr.Name), l.Key)
	}
	if cr.schedule, err = schedule.Parse(cr.Expression, cr.Zone); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	req := &cr.Message
	if err := checkMessage(req, l); err != nil {
		return err
	}
	m := storage.Message{Payload: req.Payload, Headers: req.Headers, Throttles: req.Throttles, Weight: req.Weight, Cost: req.Cost}
	cr.record = m.Append(nil)
	req.Payload, req.Headers, req.Throttles = nil, nil, nil
	return nil
}

// cronEntry is a recurring message in memory.
type cronEntry struct {
	name     string
	seq      uint64 // place in lists
	set      storage.Cron
	schedule *schedule.Schedule // nil: it cannot be read any more, and the entry rests
	job      *cronJob           // the tick that is being made
	// uncounted: its queue is limited, and how full it is must be known first.
	uncounted bool
	timer     int // index in cronTable.due, -1: not in it
}

func (e *cronEntry) before(o *cronEntry) bool {
	if e.set.NextAt != o.set.NextAt {
		return e.set.NextAt < o.set.NextAt
	}
	return e.seq < o.seq
}

func (e *cronEntry) index() *int { return &e.timer }

// cronTable is all recurring messages.
type cronTable struct {
	entries map[string]*cronEntry
	list    roster[cronEntry]
	due     timers[*cronEntry] // those with a next tick, but for those in the round
	round   *cronRound         // under way beside the loop, or nil
	// uncounted holds the entries that are, and perhaps some that are no more.
	uncounted []*cronEntry
	zones     map[string]*time.Location
}

func (t *cronTable) reset() {
	*t = cronTable{entries: map[string]*cronEntry{}, zones: map[string]*time.Location{}}
}

// next returns when an entry ticks. While a round is under way, its end comes by itself.
func (t *cronTable) next(*core) int64 {
	if e, ok := t.due.next(); ok && t.round == nil {
		return e.set.NextAt
	}
	return never
}

func (t *cronTable) expire(c *core) { c.startRound() }

func (t *cronTable) add(name string, set storage.Cron, s *schedule.Schedule) *cronEntry {
	e := &cronEntry{name: name, set: set, timer: -1}
	t.entries[name] = e
	e.seq = t.list.add(e)
	t.schedule(e, s)
	return e
}

// schedule gives an entry its schedule and sets its timer.
func (t *cronTable) schedule(e *cronEntry, s *schedule.Schedule) {
	if s != nil { // hundreds of entries in one zone share what is known of it
		if zone := t.zones[e.set.Zone]; zone != nil {
			s.Zone = zone
		}
		t.zones[e.set.Zone] = s.Zone
	}
	e.schedule = s
	t.arm(e)
}

// arm puts an entry where its next tick belongs.
func (t *cronTable) arm(e *cronEntry) {
	switch wanted := e.schedule != nil && e.set.NextAt != 0 && e.job == nil && !e.uncounted; {
	case wanted && e.timer >= 0:
		t.due.fix(e)
	case wanted:
		t.due.push(e)
	case e.timer >= 0:
		t.due.remove(e)
	}
}

// SetCron makes a recurring message, or replaces the one of that name. If its
// times stay as they are, so does its next tick: setting it again, as often as
// one likes, neither skips nor repeats any. The first tick of new times is the
// first one after now.
func (tx *Tx) SetCron(cr *Cron) error {
	c := tx.core
	req := &cr.Message
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return err
	}
	if _, err := c.lifetime(q, req.TTL, c.now+int64(req.Delay)); err != nil {
		return err // as each tick would be
	}
	if err := c.writableForNew(); err != nil {
		return err
	}
	t := &c.cron
	e := t.entries[cr.Name]
	if e == nil && len(t.entries) >= c.cfg.Limits.Crons {
		return fmt.Errorf("%w: the limit is %s", ErrInvalid, amount(c.cfg.Limits.Crons, "recurring message"))
	}
	set := storage.Cron{
		Queue: req.Queue, Expression: cr.Expression, Zone: cr.Zone, CatchUp: uint32(cr.CatchUp), Key: req.Key,
		DelayMs: uint64(req.Delay.Milliseconds()), TTLMs: uint64(req.TTL.Milliseconds()), SetAt: c.now, //nolint:gosec // not negative
	}
	if req.Priority != nil {
		set.Priority = uint32(*req.Priority) + 1
	}
	if e == nil {
		set.NextAt = cr.schedule.First(c.now)
		e = t.add(cr.Name, set, cr.schedule)
	} else {
		if old := &e.set; old.Expression == set.Expression && old.Zone == set.Zone && e.schedule != nil {
			set.NextAt, set.MadeUp = old.NextAt, old.MadeUp
		} else {
			set.NextAt = cr.schedule.First(c.now)
		}
		set.LastAt, set.Fired, set.Missed = e.set.LastAt, e.set.Fired, e.set.Missed
		e.set, e.job, e.uncounted = set, nil, false // a tick that is being made is made anew, as it is now
		t.schedule(e, cr.schedule)
	}
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateCronMessage, cr.Name), cr.record)
	c.putCron(e)
	c.out.sync = true
	return nil
}

func (c *core) putCron(e *cronEntry) {
	c.out.key = storage.AppendStateKey(c.out.key[:0], stateCron, e.name)
	c.out.batch.Put(storage.State, c.out.key, e.set.Append(nil))
}

// DeleteCron removes a recurring message and reports whether there was one. What
// it has enqueued stays.
func (tx *Tx) DeleteCron(name string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	t := &c.cron
	e := t.entries[name]
	if e == nil {
		return false, nil
	}
	delete(t.entries, name)
	t.list.remove(e.seq)
	e.schedule, e.job = nil, nil
	t.arm(e)
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, stateCron, name))
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, stateCronMessage, name))
	c.out.sync = true
	return true, nil
}

// CronInfo describes a recurring message.
type CronInfo struct {
	Name, Queue, Expression string
	Zone                    string // "": UTC
	CatchUp                 CatchUp
	Key                     string    // fairness key as given; "": none was
	NextAt                  time.Time // zero: it rests
	LastAt                  time.Time // the newest tick that made a message; zero: none has
	Fired                   uint64    // ticks that made a message
	Missed                  uint64    // ticks that made none
	LastError               string    // why the newest of those that were tried made none
	ErrorAt                 time.Time
	Priority                *uint8
	Delay, TTL              time.Duration
	SetAt                   time.Time
}

func (e *cronEntry) info() CronInfo {
	at := func(nanos int64) time.Time {
		if nanos == 0 {
			return time.Time{}
		}
		return unix(nanos)
	}
	s := &e.set
	i := CronInfo{
		Name: e.name, Queue: s.Queue, Expression: s.Expression, Zone: s.Zone, CatchUp: CatchUp(s.CatchUp), Key: s.Key, //nolint:gosec // three values
		NextAt: at(s.NextAt), LastAt: at(s.LastAt), Fired: s.Fired, Missed: s.Missed, LastError: s.LastError, ErrorAt: at(s.ErrorAt),
		Priority: priorityOf(s), Delay: time.Duration(s.DelayMs) * time.Millisecond, //nolint:gosec // at most durationMax
		TTL: time.Duration(s.TTLMs) * time.Millisecond, SetAt: at(s.SetAt), //nolint:gosec // at most durationMax
	}
	if e.schedule == nil {
		i.NextAt, i.LastError = time.Time{}, "its expression or zone cannot be read, set it again"
	}
	return i
}

func priorityOf(s *storage.Cron) *uint8 {
	if s.Priority == 0 {
		return nil
	}
	p := uint8(min(s.Priority-1, priorityMax))
	return &p
}

// Cron describes a recurring message; ok is false if there is none of that name.
func (tx *Tx) Cron(name string) (info CronInfo, ok bool) {
	e := tx.core.cron.entries[name]
	if e == nil {
		return CronInfo{}, false
	}
	return e.info(), true
}

// Crons lists recurring messages from a cursor on, at most count. The next
// cursor is 0 at the end. One that exists throughout a listing is listed exactly
// once.
func (tx *Tx) Crons(cursor uint64, count int, match func(string) bool) (next uint64, list []CronInfo) {
	next = tx.core.cron.list.walk(cursor, count, func(e *cronEntry) {
		if match(e.name) {
			list = append(list, e.info())
		}
	})
	return next, list
}

// recoverCron reads the recurring messages, but not what they hold.
func (c *core) recoverCron() error {
	return c.scan(storage.State, storage.AppendStateKey(nil, stateCron), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("cron %q: %w", k, storage.ErrCorrupt)
		}
		var set storage.Cron
		if err := set.Decode(v); err != nil {
			return fmt.Errorf("cron %q: %w", parts[1], err)
		}
		s, err := schedule.Parse(set.Expression, set.Zone)
		if err != nil {
			c.cfg.Log.Error().Err(err).Str("cron", parts[1]).Msg("a recurring message rests: its times cannot be read any more")
		}
		c.cron.add(parts[1], set, s)
		return nil
	})
}
