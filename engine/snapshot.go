package engine

import (
	"github.com/faisca/fila/engine/budget"
	"github.com/faisca/fila/engine/ids"
	"github.com/faisca/fila/engine/internal/ordered"
	"github.com/faisca/fila/engine/settings"
	"github.com/faisca/fila/engine/signals"
	"github.com/faisca/fila/engine/topic"
	"github.com/faisca/fila/internal/hook"
)

// Snapshot is the state of the engine that connections read without a task: the hooks of the
// queues and their bounds, the runtime configuration and the deduplication ids. A Snapshot is immutable. Each
// change makes a new one, which is in force before the reply to the change leaves. The maps
// share their nodes with those of the previous Snapshot (package ordered), so a change costs O(log n)
// in the number of queues or values.
type Snapshot struct {
	hooks   ordered.Map[queueHooks]
	config  settings.Values
	ids     ids.View
	topics  topic.View
	signals *signals.View // nil before the first recovery
	budgets budget.View
}

// queueHooks are the hooks of a queue and the bounds of their calls.
type queueHooks struct {
	by     [2]hook.Hook // by hook.Kind; nil: the queue has none
	bounds hook.Bounds
}

// Hook returns the hook of a queue, or nil if there is none.
func (s *Snapshot) Hook(queue string, kind hook.Kind) hook.Hook {
	hooks, _ := s.hooks.Get(queue)
	return hooks.by[kind]
}

// Bounds returns the bounds of the hooks of a queue. It may have no hooks.
func (s *Snapshot) Bounds(queue string) hook.Bounds {
	hooks, _ := s.hooks.Get(queue)
	return hooks.bounds
}

// Hooks is the number of queues with hooks, or with bounds of their own for hooks.
func (s *Snapshot) Hooks() int { return s.hooks.Len() }

// Get returns a value of the runtime configuration, and whether it exists.
func (s *Snapshot) Get(key string) (string, bool) { return s.config.Get(key) }

// withHook returns a snapshot with a hook replaced, or removed if h is nil.
func (s *Snapshot) withHook(queue string, kind hook.Kind, h hook.Hook) *Snapshot {
	all, _ := s.hooks.Get(queue)
	all.by[kind] = h
	return s.withHooks(queue, all)
}

// withBounds returns a snapshot with the bounds of a queue's hooks replaced; s itself if they
// are the same.
func (s *Snapshot) withBounds(queue string, b hook.Bounds) *Snapshot {
	all, _ := s.hooks.Get(queue)
	if all.bounds == b {
		return s
	}
	all.bounds = b
	return s.withHooks(queue, all)
}

func (s *Snapshot) withHooks(queue string, all queueHooks) *Snapshot {
	next := *s
	if all == (queueHooks{}) {
		next.hooks = s.hooks.Without(queue)
	} else {
		next.hooks = s.hooks.With(queue, all)
	}
	return &next
}

// withConfig returns a snapshot with another runtime configuration.
func (s *Snapshot) withConfig(config settings.Values) *Snapshot {
	next := *s
	next.config = config
	return &next
}

// withoutQueue returns a snapshot without the hooks of a queue; s itself if it has none.
func (s *Snapshot) withoutQueue(queue string) *Snapshot {
	if _, hooks := s.hooks.Get(queue); !hooks {
		return s
	}
	return s.withHooks(queue, queueHooks{})
}

// Bindings returns the number of bindings of a topic.
func (s *Snapshot) Bindings(topic string) int { return len(s.topics.Bindings(topic).All()) }

// withTopics returns a snapshot with these bindings of topics; s itself if they are the same.
func (s *Snapshot) withTopics(v topic.View) *Snapshot {
	if s.topics == v {
		return s
	}
	next := *s
	next.topics = v
	return &next
}
