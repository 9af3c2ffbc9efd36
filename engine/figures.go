package engine

import (
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/states"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
)

// Figures of queues, for operators. Where each comes from:
//
//	counts and durations   kept up to date; a page of queues reads them in constant time each
//	figures of keys        one sweep over all keys of all queues, in slices, that all requests
//	                       share (sweep): states, the oldest message, the top keys
//	history                what turns record of the counts, every ten seconds (history.go)
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
	Redriving           bool   // a redrive of it is running
	DLQOf               string // the only queue whose dead messages it takes; "": there is none, or several
	Judged              figures.Judged
	State               QueueState       // from the last sweep, but for what has ended since; a sum has no reasons
	Hooks               [2]hook.Hook     // by hook.Kind; nil: none. Their Stats take a lock: not for a turn
	Wait, Work          figures.Quantile // Work is of all outcomes
	// Durations are copies, for requests that ask for them (Figures.Durations).
	Durations Durations

	figures.KeyFigures
}

// add adds the figures of another queue, except for what a sum does not have.
func (f *QueueFigures) add(o *QueueFigures) {
	f.Counts.Add(o.Counts)
	f.Durations.Add(&o.Durations)
	f.KeyFigures.Add(&o.KeyFigures)
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
	// May reports whether the user of the request may look at a queue, whether Match selects it or not; nil: at all of them.
	May func(string) bool
	// Fold leaves out dead-letter queues whose messages are shown with the one queue in which they died (Judged.Dead).
	Fold     bool
	State    *KeyState          // selects queues in a state; nil: in any
	Troubles figures.TroubleSet // selects queues that have one of these; 0: all
	Sort     *figures.Sort      // lists queues so, and ignores Cursor; nil: in the order of their creation
	// Groups takes all queues in place of the page; nil: they are listed.
	Groups *figures.TroubleGroups

	sorted  *figures.Listing[*queue]
	page    FiguresPage
	left    int
	at, end uint64 // the next number, and that of the first queue which is too new
	epoch   uint64
	started bool
}

// FiguresPage is a page of queues.
type FiguresPage struct {
	Next   uint64         // cursor of the next page; 0: this is the last, or it is sorted
	Behind *figures.Place // behind which the next page of a sorted listing begins; nil: this is the last
	Queues []*QueueFigures
	Summed int                  // queues in Sum
	Sum    QueueFigures         // of the queues for which Figures.Sum returns true
	States [states.States]int64 // these queues by state
	// Deleted are the events and durations of all queues that had been deleted when the first
	// page began, on that page: no queue is in them and in the listing.
	Deleted QueueFigures
	Now     time.Time // of the turn
}

// figuresUnits is the work of one queue of a page: its histograms are read.
const figuresUnits = 2

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
		req.begin(c)
	}
	for gaps := 0; req.left > 0; req.at++ {
		if req.at >= req.end {
			req.at, req.left = 0, 0
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
		if req.Match == nil || req.Match(q.name) {
			req.take(c, q)
		}
	}
	if req.sorted != nil && !req.takeSorted(tx) {
		return FiguresPage{}, tx.yield()
	}
	req.started = false
	req.page.Next, req.page.Now = req.at, tx.Now()
	return req.page, nil
}

// begin begins a listing, or the same one again after a recovery.
func (req *Figures) begin(c *core) {
	req.started, req.epoch, req.at, req.left, req.page = true, c.epoch, max(req.Cursor, 1), req.Count, FiguresPage{}
	req.end = uint64(c.queues.nextNumber)
	if req.Cursor == 0 {
		events, durations := c.queues.figures.Deleted()
		req.page.Deleted.Events = events
		req.page.Deleted.Durations.Add(durations)
	}
	if req.Groups != nil {
		*req.Groups = figures.TroubleGroups{}
	}
	if req.sorted = nil; req.Sort != nil {
		req.sorted = &figures.Listing[*queue]{Sort: *req.Sort, Count: req.Count}
	}
	if req.sorted != nil || req.Groups != nil {
		req.at, req.left = 1, FiguresAll
	}
}

