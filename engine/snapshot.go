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
}

type queueHooks [2]Hook // by HookKind; nil: none

func newSnapshot() *Snapshot {
	return &Snapshot{hooks: map[string]queueHooks{}, config: map[string]string{}}
}

// Hook returns the hook of a queue, or nil.
func (s *Snapshot) Hook(queue string, kind HookKind) Hook { return s.hooks[queue][kind] }

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
	return &Snapshot{hooks: hooks, config: s.config}
}

func (s *Snapshot) withoutQueue(queue string) *Snapshot {
	if _, ok := s.hooks[queue]; !ok {
		return s
	}
	hooks := maps.Clone(s.hooks)
	delete(hooks, queue)
	return &Snapshot{hooks: hooks, config: s.config}
}

var errNoScripts = errors.New("this broker was built without scripts")
