package figures

// Flow are the events that history shows. Expired counts leases.
type Flow struct{ Enqueued, Delivered, Acked, Nacked, Expired uint64 }

// ByStatus are messages by status.
type ByStatus struct{ Ready, Delayed, Leased, Dead int64 }

func (n *ByStatus) add(o ByStatus) {
	n.Ready += o.Ready
	n.Delayed += o.Delayed
	n.Leased += o.Leased
	n.Dead += o.Dead
}

// Events have happened since the start of the broker; none of them ever decreases. TTLExpired counts
// messages. Undelivered are those of Delivered whose reply never reached the client, and which were
// taken back.
type Events struct {
	Flow
	DeadLettered, Dropped, Released, Redriven                uint64
	Cancelled, Purged, Deduplicated, TTLExpired, Undelivered uint64
	Results                                                  uint64              // stored
	Replaced                                                 uint64              // messages whose place another has taken
	DeadBy                                                   [DeadReasons]uint64 // the parts of DeadLettered, by the reasons of the engine
	Rounds                                                   uint64              // of deficit round robin, see package dispatch
}

// DeadReasons is the number of reasons for which messages die.
const DeadReasons = 4

// Event is what Queue.Count counts: a counter of Events.
type Event uint8

// The events. Those from Died on are the parts of DeadLettered, by reason.
const (
	Enqueued Event = iota
	Delivered
	Acked
	Nacked
	Expired
	DeadLettered
	Dropped
	Released
	Redriven
	Cancelled
	Purged
	Deduplicated
	TTLExpired
	Undelivered
	Results
	Rounds
	Replaced
	Died
	eventKinds = Died + DeadReasons
)

// counters count events.
type counters [eventKinds]uint64

// each returns all counters, by event.
func (e *Events) each() [eventKinds]*uint64 {
	d := &e.DeadBy
	return [...]*uint64{
		Enqueued: &e.Enqueued, Delivered: &e.Delivered, Acked: &e.Acked, Nacked: &e.Nacked, Expired: &e.Expired, DeadLettered: &e.DeadLettered,
		Dropped: &e.Dropped, Released: &e.Released, Redriven: &e.Redriven, Cancelled: &e.Cancelled, Purged: &e.Purged, Deduplicated: &e.Deduplicated,
		TTLExpired: &e.TTLExpired, Undelivered: &e.Undelivered, Results: &e.Results, Rounds: &e.Rounds, Replaced: &e.Replaced,
		Died: &d[0], Died + 1: &d[1], Died + 2: &d[2], Died + 3: &d[3],
	}
}

// events returns the events by name.
func (c *counters) events() (e Events) {
	for i, n := range e.each() {
		*n = c[i]
	}
	return e
}

func (c *counters) add(o *counters) {
	for i, n := range o {
		c[i] += n
	}
}

// Add adds the events of another queue.
func (e *Events) Add(o *Events) {
	from := o.each()
	for i, n := range e.each() {
		*n += *from[i]
	}
}

// Grow raises each counter to what all has and parts has not. It takes none back: one that would be
// lower stays.
func (e *Events) Grow(all, parts *Events) {
	whole, part := all.each(), parts.each()
	for i, n := range e.each() {
		*n = max(*n, *whole[i]-min(*part[i], *whole[i]))
	}
}

// Messages are numbers of messages. Those of a queue that is not counted are differences to what
// the store held at the start, but for Leased.
type Messages struct {
	Total    int64 // of any status
	Leased   int64 // and retrying
	Delayed  int64
	Retrying int64
}

func (n *Messages) add(o Messages) {
	n.Total += o.Total
	n.Leased += o.Leased
	n.Delayed += o.Delayed
	n.Retrying += o.Retrying
}

func (n *Messages) subtract(o Messages) {
	n.Total -= o.Total
	n.Leased -= o.Leased
	n.Delayed -= o.Delayed
	n.Retrying -= o.Retrying
}

// byStatus returns the messages by status. In a dead-letter queue, those that are neither delayed nor
// leased are dead, not ready.
func (n *Messages) byStatus(dead bool) ByStatus {
	s := ByStatus{Delayed: n.Delayed + n.Retrying, Leased: n.Leased - n.Retrying}
	if remainder := max(n.Total-n.Delayed-n.Leased, 0); dead {
		s.Dead = remainder
	} else {
		s.Ready = remainder
	}
	return s
}

// Counts are the messages of a queue, or of all queues, and what has happened to them.
type Counts struct {
	ByStatus
	Keys, Waiters, ResultWaits int64 // fairness keys with messages, consumers that wait, requests for results that wait
	Events
	// Counting reports that the messages in the store are still being counted after a start.
	// Until then, Ready, Delayed and Dead are too low.
	Counting bool
}

// Add adds the counts of another queue.
func (n *Counts) Add(o Counts) {
	n.add(o.ByStatus)
	n.Keys += o.Keys
	n.Waiters += o.Waiters
	n.ResultWaits += o.ResultWaits
	n.Events.Add(&o.Events)
	n.Counting = n.Counting || o.Counting
}
