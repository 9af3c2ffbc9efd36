// Package states has the rule of states: why the next message of a fairness key, or the ready messages of a queue, are where they
// are. The engine sets what holds; the first state that holds is the state. It says so in sentences as well.
package states

import (
	"math/bits"
)

// State is why the next message of a fairness key, or the ready messages of a queue, are not delivered, or that they
// are about to be.
type State uint8

// The rule of states, for keys and for queues: the first that holds is the state. To add one is a line here, where its
// turn is, its row in rows, and what sets it (Facts.Set).
const (
	Paused      State = iota // the deliveries of the key or of its queue are paused
	Gathering                // waits for more messages of its key, for a batch
	Held                     // a throttle key that it names is held until a time
	Throttled                // waits for tokens of throttles only
	Concurrency              // waits for a lease to end, perhaps also for tokens
	NoCredit                 // a budget does not cover it
	Ordered                  // of an ordered queue: waits for the message that is out
	Busy                     // could be delivered: consumers hold leases of the queue, and none waits
	NoConsumer               // could be delivered: no lease of the queue is live, and no consumer waits or has asked lately
	Ready                    // is delivered when its turn comes
	Loading                  // is being read from the store
	Leased                   // all messages are leased, or leased and delayed
	Delayed                  // all messages are delayed
	Empty                    // there are no messages
)

// KeyStates is the number of states of a key with messages: all but Empty.
const KeyStates = int(Empty)

// States is the number of states of a queue.
const States = KeyStates + 1

// row is what is said of a state.
type row struct {
	word  string
	stops string // what stops a ready message in this state, behind "by"; empty: nothing does
}

// row returns what is said of a state.
func (s State) row() row {
	return [...]row{
		Paused:      {"paused", "pauses of keys"},
		Gathering:   {"gathering", "batches that are not full"},
		Held:        {"held", "holds of throttles"},
		Throttled:   {"throttled", "the rates of throttles"},
		Concurrency: {"concurrency", "the leases that throttles allow"},
		NoCredit:    {"no_credit", "budgets"},
		Ordered:     {"ordered", "earlier messages of their keys"},
		Busy:        {word: "busy"},
		NoConsumer:  {word: "no_consumer"},
		Ready:       {word: "ready"},
		Loading:     {word: "loading"},
		Leased:      {word: "leased"},
		Delayed:     {word: "delayed"},
		Empty:       {word: "empty"},
	}[s]
}

// String returns the word for the state.
func (s State) String() string { return s.row().word }

// Stops says what stops a ready message in the state, for a sentence that ends in "by"; empty: nothing does, it lacks a
// consumer or its turn.
func (s State) Stops() string { return s.row().stops }

// Facts are states that hold, of which the first one counts. The zero value has none.
type Facts uint32

// Set says that a state holds, if it does.
func (f *Facts) Set(s State, holds bool) {
	if holds {
		*f |= 1 << s
	}
}

// State returns the first state that holds, Empty if none does.
func (f *Facts) State() State {
	return State(min(bits.TrailingZeros32(uint32(*f)), int(Empty)))
}

// InState are the keys with messages that are in a state.
type InState struct {
	Keys  int64
	Ready int64  // ready messages of these keys
	Since int64  // since when the message in memory is ready that is ready longest, Unix nanoseconds; 0: there is none
	Key   string // the key of that message
}

// Add counts keys with so many ready messages, of which that of a key is ready longest, since 0 if none is in memory.
func (i *InState) Add(keys, ready, since int64, key string) {
	i.Keys += keys
	i.Ready += ready
	i.longer(since, key)
}

// Join adds the keys of another queue.
func (i *InState) Join(o *InState) { i.Add(o.Keys, o.Ready, o.Since, o.Key) }

// longer takes over a message that is ready longer.
func (i *InState) longer(since int64, key string) {
	if since != 0 && (i.Since == 0 || since < i.Since) {
		i.Since, i.Key = since, key
	}
}

// ByState are the keys of a queue by state.
type ByState [KeyStates]InState

// Stopped returns the ready messages that are stopped, and all ready messages.
func (b *ByState) Stopped() (stopped, ready int64) {
	for s := range b {
		if ready += b[s].Ready; State(s).Stops() != "" {
			stopped += b[s].Ready
		}
	}
	return stopped, ready
}

// Facts returns the states of a queue whose keys are these. A state that stops messages holds if it stops one of them;
// Paused only if it stops all of them, since a key that an operator has paused is no news of its queue. free is the
// state of messages that nothing stops, in place of the one in which they were counted.
func (b *ByState) Facts(free State) (f Facts) {
	_, ready := b.Stopped()
	keys := int64(0)
	for s := range b {
		keys += b[s].Keys
	}
	for s := range b {
		switch at := State(s); {
		case at == Paused:
			f.Set(at, ready > 0 && b[at].Ready == ready || keys > 0 && b[at].Keys == keys)
		case at == Busy, at == NoConsumer, at == Ready:
			f.Set(free, b[at].Keys > 0)
		case at.Stops() != "":
			f.Set(at, b[at].Ready > 0)
		default:
			f.Set(at, b[at].Keys > 0)
		}
	}
	return f
}
