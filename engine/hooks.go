package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/plan"
	"github.com/faisca/fila/engine/scripts"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// CompileScript compiles a source to a hook, without loading it into a queue. It runs on the
// caller's goroutine and costs the loop nothing. It may have to wait for other loads, see
// hook.Loader. Safe for concurrent use.
//
// Errors: ErrTooBig above Limits.Script, ErrScript with the line if the source does not compile
// or define its function; ErrBusy if too many scripts wait to be loaded, ErrClientGone if by.Gone
// was closed meanwhile.
func (p *Preparer) CompileScript(by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return loadScript(p.cfg, by, kind, source)
}

// loadScript is CompileScript.
func loadScript(cfg *Config, by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	return scripts.Compile(cfg.Scripts, by, kind, source, cfg.Limits.Script)
}

// LoadScript gives a queue a compiled hook, in place of an earlier one of the same kind.
// Messages that are enqueued or fail after its reply are decided by it. The source is stored
// with the queue's settings, and in the history of the hook with the user that it is from.
//
// Errors: ErrMisconf, ErrNoQueue.
func (tx *Tx) LoadScript(queue string, h hook.Hook, user string) error {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return err
	}
	c.scripts.loaded(c, q, h, user)
	*q.source(h.Kind()) = h.Source()
	c.putQueue(q)
	c.out.snapshot = c.out.snapshot.withHook(q.name, h.Kind(), h)
	return nil
}

// DeleteScript removes a hook from a queue and reports whether there was one. Its history
// stays.
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
func (q *queue) source(kind hook.Kind) *string { return plan.HookSource(&q.set, kind) }

// recoverScripts compiles the hooks of all queues. During a recovery in place it reuses hooks
// whose source has not changed, with their statistics and breakers.
func (c *core) recoverScripts() {
	known := c.out.snapshot.hooks
	fresh := &Snapshot{config: c.out.snapshot.config}
	hooks := fresh.hooks.Edit()
	for name, q := range c.queues.byName {
		all := queueHooks{bounds: plan.HookBounds(&q.set.Values)}
		for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
			src := *q.source(kind)
			if src == "" {
				continue
			}
			if before, _ := known.Get(name); before.by[kind] != nil && before.by[kind].Source() == src {
				all.by[kind] = before.by[kind]
				continue
			}
			h, err := scripts.Restore(c.cfg.Scripts, kind, src, c.cfg.Limits.Script)
			if err != nil {
				c.cfg.Log.Error().Err(err).Str("queue", name).Stringer("hook", kind).Msg("script failed to load; using safe decisions")
			}
			all.by[kind] = h
		}
		if all != (queueHooks{}) {
			hooks.Set(name, all)
		}
	}
	fresh.hooks = hooks.Map
	c.out.snapshot = fresh
}

// ScriptHistoryMax is how many sources the history of a hook has. Config.HistoryBytes bounds
// all histories together: beyond it the oldest sources of all queues are forgotten.
const ScriptHistoryMax = scripts.Most

// scriptTable is the component of the histories.
type scriptTable struct {
	scripts.Table

	untimed
}

func (t *scriptTable) reset() { t.Table = scripts.Table{} }

// check verifies the histories (25).
func (t *scriptTable) check(c *core, bad report) {
	t.Check(func(queue string) bool { return c.queues.byName[queue] != nil }, scripts.Report(bad))
}

// loaded adds a hook that is being loaded to its history.
func (t *scriptTable) loaded(c *core, q *queue, h hook.Hook, user string) {
	t.Loaded(c.out.batch, q.name, h, c.out.snapshot.Hook(q.name, h.Kind()), user, c.now, c.cfg.HistoryBytes)
}

// recover reads the histories of all hooks. Those of queues that are gone are deleted by start.
func (t *scriptTable) recover(c *core) error {
	return t.ReadAll(c.store, func(queue string) bool { return c.queues.byName[queue] != nil }, func(parts []string) { c.detached.deleteAtStart(storage.StateScript, parts) })
}

// ScriptHistory is a request for the history of a hook.
type ScriptHistory struct {
	Queue string
	Kind  hook.Kind

	read  *scriptRead // nil: not read yet
	reads int
}

// historyReads bounds how often a history is read that changes meanwhile.
const historyReads = 10

// ScriptVersion is a source in the history of a hook.
type ScriptVersion = scripts.Shown

// ScriptHistory returns the history of a hook, the newest source first. The sources are read
// off the loop, and the task parks meanwhile (ErrWouldBlock). Errors: an unknown queue, errors
// of the store. In a transaction it is refused.
func (tx *Tx) ScriptHistory(req *ScriptHistory) ([]ScriptVersion, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, err
	}
	r, now := req.read, c.scripts.Of(scripts.Name(q.name, req.Kind))
	if tx.atomic {
		return nil, errWaits
	}
	if r == nil || r.epoch != c.epoch || r.err == nil && req.reads < historyReads && !r.Has(now) { // the history of now is read
		r = &scriptRead{epoch: c.epoch, History: scripts.NewHistory(now)}
		req.reads++
		return nil, tx.awaitRead(func(store Store) func() {
			r.err = r.Read(store)
			return func() { req.read = r }
		})
	}
	if r.err != nil {
		return nil, fmt.Errorf("history of %q: %w", req.Queue, r.err)
	}
	current := ""
	if h := c.out.snapshot.Hook(req.Queue, req.Kind); h != nil {
		current = h.Version()
	}
	return r.Shown(current), nil
}

// ScriptSource returns a source of the history of a hook; "": there is none of that version, or
// no such queue. It reads the store on the caller's goroutine and costs the loop nothing. A
// source that is being loaded need not be there yet, see Settle. Safe for concurrent use.
func (p *Preparer) ScriptSource(queue string, kind hook.Kind, version string) (string, error) {
	return scripts.Source(p.store, scripts.Name(queue, kind), version)
}

// RollbackScript loads a source of the history of a hook again, as LoadScript does. h is the
// compiled source, nil if ScriptSource has found none. Errors: those of LoadScript, ErrInvalid
// for a version that the history does not have.
func (tx *Tx) RollbackScript(queue string, kind hook.Kind, version string, h hook.Hook, user string) error {
	q, err := tx.core.queueToChange(queue)
	if err != nil {
		return err
	}
	if h == nil || tx.core.scripts.Get(scripts.Name(q.name, kind), version) == nil {
		return fmt.Errorf("%w: the history of %s of %q has no version %.80q, FILA.SCRIPT HISTORY shows those it has", ErrInvalid, kind, queue, version)
	}
	return tx.LoadScript(queue, h, user)
}

// scriptRead is the sources of a history.
type scriptRead struct {
	epoch uint64
	scripts.History
	err error
}
