package scripting

import (
	"fmt"
	"runtime"
	"time"

	"github.com/faisca/fila/internal/yield"
)

// lanes is where scripts run that take long: there is one for each of Go's processors
// but one, which is left to those who serve everybody else, and one at least. A script
// begins outside, and most have ended before they would need a lane. Those that share one
// take turns, so that one does not wait for all that another may take. What is in the
// channel is free. Nil: nobody has to wait.
type lanes chan *lane

const (
	// laneTurn is how long a script runs before it needs a lane, or gives it to the next.
	laneTurn = 50 * time.Microsecond
	// yieldEvery is how long a script in a lane runs before it lets others have its
	// processor. To ask whether anybody wants it takes one microsecond, or less.
	yieldEvery = 20 * time.Microsecond
)

// lane lets others have the processor of the script that is in it.
type lane struct {
	giveWay func()
}

func newLanes() (lanes, error) {
	processors := runtime.GOMAXPROCS(0)
	all := make(lanes, max(1, processors-1))
	for range cap(all) {
		// The system takes a processor away by the tick of its clock, milliseconds after
		// somebody was woken who needs it for some microseconds; a script knows better, and
		// is never in the midst of anything others wait for. A lower priority of its thread
		// would do the same, but with everything that runs on that thread, the locks of Go's
		// runtime and the pauses of its collector included.
		l := &lane{giveWay: yield.Processor}
		if processors == 1 {
			p, err := yield.NewPoll()
			if err != nil {
				return nil, fmt.Errorf("scripting: %w", err)
			}
			// Go's first: the system may be away with the thread, and so with the only
			// processor that Go has, for milliseconds.
			l.giveWay = func() {
				p.Wait()
				yield.Processor()
			}
		}
		all <- l
	}
	return all, nil
}
