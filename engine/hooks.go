package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/engine/plan"
	"github.com/faisca/fila/engine/scripts"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

var errNoScripts = errors.New("this broker was built without scripts")

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
// with the queue's settings, and in the history of the hook with the user that it is from.
//
// Errors: ErrMisconf, ErrNoQueue.
func (tx *Tx) LoadScript(queue string, h hook.Hook, user string) error {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return err
	}
	c.keepVersions(q, h, user)
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
			h, err := restoreScript(&c.cfg, kind, src)
			if err != nil {
				c.cfg.Log.Error().Err(err).Str("queue", name).Stringer("hook", kind).Msg("script failed to load; using safe decisions")
				h = brokenHook{kind: kind, source: src, err: err}
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

func (h brokenHook) OnEnqueue(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.EnqueueDecision, error) {
	return hook.SafeEnqueue(), h.err
}

func (h brokenHook) OnFailure(time.Time, *hook.Message, hook.View, hook.Bounds) (hook.FailureDecision, error) {
	return hook.FailureDecision{}, h.err
}

func (h brokenHook) Rejected(time.Time, string) {} // safe decisions have no delay to reject
func (h brokenHook) Failing() bool              { return true }

func (h brokenHook) Stats(time.Time) hook.Stats {
	return hook.Stats{State: hook.BreakerOpen, LastError: h.err.Error()}
}

func (h brokenHook) Try(*hook.Message, hook.View, hook.Bounds) hook.Trial {
	return hook.Trial{Err: h.err}
}

// Package scripts has the histories of hooks. They outlive the hooks and end with their queues.

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

// hookOf names a hook of a queue.
func hookOf(queue string, kind hook.Kind) scripts.Hook {
	return scripts.Hook{Queue: queue, Kind: kind.String()}
}

// keepVersions adds a hook that is being loaded to its history, and before that the hook that
// it replaces if there is no history yet: it is older than histories are.
func (c *core) keepVersions(q *queue, h hook.Hook, user string) {
	before := c.out.snapshot.Hook(q.name, h.Kind())
	if before != nil && before.Version() != "" && len(c.scripts.Of(hookOf(q.name, h.Kind()))) == 0 {
		c.keepVersion(q, before, "", 0)
	}
	c.keepVersion(q, h, user, c.now)
}

func (c *core) keepVersion(q *queue, h hook.Hook, user string, at int64) {
	rec := storage.Script{Source: h.Source(), Version: h.Version(), LoadedAt: at, User: user}
	value := rec.Append(nil)
	v, forgotten := c.scripts.Keep(hookOf(q.name, h.Kind()), &rec, len(value), c.cfg.HistoryBytes)
	c.out.batch.Put(storage.State, v.Key(), value)
	c.deleteVersions(forgotten)
}

// deleteVersions deletes sources that histories have forgotten.
func (c *core) deleteVersions(forgotten []*scripts.Version) {
	for _, v := range forgotten {
		c.out.batch.Delete(storage.State, v.Key())
	}
}

// forgetHistory forgets the histories of a queue.
func (c *core) forgetHistory(q *queue) {
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		c.deleteVersions(c.scripts.Forget(hookOf(q.name, kind)))
	}
}

// recoverHistories reads the histories of all hooks. Those of queues that are gone, as an older
// release leaves them, are deleted by start.
func (c *core) recoverHistories() error {
	type version struct {
		of    scripts.Hook
		no    uint64
		rec   storage.Script
		bytes int
	}
	var all []version
	err := records.Each(c.store, "script", storage.StateScript, 3, func(name []string, value []byte) error {
		kind, known := hook.ParseKind(name[1])
		no, err := storage.DecodeUint([]byte(name[2]))
		if err != nil || !known || no == 0 {
			return storage.ErrCorrupt
		}
		v := version{of: hookOf(name[0], kind), no: no, bytes: len(value)}
		if err := v.rec.Decode(value); err != nil {
			return err
		}
		if c.queues.byName[name[0]] == nil {
			c.deleteAtStart(storage.StateScript, name)
			return nil
		}
		v.rec.Source = ""
		all = append(all, v)
		return nil
	})
	slices.SortFunc(all, func(a, b version) int { return cmp.Compare(a.no, b.no) })
	for i := range all {
		if err := c.scripts.Restore(all[i].of, all[i].no, &all[i].rec, all[i].bytes); err != nil {
			return fmt.Errorf("two scripts have the number %d: %w", all[i].no, err)
		}
	}
	return err
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
type ScriptVersion struct {
	Version  string    // that of the compiled hook
	LoadedAt time.Time // zero: before the broker kept histories
	User     string    // that loaded it; "": not known
	Current  bool      // it is the hook of the queue now
	Source   string
}

// ScriptHistory returns the history of a hook, the newest source first. The sources are read
// off the loop, and the task parks meanwhile (ErrWouldBlock). Errors: an unknown queue, errors
// of the store. In a transaction it is refused.
func (tx *Tx) ScriptHistory(req *ScriptHistory) ([]ScriptVersion, error) {
	c := tx.core
	q, err := c.queueNamed(req.Queue)
	if err != nil {
		return nil, err
	}
	r, now := req.read, c.scripts.Of(hookOf(q.name, req.Kind))
	if tx.atomic {
		return nil, errWaits
	}
	// A source that is loaded, or loaded again, while the history is read has a record that the reader has
	// not seen: the history of now is read then.
	if r == nil || r.epoch != c.epoch || r.err == nil && req.reads < historyReads && !r.has(now) {
		r = &scriptRead{epoch: c.epoch, versions: slices.Clone(now)}
		req.reads++
		return nil, tx.awaitRead(func(store Store) func() {
			r.sources, r.err = scripts.Read(store, r.versions)
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
	var list []ScriptVersion
	for i, v := range slices.Backward(r.versions) {
		if r.sources[i] == "" {
			continue // forgotten before it was read
		}
		s := ScriptVersion{Version: v.Version, User: v.User, Current: v.Version == current, Source: r.sources[i]}
		if v.At != 0 {
			s.LoadedAt = time.Unix(0, v.At)
		}
		list = append(list, s)
	}
	return list, nil
}

// ScriptSource returns a source of the history of a hook; "": there is none of that version, or
// no such queue. It reads the store on the caller's goroutine and costs the loop nothing. A
// source that is being loaded need not be there yet, see Settle. Safe for concurrent use.
func (p *Preparer) ScriptSource(queue string, kind hook.Kind, version string) (string, error) {
	return scripts.Source(p.store, hookOf(queue, kind), version)
}

// RollbackScript loads a source of the history of a hook again, as LoadScript does. h is the
// compiled source, nil if ScriptSource has found none. Errors: those of LoadScript, ErrInvalid
// for a version that the history does not have.
func (tx *Tx) RollbackScript(queue string, kind hook.Kind, version string, h hook.Hook, user string) error {
	q, err := tx.core.queueToChange(queue)
	if err != nil {
		return err
	}
	if h == nil || tx.core.scripts.Get(hookOf(q.name, kind), version) == nil {
		return fmt.Errorf("%w: the history of %s of %q has no version %.80q, FILA.SCRIPT HISTORY shows those it has", ErrInvalid, kind, queue, version)
	}
	return tx.LoadScript(queue, h, user)
}

// scriptRead is the sources of a history.
type scriptRead struct {
	epoch    uint64
	versions []*scripts.Version
	sources  []string // by version; "": it is not in the store any more
	err      error
}

// has reports whether the sources of these versions have been read.
func (r *scriptRead) has(versions []*scripts.Version) bool {
	return slices.Equal(r.versions, versions) && !slices.Contains(r.sources, "")
}
