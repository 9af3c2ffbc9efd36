// Package event has the events of the engine: what they say, and which of them have subscribers.
package event

import (
	"strings"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// Kind is the kind of an event, or a set of kinds.
type Kind uint32

// The kinds of events. All but BudgetLow, BudgetEmpty and Lost refer to a queue. Nodes of a cluster send
// each other the bits: a new kind comes last.
const (
	Enqueued    Kind = 1 << iota // a message was stored
	Ready                        // a queue that could deliver nothing has a message that no waiting consumer took
	Empty                        // the last message of a queue is gone
	Acked                        // a message was acked
	Failed                       // a delivery failed, and the message will be delivered again
	Dead                         // a message was moved to the dead-letter queue, or dropped if there is none
	Created                      // a queue was created
	Altered                      // the settings of a queue were changed
	Deleted                      // a queue was deleted
	Bound                        // a queue was bound to a topic
	Unbound                      // a queue is no longer bound to a topic
	Breaker                      // the breaker of a hook changed its state
	BudgetLow                    // the balance of a budget has fallen below its LOW
	BudgetEmpty                  // a key waits for a budget that does not cover its next message
	Lost                         // events were dropped because the listener was too slow
	Progress                     // a consumer has said how far its work on a message is
)

// Kinds lists all kinds in the order of their bits.
func Kinds() []Kind {
	return []Kind{
		Enqueued, Ready, Empty, Acked, Failed, Dead, Created, Altered, Deleted, Bound, Unbound, Breaker, BudgetLow, BudgetEmpty, Lost, Progress,
	}
}

// String returns the name of a kind, or the names of a set joined by "|".
func (k Kind) String() string {
	names := map[Kind]string{
		Enqueued: "enqueued", Ready: "ready", Empty: "empty", Acked: "acked", Failed: "failed", Dead: "dead",
		Created: "created", Altered: "altered", Deleted: "deleted", Bound: "bound", Unbound: "unbound",
		Breaker: "breaker", BudgetLow: "budget_low", BudgetEmpty: "budget_empty", Lost: "lost",
		Progress: "progress",
	}
	if name, one := names[k]; one {
		return name
	}
	var all []string
	for _, one := range Kinds() {
		if k&one != 0 {
			all = append(all, names[one])
		}
	}
	return strings.Join(all, "|")
}

// Event reports something that has happened. It is sent after the commit of its batch and is
// then as durable as a reply, except for Breaker, Progress and Lost, which are not stored.
// Fields that do not apply to the kind are zero.
type Event struct {
	Kind  Kind
	Time  time.Time // time of the turn
	Queue string

	ID      storage.ID // of the message
	Fence   uint64     // number of the last delivery; 0: there was none
	Key     string     // fairness key of the message
	Attempt uint32     // number of the attempt that failed, from 1
	Error   string     // error text of the failure
	ReadyAt time.Time  // when the message is ready again
	Reason  string     // why the message is dead: attempts, nack, on_failure, ttl
	DLQ     string     // queue that a dead message was moved to; "": it was dropped

	Hook  hook.Kind
	State hook.BreakerState

	Count uint64 // number of dropped events

	Progress string // how far the work on the message is

	Topic string // that the queue was bound to

	Budget             string
	Balance, Available int64 // of the budget
}

// Open is the events of the open batch.
type Open struct {
	wanted Kind
	list   []Event // in order
}

// Want sets the kinds that have subscribers. No decision of a turn depends on it.
func (o *Open) Want(kinds Kind) { o.wanted = kinds }

// Subscribed reports whether one of the kinds has a subscriber. An event without subscribers
// costs only this test.
func (o *Open) Subscribed(kinds Kind) bool { return o.wanted&kinds != 0 }

// Add adds an event to the open batch, if it has a subscriber. It is sent after the commit; a failed commit drops it.
func (o *Open) Add(ev Event) {
	if o.Subscribed(ev.Kind) {
		o.list = append(o.list, ev)
	}
}

// Len returns the number of events.
func (o *Open) Len() int { return len(o.list) }

// Take returns the events and leaves none.
func (o *Open) Take() []Event {
	list := o.list
	o.list = nil
	return list
}
