package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
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

// CompileScript makes a hook of a source, without loading it into a queue. It runs
// on the connection: compiling costs the loop nothing.
func (e *Engine) CompileScript(kind hook.Kind, source string) (hook.Hook, error) {
	return compileScript(&e.cfg, hook.Loader.Load, kind, source)
}

func compileScript(cfg *Config, load func(hook.Loader, hook.Kind, string) (hook.Hook, error), kind hook.Kind, source string) (hook.Hook, error) {
	if cfg.Scripts == nil {
		return nil, errNoScripts
	}
	if len(source) > cfg.Limits.Script {
		return nil, fmt.Errorf("%w: script of %d bytes, the limit is %d", ErrTooBig, len(source), cfg.Limits.Script)
	}
	h, err := load(cfg.Scripts, kind, source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScript, err)
	}
	return h, nil
}

// LoadScript gives a queue a compiled hook, in place of the one it had. It is
// kept with the queue.
func (tx *Tx) LoadScript(queue string, h hook.Hook) error {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return err
	}
	*q.source(h.Kind()) = h.Source()
	c.putQueue(q)
	c.out.snapshot = c.out.snapshot.withHook(q.name, h.Kind(), h)
	return nil
}

// DeleteScript takes a hook away and reports whether there was one.
func (tx *Tx) DeleteScript(queue string, kind hook.Kind) (bool, error) {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return false, err
	}
	source := q.source(kind)
	if *source == "" {
		return false, nil
	}
	*source = ""
	c.putQueue(q)
	c.out.snapshot = c.out.snapshot.withHook(q.name, kind, nil)
	return true, nil
}

// source is where a queue's settings keep the source of a hook.
func (q *queue) source(kind hook.Kind) *string { return hookSource(&q.set, kind) }

func hookSource(set *storage.Queue, kind hook.Kind) *string {
	if kind == hook.OnFailure {
		return &set.OnFailure
	}
	return &set.OnEnqueue
}

// ScriptInfo describes a hook of a queue.
type ScriptInfo struct {
	Queue string
	Kind  hook.Kind
	// Hook runs the source. If that was accepted once and does not compile now, as
	// after a change of the limits, the hook makes safe decisions in its place and
	// has no version.
	Hook   hook.Hook
	Source string
}

// Scripts lists the hooks of a queue, or of all queues if the name is empty.
func (tx *Tx) Scripts(queue string) ([]ScriptInfo, error) {
	c := tx.core
	names := tx.Queues()
	if queue != "" {
		if _, err := c.queueNamed(queue); err != nil {
			return nil, err
		}
		names = []string{queue}
	}
	var list []ScriptInfo
	for _, name := range names {
		q := c.queues.byName[name]
		for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
			if src := *q.source(kind); src != "" {
				list = append(list, ScriptInfo{Queue: name, Kind: kind, Hook: c.out.snapshot.Hook(name, kind), Source: src})
			}
		}
	}
	return list, nil
}

// recoverScripts compiles the hooks of the queues anew, but for those that are
// known already from before a recovery in place.
func (c *core) recoverScripts() {
	known := c.out.snapshot.hooks
	fresh := &Snapshot{config: c.out.snapshot.config, configBytes: c.out.snapshot.configBytes}
	hooks := fresh.hooks.edit()
	for name, q := range c.queues.byName {
		var all queueHooks
		for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
			src := *q.source(kind)
			if src == "" {
				continue
			}
			if before, _ := known.get(name); before[kind] != nil && before[kind].Source() == src {
				all[kind] = before[kind]
				continue
			}
			h, err := compileScript(&c.cfg, hook.Loader.Restore, kind, src)
			if err != nil {
				c.cfg.Log.Error().Err(err).Str("queue", name).Stringer("hook", kind).Msg("a script does not load any more, safe decisions are made in its place")
				h = brokenHook{kind: kind, source: src, err: err}
			}
			all[kind] = h
		}
		if all != (queueHooks{}) {
			hooks.tree.Set(name, all)
		}
	}
	fresh.hooks = hooks
	c.out.snapshot = fresh
}

// decide asks the hook of a queue about a message that is enqueued, if there is
// one, and writes what it has decided into the request.
func (s *Snapshot) decide(req *Enqueue, now func() int64) {
	h := s.Hook(req.Queue, hook.OnEnqueue)
	if h == nil {
		return
	}
	msg := hook.Message{
		Queue: req.Queue, Headers: req.Headers, PayloadSize: len(req.Payload), Key: req.Key, Weight: max(req.Weight, 1), Throttles: req.Throttles,
	}
	d, _ := h.OnEnqueue(unix(now()), &msg, s.Get) // an error is counted by the hook, and the decision is a safe one
	if d.Key != "" {
		req.Key = d.Key
	}
	if d.Weight > 0 {
		req.Weight = d.Weight
	}
	if d.Cost > 0 {
		req.Cost = d.Cost
	}
	if d.Throttles != nil {
		req.Throttles = d.Throttles
	}
	if d.Priority != nil {
		req.Priority = d.Priority
	}
	req.hook, req.hookDelay = h, d.Delay // whether it can be kept, the queue knows: see times
}

