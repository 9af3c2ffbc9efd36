package commands

import (
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/resp"
)

func script() Spec {
	return container("FILA.SCRIPT", "fila", "0.1.0", "the commands that manage the Lua hooks of queues", scriptDel(), scriptGet(), scriptHistory(), scriptList(), scriptLoad(), scriptRollback(), scriptStats(), scriptTest())
}

// hookArgs are a queue and one of its hooks, and what follows them.
func hookArgs(more ...Arg) []Arg {
	return append([]Arg{{Name: "queue", Type: Key}, {Name: "hook", Type: OneOf, Args: []Arg{
		{Name: "on-enqueue", Type: PureToken, Token: "ON_ENQUEUE"},
		{Name: "on-failure", Type: PureToken, Token: "ON_FAILURE"},
	}}}, more...)
}

func hookKind(in *input) hook.Kind {
	if in.Has("on_failure") {
		return hook.OnFailure
	}
	return hook.OnEnqueue
}

func scriptLoad() Spec {
	return Spec{
		Name: "LOAD", Group: "fila", Since: "0.1.0", Complexity: "O(1); on the connection, which compiles and tries the source, O(N) where N is its size", Returns: "string",
		Summary: "Gives a queue a Lua hook in place of the one it had, and returns the SHA-1 of the source, which is its version. " +
			"ON_ENQUEUE decides how a message is scheduled, ON_FAILURE what becomes of one that failed; the source defines the function of that name. " +
			"What does not compile is refused with its line, and the old hook stays. What is enqueued after the reply meets the new one.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Args:  hookArgs(Arg{Name: "source", Type: String}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{
				`FILA.SCRIPT LOAD orders ON_ENQUEUE "function on_enqueue(msg) return { fairness_key = msg.headers.tenant } end"`,
				`"058c2acae7293250e3479e0e39a2557ed47cc710"`,
			},
			{"FILA.SCRIPT LOAD orders ON_ENQUEUE return", "(error) LUA the script does not load: on_enqueue: the script defines no function on_enqueue"},
		},
		Room:   sized("source", scriptCopies),
		Memory: "32 times the source, of at most `limits.script_bytes`",
		Parse: func(s *Session, in *input) (call, error) {
			return &scriptLoadCall{queue: in.Text("queue"), kind: hookKind(in), source: string(in.Bytes("source")), user: s.userName()}, nil
		},
	}
}

type scriptLoadCall struct {
	queue  string
	kind   hook.Kind
	source string
	user   string
	hook   hook.Hook
}

// Prepare compiles the source on the connection.
func (c *scriptLoadCall) Prepare(s *Session) (err error) {
	c.hook, err = s.compile(s.loadsInto(c.queue), c.kind, c.source)
	return err
}

// loadsInto says that a script is compiled for a queue, as the queue is now.
func (s *Session) loadsInto(queue string) hook.Caller {
	return hook.Caller{Queue: s.handler.engine.Snapshot().Bounds(queue)}
}

// compile compiles a script for this session's user. It may have to wait for scripts of other
// clients: what this one has sent before is submitted first, and the wait ends when the client
// is lost.
func (s *Session) compile(by hook.Caller, kind hook.Kind, source string) (hook.Hook, error) {
	s.flush()
	lost, end := s.conn.Watch()
	defer end()
	by.Gone = lost
	if u := s.login.account.Load().User(); u != nil {
		by.Name = u.Name()
	}
	return s.engine().CompileScript(by, kind, source)
}

// Bytes is what waits for the loop.
func (c *scriptLoadCall) Bytes() int { return len(c.source) }

// Apply implements engine.Call.
func (c *scriptLoadCall) Apply(tx *engine.Tx) error { return tx.LoadScript(c.queue, c.hook, c.user) }

// Render writes the version.
func (c *scriptLoadCall) Render(_ *Handler, w *resp.Writer) error {
	w.BulkString(c.hook.Version())
	return nil
}

