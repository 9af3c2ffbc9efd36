// Package history verifies a broker by what its clients observed. Clients record each call with the
// times at which it began and was answered; Check then verifies the whole history against the
// contract. Replies are the only evidence: an unanswered call may or may not have been executed.
//
// All times are durations since the start of the run, by one monotonic clock. Times in replies of
// the broker, such as the ends of leases, are converted to it.
package history

import "time"

// Outcome is what a client knows about the effect of a call.
type Outcome uint8

// The outcomes. An error with MISCONF is Unknown: what was written to a failing disk may turn up
// later.
const (
	Unknown Outcome = iota // no reply: it may or may not have been executed
	Done                   // executed
	Refused                // not executed
)

// Span holds the times at which a call began and was answered or abandoned.
type Span struct{ Call, Return time.Duration }

// Enqueue is the enqueue of one message. Tags are unique within a run.
type Enqueue struct {
	Span
	Outcome
	Tag      string
	ID       string // if Done
	Queue    string
	Key      string
	Priority int
	Delay    time.Duration // earliest delivery after the call; 0: immediately
	TTL      time.Duration // latest delivery after the enqueue; 0: unlimited
	// Dedup is the deduplication id. A further enqueue with the same id within the window stores
	// nothing and returns the id of the first message. Enqueues with the same Dedup have the same
	// key.
	Dedup string
	// Publish is what the copies that one publish stores in several queues share; "": it was no
	// publish. A publish has one outcome.
	Publish string
	// Optional says that the queue may refuse its copy without refusing the publish.
	Optional bool
}

// Delivery is one message in the reply to a lease.
type Delivery struct {
	Tag        string
	ID         string
	Fence      uint64 // delivery number in the receipt
	Key        string
	Deliveries int64
	Until      time.Duration // end of the lease
}

// Lease is one call of FILA.LEASE.
type Lease struct {
	Span
	Outcome
	Queue      string
	Visibility time.Duration
	Got        []Delivery
}

// EndKind is a way to end a lease, or to extend it.
type EndKind uint8

// The kinds.
const (
	Ack EndKind = iota
	Nack
	Release
	Extend
)

func (k EndKind) String() string { return [...]string{"ack", "nack", "release", "extend"}[k] }

// End is one call with one receipt. Done means that the receipt was honoured.
type End struct {
	Span
	Outcome
	Kind    EndKind
	ID      string
	Fence   uint64
	ReadyAt time.Duration // of a nack that was Done: earliest delivery; 0: immediately
	Until   time.Duration // of an extend that was Done
	With    string        // of an ack: tag of the message enqueued in the same transaction
	Valued  bool          // of an ack: with a result, which names the receipt
	Dead    bool          // of a nack: it ends the message
}

// Ask is one call of FILA.RESULT.
type Ask struct {
	Span
	Outcome
	Queue  string
	ID     string
	Block  time.Duration // how long it may wait; 0: not at all
	Status string        // of the answer; "": the message is not known
	By     uint64        // delivery number that the value of the answer names; 0: it has no value
}

// The statuses of an Ask.
const (
	IsDone    = "done"
	IsDead    = "dead"
	IsPending = "pending"
)

// Crash is a loss of the broker's memory: a killed process, a power cut or a recovery in place.
type Crash struct {
	At    time.Duration // calls answered after it were not answered before the crash
	Back  time.Duration // the broker serves again; calls answered before it were not answered after the crash
	Power bool          // unsynced data may be lost
	// Kept says that no lease was forgotten: nodes handed over in order, or one was away that did
	// not lead. Replies may be lost as in any crash.
	Kept bool
}

// Log is the record of one client. It is not safe for concurrent use.
type Log struct {
	Enqueues []Enqueue
	Leases   []Lease
	Ends     []End
	Asks     []Ask
}

// History is the record of a run.
type History struct {
	Log
	Crashes []Crash // in chronological order, none during another
	// Left is the number of messages that the broker still reports at the end, after clients have
	// taken and acked all they could get.
	Left int64
}

// Add moves the record of a client into the history.
func (h *History) Add(l *Log) {
	h.Enqueues = append(h.Enqueues, l.Enqueues...)
	h.Leases = append(h.Leases, l.Leases...)
	h.Ends = append(h.Ends, l.Ends...)
	h.Asks = append(h.Asks, l.Asks...)
}

// Sync is storage.sync, which determines what a power cut may take.
type Sync uint8

// The modes.
const (
	SyncAlways Sync = iota
	SyncInterval
	SyncNever
)

// Rules are the broker settings that the contract depends on.
type Rules struct {
	Sync     Sync
	Interval time.Duration // for SyncInterval
	Late     time.Duration // for SyncInterval: by how much a busy machine may delay a sync
	LeaseLag time.Duration // a crash may lose leases younger than this
	// DedupWindow is the deduplication window.
	DedupWindow time.Duration
	// Skew is the maximum difference between the clocks of the broker and the clients.
	Skew time.Duration
	// Unordered are queues whose clients disconnect in the middle of calls, so that a message may
	// be leased for a moment without a client learning of it.
	Unordered map[string]bool
	// Ordered are queues with ORDERED ON.
	Ordered map[string]bool
	// Nodes says that some nodes of a cluster go on during a crash, and may deliver again at once
	// what was in a reply that another one has lost: nothing is in order until the crash is over.
	Nodes bool
}

// Rule states a promise.
type Rule string

// The promises, in the order in which they are checked.
const (
	Corrupt  Rule = "what is delivered was enqueued, once, under one id"
	Lost     Rule = "an acknowledged message is delivered until it is acked"
	Hole     Rule = "a power cut takes the end of the log, never the middle"
	Stuck    Rule = "a stored message can be leased"
	Again    Rule = "an acked message is not delivered again"
	Receipts Rule = "a receipt is issued once"
	TwoHeld  Rule = "a message has one live lease"
	Fenced   Rule = "a receipt changes nothing after its lease"
	Order    Rule = "within a key, first deliveries are in the order of enqueue"
	Early    Rule = "a message is not delivered before it is due"
	Lives    Rule = "a message expires at the end of its TTL, not before or after"
	Dedup    Rule = "within the window, a deduplication id stands for one message"
	Torn     Rule = "a transaction is executed as a whole or not at all"
	Half     Rule = "all queues of a publish get the message, or none"
	Serial   Rule = "an ordered queue delivers a key in order, one message at a time"
	Result   Rule = "the answer to FILA.RESULT is what has become of the message"
	Answered Rule = "a client that waits for a result is answered, or asks again and is"
)

// Breach is a broken promise.
type Breach struct {
	Rule Rule
	What string
}

func (b Breach) String() string { return string(b.Rule) + ": " + b.What }

// Verdict is the result of Check.
type Verdict struct {
	Breaches []Breach // at most breachesMax of each rule
	Counts   map[Rule]int
	// Excused counts acknowledged messages lost to a power cut as the rules allow.
	Excused int
	// Figures of the run.
	Enqueued, Deduplicated, Unanswered, Deliveries, Acked, Ended int
	Published, Copies                                            int // publishes that were answered, and what they stored
	Ordered, Failed                                              int // deliveries of ordered queues, and those of them that were not acked
	Asked, SaidDone, SaidDead, Waited                            int // answers to asks; those that say done or dead; those of them that came while the client waited
}

// OK reports whether every promise was kept.
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
