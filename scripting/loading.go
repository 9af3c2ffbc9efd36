package scripting

import (
	"slices"
	"sync"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// loadQueue lets one script be loaded at a time and bounds what loads take of the
// processor. States of a load:
//
//	waiting ──grant──▶ loading ──leave──▶ paid for
//	   └──the caller is gone──▶ given up, without payment
//
// Hooks of queues and trials wait apart, in two classes that pay for themselves: however many
// trials are requested, the hook of a queue waits at most for the load under way. Within a
// class callers take turns, each with its own loads in order.
//
// A load is not interrupted: its bounds (effortMax, pendingMax and others) keep it to some
// 40 ms for the worst source of 64 KiB and to 0.2 ms for a usual one, and afterwards its class
// pays for that with time in which it loads nothing. So however often scripts are loaded,
// about one message in a hundred meets a load.
//
// Yielding throughout a load is the alternative. It keeps the single delay shorter but
// makes it so much more frequent that the p99 of other clients is 50 times as long, and it
// needs a trick inside gopher-lua's compiler.
type loadQueue struct {
	mu      sync.Mutex
	loading bool
	classes [2]loadClass // of hooks for queues, and of trials
	timer   *time.Timer  // grants when a class has paid; nil: none was needed yet
}

// loadClass holds the waiting loads of one class.
type loadClass struct {
	lines   []*loadLine // with waiting loads; the next load is of the first
	waiting int         // loads in all lines, at most loadsMax
	paid    time.Time   // when the loads so far are paid for
}

// loadLine holds the waiting loads of one caller, at most callerLoadsMax, the oldest first.
type loadLine struct {
	caller string
	loads  []chan struct{} // each is closed when its load may begin
}

const (
	// loadShare is how many times as long as a load the payment for it takes: each class has
	// half a hundredth of a processor.
	loadShare = 200
	// loadCredit is how much payment a class may owe before its next load waits. It admits
	// 100 ms of loading at once, some 400 usual scripts.
	loadCredit = 20 * time.Second

	callerLoadsMax = 100
	loadsMax       = 1000
)

// enter waits until the caller may load a script, and leave must follow. After an error it
// must not: hook.ErrBusy if too many loads wait, hook.ErrGone if the caller has gone.
func (q *loadQueue) enter(by hook.Caller) error {
	q.mu.Lock()
	class := q.class(by)
	ready, ok := class.join(by.Name)
	q.grant()
	q.mu.Unlock()
	if !ok {
		return hook.ErrBusy
	}
	select {
	case <-ready:
		return nil
	case <-by.Gone:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !class.giveUp(by.Name, ready) { // granted meanwhile
		q.loading = false
		q.grant()
	}
	return hook.ErrGone
}

// leave ends what enter began. The class pays by the effort counted: a clock would also
// measure what else a busy machine does.
func (q *loadQueue) leave(by hook.Caller, w effort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	class := q.class(by)
	if now := time.Now(); class.paid.Before(now) {
		class.paid = now
	}
	class.paid = class.paid.Add(loadShare * w.duration())
	q.loading = false
	q.grant()
}

func (q *loadQueue) class(by hook.Caller) *loadClass {
	if by.Trial {
		return &q.classes[1]
	}
	return &q.classes[0]
}

// grant begins the next load if none is under way: of a hook for a queue before a trial. If
// the classes with waiting loads owe too much, it is called again when one has paid.
func (q *loadQueue) grant() {
	if q.loading {
		return
	}
	now := time.Now()
	var next time.Time
	for i := range q.classes {
		class := &q.classes[i]
		if class.waiting == 0 {
			continue
		}
		at := class.paid.Add(-loadCredit)
		if !at.After(now) {
			q.loading = true
			close(class.take())
			return
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if !next.IsZero() {
		q.grantAt(next.Sub(now))
	}
}

// grantAt calls grant after a while.
func (q *loadQueue) grantAt(after time.Duration) {
	if q.timer != nil {
		q.timer.Reset(after)
		return
	}
	q.timer = time.AfterFunc(after, func() {
		q.mu.Lock()
		q.grant()
		q.mu.Unlock()
	})
}

// join appends a load to the line of its caller. ok is false if too many loads wait.
func (c *loadClass) join(caller string) (ready chan struct{}, ok bool) {
	i := slices.IndexFunc(c.lines, func(l *loadLine) bool { return l.caller == caller })
	if c.waiting >= loadsMax || i >= 0 && len(c.lines[i].loads) >= callerLoadsMax {
		return nil, false
	}
	if i < 0 {
		i, c.lines = len(c.lines), append(c.lines, &loadLine{caller: caller})
	}
	ready = make(chan struct{})
	c.lines[i].loads = append(c.lines[i].loads, ready)
	c.waiting++
	return ready, true
}

// take removes the next load. The other loads of its caller are behind those of all others.
func (c *loadClass) take() (ready chan struct{}) {
	line := c.lines[0]
	c.lines = c.lines[1:]
	ready, line.loads = line.loads[0], line.loads[1:]
	if len(line.loads) > 0 {
		c.lines = append(c.lines, line)
	}
	c.waiting--
	return ready
}

// giveUp removes a waiting load of a caller and reports whether it still waited.
func (c *loadClass) giveUp(caller string, ready chan struct{}) bool {
	i := slices.IndexFunc(c.lines, func(l *loadLine) bool { return l.caller == caller })
	if i < 0 {
		return false
	}
	line := c.lines[i]
	n := slices.Index(line.loads, ready)
	if n < 0 {
		return false
	}
	line.loads = slices.Delete(line.loads, n, n+1)
	if len(line.loads) == 0 {
		c.lines = slices.Delete(c.lines, i, i+1)
	}
	c.waiting--
	return true
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