func scriptHistory() Spec {
	return Spec{
		Name: "HISTORY", Group: "fila", Since: "0.1.0", Complexity: "O(1); off-loop O(N) where N is the size of the sources",
		Returns: "array of map",
		Summary: "Returns the last ten sources of a hook, the newest first: when each was loaded last, and by which user. It outlives the hook and ends with the queue.",
		Reply: "An array of maps: " + versionFields(&engine.ScriptVersion{}).names() + ". current is 1 for the source that the queue has now. " +
			"loaded_at and user are nil for a source that was loaded before the broker kept histories.",
		Flags:  []string{"readonly"},
		Access: Look,
		Args:   hookArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.SCRIPT HISTORY orders ON_FAILURE", "(empty array)"},
			{`FILA.SCRIPT LOAD orders ON_FAILURE "function on_failure(msg) return { action = 'dlq' } end"`, "..."},
			{"FILA.SCRIPT HISTORY orders ON_FAILURE", "..."},
		},
		Memory: "ten times `limits.script_bytes`, and half a KiB for each",
		Room: func(s *Session, in *input) int {
			return engine.ScriptHistoryMax * (tinyRoom + s.handler.cfg.Limits.Script)
		},
		Parse: func(_ *Session, in *input) (call, error) {
			req := engine.ScriptHistory{Queue: in.Text("queue"), Kind: hookKind(in)}
			return answerMaps(func(tx *engine.Tx) ([]engine.ScriptVersion, error) { return tx.ScriptHistory(&req) }, versionFields), nil
		},
	}
}

func versionFields(v *engine.ScriptVersion) *fields {
	var f fields
	f.text("version", v.Version)
	f.at("loaded_at", v.LoadedAt)
	f.optional("user", v.User)
	f.flag("current", v.Current)
	f.number("bytes", int64(len(v.Source)))
	f.text("source", v.Source)
	return &f
}

func scriptRollback() Spec {
	return Spec{
		Name: "ROLLBACK", Group: "fila", Since: "0.1.0", Complexity: "O(1); on the connection, which reads and compiles the source, O(N) where N is its size", Returns: "string",
		Summary: "Loads a source of the history of a hook again, by its version as FILA.SCRIPT HISTORY shows it, and returns that version. It is the newest of the history then.",
		Flags:   []string{"write", "denyoom"},
		ACL:     []string{"admin"},
		Args:    hookArgs(Arg{Name: "version", Type: String}),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{`FILA.SCRIPT LOAD orders ON_ENQUEUE "function on_enqueue(msg) return { fairness_key = msg.headers.tenant } end"`, `"058c2acae7293250e3479e0e39a2557ed47cc710"`},
			{`FILA.SCRIPT LOAD orders ON_ENQUEUE "function on_enqueue(msg) return {} end"`, "..."},
			{"FILA.SCRIPT ROLLBACK orders ON_ENQUEUE 058c2acae7293250e3479e0e39a2557ed47cc710", `"058c2acae7293250e3479e0e39a2557ed47cc710"`},
		},
		Room:   func(s *Session, in *input) int { return smallRoom + scriptCopies*s.handler.cfg.Limits.Script },
		Memory: "32 times `limits.script_bytes`",
		Parse: func(s *Session, in *input) (call, error) {
			return &scriptRollbackCall{queue: in.Text("queue"), kind: hookKind(in), version: string(in.Bytes("version")), user: s.userName()}, nil
		},
	}
}

type scriptRollbackCall struct {
	queue, version, user string
	kind                 hook.Kind
	hook                 hook.Hook // nil: the history does not have the version
}

// Prepare reads and compiles the source on the connection. A source that is not there may be in a
// command that the client has sent before.
func (c *scriptRollbackCall) Prepare(s *Session) error {
	source, err := s.engine().ScriptSource(c.queue, c.kind, c.version)
	if err == nil && source == "" {
		if err = s.settle(); err == nil {
			source, err = s.engine().ScriptSource(c.queue, c.kind, c.version)
		}
	}
	if err == nil && source != "" {
		c.hook, err = s.compile(s.loadsInto(c.queue), c.kind, source)
	}
	return err
}

