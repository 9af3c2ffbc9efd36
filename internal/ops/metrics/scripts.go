package metrics

import (
	"sync"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// scripts are the counters of hooks. A hook is replaced by a load and counts from 0 then; its
// series go on. Hooks count under a lock of their own, so this is not for the loop.
type scripts struct {
	mu    sync.Mutex
	hooks map[hookOf]*scriptCounters
	round uint64
}

// hookOf is a hook of a queue.
type hookOf struct {
	queue string
	kind  hook.Kind
}

type scriptCounters struct {
	of    hook.Hook
	base  hook.Stats // of the hooks before
	round uint64
}

// write writes the series of the hooks of queues that the user may see.
func (s *scripts) write(f *families, queues []queueSample, may func(queue string) bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooks == nil {
		s.hooks = map[hookOf]*scriptCounters{}
	}
	s.round++
	for i := range queues {
		q := &queues[i]
		for kind, h := range q.Hooks {
			if h == nil {
				continue
			}
			n := s.see(hookOf{q.Name, hook.Kind(kind)}, h, now)
			if may == nil || may(q.Name) {
				writeScript(f, label(labelQueue, text(q.Name)).with(labelHook, hook.Kind(kind).String()), &n)
			}
		}
	}
	for of, c := range s.hooks {
		if c.round != s.round {
			delete(s.hooks, of)
		}
	}
}

// see returns what the hooks of a queue have counted, the present one and those before it.
func (s *scripts) see(of hookOf, h hook.Hook, now time.Time) hook.Stats {
	c := s.hooks[of]
	if c == nil {
		c = &scriptCounters{of: h}
		s.hooks[of] = c
	}
	if c.of != h {
		last := c.of.Stats(now)
		addScript(&c.base, &last)
		c.of = h
	}
	c.round = s.round
	n := h.Stats(now)
	addScript(&n, &c.base)
	return n
}

// addScript adds what only grows.
func addScript(to, n *hook.Stats) {
	to.Rejected += n.Rejected
	to.Calls += n.Calls
	to.Recalled += n.Recalled
	to.Errors += n.Errors
	to.Limits += n.Limits
	to.Skipped += n.Skipped
	to.Latency.Add(&n.Latency)
}

func writeScript(f *families, l labels, n *hook.Stats) {
	calls := n.Outcomes()
	for _, o := range [...]struct {
		outcome string
		n       uint64
	}{
		{"ok", calls.OK}, {"error", calls.Error}, {"limit", calls.Limit}, {"recalled", calls.Recalled}, {"skipped", calls.Skipped},
	} {
		f.count(scriptCalls, o.n, l.with(labelOutcome, o.outcome))
	}
	f.count(scriptRejected, n.Rejected, l)
	f.value(scriptSeconds, n.Latency.Seconds(), l)
	f.observed(scriptDuration, &n.Latency, l)
	f.flag(scriptBreakerOpen, n.State == hook.BreakerOpen, l)
}
