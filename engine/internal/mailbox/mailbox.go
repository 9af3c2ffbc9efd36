// Package mailbox is a queue from any goroutines to one, which takes everything that is there at
// once.
package mailbox

import "sync"

// Box is a queue in the order of Put. Any goroutine may call its methods; Wait is for one.
type Box[T any] struct {
	most int

	mu      sync.Mutex
	news    sync.Cond // signalled when items or ended changes
	items   []T
	ended   bool
	dropped uint64 // since the last Wait
	all     uint64 // dropped since the beginning
}

// New returns an empty box that holds at most a number of items, 0: any number.
func New[T any](most int) *Box[T] {
	b := &Box[T]{most: most}
	b.news.L = &b.mu
	return b
}

// Put appends items. It does not block: what has no room is dropped and counted.
func (b *Box[T]) Put(items []T) {
	if len(items) == 0 {
		return
	}
	b.mu.Lock()
	if room := b.most - len(b.items); b.most > 0 && len(items) > room {
		excess := uint64(len(items) - room)
		b.dropped, b.all = b.dropped+excess, b.all+excess
		items = items[:room]
	}
	b.items = append(b.items, items...)
	b.mu.Unlock()
	b.news.Signal()
}

// Wait returns all items, as soon as there is one, and how many were dropped since the last call.
// It leaves spare, an empty slice, in their place. It returns no items when End was called and
// all were returned.
func (b *Box[T]) Wait(spare []T) (items []T, dropped uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.items) == 0 && !b.ended {
		b.news.Wait()
	}
	items, dropped = b.items, b.dropped
	b.items, b.dropped = spare, 0
	return items, dropped
}

// End makes Wait return none once all items were returned. Nothing may be put afterwards.
func (b *Box[T]) End() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.news.Signal()
}

// Dropped returns how many items were dropped since the beginning.
func (b *Box[T]) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}
