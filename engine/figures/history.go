package figures

import (
	"math"
	"time"

	"github.com/faisca/fila/engine/internal/timeline"
	"github.com/faisca/fila/storage"
)

// History records what queues and their followed keys did, at the first turn of each step (timeline.StepAt), before
// that turn has changed anything. Recording needs no timer: while there is no turn, nothing changes. Many queues are
// recorded in slices, over several turns.
//
// Once a minute, if something has changed, the engine writes what a restart needs, of each queue and key that has changed:
// the minutes and the tens of its lines (Record of a Queue, All, Followed). Counters of a history go on where those
// of the last start were written; those of the Queue begin at zero.
type History struct {
	begun uint32  // the first step that is known; 0: none yet
	fine  uint32  // the first one that is recorded since the start
	done  uint32  // the last one
	step  uint32  // that is being recorded, with those since done
	due   int64   // when the next step begins, Unix nanoseconds
	now   Numbers // of all queues together, when the step began

	before    Flow // of all queues together, until the start
	all       timeline.Lines[values]
	throttles throttles
	saved     Numbers // of all queues together, when the last minute began that is written, or is being written
}

// Moment is what a queue, or all together, had done and held at one time. Events count from the start: of a moment before
// it, their numbers are negative, modulo 2^64.
type Moment struct {
	At time.Time
	Numbers
}

// Numbers are what a history has of a queue.
type Numbers struct {
	Flow
	ByStatus
}

// values are numbers as they are stored: events modulo 2^32, and messages up to 2^32-1.
type values [9]uint32

func (n *Numbers) values() (v values) {
	for i, events := range [5]uint64{n.Enqueued, n.Delivered, n.Acked, n.Nacked, n.Expired} {
		v[i] = uint32(events)
	}
	for i, messages := range [4]int64{n.Ready, n.Delayed, n.Leased, n.Dead} {
		v[5+i] = bounded(messages)
	}
	return v
}

