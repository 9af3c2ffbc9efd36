package engine

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/timeline"
)

// Figures of queues, for operators. Where each comes from:
//
//	counts and durations   kept up to date; a page of queues reads them in constant time each
//	figures of keys        one sweep over all keys of all queues, in slices, that all requests
//	                       share (sweep): states, the oldest message, the top keys
//	history                what turns record of the counts, every ten seconds
//
// A sweep begins when a request needs one and the last one is older than Config.FiguresAge, and
// requests that come meanwhile wait for the same. Without requests there is none.

// QueueFigures are the figures of a queue at one moment, and of its fairness keys at the time of
// the last sweep.
type QueueFigures struct {
	Name      string
	CreatedAt time.Time // with the name it identifies a queue; a purge does not change it
	Counts
	DLQ                 string // "": none
	DeadLetter, Ordered bool   // its messages are dead ones; it delivers one of a key at a time
	PausedIn, PausedOut bool
	Redriving           bool         // a redrive of it is running
	Hooks               [2]hook.Hook // by hook.Kind; nil: none. Their Stats take a lock: not for a turn
	Wait, Work          Quantile     // Work is of all outcomes
	// Durations are copies, for requests that ask for them (Figures.Durations).
	Durations Durations

	KeyFigures
}

// KeyFigures are what a sweep has found about the fairness keys of a queue that have messages. The
// slices are shared and must not be changed.
type KeyFigures struct {
	States      [keyStates]int64 // keys in each state, in the order of KeyStates
	OldestReady time.Time        // since when the message that is ready longest is ready; zero: none in memory
	Top         [Orders][]string // the first keys in each order, at most TopKeysMax
	SweptAt     time.Time        // when; zero: the queue has had no key since it was created or purged
}

// Order is an order of fairness keys, the greatest first.
type Order uint8

// The orders.
const (
	ByDepth     Order = iota // messages
	ByAge                    // how long the first message is ready
	ByDelivered              // deliveries since the start of the broker
	ByBehind                 // how far the share of the last minute is below the fair share, of keys that may deliver
	Orders      = 4          // the number of orders
)

// TopKeysMax is the number of keys that a sweep retains in each order.
const TopKeysMax = 100

// add adds the figures of another queue, except for what a sum does not have.
func (f *QueueFigures) add(o *QueueFigures) {
	f.Counts.Add(o.Counts)
	f.Durations.Add(&o.Durations)
	for i, n := range o.States {
		f.States[i] += n
	}
	if t := o.OldestReady; !t.IsZero() && (f.OldestReady.IsZero() || t.Before(f.OldestReady)) {
		f.OldestReady = t
	}
}

// Figures asks for a page of queues with their figures. The unexported fields are the progress
// of the call.
type Figures struct {
	// Queue is the only queue to list, in constant time beside the sweep; empty: as the other
	// fields say, of which it ignores all but Durations.
	Queue  string
	Cursor uint64            // next cursor of the previous page; 0: the first page
	Count  int               // queues to look at, whether they match or not
	Match  func(string) bool // selects queues by name; nil: all
	// Durations is set by requests that want the histograms of each queue, not only Wait and
	// Work. They are copied: 1.4 KB for each that is not nil.
	Durations bool
	// Sum, if it is not nil, returns true for the queues that are added to the Sum of the page
	// instead of being listed. A sum has histograms whatever Durations says.
	Sum func(string) bool

	page    FiguresPage
	left    int
	at, end uint64 // the next number, and that of the first queue which is too new
	epoch   uint64
	started bool
}

// FiguresPage is a page of queues.
type FiguresPage struct {
	Next   uint64 // cursor of the next page; 0: this is the last
	Queues []*QueueFigures
	Summed int          // queues in Sum
	Sum    QueueFigures // of the queues for which Figures.Sum returns true
	// Deleted are the events and durations of all queues that had been deleted when the first
	// page began, on that page: no queue is in them and in the listing.
	Deleted QueueFigures
	Now     time.Time // of the turn
}

const (
	// figuresUnits is the work of one queue of a page: its histograms are read.
	figuresUnits = 2
	// gapsPerUnit is how many numbers without a queue a unit pays for.
	gapsPerUnit = 16
)

// FiguresAll is a Count for all queues: the page is the whole listing.
const FiguresAll = math.MaxInt