// Apply implements engine.Call.
func (c *scriptRollbackCall) Apply(tx *engine.Tx) error {
	return tx.RollbackScript(c.queue, c.kind, c.version, c.hook, c.user)
}

// Render writes the version.
func (c *scriptRollbackCall) Render(_ *Handler, w *resp.Writer) error {
	w.BulkString(c.version)
	return nil
}

func scriptDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Removes a hook from a queue: what clients ask for counts again. Returns 1, or 0 if there was none.",
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args:    hookArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.SCRIPT DEL orders ON_ENQUEUE", "(integer) 0"},
		},
		Parse: func(_ *Session, in *input) (call, error) {
			queue, kind := in.Text("queue"), hookKind(in)
			return answerBool(func(tx *engine.Tx) (bool, error) { return tx.DeleteScript(queue, kind) }), nil
		},
	}
}

func scriptGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(1); on the connection O(N) where N is the size of the source", Returns: "string or nil",
		Summary: "Returns the source of a hook as it was loaded, nil if the queue has none.",
		Flags:   []string{"readonly"},
		Access:  Look,
		Args:    hookArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{`FILA.SCRIPT LOAD orders ON_FAILURE "function on_failure(msg) return { action = 'dlq' } end"`, "..."},
			{"FILA.SCRIPT GET orders ON_FAILURE", `"function on_failure(msg) return { action = 'dlq' } end"`},
			{"FILA.SCRIPT GET orders ON_ENQUEUE", "(nil)"},
		},
		Room:   func(s *Session, in *input) int { return tinyRoom + s.handler.cfg.Limits.Script },
		Memory: "`limits.script_bytes`",
		Parse: func(_ *Session, in *input) (call, error) {
			queue, kind := in.Text("queue"), hookKind(in)
			return &answered[string]{take: func(tx *engine.Tx) (source string, err error) {
				list, err := tx.Scripts(queue)
				for _, s := range list {
					if s.Kind == kind {
						source = s.Source
					}
				}
				return source, err
			}, write: writeName}, nil
		},
	}
}

// hookFind finds one hook of a queue.
type hookFind struct {
	queue string
	kind  hook.Kind
	info  engine.ScriptInfo
	found bool
}

// Apply implements engine.Call.
func (c *hookFind) Apply(tx *engine.Tx) error {
	list, err := tx.Scripts(c.queue)
	for _, s := range list {
		if s.Kind == c.kind {
			c.info, c.found = s, true
		}
	}
	return err
}

func scriptList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues", Returns: "array of map",
		Summary: "Returns the hooks of a queue, or of all queues that the user has a right to.",
		Reply:   "An array of maps: " + hookFields(&engine.ScriptInfo{}).names() + ". version is nil for a script that no longer compiles since the limits were changed.",
		Flags:   []string{"readonly"},
		Access:  Look,
		Args:    []Arg{{Name: "queue", Type: Key, Optional: true}},
		Examples: []Example{
			{"FILA.SCRIPT LIST", "(empty array)"},
			{"FILA.QUEUE CREATE orders", "OK"},
			{`FILA.SCRIPT LOAD orders ON_FAILURE "function on_failure(msg) return { action = 'dlq' } end"`, "..."},
			{"FILA.SCRIPT LIST orders", "..."},
		},
		Room:   hooksRoom,
		Memory: "200 bytes for each hook",
		Parse: func(_ *Session, in *input) (call, error) {
			queue, user := in.Text("queue"), in.User
			if in.Has("queue") {
				return answerMaps(scriptsOf(queue), hookFields), nil
			}
			return answerMaps(func(tx *engine.Tx) ([]engine.ScriptInfo, error) {
				list, err := tx.Scripts("")
				return slices.DeleteFunc(list, func(s engine.ScriptInfo) bool { return !user.May(acl.Look, s.Queue) }), err
			}, hookFields), nil
		},
	}
}

// scriptsOf returns what reads the hooks of one queue.
func scriptsOf(queue string) func(tx *engine.Tx) ([]engine.ScriptInfo, error) {
	return func(tx *engine.Tx) ([]engine.ScriptInfo, error) {
		if queue == "" {
			return nil, command.Refuse("NOQUEUE", `no such queue: ""`)
		}
		return tx.Scripts(queue)
	}
}

