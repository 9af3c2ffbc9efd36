package figures

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/engine/internal/states"
)

// Trouble is a reason why an operator should look at a queue.
type Trouble uint8

// The troubles, the most urgent first. To add one is a line here, its word in String, and what sets it: its state in
// stopped, or the engine.
const (
	FailingScript Trouble = iota // the breaker of a hook is open: its safe decisions are used
	LacksConsumer                // messages are ready, and there is no consumer
	HasDead                      // dead messages wait to be redriven or removed
	NearlyFull                   // it holds nearly as many messages as it may
	WaitsLong                    // a message is ready for longer than LongWait
	LeasesExpire                 // too many leases of the last minutes have expired
	IsPaused                     // takes no messages, or delivers none
	LacksCredit                  // messages are stopped by a budget
	IsHeld                       // messages are stopped by a hold
	IsThrottled                  // messages are stopped by the rates of throttles, as it may well be meant
	LacksSlots                   // messages are stopped by the leases that throttles allow
	WaitsForOrder                // messages are stopped by earlier ones of their keys
)

// Troubles is the number of troubles.
const Troubles = int(WaitsForOrder) + 1

// LongWait is from when on a ready message has waited too long.
const LongWait = 15 * time.Minute

// String returns the word for the trouble. Where it is a state, that has the same.
func (t Trouble) String() string {
	return [...]string{
		FailingScript: "script", LacksConsumer: "no_consumer", HasDead: "dead", NearlyFull: "full", WaitsLong: "late", LeasesExpire: "expiring",
		IsPaused: "paused", LacksCredit: "no_credit", IsHeld: "held", IsThrottled: "throttled", LacksSlots: "concurrency", WaitsForOrder: "ordered",
	}[t]
}

// stopped returns the troubles that are states.
func stopped() [6]struct {
	states.State
	Trouble
} {
	return [...]struct {
		states.State
		Trouble
	}{{states.NoConsumer, LacksConsumer}, {states.NoCredit, LacksCredit}, {states.Held, IsHeld}, {states.Throttled, IsThrottled}, {states.Concurrency, LacksSlots}, {states.Ordered, WaitsForOrder}}
}

// TroubleSet are the troubles of a queue. The zero value has none.
type TroubleSet uint16

// Set adds a trouble, if it holds.
func (s *TroubleSet) Set(t Trouble, holds bool) {
	if holds {
		*s |= 1 << t
	}
}

// Stopped adds those of the states of a queue. One that is paused has no other.
func (s *TroubleSet) Stopped(f states.Facts) {
	if f.State() == states.Paused {
		s.Set(IsPaused, true)
		return
	}
	for _, of := range stopped() {
		s.Set(of.Trouble, f&(1<<of.State) != 0)
	}
}

// All returns the troubles, the most urgent first.
func (s *TroubleSet) All() iter.Seq[Trouble] {
	return func(yield func(Trouble) bool) {
		for left := *s; left != 0; left &= left - 1 {
			if !yield(Trouble(bits.TrailingZeros16(uint16(left)))) {
				return
			}
		}
	}
}

// rank orders queues by what is most urgent in them, and then by how many messages that concerns: the greatest first.
func (s *TroubleSet) rank(messages int64) int64 {
	const bitsOfMessages = 48
	if *s == 0 {
		return 0
	}
	return int64(Troubles-bits.TrailingZeros16(uint16(*s)))<<bitsOfMessages | min(messages, 1<<bitsOfMessages-1)
}

// Full reports whether a queue has room for less than a tenth of the messages that it may hold; 0: it has no limit.
func (q *Queue) Full(most int64) bool { return most > 0 && q.Total > most-max(most/10, 1) }

// Expires reports whether one in twenty deliveries of a time has expired, of at least as many.
func (f Flow) Expires() bool { return f.Delivered >= 20 && f.Expired*20 >= f.Delivered }

// GroupNames is how many queues of a group are named.
const GroupNames = 5

// TroubleGroup are the queues that have a trouble.
type TroubleGroup struct {
	Queues   int64
	Messages int64   // that it concerns
	Since    int64   // since when the message is ready that is ready longest, Unix nanoseconds; 0: there is none
	First    []Named // the queues with the most of these messages, at most GroupNames
}

// Named is a queue in a group.
type Named struct {
	Queue    string
	Messages int64
}

// TroubleGroups are the queues by trouble, and behind these all that have one.
type TroubleGroups [Troubles + 1]TroubleGroup

// Add adds a queue.
func (g *TroubleGroups) Add(name string, j *Judged) {
	if j.Troubles == 0 {
		return
	}
	for t := range j.Troubles.All() {
		n := j.Ready
		if t == HasDead {
			n = j.Dead
		}
		g[t].add(Named{name, n}, j.Since)
	}
	g[Troubles].add(Named{name, j.Dead + j.Ready}, j.Since)
}

func (g *TroubleGroup) add(q Named, since int64) {
	g.Queues++
	g.Messages += q.Messages
	if since != 0 && (g.Since == 0 || since < g.Since) {
		g.Since = since
	}
	at, _ := slices.BinarySearchFunc(g.First, q, func(a, b Named) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), strings.Compare(a.Queue, b.Queue))
	})
	if at < GroupNames {
		g.First = slices.Insert(g.First, at, q)
		g.First = g.First[:min(len(g.First), GroupNames)]
	}
}
