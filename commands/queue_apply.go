package commands

import (
	"fmt"

	"github.com/faisca/fila/commands/definition"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/acl"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/resp"
)

func queueApply() Spec {
	return Spec{
		Name: "APPLY", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of queues, bindings and throttles, named or existing", Returns: "array of map",
		Summary: "Creates and alters queues, binds them to topics, and sets throttles, to match a definition, in one atomic write. With PRUNE it deletes queues that are not in the definition, " +
			"but none that holds messages unless FORCE is given, and ends the bindings that are not in it; throttles that are not in it, if it has any. DRYRUN only says what would be done. It is what `fila queues apply` sends, see docs/how-to/queues.md. " +
			"The definition is JSON: an object with queues, an array of objects with name and the settings in the words of FILA.QUEUE INFO; " +
			"dlq is a name or false; on_enqueue and on_failure are sources of scripts. A setting that is not there gets its default, a script stays. " +
			"topics is an array of bindings, objects with name, queue and headers: an object with a pattern, or an array of patterns, for each header. " +
			"throttles is an array of objects with name, which may be a pattern, rate, burst, concurrency, by_cost, adaptive and min, as in FILA.THROTTLE SET.",
		Reply: "An array of maps: " + changeFields(&engine.QueueChange{}).names() + ". action is create, alter, delete, bind, rebind, unbind, throttle, rethrottle or unthrottle; fields an array of maps: name from to. " +
			"Of a binding, topic is its topic, and the fields are headers with their patterns in quotes. Of a throttle, throttle is its name, and queue is empty.",
		Flags: []string{"write", "denyoom"},
		ACL:   []string{"admin"},
		Args: []Arg{
			{Name: "definition", Type: String},
			{Name: "prune", Type: PureToken, Token: "PRUNE", Optional: true},
			{Name: "force", Type: PureToken, Token: "FORCE", Optional: true},
			{Name: "dryrun", Type: PureToken, Token: "DRYRUN", Optional: true},
		},
		Examples: []Example{
			{`FILA.QUEUE APPLY "{\"queues\":[{\"name\":\"orders\",\"max_attempts\":3,\"dlq\":false}]}" DRYRUN`, "..."},
			{`FILA.QUEUE APPLY "{\"queues\":[{\"name\":\"orders\",\"colour\":\"red\"}]}"`, `(error) INVALID definition: unknown field "colour"`},
		},
		Room:   always(aloneRoom),
		Memory: "known only when it is executed, which is when no reply precedes it",
		Parse:  parseQueueApply,
	}
}

func parseQueueApply(s *Session, in *input) (call, error) {
	c := &queueApplyCall{definition: in.Bytes("definition")}
	var err error
	if c.set, c.sources, err = definition.Parse(c.definition); err != nil {
		return nil, command.Refuse("INVALID", err.Error())
	}
	c.set.User = s.userName()
	c.set.Prune, c.set.Force, c.set.DryRun = in.Has("prune"), in.Has("force"), in.Has("dryrun")
	if c.set.Prune && !in.User.Unrestricted() {
		return nil, command.Refuse("NOPERM", "PRUNE deletes any queue, which takes a user without restrictions")
	}
	if in.User == nil {
		return c, nil
	}
	for i := range c.set.Queues {
		q := &c.set.Queues[i]
		names := []string{q.Name, q.Name + engine.DLQSuffix}
		if q.Options.DLQ != nil {
			names[1] = *q.Options.DLQ
		}
		for _, name := range names {
			if !in.User.May(acl.Manage, name) {
				return nil, command.Refuse("NOPERM", fmt.Sprintf("no permissions to change queue %.255q", name))
			}
		}
	}
	for i := range c.set.Bindings {
		b := &c.set.Bindings[i]
		if !in.User.May(acl.Manage, b.Topic) || !in.User.May(acl.Produce, b.Queue) {
			return nil, command.Refuse("NOPERM", fmt.Sprintf("no permissions to bind queue %.255q to topic %.255q", b.Queue, b.Topic))
		}
	}
	if len(c.set.ThrottleSpecs) > 0 && !in.User.MayRun(s.table().Resolve([]byte("fila.throttle|set")).Index) {
		return nil, command.Refuse("NOPERM", "no permissions to set throttles")
	}
	return c, nil
}

type queueApplyCall struct {
	definition []byte
	set        engine.QueueSet
	sources    [][2]string // of the hooks of each queue, by kind
	changes    []engine.QueueChange
}

// Prepare compiles the scripts on the connection.
func (c *queueApplyCall) Prepare(s *Session) error {
	return compileQueues(&c.set, c.sources, func(within hook.Bounds, kind hook.Kind, source string) (hook.Hook, error) {
		return s.compile(hook.Caller{Queue: within}, kind, source)
	})
}

// Bytes implements weigher.
func (c *queueApplyCall) Bytes() int { return len(c.definition) }

// Apply implements engine.Call.
func (c *queueApplyCall) Apply(tx *engine.Tx) (err error) {
	c.changes, err = tx.ApplyQueues(&c.set)
	return err
}

// Render writes the changes.
func (c *queueApplyCall) Render(_ *Handler, w *resp.Writer) error {
	writeEach(w, len(c.changes), func(i int) *fields { return changeFields(&c.changes[i]) })
	return nil
}

func changeFields(c *engine.QueueChange) *fields {
	list := make([]fields, len(c.Fields))
	for i, d := range c.Fields {
		list[i].text("name", d.Name)
		list[i].text("from", d.From)
		list[i].text("to", d.To)
	}
	var f fields
	f.text("action", c.Action)
	f.text("queue", c.Queue)
	f.groups("fields", list)
	f.number("messages", c.Messages)
	f.text("topic", c.Topic)
	f.text("throttle", c.Throttle)
	return &f
}

// Queues returns the set that a definition in the format of FILA.QUEUE APPLY describes, without
// pruning. It compiles the scripts.
func Queues(text []byte, e Engine) (engine.QueueSet, error) {
	set, sources, err := definition.Parse(text)
	if err != nil {
		return set, command.Refuse("INVALID", err.Error())
	}
	err = compileQueues(&set, sources, func(within hook.Bounds, kind hook.Kind, source string) (hook.Hook, error) {
		return e.CompileScript(hook.Caller{Queue: within}, kind, source)
	})
	return set, err
}

func compileQueues(set *engine.QueueSet, sources [][2]string, compile func(hook.Bounds, hook.Kind, string) (hook.Hook, error)) error {
	for i := range set.Queues {
		for kind, source := range sources[i] {
			if source == "" {
				continue
			}
			h, err := compile(set.Queues[i].Options.HookBounds(), hook.Kind(kind), source)
			if err != nil {
				return fmt.Errorf("queue %q: %w", set.Queues[i].Name, err)
			}
			set.Queues[i].Hooks[kind] = h
		}
	}
	return nil
}