func bounded(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// grown returns the counter that was stored as v, and is now. Less than 2^32 events have happened since.
func grown(v uint32, now uint64) uint64 { return now - uint64(uint32(now)-v) }

// numbers returns the numbers that were stored, which are now those of n.
func (v *values) numbers(n Numbers) Numbers {
	for i, events := range []*uint64{&n.Enqueued, &n.Delivered, &n.Acked, &n.Nacked, &n.Expired} {
		*events = grown(v[i], *events)
	}
	n.Ready, n.Delayed, n.Leased, n.Dead = int64(v[5]), int64(v[6]), int64(v[7]), int64(v[8])
	return n
}

// flow returns the counters that were stored.
func (v *values) flow() Flow {
	return Flow{uint64(v[0]), uint64(v[1]), uint64(v[2]), uint64(v[3]), uint64(v[4])}
}

// plus returns the sum of counters.
func (f Flow) plus(o Flow) Flow {
	return Flow{f.Enqueued + o.Enqueued, f.Delivered + o.Delivered, f.Acked + o.Acked, f.Nacked + o.Nacked, f.Expired + o.Expired}
}

// minus is the inverse of plus.
func (f Flow) minus(o Flow) Flow {
	return Flow{f.Enqueued - o.Enqueued, f.Delivered - o.Delivered, f.Acked - o.Acked, f.Nacked - o.Nacked, f.Expired - o.Expired}
}

// at returns the numbers at a step, which are now those of n.
func at(l *timeline.Lines[values], r timeline.Resolution, step uint32, n Numbers) Numbers {
	v, set := l.At(r, step)
	if !set {
		return Numbers{}
	}
	return v.numbers(n)
}

// Due reports whether the time of a step has come that is not recorded.
func (h *History) Due(now int64) bool { return now >= h.due }

// Begin begins to record a step.
func (h *History) Begin(now int64, all *All) {
	if h.step, h.now = timeline.StepAt(now), h.of(all); h.fine == 0 { // after a start, when the clock may have gone back
		h.all.Cut(h.step)
		h.begun = min(h.begun, h.step)
	}
}

// of returns the present numbers of all queues together.
func (h *History) of(all *All) Numbers {
	n := Numbers{all.events.flow(), all.messages[0].byStatus(false)}
	n.Flow = n.plus(h.before)
	n.ByStatus.add(all.messages[1].byStatus(true))
	return n
}

// from returns the first step since which nothing has changed: what has changed since the last one that
// is recorded did so before the next step began.
func (h *History) from() uint32 {
	if h.fine == 0 {
		return h.step
	}
	return h.done + 1
}

// Record records a queue and its followed keys, of which look says what they hold. A queue may come twice, as a purge
// gives it another number.
func (h *History) Record(q *Queue, now int64, look func(f *Followed) KeyHolds) {
	if q.recorded == h.step {
		return
	}
	if q.recorded == 0 { // after a start
		q.lines.Cut(h.step)
		for _, f := range q.followed.list {
			f.lines.Cut(h.step)
			f.since = min(f.since, h.step)
		}
	}
	q.recorded = h.step
	n := q.numbers()
	q.lines.Set(timeline.Tens, h.from(), h.step, n.values())
	q.followed.record(h, now, look)
	q.aim(now)
}

// Finish ends a step: all queues are recorded. It reports whether the numbers at the beginning of a minute are to be
// written, since they have changed.
func (h *History) Finish() (write bool) {
	from := h.from()
	h.all.Set(timeline.Tens, from, h.step, h.now.values())
	minute := h.step / timeline.Minutes.Every() * timeline.Minutes.Every()
	if h.done, h.due = h.step, timeline.Begin(h.step+1); h.fine == 0 {
		h.fine = h.step
	}
	if h.begun == 0 {
		h.begun = h.step
	}
	if minute < from || h.now == h.saved {
		return false
	}
	h.saved = h.now
	return true
}

// Unwritten returns when the numbers are due to be written, Unix nanoseconds: at the end of the minute, if they
// have changed. ok is false if they have not.
func (h *History) Unwritten(now int64, all *All) (at int64, ok bool) {
	minute := int64(timeline.Minutes.Every())
	return timeline.Begin(uint32((int64(timeline.StepAt(now))/minute + 1) * minute)), h.fine != 0 && h.of(all) != h.saved
}

func (c *counters) flow() Flow {
	return Flow{c[Enqueued], c[Delivered], c[Acked], c[Nacked], c[Expired]}
}

func (q *Queue) numbers() Numbers {
	n := Numbers{q.events.flow(), q.byStatus(q.Dead)}
	n.Flow = n.plus(q.before)
	return n
}

// All returns the moments of all queues together in the last steps of ten seconds, the oldest first.
func (h *History) All(all *All, last uint32) []Moment {
	return h.moments(&h.all, h.of(all), h.before, h.begun, last)
}

// Of returns those of a queue that was created at a time.
func (h *History) Of(q *Queue, created int64, last uint32) []Moment {
	return h.moments(&q.lines, q.numbers(), q.before, max(h.begun, timeline.StepAt(created)), last)
}

func (h *History) moments(l *timeline.Lines[values], now Numbers, before Flow, since, last uint32) (list []Moment) {
	for _, p := range h.known(since).Places(last, timeline.Tens) {
		n := at(l, p.Resolution, p.Step, now)
		n.Flow = n.minus(before)
		list = append(list, Moment{time.Unix(0, timeline.Begin(p.Begin())), n})
	}
	return list
}

// known says what is known of a queue or key since a step.
func (h *History) known(since uint32) timeline.Known {
	if h.fine == 0 {
		return timeline.Known{}
	}
	return timeline.Known{Since: since, Seconds: h.fine, Until: h.done}
}

// Rates returns how many messages of a queue that was created at a time were enqueued and delivered in a second, over the
// last ten to twenty seconds.
func (h *History) Rates(q *Queue, created, now int64) (in, out float64) {
	if h.fine == 0 {
		return 0, 0
	}
	step := max(h.fine, h.done-1)
	n := q.numbers()
	was := at(&q.lines, timeline.Seconds, step, n)
	seconds := max(float64(now-max(timeline.Begin(step), created))/float64(time.Second), 1)
	return float64(n.Enqueued-was.Enqueued) / seconds, float64(n.Delivered-was.Delivered) / seconds
}

// lately is how many steps Lately looks back.
const lately = uint32(10 * time.Minute / timeline.Length)

// Lately returns what has happened in a queue in the last ten minutes, since the start of the broker at most.
func (h *History) Lately(q *Queue) Flow {
	n := q.numbers()
	was := at(&q.lines, timeline.Seconds, max(h.fine, h.done-min(h.done, lately-1)), n)
	return n.minus(was.Flow)
}

// What is written of lines: see storage.History. V is an array of numbers.

// record returns the record of lines whose numbers are known since a step.
func record[V comparable](l *timeline.Lines[V], since uint32, numbers func(*V) []uint32) *storage.History {
	var v V
	rec := &storage.History{Width: uint32(1 + len(numbers(&v))), Begun: since}
	rows := func(r timeline.Resolution) (all []uint32) {
		for _, p := range l.Points(r) {
			all = append(append(all, p.Step), numbers(&p.Values)...)
		}
		return all
	}
	rec.Minutes, rec.Tens = rows(timeline.Minutes), rows(timeline.Tens)
	return rec
}

// restore reads a record into lines. One of another width has been written by another version, and is left out.
func restore[V comparable](l *timeline.Lines[V], rec *storage.History, numbers func(*V) []uint32) bool {
	var v V
	width := 1 + len(numbers(&v))
	if int(rec.Width) != width {
		return false
	}
	points := func(rows []uint32) (all []timeline.Point[V]) {
		for ; len(rows) > 0; rows = rows[width:] {
			p := timeline.Point[V]{Step: rows[0]}
			copy(numbers(&p.Values), rows[1:width])
			all = append(all, p)
		}
		return all
	}
	l.Restore(timeline.Minutes, points(rec.Minutes))
	l.Restore(timeline.Tens, points(rec.Tens))
	return true
}

func (v *values) slice() []uint32 { return v[:] }

// RecordAll returns the record of all queues together.
func (h *History) RecordAll() *storage.History { return record(&h.all, h.begun, (*values).slice) }

// RestoreAll reads it at a start, before any queue is recorded.
func (h *History) RestoreAll(rec *storage.History) {
	if restore(&h.all, rec, (*values).slice) {
		last := h.all.Last()
		h.begun, h.before = rec.Begun, last.flow()
		h.saved = last.numbers(Numbers{Flow: h.before})
	}
}

// Changed returns the record of a queue if it has changed since the last one; else nil.
func (h *History) Changed(q *Queue) *storage.History {
	if at := q.lines.Changed(); at > q.written {
		q.written = at
		return record(&q.lines, h.begun, (*values).slice)
	}
	return nil
}

// Rewrite has all that is written be written again: a failed batch may have had it. Throttles count from zero again.
func (h *History) Rewrite() {
	h.saved = Numbers{}
	for _, l := range h.throttles.byName {
		l.took, l.written = ThrottleNumbers{}, 0
	}
}

// Restore reads the record of a queue at a start.
func (q *Queue) Restore(rec *storage.History) {
	if restore(&q.lines, rec, (*values).slice) {
		last := q.lines.Last()
		q.before, q.written = last.flow(), q.lines.Changed()
	}
}
