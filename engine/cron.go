package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// Recurring messages. A cron entry is a schedule with the message that each tick enqueues.
// The states of an entry:
//
//   armed      in cronTable.due until its next tick (NextAt)
//   in a round job is set: an off-loop round makes the message of the tick, and its result
//              enqueues the message and arms the entry for the following tick
//              With REPLACE the result is applied as a task of its own, which may wait for a read
//   uncounted  the tick waits until the census knows whether its limited queue has room,
//              then the entry is armed again for the same tick
//   disabled   schedule is nil: the stored expression or zone is invalid now; SetCron
//              repairs it
//
// An entry is in exactly one of these states (invariant 21). SetCron and DeleteCron are
// possible in each of them: a round ignores the result of a job that is no longer the
// entry's. Memory holds all of an entry but the content of its message, which is read from
// the store for each tick. cron_tick.go is the round.

// CatchUp is what becomes of missed ticks: those that are more than cronGrace late.
type CatchUp uint8

// The rules. Their numbers are part of the format.
const (
	CatchUpLast CatchUp = iota // only the last missed tick enqueues a message
	CatchUpNone                // no missed tick does
	CatchUpAll                 // each missed tick does, the oldest first, see madeUpMax
)

// String returns the word of the protocol: last, none or all.
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

// Cron is a request to set a recurring message. Engine.PrepareCron must be called before
// Tx.SetCron.
type Cron struct {
	Name       string
	Expression string // see schedule.Parse
	Zone       string // a name of the IANA database; "": UTC
	CatchUp    CatchUp
	Topic      bool    // Message.Queue is the name of a topic, to which each tick publishes
	Message    Enqueue // what each tick enqueues; At and Dedup are not used

	schedule *schedule.Schedule
	record   []byte
}

// PrepareCron validates a recurring message and encodes its content. It runs on the
// goroutine of the connection. Errors: ErrInvalid for an expression, zone or value,
// ErrTooBig for a part over its limit.
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
	m := storage.Message{Payload: req.Payload, Headers: req.Headers, Meta: req.CutContent()}
	cr.record = m.Append(nil)
	req.Payload, req.Headers = nil, nil
	return nil
}

// cronEntry is a recurring message in memory. Its states are drawn at the head of the file.
type cronEntry struct {
	name     string
	seq      uint64 // position in the roster
	set      storage.Cron
	schedule *schedule.Schedule // nil: invalid, the entry is disabled
	job      *cronJob           // the tick in the round under way; nil: none
	// uncounted says that the tick waits for the census, as its queue is limited.
	uncounted bool
	timer     int // index in cronTable.due; -1: not in it
}

func (e *cronEntry) Before(o *cronEntry) bool {
	if e.set.NextAt != o.set.NextAt {
		return e.set.NextAt < o.set.NextAt
	}
	return e.seq < o.seq
}

func (e *cronEntry) Index() *int { return &e.timer }

// cronTable is the component of recurring messages.
type cronTable struct {
	entries map[string]*cronEntry
	list    intrusive.Roster[cronEntry]
	dead    int                        // entries without a schedule
	due     intrusive.Heap[*cronEntry] // the armed entries
	round   *cronRound                 // under way off the loop; nil: none
	retryAt int64                      // no round begins before: the last one was refused
	// uncounted lists the entries in that state, and perhaps some that have left it.
	uncounted []*cronEntry
	zones     map[string]*time.Location
}

func (t *cronTable) reset() {
	*t = cronTable{entries: map[string]*cronEntry{}, zones: map[string]*time.Location{}}
}

// next returns when the next entry ticks. No timer is needed while a round is under way:
// its result is a task.
func (t *cronTable) next(c *core) int64 {
	if e, ok := t.due.First(); ok && t.round == nil {
		return max(c.onCalendar(e.set.NextAt), t.retryAt)
	}
	return never
}

func (t *cronTable) expire(c *core) { c.startRound() }

// add creates an entry in memory and arms it.
func (t *cronTable) add(name string, set storage.Cron, s *schedule.Schedule) *cronEntry {
	e := &cronEntry{name: name, set: set, timer: -1}
	t.entries[name] = e
	t.dead++ // it has no schedule yet
	e.seq = t.list.Add(e)
	t.schedule(e, s)
	return e
}

// schedule sets the schedule of an entry and arms it. Entries of one zone share the zone's
// tables.
func (t *cronTable) schedule(e *cronEntry, s *schedule.Schedule) {
	if s != nil {
		if zone := t.zones[e.set.Zone]; zone != nil {
			s.Zone = zone
		}
		t.zones[e.set.Zone] = s.Zone
	}
	if e.schedule == nil {
		t.dead--
	}
	if s == nil {
		t.dead++
	}
	e.schedule = s
	t.arm(e)
}

