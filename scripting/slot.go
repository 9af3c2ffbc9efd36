package scripting

import (
	"fmt"
	"runtime"
	"time"

	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/internal/yield"
)

// slots bounds how many slow scripts run at once: GOMAXPROCS - 1, so that one processor
// remains for clients, and at least 1. The channel holds the free slots. nil means no
// bound.
//
// States of a call: it starts without a slot, and most calls end that way. After slotTurn
// it acquires a slot, and from then on it runs in turns: after each slotTurn it releases
// the slot to the next waiting script and queues up again, so that a script waits at most
// one turn per competitor. While it holds a slot it yields the processor every
// yieldEvery.
type slots chan *slot

const (
	// slotTurn is how long a script runs before it needs a slot, and how long it keeps
	// one.
	slotTurn = 50 * time.Microsecond
	// yieldEvery is how long a script in a slot runs before it yields the processor.
	// Yielding without a competitor takes up to a microsecond.
	yieldEvery = 20 * time.Microsecond
)

// slot is the right to run a slow script, with the way to yield the processor.
type slot struct {
	yield func()
}

// newSlots creates the slots for the current GOMAXPROCS, or none without tuning.
func newSlots() (slots, error) {
	if !tuning.Enabled {
		return nil, nil
	}
	processors := runtime.GOMAXPROCS(0)
	all := make(slots, max(1, processors-1))
	for range cap(all) {
		// The kernel preempts only at a timer tick, milliseconds after a thread became
		// runnable that needs a few microseconds. Yielding explicitly is faster and
		// happens only where the script holds no lock. A lower thread priority would also
		// affect the Go runtime's locks and GC work on that thread.
		l := &slot{yield: yield.Processor}
		if processors == 1 {
			p, err := yield.NewPoll()
			if err != nil {
				return nil, fmt.Errorf("scripting: %w", err)
			}
			// Goroutines first: with GOMAXPROCS=1 a system-level yield can take the only
			// Go processor away for milliseconds.
			l.yield = func() {
				p.Wait()
				yield.Processor()
			}
		}
		all <- l
	}
	return all, nil
}
