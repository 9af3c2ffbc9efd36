package dispatch

// Head is what stands at the head of a key: all that the order of delivery learns of its messages.
type Head struct {
	State  State
	Weight uint32 // of the key, at least 1
	Cost   uint32 // of its next message, at least CostMin
	Set    *Set   // throttles, budgets and charge of the next message; nil: nothing limits it
}

// CostMin is the least cost of a delivery.
const CostMin = 1

// State says whether a key can deliver.
//
//	state    in a class                           credit
//	empty    no                                   lost: as in deficit round robin, an idle key saves nothing; what it owes is kept
//	stopped  no                                   kept
//	loading  the present one, else plain: the     kept
//	         key keeps its place
//	ready    that of its next message             kept
type State uint8

// The states of a key.
const (
	Empty   State = iota // no message, neither in memory nor anywhere else
	Stopped              // paused, or not to be asked for another reason
	Loading              // its next message is not in memory yet
	Ready
)

// Key is the part of a fairness key that the order of delivery knows. It is embedded in the key of
// the engine, and knows no message: [Queue.Set] tells it what stands at the head. The zero value is
// a key in no class; SetSeq numbers it before the first Set.
//
// Its first 24 bytes are what an enqueue needs, the next 64 what a delivery needs besides; Set and
// Tally are read where a class has throttles or budgets. The engine arranges cache lines by that.
type Key struct {
	class *class // in which it is scheduled; nil if it cannot deliver, see queue.go
	// The cost of the next message and the weight for which due was computed.
	placedCost, placedWeight uint32
	slot                     int32 // index in the heap of the calendar, or inNear
	state                    State
	visited                  bool // its visit in the current round is not over: it has credit left
	// held is one more than the index in class.draws of the budget that it waits for, or gated: it is in
	// its class and not in the calendar. 0: it waits for none, and is not gated.
	held   uint8
	hasSet bool // set is not nil

	// Its place in the calendar of its class, see calendar.go. credit is the credit after the
	// visit in round base, plus grants since then; below zero where it was spent ahead. While the key
	// is in no class, base is the number of rounds from that visit until it left. While it is empty,
	// due is the round of the queue, see Queue.clock, up to which rounds have paid for what it owes.
	prev, next *Key
	credit     int64
	base, due  int64    // rounds of the last and of the next visit, on the clock of the class
	pos        position // in the circle of keys
	seq        uint64   // number of the key; orders keys at the same position

	set   *Set  // of the next message
	tally Tally // without what its class has counted, see Key.Tally
}

// Tally is what throttles have done to a key.
type Tally struct {
	Admitted, Refused uint64 // deliveries that they admitted; times that one stopped its class
	Waited            int64  // for them, in nanoseconds
}

// Add adds another tally.
func (t *Tally) Add(o Tally) {
	t.Admitted += o.Admitted
	t.Refused += o.Refused
	t.Waited += o.Waited
}

// Debt is what an empty key owes for messages that it has delivered ahead of its turn.
type Debt struct {
	Cost   int64  // owed at Round; 0: nothing
	Round  int64  // of the queue; each later one pays the quantum times Weight
	Weight uint32 // of the key
}

// Number gives a new key its number, which is greater than those of all keys of its queue before it.
func (k *Key) Number(seq uint64) { k.seq = seq }

// Seq returns the number of the key.
func (k *Key) Seq() uint64 { return k.seq }

// Scheduled reports whether the key is in a class: it has messages, and is not stopped.
func (k *Key) Scheduled() bool { return k.class != nil }

// Open reports whether the key takes part in the order of its queue now: no throttle has stopped its
// class or the key, and it waits for no budget.
func (k *Key) Open() bool { return k.class != nil && k.held == 0 && k.class.state == classOpen }

// Share is the part of the weight of the keys of its queue that is the key's, 0 if it does not take
// part in the rounds.
func (k *Key) Share() float64 {
	if k.class == nil || k.held != 0 && k.held != gated {
		return 0
	}
	return float64(k.placedWeight) / float64(k.class.scheduler.weight)
}

// Tally returns what throttles have done to the key until now.
func (k *Key) Tally(now int64) Tally {
	t := k.tally
	switch {
	case k.held == gated:
		t.Waited += now
	case k.class != nil:
		t.Waited += k.class.waitedBy(now)
	}
	return t
}

// AddTally adds what throttles did to an earlier key of that name.
func (k *Key) AddTally(t Tally) { k.tally.Add(t) }

// Clear drops all references of the key of a detached queue, so that one that is still referenced does
// not keep all others in memory. The key must not be used in an order again.
func (k *Key) Clear() {
	if k.class != nil && k.hasSet {
		o := k.class.scheduler.queue.order
		for _, t := range k.set.set {
			if t.owner == k {
				o.free(t)
			}
		}
	}
	k.class, k.prev, k.next, k.set = nil, nil, nil, nil
}