func hookFields(s *engine.ScriptInfo) *fields {
	var f fields
	f.hook(s)
	f.number("bytes", int64(len(s.Source)))
	return &f
}

func (f *fields) hook(s *engine.ScriptInfo) {
	version := ""
	if s.Hook != nil {
		version = s.Hook.Version()
	}
	f.text("queue", s.Queue)
	f.text("hook", s.Kind.String())
	f.optional("version", version)
}

func scriptStats() Spec {
	return Spec{
		Name: "STATS", Group: "fila", Since: "0.1.0", Complexity: "O(1)", Returns: "array of map",
		Summary: "Returns how the hooks of a queue have fared since they were loaded or the broker started.",
		Reply: "An array of maps, one for each hook: " + hookStatsFields(&engine.ScriptInfo{}, &hook.Stats{}).names() + ". " +
			"state is closed while the hook is run, open while it is not as it has failed too often in a row, trial when the next call decides. " +
			"calls got a decision of the script's or its error, recalled of them without running it, as its decision was known; errors failed, limits of those for time or memory, " +
			"rejected of those after the call, as the decision could not be applied to its message; skipped were answered by the safe decision without running it. " +
			"row counts errors since the last success, opened how often the state became open, trial_at says when it may be tried again. " +
			"latency is an array of maps, the buckets that are not empty: below_us and calls, each bound about twice the one before. p50_us and p99_us are within 19 %.",
		Flags:  []string{"readonly"},
		Access: Look,
		Args:   []Arg{{Name: "queue", Type: Key}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{`FILA.SCRIPT LOAD orders ON_FAILURE "function on_failure(msg) return { action = 'dlq' } end"`, "..."},
			{"FILA.SCRIPT STATS orders", "..."},
		},
		Parse: func(s *Session, in *input) (call, error) {
			h := s.handler
			// The figures are asked for where they are written and not in the turn: a hook counts under a
			// lock, which the loop must not wait for.
			return answerMaps(scriptsOf(in.Text("queue")), func(info *engine.ScriptInfo) *fields {
				var stats hook.Stats
				if info.Hook != nil {
					stats = info.Hook.Stats(h.cfg.Now())
				}
				return hookStatsFields(info, &stats)
			}), nil
		},
	}
}

func hookStatsFields(info *engine.ScriptInfo, s *hook.Stats) *fields {
	var f fields
	f.hook(info)
	f.text("state", s.State.String())
	f.count("calls", s.Calls)
	f.count("errors", s.Errors)
	f.count("limits", s.Limits)
	f.count("skipped", s.Skipped)
	f.count("recalled", s.Recalled)
	f.number("row", int64(s.Row))
	f.count("opened", s.Opened)
	f.due("trial_at", s.TrialAt)
	f.optional("last_error", s.LastError)
	f.limit("last_line", uint64(max(s.LastLine, 0)))
	f.at("last_at", s.LastAt)
	f.bound("p50_us", s.Percentile(0.5))
	f.bound("p99_us", s.Percentile(0.99))
	f.bound("max_us", s.LatencyMax)
	f.micros("total_us", s.Latency.Sum())
	f.groups("latency", latencyBuckets(s))
	f.count("rejected", s.Rejected)
	return &f
}

func (f *fields) micros(name string, d time.Duration) { f.number(name, d.Microseconds()) }

// bound adds an upper bound of durations in microseconds, rounded up.
func (f *fields) bound(name string, d time.Duration) {
	f.micros(name, d+time.Microsecond-1)
}

func latencyBuckets(s *hook.Stats) []fields {
	var list []fields
	before := uint64(0)
	for exponent, within := range s.Latency.Powers() {
		if within == before {
			continue
		}
		var f fields
		f.bound("below_us", time.Duration(math.Ldexp(1e9, exponent)))
		f.count("calls", within-before)
		list, before = append(list, f), within
	}
	return list
}
