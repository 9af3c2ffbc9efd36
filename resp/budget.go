package resp

import (
	"sync"
	"sync/atomic"
)

// Budget is a number of bytes that many share. Taking what is free costs one atomic
// operation; a taker of what is not free stands in a line, first come first served.
//
// One taker may have more than there is when no other has anything: what is larger
// than the whole budget is done alone instead of never.
type Budget struct {
	most int64
	used atomic.Int64
	line atomic.Int64 // tickets in waiting

	mu      sync.Mutex
	waiting []*ticket
}

// ticket is a place in the line of a Budget.
type ticket struct {
	bytes int64
	ready chan struct{} // closed when the bytes were taken for it
}

// NewBudget returns a budget of so many bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Used is how much is taken now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Try takes n bytes if they are free and nothing stands in line for them.
func (b *Budget) Try(n int64) bool { return b.line.Load() == 0 && b.take(n) }

// Take takes n bytes and waits until they are free. A caller that waits must hold
// nothing of the same budget, or two of them could wait for each other.
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

// enter takes a place in the line. The line is counted before the first look at what
// is free: either Give sees the line, or this sees what Give has returned.
func (b *Budget) enter(n int64) *ticket {
	t := &ticket{bytes: n, ready: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, t)
	b.line.Add(1)
	b.advance()
	return t
}

// leave gives up a place in the line, or returns what was taken for it meanwhile.
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

// advance serves the head of the line as long as there is enough for it. The caller
// holds mu.
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