// arm puts an entry into due at its next tick, or takes it out if it is in another state.
func (t *cronTable) arm(e *cronEntry) {
	switch wanted := e.schedule != nil && e.set.NextAt != 0 && e.job == nil && !e.uncounted; {
	case wanted && e.timer >= 0:
		t.due.Fix(e)
	case wanted:
		t.due.Push(e)
	case e.timer >= 0:
		t.due.Remove(e)
	}
}

// SetCron creates a recurring message, or replaces the one with that name. If expression
// and zone stay the same, so does the next tick: setting an entry again neither skips nor
// repeats a tick. Otherwise the first tick is the first one after now. A tick in the round
// under way is made again, with the new content.
//
// Errors: an unknown queue, ErrInvalid for a message that would expire before it is ready
// or for an entry above the limit, ErrNoBudget for a budget that does not exist, ErrMisconf while
// the store takes no writes.
func (tx *Tx) SetCron(cr *Cron) error {
	c := tx.core
	req := &cr.Message
	if err := c.checkCronTarget(cr); err != nil {
		return err
	}
	if err := c.writableForNew(); err != nil {
		return err
	}
	for _, name := range req.Budgets {
		if _, err := c.accountNamed(name); err != nil {
			return err
		}
	}
	t := &c.cron
	e := t.entries[cr.Name]
	if e == nil && len(t.entries) >= c.cfg.Limits.Crons {
		return fmt.Errorf("%w: the limit is %s", ErrInvalid, amount(c.cfg.Limits.Crons, "recurring message"))
	}
	set := storage.Cron{
		Queue: req.Queue, Expression: cr.Expression, Zone: cr.Zone, CatchUp: uint32(cr.CatchUp), Key: req.Key,
		DelayMs: uint64(req.Delay.Milliseconds()), TTLMs: uint64(req.TTL.Milliseconds()), SetAt: c.calendar(),
		Meta: req.Meta, Topic: cr.Topic,
	}
	once(&set.Meta)
	if req.Charge != nil {
		set.Charge = *req.Charge + 1
	}
	if req.Priority != nil {
		set.Priority = uint32(*req.Priority) + 1
	}
	if req.Replace {
		set.Replace = uint64(req.MaxDelay.Milliseconds()) + 1
	}
	if e == nil {
		set.NextAt = cr.schedule.First(c.calendar())
		e = t.add(cr.Name, set, cr.schedule)
	} else {
		if old := &e.set; old.Expression == set.Expression && old.Zone == set.Zone && e.schedule != nil {
			set.NextAt, set.MadeUp = old.NextAt, old.MadeUp
		} else {
			set.NextAt = cr.schedule.First(c.calendar())
		}
		set.LastAt, set.Fired, set.Missed, set.Skipped = e.set.LastAt, e.set.Fired, e.set.Missed, e.set.Skipped
		e.set, e.job, e.uncounted = set, nil, false // a round under way no longer counts for the entry
		t.schedule(e, cr.schedule)
	}
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateCronMessage, cr.Name), cr.record)
	c.putCron(e)
	c.out.sync = true
	return nil
}

// checkCronTarget refuses a recurring message whose ticks its queue would refuse. A topic may get
// its bindings later.
func (c *core) checkCronTarget(cr *Cron) error {
	req := &cr.Message
	if cr.Topic {
		if err := c.writable(); err != nil {
			return err
		}
		return c.cfg.Limits.checkTopicName(req.Queue)
	}
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return err
	}
	_, err = c.lifetime(q, req.TTL, c.now+int64(req.Delay))
	return err
}

// putCron writes the record of an entry, without the content of its message.
func (c *core) putCron(e *cronEntry) {
	c.out.key = storage.AppendStateKey(c.out.key[:0], storage.StateCron, e.name)
	c.out.batch.Put(storage.State, c.out.key, e.set.Append(nil))
}

// DeleteCron removes a recurring message and reports whether it existed. Messages that it
// has enqueued stay; a tick in the round under way enqueues nothing.
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
	t.list.Remove(e.seq)
	if e.schedule == nil {
		t.dead--
	}
	e.schedule, e.job = nil, nil
	t.arm(e)
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateCron, name))
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateCronMessage, name))
	c.out.sync = true
	return true, nil
}

