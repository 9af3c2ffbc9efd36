package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
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

// hookBounds returns the bounds of a queue's hooks.
func hookBounds(v *queueset.Values) hook.Bounds {
	return hook.Bounds{
		Timeout: v.Duration(queueset.LuaTimeout),
		Memory:  int(v[queueset.LuaMemory]),
		Errors:  uint32(v[queueset.BreakerErrors]),
	}
}

// HookBounds returns the bounds of the hooks of a queue that a definition describes with these
// options: what is not given is the configuration's.
func (o *QueueOptions) HookBounds() hook.Bounds {
	var v queueset.Values
	for s, n := range o.Given {
		v[s] = n
	}
	return hookBounds(&v)
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
func (q *queue) source(kind hook.Kind) *string { return hookSource(&q.set, kind) }

// hookSource points to the source of a hook in stored settings of a queue.
func hookSource(set *storage.Queue, kind hook.Kind) *string {
	if kind == hook.OnFailure {
		return &set.OnFailure
	}
	return &set.OnEnqueue
}

// recoverScripts compiles the hooks of all queues. During a recovery in place it reuses hooks
// whose source has not changed, with their statistics and breakers.
func (c *core) recoverScripts() {
	known := c.out.snapshot.hooks
	fresh := &Snapshot{config: c.out.snapshot.config, configBytes: c.out.snapshot.configBytes}
	hooks := fresh.hooks.Edit()
	for name, q := range c.queues.byName {
		all := queueHooks{bounds: hookBounds(&q.set.Values)}
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

// The history of a hook is the last sources that were loaded, each once, in the order of their
// last loading. The sources are in the store only; memory has what orders and names them. It
// outlives the hook and ends with the queue.

// ScriptHistoryMax is how many sources the history of a hook has. Config.HistoryBytes bounds
// all histories together: beyond it the oldest sources of all queues are forgotten.
const ScriptHistoryMax = 10

// scriptVersion is a source in a history. It is not changed, so jobs may read it.
type scriptVersion struct {
	queue         *queue
	kind          hook.Kind
	no            uint64 // in queueSet.versions, which has those of all queues by age
	version, user string
	at            int64 // when it was loaded last, in Unix nanoseconds; 0: before there was a history
	bytes         int   // of its record
}

// key returns the key of its record.
func (v *scriptVersion) key() []byte {
	return storage.AppendStateKey(nil, storage.StateScript, v.queue.name, v.kind.String(), string(storage.EncodeUint(v.no)))
}

// keepVersions adds a hook that is being loaded to its history, and before that the hook that
// it replaces if there is no history yet: it is older than histories are.
func (c *core) keepVersions(q *queue, h hook.Hook, user string) {
	before := c.out.snapshot.Hook(q.name, h.Kind())
	if before != nil && before.Version() != "" && len(q.history[h.Kind()]) == 0 {
		c.keepVersion(q, before, "", 0)
	}
	c.keepVersion(q, h, user, c.now)
}

func (c *core) keepVersion(q *queue, h hook.Hook, user string, at int64) {
	kind := h.Kind()
	if old := q.version(kind, h.Version()); old != nil {
		c.forgetVersion(old)
	}
	rec := storage.Script{Source: h.Source(), Version: h.Version(), LoadedAt: at, User: user}
	value := rec.Append(nil)
	v := &scriptVersion{queue: q, kind: kind, version: rec.Version, user: user, at: at, bytes: len(value)}
	c.addVersion(v)
	c.out.batch.Put(storage.State, v.key(), value)
	for len(q.history[kind]) > ScriptHistoryMax {
		c.forgetVersion(q.history[kind][0])
	}
	for oldest := c.queues.oldestVersion(); c.queues.versionBytes > c.cfg.HistoryBytes && oldest != v; oldest = c.queues.oldestVersion() {
		c.forgetVersion(oldest)
	}
}

// addVersion adds a version to memory as the newest.
func (c *core) addVersion(v *scriptVersion) {
	v.no = c.queues.versions.Add(v)
	c.queues.versionBytes += v.bytes
	v.queue.history[v.kind] = append(v.queue.history[v.kind], v)
}

// forgetVersion removes a version from memory and from the store.
func (c *core) forgetVersion(v *scriptVersion) {
	c.queues.versions.Remove(v.no)
	c.queues.versionBytes -= v.bytes
	list := &v.queue.history[v.kind]
	*list = slices.DeleteFunc(slices.Clone(*list), func(o *scriptVersion) bool { return o == v })
	c.out.batch.Delete(storage.State, v.key())
}

// forgetHistory forgets the histories of a queue.
func (c *core) forgetHistory(q *queue) {
	for kind := range q.history {
		for len(q.history[kind]) > 0 {
			c.forgetVersion(q.history[kind][0])
		}
	}
}

// version returns a version of the history of a hook, nil if it is not there.
func (q *queue) version(kind hook.Kind, version string) *scriptVersion {
	for _, v := range q.history[kind] {
		if v.version == version {
			return v
		}
	}
	return nil
}

// oldestVersion returns the version that was loaded before all others.
func (s *queueSet) oldestVersion() (oldest *scriptVersion) {
	s.versions.Walk(0, 1, func(v *scriptVersion) { oldest = v })
	return oldest
}

// recoverHistories reads the histories of all hooks. Those of queues that are gone, as an older
// release leaves them, are deleted by start.
func (c *core) recoverHistories() error {
	var all []*scriptVersion
	err := c.scan(storage.State, storage.AppendStateKey(nil, storage.StateScript), func(k, value []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 4 {
			return fmt.Errorf("script %q: %w", k, storage.ErrCorrupt)
		}
		kind, known := hook.ParseKind(parts[2])
		no, err := storage.DecodeUint([]byte(parts[3]))
		if err != nil || !known || no == 0 {
			return fmt.Errorf("script %q: %w", k, storage.ErrCorrupt)
		}
		var rec storage.Script
		if err := rec.Decode(value); err != nil {
			return fmt.Errorf("script of %q: %w", parts[1], err)
		}
		q := c.queues.byName[parts[1]]
		if q == nil {
			c.detached.stale = append(c.detached.stale, slices.Clone(k))
			return nil
		}
		all = append(all, &scriptVersion{queue: q, kind: kind, no: no, version: rec.Version, user: rec.User, at: rec.LoadedAt, bytes: len(value)})
		return nil
	})
	slices.SortFunc(all, func(a, b *scriptVersion) int { return cmp.Compare(a.no, b.no) })
	for _, v := range all {
		if v.no <= c.queues.versions.Last() {
			return fmt.Errorf("two scripts have the number %d: %w", v.no, storage.ErrCorrupt)
		}
		c.queues.versions.Skip(v.no - 1)
		c.addVersion(v)
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
	r := req.read
	if tx.atomic {
		return nil, errWaits
	}
	// A source that is loaded, or loaded again, while the history is read has a record that the reader has
	// not seen: the history of now is read then.
	if r == nil || r.epoch != c.epoch || r.err == nil && req.reads < historyReads && !r.has(q.history[req.Kind]) {
		r = &scriptRead{epoch: c.epoch, versions: slices.Clone(q.history[req.Kind])}
		req.reads++
		return nil, tx.awaitRead(func(store Store) func() {
			r.do(store)
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
		s := ScriptVersion{Version: v.version, User: v.user, Current: v.version == current, Source: r.sources[i]}
		if v.at != 0 {
			s.LoadedAt = time.Unix(0, v.at)
		}
		list = append(list, s)
	}
	return list, nil
}

// ScriptSource returns a source of the history of a hook; "": there is none of that version, or
// no such queue. It reads the store on the caller's goroutine and costs the loop nothing. A
// source that is being loaded need not be there yet, see Settle. Safe for concurrent use.
func (e *Engine) ScriptSource(queue string, kind hook.Kind, version string) (string, error) {
	return scriptSource(e.store, queue, kind, version)
}

// scriptSource is ScriptSource.
func scriptSource(store Store, queue string, kind hook.Kind, version string) (string, error) {
	prefix := storage.AppendStateKey(nil, storage.StateScript, queue, kind.String())
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		var rec storage.Script
		if err := rec.Decode(it.Value()); err != nil {
			return "", err
		}
		if rec.Version == version {
			return rec.Source, nil
		}
	}
	return "", it.Err()
}

// RollbackScript loads a source of the history of a hook again, as LoadScript does. h is the
// compiled source, nil if ScriptSource has found none. Errors: those of LoadScript, ErrInvalid
// for a version that the history does not have.
func (tx *Tx) RollbackScript(queue string, kind hook.Kind, version string, h hook.Hook, user string) error {
	q, err := tx.core.queueToChange(queue)
	if err != nil {
		return err
	}
	if h == nil || q.version(kind, version) == nil {
		return fmt.Errorf("%w: the history of %s of %q has no version %.80q, FILA.SCRIPT HISTORY shows those it has", ErrInvalid, kind, queue, version)
	}
	return tx.LoadScript(queue, h, user)
}

// scriptRead is the sources of a history.
type scriptRead struct {
	epoch    uint64
	versions []*scriptVersion
	sources  []string // by version; "": it is not in the store any more
	err      error
}

// has reports whether the sources of these versions have been read.
func (r *scriptRead) has(versions []*scriptVersion) bool {
	return slices.Equal(r.versions, versions) && !slices.Contains(r.sources, "")
}

// do reads the sources, off the loop.
func (r *scriptRead) do(store Store) {
	r.sources = make([]string, len(r.versions))
	for i, v := range r.versions {
		value, err := store.Get(storage.State, v.key())
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		var rec storage.Script
		if err == nil {
			err = rec.Decode(value)
		}
		if err != nil {
			r.err = err
			return
		}
		r.sources[i] = rec.Source
	}
}
