package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// Snapshot is the state of the engine that connections read without a task: the hooks of the
// queues, the runtime configuration and the deduplication ids. A Snapshot is immutable. Each
// change makes a new one, which is in force before the reply to the change leaves. The maps
// share their nodes with those of the previous Snapshot (ordered), so a change costs O(log n)
// in the number of queues or values.
type Snapshot struct {
	hooks       ordered[queueHooks]
	config      ordered[string]
	configBytes int             // total size of the keys and values of config
	dedup       ordered[*dedup] // by name, of queues with deduplication ids
}

type queueHooks [2]hook.Hook // by hook.Kind; nil: the queue has none

// Hook returns the hook of a queue, or nil if there is none.
func (s *Snapshot) Hook(queue string, kind hook.Kind) hook.Hook {
	hooks, _ := s.hooks.get(queue)
	return hooks[kind]
}

// Hooks is the number of queues with hooks.
func (s *Snapshot) Hooks() int { return s.hooks.len() }

// Get returns a value of the runtime configuration, and whether it exists.
func (s *Snapshot) Get(key string) (string, bool) { return s.config.get(key) }

// withHook returns a snapshot with a hook replaced, or removed if h is nil.
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

// withConfig returns a snapshot with another runtime configuration.
func (s *Snapshot) withConfig(config ordered[string], bytes int) *Snapshot {
	next := *s
	next.config, next.configBytes = config, bytes
	return &next
}

// withDedup returns a snapshot with the deduplication ids of a queue replaced.
func (s *Snapshot) withDedup(queue string, d *dedup) *Snapshot {
	next := *s
	next.dedup = s.dedup.with(queue, d)
	return &next
}

// withoutDedup returns a snapshot without the deduplication ids of a queue.
func (s *Snapshot) withoutDedup(queue string) *Snapshot {
	next := *s
	next.dedup = s.dedup.without(queue)
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

var errNoScripts = errors.New("this broker was built without scripts")

// CompileScript compiles a source to a hook, without loading it into a queue. It runs on the
// caller's goroutine and costs the loop nothing. It may have to wait for other loads, see
// hook.Loader. Safe for concurrent use.
//
// Errors: ErrTooBig above Limits.Script, ErrScript with the line if the source does not compile
// or define its function; ErrBusy if too many scripts wait to be loaded, ErrClientGone if by.Gone
// was closed meanwhile.
func (e *Engine) CompileScript(by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return loadScript(&e.cfg, by, kind, source)
}

// loadScript is CompileScript.
func loadScript(cfg *Config, by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return compileScript(cfg, kind, source, func(kind hook.Kind, source string) (hook.Hook, error) {
		return cfg.Scripts.Load(by, kind, source)
	})
}

// restoreScript compiles a source that was accepted before, at a start.
func restoreScript(cfg *Config, kind hook.Kind, source string) (hook.Hook, error) {
	return compileScript(cfg, kind, source, func(kind hook.Kind, source string) (hook.Hook, error) {
		return cfg.Scripts.Restore(kind, source)
	})
}

// compileScript compiles a source by a method of hook.Loader.
func compileScript(cfg *Config, kind hook.Kind, source string, load func(hook.Kind, string) (hook.Hook, error)) (hook.Hook, error) {
	if cfg.Scripts == nil {
		return nil, errNoScripts
	}
	if len(source) > cfg.Limits.Script {
		return nil, fmt.Errorf("%w: script of %d bytes, the limit is %d", ErrTooBig, len(source), cfg.Limits.Script)
	}
	h, err := load(kind, source)
	switch {
	case errors.Is(err, hook.ErrGone):
		return nil, ErrClientGone
	case errors.Is(err, hook.ErrBusy):
		return nil, ErrBusy
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrScript, err)
	}
	return h, nil
}

// LoadScript gives a queue a compiled hook, in place of an earlier one of the same kind.
// Messages that are enqueued or fail after its reply are decided by it. The source is stored
// with the queue's settings.
//
// Errors: ErrMisconf, ErrNoQueue.
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

// DeleteScript removes a hook from a queue and reports whether there was one.
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

// source points to the source of a hook in the settings of the queue.
func (q *queue) source(kind hook.Kind) *string { return hookSource(&q.set, kind) }

// hookSource points to the source of a hook in stored settings of a queue.
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
	// Hook runs the source. A source that was accepted once and does not compile after a
	// restart, for instance because a limit is lower now, has a Hook that makes the safe
	// decisions and has no version.
	Hook   hook.Hook
	Source string
}

// Scripts lists the hooks of a queue, or of all queues if the name is empty. The error is
// ErrNoQueue for an unknown name.
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

