package cron

import (
	"time"

	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/schedule"
	"github.com/faisca/fila/storage"
)

// CatchUp is what becomes of missed ticks: those that are more than Grace late.
type CatchUp uint8

// The rules. Their numbers are part of the format.
const (
	Last CatchUp = iota // only the last missed tick enqueues a message
	None                // no missed tick does
	All                 // each missed tick does, the oldest first, see MadeUpMax
)

// String returns the word of the protocol: last, none or all.
func (u CatchUp) String() string {
	switch u {
	case None:
		return "none"
	case All:
		return "all"
	default:
		return "last"
	}
}

const (
	// Grace is how late a tick may be without being missed, so that a restart or a slow disk costs no tick. Later ticks
	// fall under the entry's CatchUp rule, whatever the cause of the delay.
	Grace = 10 * time.Second
	// MadeUpMax is how many missed ticks in a row All enqueues; of the ticks that follow, it enqueues only the last.
	MadeUpMax = 10_000
	// CountMax bounds how far skipped ticks are counted at a time.
	CountMax = 1000
	// errorMax bounds the error text kept with an entry, in bytes.
	errorMax = 512
)

// Options are what an entry says of each message beside its content.
type Options struct {
	storage.Meta        // without what Meta.CutContent returns
	Key          string // fairness key as given; "": none
	Priority     *uint8 // nil: the default
	Delay, TTL   time.Duration
	Charge       *int64 // to each of the budgets, as given; nil: the cost of the message
	Replace      bool
	MaxDelay     time.Duration // of a replacement; 0: without limit
}

// Store puts the options into a record. What may be missing is one more there.
func (o *Options) Store(rec *storage.Cron) {
	rec.Meta, rec.Key = o.Meta, o.Key
	rec.DelayMs, rec.TTLMs = uint64(o.Delay.Milliseconds()), uint64(o.TTL.Milliseconds())
	if o.Charge != nil {
		rec.Charge = *o.Charge + 1
	}
	if o.Priority != nil {
		rec.Priority = uint32(*o.Priority) + 1
	}
	if o.Replace {
		rec.Replace = uint64(o.MaxDelay.Milliseconds()) + 1
	}
}

// OptionsOf returns the options of a record.
func OptionsOf(rec *storage.Cron) Options {
	ms := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
	o := Options{Meta: rec.Meta, Key: rec.Key, Delay: ms(rec.DelayMs), TTL: ms(rec.TTLMs)}
	if rec.Charge != 0 {
		o.Charge = new(rec.Charge - 1)
	}
	if rec.Priority != 0 {
		o.Priority = new(uint8(min(rec.Priority-1, storage.PriorityMax)))
	}
	if rec.Replace != 0 {
		o.Replace, o.MaxDelay = true, ms(rec.Replace-1)
	}
	return o
}

// Entry is a recurring message. The states of an entry are drawn in the comment of the package.
type Entry struct {
	name      string
	seq       uint64 // position in the roster
	rec       storage.Cron
	schedule  *schedule.Schedule // nil: invalid, the entry is disabled
	taken     *Tick              // the tick that is being made; nil: none
	uncounted bool
	timer     int // index in Table.due; -1: not in it
}

// Name returns the name of the entry.
func (e *Entry) Name() string { return e.name }

// Record returns the record of the entry as it is, without the content of its message.
func (e *Entry) Record() storage.Cron { return e.rec }

// Before orders entries by their next ticks.
func (e *Entry) Before(o *Entry) bool {
	if e.rec.NextAt != o.rec.NextAt {
		return e.rec.NextAt < o.rec.NextAt
	}
	return e.seq < o.seq
}

// Index is the place of the entry in the heap.
func (e *Entry) Index() *int { return &e.timer }

// Tick is a tick of an entry that is being made. Any goroutine may read all of it but Alone.
type Tick struct {
	Entry  *Entry
	At     int64        // when it was due
	Record storage.Cron // of the entry at that time
	Alone  bool         // it is being made by itself; the engine's
}

// Name returns the name of the entry.
func (k *Tick) Name() string { return k.Entry.name }

// Outcome is what has become of a tick.
type Outcome uint8

// The outcomes of a tick.
const (
	Fired   Outcome = iota // it has enqueued a message
	Skipped                // its queue has a message with the unique id
	Refused                // no queue takes its message, with the reason
)

// End says what has become of a tick, and moves its entry to the next one. text is the reason of a refusal.
func (k *Tick) End(as Outcome, text string, now int64) {
	r := &k.Entry.rec
	switch as {
	case Refused:
		r.Missed++
		r.LastError, r.ErrorAt = errtext.Clip(text, errorMax), now
	case Skipped:
		r.Skipped++
	default:
		r.Fired++
		r.LastAt = k.At
	}
	if k.At < now-int64(Grace) {
		r.MadeUp++
	}
	r.NextAt = k.Entry.schedule.After(k.At, k.At)
}

// Info describes a recurring message as FILA.CRON shows it.
type Info struct {
	Name, Queue, Expression string
	Topic                   bool   // Queue is the name of a topic
	Zone                    string // "": UTC
	CatchUp                 CatchUp
	NextAt                  time.Time // zero: the entry is disabled or paused
	LastAt                  time.Time // the last tick that enqueued a message; zero: none has
	Fired                   uint64    // ticks that enqueued a message
	Missed                  uint64    // ticks that were too late or refused
	Skipped                 uint64    // ticks whose queue had a message with the unique id
	LastError               string    // of the last tick that was refused
	ErrorAt                 time.Time
	SetAt                   time.Time
	PausedAt                time.Time // zero: it is not paused
	Options                           // of each message

	schedule *schedule.Schedule // nil: invalid
}

// Info describes the entry.
func (e *Entry) Info() Info {
	at := func(nanos int64) time.Time {
		if nanos == 0 {
			return time.Time{}
		}
		return time.Unix(0, nanos)
	}
	r := &e.rec
	i := Info{
		Name: e.name, Queue: r.Queue, Topic: r.Topic, Expression: r.Expression, Zone: r.Zone, CatchUp: CatchUp(r.CatchUp),
		NextAt: at(r.NextAt), LastAt: at(r.LastAt), Fired: r.Fired, Missed: r.Missed, Skipped: r.Skipped,
		LastError: r.LastError, ErrorAt: at(r.ErrorAt), SetAt: at(r.SetAt), PausedAt: at(r.PausedAt), Options: OptionsOf(r), schedule: e.schedule,
	}
	if r.PausedAt != 0 {
		i.NextAt = time.Time{}
	}
	if e.schedule == nil {
		i.NextAt, i.LastError = time.Time{}, "invalid expression or zone; set the recurring message again"
	}
	return i
}

// Upcoming returns the next ticks, at most n of them, and none after the year 2262, which no time
// of the engine comes to. It searches them on the goroutine of the caller.
func (i *Info) Upcoming(n int) (ticks []time.Time) {
	if i.schedule == nil || i.NextAt.IsZero() {
		return nil
	}
	for at, last := i.NextAt.UnixNano(), int64(0); at > last && len(ticks) < n; at, last = i.schedule.After(at, at), at {
		ticks = append(ticks, time.Unix(0, at))
	}
	return ticks
}
