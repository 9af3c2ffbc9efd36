package yield

import "time"

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
}

const (
	// lingerEmptyMax is how many consecutive yields may bring no task: a client on another
	// processor may have just read its reply.
	lingerEmptyMax = 2
	// lingerMax bounds the wait of a batch. It is about the duration of a commit on a fast
	// disk.
	lingerMax = 300 * time.Microsecond
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

// Over ends the linger when a batch is cut.
func (l *Linger) Over() { l.since = time.Time{} }