// recoverScripts compiles the hooks of all queues. During a recovery in place it reuses hooks
// whose source has not changed, with their statistics and breakers.
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
			h, err := restoreScript(&c.cfg, kind, src)
			if err != nil {
				c.cfg.Log.Error().Err(err).Str("queue", name).Stringer("hook", kind).Msg("script failed to load; using safe decisions")
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

// decide asks the on_enqueue hook of the request's queue, if there is one, and writes its
// decision into the request. It runs on the connection. If the hook fails, its decision is the
// safe one.
func (s *Snapshot) decide(req *Enqueue, now func() int64) {
	h := s.Hook(req.Queue, hook.OnEnqueue)
	if h == nil {
		return
	}
	msg := hook.Message{
		Queue: req.Queue, Headers: req.Headers, PayloadSize: len(req.Payload), Key: req.Key, Weight: max(req.Weight, 1), Throttles: req.Throttles,
	}
	d, _ := h.OnEnqueue(unix(now()), &msg, s.Get) // the hook has counted an error, and the decision is safe
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
	req.hook, req.hookDelay = h, d.Delay // times checks it against the queue's time to live
}

// verdict is the job that asks an on_failure hook about a message that has failed. Hook and
// store are called off the loop. The message stays leased until the decision arrives:
//
//  1. askFailure adds the job to the outbox.
//  2. After the commit, do reads the headers from the store and calls the hook.
//  3. Apply runs in a later turn and passes the decision to then, which must check that the
//     lease still exists.
type verdict struct {
	hook     hook.Hook
	snapshot *Snapshot
	now      int64
	msg      hook.Message
	mk       storage.MessageKey
	then     func(c *core, d hook.FailureDecision)

	decision hook.FailureDecision
}

// askFailure asks an on_failure hook what to do with a message. attempts includes the failure,
// and text is its error. then is called with the decision in a later turn.
func (c *core) askFailure(h hook.Hook, m *message, attempts uint32, text string, then func(c *core, d hook.FailureDecision)) {
	v := &verdict{hook: h, snapshot: c.out.snapshot, now: c.now, mk: m.storageKey(), then: then}
	v.msg = hook.Message{
		Queue: m.key.queue.name, Key: m.key.name, Weight: m.key.weight, ID: m.id.String(), Attempts: attempts, Error: text,
	}
	c.out.jobs = append(c.out.jobs, v)
}

// do implements job.
func (v *verdict) do(store Store) {
	var rec storage.Message
	body, err := store.Get(storage.Messages, v.mk.Append(nil))
	if err == nil {
		err = rec.Decode(body)
	}
	if err != nil {
		return // removed in the meantime, or unreadable: the zero decision is the safe one
	}
	v.msg.Headers, v.msg.PayloadSize, v.msg.Throttles = rec.Headers, len(rec.Payload), rec.Throttles
	v.decision, _ = v.hook.OnFailure(unix(v.now), &v.msg, v.snapshot.Get) // see decide
}

// Apply implements Call: it passes the decision on.
func (v *verdict) Apply(tx *Tx) error {
	v.then(tx.core, v.decision)
	return nil
}

// brokenHook replaces a hook whose script was accepted once and does not load any more. It
// makes the safe decisions and reports why.
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

func (h brokenHook) Rejected(time.Time, string) {} // safe decisions have no delay to reject

func (h brokenHook) Stats(time.Time) hook.Stats {
	return hook.Stats{State: hook.BreakerOpen, LastError: h.err.Error()}
}

func (h brokenHook) Try(*hook.Message, hook.Settings) hook.Trial { return hook.Trial{Err: h.err} }

// A hook decides on the connection, without knowing the settings of the queue at the time of
// the enqueue. So a decision within Limits may still be impossible for the queue: a delay that
// ends after the message's time to live. A hook must not fail a command. The engine therefore
// ignores such a delay, applies the rest of the decision, and has the hook count an error.

// times returns when a message that is enqueued now is ready, which may be in the past, and
// when its time to live ends, 0 for never. A delay of the hook takes precedence over that of
// the producer, unless it ends after the time to live.
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

// rejectedDelays is the job that reports rejected delays to their hooks. It runs off the loop
// because a hook takes a lock to count.
type rejectedDelays struct{ all []rejectedDelay }

// rejectedDelay is a delay of a hook's decision that ended after the message's time to live.
type rejectedDelay struct {
	hook       hook.Hook
	at         int64
	delay, ttl time.Duration
}

// reportRejected has the hook count an error. The reports of one batch share a job.
func (c *core) reportRejected(d rejectedDelay) {
	if n := len(c.out.jobs); n > 0 {
		if u, ok := c.out.jobs[n-1].(*rejectedDelays); ok {
			u.all = append(u.all, d)
			return
		}
	}
	c.out.jobs = append(c.out.jobs, &rejectedDelays{[]rejectedDelay{d}})
}

// do implements job.
func (u *rejectedDelays) do(Store) {
	for _, d := range u.all {
		d.hook.Rejected(unix(d.at), fmt.Sprintf("result field 'delay_ms' is %d, it must be less than the time to live of the message, %d ms",
			d.delay.Milliseconds(), d.ttl.Milliseconds()))
	}
}

// Apply implements Call. Nothing follows from the reports.
func (u *rejectedDelays) Apply(*Tx) error { return nil }
