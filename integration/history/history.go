// Package history judges a broker by what its clients were told. Clients note each
// call with the times at which it began and was answered; Check holds the whole,
// afterwards, to the contract. It sees only answers, never what the broker thinks,
// and what was not answered may or may not have happened.
//
// All times are of one clock that never goes back, as durations since the run began;
// times that the broker has told (ends of leases) are converted to it.
package history

import "time"

// Outcome is what a client knows of a call.
type Outcome uint8

// The outcomes. A refusal with MISCONF is Unknown: what a failing disk was given may
// be found on it later.
const (
	Unknown Outcome = iota // no answer: it may or may not have happened
	Done                   // answered as done
	Refused                // answered as not done
)

// Span is when a call began and when it was answered, or given up.
type Span struct{ Call, Return time.Duration }

// Enqueue is one message given to the broker. Tags are unique in a run.
type Enqueue struct {
	Span
	Outcome
	Tag      string
	ID       string // if Done
	Queue    string
	Key      string
	Priority int
	Delay    time.Duration // not to be delivered sooner than so long after the call; 0: at once
	TTL      time.Duration // not to be delivered later than so long after it was enqueued; 0: it does not end
	// Dedup names the message: another one of the name within the window is none, and
	// is answered the id of the first. Those of a name have the same key.
	Dedup string
}

// Delivery is one message of the answer to a lease.
type Delivery struct {
	Tag        string
	ID         string
	Fence      uint64 // the receipt's delivery number
	Key        string
	Deliveries int64
	Until      time.Duration // end of the lease
}

// Lease is one call for messages.
type Lease struct {
	Span
	Outcome
	Queue      string
	Visibility time.Duration
	Got        []Delivery
}

// EndKind is a way to end a lease, or to go on with it.
type EndKind uint8

// The kinds.
const (
	Ack EndKind = iota
	Nack
	Release
	Extend
)

func (k EndKind) String() string { return [...]string{"ack", "nack", "release", "extend"}[k] }

// End is one call with one receipt. Done says that the receipt was honoured.
type End struct {
	Span
	Outcome
	Kind    EndKind
	ID      string
	Fence   uint64
	ReadyAt time.Duration // of a nack that was Done: not to be delivered sooner; 0: at once
	Until   time.Duration // of an extend that was Done
	With    string        // of an ack: what was enqueued in the same transaction
}

// Crash is one end of the broker's memory: a killed process, a power cut, or a
// recovery in place.
type Crash struct {
	At    time.Duration // nothing that was answered later was answered before it
	Back  time.Duration // it serves again; nothing that was answered sooner was answered after it
	Power bool          // what was not synced may be gone
}

// Log is what one client has noted. It is not safe for concurrent use.
type Log struct {
	Enqueues []Enqueue
	Leases   []Lease
	Ends     []End
}

// History is everything that was noted in a run.
type History struct {
	Log
	Crashes []Crash // in order of time
	// Left is how many messages the broker says it still holds at the end, when
	// clients have taken and acked all that they could get.
	Left int64
}

// Add takes over what a client has noted.
func (h *History) Add(l *Log) {
	h.Enqueues = append(h.Enqueues, l.Enqueues...)
	h.Leases = append(h.Leases, l.Leases...)
	h.Ends = append(h.Ends, l.Ends...)
}

// Sync is storage.sync, which says what a power cut may take.
type Sync uint8

// The modes.
const (
	SyncAlways Sync = iota
	SyncInterval
	SyncNever
)

// Rules are the settings of the broker that the contract depends on.
type Rules struct {
	Sync     Sync
	Interval time.Duration // for SyncInterval
	Late     time.Duration // for SyncInterval: how much later than it should a busy machine may sync
	LeaseLag time.Duration // a crash may forget a lease younger than this
	// DedupWindow is for how long a name of Enqueue.Dedup stands for its message.
	DedupWindow time.Duration
	// Skew is how far apart the broker's clock and ours may be.
	Skew time.Duration
	// Unordered are queues whose clients come and go, so that a message may be leased
	// for a moment without a client knowing.
	Unordered map[string]bool
}

// Rule names a promise.
type Rule string

// The promises, in the order in which they are checked.
const (
	Corrupt  Rule = "what is delivered was enqueued, once, under one id"
	Lost     Rule = "an acknowledged message is delivered until it is acked"
	Hole     Rule = "what a power cut takes is the end, never the middle"
	Stuck    Rule = "what is stored can be had"
	Again    Rule = "what was acked does not come again"
	Receipts Rule = "a receipt is handed out once"
	TwoHeld  Rule = "a message has one live lease"
	Fenced   Rule = "a receipt changes nothing after its lease"
	Order    Rule = "in a key, first deliveries are in the order of enqueue"
	Early    Rule = "no message before its time"
	Lives    Rule = "a message lives for its time to live, and no longer"
	Dedup    Rule = "within the window, a name stands for one message"
	Torn     Rule = "a transaction is done as a whole or not at all"
)

// Breach is one broken promise.
type Breach struct {
	Rule Rule
	What string
}

func (b Breach) String() string { return string(b.Rule) + ": " + b.What }

// Verdict is what became of a history.
type Verdict struct {
	Breaches []Breach // at most breachesMax of each rule
	Counts   map[Rule]int
	// Excused counts acknowledged messages that a power cut took and may take.
	Excused int
	// Figures of the run.
	Enqueued, Deduplicated, Unanswered, Deliveries, Acked, Ended int
}

// OK tells whether every promise was kept.
func (v *Verdict) OK() bool { return len(v.Breaches) == 0 }

const breachesMax = 5

func (v *Verdict) breach(r Rule, what string) {
	if v.Counts == nil {
		v.Counts = map[Rule]int{}
	}
	if v.Counts[r]++; v.Counts[r] <= breachesMax {
		v.Breaches = append(v.Breaches, Breach{r, what})
	}
}