// Figures returns a page of queues in the order of their creation. A queue that exists
// throughout a listing, and is not purged meanwhile, is listed exactly once; a page lists no
// queue twice and none that was created or purged after its beginning. It returns
// ErrWouldBlock until the figures of keys are recent enough and the page is complete; the
// queues of a large page are read in different turns. It is refused in a transaction; ErrNoQueue
// is its only other refusal.
func (tx *Tx) Figures(req *Figures) (FiguresPage, error) {
	c := tx.core
	if tx.atomic {
		return FiguresPage{}, errWaits
	}
	if req.Queue != "" {
		return tx.figuresOfOne(req)
	}
	if err := tx.awaitSweep(); err != nil {
		return FiguresPage{}, err
	}
	if !req.started || req.epoch != c.epoch {
		req.started, req.epoch, req.at, req.left, req.page = true, c.epoch, max(req.Cursor, 1), req.Count, FiguresPage{}
		req.end = uint64(c.queues.nextNumber)
		if req.Cursor == 0 {
			req.page.Deleted.Counts = c.queues.deletedTotals.counts()
			req.page.Deleted.Durations.Add(&c.queues.deletedTotals.durations)
		}
	}
	p := &req.page
	for gaps := 0; req.left > 0; req.at++ {
		if req.at >= req.end {
			req.at = 0
			break
		}
		q := c.queues.byNumber[uint32(req.at)]
		if q == nil {
			if gaps++; gaps%gapsPerUnit == 0 && !tx.more() {
				return FiguresPage{}, tx.yield()
			}
			continue
		}
		if !tx.more() {
			return FiguresPage{}, tx.yield()
		}
		req.left--
		switch {
		case req.Match != nil && !req.Match(q.name):
		case req.Sum != nil && req.Sum(q.name):
			c.spend(figuresUnits - 1)
			f := c.queueFigures(q)
			f.Durations = q.totals.durations
			p.Sum.add(&f)
			p.Summed++
		default:
			p.Queues = append(p.Queues, c.listedFigures(q, req))
		}
	}
	req.started = false
	p.Next, p.Now = req.at, tx.Now()
	return *p, nil
}

// figuresOfOne is Figures of req.Queue.
func (tx *Tx) figuresOfOne(req *Figures) (FiguresPage, error) {
	q, err := tx.core.queueNamed(req.Queue)
	if err == nil {
		err = tx.awaitSweep()
	}
	if err != nil {
		return FiguresPage{}, err
	}
	return FiguresPage{Queues: []*QueueFigures{tx.core.listedFigures(q, req)}, Now: tx.Now()}, nil
}

// listedFigures returns the figures of a queue as a page lists them, with those durations that
// are asked for.
func (c *core) listedFigures(q *queue, req *Figures) *QueueFigures {
	c.spend(figuresUnits - 1)
	f := c.queueFigures(q)
	f.Wait, f.Work = q.totals.durations.summaries()
	if req.Durations {
		f.Durations.Add(&q.totals.durations)
	}
	return &f
}

// queueFigures returns the figures of a queue, without its durations.
func (c *core) queueFigures(q *queue) QueueFigures {
	f := QueueFigures{
		Name: q.name, CreatedAt: unix(q.set.CreatedAt), Counts: q.counts(), DLQ: q.set.DLQ, DeadLetter: q.isDLQ(), Ordered: q.ordered(), PausedIn: q.set.PausedIn, PausedOut: q.set.PausedOut,
		Redriving: q.redrive != nil && !q.redrive.over,
	}
	hooks, _ := c.out.snapshot.hooks.get(q.name)
	f.Hooks = hooks.by
	if q.figures != nil {
		f.KeyFigures = *q.figures
	}
	return f
}

// sweep is the component that looks at all fairness keys of all queues, in slices. The requests
// that wait for it advance it, each in its own slice of the turn; the steps are of bounded work.
//
//	idle     the results are in queue.figures, and at says since when
//	running  at the queue with the number no, behind the key with the number cursor of its roster
//
//	idle → running    awaitSweep: the results are too old
//	running → idle    all queues are swept that existed when it began
//	running → running awaitSweep: no request has advanced it for Config.FiguresAge, so that a part
//	                  of the results is too old; it begins again
//
// A queue that is deleted or purged has its number no more: what the sweep has of it is dropped.
// A purged queue has no figures until the next sweep. A recovery drops all results.
type sweep struct {
	running  bool
	at       int64 // end of the last sweep, Unix nanoseconds; 0: none
	advanced int64 // when it was last advanced
	no, end  uint32
	cursor   uint64
	keys     keyFigures

	turn uint64 // the turn that left refers to
	left int    // units that it may use in that turn

	untimed
	unchecked
}

