package yield

import (
	"runtime"
	"time"
)

// Linger decides whether a batch of tasks waits for more of them although it could be committed
// (adaptive group commit).
//
// The clients whose tasks the last commit has released are about to submit their next ones,
// but need the processor for it. A batch that is cut at once contains only the first few of
// these tasks, and all others wait for two commits instead of one. So its owner yields to
// runnable clients until no new task arrives. It never waits for clients that are idle.
type Linger struct {
	poll  *Poll     // nil: never linger
	since time.Time // when the batch could be committed and had tasks; zero: not lingering
	n     int       // tasks in the batch at the last yield
	empty int       // consecutive yields after which no task had arrived

	polled time.Time // the last look at the network of Yield
}

const (
	// lingerEmptyMax is how many consecutive yields may bring no task: a client on another
	// processor may have just read its reply.
	lingerEmptyMax = 2
	// lingerMax bounds the wait of a batch. It is about the duration of a commit on a fast
	// disk.
	lingerMax = 300 * time.Microsecond
	// pollEvery is the time between two looks at the network of an owner without a pause.
	pollEvery = time.Millisecond
)

// NewLinger returns a linger, which its owner has to close. One that is not enabled never waits.
func NewLinger(enabled bool) (*Linger, error) {
	if !enabled {
		return &Linger{}, nil
	}
	p, err := NewPoll()
	return &Linger{poll: p}, err
}

// Close releases what the linger polls with.
func (l *Linger) Close() {
	if l.poll != nil {
		l.poll.Close()
	}
}

// Wait yields to runnable clients and returns true, or returns false when the batch should be
// cut. n is the number of tasks in the batch, released that of the last commit: fewer than
// two tell that there is no other client to wait for.
func (l *Linger) Wait(now time.Time, n, released int) bool {
	if l.poll == nil || n == 0 || released < 2 {
		return false
	}
	if l.since.IsZero() {
		l.since, l.n, l.empty = now, n, -1
	}
	if l.empty++; n > l.n {
		l.n, l.empty = n, 0
	}
	if l.empty >= lingerEmptyMax || now.Sub(l.since) >= lingerMax {
		return false
	}
	l.poll.Wait()
	return true
}

// Yield lets runnable goroutines run, and once in pollEvery those that wait for the network, which Go looks at only
// when nothing is runnable: the owner has work for another turn at once, which may go on for long. While others
// never cease to be runnable, a look at the network takes up to 10 ms.
func (l *Linger) Yield(now time.Time) {
	if l.poll == nil || now.Sub(l.polled) < pollEvery {
		runtime.Gosched()
		return
	}
	l.poll.Wait()
	l.polled = time.Now()
}

// Over ends the linger when a batch is cut.
func (l *Linger) Over() { l.since = time.Time{} }