// verdict asks the on_failure hook of a queue about a message that failed. It
// runs beside the loop, and so does reading the headers that the hook may see;
// the message stays leased meanwhile, and the answer comes back as a call.
type verdict struct {
	hook     hook.Hook
	snapshot *Snapshot
	now      int64
	msg      hook.Message
	mk       storage.MessageKey
	then     func(c *core, d hook.FailureDecision)

	decision hook.FailureDecision
}

// askFailure asks what is to become of a message that has failed so many times; then is
// called in a later turn.
func (c *core) askFailure(h hook.Hook, m *message, attempts uint32, text string, then func(c *core, d hook.FailureDecision)) {
	v := &verdict{hook: h, snapshot: c.out.snapshot, now: c.now, mk: m.storageKey(), then: then}
	v.msg = hook.Message{
		Queue: m.key.queue.name, Key: m.key.name, Weight: m.key.weight, ID: m.id.String(), Attempts: attempts, Error: text,
	}
	c.out.jobs = append(c.out.jobs, v)
}

func (v *verdict) do(store Store) {
	var rec storage.Message
	body, err := store.Get(storage.Messages, v.mk.Append(nil))
	if err == nil {
		err = rec.Decode(body)
	}
	if err != nil {
		return // removed meanwhile, or not readable: the safe decision is the zero one
	}
	v.msg.Headers, v.msg.PayloadSize, v.msg.Throttles = rec.Headers, len(rec.Payload), rec.Throttles
	v.decision, _ = v.hook.OnFailure(unix(v.now), &v.msg, v.snapshot.Get) // see decide
}

// Apply hands the decision to whoever has asked.
func (v *verdict) Apply(tx *Tx) error {
	v.then(tx.core, v.decision)
	return nil
}

// brokenHook stands in for a script that was accepted once and does not load any
// more: it makes the safe decisions, and says why.
type brokenHook struct {
	kind   hook.Kind
	source string
	err    error
}

func (h brokenHook) Kind() hook.Kind { return h.kind }
func (h brokenHook) Source() string  { return h.source }
func (h brokenHook) Version() string { return "" }

func (h brokenHook) OnEnqueue(time.Time, *hook.Message, hook.Settings) (hook.EnqueueDecision, error) {
	return hook.SafeEnqueue(), h.err
}

func (h brokenHook) OnFailure(time.Time, *hook.Message, hook.Settings) (hook.FailureDecision, error) {
	return hook.FailureDecision{}, h.err
}

func (h brokenHook) NotKept(time.Time, string) {} // its decisions are the safe ones

func (h brokenHook) Stats(time.Time) hook.Stats {
	return hook.Stats{State: hook.BreakerOpen, LastError: h.err.Error()}
}

func (h brokenHook) Try(*hook.Message, hook.Settings) hook.Trial { return hook.Trial{Err: h.err} }

// A hook decides on the connection, without knowing the queue as it is when the message
// comes to it. So a decision that keeps to Limits may still be one that the queue cannot
// keep: a delay that ends after the message's time to live. A hook must not fail a
// command, so that delay is left out, the rest of the decision holds, and the hook
// counts an error.

// times returns when a message that is enqueued now is ready, which may be past, and
// when its time to live ends, 0 for never. The delay of the hook goes before that of the
// producer, unless it cannot be kept.
func (c *core) times(q *queue, req *Enqueue) (readyAt, expires int64, err error) {
	if d := req.hookDelay; d != nil {
		readyAt = c.now + int64(*d)
		if expires, err = c.lifetime(q, req.TTL, readyAt); err == nil {
			return readyAt, expires, nil
		}
	}
	own := req.At
	if req.Delay > 0 {
		own = c.now + int64(req.Delay)
	}
	if expires, err = c.lifetime(q, req.TTL, own); err != nil {
		return 0, 0, err
	}
	if req.hookDelay != nil {
		c.reportRejected(rejectedDelay{hook: req.hook, at: c.now, delay: *req.hookDelay, ttl: time.Duration(expires - c.now)})
	}
	return own, expires, nil
}

// rejectedDelays tells hooks of delays that could not be kept, beside the loop: a hook counts
// under a lock.
type rejectedDelays struct{ all []rejectedDelay }

type rejectedDelay struct {
	hook       hook.Hook
	at         int64
	delay, ttl time.Duration
}

// reportRejected has a hook count an error. Those of one batch go together.
func (c *core) reportRejected(d rejectedDelay) {
	if n := len(c.out.jobs); n > 0 {
		if u, ok := c.out.jobs[n-1].(*rejectedDelays); ok {
			u.all = append(u.all, d)
			return
		}
	}
	c.out.jobs = append(c.out.jobs, &rejectedDelays{[]rejectedDelay{d}})
}

func (u *rejectedDelays) do(Store) {
	for _, d := range u.all {
		d.hook.NotKept(unix(d.at), fmt.Sprintf("result field 'delay_ms' is %d, it must be less than the time to live of the message, %d ms",
			d.delay.Milliseconds(), d.ttl.Milliseconds()))
	}
}

// Apply implements Call: nothing follows from it.
func (u *rejectedDelays) Apply(*Tx) error { return nil }
