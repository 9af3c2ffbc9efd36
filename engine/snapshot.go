package engine

import (
	"iter"

	"github.com/tidwall/btree"

	"github.com/faisca/fila/engine/budget"
	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/engine/internal/signals"
	"github.com/faisca/fila/internal/hook"
)

// Snapshot is the state of the engine that connections read without a task: the hooks of the
// queues and their bounds, the runtime configuration and the deduplication ids. A Snapshot is immutable. Each
// change makes a new one, which is in force before the reply to the change leaves. The maps
// share their nodes with those of the previous Snapshot (ordered), so a change costs O(log n)
// in the number of queues or values.
type Snapshot struct {
	hooks       ordered[queueHooks]
	config      ordered[string]
	configBytes int                        // total size of the keys and values of config
	dedup       ordered[*generation.Group] // by name, of queues with deduplication ids
	topics      ordered[*bindings]         // by name
	signals     *signals.View              // nil before the first recovery
	budgets     budget.View
}

// queueHooks are the hooks of a queue and the bounds of their calls.
type queueHooks struct {
	by     [2]hook.Hook // by hook.Kind; nil: the queue has none
	bounds hook.Bounds
}

// Hook returns the hook of a queue, or nil if there is none.
func (s *Snapshot) Hook(queue string, kind hook.Kind) hook.Hook {
	hooks, _ := s.hooks.get(queue)
	return hooks.by[kind]
}

// Bounds returns the bounds of the hooks of a queue. It may have no hooks.
func (s *Snapshot) Bounds(queue string) hook.Bounds {
	hooks, _ := s.hooks.get(queue)
	return hooks.bounds
}

// Hooks is the number of queues with hooks, or with bounds of their own for hooks.
func (s *Snapshot) Hooks() int { return s.hooks.len() }

// Get returns a value of the runtime configuration, and whether it exists.
func (s *Snapshot) Get(key string) (string, bool) { return s.config.get(key) }

// withHook returns a snapshot with a hook replaced, or removed if h is nil.
func (s *Snapshot) withHook(queue string, kind hook.Kind, h hook.Hook) *Snapshot {
	all, _ := s.hooks.get(queue)
	all.by[kind] = h
	return s.withHooks(queue, all)
}

// withBounds returns a snapshot with the bounds of a queue's hooks replaced; s itself if they
// are the same.
func (s *Snapshot) withBounds(queue string, b hook.Bounds) *Snapshot {
	all, _ := s.hooks.get(queue)
	if all.bounds == b {
		return s
	}
	all.bounds = b
	return s.withHooks(queue, all)
}

func (s *Snapshot) withHooks(queue string, all queueHooks) *Snapshot {
	next := *s
	if all == (queueHooks{}) {
		next.hooks = s.hooks.without(queue)
	} else {
		next.hooks = s.hooks.with(queue, all)
	}
	return &next
}

// withConfig returns a snapshot with another runtime configuration.
func (s *Snapshot) withConfig(config ordered[string], bytes int) *Snapshot {
	next := *s
	next.config, next.configBytes = config, bytes
	return &next
}

// withDedup returns a snapshot with the deduplication ids of a queue replaced; nil: it has none.
func (s *Snapshot) withDedup(queue string, d *generation.Group) *Snapshot {
	next := *s
	if d == nil {
		next.dedup = s.dedup.without(queue)
	} else {
		next.dedup = s.dedup.with(queue, d)
	}
	return &next
}

// withoutQueue returns a snapshot without a queue; s itself if it has nothing of the queue.
func (s *Snapshot) withoutQueue(queue string) *Snapshot {
	_, hooks := s.hooks.get(queue)
	_, ids := s.dedup.get(queue)
	if !hooks && !ids {
		return s
	}
	next := *s
	next.hooks, next.dedup = s.hooks.without(queue), s.dedup.without(queue)
	return &next
}

// Bindings returns the number of bindings of a topic.
func (s *Snapshot) Bindings(topic string) int {
	b, _ := s.topics.get(topic)
	return len(b.all())
}

// withTopic returns a snapshot with the bindings of a topic replaced; nil: there are none.
func (s *Snapshot) withTopic(name string, b *bindings) *Snapshot {
	next := *s
	if b == nil {
		next.topics = s.topics.without(name)
	} else {
		next.topics = s.topics.with(name, b)
	}
	return &next
}

// ordered is an immutable map in the order of its keys, for Snapshot. A change returns a new
// map that shares all but O(log n) nodes with the former one, which other goroutines may be
// reading. The zero value is empty.
type ordered[V any] struct{ tree *btree.Map[string, V] }

// orderedDegree is small, since a change copies the nodes on a path.
const orderedDegree = 8

// len returns the number of entries.
func (o ordered[V]) len() int {
	if o.tree == nil {
		return 0
	}
	return o.tree.Len()
}

// get returns the value of a key; ok is false if there is none.
func (o ordered[V]) get(key string) (v V, ok bool) {
	if o.tree == nil {
		return v, false
	}
	return o.tree.Get(key)
}

// edit returns a copy that may be changed until it is published. Only the loop may call it:
// copying marks nodes of the original as shared, which concurrent readers ignore, but which
// a concurrent copy would race with.
func (o ordered[V]) edit() ordered[V] {
	if o.tree == nil {
		return ordered[V]{tree: btree.NewMap[string, V](orderedDegree)}
	}
	return ordered[V]{tree: o.tree.Copy()}
}

// with returns a copy with an entry added or replaced.
func (o ordered[V]) with(key string, v V) ordered[V] {
	next := o.edit()
	next.tree.Set(key, v)
	return next
}

// without returns a copy without an entry.
func (o ordered[V]) without(key string) ordered[V] {
	next := o.edit()
	next.tree.Delete(key)
	return next
}

// from iterates over the entries in the order of their keys, from a key on.
func (o ordered[V]) from(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if o.tree != nil {
			o.tree.Ascend(key, yield)
		}
	}
}
