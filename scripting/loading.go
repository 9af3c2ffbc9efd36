package scripting

import "time"

// loadQueue lets one script be loaded at a time and bounds what loads take of the
// processor. A load is not interrupted: its bounds (effortMax, pendingMax and others) keep
// it to some 40 ms for the worst source of 64 KiB and to 0.2 ms for a usual one, and
// afterwards it pays for that with time in which nothing is loaded. So however often
// scripts are loaded, about one message in a hundred meets a load.
//
// Yielding throughout a load is the alternative. It keeps the single delay shorter but
// makes it so much more frequent that the p99 of other clients is 50 times as long, and it
// needs a trick inside gopher-lua's compiler.
type loadQueue struct {
	turn chan struct{} // the right to load, capacity 1
	paid time.Time     // when the loads so far are paid for, guarded by turn
}

const (
	// loadShare is how many times as long as a load the payment for it takes.
	loadShare = 100
	// loadCredit is how much payment may be owed before a load waits. It admits 100 ms of
	// loading at once, some 400 usual scripts.
	loadCredit = 10 * time.Second
)

func newLoadQueue() loadQueue { return loadQueue{turn: make(chan struct{}, 1)} }

// enter waits until the caller may load a script.
func (q *loadQueue) enter() {
	q.turn <- struct{}{}
	time.Sleep(time.Until(q.paid.Add(-loadCredit))) //nolint:forbidigo // the payment
}

// leave ends what enter began. It adds the payment by the effort counted: a clock would
// also measure what else a busy machine does.
func (q *loadQueue) leave(w effort) {
	if now := time.Now(); q.paid.Before(now) {
		q.paid = now
	}
	q.paid = q.paid.Add(loadShare * w.duration())
	<-q.turn
}

// effort estimates the work of a load in steps of effortStep, the cost of comparing two
// names or constants. The compiler searches lists linearly, so some sources take a
// thousand times as long as others of the same size. The estimate is within a factor of
// two of the time on the machine that it was measured on.
type effort struct{ steps int }

const (
	effortStep = 5 * time.Nanosecond

	effortByte     = 100 // of source: scanning it, and parsing and rewriting it twice
	effortNode     = 20
	effortBlock    = 120
	effortFunction = 1500 // gopher-lua allocates 1024 instructions

	// effortMax (20 ms) bounds the compilation of a script. Sources of 64 KiB that people
	// write stay below 1,000,000 steps; one that sets 2000 fields one by one takes 3,000,000.
	effortMax = 4_000_000
)

func (w effort) duration() time.Duration { return time.Duration(w.steps) * effortStep }
