package resp

import (
	"sync"
	"sync/atomic"
)

// Budget is an amount of memory shared by many takers. Taking free bytes costs one atomic
// operation; otherwise takers queue in FIFO order.
//
// While nothing is taken, one taker may exceed the budget: a request larger than the
// whole budget is served alone instead of never.
type Budget struct {
	most int64
	used atomic.Int64
	line atomic.Int64 // tickets in waiting

	mu      sync.Mutex
	waiting []*ticket
}

// ticket is a position in the queue of a Budget.
type ticket struct {
	bytes int64
	ready chan struct{} // closed when its bytes are taken
}

// NewBudget returns a budget of most bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Try takes n bytes if they are free and no taker is queued.
func (b *Budget) Try(n int64) bool { return b.line.Load() == 0 && b.take(n) }

// Take takes n bytes and blocks until they are free. A caller must not hold bytes of the
// same budget, or two callers could deadlock.
func (b *Budget) Take(n int64) {
	if !b.Try(n) {
		<-b.enter(n).ready
	}
}

// Give returns n bytes.
func (b *Budget) Give(n int64) {
	b.used.Add(-n)
	if b.line.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance()
}

func (b *Budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used+n > b.most && used != 0 {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// enter joins the queue. The ticket is counted before the first check of the free bytes,
// so either Give sees the ticket, or enter sees the returned bytes.
func (b *Budget) enter(n int64) *ticket {
	t := &ticket{bytes: n, ready: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, t)
	b.line.Add(1)
	b.advance()
	return t
}

// leave leaves the queue, or returns the bytes taken in the meantime.
func (b *Budget) leave(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == t {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.line.Add(-1)
			b.advance()
			return
		}
	}
	b.used.Add(-t.bytes)
	b.advance()
}

// advance serves the head of the queue while its bytes are free. The caller holds mu.
func (b *Budget) advance() {
	for len(b.waiting) > 0 {
		t := b.waiting[0]
		if !b.take(t.bytes) {
			return
		}
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		b.line.Add(-1)
		close(t.ready)
	}
}
