package yield

import (
	"runtime"
	"time"
)

// breakEvery is how long a goroutine works between two breaks. Others whose sockets become ready
// meanwhile wait that long; the Go scheduler by itself would let them wait for 10 ms.
const breakEvery = 300 * time.Microsecond

// Breaks are the pauses of a goroutine with much work and no waiter in a hurry: it lets others
// run from time to time, and has Go use the processor of ReserveProcessor meanwhile. That matters
// on machines with few processors. The zero value is ready. One goroutine at a time may use Breaks.
type Breaks struct {
	poll  *Poll     // nil: files cannot be polled
	since time.Time // the last break; zero: the work has just begun
	long  bool      // there was a break
}

// Take lets all others run if the last break was some time ago. Else it costs reading the clock.
func (b *Breaks) Take() {
	switch {
	case b.since.IsZero():
	case time.Since(b.since) < breakEvery:
		return
	default:
		b.wait()
	}
	b.since = time.Now()
}

func (b *Breaks) wait() {
	if !b.long {
		b.long = true
		borrow()
		if p, err := NewPoll(); err == nil {
			b.poll = p
		}
	}
	if b.poll == nil {
		runtime.Gosched()
		return
	}
	b.poll.Wait()
}

// End releases what the breaks have taken. The next Take begins new work.
func (b *Breaks) End() {
	if b.since = (time.Time{}); !b.long {
		return
	}
	b.long = false
	endBorrow()
	if b.poll != nil {
		b.poll.Close()
		b.poll = nil
	}
}
