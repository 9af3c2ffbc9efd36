package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/resp"

	"github.com/faisca/fila/internal/hook"
)

func script() Spec {
	return Spec{
		Name: "FILA.SCRIPT", Group: "fila", Since: "0.1.0", Complexity: "Depends on subcommand.",
		Summary:     "A container for the commands that manage the Lua hooks of queues.",
		Subcommands: []Spec{scriptDel(), scriptGet(), help("FILA.SCRIPT"), scriptList(), scriptLoad(), scriptStats(), scriptTest()},
	}
}

// hookArgs are a queue and one of its hooks, and what follows them.
func hookArgs(more ...Arg) []Arg {
	return append([]Arg{{Name: "queue", Type: Key}, {Name: "hook", Type: OneOf, Args: []Arg{
		{Name: "on-enqueue", Type: PureToken, Token: "ON_ENQUEUE"},
		{Name: "on-failure", Type: PureToken, Token: "ON_FAILURE"},
	}}}, more...)
}

func hookKind(in *input) hook.Kind {
	if in.has("on_failure") {
		return hook.OnFailure
	}
	return hook.OnEnqueue
}

func scriptLoad() Spec {
	return Spec{
		Name: "LOAD", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the size of the source",
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
		Room: sized("source", scriptCopies),
		Parse: func(in *input) (call, error) {
			return &hookLoad{queue: in.text("queue"), kind: hookKind(in), source: string(in.bytes("source"))}, nil
		},
	}
}

type hookLoad struct {
	queue  string
	kind   hook.Kind
	source string
	hook   hook.Hook
}

// Prepare compiles the source on the connection.
func (c *hookLoad) Prepare(e Engine) (err error) {
	c.hook, err = e.CompileScript(c.kind, c.source)
	return err
}

// Bytes is what waits for the loop.
func (c *hookLoad) Bytes() int { return len(c.source) }

// Apply implements engine.Call.
func (c *hookLoad) Apply(tx *engine.Tx) error { return tx.LoadScript(c.queue, c.hook) }

// Render writes the version.
func (c *hookLoad) Render(_ *Handler, w *resp.Writer) error {
	w.BulkString(c.hook.Version())
	return nil
}

func scriptDel() Spec {
	return Spec{
		Name: "DEL", Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: "Removes a hook from a queue: what clients ask for counts again. Returns 1, or 0 if there was none.",
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args:    hookArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.SCRIPT DEL orders ON_ENQUEUE", "(integer) 0"},
		},
		Parse: func(in *input) (call, error) { return &hookDrop{queue: in.text("queue"), kind: hookKind(in)}, nil },
	}
}

type hookDrop struct {
	removed
	queue string
	kind  hook.Kind
}

// Apply implements engine.Call.
func (c *hookDrop) Apply(tx *engine.Tx) (err error) {
	c.removed.found, err = tx.DeleteScript(c.queue, c.kind)
	return err
}

func scriptGet() Spec {
	return Spec{
		Name: "GET", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the size of the source",
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
		Room: func(in *input) int { return tinyRoom + in.limits.Script },
		Parse: func(in *input) (call, error) {
			return &hookSource{hookFind: hookFind{queue: in.text("queue"), kind: hookKind(in)}}, nil
		},
	}
}

// hookFind looks for one hook of a queue.
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

type hookSource struct{ hookFind }

// Render writes the source or nil.
func (c *hookSource) Render(_ *Handler, w *resp.Writer) error {
	if !c.found {
		w.Null()
		return nil
	}
	w.BulkString(c.info.Source)
	return nil
}

func scriptList() Spec {
	return Spec{
		Name: "LIST", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues",
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
		Room: hooksRoom,
		Parse: func(in *input) (call, error) {
			return &hookList{queue: in.text("queue"), all: !in.has("queue"), user: in.user}, nil
		},
	}
}

type hookList struct {
	queue string
	all   bool
	user  *acl.User // to whom they are shown
	list  []engine.ScriptInfo
}

// Apply implements engine.Call.
func (c *hookList) Apply(tx *engine.Tx) error {
	if c.queue == "" && !c.all {
		return &refusal{"NOQUEUE", `no such queue: ""`}
	}
	list, err := tx.Scripts(c.queue)
	for i := range list {
		if c.user.May(acl.Look, list[i].Queue) {
			c.list = append(c.list, list[i])
		}
	}
	return err
}

// Render writes an array of maps.
func (c *hookList) Render(_ *Handler, w *resp.Writer) error {
	writeEach(w, len(c.list), func(i int) *fields { return hookFields(&c.list[i]) })
	return nil
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