// take adds a queue whose name matches to the page, if the request selects it.
func (req *Figures) take(c *core, q *queue) {
	p := &req.page
	if req.Sum != nil && req.Sum(q.name) {
		c.spend(figuresUnits - 1)
		f := c.queueFigures(q)
		f.Durations = *q.figures.Durations()
		p.Sum.add(&f)
		p.Summed++
		p.States[f.State.State]++
		return
	}
	if req.Fold && c.queues.folded(q, req.May) != "" {
		return
	}
	if req.State != nil || req.Troubles != 0 || req.sorted != nil || req.Groups != nil {
		j := req.assess(c, q)
		switch {
		case req.State != nil && j.State != *req.State || req.Troubles != 0 && j.Troubles&req.Troubles == 0:
			return
		case req.Groups != nil:
			req.Groups.Add(q.name, &j)
			return
		case req.sorted != nil:
			req.sorted.Offer(q.name, &q.figures, &j, q)
			return
		}
	}
	p.Queues = append(p.Queues, c.listedFigures(q, req))
}

// takeSorted moves the queues of a sorted listing to the page, and reports whether it is complete.
func (req *Figures) takeSorted(tx *Tx) bool {
	p := &req.page
	for tx.more() {
		q, place, ok := req.sorted.TakeLast()
		if !ok {
			slices.Reverse(p.Queues)
			return true
		}
		if len(p.Queues) == 0 && p.Behind == nil && req.sorted.More() {
			p.Behind = &place
		}
		if tx.core.queues.byNumber[q.no] == q { // it was not deleted meanwhile
			p.Queues = append(p.Queues, tx.core.listedFigures(q, req))
		}
	}
	return false
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
	f.Judged = req.assess(c, q)
	f.State.Reason = c.stateReason(q, f.keysByState(), f.State.State)
	f.DLQOf = c.queues.folded(q, req.May)
	f.Wait, f.Work = q.figures.Durations().Summaries()
	if req.Durations {
		f.Durations.Add(q.figures.Durations())
	}
	return &f
}

// assess returns what is said of a queue.
func (req *Figures) assess(c *core, q *queue) figures.Judged {
	swept := q.figures.Swept()
	var by *states.ByState
	j := figures.Judged{Keys: int64(q.keys.Len()), Ready: q.counts().Ready}
	if swept != nil {
		if by = &swept.States; j.Ready > 0 && !swept.OldestReady.IsZero() {
			j.Since = swept.OldestReady.UnixNano()
		}
	}
	standing := c.standing(q)
	f := standing.Facts(by)
	j.State = f.State()
	if dlq := c.queues.byName[q.set.DLQ]; dlq != nil && c.queues.folded(dlq, req.May) != "" {
		j.Dead = dlq.figures.Total
	} else if q.isDLQ() && c.queues.folded(q, req.May) == "" {
		j.Dead = q.figures.Total
	}
	j.In, j.Out = c.history.Rates(&q.figures, q.set.CreatedAt, c.now)
	hooks, _ := c.out.snapshot.hooks.Get(q.name)
	for _, h := range hooks.by {
		j.Troubles.Set(figures.FailingScript, h != nil && h.Failing())
	}
	j.Troubles.Set(figures.HasDead, j.Dead > 0)
	j.Troubles.Set(figures.NearlyFull, q.figures.Full(int64(q.set.Values[queueset.MaxDepth])))
	j.Troubles.Set(figures.IsPaused, q.set.PausedIn || q.set.PausedOut)
	if !q.isDLQ() && !q.set.PausedOut {
		j.Troubles.Set(figures.WaitsLong, j.Since != 0 && time.Duration(c.now-j.Since) > figures.LongWait)
		j.Troubles.Set(figures.LeasesExpire, c.history.Lately(&q.figures).Expires())
		j.Troubles.Stopped(f)
	}
	return j
}

// folded returns the only queue whose dead messages a queue takes, if the user may look at both: they are shown
// with that queue. Else it returns "".
func (s *queueSet) folded(q *queue, may func(string) bool) string {
	of := s.byDLQ[q.name]
	if of == nil || of.Len() != 1 || may != nil && (!may(q.name) || !may(of.Head().name)) {
		return ""
	}
	return of.Head().name
}