func (s *sweep) reset() { *s = sweep{} }

// keyFigures are KeyFigures that are being collected.
type keyFigures struct {
	KeyFigures
	seen   int
	oldest int64
	top    [Orders]topList
}

// sweepKeysPerUnit is the number of keys that a unit of work pays for. A turn sweeps 2048 keys at
// most: the sweep may use as much of a turn as a slice has, whatever its requests have left.
const sweepKeysPerUnit = 4

// more takes a unit and reports whether the sweep may go on in this turn.
func (s *sweep) more(tx *Tx) bool {
	if s.left <= 0 || !tx.more() {
		return false
	}
	s.left--
	return true
}

// awaitSweep returns nil if the figures of keys are recent enough. Else it advances the sweep
// within the budget of the turn, and parks the task until it is complete (ErrWouldBlock).
func (tx *Tx) awaitSweep() error {
	c := tx.core
	s := &c.sweep
	if !s.running && s.at != 0 && c.now-s.at <= int64(c.cfg.FiguresAge) {
		return nil
	}
	if !s.running || c.now-s.advanced > int64(c.cfg.FiguresAge) {
		*s = sweep{running: true, no: 1, end: c.queues.nextNumber, at: s.at, turn: s.turn, left: s.left}
	}
	s.advanced = c.now
	if turn := c.health.counters.turns + 1; s.turn != turn {
		s.turn, s.left = turn, c.tasks.budget.part(4)
	}
	if !s.advance(tx) {
		return tx.yield()
	}
	s.running, s.at = false, c.now
	return nil
}

// advance sweeps as far as the budget lasts, and reports whether it is complete.
func (s *sweep) advance(tx *Tx) bool {
	c := tx.core
	for ; s.no < s.end; s.goOn() {
		q := c.queues.byNumber[s.no]
		if q == nil {
			if s.no%gapsPerUnit == 0 && !s.more(tx) {
				return false
			}
			continue
		}
		if !s.more(tx) || !s.advanceQueue(tx, q) {
			return false
		}
		q.figures = s.keys.conclude(c.now)
	}
	return true
}

// goOn goes on to the next number.
func (s *sweep) goOn() { s.no, s.cursor, s.keys = s.no+1, 0, keyFigures{} }

// advanceQueue sweeps the keys of a queue, and reports whether all are done.
func (s *sweep) advanceQueue(tx *Tx, q *queue) bool {
	n, yields := 0, false
	s.cursor = q.roster.WalkWhile(s.cursor, func(k *fairKey) bool {
		if n++; n%sweepKeysPerUnit == 0 {
			if yields = !s.more(tx); yields {
				return false
			}
		}
		s.keys.add(tx.core, k)
		return true
	})
	return !yields
}

// add counts a key.
func (f *keyFigures) add(c *core, k *fairKey) {
	f.seen++
	state := c.keyState(k)
	f.States[state]++
	f.top[ByDepth].offer(k.total, k.name)
	f.top[ByDelivered].offer(int64(k.stats.delivered), k.name)
	if k.window.Len() > 0 {
		since := k.window.First().since
		if f.oldest == 0 || since < f.oldest {
			f.oldest = since
		}
		f.top[ByAge].offer(c.now-since+1, k.name)
	}
	if state != stateNoCredit && k.Open() {
		share, fair := c.shares(k)
		f.top[ByBehind].offer(int64((fair-share)*behindScale), k.name)
	}
}

// behindScale makes whole numbers of differences between shares.
const behindScale = 1e12

// conclude returns the figures, nil if there was no key.
func (f *keyFigures) conclude(now int64) *KeyFigures {
	if f.seen == 0 {
		return nil
	}
	r := &f.KeyFigures
	r.SweptAt = unix(now)
	if f.oldest != 0 {
		r.OldestReady = unix(f.oldest)
	}
	for i := range f.top {
		r.Top[i] = f.top[i].names()
	}
	return new(*r)
}

