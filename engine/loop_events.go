package engine

import (
	"sync"

	"github.com/faisca/fila/internal/hook"
)

// eventDispatcher hands events to the listener on a goroutine of its own, so that many
// who listen hold up neither the committer nor the loop.
type eventDispatcher struct {
	listen func([]Event) // set before run

	mu    sync.Mutex
	news  sync.Cond // something was taken, or ended
	queue []Event
	lost  uint64
	ended bool
}

// Listen sets who is told of events: to is called on one goroutine, with events
// in the order in which they became durable. It must be called before Run.
func (e *Engine) Listen(to func([]Event)) { e.dispatcher.listen = to }

// Want says which kinds of events the listener is told of, in place of those it
// has named before. It holds for everything that is submitted after it.
func (e *Engine) Want(kinds EventKind) { e.post(listenFor{kinds}) }

// HookTurned says that the breaker of a hook has opened or closed. It never
// waits.
func (e *Engine) HookTurned(h hook.Hook, s hook.BreakerState) { e.post(turned{h, s}) }

// take adds the events of a batch that is committed. It never waits: what is too
// much is counted and not told.
func (t *eventDispatcher) take(events []Event) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	room := eventsMax - len(t.queue)
	t.lost += uint64(max(len(events)-room, 0))
	t.queue = append(t.queue, events[:min(len(events), room)]...)
	t.mu.Unlock()
	t.news.Signal()
}

// run tells of events until end.
func (t *eventDispatcher) run() {
	var spare []Event
	for {
		t.mu.Lock()
		for len(t.queue) == 0 && !t.ended {
			t.news.Wait()
		}
		events, lost := t.queue, t.lost
		t.queue, t.lost = spare[:0], 0
		t.mu.Unlock()
		if len(events) == 0 {
			return
		}
		if lost > 0 {
			events = append(events, Event{Kind: EventLost, Time: events[len(events)-1].Time, Count: lost})
		}
		if t.listen != nil {
			t.listen(events)
		}
		clear(events)
		if spare = events; cap(spare) > 1024 {
			spare = nil
		}
	}
}

// end makes run return when it has told what it has.
func (t *eventDispatcher) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.news.Signal()
}