// queueFigures returns the figures of a queue, without its durations and what is said of it but its state.
func (c *core) queueFigures(q *queue) QueueFigures {
	f := QueueFigures{
		Name: q.name, CreatedAt: unix(q.set.CreatedAt), Counts: q.counts(), DLQ: q.set.DLQ, DeadLetter: q.isDLQ(), Ordered: q.ordered(), PausedIn: q.set.PausedIn, PausedOut: q.set.PausedOut,
		Redriving: q.redrive != nil && !q.redrive.Over,
	}
	hooks, _ := c.out.snapshot.hooks.Get(q.name)
	f.Hooks = hooks.by
	if k := q.figures.Swept(); k != nil {
		f.KeyFigures = *k
	}
	standing := c.standing(q)
	facts := standing.Facts(f.keysByState())
	f.State.State = facts.State()
	return f
}

// keysByState returns the keys of the queue by state; nil: that is not known.
func (f *QueueFigures) keysByState() *states.ByState {
	if f.SweptAt.IsZero() {
		return nil
	}
	return &f.States
}

// sweep is the component that looks at all fairness keys of all queues, in slices. The requests
// that wait for it advance it, each in its own slice of the turn; the steps are of bounded work.
// A queue that is deleted or purged has its number no more: what the sweep has of it is dropped.
// A purged queue has no figures until the next sweep. A recovery drops all results.
type sweep struct {
	figures.Sweep

	turn uint64 // the turn that left refers to
	left int    // units that it may use in that turn

	untimed
	unchecked
}

func (s *sweep) reset() { *s = sweep{} }

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
	if s.Recent(c.now, int64(c.cfg.FiguresAge), c.queues.nextNumber) {
		return nil
	}
	if turn := c.health.counters.turns + 1; s.turn != turn {
		s.turn, s.left = turn, c.tasks.budget.Part(4)
	}
	if !s.advance(tx) {
		return tx.yield()
	}
	s.Finish(c.now)
	return nil
}

// advance sweeps as far as the budget lasts, and reports whether it is complete.
func (s *sweep) advance(tx *Tx) bool {
	c := tx.core
	for ; s.No < s.End; s.Next() {
		q := c.queues.byNumber[s.No]
		if q == nil {
			if s.No%gapsPerUnit == 0 && !s.more(tx) {
				return false
			}
			continue
		}
		if !s.more(tx) || !s.advanceQueue(tx, q) {
			return false
		}
		s.Conclude(&q.figures, c.now)
	}
	return true
}

// advanceQueue sweeps the keys of a queue, and reports whether all are done.
func (s *sweep) advanceQueue(tx *Tx, q *queue) bool {
	n, yields := 0, false
	s.Cursor = q.roster.WalkWhile(s.Cursor, func(k *fairKey) bool {
		if n++; n%sweepKeysPerUnit == 0 {
			if yields = !s.more(tx); yields {
				return false
			}
		}
		s.Add(tx.core.now, tx.core.sample(k))
		if q.figures.Rises(&k.stats, uint64(max(k.total, 0))) {
			tx.core.history.follow(tx.core, k)
		}
		return true
	})
	return !yields
}

// sample returns what a sweep looks at.
func (c *core) sample(k *fairKey) figures.Sample {
	state := c.keyState(k)
	s := figures.Sample{Name: k.name, State: state, Depth: k.total, Ready: k.readyCount(), Delivered: k.stats.Delivered}
	if k.window.Len() > 0 {
		s.Since = k.window.First().since
	}
	if state != KeyNoCredit && k.Open() {
		share, fair := k.shares(c.now)
		s.Behind = fair - share
	}
	return s
}

// BusiestKeys returns the keys of a queue with the most deliveries since the start of the broker,
// at most ten and the busiest first, and the sum of all others. The error is ErrNoQueue.
func (tx *Tx) BusiestKeys(queue string) (top []BusyKey, rest BusyKey, err error) {
	c := tx.core
	q, err := c.queueNamed(queue)
	if err != nil {
		return nil, BusyKey{}, err
	}
	top, rest = q.figures.Busiest(figures.Tally(q.order.Tally()), func(name string) figures.Tally { return q.keys.get(name).throttled(c.now) })
	return top, rest, nil
}