// history records what queues did, for FILA.HISTORY: at the first turn of each step (package
// timeline), before that turn has changed anything. It needs no timer: while there is no turn,
// nothing changes. Many queues are recorded in slices, over several turns.
type history struct {
	begun, done uint32           // the first step that is recorded, and the last; 0: none yet
	step        uint32           // that is being recorded, with those since done
	no          uint32           // number of the next queue to record; 0: none
	due         int64            // when the next step begins, Unix nanoseconds
	sum, last   timeline.Numbers // of the queues that are recorded; of all queues in the step before
	all         timeline.Line    // of all queues together

	untimed
	unchecked
}

// reset begins a step again that is not done. Lines outlive recoveries, as totals do.
func (h *history) reset() { h.no = 0 }

// historyPerUnit is the number of queues that a unit of work pays for.
const historyPerUnit = 4

// expire records a step when its time has come.
func (h *history) expire(c *core) {
	if c.now < h.due || c.ops.census != nil { // until all is counted, the counts are too low
		return
	}
	if h.no == 0 {
		h.step, h.no, h.sum = timeline.StepAt(c.now), 1, numbersOf(c.queues.deletedTotals.counts())
	}
	from := h.done + 1 // what has changed since then did so before the next step began
	if h.begun == 0 {
		from = h.step
	}
	for ; h.no < c.queues.nextNumber; h.no++ {
		if h.no%historyPerUnit == 0 {
			if !c.room() {
				return
			}
			c.spend(1)
		}
		q := c.queues.byNumber[h.no]
		if q == nil || q.recorded == h.step { // a purge gives a queue another number: it may come twice
			continue
		}
		n := numbersOf(q.counts())
		q.recorded = h.step
		q.totals.record(from, n)
		h.sum.Add(n)
	}
	h.sum.AtLeast(h.last) // a queue that was deleted meanwhile may be missing
	h.all.Set(from, h.sum)
	if h.last, h.done, h.no, h.due = h.sum, h.step, 0, timeline.Begin(h.step+1); h.begun == 0 {
		h.begun = h.step
	}
}

// Moment is what a queue, or all together, had done and held at one time.
type Moment struct {
	At time.Time
	timeline.Numbers
}

// History returns the moments of the last ten minutes, ten seconds apart, the oldest first; those
// of all queues together if the name is empty. It goes back to the start of the broker, or to the
// creation of the queue, at most. The error is ErrNoQueue.
func (tx *Tx) History(name string) (list []Moment, err error) {
	h := &tx.core.history
	line, now, first := &h.all, h.last, h.begun
	if name != "" {
		q, err := tx.core.queueNamed(name)
		if err != nil {
			return nil, err
		}
		now, first = numbersOf(q.counts()), max(first, timeline.StepAt(q.set.CreatedAt))
		if line = q.totals.line; line == nil {
			line = &timeline.Line{} // nothing has ever happened
		}
	}
	for step := max(first, h.done-timeline.Steps+1); step <= h.done && h.begun != 0; step++ {
		list = append(list, Moment{unix(timeline.Begin(step)), line.At(step, now)})
	}
	return list, nil
}

// topList finds the TopKeysMax keys with the greatest values, of which only positive ones count.
type topList struct {
	list  []topKey // at most twice as many
	least int64    // a value up to which no other key belongs into the list
}

type topKey struct {
	value int64
	name  string
}

// offer adds a key if it may be among those with the greatest values.
func (l *topList) offer(value int64, name string) {
	if value <= l.least {
		return
	}
	if l.list = append(l.list, topKey{value, name}); len(l.list) == 2*TopKeysMax {
		l.cut()
	}
}

// cut sorts the list, and leaves TopKeysMax keys in it.
func (l *topList) cut() {
	slices.SortFunc(l.list, func(a, b topKey) int {
		return cmp.Or(cmp.Compare(b.value, a.value), strings.Compare(a.name, b.name))
	})
	if len(l.list) > TopKeysMax {
		clear(l.list[TopKeysMax:])
		l.list = l.list[:TopKeysMax]
		l.least = l.list[TopKeysMax-1].value
	}
}

// names returns the keys, the one with the greatest value first.
func (l *topList) names() []string {
	l.cut()
	names := make([]string, len(l.list))
	for i := range l.list {
		names[i] = l.list[i].name
	}
	return names
}
