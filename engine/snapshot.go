package engine

import (
	"errors"

	"github.com/faisca/fila/internal/hook"
)

// Snapshot is what connections may know of the engine without asking the loop:
// the hooks of the queues and the runtime configuration. It is immutable; each
// change makes a new one, which is in force before the reply to the change leaves.
// What it holds is shared with the one before (ordered), so a change costs as much
// as there is to change, however many queues and values there are.
type Snapshot struct {
	hooks       ordered[queueHooks]
	config      ordered[string]
	configBytes int             // of its keys and values
	dedup       ordered[*dedup] // by queue, of those that have deduplication ids
}

type queueHooks [2]hook.Hook // by Kind; nil: none

// Hook returns the hook of a queue, or nil.
func (s *Snapshot) Hook(queue string, kind hook.Kind) hook.Hook {
	hooks, _ := s.hooks.get(queue)
	return hooks[kind]
}

// Hooks is how many queues have hooks.
func (s *Snapshot) Hooks() int { return s.hooks.len() }

// Get looks up runtime configuration.
func (s *Snapshot) Get(key string) (string, bool) { return s.config.get(key) }

func (s *Snapshot) withHook(queue string, kind hook.Kind, h hook.Hook) *Snapshot {
	next := *s
	all, _ := s.hooks.get(queue)
	all[kind] = h
	if all == (queueHooks{}) {
		next.hooks = s.hooks.without(queue)
	} else {
		next.hooks = s.hooks.with(queue, all)
	}
	return &next
}

func (s *Snapshot) withConfig(config ordered[string], bytes int) *Snapshot {
	next := *s
	next.config, next.configBytes = config, bytes
	return &next
}

func (s *Snapshot) withDedup(queue string, d *dedup) *Snapshot {
	next := *s
	next.dedup = s.dedup.with(queue, d)
	return &next
}

func (s *Snapshot) withoutDedup(queue string) *Snapshot {
	next := *s
	next.dedup = s.dedup.without(queue)
	return &next
}

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

var errNoScripts = errors.New("this broker was built without scripts")