// CronInfo describes a recurring message as FILA.CRON shows it.
type CronInfo struct {
	Name, Queue, Expression string
	Topic                   bool   // Queue is the name of a topic
	Zone                    string // "": UTC
	CatchUp                 CatchUp
	Key                     string    // fairness key as given; "": none
	NextAt                  time.Time // zero: the entry is disabled
	LastAt                  time.Time // the last tick that enqueued a message; zero: none has
	Fired                   uint64    // ticks that enqueued a message
	Missed                  uint64    // ticks that were too late or refused
	Skipped                 uint64    // ticks whose queue had a message with the unique id
	LastError               string    // of the last tick that was refused
	ErrorAt                 time.Time
	Priority                *uint8
	Delay, TTL              time.Duration
	SetAt                   time.Time
	Meta                           // of each message, without what Meta.CutContent returns
	Charge                  *int64 // to each of the budgets, as given
	Replace                 bool
	MaxDelay                time.Duration // of a replacement; 0: without limit

	schedule *schedule.Schedule // nil: invalid
}

// Upcoming returns the next ticks, at most n of them, and none after the year 2262, which no time
// of the engine comes to. It searches them on the goroutine of the caller.
func (i *CronInfo) Upcoming(n int) (ticks []time.Time) {
	if i.schedule == nil || i.NextAt.IsZero() {
		return nil
	}
	for at, last := i.NextAt.UnixNano(), int64(0); at > last && len(ticks) < n; at, last = i.schedule.After(at, at), at {
		ticks = append(ticks, unix(at))
	}
	return ticks
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
		Name: e.name, Queue: s.Queue, Topic: s.Topic, Expression: s.Expression, Zone: s.Zone, CatchUp: CatchUp(s.CatchUp), Key: s.Key,
		NextAt: at(s.NextAt), LastAt: at(s.LastAt), Fired: s.Fired, Missed: s.Missed, LastError: s.LastError, ErrorAt: at(s.ErrorAt),
		Priority: priorityOf(s), Delay: time.Duration(s.DelayMs) * time.Millisecond,
		TTL: time.Duration(s.TTLMs) * time.Millisecond, SetAt: at(s.SetAt), Meta: s.Meta, Charge: chargeOf(s),
		Skipped:  s.Skipped,
		schedule: e.schedule,
	}
	i.Replace, i.MaxDelay = replaceOf(s)
	if e.schedule == nil {
		i.NextAt, i.LastError = time.Time{}, "invalid expression or zone; set the recurring message again"
	}
	return i
}

// priorityOf returns the priority of an entry's message; nil: the default. The record
// stores the priority plus one.
func priorityOf(s *storage.Cron) *uint8 {
	if s.Priority == 0 {
		return nil
	}
	p := uint8(min(s.Priority-1, priorityMax))
	return &p
}

// chargeOf returns the charge of an entry's message; nil: its cost. The record stores the charge
// plus one.
func chargeOf(s *storage.Cron) *int64 {
	if s.Charge == 0 {
		return nil
	}
	return new(s.Charge - 1)
}

// replaceOf returns whether the ticks of an entry replace messages, and the longest delay of these. The
// record stores the milliseconds plus one.
func replaceOf(s *storage.Cron) (replace bool, most time.Duration) {
	if s.Replace == 0 {
		return false, 0
	}
	return true, time.Duration(s.Replace-1) * time.Millisecond
}

// Cron describes a recurring message; ok is false if there is none with that name.
func (tx *Tx) Cron(name string) (info CronInfo, ok bool) {
	e := tx.core.cron.entries[name]
	if e == nil {
		return CronInfo{}, false
	}
	return e.info(), true
}

// Crons lists up to count recurring messages from a cursor on, filtered by match. The next
// cursor is 0 at the end. An entry that exists during the whole listing is listed exactly
// once.
func (tx *Tx) Crons(cursor uint64, count int, match func(string) bool) (next uint64, list []CronInfo) {
	next = tx.core.cron.list.Walk(cursor, count, func(e *cronEntry) {
		if match(e.name) {
			list = append(list, e.info())
		}
	})
	return next, list
}

// recoverCron reads all entries, without the contents of their messages. An entry whose
// expression or zone is no longer valid is kept, disabled, and logged.
func (c *core) recoverCron() error {
	return c.scan(storage.State, storage.AppendStateKey(nil, storage.StateCron), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("cron %q: %w", k, storage.ErrCorrupt)
		}
		var set storage.Cron
		if err := set.Decode(v); err != nil {
			return fmt.Errorf("cron %q: %w", parts[1], err)
		}
		s, err := schedule.Stored(set.Expression, set.Zone)
		if err != nil {
			c.cfg.Log.Error().Err(err).Str("cron", parts[1]).Msg("cron entry disabled: invalid schedule, set it again")
		}
		c.cron.add(parts[1], set, s)
		return nil
	})
}
