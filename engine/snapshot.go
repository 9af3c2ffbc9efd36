package engine

import (
	"errors"
	"maps"
)

// Snapshot is what connections may know of the engine without asking the loop:
// the hooks of the queues and the runtime configuration. It is immutable; each
// change makes a new one, which is in force before the reply to the change leaves.
type Snapshot struct {
	hooks  map[string]queueHooks
	config map[string]string
	dedup  map[string]*dedup // by queue, of those that have deduplication ids
}

type queueHooks [2]Hook // by HookKind; nil: none

func newSnapshot() *Snapshot {
	return &Snapshot{hooks: map[string]queueHooks{}, config: map[string]string{}, dedup: map[string]*dedup{}}
}

// Hook returns the hook of a queue, or nil.
func (s *Snapshot) Hook(queue string, kind HookKind) Hook { return s.hooks[queue][kind] }

// Hooks is how many queues have hooks.
func (s *Snapshot) Hooks() int { return len(s.hooks) }

// Get looks up runtime configuration.
func (s *Snapshot) Get(key string) (string, bool) {
	v, ok := s.config[key]
	return v, ok
}

func (s *Snapshot) withHook(queue string, kind HookKind, h Hook) *Snapshot {
	hooks := maps.Clone(s.hooks)
	all := hooks[queue]
	all[kind] = h
	hooks[queue] = all
	if all == (queueHooks{}) {
		delete(hooks, queue)
	}
	next := *s
	next.hooks = hooks
	return &next
}

func (s *Snapshot) withConfig(config map[string]string) *Snapshot {
	next := *s
	next.config = config
	return &next
}

func (s *Snapshot) withDedup(queue string, d *dedup) *Snapshot {
	next := *s
	next.dedup = maps.Clone(s.dedup)
	next.dedup[queue] = d
	return &next
}

func (s *Snapshot) withoutDedup(queue string) *Snapshot {
	next := *s
	next.dedup = maps.Clone(s.dedup)
	delete(next.dedup, queue)
	return &next
}

func (s *Snapshot) withoutQueue(queue string) *Snapshot {
	_, hooks := s.hooks[queue]
	_, ids := s.dedup[queue]
	if !hooks && !ids {
		return s
	}
	next := &Snapshot{hooks: maps.Clone(s.hooks), config: s.config, dedup: maps.Clone(s.dedup)}
	delete(next.hooks, queue)
	delete(next.dedup, queue)
	return next
}

var errNoScripts = errors.New("this broker was built without scripts")
